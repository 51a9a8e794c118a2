package emit

import (
	"github.com/dave/jennifer/jen"

	"github.com/popefgen/popefgen/gen/plan"
)

// branchStructures are the structs that callers fill for each branch of a fused model.
func branchStructures(p *plan.Plan) (all []structure) {
	for _, b := range p.Branches {
		all = append(all,
			structure{"Inputs" + b.GoName, []string{"Inputs" + b.GoName + " points to the tensors that Run" + b.GoName + " reads. No field may be nil, unless an option freezes it."}, b.Inputs},
			structure{"Outputs" + b.GoName, []string{"Outputs" + b.GoName + " points to the tensors that Run" + b.GoName + " fills. No field may be nil."}, b.Outputs})
	}
	return all
}

// branchRequest adds what a submitted request to a fused model holds.
func branchRequest(f *jen.File, p *plan.Plan) {
	comments(f.Group, "request holds what a submitted request reads and fills: that of its branch.")
	f.Type().Id("request").StructFunc(func(g *jen.Group) {
		g.Id("branch").Id("Branch")
		for _, b := range p.Branches {
			g.Id("in" + b.GoName).Id("Inputs" + b.GoName)
			g.Id("out" + b.GoName).Id("Outputs" + b.GoName)
		}
	})
	f.Line()
}

// branchFuncs adds what the methods of a Runner do with the streams of each branch.
func branchFuncs(f *jen.File, p *plan.Plan) {
	for _, b := range p.Branches {
		params := func() []jen.Code {
			return []jen.Code{jen.Id("in").Op("*").Id("Inputs" + b.GoName), jen.Id("out").Op("*").Id("Outputs" + b.GoName)}
		}
		name := "bind" + b.GoName
		comments(f.Group, name+" points the streams of the branch at in and out.")
		f.Func().Params(jen.Id("p").Op("*").Id("ports")).Id(name).Params(params()...).BlockFunc(func(g *jen.Group) {
			for _, s := range []ends{{"in", "", b.Inputs}, {"out", "", b.Outputs}} {
				for _, field := range s.fields {
					g.Id("p").Dot(s.id).Dot(field.Name).Dot("Bind").Call(jen.Id(s.id).Dot(field.Name))
				}
			}
		})
		f.Line()
		name = "check" + b.GoName
		comments(f.Group, name+" returns an error that says which pointer is nil.")
		f.Func().Params(jen.Id("r").Op("*").Id("Runner")).Id(name).Params(params()...).Error().BlockFunc(func(g *jen.Group) {
			nilChecks(g, p, "in", "Inputs"+b.GoName, b.Inputs)
			nilChecks(g, p, "out", "Outputs"+b.GoName, b.Outputs)
			g.Return(jen.Nil())
		})
		f.Line()
	}
}

// openBranches is the part of Open that has a submitted request bound and the model opened.
func openBranches(g *jen.Group) {
	g.Id("bind").Op(":=").Func().Params(jen.List(jen.Id("replica"), jen.Id("slot")).Int()).Block(
		jen.Id("q").Op(":=").Op("&").Id("r").Dot("queue").Index(jen.Id("slot")),
		jen.If(jen.Id("replica").Op(">=").Lit(0)).Block(
			jen.Id("r").Dot("bind").Call(jen.Id("replica"), jen.Id("q")),
		),
		jen.Op("*").Id("q").Op("=").Id("request").Values().Comment("// keep no reference to the caller's memory"),
	)
	g.If(
		jen.Err().Op(":=").Id("r").Dot("core").Dot("OpenBranches").Call(jen.Id("ctx"), jen.Op("&").Id("spec"), jen.Id("source"), jen.Id("bindings"), jen.Id("bind"), jen.Id("opts").Op("...")),
		jen.Err().Op("!=").Nil(),
	).Block(jen.Return(jen.Nil(), jen.Err()))
	g.Return(jen.Id("r"), jen.Nil())
}

// branchSpec tells the runtime the names of the branches.
func branchSpec(p *plan.Plan) jen.Code {
	if p.Branches == nil {
		return jen.Null()
	}
	return jen.Line().Id("Branches").Op(":").Index().String().ValuesFunc(func(g *jen.Group) {
		for _, b := range p.Branches {
			g.Lit(b.Name)
		}
	})
}
