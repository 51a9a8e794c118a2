package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/gen"
	"github.com/popefgen/popefgen/gen/plan"
	"github.com/popefgen/popefgen/internal/npy"
	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/onnx/tensorfile"
	"github.com/popefgen/popefgen/onnx/verify"
	"github.com/popefgen/popefgen/popef"
)

// publicSet is a public model compiled for one of its data sets, and the
// package that is generated from it.
type publicSet struct {
	*verify.Compiled
	model string // its name
	name  string // of the package
	popef string // path of the compiled file
	plan  *gen.Plan
	tol   verify.Tolerance
}

// TestPublicModels takes every public model all the way: from ONNX to a PopEF
// file, which `popefgen run` runs, and to a generated package in a module of its
// own, whose runner runs it. Both must give the reference outputs, and the same
// ones to the bit. It takes one data set of each model, the next one for the next
// model, and all with POPEFGEN_TESTS=all; package verify tests all in the process.
func TestPublicModels(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a package for every public model and data set")
	}
	dir := publicModels(t)
	module := t.TempDir()
	sets := compilePublic(t, dir, module)
	runGenerated(t, module, sets)
	for _, s := range sets {
		t.Run(s.name, func(t *testing.T) {
			ran, generated := runCommandOn(t, s, module), map[string][]byte{}
			for _, p := range s.Outputs {
				b, err := os.ReadFile(tensorPath(module, s, p.Name))
				require.NoError(t, err)
				generated[p.Name] = b
			}
			require.Len(t, s.Outputs, len(s.Wants))
			for i, p := range s.Outputs {
				want := s.Wants[i]
				require.Equal(t, want.Elem, p.Elem, p.Name)
				require.Equal(t, want.Dims, p.Type.Shape, p.Name)
				d, err := verify.Compare(p.Type, ran[p.Name], want.Data, s.tol)
				require.NoError(t, err, p.Name)
				require.Zero(t, d.Bad, "output %q of popefgen run: %v", p.Name, d)
				require.True(t, bytes.Equal(ran[p.Name], generated[p.Name]), "output %q: the generated runner gives other bits than popefgen run", p.Name)
			}
		})
	}
}

// publicTolerance is how the public models' README says they are judged.
func publicTolerance(model string) verify.Tolerance {
	switch model {
	case "squeezenet_fp16":
		return verify.Tolerance{Rel: 1e-2, Abs: 1e-3}
	case "microkws_qdq":
		return verify.Tolerance{Abs: 1.0 / 256} // one quantisation step of its output
	case "mlsd_tiny_320":
		if cpu.Path() == "go" {
			return verify.Tolerance{Rel: 1e-3, Abs: 0.03} // it amplifies rounding; see the tests of package verify
		}
	}
	return verify.Tolerance{Rel: 1e-3, Abs: 1e-4}
}

// compilePublic compiles all models and writes their packages.
func compilePublic(t *testing.T, dir, module string) []publicSet {
	cases, err := verify.Find([]string{dir}, true)
	require.NoError(t, err)
	var sets []publicSet
	for at, c := range cases {
		m, err := onnx.ReadFile(filepath.Join(c.Dir, "model.onnx"))
		require.NoError(t, err)
		for i, folder := range c.Sets {
			if i != at%len(c.Sets) && os.Getenv("POPEFGEN_TESTS") != "all" {
				continue
			}
			s := publicSet{model: filepath.Base(c.Dir), tol: publicTolerance(filepath.Base(c.Dir))}
			s.name = fmt.Sprintf("%s_set%d", s.model, i)
			s.popef = filepath.Join(module, s.name+".popef")
			s.Compiled, err = verify.Compile(m, folder, compile.Options{})
			require.NoError(t, err, folder)
			require.NoError(t, s.WriteFile(s.popef, false))
			s.plan = generatePublic(t, s, filepath.Join(module, s.name))
			for name, b := range s.Fed {
				require.NoError(t, os.WriteFile(tensorPath(module, s, name), b, 0o666))
			}
			sets = append(sets, s)
		}
	}
	return sets
}

func generatePublic(t *testing.T, s publicSet, dir string) *gen.Plan {
	m, err := popef.Load(s.popef)
	require.NoError(t, err)
	defer m.Close()
	plan, err := gen.Build(m, gen.Options{Package: strings.ReplaceAll(s.name, "_", ""), ModelBase: filepath.Base(s.popef), QueueDepth: 1})
	require.NoError(t, err, s.name)
	files, err := gen.Emit(plan)
	require.NoError(t, err, s.name)
	_, err = gen.Write(dir, files)
	require.NoError(t, err, s.name)
	return plan
}

