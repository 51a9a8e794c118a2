package rt_test

import (
	"bytes"
	"context"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/iputest"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
)

// TestCompilerChecksInputs has Go's type checker look at requests to a
// generated package that Model Runtime would check when they are made, every
// time.
//
// Feature 73.
func TestCompilerChecksInputs(t *testing.T) {
	const generated = "github.com/popefgen/popefgen/golden/internal/affine/want"
	var stderr bytes.Buffer
	list := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}", generated)
	list.Stderr = &stderr
	out, err := list.Output()
	require.NoError(t, err, stderr.String())
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, export, _ := strings.Cut(strings.TrimSpace(line), "\t")
		exports[path] = export
	}
	files := token.NewFileSet()
	imports := importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	check := func(body string) error {
		source := fmt.Sprintf("package p\nimport \"context\"\nimport affine %q\nfunc f(ctx context.Context, r *affine.Runner, out *affine.Outputs) {\n%s\n}", generated, body)
		file, err := parser.ParseFile(files, "p.go", source, 0)
		require.NoError(t, err, body)
		config := types.Config{Importer: imports}
		_, err = config.Check("p", files, []*ast.File{file}, nil)
		return err
	}
	for _, c := range []struct{ name, body, err string }{
		{"right", "r.Run(ctx, &affine.Inputs{X: new(affine.X)}, out)", ""},
		{"an input by another name", "r.Run(ctx, &affine.Inputs{Z: new(affine.X)}, out)", "unknown field Z"},
		{"one more input", "r.Run(ctx, &affine.Inputs{X: new(affine.X), W: nil}, out)", "unknown field W"},
		{"an input that is not there, by position", "r.Run(ctx, &affine.Inputs{}, &affine.Outputs{nil, nil})", "too many values"},
		{"another tensor", "r.Run(ctx, &affine.Inputs{X: new(affine.Y)}, out)", "cannot use new(affine.Y)"},
		{"another type", "_ = affine.X{Data: [3]float64{}}", "cannot use [3]float64{}"},
		{"another shape", "_ = affine.X{Data: [4]float32{}}", "cannot use [4]float32{}"},
		{"outputs for inputs", "r.Run(ctx, out, out)", "cannot use out"},
		{"another contract", "const _ = affine.Contract00000000", "undefined: affine.Contract00000000"},
	} {
		err := check(c.body)
		if c.err == "" {
			require.NoError(t, err, c.name)
			continue
		}
		require.ErrorContains(t, err, c.err, c.name)
	}
}

// TestProgramsAndIPUs runs a model of four IPUs, two main programs and two
// device iterations, by runner and by session, on a test device and on a CPU.
func TestProgramsAndIPUs(t *testing.T) {
	ctx := context.Background()
	meta := affineMetadata()
	meta.NumIPUs = 4
	meta.ProgramFlow.Main = []uint32{loadProgram, mainProgram} // the weights come anew for every run
	model := file(t, meta, affinePortable(t), affineData)
	spec := affineSpec(t)
	spec.Contract = contract.Of(load(t, model)).Callers().Text()
	open := func(opts ...rt.RunnerOption) (*Runner, error) {
		return Open(ctx, spec, &LoadInputs{B: &B{[2]float32{10, 20}}}, genrt.Source{Name: "affine.popef", Bytes: model}, opts...)
	}

	sys := newSystem(iputest.Config{Devices: []ipu.DeviceInfo{{NumIPUs: 1}, {NumIPUs: 4}, {NumIPUs: 2}, {NumIPUs: 4}}})
	r, err := open(rt.WithManager(sys.Manager()), rt.WithReplicas(2))
	require.NoError(t, err)
	for i, id := range []int{1, 3} {
		require.Equal(t, id, r.Replica(i).Device().Info().ID, "a device of four IPUs")
		require.Equal(t, 4, r.Replica(i).Device().Info().NumIPUs)
		in, out := NewInputs(), NewOutputs()
		fill(in, 5)
		require.NoError(t, r.RunOn(ctx, i, in, out))
		require.Equal(t, want(5), out.Y, "one result for each iteration")
		require.EqualValues(t, 1, r.Replica(i).Stats().Requests)
	}
	var ran []int
	for _, e := range sys.Events(iputest.EventRun) {
		if e.Device == 1 {
			ran = append(ran, e.Program)
		}
	}
	require.Equal(t, []int{loadProgram, loadProgram, mainProgram}, ran, "to load, and then both for one request")
	x, y := someSamples(3, group+1)
	require.NoError(t, r.RunSamples(ctx, x, y))
	checkSamples(t, x, y, 0)
	_, err = open(rt.WithManager(sys.Manager()))
	require.ErrorIs(t, err, ipu.ErrNoDevice)
	require.NoError(t, r.Close())
	require.Empty(t, sys.Violations())

	r, err = open(rt.WithBackend("cpu")) // which stands for any number
	require.NoError(t, err)
	compute(t, r, 6)
	require.NoError(t, r.Close())

	sys = newSystem(iputest.Config{Devices: []ipu.DeviceInfo{{NumIPUs: 4}}})
	s, yb, _ := variant{model: model}.ready(t, rt.WithManager(sys.Manager()))
	require.Equal(t, 2, s.DeviceIterations())
	for range 2 {
		require.NoError(t, s.Run(ctx))
		require.Equal(t, floats(12, 26, 16, 32), yb.Bytes())
	}
	require.NoError(t, s.Close())
}
