package popxl

import (
	"errors"
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/ipu/graph"
)

// Input is a stream from the host. A run moves one tensor over it, which [Input.Load] returns, or one for each [Input.Next]; all that once an iteration ([Ir.SetIterations]).
type Input[T Element] struct {
	name string
	t    Tensor[T]
	at   int // among the Ir's inputs
}

// loaded says how an input is loaded.
type loaded struct {
	whole bool           // with Load
	rows  graph.TensorID // all tensors that a run gets, for Next; graph.None unless it is called
}

// NewInput adds an input. Without sizes it is a scalar.
func NewInput[T Element](ir *Ir, name string, shape ...int64) Input[T] {
	const call = "popxl.NewInput"
	in := Input[T]{name, Tensor[T]{ir, graph.None}, 0}
	if !ir.usable() {
		return in
	}
	if _, err := elements(shape, TypeOf[T]().Size()); err != nil {
		ir.fail(call, fmt.Errorf("%q: %w", name, err))
		return in
	}
	if !ir.claim(call, name) {
		return in
	}
	in.t.id = ir.b.AddLocal(name, typed[T](shape))
	in.at = len(ir.inputs)
	ir.inputs = append(ir.inputs, export.Port{Name: name, Tensor: in.t.id})
	ir.loaded = append(ir.loaded, loaded{rows: graph.None})
	return in
}

// Name returns the name of the stream's anchor.
func (in Input[T]) Name() string { return in.name }

// Load returns the tensor that the run was given, once for all of it: loading it again gives the same one, in loops, too.
func (in Input[T]) Load() Tensor[T] {
	ir := in.t.ir
	switch {
	case !in.t.Valid() || ir.taken:
	case ir.loaded[in.at].rows != graph.None:
		return Fail[T](ir, "popxl.Input.Load", fmt.Errorf("%q: %w", in.name, errBoth))
	default:
		ir.loaded[in.at].whole = true
	}
	return in.t
}

var errBoth = errors.New("Load and Next are both called: take Load for one tensor of the whole run, or Next for a tensor of each call")

// Next returns the next tensor of the stream, PopXL's host_load: every call moves a tensor of its own, in a loop one in each iteration, in a [Graph] one whenever it is called. How many
// a run moves is counted ([Ir.Transfers]).
func (in Input[T]) Next() Tensor[T] {
	const call = "popxl.Input.Next"
	ir := in.t.ir
	if !in.t.Valid() {
		return in.t
	}
	err := ErrTaken
	id := graph.None
	switch {
	case ir.taken:
	case ir.loaded[in.at].whole:
		err = errBoth
	default:
		id, err = ir.load(in.at)
	}
	if err != nil {
		return Fail[T](ir, call, fmt.Errorf("%q: %w", in.name, inner(err)))
	}
	return Tensor[T]{ir, id}
}

// Output is a stream to the host. A run moves one tensor over it, that of [NewOutput], or one for each [Output.Store]; all that once an iteration.
type Output[T Element] struct {
	name string
	t    Tensor[T]
	at   int // among the Ir's outputs
}

// declared says how an output is stored.
type declared struct {
	stores bool           // with Store
	debug  bool           // for sessions alone
	late   bool           // a batch returns it once, however many micro-batches it has; known when the Ir is exported
	call   *Error         // where it was declared, for the mistake that nothing is stored
	rows   graph.TensorID // all that an iteration stores, at the end
}

// NewOutput adds an output that returns x; of a variable, its value at the end of the run.
func NewOutput[T Element](name string, x Tensor[T]) Output[T] {
	const call = "popxl.NewOutput"
	out := Output[T]{name, x, 0}
	ir, ids, err := resolve([]Operand{x})
	if err == nil && ids != nil && len(ir.nest) > 0 {
		err = errNested
	}
	if err != nil && ir != nil {
		ir.fail(call, err)
	}
	if err != nil || ids == nil || !ir.claim(call, name) {
		out.t.id = graph.None
		return out
	}
	out.at = len(ir.outputs)
	ir.outputs = append(ir.outputs, export.Port{Name: name, Tensor: x.id})
	ir.written = append(ir.written, declared{})
	return out
}

// DeclareOutput adds an output to which [Output.Store] stores tensors of these sizes: PopXL's d2h_stream. Without sizes it is a scalar. That nothing is stored is a mistake.
func DeclareOutput[T Element](ir *Ir, name string, shape ...int64) Output[T] {
	const call = "popxl.DeclareOutput"
	out := Output[T]{name, Tensor[T]{ir, graph.None}, 0}
	if !ir.usable() {
		return out
	}
	if _, err := elements(shape, TypeOf[T]().Size()); err != nil {
		ir.fail(call, fmt.Errorf("%q: %w", name, err))
		return out
	}
	if !ir.claim(call, name) {
		return out
	}
	out.t.id = ir.b.AddLocal(name, typed[T](shape))
	out.at = len(ir.outputs)
	ir.outputs = append(ir.outputs, export.Port{Name: name, Tensor: out.t.id})
	file, line := caller()
	ir.written = append(ir.written, declared{stores: true, call: &Error{file, line, call, fmt.Errorf("%q: nothing is stored in it: call Output.Store", name)}})
	return out
}

// Store stores a tensor, PopXL's host_store: every call moves one, in a loop one in each iteration, in a [Graph] one whenever it is called.
func (out Output[T]) Store(x Tensor[T]) {
	const call = "popxl.Output.Store"
	ir := out.t.ir
	_, ids, err := resolve([]Operand{x})
	switch {
	case !out.t.Valid() || err == nil && ids == nil:
		return
	case err != nil:
	case ir.taken:
		err = ErrTaken
	case x.ir != ir:
		err = errors.New("the tensor is of another Ir")
	case !ir.written[out.at].stores:
		err = errors.New("it was made with NewOutput, which stores one tensor: make it with DeclareOutput")
	case !slices.Equal(x.Shape(), out.Shape()):
		err = fmt.Errorf("the tensor has shape %s, want %s, which was declared", graph.ShapeString(x.Shape()), graph.ShapeString(out.Shape()))
	default:
		err = ir.store(out.at, x.id)
	}
	if err != nil {
		ir.fail(call, fmt.Errorf("%q: %w", out.name, inner(err)))
	}
}

// Name returns the name of the stream's anchor.
func (out Output[T]) Name() string { return out.name }

// Shape returns the sizes of a tensor that a run returns.
func (out Output[T]) Shape() []int64 { return out.t.Shape() }
