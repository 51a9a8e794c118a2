package pass

import (
	"math"

	"github.com/popefgen/popefgen/ipu/graph"
)

// dropRequantisation removes quantisations, with the conversions back that
// follow, of what has just these values already: it was converted from
// integers by the same scale and zero point, and only moved or compared since.
// Quantising it would give the very integers back: a difference of at most 16
// bits survives being multiplied with and divided by a scale in float32.
func dropRequantisation(e *graph.Executable, c *passContext) {
	rewrite(e, c, func(r *rewriter, n *graph.Node) bool {
		back, ok := n.Op.(*graph.Dequantize)
		if !ok || len(n.Outputs) == 0 || n.Outputs[0] == graph.None || back.To != graph.F32 {
			return false
		}
		q, op, ok := producer[*graph.Quantize](r, n.Inputs[0])
		if !ok || op.Precision != graph.F32 || !r.oneStep(q, n) {
			return false
		}
		x := q.Inputs[0]
		if t := r.Tensors[x].Type; t.DType != graph.F32 {
			return false
		}
		from := r.movedFrom(x)
		if d, op, ok := producer[*graph.Dequantize](r, from); !ok || op.To != graph.F32 || !r.oneStep(d, n) ||
			r.Tensors[d.Inputs[0]].Type.DType != r.Tensors[n.Inputs[0]].Type.DType {
			return false
		}
		return r.replace("quantisations of what has these values already", &graph.Reshape{Shape: r.Tensors[n.Outputs[0]].Type.Shape}, x)
	})
}

// oneStep reports whether two nodes, each of them a Quantize or a Dequantize,
// use the same scale and zero point: one of either, known, and such that
// nothing overflows. What tiny scales make of integers is exact, or rounded once.
func (r *rewriter) oneStep(a, b *graph.Node) bool {
	const most = 1e30
	s, ok := r.number(a.Inputs[1])
	if t, same := r.number(b.Inputs[1]); !ok || !same || s != t || math.Abs(s) > most || r.Tensors[a.Inputs[1]].Type.Elements() != 1 {
		return false
	}
	zero := func(n *graph.Node) graph.TensorID {
		if len(n.Inputs) < 3 {
			return graph.None
		}
		return n.Inputs[2]
	}
	x, y := zero(a), zero(b)
	if x == y {
		return true
	}
	return x != graph.None && y != graph.None && r.Tensors[x].Const && r.Tensors[y].Const && r.keeps(x, y) &&
		string(r.Tensors[x].Data) == string(r.Tensors[y].Data)
}

// movedFrom returns the tensor whose elements, or some of them, t holds: it
// looks through operators that move elements or take the greatest of them.
func (r *rewriter) movedFrom(t graph.TensorID) graph.TensorID {
	for {
		n := r.node(t)
		if n == nil || len(n.Outputs) == 0 || n.Outputs[0] != t {
			return t
		}
		switch op := n.Op.(type) {
		case *graph.Reshape, *graph.Transpose, *graph.Slice, *graph.Expand:
		case *graph.MaxPool:
			for i := range op.PadsBegin {
				if op.PadsBegin[i] != 0 || op.PadsEnd[i] != 0 {
					return t
				}
			}
		default:
			return t
		}
		t = n.Inputs[0]
	}
}
