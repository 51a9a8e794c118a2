package emit

import (
	"fmt"
	"slices"

	"github.com/dave/jennifer/jen"

	"github.com/popefgen/popefgen/gen/plan"
	"github.com/popefgen/popefgen/templates"
)

// mainFile renders the file that callers read: documentation, constants,
// tensor types, inputs and outputs, runner.
func mainFile(p *plan.Plan) ([]byte, error) {
	f := newFile(p)
	doc, err := docText(templates.Doc, p)
	if err != nil {
		return nil, err
	}
	for _, line := range doc {
		f.PackageComment(line)
	}
	f.Anon(cpuPath)
	constants(f, p)
	if p.Family != nil && len(p.Family.Members) > 0 {
		sizeType(f, p)
	}
	tensorTypes(f, p)
	structures(f, p)
	joinedType(f, p)
	optimizerType(f, p)
	runnerType(f, p)
	freezers(f, p)
	openFunc(f, p)
	if err := template(f, templates.Runner, p); err != nil {
		return nil, err
	}
	if p.Training != nil {
		if err := template(f, templates.Training, p); err != nil {
			return nil, err
		}
	}
	if p.Branches != nil {
		if err := template(f, templates.Branches, p); err != nil {
			return nil, err
		}
	}
	streamFuncs(f, p)
	trainingFuncs(f, p)
	if p.Pack != nil {
		sequences(f, p)
		if err := template(f, templates.Packed, p); err != nil {
			return nil, err
		}
	}
	if len(p.State) > 0 {
		stateTypes(f, p)
		name := templates.Stream
		if p.Flow != nil {
			name = templates.Flow
		}
		if err := template(f, name, p); err != nil {
			return nil, err
		}
	}
	if p.Queues {
		queuesType(f, p)
		openQueues(f, p)
		if err := template(f, templates.Queues, p); err != nil {
			return nil, err
		}
		checkFunc(f, p, "Queues")
	}
	return render(f)
}

// constants adds the contract's pin, the numbers of the model and the names
// of its anchors.
func constants(f *jen.File, p *plan.Plan) {
	f.Const().DefsFunc(func(g *jen.Group) {
		if p.Family != nil {
			comments(g, "ContractHash identifies the contract, which is what callers see of the model: the names, types, shapes",
				"and order of its inputs and outputs, and which dimensions are open. Open refuses a model that lacks any of",
				"them, or one of the sizes.")
		} else {
			comments(g, "ContractHash identifies the contract, which is what callers see of the model: the names, types, shapes",
				"and order of its inputs and outputs. Open refuses a model that lacks any of them.")
		}
		g.Id("ContractHash").Op("=").Lit(p.ContractHash)
		comments(g, fmt.Sprintf("%s pins the contract: code with the line", p.Pin), "",
			fmt.Sprintf("\tconst _ = %s.%s", p.Package, p.Pin), "",
			"stops building when the package is generated from a model with other inputs or outputs. Then see",
			"what changed, adapt the code, and put the new name there.")
		g.Id(p.Pin).Op("=").True()
		comments(g, "DeviceIterations is how often one run repeats the model, each time with other inputs and outputs.")
		g.Id("DeviceIterations").Op("=").Lit(p.DeviceIterations)
		comments(g, "QueueDepth is how many submitted requests may be pending at a time.")
		g.Id("QueueDepth").Op("=").Lit(p.QueueDepth)
		if p.BatchSize > 0 {
			if p.Family != nil {
				comments(g, "BatchSize is the number of samples that are computed at a time at most.")
			} else {
				comments(g, "BatchSize is the number of samples in every input and output tensor.")
			}
			g.Id("BatchSize").Op("=").Lit(int(p.BatchSize))
		}
	})
	f.Line()
	if len(p.Tensors) == 0 {
		return
	}
	comments(f.Group, "The tensors' names in the model file, where they are called anchors.")
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
	end    string // genrt.Input or genrt.Output
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
			g.Id(field.Name).Qual(genPath, s.end).Types(fieldType(p, field))
		}
	})
}

func runnerType(f *jen.File, p *plan.Plan) {
	comments(f.Group, "Runner runs the model. Its methods may be called from any goroutine; calls wait for each other.")
	f.Type().Id("Runner").StructFunc(func(g *jen.Group) {
		switch {
		case p.Family != nil:
			g.Id("core").Qual(genPath, "Family")
		case p.Branches != nil:
			g.Id("core").Qual(genPath, "Branches")
		default:
			g.Id("core").Qual(genPath, "Core")
		}
		for _, s := range streams(p) {
			if s.id == "load" {
				s.add(g, p)
			}
		}
		if hasPorts(p) {
			g.Id("ports").Index().Op("*").Id("ports").Comment("// of each replica")
		}
		if p.Training != nil && len(p.Training.Optimizer) > 0 {
			g.Id("optimizer").Qual(genPath, "Values").Types(jen.Id("Optimizer"))
		}
		if p.Family == nil {
			g.Id("queue").Index(jen.Id("QueueDepth")).Id("request")
		}
	})
	f.Line()
	if !hasPorts(p) {
		return
	}
	comments(f.Group, "ports are the host's ends of the streams of one replica.")
	f.Type().Id("ports").StructFunc(func(g *jen.Group) {
		for _, s := range streams(p) {
			if s.id != "load" && (p.Family == nil || s.id == "save") {
				s.add(g, p)
			}
		}
		if p.Joined != nil {
			g.Id("joined").Qual(genPath, "Joined").Types(jen.Id("joined"))
		}
	})
	f.Line()
	if p.Family != nil {
		return
	}
	if p.Branches != nil {
		branchRequest(f, p)
		return
	}
	comments(f.Group, "request holds what a submitted request reads and fills.")
	f.Type().Id("request").Struct(
		jen.Id("in").Id("Inputs"),
		jen.Id("out").Id("Outputs"),
	)
	f.Line()
}

