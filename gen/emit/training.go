package emit

import (
	"slices"
	"strings"

	"github.com/dave/jennifer/jen"

	"github.com/popefgen/popefgen/gen/plan"
)

// trainingStructures are the structs that a package of a model that trains has besides.
func trainingStructures(p *plan.Plan) (out []structure) {
	if p.Training == nil {
		return nil
	}
	if len(p.Training.Evaluate) > 0 {
		out = append(out, structure{"EvaluateOutputs", wrap("EvaluateOutputs points to the tensors that Evaluate fills: those outputs that the forward graph computes. No field may be nil."), p.Training.Evaluate})
	}
	if len(p.Training.Weights) > 0 {
		out = append(out, structure{"Weights", []string{
			"Weights points to the weights, without states of the optimizer. No field may be nil.",
		}, p.Training.Weights})
	}
	return out
}

// optimizerType adds the struct of the values that can be set.
func optimizerType(f *jen.File, p *plan.Plan) {
	if p.Training == nil || len(p.Training.Optimizer) == 0 {
		return
	}
	comments(f.Group, wrap("Optimizer has the values of the optimizer that SetOptimizer can set. A literal sets the fields that it names: those that are zero stay as they are. "+
		"What CurrentOptimizer returns has all of them, and sets zeros too. What the model was compiled with as a constant is no field.")...)
	f.Type().Id("Optimizer").StructFunc(func(g *jen.Group) {
		for _, v := range p.Training.Optimizer {
			g.Id(v.Name).Add(valueType(v)).Comment(comment(v.Doc))
		}
		g.Line()
		g.Id("all").Bool().Comment("// zeros are values too")
	})
	f.Line()
	comments(f.Group, "or returns o, with the values of was where it is a literal that leaves them out.")
	f.Func().Params(jen.Id("o").Id("Optimizer")).Id("or").Params(jen.Id("was").Id("Optimizer")).Id("Optimizer").BlockFunc(func(g *jen.Group) {
		g.If(jen.Id("o").Dot("all")).Block(jen.Return(jen.Id("o")))
		for _, v := range p.Training.Optimizer {
			zero := jen.Lit(0)
			switch {
			case strings.HasPrefix(v.Type, "["):
				zero = jen.Parens(jen.Add(valueType(v)).Values())
			case v.Type == "bool":
				zero = jen.False()
			}
			g.If(jen.Id("o").Dot(v.Name).Op("==").Add(zero)).Block(jen.Id("o").Dot(v.Name).Op("=").Id("was").Dot(v.Name))
		}
		g.Id("o").Dot("all").Op("=").True()
		g.Return(jen.Id("o"))
	})
	f.Line()
}

// valueType is the Go type of a value.
func valueType(v plan.Value) jen.Code {
	if at := strings.LastIndex(v.Type, "]") + 1; strings.HasPrefix(v.Type[at:], "rt.") {
		return jen.Op(v.Type[:at]).Qual(rtPath, v.Type[at+len("rt."):])
	}
	return jen.Id(v.Type)
}

// valueSpec describes a value to the runtime.
func valueSpec(v plan.Value) []jen.Code {
	out := []jen.Code{jen.Id("Name").Op(":").Lit(v.Anchor)}
	if v.Handle != "" {
		out = append(out, jen.Id("Handle").Op(":").Lit(v.Handle))
	}
	return append(out, jen.Id("GoName").Op(":").Lit(v.Name), jen.Id("Role").Op(":").Qual(genPath, "Optimizer"), jen.Id("Bytes").Op(":").Lit(int(v.Bytes)))
}

