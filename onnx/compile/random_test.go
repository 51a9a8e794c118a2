package compile_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/onnx/internal/onnxtest"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// drawing is a model of one output, "y", that nodes draw.
func drawing(nodes ...*onnx.Node) *onnx.Model {
	return onnxtest.Model(22, &onnx.Graph{Nodes: nodes, Outputs: onnxtest.Outputs("y")})
}

func uniform(out string, more ...*onnx.Attribute) *onnx.Node {
	return onnxtest.Node("RandomUniform", nil, onnxtest.Names(out), append(more, onnxtest.AInts("shape", 1000))...)
}

// draw opens a compiled model and returns what so many runs give. seed is fed in place of the file's unless it is nil.
func draw(t *testing.T, m *onnx.Model, o compile.Options, runs int, seed []byte, options ...modelrt.SessionOption) [][]float32 {
	t.Helper()
	r, err := compile.Compile(m, o)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "m.popef")
	require.NoError(t, r.WriteFile(path, false))
	model, err := popef.Load(path)
	require.NoError(t, err)
	defer model.Close()
	ctx := context.Background()
	s, err := modelrt.NewSession(ctx, model, append(options, rt.WithBackend("cpu"))...)
	require.NoError(t, err)
	defer s.Close()
	require.Empty(t, s.UserInputs(), "nobody has to give a seed")
	if seed != nil {
		require.NoError(t, s.Connect(ctx, model.Metadata.SeedHandle, memory(seed)))
	}
	info, ok := s.Stream(s.UserOutputs()[0].Handle)
	require.True(t, ok)
	b, err := modelrt.NewBuffer(info, s.DeviceIterations())
	require.NoError(t, err)
	require.NoError(t, s.Connect(ctx, info.Handle, b))
	var out [][]float32
	for range runs {
		require.NoError(t, s.Run(ctx))
		var v []float32
		for data := bytes.Clone(b.Bytes()); len(data) > 0; data = data[4:] {
			v = append(v, math.Float32frombits(binary.LittleEndian.Uint32(data)))
		}
		out = append(out, v)
	}
	return out
}

// TestSeeds draws from compiled models: runs differ, and all is the same for the same seed, on any number of threads.
func TestSeeds(t *testing.T) {
	m := drawing(uniform("a"), uniform("b"), onnxtest.Node("Concat", onnxtest.Names("a", "b"), onnxtest.Names("y"), onnxtest.AInt("axis", 0)))
	first := draw(t, m, compile.Options{}, 3, nil, rt.WithThreads(1))
	require.NotEqual(t, first[0], first[1], "two runs")
	require.NotEqual(t, first[1], first[2])
	require.NotEqual(t, first[0][:1000], first[0][1000:], "two operators")
	require.Equal(t, first, draw(t, m, compile.Options{}, 3, nil, rt.WithThreads(2)), "opened again, on two threads")
	seeded := draw(t, m, compile.Options{Options: onnx.Options{Seed: 7<<32 | 5}}, 3, nil)
	require.NotEqual(t, first[0], seeded[0])
	require.Equal(t, seeded, draw(t, m, compile.Options{}, 3, []byte{5, 0, 0, 0, 7, 0, 0, 0}), "a seed that the caller gives")
	twice := draw(t, m, compile.Options{Iterations: 2}, 1, nil)
	require.Equal(t, append(first[0], first[1]...), twice[0], "two iterations are two runs")
}

// TestSeedAttributes draws from models whose nodes have seeds: the model has none.
func TestSeedAttributes(t *testing.T) {
	with := func(seed float32) *onnx.Model { return drawing(uniform("y", onnxtest.AFloat("seed", seed))) }
	r, err := compile.Compile(with(3), compile.Options{})
	require.NoError(t, err)
	require.Empty(t, r.Metadata.SeedHandle)
	require.Equal(t, []uint32{0, 4}, r.Metadata.ProgramFlow.Load)
	three := draw(t, with(3), compile.Options{}, 2, nil)
	require.NotEqual(t, three[0], three[1])
	require.Equal(t, three, draw(t, with(3), compile.Options{Options: onnx.Options{Seed: 9}}, 2, nil), "the seed of the model does nothing")
	require.NotEqual(t, three, draw(t, with(4), compile.Options{}, 2, nil))
}

