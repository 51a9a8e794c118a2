//go:build !amd64

package window

import "github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"

func interpolatesCorners[T tensor.Float]() bool { return false }

func interpolateCorners[T tensor.Float]([]T, *bilinearAxis[T], *[4][]T, T, T) {}

func interpolateUnits[T tensor.Float](_, _, _ []T, _, _ T, _ int, _ *bilinearAxis[T]) bool {
	return false
}
