package dynamic

import (
	"context"
	"errors"
	"slices"
	"unsafe"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
	"github.com/popefgen/popefgen/serve/oip"
)

// call is the memory of one request.
type call struct {
	model   *Model
	ins     []value
	outs    []value
	samples []genrt.Samples // of a model that counts samples
	views   []genrt.View    // of a model of several sizes
}

// value is an input or output of a call.
type value struct {
	mem    []byte  // what it has, and the room behind it
	shape  []int64 // of the request
	data   []byte  // of one with open sizes, as package genrt sees it: its length counts elements of the slice, which are larger
	fields []int   // sizes, as it sees them
}

// NewCall returns memory for one request. What a request needs it takes when its inputs come.
func (m *Model) NewCall() oip.Call {
	s := m.shape
	c := &call{model: m, ins: make([]value, len(s.ins)), outs: make([]value, len(s.outs))}
	for _, group := range []struct {
		values []value
		mem    []tensor
		spec   []oip.Tensor
	}{{c.ins, s.ins, s.spec.Inputs}, {c.outs, s.outs, s.spec.Outputs}} {
		for i := range group.values {
			v, t := &group.values[i], &group.mem[i]
			v.shape = slices.Clone(group.spec[i].Shape)
			if t.fields > 0 {
				v.fields = make([]int, t.fields)
			}
		}
	}
	switch {
	case s.spec.Samples > 0:
		c.samples = make([]genrt.Samples, len(c.ins)+len(c.outs))
	case s.several:
		c.views = make([]genrt.View, 0, len(c.ins)+len(c.outs))
		for i := range c.ins {
			c.view(&c.ins[i], &s.ins[i])
		}
		for i := range c.outs {
			c.view(&c.outs[i], &s.outs[i])
		}
	}
	return c
}

// view adds what package genrt sees of a value. One without open sizes needs its memory for that.
func (c *call) view(v *value, t *tensor) {
	if v.fields == nil {
		v.mem = aligned(max(t.bytes, 1))[:t.bytes]
		c.views = append(c.views, genrt.Whole(unsafe.SliceData(v.mem)))
		return
	}
	c.views = append(c.views, genrt.Open(&v.fields[0], &v.data))
}

// aligned returns memory that begins where a cache line does, as engines like it.
func aligned(n int) []byte {
	const line = 64
	mem := make([]byte, n+line)
	at := int(-uintptr(unsafe.Pointer(unsafe.SliceData(mem))) & (line - 1))
	return mem[at : at+n : at+n]
}

// grow makes the memory of a value n bytes long.
func (v *value) grow(n int) {
	if n > cap(v.mem) || v.mem == nil {
		v.mem = aligned(max(n, 1))
	}
	v.mem = v.mem[:n]
}

// bytesOf returns how many bytes a tensor has in that shape, of sizes that were checked.
func (t *tensor) bytesOf(shape []int64, elem int) int {
	n := elem
	for _, d := range shape {
		n *= int(d)
	}
	return n
}

// Input returns the memory of input i with that shape.
func (c *call) Input(i int, shape []int64) ([]byte, error) {
	s := c.model.shape
	v, t := &c.ins[i], &s.ins[i]
	copy(v.shape, shape)
	v.grow(t.bytesOf(v.shape, s.spec.Inputs[i].Type.Size()))
	for f, axis := range t.axis {
		v.fields[f] = int(v.shape[axis])
	}
	if v.fields != nil {
		for axis, f := range t.open {
			if f >= 0 && v.fields[f] != int(v.shape[axis]) {
				return nil, oip.Errorf(oip.InvalidArgument, "input '%s' for model '%s' has %d and %d along axes %d and %d, which have one size",
					s.spec.Inputs[i].Name, s.spec.Name, v.fields[f], v.shape[axis], t.axis[f], axis)
			}
		}
		v.data = unsafe.Slice(unsafe.SliceData(v.mem), len(v.mem)/t.elem)
	}
	c.provide()
	return v.mem, nil
}

