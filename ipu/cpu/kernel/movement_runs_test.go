package kernel

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/graph"
)

// TestShortRuns compares concatenations and slices of short rows with moving
// element by element.
func TestShortRuns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.SampledFrom([]graph.DType{graph.U8, graph.F16, graph.F32, graph.F64}).Draw(t, "type")
		size := d.Size()
		rows := rapid.Int64Range(1, 200).Draw(t, "rows")
		widths := rapid.SliceOfN(rapid.Int64Range(1, 5), 2, 4).Draw(t, "widths")
		var types []graph.TensorType
		var in [][]byte
		total := int64(0)
		for k, w := range widths {
			types = append(types, graph.TensorType{DType: d, Shape: []int64{rows, w}})
			b := make([]byte, int(rows*w)*size)
			for i := range b {
				b[i] = byte(i*7 + k*31)
			}
			in = append(in, b)
			total += w
		}
		out := graph.TensorType{DType: d, Shape: []int64{rows, total}}
		k, err := New(&graph.Concat{Axis: 1}, types, []graph.TensorType{out})
		require.NoError(t, err)
		y := make([]byte, int(rows*total)*size)
		require.NoError(t, k.Run(Serial{}, in, [][]byte{y}, nil))
		at := 0
		for row := range int(rows) {
			for i, w := range widths {
				n := int(w) * size
				require.Equal(t, in[i][row*n:][:n], y[at:][:n])
				at += n
			}
		}
		start := int64(0)
		for i, w := range widths {
			s := &graph.Slice{Start: []int64{0, start}, Size: []int64{rows, w}, Step: []int64{1, 1}}
			k, err := New(s, []graph.TensorType{out}, []graph.TensorType{types[i]})
			require.NoError(t, err)
			for _, p := range []Pool{Serial{}, inTurn(3)} {
				z := make([]byte, len(in[i]))
				require.NoError(t, k.Run(p, [][]byte{y}, [][]byte{z}, nil))
				require.Equal(t, in[i], z)
			}
			start += w
		}
	})
}
