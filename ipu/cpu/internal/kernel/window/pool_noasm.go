//go:build !amd64

package window

import "github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"

func foldWindows[T tensor.Number](*PoolShape, PoolFold, []T, []T, []float32, *WindowRows) bool {
	return false
}

// DivideWindows does nothing: there is no assembly for this processor.
func DivideWindows[T tensor.Float]([]T, []T, int) {}
