package popxl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/autodiff"
	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/ipu/num"
)

// Trainable is a [Variable] of any element type.
type Trainable interface {
	trainable() (string, Operand)
}

func (v Variable[T]) trainable() (string, Operand) { return v.name, v.t }

// Update is a variable and the gradient by which [Optimize] changes it.
type Update struct {
	of       Trainable
	gradient Operand
}

// By returns the update of v by a gradient of its shape.
func (v Variable[T]) By(gradient Tensor[T]) Update { return Update{v, gradient} }

// Training says how [Minimize] learns.
type Training struct {
	Optimizer optim.Optimizer // such as [optim.NewAdam]
	Clips     []optim.Clip    // bounds on the norms of gradients
	// Accumulation is over how many micro-batches a step adds gradients up; 0 and 1 stand for one, and [optim.NewTraining] says how many there may be. A run, or each of its iterations, computes what comes
	// before the step so often, each time with the next tensors of every input, and what comes behind it once.
	Accumulation int64
	Sum          bool // of gradients over the micro-batches, and over the replicas; else a step is by their mean
	// NonFinite says what becomes of a step whose loss or gradients are infinite or no numbers; empty stands for [optim.Refused], an error of the run, or with Scaling for [optim.Skipped].
	NonFinite optim.NonFinite
	// Scaling, if it is not nil, changes the scaling of the loss, which begins as the optimizer's, by itself.
	Scaling *optim.AutomaticScaling
}

// Trained has tensors that tell of a step of [Minimize], for outputs.
type Trained struct {
	Skipped Tensor[int32]     // of [optim.Skipped] steps: 1 if the step changed nothing, else 0; the zero Tensor otherwise
	Norms   []Tensor[float32] // of each of Training.Clips the norm of the gradients before it was bounded
}

// Minimize adds a step of an optimizer: gradients of the loss with respect to variables, and the changes that these make of the variables. A loss of several
// elements counts as their sum. Operators that are added later read the new values. The optimizer's states are saved with the variables, and the numbers that it
// has as [optim.Changeable] are set with [Session.SetOptimizer]. Of several replicas ([Ir.SetReplicas]) each computes gradients of its own data, a step is by those of all of them, and all make the same step.
func Minimize[T Float](loss Tensor[T], how Training, variables ...Trainable) Trained {
	const call = "popxl.Minimize"
	ir := loss.ir
	weights, ids, ok := ir.trainables(call, loss, variables)
	switch {
	case !ok:
		return Trained{}
	case how.Optimizer == nil:
		ir.fail(call, errors.New("there is no optimizer: take optim.NewAdam or another one of package optim"))
		return Trained{}
	}
	micro := max(how.Accumulation, 1)
	if how.Accumulation < 0 || len(ir.optimizers) > 0 && micro != ir.accumulation() {
		ir.fail(call, fmt.Errorf("an accumulation over %d micro-batches, want at least 1, and as many as other steps of the Ir, %d", how.Accumulation, ir.accumulation()))
		return Trained{}
	}
	info, err := ir.backward(autodiff.Options{Provided: []graph.TensorID{loss.id}, Required: ids})
	if err != nil {
		ir.fail(call, err)
		return Trained{}
	}
	for i := range weights {
		weights[i].Gradient = info.Outputs[i].Tensor
	}
	t := optim.NewTraining()
	t.Optimizer, t.Weights, t.Clips, t.NonFinite, t.Scaling = how.Optimizer, weights, how.Clips, how.NonFinite, how.Scaling
	t.MicroBatches, t.Sum, t.Apart = micro*int64(ir.replicas()), how.Sum, ir.replicas() > 1
	t.Loss, t.LossGradient, t.Backward = loss.id, info.Inputs[0].Tensor, info.Graph
	exe, err := ir.b.Finish()
	if err != nil {
		ir.fail(call, err)
		return Trained{}
	}
	done, err := optim.Train(exe, t)
	ir.b = graph.Continue(exe)
	if err != nil {
		ir.fail(call, err)
		ir.begin() // nodes have to go somewhere; nothing is exported any more
		return Trained{}
	}
	ir.stage = max(ir.stage, backward)
	ir.cleared = append(ir.cleared, done.Begin...)
	ir.calls[ir.stage] = append(ir.calls[ir.stage], done.Start, info.Graph)
	ir.stage, ir.micro = update, micro
	ir.added(done.Sums, done.Update)
	ir.calls[update] = append(ir.calls[update], done.Update)
	ir.begin()
	ir.keep(call, how.Optimizer, weights, done.States, done.Inputs)
	told := Trained{}
	if done.Skipped != graph.None {
		told.Skipped = Tensor[int32]{ir, done.Skipped}
	}
	for _, n := range done.Norms {
		told.Norms = append(told.Norms, Tensor[float32]{ir, n})
	}
	return told
}

