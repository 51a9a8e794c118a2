package emit

import (
	"fmt"
	"strings"

	"github.com/dave/jennifer/jen"

	"github.com/popefgen/popefgen/gen/plan"
)

// tensorTypes adds each tensor's type with its flat view and constructor.
func tensorTypes(f *jen.File, p *plan.Plan) {
	for _, t := range p.Tensors {
		if t.IsOpen() {
			openTensor(f, p, t)
			continue
		}
		data := jen.Id("Data")
		for _, n := range t.Shape {
			data.Index(jen.Lit(int(n)))
		}
		comments(f.Group, wrap(t.Doc)...)
		f.Type().Id(t.Name).Op("struct").Custom(braces, data.Add(elemType(t)))
		f.Line()
		comments(f.Group, "Flat returns the tensor's elements in row-major order, as a slice of its memory.")
		f.Func().Params(jen.Id("t").Op("*").Id(t.Name)).Id("Flat").Params().Index().Add(elemType(t)).Custom(braces,
			jen.Return(jen.Qual(genPath, "Flat").Types(elemType(t)).Call(jen.Id("t"))))
		f.Line()
		rows(f, t.Name, t, t.Shape)
		comments(f.Group, wrap(t.FromDoc)...)
		f.Func().Id(t.From).Params(jen.Id("flat").Index().Add(elemType(t))).Params(jen.Op("*").Id(t.Name), jen.Error()).Block(
			jen.Return(jen.Qual(genPath, "From").Types(jen.Id(t.Name)).Call(jen.Id(t.NameConst), jen.Id("flat"))),
		)
		f.Line()
		if t.Sample != "" {
			sampleType(f, t)
		}
	}
}

// sampleType adds the type of one sample of a tensor, with its flat view.
func sampleType(f *jen.File, t plan.Tensor) {
	data := jen.Id("Data")
	for _, n := range t.SampleShape {
		data.Index(jen.Lit(int(n)))
	}
	what := "the BatchSize samples"
	if t.IsOpen() {
		what = "the samples"
	}
	comments(f.Group, fmt.Sprintf("%s is one of %s of %s.", t.Sample, what, t.Name))
	f.Type().Id(t.Sample).Op("struct").Custom(braces, data.Add(elemType(t)))
	f.Line()
	comments(f.Group, "Flat returns the sample's elements in row-major order, as a slice of its memory.")
	f.Func().Params(jen.Id("t").Op("*").Id(t.Sample)).Id("Flat").Params().Index().Add(elemType(t)).Custom(braces,
		jen.Return(jen.Qual(genPath, "Flat").Types(elemType(t)).Call(jen.Id("t"))))
	f.Line()
	rows(f, t.Sample, t, t.SampleShape)
}

// rows adds an iterator over the first dimension where there are others: a
// range over the array itself copies each row.
func rows(f *jen.File, name string, t plan.Tensor, shape []int64) {
	if len(shape) < 2 {
		return
	}
	row := jen.Op("*")
	for _, n := range shape[1:] {
		row.Index(jen.Lit(int(n)))
	}
	comments(f.Group, "Rows returns an iterator over the first dimension: for i, row := range t.Rows(). Each row is a pointer",
		"into the tensor, where for _, row := range t.Data would copy it.")
	f.Func().Params(jen.Id("t").Op("*").Id(name)).Id("Rows").Params().Qual("iter", "Seq2").Types(jen.Int(), row.Add(elemType(t))).Custom(braces,
		jen.Return(jen.Qual(genPath, "Rows").Call(jen.Id("t").Dot("Data").Index(jen.Op(":")))))
	f.Line()
}

// newDoc documents the constructor of a struct.
func newDoc(p *plan.Plan, s structure) []string {
	switch {
	case p.Family != nil && s.name == "Outputs":
		return []string{"NewOutputs returns Outputs with new tensors. Those with open dimensions are empty until a run fills them."}
	case p.Family != nil && s.name == "Inputs" && len(p.Family.Dims) > 0:
		return []string{"NewInputs returns Inputs with new tensors for a request of these sizes, all zeros."}
	}
	return []string{"New" + s.name + " returns " + s.name + " with new tensors, all zeros."}
}

