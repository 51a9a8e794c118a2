package popxl

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/view"
)

// Binding is a slice of the caller's for a stream or a variable of a [Session], which reads or writes it in one call. Elements lie row-major.
type Binding struct {
	ir   *Ir
	name string
	kind bindingKind
	at   int // place among the Ir's inputs, outputs or variables
	id   graph.TensorID
	size int // of an element, in bytes
	data []byte
	used *int  // of an input whose data may be longer: how many tensors of it a run has loaded
	err  error // why there is no data
}

type bindingKind uint8

const (
	feedInput bindingKind = iota + 1
	takeOutput
	setVariable
	getVariable
)

var bindingKinds = [...]string{"binding", "input", "output", "variable", "variable"}

// bind returns the binding of a tensor, which is none if there is no tensor.
func bind[T Element](t Tensor[T], name string, kind bindingKind, at int, data []T) Binding {
	if !t.Valid() {
		return Binding{name: name}
	}
	return Binding{ir: t.ir, name: name, kind: kind, at: at, id: t.id, size: int(unsafe.Sizeof(*new(T))), data: view.SamplesOf(data).Data}
}

// Feed returns what gives data to the input in a run: the elements of one tensor, or of all that it loads ([Ir.Transfers]) in each iteration, back to back.
func (in Input[T]) Feed(data []T) Binding { return bind(in.t, in.name, feedInput, in.at, data) }

// Into returns what makes a run write the output's elements to data, whose length is that of [Output.Make].
func (out Output[T]) Into(data []T) Binding { return bind(out.t, out.name, takeOutput, out.at, data) }

// Make returns a slice that has room for what a run returns: one tensor, or all that it stores in each iteration, back to back. It is nil if there is no output since a call failed.
func (out Output[T]) Make() []T {
	if !out.t.Valid() {
		return nil
	}
	ir := out.t.ir
	return make([]T, size(ir.b.Type(out.t.id).Shape)*ir.iterations*ir.storesOf(out.at)*int64(ir.replicas()))
}

// Set returns what gives the variable a value in [Session.SetVariables].
func (v Variable[T]) Set(data []T) Binding { return bind(v.t, v.name, setVariable, v.at, data) }

// Into returns what makes [Session.Variables] write the variable's elements to data.
func (v Variable[T]) Into(data []T) Binding { return bind(v.t, v.name, getVariable, v.at, data) }

// size returns how many elements a shape has that has been checked.
func size(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return n
}

// check refuses a binding that is not for a call of a session of ir, or whose slice has not as many bytes as that call moves: those of a replica, for count tensors, in each of the replicas.
func (b *Binding) check(ir *Ir, want bindingKind, bytes int, count int64, replicas int) error {
	switch {
	case b.ir == nil:
		return fmt.Errorf("%q: the call that should have added it failed, or it is the zero value", b.name)
	case b.ir != ir:
		return fmt.Errorf("%s %q is of another Ir than the session", bindingKinds[b.kind], b.name)
	case b.kind != want:
		return fmt.Errorf("%s %q: it is given to a call that %s", bindingKinds[b.kind], b.name, takes[want])
	case b.err != nil:
		return fmt.Errorf("%s %q: %w", bindingKinds[b.kind], b.name, b.err)
	}
	all, have := bytes*replicas, len(b.data)
	if have == all {
		return nil
	}
	shape := ir.b.Type(b.id).Shape
	if one := all / int(count); one > 0 && have%one == 0 && want == feedInput {
		switch {
		case have > all && b.used != nil:
			return nil
		case have < all && (count > 1 || b.used != nil):
			return fmt.Errorf("%s %q: %d tensors of shape %s%s, want the %d that a run loads: %w",
				bindingKinds[b.kind], b.name, have/one, graph.ShapeString(shape), ofReplicas(replicas), count, rt.ErrEndOfData)
		}
	}
	switch {
	case replicas > 1:
		shape = slices.Concat([]int64{count, int64(replicas)}, shape)
	case count > 1:
		shape = slices.Concat([]int64{count}, shape)
	}
	return fmt.Errorf("%s %q: %d elements, want the %d of shape %s", bindingKinds[b.kind], b.name, have/b.size, all/b.size, graph.ShapeString(shape))
}

// ofReplicas says of how many replicas something is, if there are several.
func ofReplicas(n int) string {
	if n == 1 {
		return ""
	}
	return fmt.Sprintf(" of each of %d replicas", n)
}

var takes = [...]string{"", "takes inputs and outputs", "takes inputs and outputs", "takes values to set: Variable.Set", "takes slices to write to: Variable.Into"}
