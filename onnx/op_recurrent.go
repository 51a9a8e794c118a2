package onnx

import (
	"slices"
	"strings"

	"github.com/popefgen/popefgen/ipu/graph"
)

// recurrentOps are the recurrent networks.
var recurrentOps = map[string][]since{
	"LSTM": {{1, lstm}},
}

func lstm(c *call) []*value {
	c.ignore("output_sequence") // version 1: which results are there says as much
	r := c.in(2)
	hidden := int64(0)
	if r.rank() > 0 {
		hidden = r.typ.Shape[r.rank()-1]
	}
	op := &graph.LSTM{
		Hidden: c.int("hidden_size", hidden), Direction: c.str("direction", "forward"), Clip: c.float("clip", 0),
		InputForget: c.bool("input_forget", false), BatchFirst: c.bool("layout", false),
	}
	dirs := 1
	if op.Direction == "bidirectional" {
		dirs = 2
	}
	op.Activations, op.ActAlpha, op.ActBeta = c.activations(slices.Repeat([]string{"Sigmoid", "Tanh", "Tanh"}, dirs))
	in := make([]*value, 8)
	for i := range in {
		in[i] = c.opt(i)
	}
	return c.emitN(op, []bool{c.wants(0), c.wants(1), c.wants(2)}, in...)
}

// activationParams tells which parameters an activation has and what they
// are by default; those of Affine and ScaledTanh have no defaults in ONNX.
var activationParams = []struct {
	name        string
	alpha, beta bool
	a, b        float64
}{
	{name: "Relu"}, {name: "Tanh"}, {name: "Sigmoid"}, {name: "Softsign"}, {name: "Softplus"},
	{name: "LeakyRelu", alpha: true, a: 0.01},
	{name: "ThresholdedRelu", alpha: true, a: 1},
	{name: "Elu", alpha: true, a: 1},
	{name: "HardSigmoid", alpha: true, beta: true, a: 0.2, b: 0.5},
	{name: "Affine", alpha: true, beta: true, a: 1},
	{name: "ScaledTanh", alpha: true, beta: true, a: 1, b: 1},
}

// activations reads the activations of a recurrent operator, in ONNX's
// spelling, and their parameters, which attributes list for those activations
// only that have one.
func (c *call) activations(names []string) (acts []string, alpha, beta []float64) {
	if a := c.attr("activations", AttrStrings); a != nil {
		if len(a.Strings) != len(names) {
			c.fail("attribute \"activations\" has %d names, want %d", len(a.Strings), len(names))
		}
		for i, s := range a.Strings {
			names[i] = string(s)
		}
	}
	alphas, betas := c.floats("activation_alpha"), c.floats("activation_beta")
	next := func(list *[]float64, takes bool, def float64) float64 {
		if !takes || len(*list) == 0 {
			return def
		}
		x := (*list)[0]
		*list = (*list)[1:]
		return x
	}
	for _, name := range names {
		i := 0
		for i < len(activationParams) && !strings.EqualFold(activationParams[i].name, name) {
			i++
		}
		if i == len(activationParams) {
			c.fail("attribute \"activations\" names %q, which is no activation", name)
		}
		p := activationParams[i]
		acts = append(acts, p.name)
		alpha = append(alpha, next(&alphas, p.alpha, p.a))
		beta = append(beta, next(&betas, p.beta, p.b))
	}
	return acts, alpha, beta
}
