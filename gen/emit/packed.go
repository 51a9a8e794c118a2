package emit

import (
	"fmt"

	"github.com/dave/jennifer/jen"

	"github.com/popefgen/popefgen/gen/plan"
)

// sequences adds the types of what RunPacked takes, and the function that takes them
// apart.
func sequences(f *jen.File, p *plan.Plan) {
	k := p.Pack
	for _, s := range []struct {
		name, doc string
		fields    []plan.PackedField
	}{
		{"Sequence", fmt.Sprintf("Sequence is what a request of RunPacked reads, from 1 to %d positions. All slices have the same length.", k.Length), k.Inputs},
		{"SequenceOut", "SequenceOut is the memory of what a request of RunPacked fills: slices as long as those of its Sequence.", k.Outputs},
	} {
		comments(f.Group, wrap(s.doc)...)
		f.Type().Id(s.name).StructFunc(func(g *jen.Group) {
			for _, field := range s.fields {
				g.Id(field.Name).Add(packedType(p, field)).Comment(comment(field.Doc))
			}
		})
		f.Line()
	}
	comments(f.Group, "sequenceParts appends what a sequence has for every run input and output.")
	samples := jen.Index().Qual(genPath, "Samples")
	f.Func().Id("sequenceParts").Params(jen.Id("in").Op("*").Id("Sequence"), jen.Id("out").Op("*").Id("SequenceOut"), jen.Id("parts").Add(samples.Clone())).Add(samples).Block(
		jen.Return(jen.Id("append").CallFunc(func(g *jen.Group) {
			g.Id("parts")
			for i, t := range k.Tensors {
				fields, from, id, at := p.Inputs, k.Inputs, "in", i
				if i >= len(p.Inputs) {
					fields, from, id, at = p.Outputs, k.Outputs, "out", i-len(p.Inputs)
				}
				g.Line().Add(packedPart(fields[at], from, id, t))
			}
			g.Line()
		})),
	)
	f.Line()
}

// packedPart is what a sequence has for a tensor.
func packedPart(of plan.Field, fields []plan.PackedField, id string, t plan.Packed) jen.Code {
	for _, field := range fields {
		if field.Tensor != of.Tensor || t.Kind != "Position" && t.Kind != "Mask" && t.Kind != "Entry" {
			continue
		}
		if field.Once {
			return jen.Qual(genPath, "SampleOf").Call(jen.Id(id).Dot(field.Name))
		}
		return jen.Qual(genPath, "SamplesOf").Call(jen.Id(id).Dot(field.Name))
	}
	return jen.Qual(genPath, "Samples").Values()
}

// packedType is the type of a field of a sequence.
func packedType(p *plan.Plan, f plan.PackedField) *jen.Statement {
	s := jen.Op("*")
	if !f.Once {
		s = jen.Index()
	}
	for _, n := range f.Shape {
		s.Index(jen.Lit(int(n)))
	}
	return s.Add(elemType(p.Tensors[f.Tensor]))
}

// packSpec describes the packing to the runtime.
func packSpec(p *plan.Plan) jen.Code {
	k := p.Pack
	if k == nil {
		return jen.Null()
	}
	return jen.Line().Id("Pack").Op(":").Op("&").Qual(genPath, "PackSpec").Values(
		jen.Line().Id("Rows").Op(":").Lit(int(k.Rows)),
		jen.Line().Id("Length").Op(":").Lit(int(k.Length)),
		jen.Line().Id("Entries").Op(":").Lit(int(k.Entries)),
		jen.Line().Id("Tensors").Op(":").Index().Qual(genPath, "PackTensor").ValuesFunc(func(g *jen.Group) {
			for i, t := range k.Tensors {
				fields, at := p.Inputs, i
				if i >= len(p.Inputs) {
					fields, at = p.Outputs, i-len(p.Inputs)
				}
				values := []jen.Code{jen.Id("Kind").Op(":").Qual(genPath, "Pack"+t.Kind)}
				if t.Parts > 0 {
					values = append(values, jen.Id("Parts").Op(":").Lit(int(t.Parts)), jen.Id("Elem").Op(":").Lit(p.Tensors[fields[at].Tensor].Elem))
				}
				g.Line().Values(values...)
			}
			g.Line()
		}),
		jen.Line(),
	)
}
