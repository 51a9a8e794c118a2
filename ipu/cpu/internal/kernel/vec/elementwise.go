package vec

import (
	"fmt"
	"math"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/num"
)

// BlockLen is the number of elements that are computed at a time where operands have to be
// spread or converted first: small enough for the first-level cache.
const BlockLen = 512

// compute sets the elements of dst from as many of up to three operands. tmp
// has the bytes that newElementwise was asked for. dst may be the memory of
// an operand.
type compute func(dst, a, b, c, tmp []byte)

// elementwise is the kernel of every operator whose result elements depend on
// one element of each operand.
type elementwise struct {
	compute  compute
	operands [tensor.MaxOperands]feed
	loop     tensor.Loop // over the spread operands
	spread   bool        // there are any
	n        int         // elements of the result
	size     int         // bytes of one
	step     int         // elements computed at a time; 0 for all of a part
	unit     int         // parts begin at multiples of this many elements
	cost     int
	tmp      int // bytes of tmp
	// withOne, if it is there, computes elements of float32 with one number of
	// operand one, which the other operand meets with whole rows.
	withOne func(dst, x []float32, y float32)
	one     int
	// limited is set if elements of float32 are limited by operands of one
	// number, either of which may be absent.
	limited bool
	perPart int // bytes of scratch of one part, tmp included

	// The run in progress.
	out     []byte
	in      [tensor.MaxOperands][]byte
	scratch []byte
	parts   int
	watch   tensor.Watch
}

// operandMode says how the elements of an operand meet those of the result.
type operandMode uint8

const (
	absent   operandMode = iota
	whole                // one for each
	single               // one for all
	periodic             // the same for every row of the loop
	spread               // as the loop says
)

type feed struct {
	mode   operandMode
	size   int // bytes of an element
	buffer int // where in a part's scratch a block of elements is laid out
	fill   func(dst, element []byte)
}

// newElementwise makes the kernel that applies fn. cost is about how many
// simple operations an element takes, tmp how many bytes fn wants for a block.
func newElementwise(out graph.TensorType, in []graph.TensorType, cost, tmp int, fn compute) (*elementwise, error) {
	if len(in) > tensor.MaxOperands {
		return nil, fmt.Errorf("%d operands, at most %d", len(in), tensor.MaxOperands)
	}
	k := &elementwise{compute: fn, n: tensor.Elements(out.Shape), size: out.DType.Size(), cost: cost, tmp: tmp, unit: 64}
	shapes := make([][]int64, len(in))
	for i, t := range in {
		o := &k.operands[i]
		o.size = t.DType.Size()
		o.fill = FillOf(o.size)
		shapes[i] = out.Shape
		switch {
		case t.DType == graph.Invalid:
		case tensor.Elements(t.Shape) == k.n:
			o.mode = whole
		case tensor.Elements(t.Shape) == 1:
			o.mode = single
		default:
			o.mode = spread
			shapes[i] = t.Shape
			k.spread = true
		}
	}
	var err error
	if k.loop, err = tensor.Broadcast(out.Shape, shapes...); err != nil {
		return nil, err
	}
	if k.spread && 0 < k.loop.Inner && k.loop.Inner < BlockLen/4 {
		// Short rows: several make a block.
		k.step = BlockLen / k.loop.Inner * k.loop.Inner
		k.unit = k.step
	}
	k.perPart = tmp
	for i, t := range in {
		o := &k.operands[i]
		if o.mode == spread && k.unit == k.step && tensor.Elements(t.Shape) == k.loop.Inner && k.loop.Stride(i) == 1 {
			o.mode = periodic
		}
		if o.mode >= single {
			o.buffer = k.perPart
			k.perPart += BlockLen * o.size
		}
	}
	if k.perPart > 0 && k.step == 0 {
		k.step = BlockLen
	}
	return k, nil
}

// Scratch implements Kernel.
func (k *elementwise) Scratch() int { return k.perPart * tensor.MostParts(k.n, k.cost) }

