package kernel

// interpolatesCorners reports whether there is a loop for elements of type T.
func interpolatesCorners[T float]() bool { return path != pathGo && isFloat32[T]() }

// interpolateCorners is the loop of [bilinear2.row] for elements that are
// gathered: those on the left and right of every column, of the near row and
// then of the far one.
func interpolateCorners[T float](y []T, c *bilinearAxis[T], corners *[4][]T, u, v T) {
	loopInterpolate(&asFloat32(y)[0], &asFloat32(c.nearWeight)[0], &asFloat32(c.farWeight)[0],
		&asFloat32(corners[0])[0], &asFloat32(corners[1])[0], &asFloat32(corners[2])[0], &asFloat32(corners[3])[0],
		len(y), float32(u), float32(v))
}
