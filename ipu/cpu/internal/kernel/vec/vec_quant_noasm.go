//go:build !amd64

package vec

import "github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"

// VectorQuantise reports false, having done nothing: there is no assembly for this processor.
func VectorQuantise[D int8 | uint8 | int16 | uint16]([]D, []float32, float32, float32, float32, float32) bool {
	return false
}

// VectorDequantise reports false, having done nothing: there is no assembly for this processor.
func VectorDequantise([]float32, []uint8, bool, float32, float32) bool { return false }

func vectorWiden[T tensor.Number]([]float32, []T) bool { return false }
