package popxl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
)

// Tensor is a value of a graph with elements of type T. The zero Tensor is
// none: operators refuse it.
type Tensor[T Element] struct {
	ir *Ir
	id graph.TensorID // graph.None if the call that should have made it failed
}

// Operand is a [Tensor] of any element type.
type Operand interface {
	operand() (*Ir, graph.TensorID)
	with(*Ir, graph.TensorID) Operand // a tensor of the same element type
}

func (t Tensor[T]) operand() (*Ir, graph.TensorID) { return t.ir, t.id }

func (t Tensor[T]) with(ir *Ir, id graph.TensorID) Operand { return Tensor[T]{ir, id} }

// Ir returns the Ir that t is of, nil for the zero Tensor.
func (t Tensor[T]) Ir() *Ir { return t.ir }

// Shape returns the sizes, outermost first; nil if there is no tensor since a call failed.
func (t Tensor[T]) Shape() []int64 {
	if !t.ir.usable() {
		return nil
	}
	return slices.Clone(t.ir.b.Type(t.id).Shape)
}

// Valid reports whether there is a tensor: the call that made t did not fail.
func (t Tensor[T]) Valid() bool { return t.ir.usable() && t.id != graph.None }

// Fail keeps a mistake in the call of that name, for functions that check more than [Apply] does, and returns a tensor
// that other calls pass on without a word.
func Fail[T Element](ir *Ir, call string, err error) Tensor[T] {
	ir.fail(call, err)
	return Tensor[T]{ir, graph.None}
}

// Failed returns the tensor of a call that failed, whose mistake has been kept: other calls pass it on without a word.
func Failed[T Element](ir *Ir) Tensor[T] { return Tensor[T]{ir, graph.None} }

// Apply applies an operator of the portable executable and returns its first result: what package ops is made of, and
// the way to operators that it lacks. The call's name stands in errors and names the node. An Operand
// that is nil is left out where op allows it. It is an error if the result's elements are not of type T.
func Apply[T Element](call string, op graph.Op, operands ...Operand) Tensor[T] {
	ir, made := apply(call, op, operands)
	if len(made) == 0 {
		return Tensor[T]{ir, graph.None}
	}
	return result[T](ir, call, made[0])
}

// Apply2 is [Apply] for an operator of which the first two results are wanted.
func Apply2[T, U Element](call string, op graph.Op, operands ...Operand) (Tensor[T], Tensor[U]) {
	ir, made := apply(call, op, operands)
	switch {
	case len(made) == 0:
		return Tensor[T]{ir, graph.None}, Tensor[U]{ir, graph.None}
	case len(made) == 1:
		return result[T](ir, call, made[0]), Fail[U](ir, call, fmt.Errorf("%s has one result, want two", op.Kind()))
	}
	return result[T](ir, call, made[0]), result[U](ir, call, made[1])
}

// Apply3 is [Apply] for an operator of which the first three results are wanted.
func Apply3[T, U, V Element](call string, op graph.Op, operands ...Operand) (Tensor[T], Tensor[U], Tensor[V]) {
	ir, made := apply(call, op, operands)
	switch {
	case len(made) == 0:
		return Tensor[T]{ir, graph.None}, Tensor[U]{ir, graph.None}, Tensor[V]{ir, graph.None}
	case len(made) < 3:
		return result[T](ir, call, made[0]), Tensor[U]{ir, graph.None}, Fail[V](ir, call, fmt.Errorf("%s has %d results, want three", op.Kind(), len(made)))
	}
	return result[T](ir, call, made[0]), result[U](ir, call, made[1]), result[V](ir, call, made[2])
}

