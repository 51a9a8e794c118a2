package emit

import (
	"fmt"
	"slices"

	"github.com/dave/jennifer/jen"

	"github.com/popefgen/popefgen/gen/plan"
)

// mainFile renders the file that callers read: documentation, constants,
// tensor types, inputs and outputs, runner.
func mainFile(p *plan.Plan) ([]byte, error) {
	f := newFile(p)
	doc, err := docText("package.tmpl", p)
	if err != nil {
		return nil, err
	}
	for _, line := range doc {
		f.PackageComment(line)
	}
	f.Anon(cpuPath)
	constants(f, p)
	tensorTypes(f, p)
	structures(f, p)
	runnerType(f, p)
	freezers(f, p)
	openFunc(f, p)
	methods(f, p)
	queuesType(f, p)
	return render(f)
}

// constants adds the contract's pin, the numbers of the model and the names
// of its anchors.
func constants(f *jen.File, p *plan.Plan) {
	f.Const().DefsFunc(func(g *jen.Group) {
		comments(g, "ContractHash identifies what callers see of the model: the inputs and outputs with their names,",
			"types, shapes and order. Open refuses a model that lacks any of it.")
		g.Id("ContractHash").Op("=").Lit(p.ContractHash)
		comments(g, fmt.Sprintf("%s pins the contract: code with the line", p.Pin), "",
			fmt.Sprintf("\tconst _ = %s.%s", p.Package, p.Pin), "",
			"stops building when the package is generated from a model with other inputs or outputs. Then read",
			"what changed, adapt the code and put the new name there.")
		g.Id(p.Pin).Op("=").True()
		comments(g, "DeviceIterations is the number of transfers of every input and output in one run.")
		g.Id("DeviceIterations").Op("=").Lit(p.DeviceIterations)
		comments(g, "QueueDepth is the number of requests that may be submitted and have not ended.")
		g.Id("QueueDepth").Op("=").Lit(p.QueueDepth)
		if p.BatchSize > 0 {
			comments(g, "BatchSize is the number of samples in every input and output.")
			g.Id("BatchSize").Op("=").Lit(int(p.BatchSize))
		}
	})
	f.Line()
	if len(p.Tensors) == 0 {
		return
	}
	comments(f.Group, "The anchors' names, as the model file has them.")
	f.Const().DefsFunc(func(g *jen.Group) {
		for _, t := range p.Tensors {
			g.Id(t.NameConst).Op("=").Lit(t.Anchor)
		}
	})
	f.Line()
}

// ends are the stream ends of one struct.
type ends struct {
	id     string // field of Runner ("load") or ports
	end    string // rt.Input or rt.Output
	fields []plan.Field
}

// streams lists the structs that have any.
func streams(p *plan.Plan) []ends {
	all := []ends{
		{"load", "Input", p.LoadInputs},
		{"in", "Input", p.Inputs},
		{"out", "Output", p.Outputs},
		{"save", "Output", p.SaveOutputs},
	}
	return slices.DeleteFunc(all, func(s ends) bool { return len(s.fields) == 0 })
}

// add adds a field for the stream ends.
func (s ends) add(g *jen.Group, p *plan.Plan) {
	g.Id(s.id).StructFunc(func(g *jen.Group) {
		for _, field := range s.fields {
			g.Id(field.Name).Qual(rtPath, s.end).Types(fieldType(p, field))
		}
	})
}

func runnerType(f *jen.File, p *plan.Plan) {
	comments(f.Group, "Runner runs the model. Its methods may be called from any goroutine; calls wait for each other.")
	f.Type().Id("Runner").StructFunc(func(g *jen.Group) {
		g.Id("core").Qual(rtPath, "Core")
		for _, s := range streams(p) {
			if s.id == "load" {
				s.add(g, p)
			}
		}
		g.Id("ports").Index().Op("*").Id("ports").Comment("// of each replica")
		g.Id("queue").Index(jen.Id("QueueDepth")).Id("request")
	})
	f.Line()
	comments(f.Group, "ports are the ends of the streams of one replica.")
	f.Type().Id("ports").StructFunc(func(g *jen.Group) {
		for _, s := range streams(p) {
			if s.id != "load" {
				s.add(g, p)
			}
		}
	})
	f.Line()
	comments(f.Group, "request is what a submitted request works on.")
	f.Type().Id("request").Struct(
		jen.Id("in").Id("Inputs"),
		jen.Id("out").Id("Outputs"),
	)
	f.Line()
}

