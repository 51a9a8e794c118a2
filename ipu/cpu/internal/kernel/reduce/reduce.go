package reduce

import (
	"math"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
	"github.com/popefgen/popefgen/ipu/graph"
)

// reduce is the kernel of Reduce over elements that are computed as T and
// gathered in accumulators of type A: float64 for all floats, so that a long
// sum loses little that its type could show, 64-bit integers for integers.
type reduce[T tensor.Number, A int64 | uint64 | float64] struct {
	dtype graph.DType
	size  int
	kept  tensor.Loop // over the result; its operand is x
	over  tensor.Loop // over what is reduced to one element
	n     int         // elements of the result
	count int         // elements reduced to one
	// along is true where the last axis is reduced, so that a row of x folds
	// into one accumulator; else rows fold element by element into many.
	along bool

	initial A
	across  func(acc A, x []T, shift A) A
	few     func(acc A, x []T, shift A) A // across for short rows
	beside  func(acc []A, x []T, shift []A)
	down    func(acc []A, x []T, rows, step int)  // beside for several rows in x's memory; may be nil
	each    func(acc []A, x []T, count, step int) // across for rows in x's memory, step apart, one for each accumulator; may be nil
	finish  func(acc, shift []A, count int)
	// peak, where present, reduces x to its maximum first, which the main
	// pass then gets as shift.
	peak *reduce[T, A]

	// The run in progress.
	x, out, scratch []byte
	parts           int
	pool            tensor.Pool
}

// fewElements is the most elements of a row that are folded in one loop, without sums side by side.
const fewElements = 12

// stretchedRow is the most elements of a row of which several are folded in one
// call.
const stretchedRow = 1 << 12

// group is how many accumulators a part works on at a time.
const group = 256

func bindReduce(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	o, t := op.(*graph.Reduce), in[0]
	asFloat := false
	switch o.Fn {
	case graph.ReduceL2, graph.ReduceLogSum, graph.ReduceLogSumExp:
		asFloat = true
	}
	switch t.DType {
	case graph.Bool:
		if o.Fn == graph.ReduceMax || o.Fn == graph.ReduceMin {
			return NewReduce[uint8, uint64](o, t, out[0])
		}
	case graph.I8:
		return newIntReduce[int8, int64](o, t, out[0], asFloat)
	case graph.U8:
		return newIntReduce[uint8, uint64](o, t, out[0], asFloat)
	case graph.I16:
		return newIntReduce[int16, int64](o, t, out[0], asFloat)
	case graph.U16:
		return newIntReduce[uint16, uint64](o, t, out[0], asFloat)
	case graph.I32:
		return newIntReduce[int32, int64](o, t, out[0], asFloat)
	case graph.U32:
		return newIntReduce[uint32, uint64](o, t, out[0], asFloat)
	case graph.I64:
		return newIntReduce[int64, int64](o, t, out[0], asFloat)
	case graph.U64:
		return newIntReduce[uint64, uint64](o, t, out[0], asFloat)
	case graph.F32:
		return NewReduce[float32, float64](o, t, out[0])
	case graph.F64:
		return NewReduce[float64, float64](o, t, out[0])
	}
	return nil, tensor.NoKernel("reduce "+string(o.Fn), t.DType)
}

// newIntReduce makes the kernel for integers. Functions with a root or a
// logarithm are computed in float64 and truncated like Cast does.
func newIntReduce[T tensor.Integer, A int64 | uint64](o *graph.Reduce, x, out graph.TensorType, asFloat bool) (tensor.Kernel, error) {
	if asFloat {
		return NewReduce[T, float64](o, x, out)
	}
	return NewReduce[T, A](o, x, out)
}

// NewReduce returns the kernel of a reduction of elements of type T that adds up in
// type A.
func NewReduce[T tensor.Number, A int64 | uint64 | float64](o *graph.Reduce, x, out graph.TensorType) (tensor.Kernel, error) {
	own := tensor.Strides(x.Shape)
	var shape, steps [2][]int // kept, reduced
	next := 0
	for axis, d := range x.Shape {
		which := 0
		if next < len(o.Axes) && o.Axes[next] == int64(axis) {
			next++
			which = 1
		}
		shape[which] = append(shape[which], int(d))
		steps[which] = append(steps[which], own[axis])
	}
	k := &reduce[T, A]{dtype: x.DType, size: x.DType.Size(), n: tensor.Elements(out.Shape), count: 1}
	for _, d := range shape[1] {
		k.count *= d
	}
	var err error
	if k.kept, err = tensor.NewLoop(shape[0], steps[0]); err != nil {
		return nil, err
	}
	if k.over, err = tensor.NewLoop(shape[1], steps[1]); err != nil {
		return nil, err
	}
	// Of both innermost axes the one with stride 1 makes the rows; a single
	// element counts as such. Kept rows win if they are all there is.
	k.along = k.over.Stride(0) == 1 && (k.count > 1 || k.kept.Stride(0) != 1)
	if !k.setFold(o.Fn) {
		return nil, tensor.NoKernel("reduce "+string(o.Fn), x.DType)
	}
	if o.Fn == graph.ReduceLogSumExp {
		peak := *k
		peak.setFold(graph.ReduceMax)
		k.peak = &peak
	}
	return k, nil
}

