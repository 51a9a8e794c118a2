package emit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dave/jennifer/jen"

	"github.com/popefgen/popefgen/gen/plan"
)

// openFunc adds Open and, where the model is embedded, the variable that
// holds it.
func openFunc(f *jen.File, p *plan.Plan) {
	if p.Embed != "" {
		f.Anon("embed")
		f.Comment("//go:embed " + p.Embed)
		f.Var().Id("model").Index().Byte()
		f.Line()
	}
	comments(f.Group, openDoc(p)...)
	f.Func().Id("Open").ParamsFunc(func(g *jen.Group) {
		g.Id("ctx").Qual("context", "Context")
		if len(p.LoadInputs) > 0 {
			g.Id("load").Op("*").Id("LoadInputs")
		}
		if p.Embed == "" {
			g.Id("path").String()
		}
		g.Id("opts").Op("...").Qual(rtPath, "RunnerOption")
	}).Params(jen.Op("*").Id("Runner"), jen.Error()).BlockFunc(func(g *jen.Group) {
		if len(p.LoadInputs) > 0 {
			nilChecks(g, p, "load", "LoadInputs", p.LoadInputs, jen.Nil())
		}
		g.Id("r").Op(":=").Op("&").Id("Runner").Values()
		for _, field := range p.LoadInputs {
			g.Id("r").Dot("load").Dot(field.Name).Dot("Bind").Call(jen.Id("load").Dot(field.Name))
		}
		modelSource(g, p)
		if p.Family != nil {
			openFamily(g, p)
			return
		}
		g.Id("bindings").Op(":=").Func().Params().Index().Qual(genPath, "Binding").Block(
			jen.Id("p").Op(":=").Op("&").Id("ports").Values(),
			jen.Id("r").Dot("ports").Op("=").Append(jen.Id("r").Dot("ports"), jen.Id("p")),
			jen.Return(jen.Index().Qual(genPath, "Binding").ValuesFunc(func(g *jen.Group) {
				owners := map[string]*jen.Statement{
					"load": jen.Id("r").Dot("load"), "in": jen.Id("p").Dot("in"), "out": jen.Id("p").Dot("out"), "save": jen.Id("p").Dot("save"),
				}
				if p.Joined != nil {
					owners["joined"] = jen.Id("p").Dot("joined")
				}
				bindings(g, p, owners)
			})),
		)
		if p.Branches != nil {
			openBranches(g)
			return
		}
		g.Id("bind").Op(":=").Func().Params(jen.List(jen.Id("replica"), jen.Id("slot")).Int()).Block(
			jen.Id("q").Op(":=").Op("&").Id("r").Dot("queue").Index(jen.Id("slot")),
			jen.If(jen.Id("replica").Op(">=").Lit(0)).Block(
				jen.Id("r").Dot("ports").Index(jen.Id("replica")).Dot("bind").Call(jen.Op("&").Id("q").Dot("in"), jen.Op("&").Id("q").Dot("out")),
			),
			jen.Op("*").Id("q").Op("=").Id("request").Values().Comment("// keep no reference to the caller's memory"),
		)
		g.If(
			jen.Err().Op(":=").Id("r").Dot("core").Dot("Open").Call(jen.Id("ctx"), jen.Op("&").Id("spec"), jen.Id("source"), jen.Id("bindings"), jen.Id("bind"), jen.Id("opts").Op("...")),
			jen.Err().Op("!=").Nil(),
		).Block(jen.Return(jen.Nil(), jen.Err()))
		g.Return(jen.Id("r"), jen.Nil())
	})
	f.Line()
}

// openFamily is the part of Open that connects streams, where the runtime binds run inputs and
// outputs itself.
func openFamily(g *jen.Group, p *plan.Plan) {
	bindings := func(owners map[string]*jen.Statement) jen.Code {
		return jen.Index().Qual(genPath, "Binding").ValuesFunc(func(g *jen.Group) { bindings(g, p, owners) })
	}
	switch {
	case len(p.SaveOutputs) > 0:
		g.Id("bindings").Op(":=").Func().Params().Index().Qual(genPath, "Binding").Block(
			jen.Id("p").Op(":=").Op("&").Id("ports").Values(),
			jen.Id("r").Dot("ports").Op("=").Append(jen.Id("r").Dot("ports"), jen.Id("p")),
			jen.Return(bindings(map[string]*jen.Statement{"load": jen.Id("r").Dot("load"), "save": jen.Id("p").Dot("save")})),
		)
	case len(p.LoadInputs) > 0 || p.Training != nil:
		g.Id("bindings").Op(":=").Func().Params().Index().Qual(genPath, "Binding").Block(
			jen.Return(bindings(map[string]*jen.Statement{"load": jen.Id("r").Dot("load")})),
		)
	default:
		g.Id("bindings").Op(":=").Func().Params().Index().Qual(genPath, "Binding").Block(jen.Return(jen.Nil()))
	}
	g.If(
		jen.Err().Op(":=").Id("r").Dot("core").Dot("OpenFamily").Call(jen.Id("ctx"), jen.Op("&").Id("spec"), jen.Id("source"), jen.Id("bindings"), jen.Id("opts").Op("...")),
		jen.Err().Op("!=").Nil(),
	).Block(jen.Return(jen.Nil(), jen.Err()))
	g.Return(jen.Id("r"), jen.Nil())
}