// Optimize adds a step of an optimizer by gradients that were computed before, with [Autodiff] for instance. Its scaling of the loss has to be the constant 1, since nobody but
// the caller knows whether the gradients are scaled; [Minimize] does more. Of several replicas each makes the step of its own gradients: give it those that ops.AllReduce has made of all.
func Optimize(o optim.Optimizer, updates ...Update) {
	const call = "popxl.Optimize"
	var gradients, operands []Operand
	variables := make([]Trainable, len(updates))
	for i, u := range updates {
		variables[i], gradients = u.of, append(gradients, u.gradient)
		if u.of != nil {
			_, of := u.of.trainable()
			operands = append(operands, of)
		}
	}
	ir, ids, err := resolve(append(gradients, operands...))
	if ir == nil {
		return
	}
	if err != nil {
		ir.fail(call, err)
		return
	}
	weights, _, ok := ir.trainables(call, nil, variables)
	if !ok || ids == nil {
		return
	}
	if err := checkUpdates(ir, o, weights, ids); err != nil || ir.accumulation() > 1 {
		if err == nil {
			err = fmt.Errorf("another step of the Ir adds gradients up over %d micro-batches, which these are not: take Minimize", ir.accumulation())
		}
		ir.fail(call, err)
		return
	}
	ir.enter(update)
	for i := range weights {
		weights[i].Gradient = ids[i]
	}
	done, err := optim.Apply(ir.b, o, weights, optim.NewStep())
	if err != nil {
		ir.fail(call, err)
		return
	}
	ir.keep(call, o, weights, done.States, done.Inputs)
}

func checkUpdates(ir *Ir, o optim.Optimizer, weights []optim.Weight, gradients []graph.TensorID) error {
	if o == nil {
		return errors.New("there is no optimizer: take optim.NewAdam or another one of package optim")
	}
	for _, s := range optim.Settings(o) {
		if s.Name == "loss-scaling" && (len(s.Specific) > 0 || s.Default != (optim.Value{V: 1, Const: true})) {
			return errors.New("the optimizer scales the loss, but the gradients are given: leave the scaling at the constant 1, or take Minimize")
		}
	}
	for i, w := range weights {
		if gradients[i] == graph.None || !slices.Equal(ir.b.Type(w.Tensor).Shape, ir.b.Type(gradients[i]).Shape) {
			return fmt.Errorf("the gradient of variable %q is %v, want it of the variable's shape: %v", w.Name, ir.b.Type(gradients[i]), ir.b.Type(w.Tensor))
		}
	}
	return nil
}

// trainables returns variables as weights. It is not ok if something that is needed is not there.
func (ir *Ir) trainables(call string, loss Operand, variables []Trainable) (weights []optim.Weight, ids []graph.TensorID, ok bool) {
	if !ir.usable() {
		return nil, nil, false
	}
	operands := []Operand{loss}
	names := make([]string, len(variables))
	for i, v := range variables {
		var of Operand
		if v != nil {
			names[i], of = v.trainable()
		}
		operands = append(operands, of)
	}
	_, ids, err := resolve(operands)
	switch {
	case err != nil:
	case ir.taken:
		err = ErrTaken
	case len(ir.nest) > 0:
		err = errNested
	case ids == nil:
		return nil, nil, false
	case len(variables) == 0:
		err = errors.New("there is no variable to train")
	case slices.Contains(ids[1:], graph.None):
		err = errors.New("a variable is nil")
	}
	if err != nil {
		ir.fail(call, err)
		return nil, nil, false
	}
	for i, id := range ids[1:] {
		weights = append(weights, optim.Weight{Name: names[i], Tensor: id})
	}
	return weights, ids[1:], true
}

// keep notes an optimizer with its states and numbers.
func (ir *Ir) keep(call string, o optim.Optimizer, weights []optim.Weight, states []optim.State, inputs []optim.Input) {
	kept := optimizer{Optimizer: o}
	for _, w := range weights {
		kept.names = append(kept.names, w.Name)
	}
	for _, s := range states {
		if !ir.claim(call, s.Name) {
			return
		}
		t := ir.b.Type(s.Tensor)
		value := fill(t, s.Init)
		if s.Master != graph.None {
			i := slices.IndexFunc(ir.weights, func(w export.Weight) bool { return w.Tensor == s.Master })
			value = widen(ir.b.Type(s.Master).DType, ir.weights[i].Value)
		}
		ir.states = append(ir.states, export.Weight{Port: export.Port{Name: s.Name, Tensor: s.Tensor}, Value: value})
	}
	for _, in := range inputs {
		if !ir.claim(call, in.Name) {
			return
		}
		ir.fed = append(ir.fed, export.Weight{Port: export.Port{Name: in.Name, Tensor: in.Tensor}, Value: fill(ir.b.Type(in.Tensor), in.Value)})
	}
	ir.optimizers = append(ir.optimizers, kept)
}

// optimizer is one that changes variables of these names.
type optimizer struct {
	optim.Optimizer
	names []string
}

// fill returns the data of a tensor of floats whose elements all have a value.
func fill(t graph.TensorType, v float32) []byte {
	var one []byte
	switch t.DType {
	case graph.F64:
		one = binary.LittleEndian.AppendUint64(nil, math.Float64bits(float64(v)))
	case graph.F16:
		one = binary.LittleEndian.AppendUint16(nil, uint16(num.Float16From(v)))
	case graph.BF16:
		one = binary.LittleEndian.AppendUint16(nil, uint16(num.BFloat16From(v)))
	default:
		one = binary.LittleEndian.AppendUint32(nil, math.Float32bits(v))
	}
	return slices.Concat(slices.Repeat([][]byte{one}, int(t.Elements()))...)
}

// widen returns elements of half precision as float32.
func widen(t graph.DType, half []byte) []byte {
	var out []byte
	for i := 0; i < len(half); i += 2 {
		bits := binary.LittleEndian.Uint16(half[i:])
		v := num.Float16(bits).Float32()
		if t == graph.BF16 {
			v = num.BFloat16(bits).Float32()
		}
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
	}
	return out
}