// setFold sets what depends on the function.
func (k *reduce[T, A]) setFold(fn graph.ReduceFn) bool {
	k.initial, k.finish, k.down, k.each = 0, nil, nil, nil
	switch fn {
	case graph.ReduceSum, graph.ReduceMean, graph.ReduceLogSum:
		k.across, k.beside = sumAcross[T, A], sumBeside[T, A]
	case graph.ReduceL1:
		k.across, k.beside = absAcross[T, A], absBeside[T, A]
		if k.dtype.IsUnsigned() {
			k.across, k.beside = sumAcross[T, A], sumBeside[T, A]
		}
	case graph.ReduceL2, graph.ReduceSumSquare:
		k.across, k.beside = squareAcross[T, A], squareBeside[T, A]
	case graph.ReduceProd:
		k.initial = 1
		k.across, k.beside = productAcross[T, A], productBeside[T, A]
	case graph.ReduceMax:
		k.initial, _ = extremes[A](k.dtype)
		k.across, k.beside = maxAcross[T, A], maxBeside[T, A]
	case graph.ReduceMin:
		_, k.initial = extremes[A](k.dtype)
		k.across, k.beside = minAcross[T, A], minBeside[T, A]
	case graph.ReduceLogSumExp:
		k.across, k.beside = expAcross[T, A], expBeside[T, A]
		if k.dtype == graph.F64 {
			k.across, k.beside = expAcross64[T, A], expBeside64[T, A]
		}
	default:
		return false
	}
	k.few = k.across
	if f, ok := any(vec.VectorAcross(fn)).(func(acc A, x []T, shift A) A); ok && f != nil {
		k.across = f
	}
	if f, ok := any(vec.VectorDown(fn)).(func(acc []A, x []T, rows, step int)); ok && k.native() {
		k.down = f
	}
	if !k.along && k.over.Rows == 1 && k.over.Stride(0) == k.kept.Inner {
		if f, ok := any(vec.VectorNCHWcMeans(fn, k.kept.Inner)).(func(acc []A, x []T, rows, step int)); ok && f != nil && k.native() {
			k.down = f
		}
	}
	if f, ok := any(vec.VectorEach(fn, k.count)).(func(acc []A, x []T, count, step int)); ok && k.native() {
		k.each = f
	}
	switch fn {
	case graph.ReduceMean:
		if k.count > 0 {
			k.finish = meanAll[A]
		} else if k.dtype.IsFloat() {
			k.initial = A(math.NaN())
		}
	case graph.ReduceL2:
		k.finish = rootAll[A]
	case graph.ReduceLogSum:
		k.finish = logAll[A]
	case graph.ReduceLogSumExp:
		k.finish = logShiftedAll[A]
	}
	return true
}

// extremes returns the least and the greatest number of a type: the maximum
// and the minimum of nothing.
func extremes[A int64 | uint64 | float64](t graph.DType) (least, greatest A) {
	switch {
	case t.IsFloat():
		inf := math.Inf(1)
		return A(-inf), A(inf)
	case t == graph.Bool:
		return 0, 1
	case t.IsSigned():
		top := int64(1)<<(8*t.Size()-1) - 1
		bottom := -top - 1
		return A(bottom), A(top)
	default:
		top := uint64(1)<<(8*t.Size()-1)<<1 - 1
		return 0, A(top)
	}
}

// accType is the element type that A is.
func accType[A int64 | uint64 | float64]() graph.DType {
	switch any(A(0)).(type) {
	case int64:
		return graph.I64
	case uint64:
		return graph.U64
	}
	return graph.F64
}

// native reports whether x's memory holds Ts.
func (k *reduce[T, A]) native() bool {
	return k.dtype != graph.Bool
}

// A part's scratch holds its accumulators, their shifts, and a block of
// converted elements.
const reduceScratch = 2*group*8 + vec.BlockLen*4

func (k *reduce[T, A]) cost() int {
	switch {
	case k.peak != nil:
		return 10 * k.count
	case k.along:
		return 24 + k.count/2
	}
	return k.count
}

// Scratch implements Kernel.
func (k *reduce[T, A]) Scratch() int { return reduceScratch * tensor.MostParts(k.n, k.cost()) }

