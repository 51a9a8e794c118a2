package conv

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/gemm"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
)

// convArgs are the arguments of the inner loops of convolutions, which
// compute tiles: rows by some vectors of columns. Every element is the sum of
// its products in the order of the weights, in blocks of convBlock: a block's
// products are added one after the other, each rounded with its addition, and
// then the blocks' sums; convPlane's products are rounded, added up in fours,
// and those sums added. Then the bias is added and the result kept within
// bounds.
//
// The elements of the image that product i multiplies lie offsets[i] bytes
// from x: one for each row of convMaps, whose columns are output channels, a
// vector of them for convPixels, whose rows are output channels.
//
// internal/asm finds its fields by name. Distances are in bytes.
type convArgs struct {
	x       *float32
	x2      *float32 // of the rows from split on, if that is not 0
	w       *float32 // by product: one for each column, or row
	offsets *int32
	k       int      // products
	tile    *float32 // memory for rows of vectors, at least as many as a vector has elements
	rows    int
	vectors int
	split   int
	y       *float32
	yRow    int
	bias    *float32
	mask    uint64 // a bit for every column, or row, that is written as a row of y
	low     float32
	high    float32
	lanes   gemm.LaneMask
}

// convBlock is how many products are summed before the sum is added to those
// of the products before them.
const convBlock = 128

// ConvLimits returns the most rows of a tile of convMaps, of convPixels, and
// of convPixels and convPlane with four vectors.
func ConvLimits(p tensor.VectorPath) (maps, pixels, few int) {
	if p == tensor.PathAVX512 {
		return 14, 12, 6
	}
	return 6, 6, 0
}

// runConvMaps computes a tile of convMaps and writes it.
func runConvMaps(p tensor.VectorPath, compute, store *convArgs) {
	if p == tensor.PathAVX512 {
		convMapsAVX512(compute)
		convStoreAVX512(store)
	} else {
		convMapsAVX2(compute)
		convStoreAVX2(store)
	}
}

// runConvRows computes a tile of convPixels or, if fours is set, of convPlane.
func runConvRows(p tensor.VectorPath, args *convArgs, fours bool) {
	switch {
	case p == tensor.PathAVX512 && fours:
		convPlaneAVX512(args)
	case p == tensor.PathAVX512:
		convPixelsAVX512(args)
	case fours:
		convPlaneAVX2(args)
	default:
		convPixelsAVX2(args)
	}
}

// setMask sets which of the columns, or rows, are written.
func (a *convArgs) setMask(p tensor.VectorPath, n int) {
	a.mask = 1<<n - 1
	if p == tensor.PathAVX2 {
		a.lanes.Set(uint32(a.mask))
	}
}
