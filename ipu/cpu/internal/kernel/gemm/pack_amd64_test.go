package gemm

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPackWeights packs weights of many shapes beside the plain loop, with
// memory behind them that must stay as it is.
func TestPackWeights(t *testing.T) {
	for _, width := range []int{1, 7, 8, 16, 31, Panel, 48} {
		for _, rows := range []int{1, 5, 8, 13, 16, 24, 32, 48} {
			for _, depth := range []int{0, 1, 7, 8, 9, 63, 64, 65, 200} {
				if rows > width {
					continue
				}
				src := make([]float32, rows*depth)
				for i := range src {
					src[i] = float32(i + 1)
				}
				want := make([]float32, depth*width+3)
				for m := range rows {
					for k := range depth {
						want[k*width+m] = src[m*depth+k]
					}
				}
				got := make([]float32, len(want))
				for i := range got {
					got[i] = -1
				}
				for i := range 3 {
					want[depth*width+i] = -1
				}
				PackWeights(got, width, src, rows, depth)
				require.Equal(t, want, got, fmt.Sprint(width, rows, depth))
			}
		}
	}
}
