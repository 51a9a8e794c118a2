package reduce

import (
	"fmt"
	"math"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
	"github.com/popefgen/popefgen/ipu/graph"
)

func bindBatchNorm(op graph.Op, in, _ []graph.TensorType) (tensor.Kernel, error) {
	o := op.(*graph.BatchNorm)
	switch in[0].DType {
	case graph.F32:
		return newBatchNorm[float32](o, in[0]), nil
	case graph.F64:
		return newBatchNorm[float64](o, in[0]), nil
	}
	return nil, fmt.Errorf("no kernel for %v", in[0])
}

// batchNorm computes (x-mean)·scale/√(variance+ε) + bias per channel.
type batchNorm[T tensor.Float] struct {
	epsilon  float64
	channels int
	planes   int // images by channels
	plane    int // elements of one channel of one image
	task     batchNormTask[T]
}

func newBatchNorm[T tensor.Float](o *graph.BatchNorm, x graph.TensorType) *batchNorm[T] {
	return &batchNorm[T]{
		epsilon: o.Epsilon, channels: int(x.Shape[1]),
		planes: tensor.Elements(x.Shape[:2]), plane: tensor.Elements(x.Shape[2:]),
	}
}

// Scratch implements [Kernel].
func (k *batchNorm[T]) Scratch() int { return 0 }

// InPlace implements [InPlacer].
func (k *batchNorm[T]) InPlace(i int) bool { return i == 0 }

// Run implements [Kernel].
func (k *batchNorm[T]) Run(p tensor.Pool, in, out [][]byte, _ []byte) error {
	t := &k.task
	*t = batchNormTask[T]{
		batchNorm: k, x: tensor.View[T](in[0]), y: tensor.View[T](out[0]),
		scale: tensor.View[T](in[1]), bias: tensor.View[T](in[2]), mean: tensor.View[T](in[3]), variance: tensor.View[T](in[4]),
	}
	if len(t.y) > 0 {
		t.parts = tensor.Cut(p, k.planes, 2*k.plane+16)
		p.Run(t, t.parts)
	}
	*t = batchNormTask[T]{}
	return nil
}

type batchNormTask[T tensor.Float] struct {
	*batchNorm[T]
	x, y                        []T
	scale, bias, mean, variance []T
	parts                       int
}

// Do implements [Task].
func (t *batchNormTask[T]) Do(part int) {
	for i, end := tensor.Span(t.planes, t.parts, part, 1); i < end; i++ {
		c := i % t.channels
		a := T(float64(t.scale[c]) / math.Sqrt(float64(t.variance[c])+t.epsilon))
		mean, bias := t.mean[c], t.bias[c]
		x := t.x[i*t.plane:][:t.plane]
		y := t.y[i*t.plane:][:len(x)]
		if vec.VectorNormalise(y, x, mean, a, bias) {
			continue
		}
		for j, v := range x {
			y[j] = T((v-mean)*a) + bias
		}
	}
}

func bindSoftmax(op graph.Op, in, _ []graph.TensorType) (tensor.Kernel, error) {
	o := op.(*graph.Softmax)
	switch in[0].DType {
	case graph.F32:
		return newSoftmax[float32](o, in[0]), nil
	case graph.F64:
		return newSoftmax[float64](o, in[0]), nil
	}
	return nil, fmt.Errorf("no kernel for %v", in[0])
}

// Exponentials sets dst[i] to exp(x[i]).
func Exponentials[T tensor.Float](dst, x []T) {
	switch x := any(x).(type) {
	case []float32:
		vec.ExpF32(any(dst).([]float32), x)
	case []float64:
		dst := any(dst).([]float64)
		for i, v := range x {
			dst[i] = math.Exp(v)
		}
	}
}

// softmax computes exp(x-max)/Σexp(x-max) along an axis, or its logarithm.
type softmax[T tensor.Float] struct {
	log                bool
	outer, axis, inner int // elements before, on and after the axis
	task               softmaxTask[T]
}

func newSoftmax[T tensor.Float](o *graph.Softmax, x graph.TensorType) *softmax[T] {
	return &softmax[T]{
		log: o.Log, outer: tensor.Elements(x.Shape[:o.Axis]), axis: int(x.Shape[o.Axis]), inner: tensor.Elements(x.Shape[o.Axis+1:]),
	}
}

// stripLen is how many elements of scratch memory a part needs: three rows of a
// strip, and the columns that short rows are copied to.
func (k *softmax[T]) stripLen() int {
	switch {
	case k.inner > 1:
		return 3 * vec.SoftmaxStrip
	case k.axis <= vec.ShortRows:
		return (3 + k.axis) * vec.SoftmaxStrip
	}
	return 0
}

