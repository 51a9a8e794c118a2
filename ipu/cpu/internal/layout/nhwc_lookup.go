package layout

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/cpu/internal/eval"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/nhwc"
	"github.com/popefgen/popefgen/ipu/graph"
)

// looked makes node i, which makes bytes of a function of what were bytes, a
// table in which bytes are looked up.
func (p *nhwcRegion) looked(i int, op *graph.Quantize) bool {
	q := &p.nodes[i]
	if !nhwc.HasLookup() || !p.result(i, op) {
		return false
	}
	var nodes []*graph.Node
	t := q.Inputs[0]
	d := p.converted(t)
	for ; d == nil; d = p.converted(t) {
		def, ok := p.def[t]
		if !ok || !p.steady(t) {
			return false
		}
		n := &p.nodes[def]
		x := p.only(n)
		if x == graph.None || !slices.Equal(p.typ(x).Shape, p.typ(t).Shape) {
			return false
		}
		nodes, t = append(nodes, n), x
	}
	x := d.Inputs[0]
	if !p.have(x) || !slices.Equal(p.typ(x).Shape, p.typ(q.Outputs[0]).Shape) {
		return false
	}
	slices.Reverse(nodes)
	table := p.table(d, nodes, q)
	return table != graph.None && p.makes(q.Outputs[0], &nhwc.Lookup{}, i, p.asNHWC(x, i), table)
}

// only returns the one operand of an elementwise operator on floats whose
// others, if there are any, are constants of one element.
func (p *nhwcRegion) only(n *graph.Node) (x graph.TensorID) {
	switch n.Op.(type) {
	case *graph.Unary, *graph.Clip, *graph.Binary, *graph.Pointwise:
	default:
		return graph.None
	}
	x = graph.None
	for _, t := range n.Inputs {
		switch {
		case t == graph.None, t == x:
		case p.given.Tensors[t].Const && p.typ(t).Elements() == 1:
		case x != graph.None:
			return graph.None
		default:
			x = t
		}
	}
	if x == graph.None || p.typ(x).DType != graph.F32 || len(n.Outputs) != 1 {
		return graph.None
	}
	return x
}

// table returns a constant of what becomes of every byte of a tensor in NHWC that one node
// converts to floats, of which others compute a function and of which the last
// makes bytes, or None.
func (p *nhwcRegion) table(d *graph.Node, nodes []*graph.Node, q *graph.Node) graph.TensorID {
	const all = 256
	flip := func(t graph.TensorID) byte {
		if p.signed(t) {
			return 0x80
		}
		return 0
	}
	x := graph.TensorType{DType: p.typ(d.Inputs[0]).DType, Shape: []int64{all}}
	data := make([]byte, all)
	for i := range data {
		data[i] = byte(i) ^ flip(d.Inputs[0])
	}
	from := d.Inputs[0]
	for _, n := range slices.Concat([]*graph.Node{d}, nodes, []*graph.Node{q}) {
		types, in := make([]graph.TensorType, len(n.Inputs)), make([][]byte, len(n.Inputs))
		for i, t := range n.Inputs {
			switch {
			case t == graph.None:
			case t == from, n == q && i == 0:
				types[i], in[i] = x, data
			default:
				types[i], in[i] = graph.TensorType{DType: p.typ(t).DType}, p.given.Tensors[t].Data
			}
		}
		op := n.Op
		switch o := op.(type) {
		case *graph.Dequantize:
			op = &graph.Dequantize{To: o.To}
		case *graph.Quantize:
			op = &graph.Quantize{To: o.To, Precision: o.Precision}
		}
		out, results, err := eval.Op(op, types, in)
		if err != nil || len(out) != 1 || out[0].Elements() != all {
			return graph.None
		}
		x, data, from = out[0], results[0], n.Outputs[0]
	}
	table := slices.Clone(data)
	for i := range table {
		table[i] ^= flip(q.Outputs[0])
	}
	t := p.tensor(q.Outputs[0], graph.TensorType{DType: graph.U8, Shape: []int64{all}})
	e := p.entry(t)
	e.Const, e.Data = true, table
	return t
}
