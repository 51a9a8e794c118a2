package kernel

import "github.com/popefgen/popefgen/ipu/graph"

// argMax finds extremes lane by lane, or, where lanes lie side by side, for a
// block of them at a time.
type argMax struct {
	lanes
	do func(k *argMax, outer, lo, hi int)

	// The run in progress.
	x     []byte
	out   []int64
	parts int
}

func bindArgMax(op graph.Op, in, _ []graph.TensorType) (Kernel, error) {
	o, t := op.(*graph.ArgMax), in[0]
	k := &argMax{lanes: lanesOf(t.Shape, o.Axis)}
	type f = func(k *argMax, outer, lo, hi int)
	table := typed[f]{
		argMaxOf[int8](o), argMaxOf[uint8](o), argMaxOf[int16](o), argMaxOf[uint16](o), argMaxOf[int32](o), argMaxOf[uint32](o),
		argMaxOf[int64](o), argMaxOf[uint64](o), argMaxOf[float32](o), argMaxOf[float64](o),
	}
	var ok bool
	if k.do, ok = table.of(t.DType); !ok {
		return nil, noKernel("position of the extreme", t.DType)
	}
	return k, nil
}

// Scratch implements Kernel.
func (k *argMax) Scratch() int { return 0 }

// Run implements Kernel.
func (k *argMax) Run(p Pool, in, out [][]byte, _ []byte) error {
	k.x, k.out = in[0], view[int64](out[0])
	k.parts = cut(p, k.outer*k.inner, 2*k.dim)
	p.Run(k, k.parts)
	k.x, k.out = nil, nil
	return nil
}

// Do implements Task.
func (k *argMax) Do(part int) {
	lo, hi := span(k.outer*k.inner, k.parts, part, 8)
	for lo < hi {
		o, i := lo/k.inner, lo%k.inner
		n := min(k.inner-i, hi-lo)
		k.do(k, o, i, i+n)
		lo += n
	}
}

// argMaxOf returns the search of the lanes from lo to hi of an outer block.
func argMaxOf[T number](o *graph.ArgMax) func(k *argMax, outer, lo, hi int) {
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
		x := view[T](k.x)[outer*k.dim*k.inner:]
		out := k.out[outer*k.inner:][lo:hi]
		if k.inner == 1 && !o.Min && !o.Last {
			out[0] = firstGreatest(x[:k.dim])
			return
		}
		if k.inner == 1 {
			best, at := x[0], 0
			for i, v := range x[1:k.dim] {
				if beats(v, best) {
					best, at = v, i+1
				}
			}
			out[0] = int64(at)
			return
		}
		if !o.Min && !o.Last && greatestBeside(out, x[lo:], k.dim, k.inner) {
			return
		}
		clear(out)
		for d := 1; d < k.dim; d++ {
			row := x[d*k.inner:][lo:hi]
			if !o.Min && !o.Last {
				for i, v := range row {
					if best := x[int(out[i])*k.inner+lo+i]; v > best || v != v && best == best {
						out[i] = int64(d)
					}
				}
				continue
			}
			for i, v := range row {
				if beats(v, x[int(out[i])*k.inner+lo+i]) {
					out[i] = int64(d)
				}
			}
		}
	}
}

// firstGreatest is the most common search, without a call for each element.
func firstGreatest[T number](x []T) int64 {
	if at, ok := vectorGreatest(x); ok {
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
	lanes
	exclusive, reverse bool
	do                 func(k *cumulate, outer, lo, hi int)

	// The run in progress.
	x, out []byte
	parts  int
}

func bindCumulate(op graph.Op, in, _ []graph.TensorType) (Kernel, error) {
	o, t := op.(*graph.Cumulate), in[0]
	k := &cumulate{lanes: lanesOf(t.Shape, o.Axis), exclusive: o.Exclusive, reverse: o.Reverse}
	type f = func(k *cumulate, outer, lo, hi int)
	table := typed[f]{
		cumulateOf[int8](o.Fn), cumulateOf[uint8](o.Fn), cumulateOf[int16](o.Fn), cumulateOf[uint16](o.Fn), cumulateOf[int32](o.Fn),
		cumulateOf[uint32](o.Fn), cumulateOf[int64](o.Fn), cumulateOf[uint64](o.Fn), cumulateOf[float32](o.Fn), cumulateOf[float64](o.Fn),
	}
	var ok bool
	if k.do, ok = table.of(t.DType); !ok {
		return nil, noKernel("cumulate "+string(o.Fn), t.DType)
	}
	return k, nil
}

// Scratch implements Kernel.
func (k *cumulate) Scratch() int { return 0 }

// Run implements Kernel.
func (k *cumulate) Run(p Pool, in, out [][]byte, _ []byte) error {
	k.x, k.out = in[0], out[0]
	if k.dim > 0 {
		k.parts = cut(p, k.outer*k.inner, k.dim)
		p.Run(k, k.parts)
	}
	k.x, k.out = nil, nil
	return nil
}

// Do implements Task.
func (k *cumulate) Do(part int) {
	lo, hi := span(k.outer*k.inner, k.parts, part, 16)
	for lo < hi {
		o, i := lo/k.inner, lo%k.inner
		n := min(k.inner-i, hi-lo)
		k.do(k, o, i, i+n)
		lo += n
	}
}

func cumulateOf[T number](fn graph.CumulateFn) func(k *cumulate, outer, lo, hi int) {
	f, first, lane := add[T], T(0), sumLane[T]
	rows := graph.Add
	if fn == graph.CumulateProd {
		f, first, lane, rows = multiply[T], T(1), productLane[T], graph.Mul
	}
	if fast := vectorBinary[T](rows); fast != nil {
		f = fast
	}
	return func(k *cumulate, outer, lo, hi int) {
		block := k.dim * k.inner
		x, out := view[T](k.x)[outer*block:][:block], view[T](k.out)[outer*block:][:block]
		at, step := 0, k.inner
		if k.reverse {
			at, step = block-k.inner, -k.inner
		}
		if hi-lo == 1 {
			at += lo
			if k.exclusive {
				out[at] = first
				lane(out, at+step, step, first, x, at, k.dim-1)
			} else {
				out[at] = x[at]
				lane(out, at+step, step, x[at], x, at+step, k.dim-1)
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
		for range k.dim - 1 {
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
func sumLane[T number](out []T, to, step int, acc T, x []T, from, n int) {
	for range n {
		acc += x[from]
		out[to] = acc
		to, from = to+step, from+step
	}
}

// productLane is sumLane for products.
func productLane[T number](out []T, to, step int, acc T, x []T, from, n int) {
	for range n {
		acc *= x[from]
		out[to] = acc
		to, from = to+step, from+step
	}
}
