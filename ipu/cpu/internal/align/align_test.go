package align

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAllocate checks blocks of memory below and above what large pages make up.
func TestAllocate(t *testing.T) {
	for _, n := range []int64{0, 1, hugePage/4*3 - 1, hugePage / 4 * 3, hugePage, 2*hugePage + 100, 3*hugePage - 1} {
		b, release := Block(n+1000, n)
		require.NotNil(t, b)
		require.Len(t, b, int(n+1000))
		require.Equal(t, len(b), cap(b), "nobody can append to it")
		require.True(t, To(b, Line))
		for i := range b {
			if b[i] != 0 {
				t.Fatalf("byte %d of %d is not zero", i, n)
			}
			b[i] = 1
		}
		require.LessOrEqual(t, huge(n), n+hugePage/4)
		require.Greater(t, huge(n), n-hugePage)
		release()
	}
}
