package emit

import (
	"github.com/dave/jennifer/jen"

	"github.com/popefgen/popefgen/gen/plan"
)

// queuesType adds the type Queues.
func queuesType(f *jen.File, p *plan.Plan) {
	comments(f.Group, "Queues runs the model on a stream of requests: any number of goroutines enqueue them, and Run computes",
		"them one after the other. Requests of any number of samples can share batches. Most programs are better",
		"served by a Runner. The methods may be called from any goroutine.")
	f.Type().Id("Queues").StructFunc(func(g *jen.Group) {
		g.Id("core").Qual(queuesPath, "Core")
		for _, s := range streams(p) {
			if s.id == "load" {
				s.add(g, p)
			}
		}
		if len(p.SaveOutputs) > 0 {
			g.Id("ports").Id("ports")
		}
	})
	f.Line()
}

// openQueues adds OpenQueues.
func openQueues(f *jen.File, p *plan.Plan) {
	comments(f.Group, "OpenQueues opens the model as Open does, with queues for its requests. config says how large they are and",
		"what happens while the device waits for data; leave out its other fields, which follow from the model.")
	f.Func().Id("OpenQueues").ParamsFunc(func(g *jen.Group) {
		g.Id("ctx").Qual("context", "Context")
		if len(p.LoadInputs) > 0 {
			g.Id("load").Op("*").Id("LoadInputs")
		}
		if p.Embed == "" {
			g.Id("path").String()
		}
		g.Id("config").Qual(modelPath, "QueueConfig")
		g.Id("opts").Op("...").Qual(rtPath, "RunnerOption")
	}).Params(jen.Op("*").Id("Queues"), jen.Error()).BlockFunc(func(g *jen.Group) {
		if len(p.LoadInputs) > 0 {
			nilChecks(g, p, "load", "LoadInputs", p.LoadInputs, jen.Nil())
		}
		g.Id("r").Op(":=").Op("&").Id("Queues").Values()
		for _, field := range p.LoadInputs {
			g.Id("r").Dot("load").Dot(field.Name).Dot("Bind").Call(jen.Id("load").Dot(field.Name))
		}
		modelSource(g, p)
		bound := jen.Nil()
		if len(p.LoadInputs)+len(p.SaveOutputs) > 0 {
			bound = jen.Index().Qual(genPath, "Binding").ValuesFunc(func(g *jen.Group) {
				bindings(g, p, map[string]*jen.Statement{"load": jen.Id("r").Dot("load"), "save": jen.Id("r").Dot("ports").Dot("save")})
			})
		}
		g.If(
			jen.Err().Op(":=").Id("r").Dot("core").Dot("Open").Call(jen.Id("ctx"), jen.Op("&").Id("spec"), jen.Id("source"), bound, jen.Id("config"), jen.Id("opts").Op("...")),
			jen.Err().Op("!=").Nil(),
		).Block(jen.Return(jen.Nil(), jen.Err()))
		g.Return(jen.Id("r"), jen.Nil())
	})
	f.Line()
}
