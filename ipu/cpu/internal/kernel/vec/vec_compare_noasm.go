//go:build !amd64

package vec

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

func vectorComparison[T tensor.Number](graph.BinaryFn) func(dst []uint8, a, b []T) { return nil }
