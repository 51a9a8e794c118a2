package autodiff

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

var matrixRules = map[string]rule{
	"Gemm":   {back: backGemm},
	"MatMul": {back: backMatMul},
	"Det":    {back: backDet},
}

// gemm is α·A'·B', with transposed operands where transA and transB say so.
func (b *emitter) gemm(x, y graph.TensorID, transA, transB bool, alpha float64) graph.TensorID {
	return b.op(&graph.Gemm{TransA: transA, TransB: transB, Alpha: alpha, Beta: 1}, x, y)
}

func backGemm(p *pull, n *graph.Node) {
	o := n.Op.(*graph.Gemm)
	if o.Bounded {
		refuse(byPass)
	}
	a, b, dy := n.Inputs[0], n.Inputs[1], p.dy(n, 0)
	p.give(n, 0, func() graph.TensorID {
		if o.TransA {
			return p.gemm(b, dy, o.TransB, true, o.Alpha)
		}
		return p.gemm(dy, b, false, !o.TransB, o.Alpha)
	})
	p.give(n, 1, func() graph.TensorID {
		if o.TransB {
			return p.gemm(dy, a, true, o.TransA, o.Alpha)
		}
		return p.gemm(a, dy, !o.TransA, false, o.Alpha)
	})
	p.give(n, 2, func() graph.TensorID { return p.scale(p.sumTo(dy, p.shape(n.Inputs[2])), o.Beta) })
}

func backMatMul(p *pull, n *graph.Node) {
	a, b := n.Inputs[0], n.Inputs[1]
	as, bs := p.shape(a), p.shape(b)
	// An operand of one axis is a row, or a column.
	rows, columns := as, bs
	if len(as) == 1 {
		rows = []int64{1, as[0]}
	}
	if len(bs) == 1 {
		columns = []int64{bs[0], 1}
	}
	m, k, c := rows[len(rows)-2], rows[len(rows)-1], columns[len(columns)-1]
	lead, err := graph.Broadcast(rows[:len(rows)-2], columns[:len(columns)-2])
	if err != nil {
		refuse("%w", err)
	}
	dy := p.reshape(p.dy(n, 0), append(slices.Clip(lead), m, c)...)
	x, y := p.reshape(a, rows...), p.reshape(b, columns...)
	if len(columns) == 2 { // one matrix for all: products of all rows at once
		all := product(rows[:len(rows)-1])
		flat := p.reshape(dy, all, c)
		p.give(n, 0, func() graph.TensorID { return p.reshape(p.gemm(flat, y, false, true, 1), as...) })
		p.give(n, 1, func() graph.TensorID { return p.reshape(p.gemm(p.reshape(x, all, k), flat, true, false, 1), bs...) })
		return
	}
	p.give(n, 0, func() graph.TensorID {
		return p.reshape(p.sumTo(p.matmul(dy, p.flip(y)), rows), as...)
	})
	p.give(n, 1, func() graph.TensorID {
		return p.reshape(p.sumTo(p.matmul(p.flip(x), dy), columns), bs...)
	})
}

func (b *emitter) matmul(x, y graph.TensorID) graph.TensorID { return b.op(&graph.MatMul{}, x, y) }

// flip transposes the matrices in the last two axes.
func (b *emitter) flip(x graph.TensorID) graph.TensorID {
	perm := axesFrom(0, len(b.shape(x)))
	last := len(perm) - 1
	perm[last], perm[last-1] = perm[last-1], perm[last]
	return b.transpose(x, perm...)
}

// maxDet bounds the matrices of whose determinants there are gradients: n×n matrices take n² minors.
const maxDet = 32

// backDet: the gradient of a determinant is the matrix of cofactors, the determinants of what is left without a row and a column. No
// division, so that singular matrices have it too.
func backDet(p *pull, n *graph.Node) {
	x := n.Inputs[0]
	p.give(n, 0, func() graph.TensorID {
		shape := p.shape(x)
		lead := shape[:len(shape)-2]
		size := shape[len(shape)-1]
		dy := p.reshape(p.dy(n, 0), slices.Concat(lead, []int64{1, 1})...)
		switch {
		case size < 2:
			return p.expand(dy, shape)
		case size > maxDet:
			refuse("its gradient takes the determinants of %d×%d minors of a %d×%d matrix: it is computed up to %d×%d", size, size, size, size, maxDet, maxDet)
		}
		var others, signs []float64
		for i := range size {
			for j := range size {
				if i != j {
					others = append(others, float64(j))
				}
				signs = append(signs, float64(1-2*((i+j)%2)))
			}
		}
		batch := product(lead)
		left := p.constant("others", graph.TensorType{DType: graph.I64, Shape: []int64{size, size - 1}}, others...)
		flat := p.reshape(p.wide(x), batch, size, size)
		minors := p.op(&graph.Gather{Axis: 3}, p.op(&graph.Gather{Axis: 1}, flat, left), left) // [batch, row, size-1, column, size-1]
		dets := p.op(&graph.Det{}, p.transpose(minors, 0, 1, 3, 2, 4))
		signed := p.mul(dets, p.constant("signs", graph.TensorType{DType: p.dtype(dets), Shape: []int64{size, size}}, signs...))
		return p.mul(p.cast(p.reshape(signed, shape...), p.dtype(x)), dy)
	})
}
