package autodiff

import (
	"maps"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// rule says how gradients go back through an operator: one of its three is set, or zero besides back.
type rule struct {
	// back gives the gradients of the operands of a node, of one of whose results there is a gradient. It calls
	// refuse where there are none.
	back func(p *pull, n *graph.Node)
	// zero reports whether the gradient is zero everywhere with these attributes.
	zero func(op graph.Op) bool
	// why says why there is no gradient.
	why string
}

func always(graph.Op) bool { return true }

const (
	byPass  = "optimisation made it: differentiate the executable before its optimisation"
	rounds  = "it rounds to integers, which has no useful gradient: quantise the model after its training"
	ofBytes = "it computes with bytes, of which there are no gradients: train the model in floating point and quantise it afterwards"
)

// rules has a rule for every operator of the portable executable.
var rules map[string]rule

func init() {
	rules = map[string]rule{}
	for _, family := range []map[string]rule{
		elementwiseRules, reduceRules, matrixRules, movementRules, indexRules, convRules, poolRules, normRules,
		controlRules, recurrentRules, attentionRules, sampleRules, regionRules,
	} {
		maps.Copy(rules, family)
	}
	rules["Gradient"] = rule{back: backGradient}
	// What has no gradient, and what has none that is not zero.
	for kind, why := range map[string]string{
		"Pointwise": byPass, "ViewedAttention": byPass, "Field": byPass,
		"Quantize": rounds, "Dequantize": ofBytes, "IntegerMatMul": ofBytes, "IntegerConv": ofBytes,

		"Update":  "it is a step of an optimizer, which comes after gradients: put it into a graph of its own",
		"BitCast": "it takes the bits of numbers for others, which has no useful gradient",
	} {
		rules[kind] = rule{why: why}
	}
	for _, kind := range []string{"ArgMax", "Assert", "AssertLabels", "Bitwise", "NonMaxSuppression", "NonZero", "Random", "TfIdf", "Unique"} {
		rules[kind] = rule{zero: always}
	}
}

// Gradient is what there is of an operator's gradient.
type Gradient struct {
	Kind string // of the operator
	// Exists says that the operator has a rule; some attributes may still have a zero gradient or be refused.
	Exists bool
	// Zero says that its gradient is zero everywhere, or that its operands or results have none since they are no floats.
	Zero bool
	Why  string // why there is none, if neither is set
}

// Rules returns an entry for every operator that has a rule, by kind.
func Rules() []Gradient {
	var list []Gradient
	for _, kind := range slices.Sorted(maps.Keys(rules)) {
		r := rules[kind]
		list = append(list, Gradient{kind, r.back != nil, r.back == nil && r.zero != nil, r.why})
	}
	return list
}
