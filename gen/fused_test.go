package gen_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/gen"
	"github.com/popefgen/popefgen/internal/golden"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/popef"
)

// fusedCheck is a test of a package of digits and diabetes: each branch gives the bits of the example's own package,
// in any order, to callers of both at the same time.
const fusedCheck = `package all

import (
	"context"
	"sync"
	"testing"

	progression "github.com/popefgen/popefgen/generated_examples/diabetes/progression"
	classifier "github.com/popefgen/popefgen/generated_examples/digits/classifier"
)

func TestAsAlone(t *testing.T) {
	ctx, r := context.Background(), open(t)
	c, err := classifier.Open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p, err := progression.Open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	digits := func(seed int) {
		in, out, alone, want := NewInputsDigits(), NewOutputsDigits(), classifier.NewInputs(), classifier.NewOutputs()
		for i := range in.DigitsImage.Flat() {
			in.DigitsImage.Flat()[i] = float32((i*7+seed*13)%17) / 16
		}
		copy(alone.Image.Flat(), in.DigitsImage.Flat())
		if err := r.RunDigits(ctx, in, out); err != nil {
			t.Error(err)
		}
		if err := c.Run(ctx, alone, want); err != nil {
			t.Error(err)
		}
		if out.DigitsProbabilities.Data != want.Probabilities.Data {
			t.Errorf("digits of %d: %v, alone %v", seed, out.DigitsProbabilities.Data, want.Probabilities.Data)
		}
	}
	diabetes := func(seed int) {
		in, out, alone, want := NewInputsDiabetes(), NewOutputsDiabetes(), progression.NewInputs(), progression.NewOutputs()
		in.DiabetesAge.Data[0][0], in.DiabetesSex.Data[0] = int32(20+seed%60), int64(seed%2)
		for i := range in.DiabetesMeasurements.Flat() {
			in.DiabetesMeasurements.Flat()[i] = float32(seed%50 + 10*i)
		}
		alone.Age.Data, alone.Sex.Data, alone.Measurements.Data = in.DiabetesAge.Data, in.DiabetesSex.Data, in.DiabetesMeasurements.Data
		ticket, err := r.SubmitDiabetes(ctx, in, out)
		if err == nil {
			err = ticket.Wait(ctx)
		}
		if err != nil {
			t.Error(err)
		}
		if err := p.Run(ctx, alone, want); err != nil {
			t.Error(err)
		}
		if out.DiabetesProgression.Data != want.Progression.Data {
			t.Errorf("diabetes of %d: %v, alone %v", seed, out.DiabetesProgression.Data, want.Progression.Data)
		}
	}
	digits(1)
	diabetes(2)
	digits(3)
	var all sync.WaitGroup
	all.Go(func() {
		for i := range 100 {
			digits(i)
		}
	})
	for i := range 100 {
		diabetes(i)
	}
	all.Wait()
}
`

// TestFusedExamples fuses two examples, and runs the tests of the package that is generated, and those above.
func TestFusedExamples(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a package")
	}
	var parts []compile.Part
	for _, name := range []string{"digits", "diabetes"} {
		m, err := onnx.ReadFile(filepath.Join("..", "generated_examples", name, name+".onnx"))
		require.NoError(t, err)
		parts = append(parts, compile.Part{Name: name, Model: m, Options: compile.Options{Options: onnx.Options{Batch: 1}}})
	}
	r, err := compile.Fuse(context.Background(), parts, nil)
	require.NoError(t, err)
	root := moduleFolder(t, "fused-")
	path := filepath.Join(root, "all.popef")
	require.NoError(t, r.WriteFile(path, false))
	m, err := r.Model("all.popef")
	require.NoError(t, err)
	defer m.Close()
	p, err := gen.Build(m, gen.Options{Package: "all", Tests: true})
	require.NoError(t, err)
	files, err := gen.Emit(p)
	require.NoError(t, err)
	_, err = gen.Write(root, files)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(root, "alone_test.go"), []byte(fusedCheck), 0o644))
	command(t, nil, "test", "./"+root)
}

// TestFusedRefused gives options and names that a package of a fused model can't have.
func TestFusedRefused(t *testing.T) {
	var fused goldenCase
	for _, c := range cases(t) {
		if c.name == "fused" {
			fused = c
		}
	}
	dim := 0
	for want, o := range map[string]gen.Options{
		"2 branches":                        {BatchDim: &dim},
		"generate one for them":             {State: []gen.StatePair{{Out: "line/y", In: "line/x"}}},
		"is taken by branch \"line\"":       {Renames: map[string]string{"line/x": "InputsLine"}},
		"the name BranchLine is taken by b": {Renames: map[string]string{"line/x": "BranchLine"}},
	} {
		_, err := gen.Build(fused.model, o)
		require.ErrorIs(t, err, gen.ErrBuild)
		require.ErrorContains(t, err, want)
	}
	description, err := golden.Read(filepath.Join(goldenDir, "fused", "model.yaml"))
	require.NoError(t, err)
	description.Save, description.Programs[2] = []uint32{2}, "Save"
	description.Executable.Compute[2] = []string{"b_saved = add(b, b)"}
	description.Anchors = append(description.Anchors, golden.Anchor{Name: "b_saved", Handle: "d2h_b", Type: "F32", Shape: []int64{2}, Direction: "out", Programs: []uint32{2}})
	for i := range description.Anchors {
		description.Anchors[i].Name = strings.Replace(description.Anchors[i].Name, "line/", "save/", 1)
	}
	description.Branches = strings.Replace(description.Branches, "line", "save", 1)
	description.Executable.Compute[5] = []string{"xw = matmul(save/x, w)", "save/y = add(xw, b)"}
	paths, err := description.Write(t.TempDir())
	require.NoError(t, err)
	saving, err := popef.Load(paths...)
	require.NoError(t, err)
	defer saving.Close()
	_, err = gen.Build(saving, gen.Options{})
	require.ErrorContains(t, err, `branch "save": the package binds the outputs of its save programs under this name`)

	m, err := onnx.ReadFile(filepath.Join("..", "generated_examples", "diabetes", "diabetes.onnx"))
	require.NoError(t, err)
	part := func(name string) compile.Part {
		return compile.Part{Name: name, Model: m, Options: compile.Options{Options: onnx.Options{Batch: 1}}}
	}
	for _, end := range []string{"On", "Func", "OnFunc"} {
		r, err := compile.Fuse(context.Background(), []compile.Part{part("read"), part("read" + end)}, nil)
		require.NoError(t, err)
		model, err := r.Model("on.popef")
		require.NoError(t, err)
		defer model.Close()
		_, err = gen.Build(model, gen.Options{})
		require.ErrorIs(t, err, gen.ErrBuild)
		require.ErrorContains(t, err, fmt.Sprintf(`branch "read%s": branch "read" has a RunRead%[1]s too`, end))
	}
}
