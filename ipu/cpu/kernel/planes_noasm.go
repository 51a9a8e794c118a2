//go:build !amd64

package kernel

type planePool struct{}

func newPlanePool(*poolShape, poolFold, []float32, bool) *planePool { return nil }

func (*planePool) scratch() int { return 0 }

func foldPlanes[T number](*planePool, []T, []T, []float32, int, int, func(first, end int)) {}