// modelSource says where the model comes from.
func modelSource(g *jen.Group, p *plan.Plan) {
	g.Id("source").Op(":=").Qual(genPath, "Source").ValuesFunc(func(g *jen.Group) {
		if p.Embed != "" {
			g.Id("Name").Op(":").Lit(p.Embed)
			g.Id("Bytes").Op(":").Id("model")
		} else {
			g.Id("Path").Op(":").Id("path")
		}
	})
}

// bindings adds a line for every stream whose ends have an owner.
func bindings(g *jen.Group, p *plan.Plan, owners map[string]*jen.Statement) {
	lines, added := 0, false
	for _, s := range streams(p) {
		owner := owners[s.id]
		for _, field := range s.fields {
			if owner != nil {
				g.Line().Values(
					jen.Id("Anchor").Op(":").Lit(lines),
					jen.Id("Stream").Op(":").Op("&").Add(owner.Clone()).Dot(field.Name),
				)
				added = true
			}
			lines++
		}
	}
	if p.Training != nil {
		for i, v := range p.Training.Optimizer {
			g.Line().Values(
				jen.Id("Anchor").Op(":").Lit(lines+i),
				jen.Id("Stream").Op(":").Qual(genPath, "Value").Call(jen.Op("&").Id("r").Dot("optimizer").Dot("Now").Dot(v.Name)),
			)
			added = true
		}
	}
	if owner := owners["joined"]; owner != nil {
		g.Line().Values(
			jen.Id("Anchor").Op(":").Lit(len(p.LoadInputs)+p.Joined.Fields[0].Input),
			jen.Id("Stream").Op(":").Op("&").Add(owner),
		)
	}
	if added {
		g.Line()
	}
}

// openDoc is the documentation of Open.
func openDoc(p *plan.Plan) []string {
	var out []string
	if p.Embed != "" {
		out = append(out, "Open loads the embedded model and runs its load programs once. With rt.WithModelFile or",
			"rt.WithModelBytes it takes another model instead, which must have the same inputs and outputs.")
	} else {
		out = append(out, "Open loads the model at path and runs its load programs once. With rt.WithModelFile or",
			"rt.WithModelBytes it takes the model from there instead. The file is mapped into memory: until Close",
			"nobody may write into it (replacing it by a rename is harmless), unless rt.WithPrivateCopy is given.")
	}
	if len(p.LoadInputs) > 0 {
		out = append(out, "The tensors that load points to must not change until Close.")
	}
	out = append(out, "", "It returns rt.ErrContract, with a list of the differences, if the model has other inputs or outputs",
		"than this package, and ipu.ErrWrongBackend if the model was compiled for other devices.")
	if p.Replicas != 1 {
		out = append(out, "", fmt.Sprintf("This model was compiled for %d replicas, which Open refuses with rt.ErrReplication.", p.Replicas))
	}
	return out
}

// nilChecks adds statements that return an error if the struct of that type
// name or one of its fields is nil. first is what the function returns before
// the error.
func nilChecks(g *jen.Group, p *plan.Plan, id, structName string, fields []plan.Field, first ...jen.Code) {
	fail := func(field string, anchor ...jen.Code) jen.Code {
		err := jen.Op("&").Qual(rtPath, "NilAnchorError").ValuesFunc(func(g *jen.Group) {
			if id == "load" { // there is no core yet to name the model
				g.Id("Model").Op(":").Lit("package " + p.Package)
			}
			g.Id("Field").Op(":").Lit(field)
			for _, a := range anchor {
				g.Id("Anchor").Op(":").Add(a)
			}
		})
		return jen.Return(append(slices.Clone(first), err)...)
	}
	g.If(jen.Id(id).Op("==").Nil()).Block(fail(structName))
	for i, field := range fields {
		isNil := jen.Id(id).Dot(field.Name).Op("==").Nil()
		if strings.HasPrefix(structName, "Inputs") {
			if p.Branches != nil {
				i = slices.IndexFunc(p.Inputs, func(f plan.Field) bool { return f.Anchor == field.Anchor })
			}
			isNil.Op("&&").Op("!").Add(core("Frozen").Call(jen.Lit(i)))
		}
		g.If(isNil).Block(fail(structName+"."+field.Name, anchorName(p, field)))
	}
}

// anchorName is the name of a field's anchor: the constant of its type, which may be
// called after another anchor.
func anchorName(p *plan.Plan, f plan.Field) jen.Code {
	if t, name := p.Tensors[f.Tensor], p.Anchors[f.Anchor].Name; t.Anchor != name {
		return jen.Lit(name)
	}
	return jen.Id(p.Tensors[f.Tensor].NameConst)
}
