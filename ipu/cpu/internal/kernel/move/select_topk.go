package move

import (
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
	"github.com/popefgen/popefgen/ipu/graph"
)

// topK keeps, for each lane, a heap of the K best elements so far, whose root
// is the worst of them, and sorts it at the end. Long rows of float32 are sifted
// instead.
type topK struct {
	tensor.Lanes
	k    int
	do   func(k *topK, lane int, heap []int64)
	cost int
	sift *sieve // nil if lanes are not sifted
	// perPart is how many numbers of scratch a part has.
	perPart int

	// The run in progress.
	x, values []byte
	positions []int64
	heaps     []int64
	parts     int
	watch     tensor.Watch
}

func bindTopK(op graph.Op, in, _ []graph.TensorType) (tensor.Kernel, error) {
	o, t := op.(*graph.TopK), in[0]
	k := &topK{Lanes: tensor.LanesOf(t.Shape, o.Axis), k: int(o.K)}
	k.cost, k.perPart = 4*(k.Dim+8*k.k), k.k
	type f = func(k *topK, lane int, heap []int64)
	table := tensor.Typed[f]{
		I8: topKOf[int8](o.Least), U8: topKOf[uint8](o.Least), I16: topKOf[int16](o.Least), U16: topKOf[uint16](o.Least), I32: topKOf[int32](o.Least),
		U32: topKOf[uint32](o.Least), I64: topKOf[int64](o.Least), U64: topKOf[uint64](o.Least), F32: topKOf[float32](o.Least), F64: topKOf[float64](o.Least),
	}
	var ok bool
	if k.do, ok = table.Of(t.DType); !ok {
		return nil, tensor.NoKernel("top elements", t.DType)
	}
	if t.DType == graph.F32 && k.Inner == 1 {
		if k.sift = newSieve(k.Dim, k.k, o.Least); k.sift != nil {
			k.cost, k.perPart = k.Dim+16*k.k, k.sift.scratch()
		}
	}
	return k, nil
}

// Scratch implements Kernel.
func (k *topK) Scratch() int { return 8 * k.perPart * tensor.MostParts(k.Outer*k.Inner, k.cost) }

// Run implements Kernel.
func (k *topK) Run(p tensor.Pool, in, out [][]byte, scratch []byte) error {
	if k.k == 0 {
		return nil
	}
	// Either result may be left out.
	k.x, k.values, k.positions, k.heaps = in[0], out[0], nil, tensor.View[int64](scratch)
	if len(out) > 1 {
		k.positions = tensor.View[int64](out[1])
	}
	k.parts, k.watch = tensor.CutSlots(p, k.Outer*k.Inner, k.cost), tensor.NewWatch(p, k.cost)
	p.Run(k, k.parts)
	k.x, k.values, k.positions, k.heaps = nil, nil, nil, nil
	return nil
}

// Do implements Task.
func (k *topK) Do(part int) {
	lo, hi := tensor.Span(k.Outer*k.Inner, k.parts, part, 1)
	scratch := k.heaps[part*k.perPart : (part+1)*k.perPart]
	for lane := lo; lane < hi; {
		to := k.watch.Next(lane, hi)
		if to == lane {
			return
		}
		for ; lane < to; lane++ {
			if k.sift == nil || !k.sift.run(k, lane, scratch) {
				k.do(k, lane, scratch[:k.k])
			}
		}
	}
}

// sieve finds the K best elements of a row of float32 without looking at most of
// them one by one. The row is folded into columns, and what a column's best
// element is like decides whether the others of it can be among the K best.
type sieve struct {
	k             int
	rows, columns int
	most          int // elements that may be left to be sorted
	least         bool
	best          func(dst, a, b []float32)
}

// sieveRows is how many elements a column has at least for the sieve to pay, and
// at most.
const (
	sieveRowsLeast = 4
	sieveRowsMost  = 16
)

// newSieve returns a sieve for k of n elements, nil if it would not pay.
func newSieve(n, k int, least bool) *sieve {
	// With four columns for each element to be found, hardly any has two of them.
	rows := min(n/(4*max(k, 8)), sieveRowsMost)
	if k == 0 || rows < sieveRowsLeast || n > math.MaxInt32 {
		return nil
	}
	s := &sieve{k: k, rows: rows, columns: n / rows, most: 2*k + 64, least: least}
	fn := graph.Max
	if least {
		fn = graph.Min
	}
	if s.best = vec.VectorBinary[float32](fn); s.best == nil {
		s.best = vec.Arithmetic[float32](fn)
	}
	return s
}