// TestRandomInLoops draws in loops that are not written out, one in the other: all iterations of both differ. The outer one can't
// be since its condition is drawn; it keeps what its last two iterations gave.
func TestRandomInLoops(t *testing.T) {
	const turns = 5000
	names, info := onnxtest.Names, onnxtest.Info
	inner := &onnx.Graph{Inputs: []onnx.ValueInfo{info("j", onnx.Int64), info("e", onnx.Bool)}, Outputs: onnxtest.Outputs("f", "v"), Nodes: []*onnx.Node{
		onnxtest.Node("RandomNormal", nil, names("v"), onnxtest.AInts("shape", 2)), onnxtest.Node("Identity", names("e"), names("f"))}}
	outer := &onnx.Graph{Inputs: []onnx.ValueInfo{info("i", onnx.Int64), info("c", onnx.Bool), info("before", onnx.Float), info("last", onnx.Float)}, Outputs: onnxtest.Outputs("d", "kept", "new"), Nodes: []*onnx.Node{
		onnxtest.Node("Loop", names("turns", ""), names("new"), onnxtest.AGraph("body", inner)), onnxtest.Node("Identity", names("last"), names("kept")), onnxtest.Node("Identity", names("c"), names("d"))}}
	m := drawing(onnxtest.Node("RandomUniform", nil, names("u"), onnxtest.AInts("shape")), onnxtest.Node("Less", names("u", "one"), names("go")),
		onnxtest.Node("Loop", names("three", "go", "zeros", "zeros"), names("a", "b"), onnxtest.AGraph("body", outer)), onnxtest.Node("Concat", names("a", "b"), names("y"), onnxtest.AInt("axis", 0)))
	m.Graph.Initializers = []*onnx.Tensor{
		onnxtest.Named(onnxtest.I64s(nil, 3), "three"), onnxtest.Named(onnxtest.I64s(nil, turns), "turns"), onnxtest.Named(onnxtest.F32s(nil, 1), "one"),
		onnxtest.Named(&onnx.Tensor{Elem: onnx.Float, Dims: []int64{turns, 2}, Data: make([]byte, 8*turns)}, "zeros")}
	low, err := compile.Lower(m, onnx.Options{})
	require.NoError(t, err)
	loops := 0
	for _, g := range low.Executable.Graphs {
		for _, n := range g.Nodes {
			if _, ok := n.Op.(*graph.Loop); ok {
				loops++
			}
		}
	}
	require.Equal(t, 2, loops, "the loops are not written out")
	seen := map[[2]float32]bool{}
	for _, run := range draw(t, m, compile.Options{}, 2, nil) {
		require.Len(t, run, 2*turns*2)
		for i := 0; i < len(run); i += 2 {
			seen[[2]float32(run[i:i+2])] = true
		}
	}
	require.Len(t, seen, 2*2*turns, "pairs that were drawn twice")
}

// TestRandomInFamilies wants that models of several sizes and branches that draw are refused with what to do.
func TestRandomInFamilies(t *testing.T) {
	m := onnxtest.Model(22, &onnx.Graph{Inputs: []onnx.ValueInfo{onnxtest.Info("x", onnx.Float, "N", 2)}, Outputs: onnxtest.Outputs("y"),
		Nodes: []*onnx.Node{onnxtest.Node("Bernoulli", onnxtest.Names("x"), onnxtest.Names("y"))}})
	_, err := compile.Compile(m, compile.Options{Members: []compile.Sizes{{Batch: 1}, {Batch: 2}}})
	require.ErrorContains(t, err, "the model draws random numbers, and those of several sizes would count their runs together: compile these sizes as models of their own")
}
