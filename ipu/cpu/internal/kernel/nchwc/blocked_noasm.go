//go:build !amd64

package nchwc

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

func newBlockedDense(*Conv, []graph.TensorType, graph.TensorType) tensor.Kernel { return nil }

func newBlockedDepthwise(*Conv, []graph.TensorType, graph.TensorType) tensor.Kernel {
	return nil
}

func (*blockMove) moveVectors(_, _, _, _, _ int) bool { return false }
