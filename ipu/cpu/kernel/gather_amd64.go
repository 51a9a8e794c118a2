package kernel

// gatherArgs are the arguments of the loops that collect rows of a matrix, or
// windows of an image, as rows of a panel: one row for every tap of every
// group. Elements outside a tap's mask are zero. gatherEven takes every other
// element of a row. internal/asm knows the fields' offsets.
type gatherArgs struct {
	src, dst *float32
	groups   int
	step     int // bytes from group to group
	taps     *tap
	nTaps    int
	mask     uint32 // a bit for every column of the panel that is written
	lanes    laneMask
}

//go:noescape
func gatherAVX512(args *gatherArgs)

//go:noescape
func gatherEvenAVX512(args *gatherArgs)

//go:noescape
func gatherAVX2(args *gatherArgs)

//go:noescape
func gatherEvenAVX2(args *gatherArgs)

// transposeAVX2 writes eight rows of as many blocks of eight elements,
// step bytes apart, as eight columns of a panel.
//
//go:noescape
func transposeAVX2(dst, src *float32, step, blocks int)

// gather collects rows of up to tile-width columns. The stride is 1 or 2.
func (p vectorPath) gather(args *gatherArgs, stride int) {
	switch {
	case p == pathAVX512 && stride == 1:
		gatherAVX512(args)
	case p == pathAVX512:
		gatherEvenAVX512(args)
	case stride == 1:
		args.lanes.set(args.mask)
		gatherAVX2(args)
	default:
		args.lanes.set(args.mask)
		gatherEvenAVX2(args)
	}
}

// packF32 is [packBlock] by vectors.
func packF32(p vectorPath, dst []float32, b matrix[float32], k, cols int) {
	if k == 0 {
		return
	}
	_ = dst[k*panel-1]
	switch {
	case b.col == 1:
		_ = b.data[(k-1)*b.row+cols-1]
		_, width := p.tile()
		var t tap
		args := gatherArgs{groups: k, step: 4 * b.row, nTaps: 1, taps: &t, mask: uint32(1<<width - 1)}
		for j := 0; j < panel; j += width {
			t.mask = uint32(1<<min(width, max(0, cols-j)) - 1)
			t.lanes.set(t.mask)
			args.src, args.dst = &b.data[min(j, cols-1)], &dst[j]
			p.gather(&args, 1)
		}
	case b.row == 1:
		_ = b.data[(cols-1)*b.col+k-1]
		if cols < panel {
			clear(dst[:k*panel])
		}
		whole := k &^ 7
		for j := 0; j < cols; j += 8 {
			n := min(8, cols-j)
			done := 0
			if n == 8 && whole > 0 {
				transposeAVX2(&dst[j], &b.data[j*b.col], 4*b.col, whole/8)
				done = whole
			}
			for c := j; c < j+n; c++ {
				for i, v := range b.data[c*b.col:][done:k] {
					dst[(done+i)*panel+c] = v
				}
			}
		}
	default:
		packBlock(dst, b, k, cols)
	}
}
