package move

import (
	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
	"github.com/popefgen/popefgen/ipu/graph"
)

// pad is the kernel of Pad. The operand is seen as rows along the last padded
// axis; what lies behind that axis moves together, as one unit.
type pad struct {
	unit int // bytes
	// outer tells, per axis before the last padded one, which of the
	// operand's positions each of the result's shows, or outside.
	outer [][]int
	dims  []int // the operand's length along those axes
	// segments make up the last padded axis.
	segments []segment
	row, dim int // length of that axis in the result and the operand, in units
	rows     int // rows of the result
	size     int // bytes of an element
	zero     [8]byte
	fill     func(dst, element []byte)       // with elements
	mirror   func(dst, src []byte, from int) // units from one on, downwards
	// strided makes a segment of few units of many rows; nil if units are more
	// than one element.
	strided func(dst, src []byte, rows, n, to, from, step int)

	// The run in progress.
	x, value, out []byte
	parts         int
}

// outside is the position of what the operand does not have.
const outside = -1

// segment is a run of positions of the result that show positions of the
// operand, in units: from src on, up (step 1), down (-1), or always src (0);
// or outside.
type segment struct{ n, src, step int }

func bindPad(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	o := op.(*graph.Pad)
	x := in[0].Shape
	last := len(x) - 1
	for last >= 0 && o.Before[last] == 0 && o.After[last] == 0 {
		last--
	}
	if last < 0 {
		return reshape{}, nil
	}
	k := &pad{size: in[0].DType.Size(), dim: int(x[last]), row: int(out[0].Shape[last])}
	k.unit = k.size * tensor.Elements(x[last+1:])
	k.fill, k.mirror = vec.FillOf(k.size), k.mirrorUnits
	if k.unit == 4 {
		k.mirror = mirrorOf[uint32]
	}
	if k.unit == k.size {
		switch k.size {
		case 1:
			k.strided = stridedRows[uint8]
		case 2:
			k.strided = stridedRows[uint16]
		case 4:
			k.strided = stridedRows[uint32]
		case 8:
			k.strided = stridedRows[uint64]
		}
	}
	k.rows = tensor.Elements(out[0].Shape[:last])
	if tensor.Elements(out[0].Shape) == 0 {
		k.rows = 0
		return k, nil
	}
	for axis := range last {
		positions := make([]int, 0, out[0].Shape[axis])
		for _, s := range padSegments(o.Mode, int(x[axis]), int(o.Before[axis]), int(o.After[axis])) {
			for range s.n {
				positions = append(positions, s.src)
				s.src += s.step
			}
		}
		k.outer = append(k.outer, positions)
		k.dims = append(k.dims, int(x[axis]))
	}
	k.segments = padSegments(o.Mode, k.dim, int(o.Before[last]), int(o.After[last]))
	return k, nil
}

// padSegments lists what an axis of dim positions shows after padding, or
// where negative cropping, it by before and after.
func padSegments(mode graph.PadMode, dim, before, after int) []segment {
	first, end := max(0, -before), dim-max(0, -after) // what is left of the axis
	left := end - first
	before, after = max(0, before), max(0, after)
	var list []segment
	switch mode {
	case graph.PadConstant:
		list = []segment{{before, outside, 0}, {left, first, 1}, {after, outside, 0}}
	case graph.PadEdge:
		list = []segment{{before, first, 0}, {left, first, 1}, {after, end - 1, 0}}
	case graph.PadWrap:
		list = make([]segment, 0, (before+left+after)/left+2)
		for at := -before; at < left+after; {
			offset := ((at % left) + left) % left
			n := min(left-offset, left+after-at)
			list = append(list, segment{n, first + offset, 1})
			at += n
		}
	case graph.PadReflect:
		if left == 1 {
			return []segment{{before + 1 + after, first, 0}}
		}
		period := 2 * (left - 1)
		list = make([]segment, 0, (before+left+after)/(left-1)+2)
		for at := -before; at < left+after; {
			offset := ((at % period) + period) % period
			s := segment{left - 1 - offset, first + offset, 1}
			if offset >= left-1 {
				s = segment{period - offset, first + period - offset, -1}
			}
			s.n = min(s.n, left+after-at)
			list = append(list, s)
			at += s.n
		}
	}
	kept := list[:0]
	for _, s := range list {
		if s.n > 0 {
			kept = append(kept, s)
		}
	}
	return kept
}

// Scratch implements Kernel.
func (k *pad) Scratch() int { return 0 }

// Run implements Kernel.
func (k *pad) Run(p tensor.Pool, in, out [][]byte, _ []byte) error {
	k.x, k.out, k.value = in[0], out[0], k.zero[:k.size]
	if len(in) > 1 && in[1] != nil {
		k.value = in[1]
	}
	k.parts = tensor.Cut(p, k.rows, 8*len(k.segments)+moveCost(k.row*k.unit))
	p.Run(k, k.parts)
	k.x, k.out, k.value = nil, nil, nil
	return nil
}

