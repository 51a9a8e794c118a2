package rows

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// rule finds out about the results of a node. A rule is right only if an element of a
// result needs no other elements of the operands than its links say, in the kernels too:
// what is multiplied by 0 is needed, since it may be NaN.
type rule func(*node)

// rules has a rule for each operator. An operator that is new needs one; without it
// nothing that it computes is proven. The one to start from is whole: rows that reach the
// operator are mixed.
var rules = map[string]rule{
	"ArgMax": ruleArgMax, "Assert": ruleAssert, "AssertLabels": ruleAssert, "Attention": ruleAttention, "AttentionGradient": whole, "AveragePool": rulePool, "BatchNorm": ruleBatchNorm,
	"Binary": elementwise, "BitCast": elementwise, "Bitwise": elementwise, "Cast": elementwise, "Clip": elementwise, "Col2Im": ruleCol2Im,
	"Concat": ruleConcat, "Conv": ruleConv, "ConvTranspose": ruleConvTranspose, "ConvWeightGradient": whole, "Cumulate": ruleCumulate, "DFT": ruleDFT,
	"DeformConv": ruleDeformConv, "Dequantize": ruleQuantize, "Det": ruleDet, "Expand": elementwise, "Field": whole, "GRU": ruleRecurrent,
	"Gather": ruleGather, "GatherElements": ruleGatherElements, "GatherND": ruleGatherND, "Gemm": ruleGemm, "Gradient": whole, "GridSample": ruleGridSample,
	"GroupNorm": ruleGroupNorm, "IntegerConv": ruleConv, "IntegerMatMul": ruleMatMul, "LRN": ruleLRN, "LSTM": ruleRecurrent,
	"LayerNorm": ruleNorm, "LinearAttention": ruleLinearAttention, "LpPool": rulePool, "MatMul": ruleMatMul,
	"MaxPool": rulePool, "MaxRoiPool": ruleRoi, "MaxUnpool": ruleMaxUnpool, "Mod": elementwise,
	"NonMaxSuppression": whole, "NonZero": whole, "OneHot": ruleOneHot, "Pad": rulePad,
	"Pointwise": elementwise, "Quantize": ruleQuantize, "RMSNorm": ruleNorm, "RNN": ruleRecurrent, "Random": whole, "RecurrentGradient": whole, "Reduce": ruleReduce,
	"Reshape": ruleReshape, "Resize": ruleResize, "RoiAlign": ruleRoi, "RoiAlignGradient": whole, "ScatterElements": ruleScatterElements,
	"ScatterND": ruleScatterND, "Slice": ruleSlice, "Softmax": ruleSoftmax, "TfIdf": ruleTfIdf, "TopK": ruleTopK,
	"Transpose": ruleTranspose, "Unary": elementwise, "Unique": whole, "Update": whole, "ViewedAttention": ruleViewedAttention, "Where": elementwise,
}

func init() {
	// These look at the rules of the nodes of their graphs.
	rules["If"], rules["Loop"] = ruleIf, ruleLoop
}

// whole is the rule of an operator any element of which may need all of its operands.
func whole(n *node) {
	for i := range n.out {
		var links []link
		for k := range n.in {
			links = append(links, link{k, nil, slices.Repeat([]int{across}, n.types[k].Rank())})
		}
		n.flow(i, nil, links...)
	}
}

// elementwise is the rule of functions of elements, with broadcasting.
func elementwise(n *node) {
	rank := n.to[0].Rank()
	var links []link
	for k, t := range n.types {
		if !n.given(k) {
			continue
		}
		// All axes are there, so that those that it is stretched along count as level.
		view := t.Shape
		if len(view) < rank {
			view = slices.Concat(slices.Repeat([]int64{1}, rank-len(view)), view)
		}
		links = append(links, link{k, view, aligned(len(view), rank)})
	}
	n.flow(0, nil, links...)
}

// along is the rule of an operator of one operand whose results have its axes, and that
// computes along the given ones.
func along(n *node, axes ...int64) {
	for i := range n.out {
		n.flow(i, nil, link{0, nil, straight(n.types[0].Rank(), axes...)})
	}
}

// from returns the axes from one on.
func from(axis int64, rank int) []int64 {
	var axes []int64
	for ; axis < int64(rank); axis++ {
		axes = append(axes, axis)
	}
	return axes
}

