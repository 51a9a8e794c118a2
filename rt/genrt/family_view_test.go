package genrt

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGrowKeepsMemory: a tensor that is made smaller and larger again keeps its memory, and nothing
// is allocated for its sizes.
func TestGrowKeepsMemory(t *testing.T) {
	s := Grow[float32](nil, Length(4, 3))
	first, n := &s[0], 0
	require.Zero(t, testing.AllocsPerRun(10, func() {
		n = (n + 1) % 4
		s = Grow(s, Length(1+n, 3))
	}))
	require.Same(t, first, &s[0])
	require.PanicsWithValue(t, "genrt: no tensor has the sizes [2 -1]", func() { Length(2, -1) })
}

func TestFollow(t *testing.T) {
	require.Equal(t, []int{4, 3, 2, 0}, []int{Follow(8, 1, 0, 2), Follow(7, 1, 0, 2), Follow(5, 1, -1, 2), Follow(1, 1, -1, 2)})
}
