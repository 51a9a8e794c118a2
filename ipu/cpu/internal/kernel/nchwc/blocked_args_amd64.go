package nchwc

import "github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"

// blockedArgs are the arguments of the inner loop of convolutions whose result
// is in NCHWc. It computes tiles: a row of pixels by one or two
// vectors of output channels, summed in the order of [convArgs].
//
// The elements that product i of a pixel multiplies lie offsets[i] bytes from
// x, step bytes from pixel to pixel. internal/asm finds its fields by name.
// Distances are in bytes.
type blockedArgs struct {
	x       *float32
	x2      *float32 // of the pixels from split on, if that is not 0: the second half
	step    int
	tileX   int      // from tile to tile
	w       *float32 // by product: one for each output channel
	offsets *int32
	k       int      // products
	ahead   *float32 // what is wanted later: a cache line for every four products,
	pace    int      // that many bytes apart
	sums    *float32 // memory for a tile
	rows    int      // pixels of a tile
	vectors int
	split   int
	tiles   int
	y       *float32
	tileY   int // from tile to tile, in r too
	block   int // from block to block of channels, in r too
	bias    *float32
	r       *float32 // is added, if there is one
	half    int      // not 0: results are rounded to half precision
	bounded int      // not 0: results are kept within bounds
	low     float32
	high    float32
	fetched int // bytes of ahead, so far
	done    int // bytes of y, so far
}

// runBlockedTiles computes tiles; args.fetched and args.done tell how far it got.
func runBlockedTiles(p tensor.VectorPath, args *blockedArgs) {
	if p == tensor.PathAVX512 {
		blockedTilesAVX512(args)
	} else {
		blockedTilesAVX2(args)
	}
}