// scratch is how many numbers of 64 bits run needs.
func (s *sieve) scratch() int { return s.most + 1 + (s.columns+1)/2 }

// run finds the best elements of a lane. It reports false, having done nothing,
// where there is a NaN or too many elements are equal.
func (s *sieve) run(k *topK, lane int, scratch []int64) bool {
	x := tensor.F32s(k.x)[lane*k.Dim:][:k.Dim]
	memory := tensor.RawBytes(scratch[s.most+1:])
	best, orders := tensor.F32s(memory)[:s.columns], tensor.View[uint32](memory)[:s.columns]
	s.best(best, x[:s.columns], x[s.columns:2*s.columns])
	for r := 2; r < s.rows; r++ {
		s.best(best, best, x[r*s.columns:][:s.columns])
	}
	// An order is as great as the element is good; it replaces the element.
	for c, v := range best {
		if v != v {
			return false
		}
		orders[c] = s.order(v)
	}
	limit := s.limit(orders)
	left, n := tensor.View[uint64](tensor.RawBytes(scratch[:s.most+1])), 0
	keep := func(i int) {
		order := s.order(x[i])
		// The first of equal elements is to come first.
		left[n] = uint64(order)<<32 | uint64(^uint32(i))
		n += int((uint64(limit) - uint64(order) - 1) >> 63)
	}
	for c, order := range orders {
		if order < limit {
			continue
		}
		if n+s.rows > s.most {
			return false
		}
		for r := range s.rows {
			keep(r*s.columns + c)
		}
	}
	for i := s.rows * s.columns; i < len(x); i++ {
		if x[i] != x[i] || n == s.most {
			return false
		}
		keep(i)
	}
	slices.Sort(left[:n])
	for i := range s.k {
		at := int(^uint32(left[n-1-i]))
		if k.values != nil {
			tensor.F32s(k.values)[lane*s.k+i] = x[at]
		}
		if k.positions != nil {
			k.positions[lane*s.k+i] = int64(at)
		}
	}
	return true
}

// order returns a number that is the greater the better v is, and the same for
// both zeros.
func (s *sieve) order(v float32) uint32 {
	b := math.Float32bits(v + 0)
	b ^= uint32(int32(b)>>31) | 1<<31
	if s.least {
		b = ^b
	}
	return b
}

// limit returns what at least K of the orders reach, and not many more if they
// differ.
func (s *sieve) limit(orders []uint32) uint32 {
	low, high := slices.Min(orders), slices.Max(orders)
	for low < high {
		middle := low + (high-low+1)/2
		n := 0
		for _, o := range orders {
			n += 1 - int((uint64(o)-uint64(middle))>>63)
		}
		switch {
		case n < s.k:
			high = middle - 1
		case n <= s.k+s.k/8:
			return middle
		default:
			low = middle
		}
	}
	return low
}

func topKOf[T tensor.Number](least bool) func(k *topK, lane int, heap []int64) {
	return func(k *topK, lane int, heap []int64) {
		first := lane/k.Inner*k.Dim*k.Inner + lane%k.Inner
		l := topLane[T]{tensor.View[T](k.x)[first:], k.Inner, least}
		for i := range heap {
			heap[i] = int64(i)
		}
		for i := len(heap)/2 - 1; i >= 0; i-- {
			l.sink(heap, i)
		}
		worst := l.at(heap[0])
		for i := len(heap); i < k.Dim; i++ {
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
		out := lane/k.Inner*k.k*k.Inner + lane%k.Inner
		if k.values != nil {
			values := tensor.View[T](k.values)
			for i, at := range heap {
				values[out+i*k.Inner] = l.at(at)
			}
		}
		if k.positions != nil {
			for i, at := range heap {
				k.positions[out+i*k.Inner] = at
			}
		}
	}
}

// topLane is one lane of the operand.
type topLane[T tensor.Number] struct {
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