// hasPorts reports whether the streams of a replica are bound by generated code: of a family the
// runtime binds those of run inputs and outputs.
func hasPorts(p *plan.Plan) bool { return p.Family == nil || len(p.SaveOutputs) > 0 }

// freezers adds an option for every run input that gives it the same data in
// every request.
func freezers(f *jen.File, p *plan.Plan) {
	for _, field := range p.Inputs {
		t := p.Tensors[field.Tensor]
		if t.IsOpen() {
			continue
		}
		in := "Inputs"
		for _, b := range p.Branches {
			if slices.ContainsFunc(b.Inputs, func(f plan.Field) bool { return f.Anchor == field.Anchor }) {
				in += b.GoName
			}
		}
		key := jen.Id(t.NameConst)
		if handle := p.Anchors[field.Anchor].Handle; handle != "" {
			key = jen.Lit(handle)
		}
		comments(f.Group, wrap("Freeze"+t.Name+" returns an option with which every request reads t, which must not change until Close: "+in+"."+
			field.Name+" may then be nil.")...)
		f.Func().Id("Freeze"+t.Name).Params(jen.Id("t").Op("*").Id(t.Name)).Qual(rtPath, "Option").Block(
			jen.Return(jen.Qual(rtPath, "Freeze").Call(key, jen.Id("t"))),
		)
		f.Line()
	}
}

// run are the parameters of what makes a request.
func run() []jen.Code {
	return []jen.Code{jen.Id("in").Op("*").Id("Inputs"), jen.Id("out").Op("*").Id("Outputs")}
}

// streamFuncs adds what the methods of a Runner do with each of its streams.
func streamFuncs(f *jen.File, p *plan.Plan) {
	switch {
	case p.Family != nil:
		viewsFunc(f, p)
	case p.Branches != nil:
		branchFuncs(f, p)
	default:
		bindFunc(f, p)
	}
	if len(p.SaveOutputs) > 0 {
		saveFunc(f, p)
	}

	if p.Branches == nil {
		checkFunc(f, p, "Runner")
	}
	if len(p.SaveOutputs) > 0 {
		comments(f.Group, "checkSave returns an error that says which pointer is nil.")
		f.Func().Id("checkSave").Params(jen.Id("out").Op("*").Id("SaveOutputs")).Error().BlockFunc(func(g *jen.Group) {
			nilChecks(g, p, "out", "SaveOutputs", p.SaveOutputs)
			g.Return(jen.Nil())
		})
		f.Line()
	}
}

// bindFunc adds what points the streams at a request.
func bindFunc(f *jen.File, p *plan.Plan) {
	comments(f.Group, "bind points the streams at in and out.")
	f.Func().Params(jen.Id("p").Op("*").Id("ports")).Id("bind").Params(run()...).BlockFunc(func(g *jen.Group) {
		for _, s := range []ends{{"in", "", p.Inputs}, {"out", "", p.Outputs}} {
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

// saveFunc adds what points the streams of save programs at what they fill.
func saveFunc(f *jen.File, p *plan.Plan) {
	comments(f.Group, "bindSave points the streams of the save programs at out.")
	f.Func().Params(jen.Id("p").Op("*").Id("ports")).Id("bindSave").Params(jen.Id("out").Op("*").Id("SaveOutputs")).BlockFunc(func(g *jen.Group) {
		for _, field := range p.SaveOutputs {
			g.Id("p").Dot("save").Dot(field.Name).Dot("Bind").Call(jen.Id("out").Dot(field.Name))
		}
	})
	f.Line()
}

// checkFunc adds a method that looks for nil in what a request was given.
func checkFunc(f *jen.File, p *plan.Plan, receiver string) {
	comments(f.Group, "check returns an error that says which pointer is nil.")
	f.Func().Params(jen.Id("r").Op("*").Id(receiver)).Id("check").Params(run()...).Error().BlockFunc(func(g *jen.Group) {
		nilChecks(g, p, "in", "Inputs", p.Inputs)
		nilChecks(g, p, "out", "Outputs", p.Outputs)
		g.Return(jen.Nil())
	})
	f.Line()
}

// core is a method of the runner's core.
func core(method string) *jen.Statement { return jen.Id("r").Dot("core").Dot(method) }
