package workers

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEach calls for every number once, and hands a panic on to the caller.
func TestEach(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	for _, workers := range []int{0, 1, 2, 3, 100} {
		for _, n := range []int{0, 1, 2, 7, 1000} {
			calls := make([]atomic.Int32, n)
			Each(workers, n, func(i int) { calls[i].Add(1) })
			for i := range calls {
				require.EqualValues(t, 1, calls[i].Load(), "%d of %d by %d", i, n, workers)
			}
		}
		require.PanicsWithValue(t, "third", func() {
			Each(workers, 100, func(i int) {
				if i == 3 {
					panic("third")
				}
			})
		}, "%d workers", workers)
	}
}
