//go:build !amd64

package vec

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/num"
)

func vectorUnary(*graph.Unary) func(dst, x []float32) { return nil }

// VectorBinary returns nil: there is no assembly for this processor.
func VectorBinary[T tensor.Number](graph.BinaryFn) func(dst, a, b []T) { return nil }

func vectorClip[T tensor.Number](_, _, _, _ []T, _, _ bool) bool { return false }

func vectorClipOne(_, _ []float32, _, _ float32) bool { return false }

// VectorNormalise reports false, having done nothing: there is no assembly for this processor.
func VectorNormalise[T tensor.Float](_, _ []T, _, _, _ T) bool { return false }

func vectorDecode([]float32, []num.Float16) bool { return false }

func vectorEncode([]num.Float16, []float32) bool { return false }

func vectorRoot(_, _ []float32) bool { return false }

func vectorPow() func(dst, x, y []float32) { return nil }

func vectorWithOne(graph.BinaryFn) func(dst, x []float32, y float32) { return nil }
