package plan

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
)

// maxServed is how many inputs, or outputs, a model may have that is served.
const maxServed = 64

// Serve says how the package serves its model, and is a client of a server.
type Serve struct {
	Name    string // of the model for clients
	Samples int64  // samples of a request at most, which axis 0 of every tensor counts; 0 if requests are whole runs
	Inputs  []ServedTensor
	Outputs []ServedTensor
	// Fields are those with the sizes of open axes, by tensor and axis, -1 for one that is not open;
	// nil if each open axis has the next field.
	Fields [][]int
}

// ServedTensor is a run input or output as clients see it.
type ServedTensor struct {
	Name   string  // Go source of its name on the wire
	Anchor string  // Go source of its anchor's name
	Type   string  // constant of package oip
	Shape  []int64 // -1 for open axes
	Max    []int64 // nil if there are none
	Field  string  // Go name of the field
	Sample string  // Go type of one sample
	Open   bool    // its Go type has fields for sizes
}

// served decides how the model is served.
func (b *builder) served() {
	p := &b.plan
	if p.Serve == nil {
		return
	}
	name, _, _ := strings.Cut(p.Model, ".")
	p.Serve.Name = name
	refuse := func(format string, args ...any) { b.problem("serve: "+format, args...) }
	switch {
	case p.Branches != nil:
		refuse("the model is fused of several models, each with requests of its own: serve the models that it was made of")
	case len(p.Inputs)+len(p.Outputs) == 0:
		refuse("the model has no run inputs and outputs")
	case len(p.Inputs) > maxServed || len(p.Outputs) > maxServed:
		refuse("the model has %d inputs and %d outputs: a request may have %d of each", len(p.Inputs), len(p.Outputs), maxServed)
	case name == "" || !utf8.ValidString(name):
		refuse("the model is called %q, and clients ask for it by the part of that before the first dot: rename the file", p.Model)
	}
	p.Serve.Samples = b.servedSamples()
	for _, of := range []struct {
		fields []Field
		to     *[]ServedTensor
	}{{p.Inputs, &p.Serve.Inputs}, {p.Outputs, &p.Serve.Outputs}} {
		for _, f := range of.fields {
			*of.to = append(*of.to, b.servedTensor(f))
		}
	}
	inOrder := true
	for _, f := range slices.Concat(p.Inputs, p.Outputs) {
		t := &p.Tensors[f.Tensor]
		axes := make([]int, len(p.Contract.Fields[f.Anchor].Info.Shape))
		for i := range axes {
			axes[i] = -1
		}
		for i, o := range t.Open {
			inOrder = inOrder && o.Field == i
			axes[o.Axis] = o.Field
		}
		p.Serve.Fields = append(p.Serve.Fields, axes)
	}
	if inOrder || p.Serve.Samples > 0 {
		p.Serve.Fields = nil
	}
}

// servedSamples returns how many samples a request may have: as many as one run computes, if axis 0 of
// every tensor counts them. Elsewhere requests are whole runs, so that clients see the shapes of the model.
func (b *builder) servedSamples() int64 {
	p := &b.plan
	if p.BatchSize == 0 || len(p.Inputs) == 0 {
		return 0
	}
	for _, f := range slices.Concat(p.Inputs, p.Outputs) {
		t := &p.Tensors[f.Tensor]
		if t.IsOpen() && t.Open[0].Axis != 0 || !t.IsOpen() && b.opts.BatchDim != nil && *b.opts.BatchDim != 0 {
			return 0
		}
	}
	return p.BatchSize * int64(p.DeviceIterations)
}

func (b *builder) servedTensor(f Field) ServedTensor {
	p := &b.plan
	a, t, field := &p.Anchors[f.Anchor], &p.Tensors[f.Tensor], &p.Contract.Fields[f.Anchor]
	s := ServedTensor{Name: t.NameConst, Field: f.Name, Sample: t.Sample, Open: t.IsOpen(), Type: dataTypes[b.metas[f.Anchor].Info.DataType]}
	if t.Anchor != a.Name {
		s.Name = fmt.Sprintf("%q", a.Name)
	}
	s.Anchor = s.Name
	name := a.Name
	if a.Handle != "" {
		name = a.Handle
		s.Name = fmt.Sprintf("%q", name)
	}
	if name == "" || !utf8.ValidString(name) {
		b.problem("serve: anchor %q: clients can not ask for a tensor of this name", name)
	}
	if s.Type == "" {
		b.problem("serve: anchor %q: the protocol has no type for elements of %s; compile the model with inputs and outputs of another type", a.Name, b.metas[f.Anchor].Info.DataType)
	}
	switch {
	case p.Serve.Samples > 0:
		s.Shape = append([]int64{-1}, t.SampleShape...)
		s.Max = append([]int64{p.Serve.Samples}, t.SampleShape...)
		if t.IsOpen() { // whose type has no axes before the open one
			s.Shape = append([]int64{-1}, t.Shape...)
			s.Max = append([]int64{p.Serve.Samples}, t.Shape...)
		}
	case t.IsOpen():
		s.Shape, s.Max = openShape(&p.Contract, f.Anchor, field)
	default:
		s.Shape = t.Shape
		if f.Iterated {
			s.Shape = append([]int64{int64(f.Transfers)}, t.Shape...)
		}
	}
	return s
}

// openShape returns the shape of a field with -1 for open axes, and the largest that a member has.
func openShape(c *contract.Callers, i int, field *contract.Field) (shape, most []int64) {
	for m := range c.Members {
		for a, n := range c.Shape(i, m) {
			if m == 0 {
				most = append(most, n)
			}
			most[a] = max(most[a], n)
		}
	}
	for a := range field.Axes {
		x := &field.Axes[a]
		if len(most) == a { // there are no members: data alone decides sizes
			most = append(most, x.Size)
		}
		if x.Dim >= 0 || x.Loose >= 0 || x.Counted {
			shape = append(shape, -1)
		} else {
			shape = append(shape, x.Size)
		}
	}
	return shape, most
}

// dataTypes has the constants of package oip for the types that the protocol knows.
var dataTypes = map[popef.DataType]string{
	popef.Bool: "Bool", popef.F16: "FP16", popef.F32: "FP32", popef.F64: "FP64",
	popef.S8: "Int8", popef.S16: "Int16", popef.S32: "Int32", popef.S64: "Int64",
	popef.U8: "Uint8", popef.U16: "Uint16", popef.U32: "Uint32", popef.U64: "Uint64",
}