// tensorPath is the file of the bytes of an input or output.
func tensorPath(module string, s publicSet, anchor string) string {
	return filepath.Join(module, npy.FileName(s.name+"."+anchor, ".bin"))
}

// runCommandOn runs `popefgen run` and returns the outputs.
func runCommandOn(t *testing.T, s publicSet, module string) map[string][]byte {
	dir := t.TempDir()
	args := []string{"run", s.popef, "--output-dir", dir}
	for name := range s.Fed {
		args = append(args, "--input", name+"="+tensorPath(module, s, name))
	}
	var out, errOut bytes.Buffer
	require.Equal(t, 0, Run(context.Background(), args, strings.NewReader(""), &out, &errOut), "%s", &errOut)
	outs := map[string][]byte{}
	for _, p := range s.Outputs {
		dtype, ok := export.DataType(p.Type.DType)
		require.True(t, ok, p.Name)
		b, err := tensorfile.Read(filepath.Join(dir, npy.FileName(p.Name, ".npy")), popef.TensorInfo{DataType: dtype, Shape: p.Type.Shape}, 1)
		require.NoError(t, err)
		outs[p.Name] = b
	}
	return outs
}

// runGenerated builds one program with all the packages and runs it: it
// reads the inputs' files and writes the outputs'.
func runGenerated(t *testing.T, module string, sets []publicSet) {
	var imports, body strings.Builder
	for _, s := range sets {
		pkg := s.plan.Package
		fmt.Fprintf(&imports, "\t%s \"publicmodels/%s\"\n", pkg, s.name)
		fmt.Fprintf(&body, "\tfunc() {\n\t\tr, err := %s.Open(ctx, %q)\n\t\tcheck(err)\n\t\tdefer r.Close()\n", pkg, s.popef)
		fmt.Fprintf(&body, "\t\tin, out := %s.NewInputs(), %s.NewOutputs()\n", pkg, pkg)
		anchor := func(f plan.Field) string { return tensorPath(module, s, s.plan.Anchors[f.Anchor].Name) }
		for _, f := range s.plan.Inputs {
			fmt.Fprintf(&body, "\t\tread(%q, in.%s.Flat())\n", anchor(f), f.Name)
		}
		body.WriteString("\t\tcheck(r.Run(ctx, in, out))\n")
		for _, f := range s.plan.Outputs {
			fmt.Fprintf(&body, "\t\twrite(%q, out.%s.Flat())\n", anchor(f), f.Name)
		}
		body.WriteString("\t}()\n")
	}
	runProgram(t, module, imports.String(), body.String())
}

// runProgram builds a program in a module of its own and runs it.
func runProgram(t *testing.T, module, imports, body string) {
	main := fmt.Sprintf(`package main

import (
	"context"
	"encoding/binary"
	"bytes"
	"log"
	"os"

%s)

func main() {
	ctx := context.Background()
%s}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func read(path string, to any) {
	b, err := os.ReadFile(path)
	check(err)
	check(binary.Read(bytes.NewReader(b), binary.LittleEndian, to))
}

func write(path string, from any) {
	var b bytes.Buffer
	check(binary.Write(&b, binary.LittleEndian, from))
	check(os.WriteFile(path, b.Bytes(), 0o666))
}
`, imports, body)
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	// The module needs what this one needs, and this one as it is here.
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	mod = regexp.MustCompile(`(?s)\ntool \(.*?\n\)\n`).ReplaceAll(mod, nil)
	mod = bytes.Replace(mod, []byte("module github.com/popefgen/popefgen\n"), []byte("module publicmodels\n"), 1)
	mod = fmt.Appendf(mod, "\nrequire github.com/popefgen/popefgen v0.0.0\n\nreplace github.com/popefgen/popefgen => %s\n", root)
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	require.NoError(t, err)
	for name, b := range map[string][]byte{"go.mod": mod, "go.sum": sum, "main.go": []byte(main)} {
		require.NoError(t, os.WriteFile(filepath.Join(module, name), b, 0o666))
	}
	command := func(name string, args ...string) {
		c := exec.Command(name, args...)
		c.Dir = module
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s %s:\n%s", name, strings.Join(args, " "), out)
	}
	program := filepath.Join(module, "publicmodels.exe")
	command("go", "build", "-mod=mod", "-o", program, ".")
	command(program)
}
