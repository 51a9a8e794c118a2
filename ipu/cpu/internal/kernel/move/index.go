package move

import (
	"fmt"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
	"github.com/popefgen/popefgen/ipu/graph"
)

// indexList holds indices of either type, as 64-bit numbers.
type indexList struct {
	i32 []int32
	i64 []int64
}

func newIndexList(t graph.DType, data []byte) indexList {
	if t == graph.I32 {
		return indexList{i32: tensor.View[int32](data)}
	}
	return indexList{i64: tensor.View[int64](data)}
}

func (c *indexList) len() int { return len(c.i32) + len(c.i64) }

func (c *indexList) at(i int) int {
	if c.i32 != nil {
		return int(c.i32[i])
	}
	return int(c.i64[i])
}

// inside returns index i, counted from the start of an axis of dim elements.
// It must have been checked.
func (c *indexList) inside(i, dim int) int {
	v := c.at(i)
	if v < 0 {
		v += dim
	}
	return v
}

// check reports the first index, of those at first, first+step …, that is
// outside an axis of dim elements.
func (c *indexList) check(what string, axis, dim, first, step int) error {
	for i := first; i < c.len(); i += step {
		if v := c.at(i); v < -dim || v >= dim {
			return fmt.Errorf("%s along axis %d: index %d, number %d of %d, is out of range: want %d to %d", what, axis, v, i, c.len(), -dim, dim-1)
		}
	}
	return nil
}

// elementIndex is what GatherElements and ScatterElements share: indices along
// one axis, each for one element.
type elementIndex struct {
	what  string
	axis  int
	dim   int
	step  int         // x's stride along axis
	loop  tensor.Loop // over the indices; its operand is x with coordinate 0 on axis
	block int         // indices that share all coordinates before axis
	n     int
	index graph.DType

	// The run in progress.
	x, y  []byte // gather: y from x; scatter: x from y
	at    indexList
	parts int
}

func newElementIndex(what string, axis int64, x, idx graph.TensorType) (*elementIndex, error) {
	own := tensor.Strides(x.Shape)
	k := &elementIndex{
		what: what, axis: int(axis), dim: int(x.Shape[axis]), step: own[axis], index: idx.DType,
		block: tensor.Elements(idx.Shape[axis:]), n: tensor.Elements(idx.Shape),
	}
	own[axis] = 0
	var err error
	k.loop, err = tensor.NewLoop(tensor.Ints(idx.Shape), own)
	return k, err
}

// Scratch implements Kernel.
func (k *elementIndex) Scratch() int { return 0 }

// start checks the indices and prepares a run.
func (k *elementIndex) start(idx []byte) error {
	k.at = newIndexList(k.index, idx)
	return k.at.check(k.what, k.axis, k.dim, 0, 1)
}

func (k *elementIndex) finish() {
	k.at = indexList{}
	k.x, k.y = nil, nil
}

// each calls row for runs of the indices from lo to hi whose elements of x lie
// at fixed strides, but for the index: from index number at on, n of them, x's
// elements from off on.
func (k *elementIndex) each(lo, hi int, row func(at, n, off, stride int)) {
	if lo == hi {
		return
	}
	var c tensor.Cursor
	inner, stride := k.loop.Inner, k.loop.Stride(0)
	k.loop.Seek(&c, lo/inner)
	col := lo % inner
	for at := lo; at < hi; {
		n := min(inner-col, hi-at)
		row(at, n, c.Off[0]+col*stride, stride)
		at += n
		col = 0
		k.loop.Next(&c)
	}
}

type gatherElements struct {
	*elementIndex
	do func(k *gatherElements, lo, hi int)
}

func bindGatherElements(op graph.Op, in, _ []graph.TensorType) (tensor.Kernel, error) {
	e, err := newElementIndex("gather of elements", op.(*graph.GatherElements).Axis, in[0], in[1])
	if err != nil {
		return nil, err
	}
	k := &gatherElements{elementIndex: e}
	switch in[0].DType.Size() {
	case 1:
		k.do = gatherEach[uint8]
	case 2:
		k.do = gatherEach[uint16]
	case 4:
		k.do = gatherEach[uint32]
	case 8:
		k.do = gatherEach[uint64]
	default:
		return nil, tensor.NoKernel("gather of elements", in[0].DType)
	}
	return k, nil
}

// Run implements Kernel.
func (k *gatherElements) Run(p tensor.Pool, in, out [][]byte, _ []byte) error {
	if err := k.start(in[1]); err != nil {
		return err
	}
	k.x, k.y = in[0], out[0]
	k.parts = tensor.Cut(p, k.n, 2)
	p.Run(k, k.parts)
	k.finish()
	return nil
}

// Do implements Task.
func (k *gatherElements) Do(part int) {
	lo, hi := tensor.Span(k.n, k.parts, part, 64)
	k.do(k, lo, hi)
}

func gatherEach[E tensor.Unsigned](k *gatherElements, lo, hi int) {
	x, y := tensor.View[E](k.x), tensor.View[E](k.y)
	k.each(lo, hi, func(at, n, off, stride int) {
		for i := range n {
			y[at+i] = x[off+k.at.inside(at+i, k.dim)*k.step]
			off += stride
		}
	})
}