func ruleSoftmax(n *node)  { along(n, n.Op.(*graph.Softmax).Axis) }
func ruleCumulate(n *node) { along(n, n.Op.(*graph.Cumulate).Axis) }
func ruleTopK(n *node)     { along(n, n.Op.(*graph.TopK).Axis) }
func ruleDet(n *node)      { r := n.types[0].Rank(); along(n, int64(r-2), int64(r-1)) }
func ruleDFT(n *node)      { along(n, n.Op.(*graph.DFT).Axis, int64(n.types[0].Rank()-1)) }
func ruleLRN(n *node)      { along(n, 1) }

func ruleArgMax(n *node) {
	o := n.Op.(*graph.ArgMax)
	reduce(n, []int64{o.Axis}, o.KeepDims)
}

func ruleReduce(n *node) {
	o := n.Op.(*graph.Reduce)
	reduce(n, o.Axes, o.KeepDims)
}

func reduce(n *node, axes []int64, keep bool) {
	to := straight(n.types[0].Rank(), axes...)
	if !keep {
		at := 0
		for i := range to {
			if to[i] >= 0 {
				to[i] = at
				at++
			}
		}
	}
	n.flow(0, nil, link{0, nil, to})
}

// ruleNorm: statistics are taken over the axes from Axis on.
func ruleNorm(n *node) {
	x := n.types[0]
	axis := int64(0)
	switch o := n.Op.(type) {
	case *graph.LayerNorm:
		axis = o.Axis
	case *graph.RMSNorm:
		axis = o.Axis
	}
	stats := link{0, nil, straight(x.Rank(), from(axis, x.Rank())...)}
	links := []link{stats}
	for k := 1; k < len(n.types); k++ {
		links = append(links, link{k, nil, aligned(n.types[k].Rank(), x.Rank())})
	}
	n.flow(0, nil, links...)
	for i := 1; i < len(n.out); i++ {
		n.flow(i, nil, stats)
	}
}

func ruleBatchNorm(n *node) {
	links := []link{{0, nil, straight(n.types[0].Rank())}}
	for k := 1; k < len(n.types); k++ {
		links = append(links, link{k, nil, []int{1}})
	}
	n.flow(0, nil, links...)
}

func ruleGroupNorm(n *node) {
	x, groups := n.types[0], n.Op.(*graph.GroupNorm).Groups
	perGroup := x.Shape[1] / groups
	view := slices.Concat([]int64{x.Shape[0], groups, perGroup}, x.Shape[2:])
	stats := link{0, view, straight(len(view), from(2, len(view))...)}
	param := func(k int) link { return link{k, []int64{groups, perGroup}, []int{1, 2}} }
	n.flow(0, view, stats, param(1), param(2))
	for i := 1; i < len(n.out); i++ {
		n.flow(i, nil, stats)
	}
}

// ruleQuantize: scale and zero point are one for all, one for each place on an axis, or
// one for each block on it.
func ruleQuantize(n *node) {
	var axis, block int64
	switch o := n.Op.(type) {
	case *graph.Quantize:
		axis, block = o.Axis, o.Block
	case *graph.Dequantize:
		axis, block = o.Axis, o.Block
	}
	x := n.types[0]
	links := []link{{0, nil, straight(x.Rank())}}
	for k := 1; k < len(n.types); k++ {
		switch t := n.types[k]; {
		case !n.given(k):
		case block == 0 && t.Rank() == 1 && t.Elements() > 1:
			links = append(links, link{k, nil, []int{int(axis)}})
		case block == 0:
			links = append(links, link{k, []int64{1}, []int{across}})
		default:
			links = append(links, link{k, nil, straight(x.Rank(), axis)})
		}
	}
	n.flow(0, nil, links...)
}

func ruleOneHot(n *node) {
	axis := int(n.Op.(*graph.OneHot).Axis)
	to := straight(n.types[0].Rank())
	for i := axis; i < len(to); i++ {
		to[i]++
	}
	n.flow(0, nil, link{0, nil, to}, link{1, nil, []int{across}})
}

func ruleTfIdf(n *node) {
	to := straight(n.types[0].Rank())
	to[len(to)-1] = across
	n.flow(0, nil, link{0, nil, to})
}
