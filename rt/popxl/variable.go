package popxl

import (
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/ipu/graph"
)

// Variable is a tensor that keeps its value from one run to the next, and whose first value the model's file carries as a weight. The host can
// give it another one when the model is loaded; a run changes it with [Variable.Assign].
type Variable[T Element] struct {
	name string
	t    Tensor[T]
	at   int // among the Ir's variables
}

// NewVariable adds a variable with that initial value, row-major, which is copied. Without sizes it is a scalar.
func NewVariable[T Element](ir *Ir, name string, data []T, shape ...int64) Variable[T] {
	const call = "popxl.NewVariable"
	v := Variable[T]{name, Tensor[T]{ir, graph.None}, 0}
	if !ir.usable() {
		return v
	}
	value, err := encode(data, shape)
	if err != nil {
		ir.fail(call, fmt.Errorf("%q: %w", name, err))
		return v
	}
	if !ir.claim(call, name) {
		return v
	}
	v.t.id = ir.b.AddPersistent(name, typed[T](shape))
	v.at = len(ir.weights)
	ir.weights = append(ir.weights, export.Weight{Port: export.Port{Name: name, Tensor: v.t.id}, Value: value})
	return v
}

// NewRemoteVariable is [NewVariable] for a variable in the memory beside an IPU, PopXL's remote_variable: a value for code that is carried over, which says so at the end. No device of this module has such memory, so [Ir.Export] and
// [NewSession] refuse the Ir, and name the variable.
func NewRemoteVariable[T Element](ir *Ir, name string, data []T, shape ...int64) Variable[T] {
	v := NewVariable(ir, name, data, shape...)
	if v.t.Valid() {
		file, line := caller()
		ir.remote = append(ir.remote, &Error{file, line, "popxl.NewRemoteVariable", fmt.Errorf("%q: no device here has remote memory, neither the CPU nor its ipu_model: take NewVariable", name)})
	}
	return v
}

// Name returns the name of the variable's anchor.
func (v Variable[T]) Name() string { return v.name }

// Tensor returns the variable's value: operators that are added behind an [Variable.Assign] read the new one, also through a tensor that was taken
// before.
func (v Variable[T]) Tensor() Tensor[T] { return v.t }

// Assign gives the variable another value at this point of a run: x, of its shape. It is PopXL's copy_var_update_.
func (v Variable[T]) Assign(x Tensor[T]) {
	const call = "popxl.Variable.Assign"
	ir, ids, err := resolve([]Operand{v.t, x})
	switch {
	case ir == nil || err == nil && ids == nil:
	case err != nil:
		ir.fail(call, err)
	case ir.taken:
		ir.fail(call, ErrTaken)
	case len(ir.nest) > 0:
		ir.fail(call, errNested)
	case !slices.Equal(v.t.Shape(), x.Shape()):
		ir.fail(call, fmt.Errorf("variable %q has shape %s and the value %s, want the same", v.name, graph.ShapeString(v.t.Shape()), graph.ShapeString(x.Shape())))
	default:
		ir.enter(update)
		if err := ir.b.NodeTo(&graph.Reshape{Shape: x.Shape()}, ir.scoped(call), []graph.TensorID{v.t.id}, x.id); err != nil {
			ir.fail(call, err)
		}
	}
}
