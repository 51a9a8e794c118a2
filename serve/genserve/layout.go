// Package genserve is what generated code calls to serve its model and to be a client of a server: it moves between the
// tables of package oip, which servers and transports read, and views of the typed structs. Users
// need nothing of it: the generated package has what they name.
package genserve

import (
	"context"
	"errors"
	"fmt"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
	"github.com/popefgen/popefgen/serve/oip"
)

// Package is what generated code says of itself.
type Package[In, Out any] struct {
	Spec *oip.Spec
	Open bool // tensors may have open dimensions: the model has several sizes
	// Fields are the fields with the sizes of open axes, by tensor, inputs first, and then by axis, as their
	// indices in the tensor's type, -1 for axes that are not open; nil: each open axis has the next field.
	Fields [][]int
	// Views views a request: every input, and then every output.
	Views func(in *In, out *Out, v []genrt.View)
}

// layout is how the bytes of a tensor lie in its Go type.
type layout struct {
	tensor *oip.Tensor
	fields []int // by axis, -1 if it is not open
	open   int   // axes up to the last open one
	bytes  int   // of an element of the slice, all axes behind that; of a tensor without open axes all of it
	most   int   // elements of the slice at most
}

// layouts returns those of every input, and then of every output.
func (p *Package[In, Out]) layouts() []layout {
	var all []layout
	for _, tensors := range [][]oip.Tensor{p.Spec.Inputs, p.Spec.Outputs} {
		for i := range tensors {
			t := &tensors[i]
			l := layout{tensor: t, bytes: t.Type.Size(), most: 1}
			if p.Fields != nil {
				l.fields = p.Fields[len(all)]
			}
			next := 0
			for a, n := range t.Shape {
				if p.Fields == nil {
					l.fields = append(l.fields, -1)
				}
				if n < 0 {
					l.open = a + 1
					if p.Fields == nil {
						l.fields[a] = next
						next++
					}
				}
			}
			for a := range t.Shape {
				if a < l.open {
					l.most *= int(t.Largest(a))
				} else {
					l.bytes *= int(t.Shape[a])
				}
			}
			all = append(all, l)
		}
	}
	return all
}

// resize makes the tensor one of that shape and returns its memory. A tensor without open dimensions must have
// the largest shape there is.
func (l *layout) resize(v genrt.View, shape []int64) ([]byte, error) {
	if !v.IsOpen() {
		for a := range l.open {
			if shape[a] != l.tensor.Largest(a) {
				return nil, l.unfit(shape, fmt.Sprintf("want %d", l.tensor.Largest(a)))
			}
		}
		return v.Memory(l.most * l.bytes), nil
	}
	for a, k := range l.fields {
		if k >= 0 {
			v.SetSize(k, int(shape[a]))
		}
	}
	n := 1
	for a, d := range shape[:l.open] {
		if k := l.fields[a]; k >= 0 && v.Size(k) != int(d) {
			return nil, l.unfit(shape, fmt.Sprintf("size %d of axis %d is also that of another axis, with %d", d, a, v.Size(k)))
		}
		n *= int(d)
	}
	v.Resize(n, l.bytes)
	return v.Memory(l.bytes), nil
}

func (l *layout) unfit(shape []int64, why string) error {
	return oip.Errorf(oip.InvalidArgument, "tensor '%s' can not have the shape %d: %s", l.tensor.Name, append([]int64(nil), shape...), why)
}

// read returns the memory of the tensor and its shape, which it writes to shape. The memory is nil if there is no tensor.
func (l *layout) read(v genrt.View, shape []int64) []byte {
	if !v.IsOpen() {
		for a := range shape {
			shape[a] = l.tensor.Largest(a)
		}
		return v.Memory(l.most * l.bytes)
	}
	for a, n := range l.tensor.Shape {
		if k := l.fields[a]; k >= 0 {
			n = int64(v.Size(k))
		}
		shape[a] = n
	}
	return v.Memory(l.bytes)
}

// shapes returns room for the shape of each tensor.
func shapes(of []layout) [][]int64 {
	out := make([][]int64, len(of))
	for i := range of {
		out[i] = make([]int64, len(of[i].tensor.Shape))
	}
	return out
}

// failure returns the error that a client gets for one of the runtime.
func failure(err error) error {
	var e *oip.Error
	code := oip.Internal
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		code = oip.Deadline
	case errors.Is(err, context.Canceled):
		code = oip.Canceled
	case errors.Is(err, rt.ErrClosed):
		code = oip.Unavailable
	case errors.Is(err, rt.ErrOverloaded), errors.Is(err, rt.ErrQueueFull):
		code = oip.Exhausted
	case errors.Is(err, rt.ErrSize), errors.Is(err, rt.ErrLength):
		code = oip.InvalidArgument
	}
	return &oip.Error{Code: code, Text: err.Error(), Cause: err}
}

// Tensor returns the memory of a tensor and its shape: by its index among the inputs and then the outputs, and as Views shows
// it. It is for tests.
func (p *Package[In, Out]) Tensor(i int, v genrt.View) ([]byte, []int64) {
	l := p.layouts()[i]
	shape := make([]int64, len(l.tensor.Shape))
	return l.read(v, shape), shape
}
