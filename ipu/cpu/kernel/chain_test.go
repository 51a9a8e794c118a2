package kernel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph"
)

// TestChainRowsOfPadding cuts an image into rows of which the last ones read
// nothing but padding: there is no part of the image to compute them from.
func TestChainRowsOfPadding(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		lanes := BlockLanes()
		if lanes == 0 {
			t.Skip("there are no kernels for blocks here")
		}
		x := graph.TensorType{DType: graph.F32, Shape: []int64{1, lanes, 1, 2}}
		w := graph.TensorType{DType: graph.F32, Shape: []int64{lanes, 1, 3, 3}}
		two := []int64{1, 1}
		conv := graph.Conv{Strides: two, Dilations: two, PadsBegin: two, PadsEnd: []int64{4, 1}, Group: lanes}
		chain := func(rows int64) *Chain {
			return &Chain{Channels: lanes, Lanes: lanes, Blocks: 1, Rows: rows, Members: []ChainMember{
				{&ToBlocks{Lanes: lanes}, []int{0}},
				{&BlockedConv{Conv: conv, Lanes: lanes, Channels: lanes, In: true, Out: true}, []int{ChainPrevious, 1, ChainNone}},
			}}
		}
		in := []graph.TensorType{x, w}
		out, err := chain(1).Infer(in)
		require.NoError(t, err)
		_, err = New(chain(1), in, out)
		require.ErrorContains(t, err, "rows 2 to 3 read nothing but padding")
		_, err = New(chain(0), in, out)
		require.NoError(t, err)
	})
}