// InPlace implements InPlacer: the result may replace an operand whose
// elements are as big and as many.
func (k *elementwise) InPlace(i int) bool {
	return i < tensor.MaxOperands && k.operands[i].mode == whole && k.operands[i].size == k.size
}

// Run implements Kernel.
func (k *elementwise) Run(p tensor.Pool, in, out [][]byte, scratch []byte) error {
	copy(k.in[:], in)
	k.out, k.scratch = out[0], scratch
	k.parts, k.watch = tensor.CutSlots(p, k.n, k.cost), tensor.NewWatch(p, k.cost)
	p.Run(k, k.parts)
	k.in, k.out, k.scratch = [tensor.MaxOperands][]byte{}, nil, nil
	return nil
}

// Do implements Task.
func (k *elementwise) Do(part int) {
	lo, hi := tensor.Span(k.n, k.parts, part, k.unit)
	if lo == hi {
		return
	}
	if k.withOne != nil {
		k.doOne(lo, hi)
		return
	}
	if k.limited && k.limit(lo, hi) {
		return
	}
	if k.step == 0 {
		for lo < hi {
			to := k.watch.Next(lo, hi)
			if to == lo {
				return
			}
			k.compute(k.out[lo*k.size:to*k.size], k.slice(0, lo, to), k.slice(1, lo, to), k.slice(2, lo, to), nil)
			lo = to
		}
		return
	}
	scratch := k.scratch[part*k.perPart : (part+1)*k.perPart]
	n := min(k.step, hi-lo)
	for i := range k.operands {
		switch o := &k.operands[i]; o.mode {
		case single:
			Repeat(scratch[o.buffer:][:n*o.size], k.in[i])
		case periodic:
			Repeat(scratch[o.buffer:][:n*o.size], k.in[i])
		}
	}
	if k.spread {
		k.doSpread(lo, hi, scratch)
		return
	}
	for lo < hi {
		to := k.watch.Next(lo, hi)
		if to == lo {
			return
		}
		for at := lo; at < to; at += n {
			n = min(k.step, to-at)
			k.compute(k.out[at*k.size:(at+n)*k.size],
				k.block(0, at, n, scratch), k.block(1, at, n, scratch), k.block(2, at, n, scratch), scratch[:k.tmp])
		}
		lo = to
	}
}

// limit limits a part, if there is a loop for these limits; it reports whether it
// did it.
func (k *elementwise) limit(lo, hi int) bool {
	limits := [...]float32{float32(math.Inf(-1)), float32(math.Inf(1))}
	for i := range limits {
		if k.operands[1+i].mode == single {
			limits[i] = tensor.F32s(k.in[1+i])[0]
		}
	}
	return vectorClipOne(tensor.F32s(k.out)[lo:hi], tensor.F32s(k.in[0])[lo:hi], limits[0], limits[1])
}

// doOne computes a part row by row, each with one number.
func (k *elementwise) doOne(lo, hi int) {
	out, x, y := tensor.F32s(k.out), tensor.F32s(k.in[1-k.one]), tensor.F32s(k.in[k.one])
	if k.operands[k.one].mode == single {
		k.withOne(out[lo:hi], x[lo:hi], y[0])
		return
	}
	var c tensor.Cursor
	inner := k.loop.Inner
	k.loop.Seek(&c, lo/inner)
	for at, col := lo, lo%inner; at < hi; col = 0 {
		n := min(inner-col, hi-at)
		from := at
		if k.operands[1-k.one].mode == spread {
			from = c.Off[1-k.one] + col
		}
		k.withOne(out[at:at+n], x[from:from+n], y[c.Off[k.one]])
		at += n
		k.loop.Next(&c)
	}
}

