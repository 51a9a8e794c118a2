//go:build !amd64

package gradient

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/window"
)

func vectorDot[T tensor.Float](_, _ []T) (float64, bool) { return 0, false }

func vectorDotCentred[T tensor.Float](_, _ []T, _ T) (float64, bool) { return 0, false }

func vectorDotScaled[T tensor.Float](_, _, _ []T, _ T) (float64, bool) { return 0, false }

func vectorBackScaled[T tensor.Float](_, _, _, _, _, _ []T, _, _, _, _ T) bool { return false }

func vectorBackChannel[T tensor.Float](_, _, _ []T, _, _, _, _ T) bool { return false }

func vectorBackSoftmax[T tensor.Float](_, _, _ []T, _ T) bool { return false }

func vectorBackLogSoftmax[T tensor.Float](_, _, _ []T, _ T) bool { return false }

func backPairs[T tensor.Float](_, _, _ []T, _, _ *window.PoolAxis) bool { return false }
