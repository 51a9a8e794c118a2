package move

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
	"github.com/popefgen/popefgen/ipu/graph"
)

// argMax finds extremes lane by lane, or, where lanes lie side by side, for a
// block of them at a time.
type argMax struct {
	tensor.Lanes
	do func(k *argMax, outer, lo, hi int)

	// The run in progress.
	x     []byte
	out   []int64
	parts int
}

func bindArgMax(op graph.Op, in, _ []graph.TensorType) (tensor.Kernel, error) {
	o, t := op.(*graph.ArgMax), in[0]
	k := &argMax{Lanes: tensor.LanesOf(t.Shape, o.Axis)}
	type f = func(k *argMax, outer, lo, hi int)
	table := tensor.Typed[f]{
		I8: argMaxOf[int8](o), U8: argMaxOf[uint8](o), I16: argMaxOf[int16](o), U16: argMaxOf[uint16](o), I32: argMaxOf[int32](o), U32: argMaxOf[uint32](o),
		I64: argMaxOf[int64](o), U64: argMaxOf[uint64](o), F32: argMaxOf[float32](o), F64: argMaxOf[float64](o),
	}
	var ok bool
	if k.do, ok = table.Of(t.DType); !ok {
		return nil, tensor.NoKernel("position of the extreme", t.DType)
	}
	return k, nil
}

// Scratch implements Kernel.
func (k *argMax) Scratch() int { return 0 }

// Run implements Kernel.
func (k *argMax) Run(p tensor.Pool, in, out [][]byte, _ []byte) error {
	k.x, k.out = in[0], tensor.View[int64](out[0])
	k.parts = tensor.Cut(p, k.Outer*k.Inner, 2*k.Dim)
	p.Run(k, k.parts)
	k.x, k.out = nil, nil
	return nil
}

// Do implements Task.
func (k *argMax) Do(part int) {
	lo, hi := tensor.Span(k.Outer*k.Inner, k.parts, part, 8)
	for lo < hi {
		o, i := lo/k.Inner, lo%k.Inner
		n := min(k.Inner-i, hi-lo)
		k.do(k, o, i, i+n)
		lo += n
	}
}

// argMaxOf returns the search of the lanes from lo to hi of an outer block.
func argMaxOf[T tensor.Number](o *graph.ArgMax) func(k *argMax, outer, lo, hi int) {
	// beats reports whether v, which comes later, takes the place of best.
	var beats func(v, best T) bool
	switch {
	case o.Min && o.Last:
		beats = func(v, best T) bool { return v <= best || v != v }
	case o.Min:
		beats = func(v, best T) bool { return v < best || v != v && best == best }
	case o.Last:
		beats = func(v, best T) bool { return v >= best || v != v }
	default:
		beats = func(v, best T) bool { return v > best || v != v && best == best }
	}
	return func(k *argMax, outer, lo, hi int) {
		x := tensor.View[T](k.x)[outer*k.Dim*k.Inner:]
		out := k.out[outer*k.Inner:][lo:hi]
		if k.Inner == 1 && !o.Min && !o.Last {
			out[0] = firstGreatest(x[:k.Dim])
			return
		}
		if k.Inner == 1 {
			best, at := x[0], 0
			for i, v := range x[1:k.Dim] {
				if beats(v, best) {
					best, at = v, i+1
				}
			}
			out[0] = int64(at)
			return
		}
		if !o.Min && !o.Last && vec.GreatestBeside(out, x[lo:], k.Dim, k.Inner) {
			return
		}
		clear(out)
		for d := 1; d < k.Dim; d++ {
			row := x[d*k.Inner:][lo:hi]
			if !o.Min && !o.Last {
				for i, v := range row {
					if best := x[int(out[i])*k.Inner+lo+i]; v > best || v != v && best == best {
						out[i] = int64(d)
					}
				}
				continue
			}
			for i, v := range row {
				if beats(v, x[int(out[i])*k.Inner+lo+i]) {
					out[i] = int64(d)
				}
			}
		}
	}
}

// firstGreatest is the most common search, without a call for each element.
func firstGreatest[T tensor.Number](x []T) int64 {
	if at, ok := vec.VectorGreatest(x); ok {
		return int64(at)
	}
	best, at := x[0], 0
	if best != best {
		return 0
	}
	for i, v := range x {
		if v > best {
			best, at = v, i
		} else if v != v {
			return int64(i)
		}
	}
	return int64(at)
}

