package kernel

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPeak wants vectors to be faster than plain Go by more than noise can be.
func TestPeak(t *testing.T) {
	rates := map[vectorPath]float64{}
	eachPath(t, func(t *testing.T) {
		require.Equal(t, path.String(), Path())
		rates[path] = Peak(1)
		require.Greater(t, rates[path], 0.0)
	})
	if vectors, ok := rates[pathAVX2]; ok {
		require.Greater(t, vectors, 2*rates[pathGo])
	}
}
