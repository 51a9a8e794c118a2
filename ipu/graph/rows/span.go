package rows

import (
	"encoding/binary"
	"math"

	"github.com/popefgen/popefgen/ipu/graph"
)

// mostSpan is the number of elements up to which a constant's span is looked for.
const mostSpan = 1 << 16

// spanOf returns the span of a constant's elements, if they are indices or flags.
func spanOf(t *graph.Tensor) span {
	n, size := t.Type.Elements(), t.Type.DType.Size()
	if n < 1 || n > mostSpan {
		return anything
	}
	s := span{math.Inf(1), math.Inf(-1)}
	for i := range int(n) {
		b := t.Data[i*size:][:size]
		var v float64
		switch t.Type.DType {
		case graph.Bool, graph.U8:
			v = float64(b[0])
		case graph.I8:
			v = float64(int8(b[0]))
		case graph.I32:
			v = float64(int32(binary.LittleEndian.Uint32(b)))
		case graph.I64:
			v = float64(int64(binary.LittleEndian.Uint64(b)))
		case graph.F32:
			v = float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
		default:
			return anything
		}
		if math.IsNaN(v) || math.Abs(v) > 1<<53 {
			return anything
		}
		s = s.with(span{v, v})
	}
	return s
}

// exact is the greatest number up to which the sums and products of spans are sure to be
// those of the elements, whatever their type is: nothing wraps and nothing is rounded, but
// for types of less than 32 bits, which are left alone.
const exact = 1 << 24

// wide reports whether numbers up to exact are elements of a type.
func wide(t graph.DType) bool {
	switch t {
	case graph.I32, graph.U32, graph.I64, graph.U64, graph.F32, graph.F64:
		return true
	}
	return false
}

// span returns the span of a result's elements in rows that are zeros in the inputs, for
// the operators that indices come from.
func (n *node) span(result int) span {
	in := func(k int) span {
		if !n.given(k) || n.in[k].kind == mixed {
			return anything
		}
		return n.in[k].zeros
	}
	switch o := n.Op.(type) {
	case *graph.Reshape, *graph.Transpose, *graph.Expand, *graph.Slice:
		return in(0)
	case *graph.Gather, *graph.GatherElements, *graph.GatherND:
		return in(0)
	case *graph.Concat:
		s := in(0)
		for k := range n.in {
			s = s.with(in(k))
		}
		return s
	case *graph.Where:
		return in(1).with(in(2))
	case *graph.ScatterElements:
		if o.Fn == graph.ScatterNone {
			return in(0).with(in(2))
		}
	case *graph.ScatterND:
		if o.Fn == graph.ScatterNone {
			return in(0).with(in(2))
		}
	case *graph.ArgMax:
		return span{0, float64(n.types[0].Shape[o.Axis] - 1)}
	case *graph.TopK:
		if result == 1 {
			return span{0, float64(n.types[0].Shape[o.Axis] - 1)}
		}
		return in(0)
	case *graph.Cast:
		s := in(0)
		switch {
		case o.To == graph.Bool || n.types[0].DType == graph.Bool:
			if wide(o.To) || o.To == graph.Bool {
				return span{0, 1}
			}
		case wide(o.To) && s.in(0, exact), (o.To == graph.I32 || o.To == graph.I64 || o.To == graph.F32) && s.in(-exact, exact):
			return span{math.Trunc(s.lo), math.Ceil(s.hi)}
		}
	case *graph.Clip:
		s := in(0)
		if n.given(1) {
			low := in(1)
			s = span{max(s.lo, low.lo), max(s.hi, low.hi)}
		}
		if n.given(2) {
			high := in(2)
			s = span{min(s.lo, high.lo), min(s.hi, high.hi)}
		}
		if n.types[0].DType.IsFloat() && !in(0).in(-exact, exact) {
			return anything // NaN stays NaN
		}
		return s
	case *graph.Binary:
		return n.spanOfPair(o.Fn, in(0), in(1))
	case *graph.Reduce:
		if (o.Fn == graph.ReduceMax || o.Fn == graph.ReduceMin) && n.types[0].Elements() > 0 {
			return in(0)
		}
	}
	if n.to[result].DType == graph.Bool {
		return span{0, 1}
	}
	return anything
}