type scatterElements struct {
	*elementIndex
	do func(k *scatterElements, lo, hi int)
}

func bindScatterElements(op graph.Op, in, _ []graph.TensorType) (tensor.Kernel, error) {
	o, t := op.(*graph.ScatterElements), in[0].DType
	e, err := newElementIndex("scatter of elements", o.Axis, in[0], in[1])
	if err != nil {
		return nil, err
	}
	k := &scatterElements{elementIndex: e}
	if o.Fn == graph.ScatterNone {
		switch t.Size() {
		case 1:
			k.do = scatterEach[uint8]
		case 2:
			k.do = scatterEach[uint16]
		case 4:
			k.do = scatterEach[uint32]
		case 8:
			k.do = scatterEach[uint64]
		}
	} else if fold := scatterFold(t, o.Fn); fold != nil {
		size := t.Size()
		k.do = func(k *scatterElements, lo, hi int) {
			k.each(lo, hi, func(at, n, off, stride int) {
				for i := at; i < at+n; i++ {
					to := (off + k.at.inside(i, k.dim)*k.step) * size
					fold(k.x[to:to+size], k.y[i*size:(i+1)*size])
					off += stride
				}
			})
		}
	}
	if k.do == nil {
		return nil, tensor.NoKernel("scatter "+string(o.Fn), t)
	}
	return k, nil
}

// InPlace implements InPlacer.
func (k *scatterElements) InPlace(i int) bool { return i == 0 }

// Run implements Kernel.
func (k *scatterElements) Run(p tensor.Pool, in, out [][]byte, _ []byte) error {
	if err := k.start(in[1]); err != nil {
		return err
	}
	copy(out[0], in[0])
	k.x, k.y = out[0], in[2]
	// Only indices that differ in a coordinate before the axis are sure to
	// write different elements.
	k.parts = 0
	if k.n > 0 {
		k.parts = tensor.Cut(p, k.n/k.block, 4*k.block)
	}
	p.Run(k, k.parts)
	k.finish()
	return nil
}

// Do implements Task.
func (k *scatterElements) Do(part int) {
	lo, hi := tensor.Span(k.n, k.parts, part, k.block)
	k.do(k, lo, hi)
}

func scatterEach[E tensor.Unsigned](k *scatterElements, lo, hi int) {
	x, y := tensor.View[E](k.x), tensor.View[E](k.y)
	k.each(lo, hi, func(at, n, off, stride int) {
		for i := range n {
			x[off+k.at.inside(at+i, k.dim)*k.step] = y[at+i]
			off += stride
		}
	})
}

// scatterFold returns the function that folds updates into the elements they
// meet, nil if there is none for elements of type t.
func scatterFold(t graph.DType, fn graph.ScatterFn) func(x, update []byte) {
	switch t {
	case graph.I8:
		return foldOf[int8](fn)
	case graph.U8:
		return foldOf[uint8](fn)
	case graph.I16:
		return foldOf[int16](fn)
	case graph.U16:
		return foldOf[uint16](fn)
	case graph.I32:
		return foldOf[int32](fn)
	case graph.U32:
		return foldOf[uint32](fn)
	case graph.I64:
		return foldOf[int64](fn)
	case graph.U64:
		return foldOf[uint64](fn)
	case graph.F32:
		return foldOf[float32](fn)
	case graph.F64:
		return foldOf[float64](fn)
	case graph.F16, graph.BF16:
		return func(x, update []byte) { foldHalf(t, fn, x, update) }
	}
	return nil
}

var scatterArithmetic = map[graph.ScatterFn]graph.BinaryFn{
	graph.ScatterAdd: graph.Add, graph.ScatterMul: graph.Mul, graph.ScatterMax: graph.Max, graph.ScatterMin: graph.Min,
}

// foldHalf folds half-precision elements in float32.
func foldHalf(t graph.DType, fn graph.ScatterFn, x, update []byte) {
	var buf [2][64]float32
	for len(x) > 0 {
		n := min(len(x)/2, len(buf[0]))
		a, b := buf[0][:n], buf[1][:n]
		vec.DecodeHalf(t, a, x[:2*n])
		vec.DecodeHalf(t, b, update[:2*n])
		switch fn { // not by a variable, for which the buffers would be allocated
		case graph.ScatterAdd:
			vec.Add(a, a, b)
		case graph.ScatterMul:
			vec.Multiply(a, a, b)
		case graph.ScatterMax:
			vec.Maximum(a, a, b)
		case graph.ScatterMin:
			vec.Minimum(a, a, b)
		}
		vec.EncodeHalf(t, x[:2*n], a)
		x, update = x[2*n:], update[2*n:]
	}
}

func foldOf[T tensor.Number](fn graph.ScatterFn) func(x, update []byte) {
	f := vec.Arithmetic[T](scatterArithmetic[fn])
	if f == nil {
		return nil
	}
	return func(x, update []byte) {
		a := tensor.View[T](x)
		f(a, a, tensor.View[T](update))
	}
}
