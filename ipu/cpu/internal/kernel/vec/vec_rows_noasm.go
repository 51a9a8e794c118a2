//go:build !amd64

package vec

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// VectorSum reports false, having done nothing: there is no assembly for this processor.
func VectorSum[T tensor.Float]([]T) (float64, bool) { return 0, false }

// VectorSquares reports false, having done nothing: there is no assembly for this processor.
func VectorSquares[T tensor.Float]([]T, T) (float64, bool) { return 0, false }

// VectorScale reports false, having done nothing: there is no assembly for this processor.
func VectorScale[T tensor.Float](_, _, _, _ []T, _, _ T) bool { return false }

// VectorLayerNorm reports false, having done nothing: there is no assembly for this processor.
func VectorLayerNorm[T tensor.Float](_, _, _, _ []T, _ float64) bool { return false }

// VectorRMSNorm reports false, having done nothing: there is no assembly for this processor.
func VectorRMSNorm[T tensor.Float](_, _, _ []T, _ float64) bool { return false }

// VectorSoftmax reports false, having done nothing: there is no assembly for this processor.
func VectorSoftmax[T tensor.Float](_, _ []T, _ bool) bool { return false }

// VectorRows reports false, having done nothing: there is no assembly for this processor.
func VectorRows[T tensor.Float](_, _ []T, _ int, _ bool, _ []T) bool { return false }

// VectorStrip reports false, having done nothing: there is no assembly for this processor.
func VectorStrip[T tensor.Float](_, _ []T, _, _, _ int, _ bool, _ []T) bool { return false }

// VectorGreatest reports false, having done nothing: there is no assembly for this processor.
func VectorGreatest[T tensor.Number]([]T) (int, bool) { return 0, false }

// GreatestBeside reports false, having done nothing: there is no assembly for this processor.
func GreatestBeside[T tensor.Number](_ []int64, _ []T, _, _ int) bool { return false }

// VectorAcross returns nil: there is no assembly for this processor.
func VectorAcross(graph.ReduceFn) func(acc float64, x []float32, shift float64) float64 { return nil }

// VectorEach returns nil: there is no assembly for this processor.
func VectorEach(graph.ReduceFn, int) func(acc []float64, x []float32, count, step int) { return nil }

// VectorDown returns nil: there is no assembly for this processor.
func VectorDown(graph.ReduceFn) func(acc []float64, x []float32, rows, step int) { return nil }

// VectorNCHWcMeans returns nil: there is no assembly for this processor.
func VectorNCHWcMeans(graph.ReduceFn, int) func(acc []float64, x []float32, rows, step int) {
	return nil
}
