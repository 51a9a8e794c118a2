package emit

import (
	"github.com/dave/jennifer/jen"

	"github.com/popefgen/popefgen/gen/plan"
)

// stateTypes adds the types that a stream has, and the function that makes one.
func stateTypes(f *jen.File, p *plan.Plan) {
	type field struct {
		name string
		typ  string
		doc  string
	}
	if p.Flow != nil {
		flowTypes(f, p)
		return
	}
	typeOf := func(tensor int) string {
		if t := p.Tensors[tensor]; t.Sample != "" {
			return t.Sample
		}
		return p.Tensors[tensor].Name
	}
	fields := func(of []plan.Field) (out []field) {
		for _, f := range of {
			out = append(out, field{f.Name, typeOf(f.Tensor), f.Doc})
		}
		return out
	}
	var state []field
	for _, s := range p.State {
		state = append(state, field{p.Inputs[s.Input].Name, typeOf(s.Tensor), p.Outputs[s.Output].Doc})
	}
	of := ""
	if p.BatchSize > 0 {
		of = " It has one sample: requests of several streams share a batch."
	}
	for _, s := range []struct {
		name, doc string
		fields    []field
	}{
		{"State", "State points to what a stream keeps from one request to the next. No field may be nil.", state},
		{"StreamInputs", "StreamInputs points to what a request to a stream reads: Inputs without the state." + of, fields(p.StreamInputs())},
		{"StreamOutputs", "StreamOutputs points to what a request to a stream fills: Outputs without the state." + of, fields(p.StreamOutputs())},
	} {
		comments(f.Group, wrap(s.doc)...)
		f.Type().Id(s.name).StructFunc(func(g *jen.Group) {
			for _, x := range s.fields {
				g.Id(x.name).Op("*").Id(x.typ).Comment(comment(x.doc))
			}
		})
		f.Line()
		comments(f.Group, "New"+s.name+" returns "+s.name+" with new tensors, all zeros.")
		f.Func().Id("New" + s.name).Params().Op("*").Id(s.name).Block(
			jen.Return(jen.Op("&").Id(s.name).ValuesFunc(func(g *jen.Group) {
				for _, x := range s.fields {
					g.Line().Id(x.name).Op(":").New(jen.Id(x.typ))
				}
				if len(s.fields) > 0 {
					g.Line()
				}
			})),
		)
		f.Line()
	}
	comments(f.Group, "Stream runs the model on one request after the other, each of which begins with the state in which the last",
		"one ended. It keeps the state in two sets of memory, which change places: nothing is copied. One goroutine",
		"at a time may use it; any number of streams of a runner may be used at the same time.")
	f.Type().Id("Stream").Struct(
		jen.Id("r").Op("*").Id("Runner"),
		jen.Id("turns").Qual(genPath, "Turns"),
		jen.Id("state").Index(jen.Lit(2)).Id("State"),
	)
	f.Line()
	comments(f.Group, "checkState returns an error that says which pointer is nil.")
	f.Func().Id("checkState").Params(jen.Id("s").Op("*").Id("State")).Error().BlockFunc(func(g *jen.Group) {
		var all []plan.Field
		for _, s := range p.State {
			all = append(all, p.Inputs[s.Input])
		}
		nilChecks(g, p, "s", "State", all)
		g.Return(jen.Nil())
	})
	f.Line()
}
