package gemm

import "github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"

// CopyArgs are the arguments of the loops that copy rows of planes, a number
// of whole vectors each. Elements outside the masks are zero. convCopyEven
// reads twice as many vectors and separates the elements of even and odd
// numbers. internal/asm finds its fields by name.
type CopyArgs struct {
	Src, Dst           *float32
	Planes             int
	SrcPlane, DstPlane int
	Rows               int
	SrcRow, DstRow     int
	Vectors            int
	Masks              *byte // of every vector that is read: 16 bits, or its lanes for AVX2
	Odd                int   // from even to odd elements; 0 drops the odd ones
	Shift              int   // from src to the first element
}

// CopyPlanes copies rows; of elements two apart if stride is not 1.
func CopyPlanes(p tensor.VectorPath, args *CopyArgs, stride int) {
	switch {
	case p == tensor.PathAVX512 && stride == 1:
		convCopyAVX512(args)
	case p == tensor.PathAVX512:
		convCopyEvenAVX512(args)
	case stride == 1:
		convCopyAVX2(args)
	default:
		convCopyEvenAVX2(args)
	}
}

// SetLanes sets a mask as AVX2 wants it.
func SetLanes(lanes []int32, bits uint32) {
	for i := range lanes {
		lanes[i] = -int32(bits >> i & 1)
	}
}
