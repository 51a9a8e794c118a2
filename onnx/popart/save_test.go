package popart_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/gen"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/internal/onnxtest"
	"github.com/popefgen/popefgen/onnx/popart"
	"github.com/popefgen/popefgen/popef"
)

// scaled is y = x·w + b, of 3 elements, with weights of 12 and 4 bytes.
func scaled() popart.Model {
	return popart.ONNX(onnxtest.Model(13, &onnx.Graph{
		Name: "scaled",
		Initializers: []*onnx.Tensor{onnxtest.Named(onnxtest.F32s(onnxtest.Dims(3, 1), 0.1, 0.2, 0.3), "w"),
			onnxtest.Named(onnxtest.F32s(onnxtest.Dims(1), 7), "b")},
		Inputs: []onnx.ValueInfo{onnxtest.Info("x", onnx.Float, 2, 3)},
		Nodes: []*onnx.Node{
			onnxtest.Node("MatMul", onnxtest.Names("x", "w"), onnxtest.Names("xw")),
			onnxtest.Node("Add", onnxtest.Names("xw", "b"), onnxtest.Names("y")),
		},
		Outputs: onnxtest.Outputs("y"),
	}))
}

// TestPackagesOfSessions generates packages of what an inference and a training session write, and runs both in one program: the numbers are those of the sessions, to the bit. An executable without variables and the
// variables are the same model.
// Feature 113.
func TestPackagesOfSessions(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles generated packages")
	}
	t.Parallel()
	dir := t.TempDir()
	weights := map[string]popart.Array{"w": popart.Of([]float32{0.7, 0.11, 0.13}), "b": popart.Of([]float32{0.3})}
	s, err := popart.NewInferenceSession(t.Context(), scaled(), popart.DataFlow{2, popart.Anchors{"y": popart.All}}, popart.CPU(), nil, &popart.Options{VariableWeights: true})
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.PrepareDevice(t.Context()))
	require.NoError(t, s.WriteWeights(t.Context(), weights))
	path := func(name string) string { return filepath.Join(dir, name+".popef") }
	require.NoError(t, s.SaveExecutable(path("scaled"), popart.WithVariables()))
	require.NoError(t, s.SaveExecutable(path("bare")))
	require.NoError(t, s.SaveVariables(path("variables")))
	x, out := count(12), s.InitAnchorArrays()
	for i := range x {
		x[i] /= 7
	}
	require.NoError(t, s.Run(t.Context(), popart.Arrays(map[string]popart.Array{"x": popart.Of(x)}, out)))
	want := fmt.Sprintf("%x\n", popart.In[float32](out["y"]))

	bare, err := popef.Load(path("bare"))
	require.NoError(t, err)
	require.NoError(t, bare.Close())
	require.Empty(t, dataIn(t, path("bare")), "no data without WithVariables")
	require.Equal(t, dataIn(t, path("scaled")), dataIn(t, path("bare"), path("variables")))
	require.Len(t, dataIn(t, path("scaled")), 2)

	learner := training(t, regression())
	require.NoError(t, learner.SaveExecutable(path("learner"), popart.WithVariables()))
	require.NoError(t, learner.WeightsFromHost(t.Context()))
	want += fmt.Sprintf("%x\n", steps(t, learner, 3))

	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	mod = regexp.MustCompile(`(?s)\ntool \(.*?\n\)\n`).ReplaceAll(mod, nil)
	mod = bytes.Replace(mod, []byte("module github.com/popefgen/popefgen\n"), []byte("module example.com/net\n"), 1)
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	require.NoError(t, err)
	for name, text := range map[string]string{
		"go.mod": fmt.Sprintf("%s\nrequire github.com/popefgen/popefgen v0.0.0\n\nreplace github.com/popefgen/popefgen => %s\n", mod, root),
		"go.sum": string(sum),
		"main.go": `package main

import (
	"context"
	"fmt"
	"log"

	"example.com/net/learner"
	"example.com/net/scaled"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	ctx := context.Background()
	r, err := scaled.Open(ctx)
	check(err)
	in, out := scaled.NewInputs(), scaled.NewOutputs()
	for i := range 12 {
		in.X[i/6].Data[i/3%2][i%3] = float32(i) / 7
	}
	check(r.Run(ctx, in, out))
	var all []float32
	for _, batch := range out.Y {
		for _, y := range batch.Data {
			all = append(all, y[0])
		}
	}
	fmt.Printf("%x\n", all)
	check(r.Close())

	l, err := learner.Open(ctx)
	check(err)
	given, got := learner.NewInputs(), learner.NewOutputs()
	for i := range 24 {
		given.X[i/6].Data[i/3%2][i%3] = float32(i) / 24
	}
	for range 3 {
		check(l.Step(ctx, given, got))
	}
	var losses []float32
	for _, loss := range got.Loss {
		losses = append(losses, loss.Data)
	}
	fmt.Printf("%x\n", losses)
	check(l.Close())
}
`} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666))
	}
	for _, name := range []string{"scaled", "learner"} {
		generate(t, dir, name)
	}
	c := exec.Command("go", "run", "-mod=mod", ".")
	c.Dir = dir
	var errs bytes.Buffer
	c.Stderr = &errs
	printed, err := c.Output()
	require.NoError(t, err, "%s%s", printed, &errs)
	require.Equal(t, want, string(printed))
}

// generate makes a package of a model in a folder.
func generate(t *testing.T, dir, name string) {
	t.Helper()
	model, err := popef.Load(filepath.Join(dir, name+".popef"))
	require.NoError(t, err)
	defer model.Close()
	plan, err := gen.Build(model, gen.Options{Package: name, Embed: name + ".popef"})
	require.NoError(t, err)
	files, err := gen.Emit(plan)
	require.NoError(t, err)
	copied, err := gen.ModelCopy(plan, model)
	require.NoError(t, err)
	_, err = gen.Write(filepath.Join(dir, name), append(files, copied))
	require.NoError(t, err)
}

// dataIn returns the tensor data of files, by name.
func dataIn(t *testing.T, paths ...string) map[string]string {
	t.Helper()
	m, err := popef.Load(paths...)
	require.NoError(t, err)
	defer m.Close()
	all := map[string]string{}
	for _, a := range m.Metadata.Anchors {
		if b, ok := m.TensorData(a.Name); ok {
			all[a.Name] = string(b)
		}
	}
	return all
}

// TestSaveWithoutWeights: a session whose model has no weights has no variables to save.
func TestSaveWithoutWeights(t *testing.T) {
	s := prepared(t, popart.DataFlow{1, popart.Anchors{"y": popart.All}}, nil)
	path := filepath.Join(t.TempDir(), "variables.popef")
	require.ErrorIs(t, s.SaveVariables(path), popart.ErrTensor)
	require.NoFileExists(t, path)
}
