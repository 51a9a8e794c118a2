//go:build !amd64

package kernel

import "github.com/popefgen/popefgen/ipu/graph"

func vectorSum[T float]([]T) (float64, bool) { return 0, false }

func vectorSquares[T float]([]T, T) (float64, bool) { return 0, false }

func vectorScale[T float](_, _, _, _ []T, _, _ T) bool { return false }

func vectorLayerNorm[T float](_, _, _, _ []T, _ float64) bool { return false }

func vectorRMSNorm[T float](_, _, _ []T, _ float64) bool { return false }

func vectorSoftmax[T float](_, _ []T, _ bool) bool { return false }

func vectorRows[T float](_, _ []T, _ int, _ bool, _ []T) bool { return false }

func vectorStrip[T float](_, _ []T, _, _, _ int, _ bool, _ []T) bool { return false }

func vectorGreatest[T number]([]T) (int, bool) { return 0, false }

func greatestBeside[T number](_ []int64, _ []T, _, _ int) bool { return false }

func vectorAcross(graph.ReduceFn) func(acc float64, x []float32, shift float64) float64 { return nil }

func vectorEach(graph.ReduceFn, int) func(acc []float64, x []float32, count, step int) { return nil }

func vectorDown(graph.ReduceFn) func(acc []float64, x []float32, rows, step int) { return nil }

func vectorPixels(graph.ReduceFn, int) func(acc []float64, x []float32, rows, step int) { return nil }