// apply returns the Ir of the operands and the operator's results, none if the call failed.
func apply(call string, op graph.Op, operands []Operand) (*Ir, []graph.TensorID) {
	ir, ids, err := resolve(operands)
	switch {
	case ir == nil || err == nil && ids == nil:
		return ir, nil
	case err != nil:
	case op == nil:
		err = errors.New("the operator is nil")
	case ir.taken:
		err = ErrTaken
	}
	var made []graph.TensorID
	if err == nil {
		made, err = ir.node(op, ir.scoped(call), ids)
		err = inner(err)
	}
	if err == nil && len(made) == 0 {
		err = fmt.Errorf("%s has no result", op.Kind())
	}
	if err != nil {
		ir.fail(call, err)
		return ir, nil
	}
	return ir, made
}

// result returns a result of an operator as a tensor of the type that it should have.
func result[T Element](ir *Ir, call string, id graph.TensorID) Tensor[T] {
	if got := ir.b.Type(id).DType; got != TypeOf[T]() {
		return Fail[T](ir, call, fmt.Errorf("the result is %s, want %s", got, TypeOf[T]()))
	}
	return Tensor[T]{ir, id}
}

// inner returns the error of a node without the node, which the call stands for.
func inner(err error) error {
	if in := errors.Unwrap(err); in != nil && !errors.Is(err, ipu.ErrPanic) {
		return in
	}
	return err
}

// node appends a node. An operator that a caller made can be anything, a nil pointer too.
func (ir *Ir) node(op graph.Op, name string, operands []graph.TensorID) (made []graph.TensorID, err error) {
	defer ipu.Guard(&err)
	made, err = ir.b.Node(op, name, operands...)
	ir.own(made...)
	return made, err
}

// of returns what an operand stands for. A nil pointer to a Tensor is an Operand, too, and stands for no tensor.
func of(o Operand) (ir *Ir, id graph.TensorID) {
	if isNil(o) {
		return nil, graph.None
	}
	return o.operand()
}

func isNil(o Operand) bool {
	v := reflect.ValueOf(o)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// resolve returns the Ir of operands and their numbers: nil if one of them comes from a call that failed.
func resolve(operands []Operand) (*Ir, []graph.TensorID, error) {
	var ir *Ir
	for _, o := range operands {
		if o == nil {
			continue
		}
		if has, _ := of(o); has.usable() {
			ir = has
			break
		}
	}
	ids := make([]graph.TensorID, len(operands))
	failed := false
	for i, o := range operands {
		if o == nil {
			ids[i] = graph.None
			continue
		}
		has, id := of(o)
		switch {
		case !has.usable():
			return ir, nil, fmt.Errorf("operand %d is the zero Tensor", i)
		case has != ir:
			return ir, nil, fmt.Errorf("operand %d is of another Ir", i)
		case !ir.reachable(id):
			return ir, nil, fmt.Errorf("operand %d belongs to the function of a loop, a choice or a graph: return it from there", i)
		}
		ids[i], failed = id, failed || id == graph.None
	}
	if failed {
		return ir, nil, nil
	}
	return ir, ids, nil
}

// Constant returns a tensor with the given elements, row-major, which are
// copied. Without sizes it is a scalar of one element.
func Constant[T Element](ir *Ir, data []T, shape ...int64) Tensor[T] {
	const call = "popxl.Constant"
	if !ir.usable() {
		return Tensor[T]{}
	}
	if ir.taken {
		return Fail[T](ir, call, ErrTaken)
	}
	b, err := encode(data, shape)
	if err != nil {
		return Fail[T](ir, call, err)
	}
	return Tensor[T]{ir, ir.b.AddConst(ir.scoped("constant"), typed[T](shape), b)}
}

func typed[T Element](shape []int64) graph.TensorType {
	return graph.TensorType{DType: TypeOf[T](), Shape: slices.Clone(shape)}
}

// encode returns data as it lies in a file.
func encode[T Element](data []T, shape []int64) ([]byte, error) {
	n, err := elements(shape, TypeOf[T]().Size())
	if err != nil {
		return nil, err
	}
	if int64(len(data)) != n {
		return nil, fmt.Errorf("%d elements, want the %d of shape %s", len(data), n, graph.ShapeString(shape))
	}
	return binary.Append(nil, binary.LittleEndian, data)
}
