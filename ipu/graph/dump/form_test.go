package dump

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares text with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o777))
		require.NoError(t, os.WriteFile(path, got, 0o666))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

// learner is forward, backward and update graphs of a weight, and a loop, not verified.
func learner() *graph.Executable {
	f := func(shape ...int64) graph.TensorType { return graph.TensorType{DType: graph.F32, Shape: shape} }
	return &graph.Executable{
		Name: "a \"learner\"\n",
		Tensors: []graph.Tensor{
			{Name: "x", Type: f(2, 3)}, {Name: "w", Type: f(3, 1), Persistent: true}, {Name: `y\`, Type: f(2, 1)}, {Name: "dy", Type: f(2, 1)},
			{Name: "one", Type: f(), Const: true, Data: make([]byte, 4)}, {Name: "i", Type: f()},
		},
		Graphs: []graph.Graph{
			{Name: "main", Nodes: []graph.Node{{Op: &graph.MatMul{}, Name: "product", Inputs: []graph.TensorID{0, 1}, Outputs: []graph.TensorID{2}}}},
			{Name: "backward", Nodes: []graph.Node{{Op: &graph.Binary{Fn: "mul"}, Name: "grad/product", Inputs: []graph.TensorID{2, 2, 4}, Outputs: []graph.TensorID{3}}}},
			{Name: "update", Nodes: []graph.Node{{Op: &graph.Update{}, Name: "update w", Inputs: []graph.TensorID{1, 3, graph.None}, Outputs: []graph.TensorID{1}}}},
			{Name: "round", Nodes: []graph.Node{{Op: &graph.Loop{Body: 0}, Inputs: []graph.TensorID{graph.None, 99}, Outputs: []graph.TensorID{5, graph.None}}}},
		},
	}
}

// TestDOT draws graphs of all phases, of an executable that no verification has seen: names are quoted, what is kept for the way back is dashed.
func TestDOT(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, WriteDOT(&b, learner(), map[graph.TensorID]string{2: "arena 0+8"}))
	golden(t, "learner.dot", b.Bytes())
	if path, err := exec.LookPath("dot"); err == nil {
		c := exec.Command(path, "-Tsvg")
		c.Stdin = &b
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	require.Equal(t, []Phase{Forward, Backward, Update, Forward}, Phases(learner()))
}

// TestJSON describes the sample of the encoding, and an executable that no verification has seen.
func TestJSON(t *testing.T) {
	encoded, err := os.ReadFile("../encoding/testdata/sample-v2.bin")
	require.NoError(t, err)
	sample, err := encoding.Decode(encoded)
	require.NoError(t, err)
	for name, e := range map[string]*graph.Executable{"sample.json": sample, "learner.json": learner()} {
		text, err := json.MarshalIndent(Describe(e), "", " ")
		require.NoError(t, err)
		golden(t, name, append(text, '\n'))
		var back Executable
		require.NoError(t, json.Unmarshal(text, &back))
		again, err := json.MarshalIndent(back, "", " ")
		require.NoError(t, err)
		require.Equal(t, string(text), string(again))
	}
}