// Run implements Kernel.
func (k *reduce[T, A]) Run(p tensor.Pool, in, out [][]byte, scratch []byte) error {
	k.x, k.out, k.scratch = in[0], out[0], scratch
	if k.peak != nil {
		k.peak.x = in[0]
	}
	k.parts, k.pool = tensor.CutSlots(p, k.n, k.cost()), p
	p.Run(k, k.parts)
	k.x, k.out, k.scratch = nil, nil, nil
	if k.peak != nil {
		k.peak.x = nil
	}
	return nil
}

// Do implements Task.
func (k *reduce[T, A]) Do(part int) {
	unit := 1
	if !k.along {
		unit = 64
	}
	lo, hi := tensor.Span(k.n, k.parts, part, unit)
	if lo == hi {
		return
	}
	scratch := k.scratch[part*reduceScratch : (part+1)*reduceScratch]
	acc, shift := tensor.View[A](scratch[:group*8]), tensor.View[A](scratch[group*8:2*group*8])
	buf := tensor.View[T](scratch[2*group*8:])
	var c tensor.Cursor
	inner := k.kept.Inner
	k.kept.Seek(&c, lo/inner)
	watched := 0
	for at, col := lo, lo%inner; at < hi; {
		if watched > tensor.Long {
			if watched = 0; k.pool.Ended() {
				return
			}
		}
		n := min(inner-col, hi-at, group)
		first := c.Off[0] + col*k.kept.Stride(0)
		if k.peak != nil {
			k.peak.fold(shift[:n], nil, first, buf)
		}
		k.fold(acc[:n], shift[:n], first, buf)
		if k.finish != nil {
			k.finish(acc[:n], shift[:n], k.count)
		}
		k.store(at, acc[:n])
		at += n
		watched += n * k.count
		if col += n; col == inner {
			col = 0
			k.kept.Next(&c)
		}
	}
}

// store converts accumulators to results.
func (k *reduce[T, A]) store(at int, acc []A) {
	if k.dtype == graph.Bool {
		for i, v := range acc {
			k.out[at+i] = uint8(v)
		}
		return
	}
	vec.CastBlock(k.out[at*k.size:(at+len(acc))*k.size], k.dtype, asBytes(acc), accType[A]())
}

// fold sets the accumulators of results that are neighbours along the kept
// row; the first one's first element is x[first].
func (k *reduce[T, A]) fold(acc, shift []A, first int, buf []T) {
	for i := range acc {
		acc[i] = k.initial
	}
	if k.count == 0 {
		return
	}
	if !k.along && k.kept.Stride(0) == 1 {
		k.foldBeside(acc, shift, first, buf)
		return
	}
	if k.each != nil && k.along && k.over.Rows == 1 && k.count <= stretchedRow {
		k.each(acc, tensor.View[T](k.x)[first:], k.count, k.kept.Stride(0))
		return
	}
	var s A
	if step := k.kept.Stride(0); k.along && k.over.Rows == 1 && k.count <= fewElements && k.native() {
		x := tensor.View[T](k.x)
		for i := range acc {
			if shift != nil {
				s = shift[i]
			}
			acc[i] = k.few(acc[i], x[first:first+k.count], s)
			first += step
		}
		return
	}
	var c tensor.Cursor
	k.over.Seek(&c, 0)
	for i := range acc {
		if shift != nil {
			s = shift[i]
		}
		for range k.over.Rows {
			k.foldRow(&acc[i], s, first+c.Off[0], buf)
			k.over.Next(&c)
		}
		first += k.kept.Stride(0)
	}
}

// foldRow folds a row of the reduced axes into one accumulator.
func (k *reduce[T, A]) foldRow(acc *A, shift A, at int, buf []T) {
	for left := k.over.Inner; left > 0; {
		n := min(left, vec.BlockLen)
		if k.native() {
			n = left
		}
		*acc = k.across(*acc, k.load(at, n, buf), shift)
		at += n
		left -= n
	}
}

// foldBeside folds rows of the kept axis into neighbouring accumulators.
func (k *reduce[T, A]) foldBeside(acc, shift []A, first int, buf []T) {
	var c tensor.Cursor
	k.over.Seek(&c, 0)
	step := k.over.Stride(0)
	for range k.over.Rows {
		at := first + c.Off[0]
		if k.down != nil {
			k.down(acc, tensor.View[T](k.x)[at:], k.over.Inner, step)
			k.over.Next(&c)
			continue
		}
		for range k.over.Inner {
			k.beside(acc, k.load(at, len(acc), buf), shift)
			at += step
		}
		k.over.Next(&c)
	}
}

// load returns n elements of x from at, converted to T in buf if need be.
func (k *reduce[T, A]) load(at, n int, buf []T) []T {
	b := k.x[at*k.size : (at+n)*k.size]
	if k.native() {
		return tensor.View[T](b)
	}
	buf = buf[:n]
	for i, v := range b {
		buf[i] = T(vec.FromBool(v != 0))
	}
	return buf
}
