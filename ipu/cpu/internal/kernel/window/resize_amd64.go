package window

import "github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"

// bilinearArgs are the arguments of the loop that interpolates a row of pixels
// in NCHWc. internal/asm finds its fields by name.
type bilinearArgs struct {
	y                       *float32
	near, far               *float32 // rows of the operand
	left, right             *int     // for every pixel, elements from the beginning of a row
	leftWeight, rightWeight *float32
	pixels                  int
	nearWeight, farWeight   float32
}

// interpolateUnits is the loop of [bilinear2] for units of a vector each, if
// there is one; it reports whether it did it.
func interpolateUnits[T tensor.Float](y, near, far []T, u, v T, unit int, columns *bilinearAxis[T]) bool {
	if tensor.Path == tensor.PathGo || unit != tensor.Path.Lanes() || !tensor.IsFloat32[T]() || len(y) == 0 {
		return false
	}
	args := bilinearArgs{
		y: &tensor.AsFloat32(y)[0], near: &tensor.AsFloat32(near)[0], far: &tensor.AsFloat32(far)[0], left: &columns.near[0], right: &columns.far[0],
		leftWeight: &tensor.AsFloat32(columns.nearWeight)[0], rightWeight: &tensor.AsFloat32(columns.farWeight)[0],
		pixels: len(columns.near), nearWeight: float32(u), farWeight: float32(v),
	}
	if tensor.Path == tensor.PathAVX512 {
		bilinearPixelsAVX512(&args)
	} else {
		bilinearPixelsAVX2(&args)
	}
	return true
}

// interpolatesCorners reports whether there is a loop for elements of type T.
func interpolatesCorners[T tensor.Float]() bool {
	return tensor.Path != tensor.PathGo && tensor.IsFloat32[T]()
}

// interpolateCorners is the loop of [bilinear2.row] for elements that are
// gathered: those on the left and right of every column, of the near row and
// then of the far one.
func interpolateCorners[T tensor.Float](y []T, c *bilinearAxis[T], corners *[4][]T, u, v T) {
	loopInterpolate(&tensor.AsFloat32(y)[0], &tensor.AsFloat32(c.nearWeight)[0], &tensor.AsFloat32(c.farWeight)[0],
		&tensor.AsFloat32(corners[0])[0], &tensor.AsFloat32(corners[1])[0], &tensor.AsFloat32(corners[2])[0], &tensor.AsFloat32(corners[3])[0],
		len(y), float32(u), float32(v))
}

func loopInterpolate(dst, left, right, nearLeft, nearRight, farLeft, farRight *float32, n int, near, far float32) {
	if tensor.Path == tensor.PathAVX512 {
		interpolateAVX512(dst, left, right, nearLeft, nearRight, farLeft, farRight, n, near, far)
	} else {
		interpolateAVX2(dst, left, right, nearLeft, nearRight, farLeft, farRight, n, near, far)
	}
}
