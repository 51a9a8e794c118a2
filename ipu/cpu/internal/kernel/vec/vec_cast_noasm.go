//go:build !amd64

package vec

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/num"
)

func vectorCast[T tensor.Number]([]byte, graph.DType, []T) int { return 0 }

func vectorDecodeBfloat([]float32, []num.BFloat16) int { return 0 }

func vectorEncodeBfloat([]num.BFloat16, []float32) int { return 0 }

func vectorWhere[E tensor.Unsigned](_, _, _ []E, _ []uint8) int { return 0 }
