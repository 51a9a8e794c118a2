package optim

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/popefgen/popefgen/ipu/graph"
)

// Weight is one weight to train.
type Weight struct {
	Name     string
	Tensor   graph.TensorID // persistent; F16, BF16, F32 or F64
	Gradient graph.TensorID // of the loss, of the weight's shape and type or F32
}

// State is a persistent tensor that training adds. All its elements start as Init, or, if it is the master copy of a
// weight, as that weight.
type State struct {
	Name   string // such as "Accl1___w", "Step___w"
	Tensor graph.TensorID
	Init   float32
	Master graph.TensorID // the weight of half precision that this is the master copy of, or graph.None
}

// Input is a persistent tensor that the host sets before the first step and may set anew: a scalar of the optimizer.
type Input struct {
	Scalar
	Tensor graph.TensorID
}

// Step says what a step does besides an optimizer's formula. Use [NewStep].
type Step struct {
	Divisor int64                     // gradients are sums of so many of which the mean is wanted; at least 1
	Factor  graph.TensorID            // one F32 that multiplies the gradients, or graph.None
	Factors map[string]graph.TensorID // those of single weights, by name, in place of Factor
	Skip    graph.TensorID            // one Bool: if true, nothing changes; or graph.None
	Master  bool                      // weights of half precision have a master copy in F32, the state Master___w
}

// NewStep returns a step with nothing besides the formula, and master copies.
func NewStep() Step {
	return Step{Divisor: 1, Factor: graph.None, Skip: graph.None, Master: true}
}

// Applied is what [Apply] has added.
type Applied struct {
	States []State
	Inputs []Input
	// LossScale is one F32, the number that the loss's gradient starts with: a constant or one of Inputs.
	LossScale graph.TensorID
}

// Apply appends a step of an optimizer for each weight to the current graph, one node each. Tensors of scalars and
// states are new; those that several weights have in common are there once.
func Apply(b *graph.Builder, o Optimizer, weights []Weight, s Step) (*Applied, error) {
	inputs, scale, err := optimizerTensors(b, o, weights, s.Divisor)
	if err != nil {
		return nil, err
	}
	return apply(b, o, weights, s, inputs, scale)
}

// optimizerTensors adds the tensors of an optimizer's scalars, and returns those that the host feeds, and loss scaling.
func optimizerTensors(b *graph.Builder, o Optimizer, weights []Weight, divisor int64) (inputs []Input, scale graph.TensorID, err error) {
	if len(weights) == 0 {
		return nil, graph.None, fmt.Errorf("optimizer %s: there is no weight to train", o.Kind())
	}
	if divisor < 1 {
		return nil, graph.None, fmt.Errorf("optimizer %s: gradients are to be divided by %d, want at least 1", o.Kind(), divisor)
	}
	names := make([]string, len(weights))
	seen := map[string]bool{}
	for i, w := range weights {
		if seen[w.Name] {
			return nil, graph.None, fmt.Errorf("optimizer %s: two weights have the name %q: states and scalars are named after weights", o.Kind(), w.Name)
		}
		names[i], seen[w.Name] = w.Name, true
	}
	fed, err := Scalars(o, names, divisor)
	if err != nil {
		return nil, graph.None, err
	}
	ls := compoundOf(o, names[0], LossScaling, 1)
	scale = graph.None
	for _, f := range fed {
		t := b.AddPersistent(f.Name, graph.TensorType{DType: graph.F32})
		inputs = append(inputs, Input{f, t})
		if !ls.constant && f.Name == ls.scalarName(LossScaling, names[0]) {
			scale = t
		}
	}
	if scale == graph.None {
		scale = constant(b, LossScaling, ls.value)
	}
	return inputs, scale, nil
}

func apply(b *graph.Builder, o Optimizer, weights []Weight, s Step, inputs []Input, scale graph.TensorID) (*Applied, error) {
	a := &Applied{Inputs: inputs, LossScale: scale}
	named := map[string]graph.TensorID{}
	for _, in := range inputs {
		named[in.Name] = in.Tensor
	}
	for _, w := range weights {
		if err := a.apply(b, o, w, s, named); err != nil {
			return nil, fmt.Errorf("optimizer %s: weight %q: %w", o.Kind(), w.Name, err)
		}
	}
	return a, nil
}

func (a *Applied) apply(b *graph.Builder, o Optimizer, w Weight, s Step, inputs map[string]graph.TensorID) error {
	t := b.Tensor(w.Tensor)
	if !t.Persistent {
		return fmt.Errorf("tensor %d %q is not persistent, and only what keeps its value can be trained", w.Tensor, t.Name)
	}
	op := o.operator(w.Name)
	state := func(name string, t graph.TensorType, master graph.TensorID) graph.TensorID {
		id := b.AddPersistent(name+"___"+w.Name, t)
		a.States = append(a.States, State{Name: name + "___" + w.Name, Tensor: id, Master: master})
		return id
	}
	wide := graph.TensorType{DType: graph.F32, Shape: t.Type.Shape}
	if t.Type.DType == graph.F64 {
		wide.DType = graph.F64
	}
	factor, ok := s.Factors[w.Name]
	if !ok {
		factor = s.Factor
	}
	in, out := []graph.TensorID{w.Tensor, w.Gradient, factor, s.Skip, graph.None}, []graph.TensorID{w.Tensor}
	if s.Master && t.Type.DType.Size() == 2 {
		in[4] = state("Master", wide, w.Tensor)
	}
	for _, name := range op.States() {
		typ := wide
		if name == graph.UpdateStep {
			typ = graph.TensorType{DType: graph.F32}
		}
		id := state(name, typ, graph.None)
		in, out = append(in, id), append(out, id)
	}
	for _, name := range op.Scalars() {
		c := compoundOf(o, w.Name, name, float32(s.Divisor))
		if c.constant {
			in, op.Values = append(in, graph.None), append(op.Values, float64(c.value))
		} else {
			in, op.Values = append(in, inputs[c.scalarName(name, w.Name)]), append(op.Values, 0)
		}
	}
	if in[4] != graph.None {
		out = append(out, in[4])
	}
	return b.NodeTo(op, "update "+w.Name, out, in...)
}

// constant adds an F32 of no dimensions.
func constant(b *graph.Builder, name string, v float32) graph.TensorID {
	return b.AddConst(name, graph.TensorType{DType: graph.F32}, binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)))
}
