//go:build !amd64

package vec

import "github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"

func VectorQuantise[D int8 | uint8 | int16 | uint16]([]D, []float32, float32, float32, float32, float32) bool {
	return false
}

func VectorDequantise([]float32, []uint8, bool, float32, float32) bool { return false }

func vectorWiden[T tensor.Number]([]float32, []T) bool { return false }
