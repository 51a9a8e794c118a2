package graph

import "fmt"

// Field is a tensor of type To and of Shape whose elements stand, row-major, in the bytes of x from
// Offset on. It is how a transfer that has several inputs side by side is taken apart: no data
// is moved where an engine can read x in place.
type Field struct {
	Handle string // stream handle that the tensor has where it is an input of its own
	Offset int64  // bytes; a multiple of the size of an element
	To     DType
	Shape  []int64
}

// Kind returns "Field".
func (*Field) Kind() string { return "Field" }

// Infer implements [Op].
func (o *Field) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x")
	if err != nil {
		return nil, err
	}
	out, err := results(TensorType{o.To, o.Shape})
	if err != nil {
		return nil, err
	}
	size, have := int64(o.To.Size()), in[0].Bytes()
	switch {
	case o.Handle == "":
		return nil, fmt.Errorf("attribute Handle is empty, want the stream handle of the field")
	case o.Offset < 0 || o.Offset%size != 0:
		return nil, fmt.Errorf("attribute Offset is %d, want a multiple of the %d bytes of an element of %v", o.Offset, size, o.To)
	case o.Offset > have || out[0].Bytes() > have-o.Offset:
		return nil, fmt.Errorf("%v from byte %d on ends behind x, %v of %d bytes", out[0], o.Offset, in[0], have)
	}
	return out, nil
}