// Do implements Task.
func (k *pad) Do(part int) {
	lo, hi := tensor.Span(k.rows, k.parts, part, 1)
	length := k.row * k.unit
	// The last axis but one is walked, the others are looked up where it begins.
	var walked []int
	plane, base := 1, 0
	if n := len(k.outer); n > 0 {
		walked = k.outer[n-1]
		plane = len(walked)
	}
	at := lo % plane
	for row := lo; row < hi; row++ {
		if at == plane {
			at = 0
		}
		if at == 0 || row == lo {
			base = k.source(row / plane)
		}
		src := base
		if walked != nil && base != outside {
			if src = walked[at]; src != outside {
				src += base * k.dims[len(k.dims)-1]
			}
		}
		at++
		dst := k.out[row*length : (row+1)*length]
		if src < 0 {
			k.fill(dst, k.value)
			continue
		}
		// As many rows as show rows of the operand that follow each other.
		rows, most := 1, min(hi-row, max(1, padChunk/length))
		if walked != nil && rows < most {
			for rows < most && at < plane && walked[at] == walked[at-1]+1 {
				at++
				rows++
			}
		}
		k.rowsFrom(k.out[row*length:(row+rows)*length], k.x[src*k.dim*k.unit:(src+rows)*k.dim*k.unit], rows)
		row += rows - 1
	}
}

// padChunk is how many bytes of the result are made at a time, strip by strip of
// its rows.
const padChunk = 1 << 14

// rowsFrom makes rows of the result of as many of the operand.
func (k *pad) rowsFrom(dst, x []byte, rows int) {
	to, from, at := k.row*k.unit, k.dim*k.unit, 0
	for _, s := range k.segments {
		run := s.n * k.unit
		switch {
		case s.src != outside && s.step == 1:
			copyRuns(dst[at:], x[s.src*k.unit:], rows, run, to, from)
		case k.strided != nil && s.n <= fewUnits && s.src == outside:
			k.strided(dst[at:], k.value, rows, s.n, to, 0, 0)
		case k.strided != nil && s.n <= fewUnits:
			k.strided(dst[at:], x[s.src*k.unit+min(0, s.step*(run-k.unit)):], rows, s.n, to, from, s.step)
		default:
			for r := range rows {
				k.segment(dst[r*to+at:][:run], x[r*from:], s)
			}
		}
		at += run
	}
}

// fewUnits is the most units of a segment that are moved one by one.
const fewUnits = 16

// segment makes a segment of a row.
func (k *pad) segment(dst, x []byte, s segment) {
	switch {
	case s.src == outside:
		k.fill(dst, k.value)
	case s.step == 0:
		vec.Repeat(dst, x[s.src*k.unit:(s.src+1)*k.unit])
	default:
		k.mirror(dst, x, s.src)
	}
}

// stridedRows sets n elements of rows that begin to bytes apart to elements of
// src, of which they take every one, the first (step 0) or, for step -1, every
// one downwards from element n-1; for the next row they begin from bytes later.
func stridedRows[E tensor.Unsigned](dst, src []byte, rows, n, to, from, step int) {
	size := tensor.ElementSize[E]()
	d, s := tensor.View[E](dst), tensor.View[E](src)
	to, from = to/size, from/size
	first := 0
	if step < 0 {
		first = n - 1
	}
	for r := range rows {
		for i, at := r*to, r*from+first; i < r*to+n; i, at = i+1, at+step {
			d[i] = s[at]
		}
	}
}

// mirrorUnits copies units of src from one on, downwards.
func (k *pad) mirrorUnits(dst, src []byte, from int) {
	for at := from * k.unit; len(dst) > 0; at -= k.unit {
		copy(dst[:k.unit], src[at:])
		dst = dst[k.unit:]
	}
}

// mirrorOf is mirrorUnits for units of one element.
func mirrorOf[E tensor.Unsigned](dst, src []byte, from int) {
	d, s := tensor.View[E](dst), tensor.View[E](src)
	for i := range d {
		d[i] = s[from-i]
	}
}

// source returns where the operand has what a plane of the result shows, which
// is the last axis but one and what follows, or outside.
func (k *pad) source(plane int) int {
	row, src, step := plane, 0, 1
	for axis := len(k.outer) - 2; axis >= 0; axis-- {
		positions := k.outer[axis]
		at := positions[row%len(positions)]
		if at == outside {
			return outside
		}
		row /= len(positions)
		src += at * step
		step *= k.dims[axis]
	}
	return src
}

// padTableBytes: where every position of an axis but the last comes from, and the
// segments of an axis.
func padTableBytes(op graph.Op, in, out []graph.TensorType) int64 {
	o := op.(*graph.Pad)
	total := int64(0)
	for axis, size := range out[0].Shape {
		segments := int64(4)
		left := in[0].Shape[axis] + min(0, o.Before[axis]) + min(0, o.After[axis])
		switch o.Mode {
		case graph.PadWrap:
			segments += size / max(1, left)
		case graph.PadReflect:
			segments += size / max(1, left-1)
		}
		total = budget.Add(total, budget.Mul(8, size), budget.Mul(24, segments))
	}
	return total
}
