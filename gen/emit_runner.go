package gen

import (
	"fmt"
	"slices"

	"github.com/dave/jennifer/jen"
)

// mainFile renders the file that callers read: documentation, constants,
// tensor types, inputs and outputs, runner.
func mainFile(p *Plan) ([]byte, error) {
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
	openFunc(f, p)
	methods(f, p)
	return render(f)
}

// constants adds the contract's pin, the numbers of the model and the names
// of its anchors.
func constants(f *jen.File, p *Plan) {
	f.Const().DefsFunc(func(g *jen.Group) {
		comments(g, "ContractHash identifies what this package and the model agree on: anchors, types, shapes,",
			"programs. Open refuses a model with another contract.")
		g.Id("ContractHash").Op("=").Lit(p.ContractHash)
		comments(g, fmt.Sprintf("%s pins the contract: code with the line", p.Pin), "",
			fmt.Sprintf("\tconst _ = %s.%s", p.Package, p.Pin), "",
			"stops building when the package is generated from a model with another contract. Then read",
			"what changed, adapt the code and put the new name there.")
		g.Id(p.Pin).Op("=").True()
		comments(g, "DeviceIterations is the number of transfers of every input and output in one run.")
		g.Id("DeviceIterations").Op("=").Lit(p.DeviceIterations)
		comments(g, "QueueDepth is the number of requests that may be submitted and not yet waited for.")
		g.Id("QueueDepth").Op("=").Lit(p.QueueDepth)
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

// streams is one struct of stream ends in the Runner.
type streams struct {
	id     string // field of Runner
	end    string // rt.Input or rt.Output
	fields []Field
}

func (p *Plan) streams() []streams {
	all := []streams{
		{"load", "Input", p.LoadInputs},
		{"in", "Input", p.Inputs},
		{"out", "Output", p.Outputs},
		{"save", "Output", p.SaveOutputs},
	}
	return slices.DeleteFunc(all, func(s streams) bool { return len(s.fields) == 0 })
}

func runnerType(f *jen.File, p *Plan) {
	runs := "Run"
	if len(p.SaveOutputs) > 0 {
		runs = "Run and Save"
	}
	comments(f.Group, wrap("Runner runs the model. Submit may be called from any goroutine, "+runs+
		" from one at a time, unless Open was given rt.Concurrent.")...)
	f.Type().Id("Runner").StructFunc(func(g *jen.Group) {
		g.Id("core").Qual(rtPath, "Core")
		for _, s := range p.streams() {
			g.Id(s.id).StructFunc(func(g *jen.Group) {
				for _, field := range s.fields {
					g.Id(field.Name).Qual(rtPath, s.end).Types(fieldType(p, field))
				}
			})
		}
		g.Id("queue").Index(jen.Id("QueueDepth")).Id("request")
	})
	f.Line()
	comments(f.Group, "request is what a submitted request works on.")
	f.Type().Id("request").Struct(
		jen.Id("in").Id("Inputs"),
		jen.Id("out").Id("Outputs"),
	)
	f.Line()
}

// methods adds what a Runner does after Open.
func methods(f *jen.File, p *Plan) {
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

	comments(f.Group, "Run computes out from in and returns when out is filled. It allocates nothing.")
	method("Run", append([]jen.Code{ctx}, run...), errType, func(g *jen.Group) {
		ifErr(g, jen.Id("check").Call(jen.Id("in"), jen.Id("out")))
		ifErr(g, core("Begin").Call(jen.Id("ctx")))
		g.Id("r").Dot("bind").Call(jen.Id("in"), jen.Id("out"))
		g.Return(core("Main").Call(jen.Id("ctx")))
	})

	comments(f.Group, "Submit queues a request and returns a ticket, which must be waited for once. What in and out",
		"point to belongs to the runner until then; in and out themselves don't. rt.ErrQueueFull means",
		"that QueueDepth tickets are pending. It allocates nothing.")
	ticket := jen.Qual(rtPath, "Ticket")
	method("Submit", run, []jen.Code{ticket, jen.Error()}, func(g *jen.Group) {
		ifErr(g, jen.Id("check").Call(jen.Id("in"), jen.Id("out")), jen.Qual(rtPath, "Ticket").Values())
		g.List(jen.Id("slot"), jen.Err()).Op(":=").Add(core("Reserve").Call())
		g.If(jen.Err().Op("!=").Nil()).Block(jen.Return(jen.Qual(rtPath, "Ticket").Values(), jen.Err()))
		g.Id("r").Dot("queue").Index(jen.Id("slot")).Op("=").Id("request").Values(jen.Op("*").Id("in"), jen.Op("*").Id("out"))
		g.Return(core("Enqueue").Call(jen.Id("slot")), jen.Nil())
	})

	if len(p.SaveOutputs) > 0 {
		comments(f.Group, "Save runs the save programs, which fill out with the model's state.")
		method("Save", []jen.Code{ctx, jen.Id("out").Op("*").Id("SaveOutputs")}, errType, func(g *jen.Group) {
			nilChecks(g, p, "out", "SaveOutputs", p.SaveOutputs)
			ifErr(g, core("Begin").Call(jen.Id("ctx")))
			for _, field := range p.SaveOutputs {
				g.Id("r").Dot("save").Dot(field.Name).Dot("Bind").Call(jen.Id("out").Dot(field.Name))
			}
			g.Return(core("Save").Call(jen.Id("ctx")))
		})
	}

	comments(f.Group, "Close ends the runner. Requests that are pending fail with rt.ErrClosed. Closing twice is",
		"allowed.")
	method("Close", nil, errType, func(g *jen.Group) { g.Return(core("Close").Call()) })

	comments(f.Group, "Session returns the session underneath, for what has no typed form here.")
	method("Session", nil, []jen.Code{jen.Op("*").Qual(rtPath, "Session")}, func(g *jen.Group) { g.Return(core("Session").Call()) })

	comments(f.Group, "bind makes the streams read in and fill out.")
	method("bind", run, []jen.Code{jen.Null()}, func(g *jen.Group) {
		for _, field := range p.Inputs {
			g.Id("r").Dot("in").Dot(field.Name).Dot("Bind").Call(jen.Id("in").Dot(field.Name))
		}
		for _, field := range p.Outputs {
			g.Id("r").Dot("out").Dot(field.Name).Dot("Bind").Call(jen.Id("out").Dot(field.Name))
		}
	})

	comments(f.Group, "check returns an error that names what is nil.")
	f.Func().Id("check").Params(run...).Error().BlockFunc(func(g *jen.Group) {
		nilChecks(g, p, "in", "Inputs", p.Inputs)
		nilChecks(g, p, "out", "Outputs", p.Outputs)
		g.Return(jen.Nil())
	})
}

// core is a method of the runner's core.
func core(method string) *jen.Statement { return jen.Id("r").Dot("core").Dot(method) }

// ifErr adds a call whose error ends the function; first is what the function
// returns before the error.
func ifErr(g *jen.Group, call jen.Code, first ...jen.Code) {
	g.If(jen.Err().Op(":=").Add(call), jen.Err().Op("!=").Nil()).Block(
		jen.Return(append(slices.Clone(first), jen.Err())...),
	)
}
