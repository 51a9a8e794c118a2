package emit

import (
	"fmt"

	"github.com/dave/jennifer/jen"

	"github.com/popefgen/popefgen/gen/plan"
)

// flowTypes adds the types of a stream of a model with several sizes, and what shows them to the
// runtime.
func flowTypes(f *jen.File, p *plan.Plan) {
	var state []plan.Field
	for _, s := range p.State {
		state = append(state, p.Inputs[s.Input])
	}
	of := ""
	if p.Flow.Rows >= 0 {
		of = fmt.Sprintf(" %s is 1: requests of several streams share a run.", p.Family.Dims[p.Flow.Rows].GoName)
	}
	open := []jen.Code{jen.ListFunc(func(g *jen.Group) {
		for _, d := range p.Flow.Dims {
			g.Id(d.Param)
		}
	}).Int()}
	if len(p.Flow.Dims) == 0 {
		open = nil
	}
	for _, s := range []struct {
		name, doc, new string
		params         []jen.Code
		fields         []plan.Field
	}{
		{"State", "State points to what a stream keeps from one request to the next. No field may be nil.", "State with new tensors: the one that a new stream has.", nil, state},
		{"StreamInputs", "StreamInputs points to what a request to a stream reads: Inputs without the state, and without what the stream fills itself." + of,
			"StreamInputs with new tensors, all zeros.", open, p.StreamInputs()},
		{"StreamOutputs", "StreamOutputs points to what a request to a stream fills: Outputs without the state. A run gives those with open dimensions their sizes, and new memory where they have too little.",
			"StreamOutputs with new tensors.", nil, p.StreamOutputs()},
	} {
		comments(f.Group, wrap(s.doc)...)
		f.Type().Id(s.name).StructFunc(func(g *jen.Group) {
			for _, x := range s.fields {
				g.Id(x.Name).Op("*").Id(p.Tensors[x.Tensor].Name).Comment(comment(x.Doc))
			}
		})
		f.Line()
		comments(f.Group, "New"+s.name+" returns "+s.new)
		f.Func().Id("New" + s.name).Params(s.params...).Op("*").Id(s.name).Block(
			jen.Return(jen.Op("&").Id(s.name).ValuesFunc(func(g *jen.Group) {
				for _, x := range s.fields {
					g.Line().Id(x.Name).Op(":").Add(flowField(p, s.name, x))
				}
				if len(s.fields) > 0 {
					g.Line()
				}
			})),
		)
		f.Line()
	}
	comments(f.Group, "Stream runs the model on one request after the other, each of which begins with the state in which the last",
		"one ended. One goroutine at a time may use it; any number of streams of a runner may be used at the same time.")
	f.Type().Id("Stream").Struct(jen.Id("flow").Qual(genPath, "Flow"))
	f.Line()
	comments(f.Group, "views shows a state to the runtime, once no pointer of it is nil.")
	f.Func().Params(jen.Id("s").Op("*").Id("State")).Id("views").Params().Params(jen.Id("v").Index(jen.Lit(len(state))).Qual(genPath, "View"), jen.Err().Error()).BlockFunc(func(g *jen.Group) {
		nilChecks(g, p, "s", "State", state, jen.Id("v"))
		for i, field := range state {
			g.Id("v").Index(jen.Lit(i)).Op("=").Add(viewOf(p, "s", field))
		}
		g.Return(jen.Id("v"), jen.Nil())
	})
	f.Line()
	n := len(p.Inputs) + len(p.Outputs)
	comments(f.Group, "views shows a request to the runtime, once no pointer of it is nil: what the stream keeps and fills is missing.")
	f.Func().Params(jen.Id("s").Op("*").Id("Stream")).Id("views").Params(jen.Id("in").Op("*").Id("StreamInputs"), jen.Id("out").Op("*").Id("StreamOutputs")).
		Params(jen.Id("v").Index(jen.Lit(n)).Qual(genPath, "View"), jen.Err().Error()).BlockFunc(func(g *jen.Group) {
		streamChecks(g, p, "in", "StreamInputs", p.StreamInputs())
		streamChecks(g, p, "out", "StreamOutputs", p.StreamOutputs())
		for i, field := range p.Inputs {
			if p.StateOfInput(i) == "" && !p.Filled(i) {
				g.Id("v").Index(jen.Lit(i)).Op("=").Add(viewOf(p, "in", field))
			}
		}
		for i, field := range p.Outputs {
			if p.StateOfOutput(i) == "" {
				g.Id("v").Index(jen.Lit(len(p.Inputs) + i)).Op("=").Add(viewOf(p, "out", field))
			}
		}
		g.Return(jen.Id("v"), jen.Nil())
	})
	f.Line()
}