// doSpread computes a part of which some operands follow the loop.
func (k *elementwise) doSpread(lo, hi int, scratch []byte) {
	var c tensor.Cursor
	inner := k.loop.Inner
	k.loop.Seek(&c, lo/inner)
	col := lo % inner
	var filled [tensor.MaxOperands]filling
	for at := lo; at < hi; {
		n := min(k.step, hi-at)
		if inner >= BlockLen/4 {
			n = min(n, inner-col)
		}
		var blocks [tensor.MaxOperands][]byte
		for i := range blocks {
			blocks[i] = k.block(i, at, n, scratch)
		}
		for done := 0; done < n; {
			run := min(inner-col, n-done)
			for i := range k.operands {
				o := &k.operands[i]
				if o.mode != spread {
					continue
				}
				stride := k.loop.Stride(i)
				first := (c.Off[i] + col*stride) * o.size
				switch {
				case stride == 0 && run == n:
					if filled[i].wants(first, n) {
						o.fill(blocks[i][:n*o.size], k.in[i][first:first+o.size])
					}
				case stride == 0:
					filled[i] = filling{}
					o.fill(blocks[i][done*o.size:][:run*o.size], k.in[i][first:first+o.size])
				case run == n:
					blocks[i] = k.in[i][first : first+run*o.size]
				default:
					copy(blocks[i][done*o.size:][:run*o.size], k.in[i][first:])
				}
			}
			done += run
			if col += run; col == inner {
				col = 0
				k.loop.Next(&c)
			}
		}
		k.compute(k.out[at*k.size:(at+n)*k.size], blocks[0], blocks[1], blocks[2], scratch[:k.tmp])
		at += n
	}
}

// filling says which element of an operand a buffer is full of, and how far.
type filling struct{ first, n int }

// wants reports whether the buffer is to be filled with n copies of an element,
// because it is not yet.
func (f *filling) wants(first, n int) bool {
	if f.first == first && f.n >= n {
		return false
	}
	f.first, f.n = first, n
	return true
}

// slice returns elements lo to hi of a whole operand, nil for an absent one.
func (k *elementwise) slice(i, lo, hi int) []byte {
	if o := &k.operands[i]; o.mode == whole {
		return k.in[i][lo*o.size : hi*o.size]
	}
	return nil
}

// block returns n elements of operand i for the result's elements from at:
// its own memory, or its buffer.
func (k *elementwise) block(i, at, n int, scratch []byte) []byte {
	o := &k.operands[i]
	if o.mode > whole {
		return scratch[o.buffer:][:n*o.size]
	}
	return k.slice(i, at, at+n)
}

// Repeat fills dst with copies of pattern, whose length divides dst's or which
// is longer.
func Repeat(dst, pattern []byte) {
	for n := copy(dst, pattern); n < len(dst); n *= 2 {
		copy(dst[n:], dst[:n])
	}
}

// FillOf returns a function that fills dst with copies of an element of size
// bytes, one that is quick for short rows.
func FillOf(size int) func(dst, element []byte) {
	switch size {
	case 1:
		return Fill[uint8]
	case 2:
		return Fill[uint16]
	case 4:
		return Fill[uint32]
	}
	return Fill[uint64]
}

// Fill sets all elements of dst to element, both of as many bytes as an E.
func Fill[E tensor.Unsigned](dst, element []byte) {
	if len(dst) > 256 {
		Repeat(dst, element)
		return
	}
	d, v := tensor.View[E](dst), tensor.View[E](element)[0]
	for i := range d {
		d[i] = v
	}
}

// DecodeHalf widens elements of a half-precision type.
func DecodeHalf(t graph.DType, dst []float32, src []byte) {
	if t == graph.BF16 {
		h := tensor.View[num.BFloat16](src)
		n := vectorDecodeBfloat(dst, h)
		num.DecodeBFloat16(dst[n:], h[n:])
	} else if h := tensor.View[num.Float16](src); !vectorDecode(dst, h) {
		num.DecodeFloat16(dst, h)
	}
}

// EncodeHalf rounds to a half-precision type.
func EncodeHalf(t graph.DType, dst []byte, src []float32) {
	if t == graph.BF16 {
		h := tensor.View[num.BFloat16](dst)
		n := vectorEncodeBfloat(h, src)
		num.EncodeBFloat16(h[n:], src[n:])
	} else if h := tensor.View[num.Float16](dst); !vectorEncode(h, src) {
		num.EncodeFloat16(h, src)
	}
}

