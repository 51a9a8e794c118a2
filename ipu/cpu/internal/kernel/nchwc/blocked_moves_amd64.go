package nchwc

import (
	"unsafe"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
)

// blockMoveArgs are the arguments of the loops that convert NCHW to NCHWc
// and back, vectors of pixels at a time. internal/asm finds
// its fields by name.
type blockMoveArgs struct {
	planar   unsafe.Pointer // the first channel
	pitch    int            // bytes from channel to channel
	blocked  *float32
	chunks   int // vectors of pixels, at least 1
	channels int // of the block, at least 1
}

// moveBlocks calls the loop of the path for a direction and a type of the
// planes, F32 or F16.
func moveBlocks(args *blockMoveArgs, to, half bool) {
	if tensor.Path == tensor.PathAVX512 {
		switch {
		case to && half:
			planesToBlocksHalfAVX512(args)
		case to:
			planesToBlocksAVX512(args)
		case half:
			blocksToPlanesHalfAVX512(args)
		default:
			blocksToPlanesAVX512(args)
		}
		return
	}
	switch {
	case to && half:
		planesToBlocksHalfAVX2(args)
	case to:
		planesToBlocksAVX2(args)
	case half:
		blocksToPlanesHalfAVX2(args)
	default:
		blocksToPlanesAVX2(args)
	}
}

// moveVectors converts the pixels [lo, hi) of a block with SIMD instructions, if there are
// enough of them; it reports whether it did it. planes is where the block's
// channels begin.
func (k *blockMove) moveVectors(block, planes, channels, lo, hi int) bool {
	if tensor.Path == tensor.PathGo || k.lanes != tensor.Path.Lanes() || hi-lo < k.lanes {
		return false
	}
	whole := (hi - lo) / k.lanes
	args := blockMoveArgs{pitch: 4 * k.pixels, chunks: whole, channels: channels}
	args.blocked = &k.blocked[(block*k.pixels+lo)*k.lanes]
	if k.half {
		args.pitch /= 2
		args.planar = unsafe.Pointer(&k.halves[planes+lo])
	} else {
		args.planar = unsafe.Pointer(&k.planar[planes+lo])
	}
	moveBlocks(&args, k.to, k.half)
	if whole*k.lanes < hi-lo {
		// The last ones, some of them once more.
		at := hi - k.lanes
		args.chunks, args.blocked = 1, &k.blocked[(block*k.pixels+at)*k.lanes]
		if k.half {
			args.planar = unsafe.Pointer(&k.halves[planes+at])
		} else {
			args.planar = unsafe.Pointer(&k.planar[planes+at])
		}
		moveBlocks(&args, k.to, k.half)
	}
	return true
}
