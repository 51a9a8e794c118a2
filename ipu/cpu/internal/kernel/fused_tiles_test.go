package kernel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/nchwc"
	"github.com/popefgen/popefgen/ipu/graph"
)

// TestFusedTilesOfPadding cuts an image into rows of which the last ones read
// nothing but padding: there is no part of the image to compute them from.
func TestFusedTilesOfPadding(t *testing.T) {
	kerneltest.EachPath(t, func(t *testing.T) {
		lanes := nchwc.Lanes()
		if lanes == 0 {
			t.Skip("this path has no kernels for NCHWc")
		}
		x := graph.TensorType{DType: graph.F32, Shape: []int64{1, lanes, 1, 2}}
		w := graph.TensorType{DType: graph.F32, Shape: []int64{lanes, 1, 3, 3}}
		two := []int64{1, 1}
		conv := graph.Conv{Strides: two, Dilations: two, PadsBegin: two, PadsEnd: []int64{4, 1}, Group: lanes}
		fused := func(rows int64) *nchwc.FusedTiles {
			return &nchwc.FusedTiles{Channels: lanes, Lanes: lanes, Blocks: 1, Rows: rows, Members: []nchwc.FusedMember{
				{Op: &nchwc.ToNCHWc{Lanes: lanes}, In: []int{0}},
				{Op: &nchwc.Conv{Conv: conv, Lanes: lanes, Channels: lanes, In: true, Out: true}, In: []int{nchwc.OperandPrevious, 1, nchwc.OperandNone}},
			}}
		}
		in := []graph.TensorType{x, w}
		out, err := fused(1).Infer(in)
		require.NoError(t, err)
		_, err = New(fused(1), in, out)
		require.ErrorContains(t, err, "rows 2 to 3 read nothing but padding")
		_, err = New(fused(0), in, out)
		require.NoError(t, err)
	})
}
