package onnx

import (
	"slices"
	"strings"

	"github.com/popefgen/popefgen/ipu/graph"
)

// recurrentOps are the recurrent networks.
var recurrentOps = map[string][]since{
	"LSTM": {{1, lstm}},
	"GRU":  {{1, gru}},
	"RNN":  {{1, rnn}},
}

func lstm(c *call) []*value {
	op := &graph.LSTM{Hidden: c.hidden(), Direction: c.str("direction", "forward"), Clip: c.float("clip", 0),
		InputForget: c.bool("input_forget", false), BatchFirst: c.bool("layout", false)}
	op.Activations, op.ActAlpha, op.ActBeta = c.activations(op.Direction, "Sigmoid", "Tanh", "Tanh")
	return c.recurrent(op, 8, 3)
}

func gru(c *call) []*value {
	op := &graph.GRU{Hidden: c.hidden(), Direction: c.str("direction", "forward"), Clip: c.float("clip", 0),
		LinearBeforeReset: c.bool("linear_before_reset", false), BatchFirst: c.bool("layout", false)}
	op.Activations, op.ActAlpha, op.ActBeta = c.activations(op.Direction, "Sigmoid", "Tanh")
	return c.recurrent(op, 6, 2)
}

func rnn(c *call) []*value {
	op := &graph.RNN{Hidden: c.hidden(), Direction: c.str("direction", "forward"), Clip: c.float("clip", 0),
		BatchFirst: c.bool("layout", false)}
	op.Activations, op.ActAlpha, op.ActBeta = c.activations(op.Direction, "Tanh")
	return c.recurrent(op, 6, 2)
}

// hidden returns the number of hidden units: the attribute, or else the depth
// of operand R.
func (c *call) hidden() int64 {
	def := int64(0)
	if r := c.in(2); r.rank() > 0 {
		def = r.typ.Shape[r.rank()-1]
	}
	return c.int("hidden_size", def)
}

// recurrent applies a recurrent operator to its operands.
func (c *call) recurrent(op graph.Op, operands, results int) []*value {
	c.ignore("output_sequence") // before version 7: which results are there says as much
	in := make([]*value, operands)
	for i := range in {
		in[i] = c.opt(i)
	}
	want := make([]bool, results)
	for i := range want {
		want[i] = c.wants(i)
	}
	return c.emitN(op, want, in...)
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
// only that have one. The defaults are those of one direction.
func (c *call) activations(direction string, defaults ...string) (acts []string, alpha, beta []float64) {
	names := slices.Clone(defaults)
	if direction == "bidirectional" {
		names = append(names, defaults...)
	}
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
