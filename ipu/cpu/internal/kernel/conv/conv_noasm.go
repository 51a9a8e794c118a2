//go:build !amd64

package conv

import "github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"

func newVectorConv[T tensor.Float](ConvShape) tensor.Kernel { return nil }

func newDepthwise[T tensor.Float](ConvShape) tensor.Kernel { return nil }

func newVectorConvWeights(ConvShape) tensor.Kernel { return nil }
