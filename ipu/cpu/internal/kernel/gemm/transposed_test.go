package gemm

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// TestTransposedRows compares products Aᵀ·B, for which rows of Aᵀ are copied or not, with those of a matrix that lies as Aᵀ does: sums have
// the same order, so that the bits are equal. Sizes are on both sides of what a copy and a block of it have.
func TestTransposedRows(t *testing.T) {
	kerneltest.EachPath(t, func(t *testing.T) {
		for _, c := range []struct{ m, n, k int64 }{
			{8, 64, 8}, {13, 64, 33}, {16, 63, 40}, {23, 70, 7}, {150, 96, 70}, {293, 65, 31}, {19, 64, DepthBlock + 9}, {1, 128, 40},
		} {
			t.Run(fmt.Sprintf("%dx%dx%d", c.m, c.n, c.k), func(t *testing.T) {
				s := &kerneltest.Source{R: kerneltest.Seeded(uint64(c.m))}
				of := func(rows, cols int64) graph.TensorType {
					return graph.TensorType{DType: graph.F32, Shape: []int64{rows, cols}}
				}
				in := []graph.TensorType{of(c.k, c.m), of(c.k, c.n), of(c.m, c.n)}
				data := [][]byte{s.Tensor(in[0]), s.Tensor(in[1]), s.Tensor(in[2])}
				_, got := runPacked(t, &graph.Gemm{TransA: true, Alpha: -2, Beta: 1}, in, data)

				a, at := tensor.F32s(data[0]), make([]float32, c.m*c.k)
				for p := range c.k {
					for i := range c.m {
						at[i*c.k+p] = a[p*c.m+i]
					}
				}
				in[0], data[0] = of(c.m, c.k), tensor.RawBytes(at)
				_, want := runPacked(t, &graph.Gemm{Alpha: -2, Beta: 1}, in, data)
				require.Equal(t, want, got)
			})
		}
	})
}
