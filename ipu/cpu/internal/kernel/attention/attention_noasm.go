//go:build !amd64

package attention

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/gemm"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
)

func vectorLanes[T tensor.Number](wanted int) int { return wanted }

func vectorMultiply[T tensor.Number](_ []T, _, _, _ int, _ gemm.Matrix[T], _ []T, _, _ int, _ T, _ []T, _ int, _ bool) bool {
	return false
}

func vectorSoftmaxColumns[T tensor.Float]([]T, int, float64, float64) bool { return false }