// widenBlock returns block i of tmp, filled with the n half-precision elements
// of src.
func widenBlock(t graph.DType, tmp []byte, i int, src []byte) []float32 {
	x := tensor.F32s(tmp[i*BlockLen*4:])[:len(src)/2]
	DecodeHalf(t, x, src)
	return x
}

func bindClip(_ graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	var scalars [tensor.MaxOperands]graph.TensorType
	for i, t := range in {
		scalars[i] = t
		if i > 0 {
			scalars[i].Shape = nil
		}
	}
	low, high := scalars[1].DType != graph.Invalid, scalars[2].DType != graph.Invalid
	var fn compute
	tmp := 0
	switch t := in[0].DType; t {
	case graph.I8:
		fn = clipOf[int8](low, high)
	case graph.U8:
		fn = clipOf[uint8](low, high)
	case graph.I16:
		fn = clipOf[int16](low, high)
	case graph.U16:
		fn = clipOf[uint16](low, high)
	case graph.I32:
		fn = clipOf[int32](low, high)
	case graph.U32:
		fn = clipOf[uint32](low, high)
	case graph.I64:
		fn = clipOf[int64](low, high)
	case graph.U64:
		fn = clipOf[uint64](low, high)
	case graph.F32:
		fn = clipOf[float32](low, high)
	case graph.F64:
		fn = clipOf[float64](low, high)
	case graph.F16, graph.BF16:
		tmp = 3 * BlockLen * 4
		fn = func(dst, a, b, c, tmp []byte) {
			x := widenBlock(t, tmp, 0, a)
			clip(x, x, widenBlock(t, tmp, 1, b), widenBlock(t, tmp, 2, c), low, high)
			EncodeHalf(t, dst, x)
		}
	default:
		return nil, tensor.NoKernel("clip", t)
	}
	k, err := newElementwise(out[0], scalars[:], 2, tmp, fn)
	if err == nil {
		k.limited = in[0].DType == graph.F32 && k.n > 1
	}
	return k, err
}

func clipOf[T tensor.Number](low, high bool) compute {
	return func(dst, a, b, c, _ []byte) {
		clip(tensor.View[T](dst), tensor.View[T](a), tensor.View[T](b), tensor.View[T](c), low, high)
	}
}

// clip limits x from below, then from above, so that the upper limit wins
// where they cross. A NaN on either side gives NaN.
func clip[T tensor.Number](dst, x, lo, hi []T, low, high bool) {
	if vectorClip(dst, x, lo, hi, low, high) {
		return
	}
	dst = dst[:len(x)]
	switch {
	case low && high:
		lo, hi = lo[:len(x)], hi[:len(x)]
		for i, v := range x {
			dst[i] = min(max(v, lo[i]), hi[i])
		}
	case low:
		lo = lo[:len(x)]
		for i, v := range x {
			dst[i] = max(v, lo[i])
		}
	case high:
		hi = hi[:len(x)]
		for i, v := range x {
			dst[i] = min(v, hi[i])
		}
	default:
		copy(dst, x)
	}
}

func bindWhere(_ graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	var fn compute
	switch out[0].DType.Size() {
	case 1:
		fn = where[uint8]
	case 2:
		fn = where[uint16]
	case 4:
		fn = where[uint32]
	case 8:
		fn = where[uint64]
	default:
		return nil, tensor.NoKernel("where", out[0].DType)
	}
	return newElementwise(out[0], in, 2, 0, fn)
}

func where[E tensor.Unsigned](dst, cond, a, b, _ []byte) {
	d, x, y := tensor.View[E](dst), tensor.View[E](a), tensor.View[E](b)
	x, y, cond = x[:len(d)], y[:len(d)], cond[:len(d)]
	n := vectorWhere(d, x, y, cond)
	x, y, cond, d = x[n:], y[n:], cond[n:], d[n:]
	for i := range d {
		v, w := x[i], y[i]
		if cond[i] == 0 {
			v = w
		}
		d[i] = v
	}
}

// FillWith sets all elements of x to v.
func FillWith[T any](x []T, v T) {
	for i := range x {
		x[i] = v
	}
}
