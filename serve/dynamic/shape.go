package dynamic

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/gen/plan"
	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/rt/genrt"
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
	open   []int // by axis: the field with its size, -1 of a fixed one; nil if all are fixed
	fields int   // how many fields
	axis   []int // by field: the first axis that it is of
	bytes  int   // most bytes

	elemType popef.DataType
	least    []int64 // the shape of the smallest member, of samples of one
}

// shapeOf decides about a model.
func shapeOf(ctx context.Context, m *popef.Model, o *options) (*shape, error) {
	room := budget.From(ctx).Part(0)
	defer room.Release() // the plan is gone when its decisions are taken
	p, err := planOf(budget.Into(ctx, room), m, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", o.name, ErrUnserved, err)
	}
	if len(p.LoadInputs) > 0 {
		a := p.Anchors[p.LoadInputs[0].Anchor]
		return nil, fmt.Errorf("%s: %w: its file has no data for anchor %q (%s), which the model reads once, before the first request; store the data in the file", o.name, ErrUnserved, a.Name, a.Info)
	}
	s := &shape{
		spec:    oip.Spec{Name: o.name, Contract: p.ContractText, Samples: int(p.Serve.Samples)},
		rt:      &genrt.Spec{Package: o.name, Contract: p.ContractText, Iterations: p.DeviceIterations, QueueDepth: p.QueueDepth, Batch: int(p.BatchSize)},
		several: p.Family != nil,
	}
	for _, group := range []struct {
		fields []plan.Field
		served []plan.ServedTensor
		role   contract.Role
		to     *[]oip.Tensor
		mem    *[]tensor
	}{{p.Inputs, p.Serve.Inputs, contract.RunInput, &s.spec.Inputs, &s.ins}, {p.Outputs, p.Serve.Outputs, contract.RunOutput, &s.spec.Outputs, &s.outs}} {
		for i, f := range group.fields {
			a, t := &p.Anchors[f.Anchor], &p.Tensors[f.Tensor]
			x, mem := tensorOf(p, f, &group.served[i])
			x.Labels = o.labels[x.Name]
			*group.to, *group.mem = append(*group.to, x), append(*group.mem, mem)
			spec := genrt.AnchorSpec{Name: a.Name, Handle: a.Handle, GoName: x.Name, Role: group.role, Bytes: int(t.Bytes), Blocks: int(t.Blocks)}
			if f.Uneven {
				spec.Transfers = f.Transfers
			}
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
	opts := plan.Options{Context: ctx, Package: "served", ModelBase: "model.popef", NoQueues: true, Serve: true, BatchDim: o.batchDim}
	p, err := plan.Build(m, opts, nil)
	if err != nil {
		return nil, err
	}
	if p.Serve.Samples == 0 {
		p.BatchSize = 0 // requests are whole runs: each of a size
	}
	if o.batchDim != nil || p.Family != nil || p.Branches != nil || p.Repeated() || !portable(m) || !batched(p) {
		return p, nil
	}
	opts.BatchDim = new(int)
	if counted, err := plan.Build(m, opts, nil); err == nil {
		return counted, nil
	}
	return p, ctx.Err()
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

// tensorOf describes a field for requests, and in memory.
func tensorOf(p *plan.Plan, f plan.Field, served *plan.ServedTensor) (oip.Tensor, tensor) {
	a, t, c := &p.Anchors[f.Anchor], &p.Tensors[f.Tensor], &p.Contract
	x := oip.Tensor{Name: cmp.Or(a.Handle, a.Name), Type: oip.ParseDataType(strings.ToUpper(served.Type)), Shape: slices.Clone(served.Shape), Max: slices.Clone(served.Max)}
	mem := tensor{elem: int(t.Bytes), elemType: c.Fields[f.Anchor].Info.DataType, least: slices.Clone(x.Shape)}
	switch {
	case p.Serve.Samples > 0:
		if !t.IsOpen() {
			mem.elem /= int(p.BatchSize)
		}
		mem.least[0] = 1
	case t.IsOpen():
		mem.open, mem.fields, mem.axis = make([]int, len(x.Shape)), len(t.Fields), make([]int, len(t.Fields))
		for i := range mem.open {
			mem.open[i] = -1
		}
		for _, open := range slices.Backward(t.Open) {
			mem.open[open.Axis], mem.axis[open.Field] = open.Field, open.Axis
		}
		mem.least = slices.Clone(x.Max) // if only data decides
		if len(c.Members) > 0 {
			mem.least = c.Shape(f.Anchor, 0)
		}
	}
	mem.bytes = int(x.MaxBytes())
	return x, mem
}
