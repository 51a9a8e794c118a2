//go:build !amd64

package kernel

func interpolatesCorners[T float]() bool { return false }

func interpolateCorners[T float]([]T, *bilinearAxis[T], *[4][]T, T, T) {}
