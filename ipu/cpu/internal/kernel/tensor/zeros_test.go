package tensor

import (
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// TestZeros asks for zeros from several goroutines: as many as they want, the same memory
// where it is no larger than what kernels share.
func TestZeros(t *testing.T) {
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			for n := range 200 {
				n = (n*37 + i) % 300
				z := Zeros(n)
				if len(z) != n || cap(z) != n {
					t.Errorf("%d zeros with room for %d, want %d", len(z), cap(z), n)
				}
				for _, v := range z {
					if v != 0 {
						t.Errorf("%v is not zero", v)
					}
				}
			}
		})
	}
	wait.Wait()
	same := func(n int) bool {
		first, second := Zeros(n), Zeros(n)
		return unsafe.SliceData(first) == unsafe.SliceData(second)
	}
	require.True(t, same(mostZeros))
	require.False(t, same(mostZeros+1))
	require.Len(t, Zeros(mostZeros+1), mostZeros+1)
}
