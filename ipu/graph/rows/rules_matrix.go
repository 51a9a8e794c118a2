package rows

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// ruleMatMul: rows of a, columns of b and what stands before them are apart.
func ruleMatMul(n *node) {
	as, bs := n.types[0].Shape, n.types[1].Shape
	if len(as) == 1 {
		as = []int64{1, as[0]}
	}
	if len(bs) == 1 {
		bs = []int64{bs[0], 1}
	}
	rank := max(len(as), len(bs))
	aTo, bTo := aligned(len(as), rank), aligned(len(bs), rank)
	aTo[len(aTo)-1], bTo[len(bTo)-2] = across, across
	shape, err := graph.Broadcast(as[:len(as)-2], bs[:len(bs)-2])
	if err != nil {
		return
	}
	view := append(slices.Clip(shape), as[len(as)-2], bs[len(bs)-1])
	links := []link{{0, as, aTo}, {1, bs, bTo}}
	for k := 2; k < len(n.types); k++ { // of IntegerMatMul: one for all, or one for each column
		switch {
		case !n.given(k):
		case n.types[k].Elements() == 1:
			links = append(links, link{k, []int64{1}, []int{across}})
		default:
			links = append(links, link{k, nil, []int{rank - 1}})
		}
	}
	n.flow(0, view, links...)
}

func ruleGemm(n *node) {
	o := n.Op.(*graph.Gemm)
	a, b := []int{0, across}, []int{across, 1}
	if o.TransA {
		a = []int{across, 0}
	}
	if o.TransB {
		b = []int{1, across}
	}
	links := []link{{0, nil, a}, {1, nil, b}}
	if n.given(2) {
		links = append(links, link{2, nil, aligned(n.types[2].Rank(), 2)})
	}
	n.flow(0, nil, links...)
}

// ruleRecurrent: entries of the batch are apart.
func ruleRecurrent(n *node) {
	first := false
	switch o := n.Op.(type) {
	case *graph.LSTM:
		first = o.BatchFirst
	case *graph.GRU:
		first = o.BatchFirst
	case *graph.RNN:
		first = o.BatchFirst
	}
	x, state := 1, 1 // the batch's axis in X and in states
	if first {
		x, state = 0, 0
	}
	for i := range n.out {
		batch := state
		if i == 0 && !first {
			batch = 2
		}
		axes := func(rank, axis int) []int {
			to := slices.Repeat([]int{across}, rank)
			if axis >= 0 {
				to[axis] = batch
			}
			return to
		}
		links := []link{{0, nil, axes(3, x)}}
		for k := 1; k < len(n.types); k++ {
			switch k {
			case 4: // sequence_lens
				links = append(links, link{k, nil, axes(1, 0)})
			case 5, 6: // states
				links = append(links, link{k, nil, axes(3, state)})
			default: // weights
				links = append(links, link{k, nil, axes(n.types[k].Rank(), across)})
			}
		}
		n.flow(i, nil, links...)
	}
}

// ruleAttention: entries of the batch are apart, and heads where they have an axis.
func ruleAttention(n *node) {
	o := n.Op.(*graph.Attention)
	operand := func(k int) link {
		to := slices.Repeat([]int{across}, n.types[k].Rank())
		to[0] = 0
		if len(to) == 4 && o.Heads == o.KVHeads {
			to[1] = 1
		}
		return link{k, nil, to}
	}
	for i := range n.out {
		links := []link{operand(0), operand(1), operand(2)}
		if i == 1 || n.types[0].Rank() == 3 {
			for j := range links { // heads are a part of an axis on one side
				if to := links[j].axes; len(to) == 4 && n.to[i].Rank() != 4 {
					to[1] = across
				}
			}
		}
		if n.given(3) {
			to := aligned(n.types[3].Rank(), 4)
			for j, axis := range to {
				if axis > 1 || axis == 1 && n.to[i].Rank() != 4 {
					to[j] = across
				}
			}
			links = append(links, link{3, nil, to})
		}
		links = append(links, link{4, nil, []int{0}})
		n.flow(i, nil, links...)
	}
}

func ruleLinearAttention(n *node) {
	for i := range n.out {
		var links []link
		for k, t := range n.types {
			if n.given(k) {
				links = append(links, link{k, nil, straight(t.Rank(), from(1, t.Rank())...)})
			}
		}
		n.flow(i, nil, links...)
	}
}