// streamChecks adds what looks for nil in what a request to a stream was given.
func streamChecks(g *jen.Group, p *plan.Plan, id, structName string, fields []plan.Field) {
	fail := func(field string, anchor ...jen.Code) jen.Code {
		return jen.Return(jen.Id("v"), jen.Op("&").Qual(rtPath, "NilAnchorError").ValuesFunc(func(g *jen.Group) {
			g.Id("Field").Op(":").Lit(field)
			for _, a := range anchor {
				g.Id("Anchor").Op(":").Add(a)
			}
		}))
	}
	g.If(jen.Id(id).Op("==").Nil()).Block(fail(structName))
	for _, field := range fields {
		isNil := jen.Id(id).Dot(field.Name).Op("==").Nil()
		for i, in := range p.Inputs {
			if structName == "StreamInputs" && in.Anchor == field.Anchor && !p.Tensors[field.Tensor].IsOpen() {
				isNil.Op("&&").Op("!").Id("s").Dot("flow").Dot("Frozen").Call(jen.Lit(i))
			}
		}
		g.If(isNil).Block(fail(structName+"."+field.Name, anchorName(p, field)))
	}
}

// viewOf is what shows a field to the runtime.
func viewOf(p *plan.Plan, id string, field plan.Field) jen.Code {
	of := jen.Id(id).Dot(field.Name)
	if p.Tensors[field.Tensor].IsOpen() {
		return of.Dot("view").Call()
	}
	return jen.Qual(genPath, "Whole").Call(of)
}

// flowField is a new tensor for a field of what a stream has: of one row, without a past, and of the sizes that
// parameters have.
func flowField(p *plan.Plan, structName string, field plan.Field) jen.Code {
	t := p.Tensors[field.Tensor]
	if !t.IsOpen() || structName == "StreamOutputs" {
		return jen.New(jen.Id(t.Name))
	}
	return jen.Id(t.New).CallFunc(func(g *jen.Group) {
		for _, f := range t.Fields {
			size := jen.Id(p.Family.Dims[f.Dim].Param)
			switch f.Dim {
			case p.Flow.Rows:
				size = jen.Lit(1)
			case p.Flow.Past:
				size = jen.Lit(0)
			}
			if f.Same() {
				g.Add(size)
			} else {
				g.Qual(genPath, "Follow").Call(size, jen.Lit(int(f.Mul)), jen.Lit(int(f.Add)), jen.Lit(int(f.Div)))
			}
		}
	})
}

// flowSpec describes streams to the runtime.
func flowSpec(p *plan.Plan) jen.Code {
	k := p.Flow
	if k == nil {
		return jen.Null()
	}
	return jen.Line().Id("Flow").Op(":").Op("&").Qual(genPath, "FlowSpec").Values(
		jen.Line().Id("Rows").Op(":").Lit(k.Rows),
		jen.Line().Id("Past").Op(":").Lit(k.Past),
		jen.Line().Id("Kept").Op(":").Index().Qual(genPath, "Kept").ValuesFunc(func(g *jen.Group) {
			for _, s := range p.State {
				values := []jen.Code{jen.Id("Input").Op(":").Lit(s.Input), jen.Id("Output").Op(":").Lit(s.Output)}
				if s.Grows > 0 {
					values = append(values, jen.Id("Grows").Op(":").Lit(int(s.Grows)))
				}
				g.Line().Values(values...)
			}
			g.Line()
		}),
		jen.Do(func(s *jen.Statement) {
			if len(k.Fills) > 0 {
				s.Line().Id("Fills").Op(":").Index().Qual(genPath, "Filled").ValuesFunc(func(g *jen.Group) {
					for _, x := range k.Fills {
						g.Line().Values(jen.Id("Input").Op(":").Lit(x.Input), jen.Id("Kind").Op(":").Qual(genPath, "Fill"+x.Kind), jen.Id("Elem").Op(":").Lit(p.Tensors[p.Inputs[x.Input].Tensor].Elem))
					}
					g.Line()
				})
			}
		}),
		jen.Line(),
	)
}
