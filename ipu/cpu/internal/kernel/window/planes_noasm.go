//go:build !amd64

package window

import "github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"

type planePool struct{}

func newPlanePool(*PoolShape, PoolFold, []float32, bool) *planePool { return nil }

func (*planePool) scratch() int { return 0 }

func foldPlanes[T tensor.Number](*planePool, []T, []T, []float32, int, int, func(first, end int)) {}