// braces puts what is short on one line.
var braces = jen.Options{Open: "{ ", Close: " }"}

// elemType is the Go type of one element of t.
func elemType(t plan.Tensor) jen.Code {
	if name, ok := strings.CutPrefix(t.Elem, "rt."); ok {
		return jen.Qual(rtPath, name)
	}
	return jen.Id(t.Elem)
}

// fieldType is the type that a field points to.
func fieldType(p *plan.Plan, f plan.Field) *jen.Statement {
	s := &jen.Statement{}
	switch {
	case f.Iterated && f.Uneven:
		s.Index(jen.Lit(f.Transfers))
	case f.Iterated:
		s.Index(jen.Id("DeviceIterations"))
	}
	return s.Id(p.Tensors[f.Tensor].Name)
}

// structure is a struct of tensors and what it is for.
type structure struct {
	name   string
	doc    []string
	fields []plan.Field
}

// structures adds the structs that a caller fills, with their constructors.
func structures(f *jen.File, p *plan.Plan) {
	inputs := []string{"Inputs points to the tensors that a run reads. No field may be nil, unless an option freezes it."}
	outputs := []string{"Outputs points to the tensors that a run fills. No field may be nil."}
	if p.Family != nil {
		outputs = []string{"Outputs points to the tensors that a run fills. No field may be nil. A run gives those with open dimensions their",
			"sizes, and new memory where they have too little."}
	}
	if p.Joined != nil {
		inputs = append(inputs, fmt.Sprintf("The model takes %d of them in one transfer: as NewInputs returns them they are read where they are, others are", len(p.Joined.Fields)),
			"copied together first.")
	}
	switch {
	case p.Uneven():
		inputs = append(inputs, "Element i of a field belongs to transfer i of a run.")
		outputs = append(outputs, "Element i of a field belongs to transfer i of a run.")
	case p.DeviceIterations > 1:
		inputs = append(inputs, "Element i of each field belongs to device iteration i.")
		outputs = append(outputs, "Element i of each field belongs to device iteration i.")
	}
	all := []structure{
		{"Inputs", inputs, p.Inputs},
		{"Outputs", outputs, p.Outputs},
	}
	if p.Branches != nil {
		all = branchStructures(p)
	}
	if len(p.LoadInputs) > 0 {
		all = append(all, structure{"LoadInputs", []string{
			"LoadInputs points to the tensors that the load programs read and the model file has no data for.",
			"No field may be nil.",
		}, p.LoadInputs})
	}
	if len(p.SaveOutputs) > 0 {
		all = append(all, structure{"SaveOutputs", []string{
			"SaveOutputs points to the tensors that Save fills. No field may be nil.",
		}, p.SaveOutputs})
	}
	all = append(all, trainingStructures(p)...)
	for _, s := range all {
		comments(f.Group, s.doc...)
		f.Type().Id(s.name).StructFunc(func(g *jen.Group) {
			for _, field := range s.fields {
				g.Id(field.Name).Op("*").Add(fieldType(p, field)).Comment(comment(field.Doc))
			}
			if side := s.name == "Inputs" && p.Joined != nil; side {
				g.Line().Id("joined").Op("*").Id("joined").Comment("// that they may point into")
			}
		})
		f.Line()
		comments(f.Group, newDoc(p, s)...)
		side := s.name == "Inputs" && p.Joined != nil
		f.Func().Id("New" + s.name).Params(dimParams(p, s)...).Op("*").Id(s.name).BlockFunc(func(g *jen.Group) {
			if side {
				g.Id("j").Op(":=").New(jen.Id("joined"))
			}
			g.Return(jen.Op("&").Id(s.name).ValuesFunc(func(g *jen.Group) {
				for i, field := range s.fields {
					value := newField(p, s, field)
					if side && p.IsJoined(i) {
						value = jen.Op("&").Id("j").Dot(field.Name)
					}
					g.Line().Id(field.Name).Op(":").Add(value)
				}
				if side {
					g.Line().Id("joined").Op(":").Id("j")
				}
				if len(s.fields) > 0 {
					g.Line()
				}
			}))
		})
		f.Line()
	}
}