// units is how many rows or strips there are, cost what one takes.
func (k *softmax[T]) units() (n, cost int) {
	n = k.outer * ((k.inner + vec.SoftmaxStrip - 1) / vec.SoftmaxStrip)
	return n, 2 * k.axis * min(k.inner, vec.SoftmaxStrip)
}

// Scratch implements [Kernel].
func (k *softmax[T]) Scratch() int {
	return tensor.MostParts(k.units()) * k.stripLen() * tensor.ElementSize[T]()
}

// InPlace implements [InPlacer].
func (k *softmax[T]) InPlace(i int) bool { return i == 0 }

// Run implements [Kernel].
func (k *softmax[T]) Run(p tensor.Pool, in, out [][]byte, scratch []byte) error {
	t := &k.task
	*t = softmaxTask[T]{softmax: k, x: tensor.View[T](in[0]), y: tensor.View[T](out[0]), buf: tensor.View[T](scratch)}
	if len(t.y) > 0 {
		t.strips = (k.inner + vec.SoftmaxStrip - 1) / vec.SoftmaxStrip
		n, cost := k.units()
		t.parts, t.watch = tensor.CutSlots(p, n, cost), tensor.NewWatch(p, cost)
		p.Run(t, t.parts)
	}
	*t = softmaxTask[T]{}
	return nil
}

type softmaxTask[T tensor.Float] struct {
	*softmax[T]
	x, y   []T
	buf    []T
	strips int
	parts  int
	watch  tensor.Watch
}

// Do implements [Task].
func (t *softmaxTask[T]) Do(part int) {
	first, last := tensor.Span(t.outer*t.strips, t.parts, part, 1)
	for first < last {
		end := t.watch.Next(first, last)
		if end == first {
			return
		}
		t.rows(first, end, part)
		first = end
	}
}

// rows computes the rows or strips [i, end), as part of the task.
func (t *softmaxTask[T]) rows(i, end, part int) {
	if t.inner == 1 && vec.VectorRows(t.x[i*t.axis:end*t.axis], t.y[i*t.axis:], t.axis, t.log, t.scratch(part)) {
		return
	}
	for ; i < end; i++ {
		if t.inner == 1 {
			t.row(t.x[i*t.axis:][:t.axis], t.y[i*t.axis:][:t.axis])
			continue
		}
		lane := i % t.strips * vec.SoftmaxStrip
		at := i/t.strips*t.axis*t.inner + lane
		t.strip(t.x[at:], t.y[at:], min(vec.SoftmaxStrip, t.inner-lane), t.scratch(part))
	}
}

// scratch returns the scratch memory of a part.
func (t *softmaxTask[T]) scratch(part int) []T {
	n := t.stripLen()
	return t.buf[part*n:][:n]
}

// row normalises elements that lie side by side.
func (t *softmaxTask[T]) row(x, y []T) {
	if vec.VectorSoftmax(x, y, t.log) {
		return
	}
	most := x[0]
	for _, v := range x {
		most = max(most, v)
	}
	var buf [vec.SoftmaxStrip]T
	var total float64
	for i := 0; i < len(x); i += vec.SoftmaxStrip {
		x, y := x[i:min(i+vec.SoftmaxStrip, len(x))], y[i:min(i+vec.SoftmaxStrip, len(x))]
		e := y
		if t.log {
			e = buf[:len(x)]
		}
		for j, v := range x {
			y[j] = v - most
		}
		Exponentials(e, y)
		total += float64(Sum(e))
	}
	if t.log {
		l := T(math.Log(total))
		for i := range y {
			y[i] -= l
		}
		return
	}
	r := T(1 / total)
	for i := range y {
		y[i] *= r
	}
}

// strip normalises lanes that lie side by side, each along elements inner
// apart.
func (t *softmaxTask[T]) strip(x, y []T, lanes int, buf []T) {
	if vec.VectorStrip(x, y, t.axis, t.inner, lanes, t.log, buf) {
		return
	}
	most, total := buf[:lanes], buf[vec.SoftmaxStrip:][:lanes]
	clear(total)
	copy(most, x)
	for i := range t.axis {
		for j, v := range x[i*t.inner:][:lanes] {
			most[j] = max(most[j], v)
		}
	}
	for i := range t.axis {
		x, y := x[i*t.inner:][:lanes], y[i*t.inner:][:lanes]
		for j, v := range x {
			y[j] = v - most[j]
		}
		e := y
		if t.log {
			e = buf[2*vec.SoftmaxStrip:][:lanes]
		}
		Exponentials(e, y)
		for j, v := range e {
			total[j] += v
		}
	}
	for j, v := range total {
		if t.log {
			total[j] = T(math.Log(float64(v)))
		} else {
			total[j] = 1 / v
		}
	}
	for i := range t.axis {
		y := y[i*t.inner:][:lanes]
		for j, v := range total {
			if t.log {
				y[j] -= v
			} else {
				y[j] *= v
			}
		}
	}
}