func (n *node) spanOfPair(fn graph.BinaryFn, a, b span) span {
	t := n.types[0].DType
	if fn.Compares() || t == graph.Bool {
		return span{0, 1}
	}
	if !a.in(-exact, exact) || !b.in(-exact, exact) || !wide(t) {
		return anything
	}
	var s span
	switch fn {
	case graph.Add:
		s = span{a.lo + b.lo, a.hi + b.hi}
	case graph.Sub:
		s = span{a.lo - b.hi, a.hi - b.lo}
	case graph.Mul:
		p := []float64{a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi}
		s = span{min(p[0], p[1], p[2], p[3]), max(p[0], p[1], p[2], p[3])}
	case graph.Max:
		s = span{max(a.lo, b.lo), max(a.hi, b.hi)}
	case graph.Min:
		s = span{min(a.lo, b.lo), min(a.hi, b.hi)}
	default:
		return anything
	}
	if !s.in(-exact, exact) || t.IsUnsigned() && s.lo < 0 {
		return anything
	}
	return s
}

// refuse tells of what may end the run for all rows because of a row of zeros.
func (n *node) refuse() {
	switch o := n.Op.(type) {
	case *graph.Gather:
		n.wants(1, -n.types[0].Shape[o.Axis], n.types[0].Shape[o.Axis]-1)
	case *graph.GatherElements:
		n.wants(1, -n.types[0].Shape[o.Axis], n.types[0].Shape[o.Axis]-1)
	case *graph.ScatterElements:
		n.wants(1, -n.types[0].Shape[o.Axis], n.types[0].Shape[o.Axis]-1)
	case *graph.GatherND:
		n.wantsCoordinates(n.types[0].Shape[o.BatchDims:])
	case *graph.ScatterND:
		n.wantsCoordinates(n.types[0].Shape)
	case *graph.MaxUnpool:
		if !n.unpools() {
			n.wants(1, 0, n.to[0].Elements()-1)
		}
	case *graph.RoiAlign:
		n.wants(2, 0, n.types[0].Shape[0]-1)
		n.wants(1, -1<<40, 1<<40)
	case *graph.MaxRoiPool:
		n.wants(1, 0, n.types[0].Shape[0]-1)
	case *graph.LSTM, *graph.GRU, *graph.RNN:
		n.wants(4, 0, n.steps())
	case *graph.Attention:
		k := n.types[1].Shape
		n.wants(4, 0, k[len(k)-2])
	}
}

// steps returns the time steps of a recurrent operator.
func (n *node) steps() int64 {
	first := false
	switch o := n.Op.(type) {
	case *graph.LSTM:
		first = o.BatchFirst
	case *graph.GRU:
		first = o.BatchFirst
	case *graph.RNN:
		first = o.BatchFirst
	}
	if first {
		return n.types[0].Shape[1]
	}
	return n.types[0].Shape[0]
}

func (n *node) wantsCoordinates(shape []int64) {
	idx := n.types[1]
	k := idx.Shape[idx.Rank()-1]
	if k == 0 {
		return
	}
	least := shape[0]
	for _, d := range shape[:k] {
		least = min(least, d)
	}
	n.wants(1, -least, least-1)
}

// wants tells of an operand that follows from rows and may be other than lo to hi in
// rows of zeros, which ends the run for all rows.
func (n *node) wants(operand int, lo, hi int64) {
	if n.a.n == 1 || !n.given(operand) || n.types[operand].Elements() == 0 {
		return
	}
	v := &n.in[operand]
	switch {
	case v.kind == alike && n.a.decided == nil, v.kind == apart && v.zeros.in(lo, hi):
	default:
		n.a.tell(n.fault(Refuses, "operand %d, %v, follows from rows, and a row of zeros may make it other than %d to %d, which ends the run for all rows", operand, n.types[operand], lo, hi))
	}
}