// freezers adds an option for every run input that gives it the same data in
// every request.
func freezers(f *jen.File, p *plan.Plan) {
	for _, field := range p.Inputs {
		t := p.Tensors[field.Tensor]
		key := jen.Id(t.NameConst)
		if handle := p.Anchors[field.Anchor].Handle; handle != "" {
			key = jen.Lit(handle)
		}
		comments(f.Group, wrap("Freeze"+t.Name+" makes every request read t, which must not change until Close: Inputs."+
			field.Name+" may then be nil.")...)
		f.Func().Id("Freeze"+t.Name).Params(jen.Id("t").Op("*").Id(t.Name)).Qual(rtPath, "Option").Block(
			jen.Return(jen.Qual(rtPath, "Freeze").Call(key, jen.Id("t"))),
		)
		f.Line()
	}
}

// methods adds what a Runner does after Open.
func methods(f *jen.File, p *plan.Plan) {
	run := []jen.Code{jen.Id("in").Op("*").Id("Inputs"), jen.Id("out").Op("*").Id("Outputs")}
	method := func(name string, params []jen.Code, results []jen.Code, body func(*jen.Group)) {
		s := f.Func().Params(jen.Id("r").Op("*").Id("Runner")).Id(name).Params(params...)
		if len(results) == 1 {
			s.Add(results[0])
		} else {
			s.Params(results...)
		}
		s.BlockFunc(body)
		f.Line()
	}
	ctx := jen.Id("ctx").Qual("context", "Context")
	errType := []jen.Code{jen.Error()}

	replica := jen.Id("replica").Int()
	runs := slices.Concat([]jen.Code{ctx}, run)
	leastBusy := jen.Qual(rtPath, "LeastBusy")
	on := func(name string, args ...jen.Code) func(*jen.Group) {
		return func(g *jen.Group) { g.Return(jen.Id("r").Dot(name).Call(args...)) }
	}
	// take emits the statements that take the engine of a replica.
	take := func(g *jen.Group) {
		g.List(jen.Id("replica"), jen.Err()).Op(":=").Add(core("Begin").Call(jen.Id("ctx"), jen.Id("replica")))
		g.If(jen.Err().Op("!=").Nil()).Block(jen.Return(jen.Err()))
	}
	port := func() *jen.Statement { return jen.Id("r").Dot("ports").Index(jen.Id("replica")) }

	comments(f.Group, "Run computes out from in and returns when out is filled. It allocates nothing.")
	method("Run", runs, errType, on("RunOn", jen.Id("ctx"), leastBusy, jen.Id("in"), jen.Id("out")))

	comments(f.Group, "RunOn is Run on one replica. rt.ErrReplica means that there is no such replica.")
	method("RunOn", slices.Concat([]jen.Code{ctx, replica}, run), errType, func(g *jen.Group) {
		ifNil(g, jen.Id("r").Dot("check").Call(jen.Id("in"), jen.Id("out")))
		take(g)
		g.Add(port().Dot("bind").Call(jen.Id("in"), jen.Id("out")))
		g.Return(core("Main").Call(jen.Id("ctx"), jen.Id("replica")))
	})

	comments(f.Group, "Submit queues a request and returns a ticket, which tells its end and may be dropped. What in and",
		"out point to belongs to the runner until then; in and out themselves don't. While QueueDepth",
		"requests are pending Submit waits for room, until ctx ends. The request itself has ctx too: if it",
		"ends first, the request never reaches the engine. Submit and Wait allocate nothing.")
	ticket := []jen.Code{jen.Qual(rtPath, "Ticket"), jen.Error()}
	method("Submit", runs, ticket, on("SubmitOn", jen.Id("ctx"), leastBusy, jen.Id("in"), jen.Id("out")))
	submit := func(enqueue jen.Code, reserve jen.Code) func(g *jen.Group) {
		return func(g *jen.Group) {
			ifNil(g, jen.Id("r").Dot("check").Call(jen.Id("in"), jen.Id("out")), jen.Qual(rtPath, "Ticket").Values())
			g.List(jen.Id("slot"), jen.Err()).Op(":=").Add(reserve)
			g.If(jen.Err().Op("!=").Nil()).Block(jen.Return(jen.Qual(rtPath, "Ticket").Values(), jen.Err()))
			g.Id("r").Dot("queue").Index(jen.Id("slot")).Op("=").Id("request").Values(jen.Op("*").Id("in"), jen.Op("*").Id("out"))
			g.Return(core("Enqueue").Call(enqueue, jen.Id("slot"), jen.Id("replica")), jen.Nil())
		}
	}

	comments(f.Group, "SubmitOn is Submit to one replica. rt.ErrReplica means that there is no such replica.")
	method("SubmitOn", slices.Concat([]jen.Code{ctx, replica}, run), ticket,
		submit(jen.Id("ctx"), core("Reserve").Call(jen.Id("ctx"), jen.Id("replica"))))

	comments(f.Group, "TrySubmit is Submit that never waits: rt.ErrQueueFull means that QueueDepth requests are pending.")
	method("TrySubmit", run, ticket, on("TrySubmitOn", leastBusy, jen.Id("in"), jen.Id("out")))
	comments(f.Group, "TrySubmitOn is TrySubmit to one replica. rt.ErrReplica means that there is no such replica.")
	method("TrySubmitOn", slices.Concat([]jen.Code{replica}, run), ticket,
		submit(jen.Qual("context", "Background").Call(), core("TryReserve").Call(jen.Id("replica"))))

	if p.BatchSize > 0 {
		comments(f.Group, "RunSamples computes any number of samples; all slices have the same length. Whole batches run",
			"at once, the rest together with samples of other callers, as rt.WithBatching says, and padded",
			"where there are not enough. It allocates nothing once the runner has warmed up.")
		var samples, args, ids []jen.Code
		for _, s := range []ends{{"in", "", p.Inputs}, {"out", "", p.Outputs}} {
			for _, field := range s.fields {
				id := s.id + field.Name
				samples = append(samples, jen.Id(id).Index().Id(p.Tensors[field.Tensor].Sample))
				args = append(args, jen.Qual(rtPath, "SamplesOf").Call(jen.Id(id)))
				ids = append(ids, jen.Id(id))
			}
		}
		busy := slices.Concat([]jen.Code{jen.Id("ctx"), leastBusy}, ids)
		args = slices.Concat([]jen.Code{jen.Id("ctx"), jen.Id("replica")}, args)
		method("RunSamples", slices.Concat([]jen.Code{ctx}, samples), errType, on("RunSamplesOn", busy...))
		comments(f.Group, "RunSamplesOn is RunSamples on one replica, which computes all of them.")
		method("RunSamplesOn", slices.Concat([]jen.Code{ctx, replica}, samples), errType,
			func(g *jen.Group) { g.Return(core("RunSamples").Call(args...)) })
		comments(f.Group, "SubmitSamples is RunSamples that returns a ticket, which tells the end; the slices belong to the",
			"runner until then. It takes a place among QueueDepth requests and waits for one, until ctx ends.")
		method("SubmitSamples", slices.Concat([]jen.Code{ctx}, samples), ticket, on("SubmitSamplesOn", busy...))
		comments(f.Group, "SubmitSamplesOn is SubmitSamples to one replica, which computes all of them.")
		method("SubmitSamplesOn", slices.Concat([]jen.Code{ctx, replica}, samples), ticket,
			func(g *jen.Group) { g.Return(core("SubmitSamples").Call(args...)) })
	}

	comments(f.Group, "UpdateWeights gives every replica other data for inputs that are no run inputs, and runs the load",
		"programs again. Requests go on meanwhile.")
	method("UpdateWeights", []jen.Code{ctx, jen.Id("weights").Op("...").Qual(rtPath, "Weight")}, errType, func(g *jen.Group) {
		g.Return(core("UpdateWeights").Call(jen.Id("ctx"), jen.Id("weights").Op("...")))
	})

	if len(p.SaveOutputs) > 0 {
		out := jen.Id("out").Op("*").Id("SaveOutputs")
		comments(f.Group, "Save runs the save programs of the first replica, which fill out with the model's state.")
		method("Save", []jen.Code{ctx, out}, errType, on("SaveOn", jen.Id("ctx"), jen.Lit(0), jen.Id("out")))
		comments(f.Group, "SaveOn is Save on one replica. rt.ErrReplica means that there is no such replica.")
		method("SaveOn", []jen.Code{ctx, replica, out}, errType, func(g *jen.Group) {
			ifNil(g, jen.Id("checkSave").Call(jen.Id("out")))
			take(g)
			g.Add(port().Dot("bindSave").Call(jen.Id("out")))
			g.Return(core("Save").Call(jen.Id("ctx"), jen.Id("replica")))
		})
		comments(f.Group, "SaveAtClose makes Close run the save programs of a replica, which fill out. It waits for the replica's",
			"engine, until ctx ends.")
		method("SaveAtClose", []jen.Code{ctx, replica, out}, errType, func(g *jen.Group) {
			ifNil(g, jen.Id("checkSave").Call(jen.Id("out")))
			g.Return(core("SaveAtClose").Call(jen.Id("ctx"), jen.Id("replica"), jen.Func().Params().Block(port().Dot("bindSave").Call(jen.Id("out")))))
		})
	}

	comments(f.Group, "Shutdown refuses new requests, waits for those that were accepted, and closes. If ctx ends first it",
		"closes at once and returns ctx's error.")
	method("Shutdown", []jen.Code{ctx}, errType, func(g *jen.Group) { g.Return(core("Shutdown").Call(jen.Id("ctx"))) })
	comments(f.Group, "Close ends the runner. Requests that are pending fail with rt.ErrClosed. Closing twice is",
		"allowed.")
	method("Close", nil, errType, func(g *jen.Group) { g.Return(core("Close").Call()) })

	comments(f.Group, "Config returns every option of the runner, as it was given or by default.")
	method("Config", nil, []jen.Code{jen.Qual(rtPath, "Config")}, func(g *jen.Group) { g.Return(core("Config").Call()) })

	session := []jen.Code{jen.Op("*").Qual(rtPath, "Session")}
	comments(f.Group, "Session returns the session of the first replica, for what has no typed form here.")
	method("Session", nil, session, func(g *jen.Group) { g.Return(core("Session").Call(jen.Lit(0))) })
	comments(f.Group, "Replica returns the session of a replica, nil if there is no such replica.")
	method("Replica", []jen.Code{jen.Id("i").Int()}, session, func(g *jen.Group) { g.Return(core("Session").Call(jen.Id("i"))) })

	comments(f.Group, "bind makes the streams read in and fill out.")
	f.Func().Params(jen.Id("p").Op("*").Id("ports")).Id("bind").Params(run...).BlockFunc(func(g *jen.Group) {
		for _, s := range []ends{{"in", "", p.Inputs}, {"out", "", p.Outputs}} {
			for _, field := range s.fields {
				g.Id("p").Dot(s.id).Dot(field.Name).Dot("Bind").Call(jen.Id(s.id).Dot(field.Name))
			}
		}
	})
	f.Line()
	if len(p.SaveOutputs) > 0 {
		comments(f.Group, "bindSave makes the streams of the save programs fill out.")
		f.Func().Params(jen.Id("p").Op("*").Id("ports")).Id("bindSave").Params(jen.Id("out").Op("*").Id("SaveOutputs")).BlockFunc(func(g *jen.Group) {
			for _, field := range p.SaveOutputs {
				g.Id("p").Dot("save").Dot(field.Name).Dot("Bind").Call(jen.Id("out").Dot(field.Name))
			}
		})
		f.Line()
	}

	comments(f.Group, "check returns an error that names what is nil.")
	f.Func().Params(jen.Id("r").Op("*").Id("Runner")).Id("check").Params(run...).Error().BlockFunc(func(g *jen.Group) {
		nilChecks(g, p, "in", "Inputs", p.Inputs)
		nilChecks(g, p, "out", "Outputs", p.Outputs)
		g.Return(jen.Nil())
	})
	if len(p.SaveOutputs) > 0 {
		f.Line()
		f.Func().Id("checkSave").Params(jen.Id("out").Op("*").Id("SaveOutputs")).Error().BlockFunc(func(g *jen.Group) {
			nilChecks(g, p, "out", "SaveOutputs", p.SaveOutputs)
			g.Return(jen.Nil())
		})
	}
}

// core is a method of the runner's core.
func core(method string) *jen.Statement { return jen.Id("r").Dot("core").Dot(method) }

// ifNil adds a check of the memory that a caller gave. What it finds is nil gets
// the model's name only then, so that the check itself stays small enough to be
// inlined.
func ifNil(g *jen.Group, check jen.Code, first ...jen.Code) {
	g.If(jen.Err().Op(":=").Add(check), jen.Err().Op("!=").Nil()).Block(
		jen.Return(append(slices.Clone(first), core("NilAnchor").Call(jen.Err()))...),
	)
}
