package peak

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
)

// TestPeak wants vectors to be faster than plain Go by more than noise can be.
func TestPeak(t *testing.T) {
	rates := map[tensor.VectorPath]float64{}
	kerneltest.EachPath(t, func(t *testing.T) {
		require.Equal(t, tensor.Path.String(), kernel.Path())
		rates[tensor.Path] = Peak(1)
		require.Greater(t, rates[tensor.Path], 0.0)
	})
	if vectors, ok := rates[tensor.PathAVX2]; ok {
		require.Greater(t, vectors, 2*rates[tensor.PathGo])
	}
}
