// Package graphtest has an executable that tests of packages graph and encoding share.
package graphtest

import (
	"encoding/binary"
	"reflect"
	"testing"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// F32 returns a type of float32s.
func F32(shape ...int64) graph.TensorType { return graph.TensorType{DType: graph.F32, Shape: shape} }

// Floats returns the bytes of float32s.
func Floats(v ...float32) []byte {
	b, err := binary.Append(nil, binary.LittleEndian, v)
	if err != nil {
		panic(err)
	}
	return b
}

// Sample builds an executable with every kind of tensor, step and attribute:
// a small network whose weight comes through a stream, and a counter that
// keeps its value between programs.
func Sample(t testing.TB) *graph.Executable {
	t.Helper()
	b := graph.NewBuilder("sample")
	b.SetProducer("graph test")
	x := b.AddLocal("x", F32(2, 3))
	w := b.AddPersistent("w", F32(3, 4))
	count := b.AddPersistent("count", F32())
	bias := b.AddConst("bias", F32(4), Floats(1, 2, 3, 4))
	one := b.AddConst("one", F32(), Floats(1))
	none := b.AddConst("none", F32(0, 7), []byte{})
	_ = none

	g := b.BeginGraph("main")
	node := func(op graph.Op, name string, in ...graph.TensorID) graph.TensorID {
		out, err := b.Node(op, name, in...)
		require.NoError(t, err)
		return out[0]
	}
	y := node(&graph.Gemm{Alpha: 1, Beta: 0.5}, "gemm", x, w, bias)
	y = node(&graph.Unary{Fn: graph.LeakyRelu, Alpha: 0.25}, "act", y)
	y = node(&graph.Reduce{Fn: graph.ReduceMax, Axes: []int64{1}, KeepDims: true}, "max", y)
	y = node(&graph.Clip{}, "clip", y, graph.None, one)
	y = node(&graph.Cast{To: graph.F16}, "half", y)
	seq := node(&graph.Expand{Shape: []int64{1, 2, 3}}, "seq", x)
	lw := node(&graph.Expand{Shape: []int64{1, 4, 3}}, "lw", one)
	lr := node(&graph.Expand{Shape: []int64{1, 4, 1}}, "lr", one)
	node(&graph.LSTM{Hidden: 1, Direction: "forward", Activations: []string{"Sigmoid", "Tanh", "Tanh"},
		ActAlpha: []float64{0, 1, 2}, ActBeta: make([]float64, 3)}, "lstm", seq, lw, lr)
	require.NoError(t, b.NodeTo(&graph.Binary{Fn: graph.Add}, "tick", []graph.TensorID{count}, count, one))

	b.AddProgram(7, "save", b.CopyOut("count", count))
	b.AddProgram(0, "load", b.CopyIn("w", w))
	b.AddProgram(1, "main", b.Repeat(3, b.CopyIn("x", x), b.Call(g), b.CopyOut("y", y)))
	e, err := b.Finish()
	require.NoError(t, err)
	return e
}

// FillAttributes sets every attribute to any value of its type, hostile ones
// included.
func FillAttributes(t *rapid.T, op graph.Op) {
	words := rapid.SampledFrom([]string{"", "forward", "bidirectional", "Tanh", "add", "pow", "equal", "not", "neg", "exp", "max", "sum",
		"constant", "edge", "bogus", "nearest", "linear", "floor", "asymmetric", "tf_crop_and_resize", "zeros", "avg"})
	ints := rapid.OneOf(rapid.Int64Range(-2, 5), rapid.Int64())
	s := reflect.ValueOf(op).Elem()
	for i := range s.NumField() {
		f, name := s.Field(i), s.Type().Field(i).Name
		switch f.Interface().(type) {
		case bool:
			f.SetBool(rapid.Bool().Draw(t, name))
		case int64:
			f.SetInt(ints.Draw(t, name))
		case graph.GraphID:
			f.SetInt(int64(rapid.Int32().Draw(t, name)))
		case float64:
			f.SetFloat(rapid.Float64().Draw(t, name))
		default: // a string, or a named one
			f.SetString(words.Draw(t, name))
		case graph.DType:
			f.SetUint(uint64(rapid.Uint8Range(0, 30).Draw(t, name)))
		case []int64:
			f.Set(reflect.ValueOf(rapid.SliceOfN(ints, -1, 6).Draw(t, name)))
		case []float64:
			f.Set(reflect.ValueOf(rapid.SliceOfN(rapid.Float64(), -1, 6).Draw(t, name)))
		case []string:
			f.Set(reflect.ValueOf(rapid.SliceOfN(words, -1, 6).Draw(t, name)))
		}
	}
}
