package graph

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
)

func f32(shape ...int64) TensorType { return TensorType{F32, shape} }
func typ(d DType, shape ...int64) TensorType {
	return TensorType{d, shape}
}

func floatData(v ...float32) []byte {
	b, err := binary.Append(nil, binary.LittleEndian, v)
	if err != nil {
		panic(err)
	}
	return b
}

// sameExecutable ignores the difference between nil and empty lists, which
// the encoding does not keep.
func sameExecutable(t *testing.T, want, got *Executable) {
	t.Helper()
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateNaNs()); d != "" {
		t.Fatalf("executables differ (-want +got):\n%s", d)
	}
}

// sample builds an executable with every kind of tensor, step and attribute:
// a small network whose weight comes through a stream, and a counter that
// keeps its value between programs.
func sample(t testing.TB) *Executable {
	t.Helper()
	b := NewBuilder("sample")
	b.SetProducer("graph test")
	x := b.AddLocal("x", f32(2, 3))
	w := b.AddPersistent("w", f32(3, 4))
	count := b.AddPersistent("count", f32())
	bias := b.AddConst("bias", f32(4), floatData(1, 2, 3, 4))
	one := b.AddConst("one", f32(), floatData(1))
	none := b.AddConst("none", f32(0, 7), []byte{})
	_ = none

	g := b.BeginGraph("main")
	node := func(op Op, name string, in ...TensorID) TensorID {
		out, err := b.Node(op, name, in...)
		require.NoError(t, err)
		return out[0]
	}
	y := node(&Gemm{Alpha: 1, Beta: 0.5}, "gemm", x, w, bias)
	y = node(&Unary{Fn: LeakyRelu, Alpha: 0.25}, "act", y)
	y = node(&Reduce{Fn: ReduceMax, Axes: []int64{1}, KeepDims: true}, "max", y)
	y = node(&Clip{}, "clip", y, None, one)
	y = node(&Cast{To: F16}, "half", y)
	seq := node(&Expand{Shape: []int64{1, 2, 3}}, "seq", x)
	lw := node(&Expand{Shape: []int64{1, 4, 3}}, "lw", one)
	lr := node(&Expand{Shape: []int64{1, 4, 1}}, "lr", one)
	node(&LSTM{Hidden: 1, Direction: "forward", Activations: []string{"Sigmoid", "Tanh", "Tanh"},
		ActAlpha: []float64{0, 1, 2}, ActBeta: make([]float64, 3)}, "lstm", seq, lw, lr)
	require.NoError(t, b.NodeTo(&Binary{Fn: Add}, "tick", []TensorID{count}, count, one))

	b.AddProgram(7, "save", b.CopyOut("count", count))
	b.AddProgram(0, "load", b.CopyIn("w", w))
	b.AddProgram(1, "main", b.Repeat(3, b.CopyIn("x", x), b.Call(g), b.CopyOut("y", y)))
	e, err := b.Finish()
	require.NoError(t, err)
	return e
}

func encode(t testing.TB, e *Executable) []byte {
	t.Helper()
	var buf bytes.Buffer
	require.NoError(t, e.Encode(&buf))
	return buf.Bytes()
}

// at returns a copy of b that starts off bytes after a multiple of 64.
func at(off int, b []byte) []byte {
	return alignedCopy(append(make([]byte, off), b...))[off:]
}
