package cpu

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu/internal/plan"
	"github.com/popefgen/popefgen/ipu/graph"
)

// fielded adds two fields of a transfer of words of that type.
func fielded(t *testing.T, word graph.DType) (*graph.Builder, [2]graph.TensorID) {
	t.Helper()
	b := graph.NewBuilder("fields")
	x := b.AddLocal("x", graph.TensorType{DType: word, Shape: []int64{int64(16 / word.Size())}})
	g := b.BeginGraph("main")
	p := node(t, b, &graph.Field{Handle: "p", To: graph.F32, Shape: []int64{2}}, "p", x)
	q := node(t, b, &graph.Field{Handle: "q", Offset: 8, To: graph.F32, Shape: []int64{2, 1}}, "q", x)
	y := node(t, b, &graph.Binary{Fn: graph.Sub}, "y", p, q)
	b.AddProgram(0, "main", b.CopyIn("in", x), b.Call(g), b.CopyOut("y", y))
	return b, [2]graph.TensorID{p, q}
}

// TestFieldsAreReadInPlace looks at fields where the host has them, if its memory is sure to be
// aligned for them, and says what they are.
func TestFieldsAreReadInPlace(t *testing.T) {
	for _, tt := range []struct {
		word graph.DType
		kind plan.StepKind
	}{{graph.U64, plan.Share}, {graph.F32, plan.Share}, {graph.U8, plan.Compute}} {
		t.Run(tt.word.String(), func(t *testing.T) {
			b, fields := fielded(t, tt.word)
			p := planned(t, b)
			for i, f := range fields {
				s := p.Programs[0].Steps[1+i]
				require.Equal(t, "Field", s.Op)
				require.Equal(t, tt.kind, s.Kind)
				require.Equal(t, tt.kind == plan.Share, bufferOf(t, &p.Programs[0], f).Part)
			}
			require.Equal(t, 0, p.Programs[0].Buffers[0].Input)
			e := newLoaded(t, b)
			require.Equal(t, []ipu.FieldInfo{{Handle: "p", Type: "f32", Shape: []int64{2}}, {Handle: "q", Offset: 8, Type: "f32", Shape: []int64{2, 1}}}, e.Streams()[0].Fields)
			mem := make([]float32, 5)
			for at := range 8 { // bytes that the memory is shifted by
				b := bytesOf(mem)[at%4:][:16]
				if at >= 4 {
					b = unsafe.Slice((*byte)(unsafe.Pointer(&mem[1])), 16)
				}
				copy(b, bytesOf([]float32{1, 2, 30, 40}))
				out := make([]float32, 4)
				connect(t, e, map[string]ipu.Stream{"in": sink{b}, "y": sink{bytesOf(out)}})
				run(t, e, 0)
				require.Equal(t, []float32{-29, -28, -39, -38}, out)
			}
		})
	}
}
