package vec

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/graph"
)

func TestCast(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		from := rapid.SampledFrom(kerneltest.AllTypes).Draw(t, "from")
		to := rapid.SampledFrom(kerneltest.AllTypes).Draw(t, "to")
		in := graph.TensorType{DType: from, Shape: kerneltest.DrawShape(t, 0)}
		x := kerneltest.DrawTensor(t, in)
		out, got := run(t, &graph.Cast{To: to}, []graph.TensorType{in}, [][]byte{x})
		want := kerneltest.Load(from, x)
		for i, e := range want {
			want[i] = kerneltest.CastReference(from, to, e)
		}
		kerneltest.Compare(t, "cast from "+from.String(), out[0], got[0], want, 0)
	})
}

// TestCastRoundsOnce converts integers just above a tie that float32 and
// float64 can't tell from it.
func TestCastRoundsOnce(t *testing.T) {
	for _, c := range []struct {
		from graph.DType
		x    int64
	}{
		{graph.I32, 1<<30 + 1<<22 + 1}, {graph.U32, 1<<31 + 1<<23 + 1}, {graph.I64, 1<<62 + 1<<54 + 1}, {graph.U64, -1<<63 + 1<<55 + 1},
		{graph.I64, -(1<<62 + 1<<54 + 1)}, {graph.I64, 1<<62 + 1<<54}, {graph.I64, 1<<62 + 1<<54 - 1},
	} {
		in := graph.TensorType{DType: c.from}
		out, got := run(t, &graph.Cast{To: graph.BF16}, []graph.TensorType{in}, [][]byte{kerneltest.Store(c.from, []kerneltest.Elem{{I: c.x}})})
		kerneltest.Compare(t, c, out[0], got[0], []kerneltest.Elem{kerneltest.CastReference(c.from, graph.BF16, kerneltest.Elem{I: c.x})}, 0)
	}
}
