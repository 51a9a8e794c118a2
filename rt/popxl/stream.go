package popxl

import (
	"fmt"

	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/ipu/graph"
)

// Input is a stream from the host: a run moves one tensor over it, or one an iteration ([Ir.SetIterations]).
type Input[T Element] struct {
	name string
	t    Tensor[T]
	at   int // among the Ir's inputs
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
	return in
}

// Name returns the name of the stream's anchor.
func (in Input[T]) Name() string { return in.name }

// Load returns the tensor that the run was given. Loading it again gives the same one.
func (in Input[T]) Load() Tensor[T] { return in.t }

// Output is a stream to the host: a run moves one tensor over it, or one an iteration.
type Output[T Element] struct {
	name string
	t    Tensor[T]
	at   int // among the Ir's outputs
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
	return out
}

// Name returns the name of the stream's anchor.
func (out Output[T]) Name() string { return out.name }

// Shape returns the sizes of what a run returns.
func (out Output[T]) Shape() []int64 { return out.t.Shape() }
