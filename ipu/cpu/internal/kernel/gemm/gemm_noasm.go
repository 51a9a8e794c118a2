//go:build !amd64

package gemm

import "github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"

func vectorBlock[T tensor.Number](_ []T, _, _, _ int, _ Matrix[T], _ []T, _, _ int, _ T) bool {
	return false
}

func vectorPack[T tensor.Number]([]T, Matrix[T], int, int) bool { return false }

func vectorized[T tensor.Number](*product[T]) tensor.Kernel { return nil }
