package dynamic

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/gen/plan"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/rt/genrt"
	"github.com/popefgen/popefgen/serve/internal/wire"
	"github.com/popefgen/popefgen/serve/oip"
)

// shape is what is decided about a model when it is opened: by package plan, as for a package that is generated.
type shape struct {
	spec    oip.Spec
	rt      *genrt.Spec
	several bool     // of a model of several sizes, or of which data decides sizes
	ins     []tensor // as in spec
	outs    []tensor
}

// tensor is an input or output in memory.
type tensor struct {
	elem   int   // bytes of an element of its slice: of all axes behind the last open one; of samples those of one
	fixed  int   // elements of the slice for each of the open axes' elements
	open   []int // by axis: the field with its size, -1 of a fixed one; nil if all are fixed
	fields int   // how many fields
	axis   []int // by field: the first axis that it is of
	bytes  int   // most bytes

	elemType popef.DataType
	least    []int64 // the shape of the smallest member, of samples of one
}

// shapeOf decides about a model.
func shapeOf(ctx context.Context, m *popef.Model, o *options) (*shape, error) {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%s: %w: "+format, append([]any{o.name, ErrUnserved}, args...)...)
	}
	p, err := planOf(ctx, m, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.name, err)
	}
	switch {
	case p.Branches != nil:
		var names []string
		for _, b := range p.Branches {
			names = append(names, fmt.Sprintf("%q", b.Name))
		}
		return nil, refuse("it has several main programs that are models of their own, %s; serve the files of which it was made", strings.Join(names, ", "))
	case len(p.LoadInputs) > 0:
		a := p.Anchors[p.LoadInputs[0].Anchor]
		return nil, refuse("its file has no data for anchor %q (%s), which the model reads once, before the first request; store the data in the file", a.Name, a.Info)
	case len(p.Inputs) == 0 && len(p.Outputs) == 0:
		return nil, refuse("it has neither inputs nor outputs of a run")
	case len(p.Inputs) > wire.MaxTensors || len(p.Outputs) > wire.MaxTensors:
		return nil, refuse("it has %d inputs and %d outputs, and requests name at most %d of each", len(p.Inputs), len(p.Outputs), wire.MaxTensors)
	}
	s := &shape{
		spec:    oip.Spec{Name: o.name, Contract: p.ContractText},
		rt:      &genrt.Spec{Package: o.name, Contract: p.ContractText, Iterations: p.DeviceIterations, QueueDepth: p.QueueDepth, Batch: int(p.BatchSize)},
		several: p.Family != nil,
	}
	if p.BatchSize > 0 {
		s.spec.Samples = int(p.BatchSize) * p.DeviceIterations
	}
	for _, group := range []struct {
		fields []plan.Field
		role   contract.Role
		to     *[]oip.Tensor
		mem    *[]tensor
	}{{p.Inputs, contract.RunInput, &s.spec.Inputs, &s.ins}, {p.Outputs, contract.RunOutput, &s.spec.Outputs, &s.outs}} {
		for _, f := range group.fields {
			a, t := &p.Anchors[f.Anchor], &p.Tensors[f.Tensor]
			x, mem := s.tensor(p, f)
			x.Labels = o.labels[x.Name]
			*group.to, *group.mem = append(*group.to, x), append(*group.mem, mem)
			spec := genrt.AnchorSpec{Name: a.Name, Handle: a.Handle, GoName: a.Memory, Role: group.role, Bytes: int(t.Bytes), Blocks: int(t.Blocks)}
			for _, open := range t.Open {
				spec.Open = append(spec.Open, genrt.OpenAxis{Axis: open.Axis, Name: t.Fields[open.Field].Name})
			}
			s.rt.Anchors = append(s.rt.Anchors, spec)
		}
	}
	for name := range o.labels {
		if !slices.ContainsFunc(s.spec.Outputs, func(t oip.Tensor) bool { return t.Name == name }) {
			return nil, fmt.Errorf("%s: labels of output %q: the model has no such output", o.name, name)
		}
	}
	return s, nil
}

