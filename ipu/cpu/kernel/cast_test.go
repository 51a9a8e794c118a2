package kernel

import (
	"testing"

	"github.com/popefgen/popefgen/ipu/graph"
	"pgregory.net/rapid"
)

func TestCast(t *testing.T) {
	checkPaths(t, func(t *rapid.T) {
		from := rapid.SampledFrom(allTypes).Draw(t, "from")
		to := rapid.SampledFrom(allTypes).Draw(t, "to")
		in := graph.TensorType{DType: from, Shape: drawShape(t, 0)}
		x := drawTensor(t, in)
		out, got := run(t, &graph.Cast{To: to}, []graph.TensorType{in}, [][]byte{x})
		want := load(from, x)
		for i, e := range want {
			want[i] = castReference(from, to, e)
		}
		compare(t, "cast from "+from.String(), out[0], got[0], want, 0)
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
		out, got := run(t, &graph.Cast{To: graph.BF16}, []graph.TensorType{in}, [][]byte{store(c.from, []elem{{i: c.x}})})
		compare(t, c, out[0], got[0], []elem{castReference(c.from, graph.BF16, elem{i: c.x})}, 0)
	}
}
