package build

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/popefgen/popefgen/ipu/num"
	"github.com/popefgen/popefgen/onnx"
)

// Tensor is a value of a model: an input, an initializer, or what a node computes. A nil Tensor is an operand that is left out.
type Tensor struct {
	b     *Builder
	frame *frame
	name  string
	node  *node           // that computes it
	value *onnx.Tensor    // of an initializer
	info  *onnx.ValueInfo // its type, if it is declared; without a name

	used   bool // something reads it
	output bool // of the main graph
	seen   bool // a caller knows its name
	bad    bool // the call that should have made it was wrong
}

// Tensors is a list of values.
type Tensors = []*Tensor

// Name returns the name that the value has in the model, "" for a nil Tensor.
func (t *Tensor) Name() string {
	if t == nil {
		return ""
	}
	t.seen, t.used = true, true
	return t.name
}

// tensor returns a value of the current graph.
func (b *Builder) tensor(name string) *Tensor { return &Tensor{b: b, frame: b.current(), name: name} }

// bad returns what a wrong call gives.
func (b *Builder) bad() *Tensor { return &Tensor{b: b, frame: b.frames[0], bad: true} }

// reads reports whether the current graph may read t, and keeps a mistake if it may not; what names the operand.
func (b *Builder) reads(p place, what string, t *Tensor) bool {
	switch {
	case t == nil:
		b.fail(p, "%s is nil, want a value", what)
	case t.b != b:
		b.fail(p, "%s is a value of another Builder, or of none", what)
	case t.frame.ended:
		b.fail(p, "%s, %q, belongs to a subgraph that has ended: return it from the subgraph's function", what, t.name)
	default:
		return true
	}
	return false
}

// Element is a constraint: the Go types of a tensor's elements.
type Element interface {
	bool | int8 | uint8 | int16 | uint16 | int32 | uint32 | int64 | uint64 | float32 | float64 | num.Float16 | num.BFloat16
}

// TensorOf returns a tensor of data, row-major, with dimensions dims; none makes it a scalar. Whether as many elements are there is checked
// where it is used.
func TensorOf[T Element](data []T, dims ...int64) *onnx.Tensor {
	bytes, err := binary.Append(nil, binary.LittleEndian, data)
	if err != nil {
		panic(err) // no type of Element is without a size
	}
	if bytes == nil {
		bytes = []byte{}
	}
	return &onnx.Tensor{Elem: elemOf[T](), Dims: dims, Data: bytes}
}

func elemOf[T Element]() onnx.ElemType {
	var v T
	switch any(v).(type) {
	case bool:
		return onnx.Bool
	case int8:
		return onnx.Int8
	case uint8:
		return onnx.Uint8
	case int16:
		return onnx.Int16
	case uint16:
		return onnx.Uint16
	case int32:
		return onnx.Int32
	case uint32:
		return onnx.Uint32
	case int64:
		return onnx.Int64
	case uint64:
		return onnx.Uint64
	case float32:
		return onnx.Float
	case float64:
		return onnx.Double
	case num.Float16:
		return onnx.Float16
	default:
		return onnx.BFloat16
	}
}

// Const adds a Constant node with data, row-major, and dimensions dims: b.Reshape(x, build.Const(b, []int64{1, -1}, 2)).
func Const[T Element](b *Builder, data []T, dims ...int64) *Tensor {
	if !b.usable() {
		return nil
	}
	return b.Constant(Value(TensorOf(data, dims...)))
}

// check refuses a tensor that is none.
func check(t *onnx.Tensor) error {
	if t == nil {
		return errors.New("the tensor is nil")
	}
	typ := t.Type()
	if !typ.DType.Valid() {
		return fmt.Errorf("the tensor's element type is %v, which is not supported", t.Elem)
	}
	if err := typ.Check(); err != nil {
		return err
	}
	if want := typ.Elements() * int64(typ.DType.Size()); int64(len(t.Data)) != want {
		return fmt.Errorf("the tensor has %d bytes of data, want %d for %v", len(t.Data), want, typ)
	}
	return nil
}
