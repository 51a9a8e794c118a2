package op

import (
	"slices"
	"strings"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx/internal/lower"
)

// recurrentOps are the recurrent networks.
var recurrentOps = map[string]definition{
	"LSTM": takes("X:T=floats W:T R:T B:T sequence_lens:int32 initial_h:T initial_c:T P:T").since(1, lstm, "activation_alpha:floats activation_beta:floats activations:strings clip=0.0 direction=forward hidden_size:int input_forget=0 layout=0 output_sequence=0"),
	"GRU":  takes("X:T=floats W:T R:T B:T sequence_lens:int32 initial_h:T").since(1, gru, "activation_alpha:floats activation_beta:floats activations:strings clip=0.0 direction=forward hidden_size:int layout=0 linear_before_reset=0 output_sequence=0"),
	"RNN":  takes("X:T=floats W:T R:T B:T sequence_lens:int32 initial_h:T").since(1, rnn, "activation_alpha:floats activation_beta:floats activations:strings clip=0.0 direction=forward hidden_size:int layout=0 output_sequence=0"),

	"ai.graphcore.LSTM": takes("X:T=floats W:T B:T S:T sequence_lens:integers").since(1, graphcoreLSTM, "output_full_sequence=1 availableMemoryProportion:float partialsType:string"),
}

func lstm(c *call) []*lower.Value {
	op := &graph.LSTM{Hidden: c.hidden(), Direction: c.Str("direction"), Clip: c.Float("clip"),
		InputForget: c.Bool("input_forget"), BatchFirst: c.Bool("layout")}
	op.Activations, op.ActAlpha, op.ActBeta = c.activations(op.Direction, "Sigmoid", "Tanh", "Tanh")
	return c.recurrent(op, 8, 3)
}

func gru(c *call) []*lower.Value {
	op := &graph.GRU{Hidden: c.hidden(), Direction: c.Str("direction"), Clip: c.Float("clip"),
		LinearBeforeReset: c.Bool("linear_before_reset"), BatchFirst: c.Bool("layout")}
	op.Activations, op.ActAlpha, op.ActBeta = c.activations(op.Direction, "Sigmoid", "Tanh")
	return c.recurrent(op, 6, 2)
}

func rnn(c *call) []*lower.Value {
	op := &graph.RNN{Hidden: c.hidden(), Direction: c.Str("direction"), Clip: c.Float("clip"),
		BatchFirst: c.Bool("layout")}
	op.Activations, op.ActAlpha, op.ActBeta = c.activations(op.Direction, "Tanh")
	return c.recurrent(op, 6, 2)
}

// hidden returns the number of hidden units: the attribute, or else the depth
// of operand R.
func (c *call) hidden() int64 {
	if c.Has("hidden_size") {
		return c.Int("hidden_size")
	}
	if r := c.In(2); r.Rank() > 0 {
		return r.Type.Shape[r.Rank()-1]
	}
	return 0
}

// recurrent applies a recurrent operator to its operands.
func (c *call) recurrent(op graph.Op, operands, results int) []*lower.Value {
	in := make([]*lower.Value, operands)
	for i := range in {
		in[i] = c.Opt(i)
	}
	want := make([]bool, results)
	for i := range want {
		want[i] = c.Wants(i)
	}
	return c.EmitN(op, want, in...)
}

// graphcoreLSTM is PopART's LSTM. Its weights are [4, input+hidden, hidden],
// those of X first, its biases [4, hidden], gates in the order forget, input,
// candidate, output; its initial state is [2, batch, hidden], H before C.
func graphcoreLSTM(c *call) []*lower.Value {
	x, weights, biases, state, lengths := c.In(0), c.In(1), c.Opt(2), c.Opt(3), c.Opt(4)
	if x.Rank() != 3 || weights.Rank() != 3 || weights.Type.Shape[0] != 4 || weights.Type.Shape[1] != x.Type.Shape[2]+weights.Type.Shape[2] {
		c.Fail("operands 0 and 1 are %v and %v, want [sequence,batch,input] and [4,input+hidden,hidden]", x.Type, weights.Type)
	}
	steps, batch, input, hidden := x.Type.Shape[0], x.Type.Shape[1], x.Type.Shape[2], weights.Type.Shape[2]
	reshape := func(v *lower.Value, shape ...int64) *lower.Value { return c.Emit(&graph.Reshape{Shape: shape}, v) }
	part := func(v *lower.Value, axis, start, size int64) *lower.Value {
		op := whole(v)
		op.Start[axis], op.Size[axis] = start, size
		return c.Emit(op, v)
	}
	order := lower.KnownInts(1, 3, 0, 2) // of PopART's gates in ONNX's
	all := c.Emit(&graph.Transpose{Perm: []int64{0, 2, 1}}, c.Emit(&graph.Gather{}, weights, order))
	in := make([]*lower.Value, 8)
	in[0] = x
	in[1] = reshape(part(all, 2, 0, input), 1, 4*hidden, input)
	in[2] = reshape(part(all, 2, input, hidden), 1, 4*hidden, hidden)
	if biases != nil {
		if biases.Rank() != 2 || biases.Type.Shape[0] != 4 || biases.Type.Shape[1] != hidden {
			c.Fail("operand 2 (biases) is %v, want [4,%d]", biases.Type, hidden)
		}
		b := reshape(c.Emit(&graph.Gather{}, biases, order), 1, 4*hidden)
		in[3] = c.Emit(&graph.Pad{Before: []int64{0, 0}, After: []int64{0, 4 * hidden}, Mode: graph.PadConstant}, b)
	}
	if lengths != nil {
		in[4] = c.cast(lengths, graph.I32)
	}
	if state != nil {
		if state.Rank() != 3 || state.Type.Shape[0] != 2 {
			c.Fail("operand 3 (initial state) is %v, want [2,%d,%d]", state.Type, batch, hidden)
		}
		in[5], in[6] = part(state, 0, 0, 1), part(state, 0, 1, 1)
	}
	op := &graph.LSTM{Hidden: hidden, Direction: "forward", Activations: []string{"Sigmoid", "Tanh", "Tanh"},
		ActAlpha: make([]float64, 3), ActBeta: make([]float64, 3)}
	full := c.Bool("output_full_sequence")
	out := c.EmitN(op, []bool{full, !full, c.Wants(1)}, in...)
	y := out[0]
	if full {
		y = reshape(y, steps, batch, hidden)
	} else {
		y = reshape(out[1], batch, hidden)
	}
	cell := out[2]
	if cell != nil {
		cell = reshape(cell, batch, hidden)
	}
	return []*lower.Value{y, cell}
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
	if a := c.Attr("activations"); a != nil {
		if len(a.Strings) != len(names) {
			c.Fail("attribute \"activations\" has %d names, want %d", len(a.Strings), len(names))
		}
		for i, s := range a.Strings {
			names[i] = string(s)
		}
	}
	alphas, betas := c.Floats("activation_alpha"), c.Floats("activation_beta")
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
			c.Fail("attribute \"activations\" names %q, which is no activation", name)
		}
		p := activationParams[i]
		acts = append(acts, p.name)
		alpha = append(alpha, next(&alphas, p.alpha, p.a))
		beta = append(beta, next(&betas, p.beta, p.b))
	}
	return acts, alpha, beta
}
