//go:build !amd64

package vec

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

func VectorSum[T tensor.Float]([]T) (float64, bool) { return 0, false }

func VectorSquares[T tensor.Float]([]T, T) (float64, bool) { return 0, false }

func VectorScale[T tensor.Float](_, _, _, _ []T, _, _ T) bool { return false }

func VectorLayerNorm[T tensor.Float](_, _, _, _ []T, _ float64) bool { return false }

func VectorRMSNorm[T tensor.Float](_, _, _ []T, _ float64) bool { return false }

func VectorSoftmax[T tensor.Float](_, _ []T, _ bool) bool { return false }

func VectorRows[T tensor.Float](_, _ []T, _ int, _ bool, _ []T) bool { return false }

func VectorStrip[T tensor.Float](_, _ []T, _, _, _ int, _ bool, _ []T) bool { return false }

func VectorGreatest[T tensor.Number]([]T) (int, bool) { return 0, false }

func GreatestBeside[T tensor.Number](_ []int64, _ []T, _, _ int) bool { return false }

func VectorAcross(graph.ReduceFn) func(acc float64, x []float32, shift float64) float64 { return nil }

func VectorEach(graph.ReduceFn, int) func(acc []float64, x []float32, count, step int) { return nil }

func VectorDown(graph.ReduceFn) func(acc []float64, x []float32, rows, step int) { return nil }

func VectorPixels(graph.ReduceFn, int) func(acc []float64, x []float32, rows, step int) { return nil }