// planOf returns the plan of the package that would be generated, in which the first dimension counts samples wherever that
// is proven, or said.
func planOf(ctx context.Context, m *popef.Model, o *options) (*plan.Plan, error) {
	opts := plan.Options{Context: ctx, Package: "served", ModelBase: "model.popef", NoQueues: true, BatchDim: o.batchDim}
	p, err := plan.Build(m, opts, nil)
	if err != nil {
		return nil, err
	}
	if p.BatchSize > 0 && p.Family != nil && !firstOf(p) {
		p.BatchSize = 0 // requests count samples along the first axis; the sizes themselves are served
	}
	if o.batchDim != nil || p.Family != nil || p.Branches != nil || p.DeviceIterations > 1 || !portable(m) || !batched(p) {
		return p, nil
	}
	opts.BatchDim = new(int)
	if counted, err := plan.Build(m, opts, nil); err == nil {
		return counted, nil
	}
	return p, ctx.Err()
}

// firstOf reports whether the open dimension of a family is the first of all inputs and outputs.
func firstOf(p *plan.Plan) bool {
	for _, f := range slices.Concat(p.Inputs, p.Outputs) {
		if t := &p.Tensors[f.Tensor]; len(t.Open) != 1 || t.Open[0].Axis != 0 {
			return false
		}
	}
	return true
}

// batched reports whether the first dimension of all inputs and outputs may count more than one sample.
func batched(p *plan.Plan) bool {
	size := int64(0)
	for _, f := range slices.Concat(p.Inputs, p.Outputs) {
		t := &p.Tensors[f.Tensor]
		if len(t.Shape) == 0 || t.Shape[0] < 2 || size > 0 && t.Shape[0] != size {
			return false
		}
		size = t.Shape[0]
	}
	return size > 0
}

// portable reports whether the model's executable is one in which the independence of samples can be proven.
func portable(m *popef.Model) bool {
	if m.ExecutableBlob() == nil {
		return false
	}
	data, err := m.Executable()
	return err == nil && ipu.Identify(data) == ipu.FormatPortable
}

// tensor describes a field for requests, and in memory.
func (s *shape) tensor(p *plan.Plan, f plan.Field) (oip.Tensor, tensor) {
	a, t, c := &p.Anchors[f.Anchor], &p.Tensors[f.Tensor], &p.Contract
	of := c.Fields[f.Anchor]
	x := oip.Tensor{Name: a.Memory, Type: DataType(of.Info.DataType)}
	mem := tensor{elem: int(t.Bytes), fixed: 1, elemType: of.Info.DataType}
	switch {
	case t.IsOpen():
		mem.open, mem.fields, mem.axis = make([]int, len(of.Axes)), len(t.Fields), make([]int, len(t.Fields))
		for i := range mem.open {
			mem.open[i] = -1
		}
		for _, open := range slices.Backward(t.Open) {
			mem.open[open.Axis], mem.axis[open.Field] = open.Field, open.Axis
		}
		for _, l := range t.Lead {
			if l.Field < 0 {
				mem.fixed *= int(l.Size)
			}
		}
		for i := range of.Axes {
			size, most := int64(-1), int64(0)
			for k := range c.Members {
				most = max(most, c.Shape(f.Anchor, k)[i])
			}
			if len(c.Members) == 0 { // only data decides sizes
				most = of.Axes[i].Size
			}
			if mem.open[i] < 0 {
				size = most
			}
			x.Shape, x.Max = append(x.Shape, size), append(x.Max, most)
		}
		if len(c.Members) > 0 {
			mem.least = c.Shape(f.Anchor, 0)
		}
	case p.BatchSize > 0:
		n := p.BatchSize * int64(p.DeviceIterations)
		x.Shape = append([]int64{-1}, t.SampleShape...)
		x.Max = append([]int64{n}, t.SampleShape...)
		mem.elem = int(t.Bytes / p.BatchSize)
	default:
		x.Shape = slices.Clone(t.Shape)
		if f.Iterated {
			x.Shape = append([]int64{int64(p.DeviceIterations)}, x.Shape...)
			mem.elem *= p.DeviceIterations
		}
	}
	mem.bytes = int(x.MaxBytes())
	if mem.least == nil {
		mem.least = slices.Clone(x.Shape)
	}
	if p.BatchSize > 0 {
		mem.least[0] = 1
	}
	for i, n := range mem.least {
		if n < 0 {
			mem.least[i] = x.Max[i] // only data decides it
		}
	}
	return x, mem
}
