package emit

import (
	"slices"

	"github.com/dave/jennifer/jen"

	"github.com/popefgen/popefgen/gen/plan"
)

// queuesType adds the type Queues with its methods, for a model that has
// something to enqueue.
func queuesType(f *jen.File, p *plan.Plan) {
	if len(p.Inputs)+len(p.Outputs) == 0 {
		return
	}
	comments(f.Group, "Queues runs the model over queues: requests of any number of goroutines line up for a device side, Run,",
		"that goes on as long as there are any. A Runner is what most programs need; this is for a stream of",
		"requests, whose samples share batches whatever their number. Its methods may be called from any",
		"goroutine.")
	f.Type().Id("Queues").StructFunc(func(g *jen.Group) {
		g.Id("core").Qual(rtPath, "Core")
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
	openQueues(f, p)

	ctx := jen.Id("ctx").Qual("context", "Context")
	method := func(name string, params []jen.Code, results []jen.Code, body func(*jen.Group)) {
		s := f.Func().Params(jen.Id("r").Op("*").Id("Queues")).Id(name).Params(params...)
		if len(results) == 1 {
			s.Add(results[0])
		} else {
			s.Params(results...)
		}
		s.BlockFunc(body)
		f.Line()
	}
	passOn := func(method string, args ...jen.Code) func(*jen.Group) {
		return func(g *jen.Group) { g.Return(core(method).Call(args...)) }
	}
	errType := []jen.Code{jen.Error()}
	ticket := []jen.Code{jen.Qual(rtPath, "Ticket"), jen.Error()}
	run := []jen.Code{jen.Id("in").Op("*").Id("Inputs"), jen.Id("out").Op("*").Id("Outputs")}

	comments(f.Group, "Run is the device side: it computes what is enqueued until ctx ends, whose error it then returns, or",
		"until Shutdown or Close, when it returns nil, or until something fails. Call it in a goroutine of its own.",
		"What is left in the queues then is returned. rt.QueueManager has the details.")
	method("Run", []jen.Code{ctx}, errType, passOn("RunQueues", jen.Id("ctx")))

	var parts []jen.Code
	for _, s := range []ends{{"in", "", p.Inputs}, {"out", "", p.Outputs}} {
		for _, field := range s.fields {
			parts = append(parts, jen.Qual(rtPath, "Bytes").Call(jen.Id(s.id).Dot(field.Name)))
		}
	}
	enqueue := func(call string, first ...jen.Code) func(g *jen.Group) {
		return func(g *jen.Group) {
			ifNil(g, jen.Id("r").Dot("check").Call(jen.Id("in"), jen.Id("out")), jen.Qual(rtPath, "Ticket").Values())
			g.Return(core(call).Call(slices.Concat(first, parts)...))
		}
	}
	comments(f.Group, "Enqueue lines a request up and returns a ticket, which tells its end and may be dropped. What in and out",
		"point to belongs to the queues until then; in and out themselves don't. While a queue has no room",
		"Enqueue waits, until ctx ends; afterwards ctx is not used. It allocates nothing.")
	method("Enqueue", slices.Concat([]jen.Code{ctx}, run), ticket, enqueue("EnqueueParts", jen.Id("ctx")))
	comments(f.Group, "TryEnqueue is Enqueue that never waits: rt.ErrQueueFull means that there is no room.")
	method("TryEnqueue", run, ticket, enqueue("TryEnqueueParts"))

	if p.SideBySide() {
		var samples, args []jen.Code
		args = append(args, jen.Id("ctx"))
		for _, s := range []ends{{"in", "", p.Inputs}, {"out", "", p.Outputs}} {
			for _, field := range s.fields {
				id := jen.Id(s.id + field.Name)
				samples = append(samples, id.Clone().Index().Id(p.Tensors[field.Tensor].Sample))
				args = append(args, jen.Qual(rtPath, "SamplesOf").Call(id.Clone()).Dot("Bytes").Call())
			}
		}
		comments(f.Group, "EnqueueSamples is Enqueue of any number of samples, at least one; all slices have the same length. They share",
			"batches with what is enqueued before and after. A batch that is not full waits for more, or for Flush,",
			"or for rt.QueueConfig.OnTimeout.")
		method("EnqueueSamples", slices.Concat([]jen.Code{ctx}, samples), ticket, passOn("EnqueueParts", args...))
	}
	comments(f.Group, "Flush fills a batch that is not full up with zeros, whose results nobody sees, and adds a batch of them",
		"if none is enqueued in part.")
	method("Flush", nil, errType, passOn("FlushQueues"))
	if len(p.SaveOutputs) > 0 {
		out := jen.Id("out").Op("*").Id("SaveOutputs")
		comments(f.Group, "Save runs the save programs, which fill out with the model's state, between two runs.")
		method("Save", []jen.Code{ctx, out}, errType, func(g *jen.Group) {
			ifNil(g, jen.Id("checkSave").Call(jen.Id("out")))
			g.List(jen.Id("replica"), jen.Err()).Op(":=").Add(core("Begin").Call(jen.Id("ctx"), jen.Lit(0)))
			g.If(jen.Err().Op("!=").Nil()).Block(jen.Return(jen.Err()))
			g.Id("r").Dot("ports").Dot("bindSave").Call(jen.Id("out"))
			g.Return(core("Save").Call(jen.Id("ctx"), jen.Id("replica")))
		})
	}
	comments(f.Group, "UpdateWeights gives the model other data for inputs that are no run inputs, between two runs.")
	method("UpdateWeights", []jen.Code{ctx, jen.Id("weights").Op("...").Qual(rtPath, "Weight")}, errType,
		passOn("UpdateWeights", jen.Id("ctx"), jen.Id("weights").Op("...")))
	comments(f.Group, "Shutdown refuses new requests, lets Run compute those that were accepted, and closes. If ctx ends first",
		"it closes at once and returns ctx's error.")
	method("Shutdown", []jen.Code{ctx}, errType, passOn("Shutdown", jen.Id("ctx")))
	comments(f.Group, "Close ends everything: what is in the queues is returned with rt.ErrDisconnected. Closing twice is",
		"allowed.")
	method("Close", nil, errType, passOn("Close"))
	comments(f.Group, "Manager returns the queues themselves, for what has no typed form here.")
	method("Manager", nil, []jen.Code{jen.Op("*").Qual(rtPath, "QueueManager")}, passOn("Queues"))

	comments(f.Group, "check returns an error that names what is nil.")
	f.Func().Params(jen.Id("r").Op("*").Id("Queues")).Id("check").Params(run...).Error().BlockFunc(func(g *jen.Group) {
		nilChecks(g, p, "in", "Inputs", p.Inputs)
		nilChecks(g, p, "out", "Outputs", p.Outputs)
		g.Return(jen.Nil())
	})
	f.Line()
}

// openQueues adds OpenQueues.
func openQueues(f *jen.File, p *plan.Plan) {
	comments(f.Group, "OpenQueues opens the model as Open does, for requests over queues. config says how large they are and what",
		"happens when the device waits for data; the rest of it follows from the model and is to be left out.")
	f.Func().Id("OpenQueues").ParamsFunc(func(g *jen.Group) {
		g.Id("ctx").Qual("context", "Context")
		if len(p.LoadInputs) > 0 {
			g.Id("load").Op("*").Id("LoadInputs")
		}
		if p.Embed == "" {
			g.Id("path").String()
		}
		g.Id("config").Qual(rtPath, "QueueConfig")
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
			bound = jen.Index().Qual(rtPath, "Binding").ValuesFunc(func(g *jen.Group) {
				bindings(g, p, map[string]*jen.Statement{"load": jen.Id("r").Dot("load"), "save": jen.Id("r").Dot("ports").Dot("save")})
			})
		}
		g.If(
			jen.Err().Op(":=").Id("r").Dot("core").Dot("OpenQueues").Call(jen.Id("ctx"), jen.Op("&").Id("spec"), jen.Id("source"), bound, jen.Id("config"), jen.Id("opts").Op("...")),
			jen.Err().Op("!=").Nil(),
		).Block(jen.Return(jen.Nil(), jen.Err()))
		g.Return(jen.Id("r"), jen.Nil())
	})
	f.Line()
}
