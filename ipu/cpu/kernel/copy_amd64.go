package kernel

// copyArgs are the arguments of the loops that copy rows of planes, a number
// of whole vectors each. Elements outside the masks are zero. convCopyEven
// reads twice as many vectors and separates the elements of even and odd
// numbers. internal/asm knows the fields' offsets.
type copyArgs struct {
	src, dst           *float32
	planes             int
	srcPlane, dstPlane int
	rows               int
	srcRow, dstRow     int
	vectors            int
	masks              *byte // of every vector that is read: 16 bits, or its lanes for AVX2
	odd                int   // from even to odd elements; 0 drops the odd ones
	shift              int   // from src to the first element
}

// copyPlanes copies rows; of elements two apart if stride is not 1.
func copyPlanes(p vectorPath, args *copyArgs, stride int) {
	switch {
	case p == pathAVX512 && stride == 1:
		convCopyAVX512(args)
	case p == pathAVX512:
		convCopyEvenAVX512(args)
	case stride == 1:
		convCopyAVX2(args)
	default:
		convCopyEvenAVX2(args)
	}
}

// setLanes sets a mask as AVX2 wants it.
func setLanes(lanes []int32, bits uint32) {
	for i := range lanes {
		lanes[i] = -int32(bits >> i & 1)
	}
}
