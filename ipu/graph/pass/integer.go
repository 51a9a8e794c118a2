package pass

import (
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// useIntegers makes convolutions and products of what was converted from bytes
// convolutions and products of the bytes themselves, with the scales, the
// addend, the limits and the conversion of the result to bytes that follow.
// The sums are exact then and are rounded when they are scaled, once, and once
// more where something is added, so a result may differ by one step from that
// of the floats where it lies half way between two; ONNX Runtime does the same.
//
// Scales that depend on weights alone are multiplied by the pass "load".
func useIntegers(e *graph.Executable, c *passContext) {
	rewrite(e, c, func(r *rewriter, n *graph.Node) bool {
		if len(n.Outputs) == 0 || n.Outputs[0] == graph.None || r.Tensors[n.Outputs[0]].Type.Elements() == 0 {
			return false
		}
		switch op := n.Op.(type) {
		case *graph.Conv:
			return r.integerConv(n, op)
		case *graph.MatMul:
			return r.integerMatMul(n, false, graph.None)
		case *graph.Gemm:
			c := operandOf(n, 2)
			if op.TransA || op.Alpha != 1 || op.Bounded || c != graph.None && op.Beta != 1 {
				return false
			}
			return r.integerMatMul(n, op.TransB, c)
		case *graph.Binary:
			switch op.Fn {
			case graph.Add:
				return r.integerAddend(n, n.Inputs[0], n.Inputs[1]) || r.integerAddend(n, n.Inputs[1], n.Inputs[0])
			case graph.Mul:
				return r.integerScale(n, n.Inputs[0], n.Inputs[1]) || r.integerScale(n, n.Inputs[1], n.Inputs[0])
			}
		case *graph.Unary, *graph.Clip:
			return r.integerBounds(n)
		case *graph.Quantize:
			return r.integerResult(n, op)
		}
		return false
	})
}

// operandOf returns operand i of a node, None if it is left out.
func operandOf(n *graph.Node, i int) graph.TensorID {
	if i < len(n.Inputs) {
		return n.Inputs[i]
	}
	return graph.None
}

// fromBytes is what a tensor of floats was converted from: bytes, with a scale
// and a zero point, which may be left out, of one element each or one for each
// place on an axis.
type fromBytes struct {
	x, scale, zero graph.TensorID
	axis           int64 // -1 if there is one scale
}

func (r *rewriter) fromBytes(t graph.TensorID) (b fromBytes, ok bool) {
	n, op, ok := producer[*graph.Dequantize](r, t)
	if !ok || op.To != graph.F32 || op.Block != 0 {
		return b, false
	}
	b = fromBytes{n.Inputs[0], n.Inputs[1], operandOf(n, 2), -1}
	if d := r.Tensors[b.x].Type.DType; d != graph.I8 && d != graph.U8 || r.Tensors[b.scale].Type.DType != graph.F32 {
		return b, false
	}
	if s := r.Tensors[b.scale].Type; s.Elements() != 1 {
		b.axis = op.Axis
	}
	return b, true
}

// scales returns the product of the scales of two operands, the second of
// which may have one for each column.
func (r *rewriter) scales(x, w fromBytes) graph.TensorID {
	s := w.scale
	if w.axis < 0 {
		s = r.shaped(s)
	}
	return r.emit(&graph.Binary{Fn: graph.Mul}, r.shaped(x.scale), s)
}

const integerWhat = "products of floats made those of bytes"

func (r *rewriter) integerConv(n *graph.Node, op *graph.Conv) bool {
	x, ok := r.fromBytes(n.Inputs[0])
	w, ok2 := r.fromBytes(n.Inputs[1])
	if rank := r.Tensors[n.Inputs[0]].Type.Rank(); !ok || !ok2 || x.axis >= 0 || w.axis > 0 || rank > 4 || !r.settled(w.x) {
		return false
	}
	y := &graph.IntegerConv{Strides: op.Strides, Dilations: op.Dilations, PadsBegin: op.PadsBegin, PadsEnd: op.PadsEnd, Group: op.Group,
		To: graph.F32, Bounded: op.Bounded, Low: op.Low, High: op.High}
	return r.replace(integerWhat, y, x.x, w.x, x.zero, w.zero, graph.None, r.scales(x, w), operandOf(n, 2), graph.None)
}

func (r *rewriter) integerMatMul(n *graph.Node, transposed bool, addend graph.TensorID) bool {
	x, ok := r.fromBytes(n.Inputs[0])
	from := n.Inputs[1]
	if m, op, moved := producer[*graph.Transpose](r, from); moved && slices.Equal(op.Perm, []int64{1, 0}) {
		from, transposed = m.Inputs[0], !transposed
	}
	w, ok2 := r.fromBytes(from)
	if !ok || !ok2 || x.axis >= 0 {
		return false
	}
	t := r.Tensors[w.x].Type
	if last := int64(t.Rank() - 1); transposed && w.axis > 0 || !transposed && w.axis >= 0 && (w.axis != last || last == 0) {
		return false
	}
	if addend != graph.None {
		a := r.Tensors[addend].Type
		if columns := r.Tensors[n.Outputs[0]].Type.Shape[1]; a.Elements() == columns && a.Shape[a.Rank()-1] == columns {
			addend = r.shaped(addend, columns)
		} else if a.Elements() == 1 {
			addend = r.shaped(addend)
		} else {
			return false
		}
	}
	b := w.x
	if transposed {
		b = r.emit(&graph.Transpose{Perm: []int64{1, 0}}, b)
	}
	return r.replace(integerWhat, &graph.IntegerMatMul{To: graph.F32}, x.x, b, x.zero, w.zero, graph.None, r.scales(x, w), addend, graph.None)
}

// integers returns the product of bytes, or convolution, that writes t, which
// nobody else reads, with all its operands, and how many columns and which
// axis of columns the result has.
func (r *rewriter) integers(t graph.TensorID) (op graph.Op, in []graph.TensorID, columns int64, axis int, ok bool) {
	n := r.node(t)
	if n == nil || !r.once(t) {
		return nil, nil, 0, 0, false
	}
	shape := r.Tensors[t].Type.Shape
	switch o := n.Op.(type) {
	case *graph.IntegerMatMul:
		if axis = len(shape) - 1; r.Tensors[n.Inputs[1]].Type.Rank() < 2 || axis < 0 {
			return nil, nil, 0, 0, false
		}
		clone := *o
		op = &clone
	case *graph.IntegerConv:
		axis = 1
		clone := *o
		op = &clone
	default:
		return nil, nil, 0, 0, false
	}
	in = append(slices.Clone(n.Inputs), slices.Repeat([]graph.TensorID{graph.None}, 8)...)[:8]
	return op, in, shape[axis], axis, true
}

// integerEnd are the attributes that say what becomes of sums.
func integerEnd(op graph.Op) (to *graph.DType, bounded *bool, low, high *float64) {
	if o, ok := op.(*graph.IntegerMatMul); ok {
		return &o.To, &o.Bounded, &o.Low, &o.High
	}
	o := op.(*graph.IntegerConv)
	return &o.To, &o.Bounded, &o.Low, &o.High
}

// columnwise gives p, which broadcasts to a result of the given rank, the shape
// of one number or of one for each column; None if it is neither.
func (r *rewriter) columnwise(p graph.TensorID, rank int, columns int64, axis int) graph.TensorID {
	t := r.Tensors[p].Type
	if t.DType != graph.F32 || t.Rank() > rank {
		return graph.None
	}
	if t.Elements() == 1 {
		return r.shaped(p)
	}
	if at := axis - (rank - t.Rank()); t.Elements() != columns || at < 0 || t.Shape[at] != columns {
		return graph.None
	}
	return r.shaped(p, columns)
}

// integerScale makes the numbers that sums, as floats, are multiplied with
// their scale.
func (r *rewriter) integerScale(n *graph.Node, y, s graph.TensorID) bool {
	cast, _, ok := producer[*graph.Cast](r, y)
	if !ok || !r.once(y) || !r.keeps(y, n.Outputs[0]) || r.Tensors[y].Type.DType != graph.F32 {
		return false
	}
	op, in, columns, axis, ok := r.integers(cast.Inputs[0])
	if !ok {
		return false
	}
	to, _, _, _ := integerEnd(op)
	if *to != graph.I32 {
		return false
	}
	scale := r.columnwise(s, r.Tensors[y].Type.Rank(), columns, axis)
	if scale == graph.None {
		return false
	}
	*to, in[5] = graph.F32, scale
	return r.replace("scales of products of bytes", op, in...)
}

// integerAddend makes what is added to every row its shift.
func (r *rewriter) integerAddend(n *graph.Node, y, b graph.TensorID) bool {
	op, in, columns, axis, ok := r.integers(y)
	if !ok || !r.keeps(y, n.Outputs[0]) || in[6] != graph.None {
		return false
	}
	if to, bounded, _, _ := integerEnd(op); *to != graph.F32 || *bounded {
		return false
	}
	if in[6] = r.columnwise(b, r.Tensors[y].Type.Rank(), columns, axis); in[6] == graph.None {
		return false
	}
	return r.replace("addends of products of bytes", op, in...)
}

// integerBounds lets a product of bytes apply the limits that follow.
func (r *rewriter) integerBounds(n *graph.Node) bool {
	low, high, ok := r.limits(n)
	if !ok {
		return false
	}
	op, in, _, _, ok := r.integers(n.Inputs[0])
	if !ok {
		return false
	}
	to, bounded, l, h := integerEnd(op)
	if *to != graph.F32 || *bounded {
		return false
	}
	*bounded, *l, *h = true, low, high
	return r.replace("limits of products of bytes", op, in...)
}

// integerResult lets a product of bytes give bytes.
func (r *rewriter) integerResult(n *graph.Node, q *graph.Quantize) bool {
	scale, zero := n.Inputs[1], operandOf(n, 2)
	if q.Block != 0 || q.Precision != graph.F32 || q.To != graph.I8 && q.To != graph.U8 || r.Tensors[scale].Type.Elements() != 1 ||
		r.Tensors[scale].Type.DType != graph.F32 {
		return false
	}
	op, in, _, _, ok := r.integers(n.Inputs[0])
	if !ok {
		return false
	}
	to, bounded, low, high := integerEnd(op)
	if *to != graph.F32 {
		return false
	}
	if *bounded {
		// A scale that is known only when weights are loaded is taken for
		// positive, as scales are.
		s, known := r.number(scale)
		if known && !(s > 0) {
			return false
		}
		for _, v := range []*float64{low, high} {
			if *v == 0 || math.IsInf(*v, 0) {
				continue
			}
			if !known {
				return false
			}
			*v = float64(float32(*v) / float32(s))
		}
	}
	*to, in[7] = q.To, zero
	step := r.shaped(scale)
	in[5] = r.emit(&graph.Binary{Fn: graph.Div}, in[5], step)
	if in[6] != graph.None {
		in[6] = r.emit(&graph.Binary{Fn: graph.Div}, in[6], step)
	}
	return r.replace("results of products of bytes made bytes", op, in...)
}