// trainingFuncs adds what the methods of a package of a model that trains do with each stream.
func trainingFuncs(f *jen.File, p *plan.Plan) {
	t := p.Training
	if t == nil {
		return
	}
	params := func(structName string) []jen.Code {
		out := []jen.Code{jen.Id("out").Op("*").Id(structName)}
		if structName == "EvaluateOutputs" {
			out = append([]jen.Code{jen.Id("in").Op("*").Id("Inputs")}, out...)
		}
		return out
	}
	if len(t.Evaluate) > 0 && p.Family != nil {
		evaluateViews(f, p, params("EvaluateOutputs"))
	} else if len(t.Evaluate) > 0 {
		comments(f.Group, "bindEvaluate points the streams at in and out.")
		f.Func().Params(jen.Id("p").Op("*").Id("ports")).Id("bindEvaluate").Params(params("EvaluateOutputs")...).BlockFunc(func(g *jen.Group) {
			for _, s := range []ends{{"in", "", p.Inputs}, {"out", "", t.Evaluate}} {
				for _, field := range s.fields {
					g.Id("p").Dot(s.id).Dot(field.Name).Dot("Bind").Call(jen.Id(s.id).Dot(field.Name))
				}
			}
			if p.Joined != nil {
				g.Id("p").Dot("joined").Dot("Bind").Call(jen.Id("in").Dot("joined"))
			}
		})
		f.Line()
	}
	if len(t.Evaluate) > 0 {
		comments(f.Group, "checkEvaluate returns an error that says which pointer is nil.")
		f.Func().Params(jen.Id("r").Op("*").Id("Runner")).Id("checkEvaluate").Params(params("EvaluateOutputs")...).Error().BlockFunc(func(g *jen.Group) {
			nilChecks(g, p, "in", "Inputs", p.Inputs)
			nilChecks(g, p, "out", "EvaluateOutputs", t.Evaluate)
			g.Return(jen.Nil())
		})
		f.Line()
	}
	if len(t.Weights) == 0 {
		return
	}
	comments(f.Group, "bindWeights points the streams of the save programs at out; what else they deliver is dropped.")
	f.Func().Params(jen.Id("p").Op("*").Id("ports")).Id("bindWeights").Params(params("Weights")...).BlockFunc(func(g *jen.Group) {
		for _, field := range t.Weights {
			g.Id("p").Dot("save").Dot(field.Name).Dot("Bind").Call(jen.Id("out").Dot(field.Name))
		}
	})
	f.Line()
	comments(f.Group, "checkWeights returns an error that says which pointer is nil.")
	f.Func().Id("checkWeights").Params(params("Weights")...).Error().BlockFunc(func(g *jen.Group) {
		nilChecks(g, p, "out", "Weights", t.Weights)
		g.Return(jen.Nil())
	})
	f.Line()
	for _, s := range []structure{
		{"Weights", wrap("All returns the weights for UpdateWeights of an inference package of the same network, which compares names, types and shapes. They " +
			"must not change as long as it has them: give each update a Weights of its own, or two in turn."), t.Weights},
		{"SaveOutputs", wrap("All returns the weights and states that Save delivered, for UpdateWeights of another runner of this package, which goes on from " +
			"there. They must not change as long as that runner has them."), t.Learnt},
	} {
		comments(f.Group, s.doc...)
		f.Func().Params(jen.Id("w").Op("*").Id(s.name)).Id("All").Params().Index().Qual(rtPath, "Weight").Block(
			jen.Return(jen.Index().Qual(rtPath, "Weight").ValuesFunc(func(g *jen.Group) {
				for _, field := range s.fields {
					g.Line().Add(weightOf(p, field))
				}
				g.Line()
			})),
		)
		f.Line()
	}
}

// evaluateViews adds what shows a request of Evaluate to the runtime, as viewsFunc does a run's.
func evaluateViews(f *jen.File, p *plan.Plan, params []jen.Code) {
	n := len(p.Inputs) + len(p.Outputs)
	comments(f.Group, "evaluateViews shows a request of Evaluate to the runtime.")
	f.Func().Id("evaluateViews").Params(params...).Index(jen.Lit(n)).Qual(genPath, "View").Block(
		jen.Return(jen.Index(jen.Lit(n)).Qual(genPath, "View").ValuesFunc(func(g *jen.Group) {
			for _, field := range p.Inputs {
				g.Line().Add(viewOf(p, "in", field))
			}
			for i, field := range p.Outputs {
				if slices.ContainsFunc(p.Training.Evaluate, func(e plan.Field) bool { return e.Anchor == field.Anchor }) {
					g.Line().Lit(len(p.Inputs) + i).Op(":").Add(viewOf(p, "out", field))
				}
			}
			g.Line()
		})),
	)
	f.Line()
}

// weightOf is the rt.Weight of a field.
func weightOf(p *plan.Plan, field plan.Field) jen.Code {
	info := p.Contract.Fields[field.Anchor].Info
	args := []jen.Code{anchorName(p, field), jen.Id("w").Dot(field.Name), jen.Qual(genPath, info.DataType.String())}
	for _, n := range info.Shape {
		args = append(args, jen.Lit(int(n)))
	}
	return jen.Qual(genPath, "WeightOf").Call(args...)
}
