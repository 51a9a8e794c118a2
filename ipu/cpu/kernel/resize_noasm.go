//go:build !amd64

package kernel

func interpolatesCorners[T float]() bool { return false }

func interpolateCorners[T float]([]T, *bilinearAxis[T], *[4][]T, T, T) {}

func interpolateUnits[T float](_, _, _ []T, _, _ T, _ int, _ *bilinearAxis[T]) bool { return false }
