//go:build !amd64

package kernel

func vectorQuantise[D int8 | uint8 | int16 | uint16]([]D, []float32, float32, float32, float32, float32) bool {
	return false
}

func vectorDequantise([]float32, []uint8, bool, float32, float32) bool { return false }

func vectorWiden[T number]([]float32, []T) bool { return false }
