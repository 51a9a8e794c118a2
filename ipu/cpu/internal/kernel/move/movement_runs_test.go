package move

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
	"github.com/popefgen/popefgen/ipu/graph"
)

// TestShortRuns compares concatenations and slices of short rows with moving
// element by element.
func TestShortRuns(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
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
		k, err := newKernel(&graph.Concat{Axis: 1}, types, []graph.TensorType{out})
		require.NoError(t, err)
		y := make([]byte, int(rows*total)*size)
		require.NoError(t, k.Run(tensor.Serial{}, in, [][]byte{y}, nil))
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
			k, err := newKernel(s, []graph.TensorType{out}, []graph.TensorType{types[i]})
			require.NoError(t, err)
			for _, p := range []tensor.Pool{tensor.Serial{}, kerneltest.InTurn(3)} {
				z := make([]byte, len(in[i]))
				require.NoError(t, k.Run(p, [][]byte{y}, [][]byte{z}, nil))
				require.Equal(t, in[i], z)
			}
			start += w
		}
	})
}

// TestCopyRuns copies runs of all lengths around those of vectors, and looks
// at what lies between them.
func TestCopyRuns(t *testing.T) {
	kerneltest.EachPath(t, func(t *testing.T) {
		src := make([]byte, 4000)
		for i := range src {
			src[i] = byte(1 + i%251)
		}
		for run := range 300 {
			for _, gap := range []int{0, 1, 70} {
				const rows = 3
				to, from := run+gap, max(0, run-5)+gap
				dst := make([]byte, rows*to)
				want := make([]byte, rows*to)
				for r := range rows {
					copy(want[r*to:][:run], src[r*from:])
				}
				copyRuns(dst, src, rows, run, to, from)
				require.Equal(t, want, dst, "runs of %d, %d apart", run, gap)
			}
		}
	})
}

// TestDealTwo deals rows of pairs, as SpaceToDepth does.
func TestDealTwo(t *testing.T) {
	kerneltest.EachPath(t, func(t *testing.T) {
		for n := range 70 {
			const rows = 3
			to, from := n+2, 2*n+1
			src, a, b := make([]uint32, rows*from), make([]uint32, rows*to), make([]uint32, rows*to)
			for i := range src {
				src[i] = uint32(1 + i)
			}
			if !vec.VectorDeal2(a, b, src, n, rows, to, from) {
				require.True(t, tensor.Path == tensor.PathGo || n < tensor.Path.Lanes())
				continue
			}
			for r := range rows {
				for i := range n {
					require.Equal(t, [2]uint32{src[r*from+2*i], src[r*from+2*i+1]}, [2]uint32{a[r*to+i], b[r*to+i]})
				}
				require.Zero(t, a[r*to+n]+b[r*to+n])
			}
		}
	})
}

// TestSpaceToDepth moves blocks of 2 by 2 and of 2 by 3 as SpaceToDepth does.
func TestSpaceToDepth(t *testing.T) {
	kerneltest.EachPath(t, func(t *testing.T) {
		for _, shape := range [][]int64{{1, 2, 3, 2, 20, 2}, {2, 3, 5, 2, 33, 2}, {1, 2, 3, 3, 17, 2}, {1, 1, 40, 2, 40, 2}} {
			in := graph.TensorType{DType: graph.F32, Shape: shape}
			x := make([]kerneltest.Elem, tensor.Elements(shape))
			for i := range x {
				x[i].F = float64(i)
			}
			data := kerneltest.Store(graph.F32, x)
			perm := []int64{0, 3, 5, 1, 2, 4}
			out, got := run(t, &graph.Transpose{Perm: perm}, []graph.TensorType{in}, [][]byte{data})
			src := make([]int64, len(perm))
			kerneltest.CheckMoved(t, shape, in, out[0], data, got[0], nil, func(at []int64) int {
				for i, p := range perm {
					src[p] = at[i]
				}
				return kerneltest.Flatten(shape, src)
			})
		}
	})
}
