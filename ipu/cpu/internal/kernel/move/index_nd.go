package move

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
	"github.com/popefgen/popefgen/ipu/graph"
)

// tuples are the indices of GatherND and ScatterND: n tuples of coordinates
// for each of a number of batches, every tuple for one slice of x.
type tuples struct {
	what  string
	first int   // the axis that the first coordinate is of
	dims  []int // of the axes that coordinates are of
	steps []int // bytes between neighbours on those axes
	n     int   // tuples of a batch
	count int   // of all batches
	batch int   // bytes of x of a batch
	slice int   // bytes of a slice
	index graph.DType

	// The run in progress.
	x, y  []byte
	at    indexList
	parts int
}

func newTuples(what string, batchDims int64, x, idx graph.TensorType) tuples {
	size := x.DType.Size()
	last := len(idx.Shape) - 1
	b, k := int(batchDims), int(idx.Shape[last])
	t := tuples{
		what: what, first: b, dims: tensor.Ints(x.Shape[b : b+k]), index: idx.DType,
		n: tensor.Elements(idx.Shape[b:last]), count: tensor.Elements(idx.Shape[:last]),
		batch: tensor.Elements(x.Shape[b:]) * size, slice: tensor.Elements(x.Shape[b+k:]) * size,
	}
	for _, s := range tensor.Strides(x.Shape)[b : b+k] {
		t.steps = append(t.steps, s*size)
	}
	return t
}

// Scratch implements Kernel.
func (t *tuples) Scratch() int { return 0 }

// start checks the indices and prepares a run.
func (t *tuples) start(idx []byte) error {
	t.at = newIndexList(t.index, idx)
	for i, dim := range t.dims {
		if err := t.at.check(t.what, t.first+i, dim, i, len(t.dims)); err != nil {
			return err
		}
	}
	return nil
}

func (t *tuples) finish() {
	t.at = indexList{}
	t.x, t.y = nil, nil
}

// offset returns where in x the slice of a tuple begins.
func (t *tuples) offset(tuple int) int {
	off := tuple / t.n * t.batch
	for i, dim := range t.dims {
		off += t.at.inside(tuple*len(t.dims)+i, dim) * t.steps[i]
	}
	return off
}

type gatherND struct{ tuples }

func bindGatherND(op graph.Op, in, _ []graph.TensorType) (tensor.Kernel, error) {
	return &gatherND{newTuples("gather of slices", op.(*graph.GatherND).BatchDims, in[0], in[1])}, nil
}

// Run implements Kernel.
func (k *gatherND) Run(p tensor.Pool, in, out [][]byte, _ []byte) error {
	if len(out[0]) == 0 {
		return nil
	}
	if err := k.start(in[1]); err != nil {
		return err
	}
	k.x, k.y = in[0], out[0]
	k.parts = tensor.Cut(p, k.count, moveCost(k.slice)+2*len(k.dims))
	p.Run(k, k.parts)
	k.finish()
	return nil
}

// Do implements Task.
func (k *gatherND) Do(part int) {
	lo, hi := tensor.Span(k.count, k.parts, part, 1)
	for i := lo; i < hi; i++ {
		copy(k.y[i*k.slice:(i+1)*k.slice], k.x[k.offset(i):])
	}
}

type scatterND struct {
	tuples
	size int // bytes of an element
	fold func(x, update []byte)
}

func bindScatterND(op graph.Op, in, _ []graph.TensorType) (tensor.Kernel, error) {
	o, t := op.(*graph.ScatterND), in[0].DType
	k := &scatterND{tuples: newTuples("scatter of slices", 0, in[0], in[1]), size: t.Size()}
	if o.Fn == graph.ScatterNone {
		k.fold = func(x, update []byte) { copy(x, update) }
	} else if k.fold = scatterFold(t, o.Fn); k.fold == nil {
		return nil, tensor.NoKernel("scatter "+string(o.Fn), t)
	}
	return k, nil
}

// InPlace implements InPlacer.
func (k *scatterND) InPlace(i int) bool { return i == 0 }

// Run implements Kernel.
func (k *scatterND) Run(p tensor.Pool, in, out [][]byte, _ []byte) error {
	if err := k.start(in[1]); err != nil {
		return err
	}
	copy(out[0], in[0])
	k.x, k.y = out[0], in[2]
	// Two tuples may name one slice: parts share the elements of every slice.
	k.parts = tensor.Cut(p, k.slice/k.size, 1+k.count)
	if k.count == 0 {
		k.parts = 0
	}
	p.Run(k, k.parts)
	k.finish()
	return nil
}

// Do implements Task.
func (k *scatterND) Do(part int) {
	lo, hi := tensor.Span(k.slice/k.size, k.parts, part, 64)
	lo, hi = lo*k.size, hi*k.size
	if lo == hi {
		return
	}
	for i := range k.count {
		off := k.offset(i)
		k.fold(k.x[off+lo:off+hi], k.y[i*k.slice+lo:i*k.slice+hi])
	}
}

// oneHot writes, for every index, a run of one value with another in it.
type oneHot struct {
	outer, depth, inner int
	index               graph.DType
	size                int

	// The run in progress.
	out, values []byte
	at          indexList
	parts       int
}

func bindOneHot(op graph.Op, in, _ []graph.TensorType) (tensor.Kernel, error) {
	o, idx := op.(*graph.OneHot), in[0]
	return &oneHot{
		outer: tensor.Elements(idx.Shape[:o.Axis]), depth: int(o.Depth), inner: tensor.Elements(idx.Shape[o.Axis:]),
		index: idx.DType, size: in[1].DType.Size(),
	}, nil
}

// Scratch implements Kernel.
func (k *oneHot) Scratch() int { return 0 }

// Run implements Kernel.
func (k *oneHot) Run(p tensor.Pool, in, out [][]byte, _ []byte) error {
	if len(out[0]) == 0 {
		return nil
	}
	k.at = newIndexList(k.index, in[0])
	k.values, k.out = in[1], out[0]
	k.parts = tensor.Cut(p, k.outer, 2*k.inner+moveCost(k.depth*k.inner*k.size))
	p.Run(k, k.parts)
	k.at, k.values, k.out = indexList{}, nil, nil
	return nil
}

// Do implements Task.
func (k *oneHot) Do(part int) {
	lo, hi := tensor.Span(k.outer, k.parts, part, 1)
	off, on := k.values[:k.size], k.values[k.size:]
	block := k.depth * k.inner
	vec.Repeat(k.out[lo*block*k.size:hi*block*k.size], off)
	for o := lo; o < hi; o++ {
		for i := range k.inner {
			v := k.at.at(o*k.inner + i)
			if v < 0 {
				v += k.depth
			}
			if v >= 0 && v < k.depth {
				copy(k.out[(o*block+v*k.inner+i)*k.size:], on)
			}
		}
	}
}
