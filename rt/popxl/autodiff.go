package popxl

import (
	"errors"
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/autodiff"
)

// Provided is a tensor and its gradient, from which [Autodiff] goes back: an element of PopXL's grads_provided.
type Provided struct {
	y, gradient Operand
	ones        bool // the gradient is 1 for every element
}

// Provide returns that y has a gradient, of its shape.
func Provide[T Float](y, gradient Tensor[T]) Provided { return Provided{y: y, gradient: gradient} }

// ProvideOnes returns that the gradient of every element of y is 1, as that of a loss is.
func ProvideOnes[T Float](y Tensor[T]) Provided { return Provided{y: y, ones: true} }

// GradInfo has the gradients that [Autodiff] has added, of PopXL's GradGraphInfo what computing with them takes. [GradOf] returns one of them.
type GradInfo struct {
	ir     *Ir
	grads  map[graph.TensorID]graph.TensorID
	failed bool // the mistake has been kept
}

// Gradients adds the gradients of a loss with respect to tensors: [Autodiff] from the loss alone, whose gradient is 1.
func Gradients[T Float](loss Tensor[T], required ...Operand) *GradInfo {
	return differentiate("popxl.Gradients", []Provided{ProvideOnes(loss)}, required)
}

// Autodiff adds operators that compute gradients with respect to the required tensors (PopXL's grads_required) of whatever the provided gradients
// are gradients of, by going back through all operators so far. A tensor that has no influence, an operator without a gradient on the way and a variable that
// was changed meanwhile are mistakes, which name what is in the way.
func Autodiff(provided []Provided, required []Operand) *GradInfo {
	return differentiate("popxl.Autodiff", provided, required)
}

// GradOf returns the gradient with respect to x, which was required: of its shape and type.
func GradOf[T Float](g *GradInfo, x Tensor[T]) Tensor[T] {
	const call = "popxl.GradOf"
	switch {
	case g == nil || g.ir == nil:
		return Fail[T](x.ir, call, errors.New("there are no gradients: make them with Autodiff"))
	case g.failed || !x.Valid():
		return Tensor[T]{g.ir, graph.None}
	}
	d, ok := g.grads[x.id]
	if x.ir != g.ir || !ok {
		return Fail[T](g.ir, call, errors.New("this gradient was not required: name the tensor in the call that adds gradients"))
	}
	return Tensor[T]{g.ir, d}
}

// Detach returns x, through which no gradient flows: it counts as a constant for gradients that are added later. It is what package ops makes Detach of.
func Detach[T Element](call string, x Tensor[T]) Tensor[T] {
	y := Apply[T](call, &graph.Reshape{Shape: x.Shape()}, x)
	if y.Valid() {
		y.ir.detached = append(y.ir.detached, y.id)
	}
	return y
}

func differentiate(call string, provided []Provided, required []Operand) *GradInfo {
	g := &GradInfo{failed: true}
	var all []Operand
	for _, p := range provided {
		all = append(all, p.y, p.gradient)
	}
	ir, ids, err := resolve(slices.Concat(all, required))
	g.ir = ir
	switch {
	case ir == nil || err == nil && ids == nil:
		return g
	case err == nil && ir.taken:
		err = ErrTaken
	case err == nil && len(ir.nest) > 0:
		err = errNested
	case err == nil && len(provided) == 0:
		err = errors.New("no tensor's gradient is provided, want that of a loss at least")
	case err == nil && slices.Contains(ids[len(all):], graph.None):
		err = errors.New("a tensor whose gradient is required is nil")
	}
	for i, p := range provided {
		if err == nil && (ids[2*i] == graph.None || ids[2*i+1] == graph.None && !p.ones) {
			err = errors.New("a provided tensor or gradient is nil: make it with Provide or ProvideOnes")
		}
		if y, dy := ids2(ids, i); err == nil && !p.ones && !ir.b.Type(y).Equal(ir.b.Type(dy)) {
			err = fmt.Errorf("a provided gradient is %v, want %v as that of which it is the gradient", ir.b.Type(dy), ir.b.Type(y))
		}
	}
	if err != nil {
		ir.fail(call, err)
		return g
	}
	o := autodiff.Options{Required: ids[len(all):]}
	for i := range provided {
		o.Provided = append(o.Provided, ids[2*i])
	}
	info, err := ir.backward(o)
	if err != nil {
		ir.fail(call, err)
		return g
	}
	ir.advance(backward)
	for i, p := range provided {
		_, dy := ids2(ids, i)
		if p.ones {
			dy = ir.filled(ir.b.Type(ids[2*i]), 1)
		}
		if err := ir.b.NodeTo(&graph.Reshape{Shape: ir.b.Type(dy).Shape}, ir.scoped("gradient"), []graph.TensorID{info.Inputs[i].Tensor}, dy); err != nil {
			ir.fail(call, err)
			return g
		}
	}
	ir.calls[ir.stage] = append(ir.calls[ir.stage], info.Graph)
	ir.begin()
	g.failed, g.grads = false, map[graph.TensorID]graph.TensorID{}
	for _, l := range info.Outputs {
		g.grads[l.Forward] = l.Tensor
	}
	return g
}

// ids2 returns the numbers of the provided tensor i and its gradient.
func ids2(ids []graph.TensorID, i int) (y, dy graph.TensorID) {
	if len(ids) < 2*i+2 {
		return graph.None, graph.None
	}
	return ids[2*i], ids[2*i+1]
}

// backward appends a graph that goes back through all graphs so far. Nothing calls it yet.
func (ir *Ir) backward(o autodiff.Options) (*autodiff.Info, error) {
	calls := slices.Concat(ir.calls[:]...)
	last := len(calls) - 1
	o.Before, o.Detached = calls[:last], ir.detached
	o.Name = fmt.Sprintf("%s:%d", ir.name, len(calls)+1) // behind the one in which the gradients are provided
	current := ir.b.CurrentGraph()
	exe, err := ir.b.Finish()
	if err != nil {
		return nil, err
	}
	info, err := autodiff.Backward(exe, calls[last], o)
	ir.b = graph.Continue(exe)
	ir.b.SetGraph(current)
	if err != nil {
		return nil, err
	}
	ir.held = append(ir.held, info.Held...)
	return info, nil
}

// filled returns a constant of a type of floats whose elements all have a value.
func (ir *Ir) filled(t graph.TensorType, v float32) graph.TensorID {
	return ir.b.AddConst(ir.scoped("constant"), t, fill(t, v))
}