// provide makes memory for the outputs, as much as the inputs that came until now ask for.
func (c *call) provide() {
	s := c.model.shape
	n := 0
	for i := range c.ins {
		if s.spec.Samples > 0 {
			n = max(n, len(c.ins[i].mem)/max(1, s.ins[i].elem))
		}
	}
	for i := range c.outs {
		v, t := &c.outs[i], &s.outs[i]
		switch {
		case s.spec.Samples > 0:
			v.grow(n * t.elem)
		case v.mem == nil:
			v.grow(t.bytes)
			if v.fields != nil {
				v.data = unsafe.Slice(unsafe.SliceData(v.mem), t.bytes/t.elem)
			}
		}
	}
}

// Run computes the outputs of the inputs.
func (c *call) Run(ctx context.Context) error {
	m, s := c.model, c.model.shape
	if len(c.ins) == 0 {
		c.provide()
	}
	var err error
	switch {
	case s.spec.Samples > 0:
		err = c.runSamples(ctx)
	case s.several:
		err = m.family.Run(ctx, rt.LeastBusy, c.views)
	default:
		err = c.runWhole(ctx)
	}
	if err != nil {
		return s.failed(err)
	}
	return nil
}

// runWhole runs a model of one size, on all of it.
func (c *call) runWhole(ctx context.Context) error {
	m := c.model
	replica, err := m.core.Begin(ctx, rt.LeastBusy)
	if err != nil {
		return err
	}
	ports := m.ports[replica]
	for i := range c.ins {
		_ = ports[i].Bind(c.ins[i].mem) // its length is that of the tensor, or the runtime says that it has no memory
	}
	for i := range c.outs {
		_ = ports[len(c.ins)+i].Bind(c.outs[i].mem)
	}
	return m.core.Main(ctx, replica)
}

// runSamples runs samples, which may share their batch with those of other calls.
func (c *call) runSamples(ctx context.Context) error {
	n := -1
	var err error
	for i := range c.ins {
		v := &c.ins[i]
		if n >= 0 && int(v.shape[0]) != n {
			in := c.model.shape.spec.Inputs
			return oip.Errorf(oip.InvalidArgument, "input '%s' of model '%s' has %d samples, but input '%s' has %d", in[i].Name, c.model.shape.spec.Name, v.shape[0], in[0].Name, n)
		}
		n = int(v.shape[0])
		if c.samples[i], err = genrt.RawSamples(v.mem, n); err != nil {
			return err
		}
	}
	n = max(n, 1) // a model without inputs
	for i := range c.outs {
		v := &c.outs[i]
		v.grow(n * c.model.shape.outs[i].elem)
		v.shape[0] = int64(n)
		if c.samples[len(c.ins)+i], err = genrt.RawSamples(v.mem, n); err != nil {
			return err
		}
	}
	return c.model.core.RunSamples(ctx, rt.LeastBusy, c.samples...)
}

// Output returns output i of the last Run and its shape.
func (c *call) Output(i int) ([]byte, []int64) {
	v, t := &c.outs[i], &c.model.shape.outs[i]
	if v.fields == nil || c.samples != nil {
		return v.mem, v.shape
	}
	for axis, f := range t.open {
		if f >= 0 {
			v.shape[axis] = int64(v.fields[f])
		}
	}
	return unsafe.Slice(unsafe.SliceData(v.data), len(v.data)*t.elem), v.shape
}

// failed returns the error of a request as clients see it.
func (s *shape) failed(err error) error {
	var known *oip.Error
	var size *rt.SizeError
	var assertion *ipu.AssertionError
	switch {
	case errors.As(err, &known):
		return err
	case errors.As(err, &size):
		return &oip.Error{Code: oip.InvalidArgument, Text: "unexpected shape for model '" + s.spec.Name + "': " + size.Error(), Cause: err}
	case errors.As(err, &assertion):
		return &oip.Error{Code: oip.InvalidArgument, Text: "model '" + s.spec.Name + "' does not take these values: " + assertion.Error(), Cause: err}
	case errors.Is(err, rt.ErrSamples), errors.Is(err, rt.ErrLength):
		return &oip.Error{Code: oip.InvalidArgument, Text: err.Error(), Cause: err}
	}
	return err
}