// cumulate is the kernel of Cumulate.
type cumulate struct {
	tensor.Lanes
	exclusive, reverse bool
	do                 func(k *cumulate, outer, lo, hi int)

	// The run in progress.
	x, out []byte
	parts  int
}

func bindCumulate(op graph.Op, in, _ []graph.TensorType) (tensor.Kernel, error) {
	o, t := op.(*graph.Cumulate), in[0]
	k := &cumulate{Lanes: tensor.LanesOf(t.Shape, o.Axis), exclusive: o.Exclusive, reverse: o.Reverse}
	type f = func(k *cumulate, outer, lo, hi int)
	table := tensor.Typed[f]{
		I8: cumulateOf[int8](o.Fn), U8: cumulateOf[uint8](o.Fn), I16: cumulateOf[int16](o.Fn), U16: cumulateOf[uint16](o.Fn), I32: cumulateOf[int32](o.Fn),
		U32: cumulateOf[uint32](o.Fn), I64: cumulateOf[int64](o.Fn), U64: cumulateOf[uint64](o.Fn), F32: cumulateOf[float32](o.Fn), F64: cumulateOf[float64](o.Fn),
	}
	var ok bool
	if k.do, ok = table.Of(t.DType); !ok {
		return nil, tensor.NoKernel("cumulate "+string(o.Fn), t.DType)
	}
	return k, nil
}

// Scratch implements Kernel.
func (k *cumulate) Scratch() int { return 0 }

// Run implements Kernel.
func (k *cumulate) Run(p tensor.Pool, in, out [][]byte, _ []byte) error {
	k.x, k.out = in[0], out[0]
	if k.Dim > 0 {
		k.parts = tensor.Cut(p, k.Outer*k.Inner, k.Dim)
		p.Run(k, k.parts)
	}
	k.x, k.out = nil, nil
	return nil
}

// Do implements Task.
func (k *cumulate) Do(part int) {
	lo, hi := tensor.Span(k.Outer*k.Inner, k.parts, part, 16)
	for lo < hi {
		o, i := lo/k.Inner, lo%k.Inner
		n := min(k.Inner-i, hi-lo)
		k.do(k, o, i, i+n)
		lo += n
	}
}

func cumulateOf[T tensor.Number](fn graph.CumulateFn) func(k *cumulate, outer, lo, hi int) {
	f, first, lane := vec.Add[T], T(0), sumLane[T]
	rows := graph.Add
	if fn == graph.CumulateProd {
		f, first, lane, rows = vec.Multiply[T], T(1), productLane[T], graph.Mul
	}
	if fast := vec.VectorBinary[T](rows); fast != nil {
		f = fast
	}
	return func(k *cumulate, outer, lo, hi int) {
		block := k.Dim * k.Inner
		x, out := tensor.View[T](k.x)[outer*block:][:block], tensor.View[T](k.out)[outer*block:][:block]
		at, step := 0, k.Inner
		if k.reverse {
			at, step = block-k.Inner, -k.Inner
		}
		if hi-lo == 1 {
			at += lo
			if k.exclusive {
				out[at] = first
				lane(out, at+step, step, first, x, at, k.Dim-1)
			} else {
				out[at] = x[at]
				lane(out, at+step, step, x[at], x, at+step, k.Dim-1)
			}
			return
		}
		// Row d of the result is row d-1 of it folded with row d of x, or with
		// row d-1 if x's own row does not count.
		row := out[at:][lo:hi]
		if k.exclusive {
			for i := range row {
				row[i] = first
			}
		} else {
			copy(row, x[at:][lo:hi])
		}
		for range k.Dim - 1 {
			next := at + step
			source := next
			if k.exclusive {
				source = at
			}
			f(out[next:][lo:hi], row, x[source:][lo:hi])
			row, at = out[next:][lo:hi], next
		}
	}
}

// sumLane sets n elements of out, from to on, to the sum of acc and as many
// elements of x, from from on, as come up to each.
func sumLane[T tensor.Number](out []T, to, step int, acc T, x []T, from, n int) {
	for range n {
		acc += x[from]
		out[to] = acc
		to, from = to+step, from+step
	}
}

// productLane is sumLane for products.
func productLane[T tensor.Number](out []T, to, step int, acc T, x []T, from, n int) {
	for range n {
		acc *= x[from]
		out[to] = acc
		to, from = to+step, from+step
	}
}
