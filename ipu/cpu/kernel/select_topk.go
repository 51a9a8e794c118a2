package kernel

import (
	"github.com/popefgen/popefgen/ipu/graph"
)

// topK keeps, for each lane, a heap of the K best elements so far, whose root
// is the worst of them, and sorts it at the end.
type topK struct {
	lanes
	k    int
	do   func(k *topK, lane int, heap []int64)
	cost int

	// The run in progress.
	x, values []byte
	positions []int64
	heaps     []int64
	parts     int
}

func bindTopK(op graph.Op, in, _ []graph.TensorType) (Kernel, error) {
	o, t := op.(*graph.TopK), in[0]
	k := &topK{lanes: lanesOf(t.Shape, o.Axis), k: int(o.K)}
	k.cost = 4 * (k.dim + 8*k.k)
	type f = func(k *topK, lane int, heap []int64)
	table := typed[f]{
		topKOf[int8](o.Least), topKOf[uint8](o.Least), topKOf[int16](o.Least), topKOf[uint16](o.Least), topKOf[int32](o.Least),
		topKOf[uint32](o.Least), topKOf[int64](o.Least), topKOf[uint64](o.Least), topKOf[float32](o.Least), topKOf[float64](o.Least),
	}
	var ok bool
	if k.do, ok = table.of(t.DType); !ok {
		return nil, noKernel("top elements", t.DType)
	}
	return k, nil
}

// Scratch implements Kernel.
func (k *topK) Scratch() int { return 8 * k.k * mostParts(k.outer*k.inner, k.cost) }

// Run implements Kernel.
func (k *topK) Run(p Pool, in, out [][]byte, scratch []byte) error {
	if k.k == 0 {
		return nil
	}
	// Either result may be left out.
	k.x, k.values, k.positions, k.heaps = in[0], out[0], nil, view[int64](scratch)
	if len(out) > 1 {
		k.positions = view[int64](out[1])
	}
	k.parts = cut(p, k.outer*k.inner, k.cost)
	p.Run(k, k.parts)
	k.x, k.values, k.positions, k.heaps = nil, nil, nil, nil
	return nil
}

// Do implements Task.
func (k *topK) Do(part int) {
	lo, hi := span(k.outer*k.inner, k.parts, part, 1)
	heap := k.heaps[part*k.k : (part+1)*k.k]
	for lane := lo; lane < hi; lane++ {
		k.do(k, lane, heap)
	}
}

func topKOf[T number](least bool) func(k *topK, lane int, heap []int64) {
	return func(k *topK, lane int, heap []int64) {
		first := lane/k.inner*k.dim*k.inner + lane%k.inner
		l := topLane[T]{view[T](k.x)[first:], k.inner, least}
		for i := range heap {
			heap[i] = int64(i)
		}
		for i := len(heap)/2 - 1; i >= 0; i-- {
			l.sink(heap, i)
		}
		worst := l.at(heap[0])
		for i := len(heap); i < k.dim; i++ {
			// Of equal elements the first is before the others.
			v, w := l.x[i*l.step], worst
			if least {
				v, w = w, v
			}
			if v > w || (v != v) != (w != w) && v != v {
				heap[0] = int64(i)
				l.sink(heap, 0)
				worst = l.at(heap[0])
			}
		}
		for n := len(heap) - 1; n > 0; n-- {
			heap[0], heap[n] = heap[n], heap[0]
			l.sink(heap[:n], 0)
		}
		out := lane/k.inner*k.k*k.inner + lane%k.inner
		if k.values != nil {
			values := view[T](k.values)
			for i, at := range heap {
				values[out+i*k.inner] = l.at(at)
			}
		}
		if k.positions != nil {
			for i, at := range heap {
				k.positions[out+i*k.inner] = at
			}
		}
	}
}

// topLane is one lane of the operand.
type topLane[T number] struct {
	x     []T
	step  int
	least bool
}

func (l *topLane[T]) at(i int64) T { return l.x[int(i)*l.step] }

// before reports whether element a goes before element b in the result.
func (l *topLane[T]) before(a, b int64) bool {
	v, w := l.at(a), l.at(b)
	if l.least {
		v, w = w, v
	}
	switch {
	case v > w:
		return true
	case v < w:
		return false
	case (v != v) != (w != w): // a NaN is greater
		return v != v
	}
	return a < b
}

// sink restores the heap below element i.
func (l *topLane[T]) sink(heap []int64, i int) {
	for {
		child := 2*i + 1
		if child >= len(heap) {
			return
		}
		if child+1 < len(heap) && l.before(heap[child], heap[child+1]) {
			child++
		}
		if !l.before(heap[i], heap[child]) {
			return
		}
		heap[i], heap[child] = heap[child], heap[i]
		i = child
	}
}
