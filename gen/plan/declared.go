package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
)

// Declared are the names that generated files have for themselves, whatever the
// model: no tensor and no package may have one of them. A nil Declared has none.
type Declared struct {
	// Owners has the identifiers of the package: by whom each is declared, for
	// messages.
	Owners map[string]string
	// Packages has the names of the packages that are imported.
	Packages map[string]bool
	// Tensors lists what each tensor declares, with %s for its name; by kind of package.
	Tensors map[Kind][]string
	// Used has what a field or parameter that has a size must not be called in packages of
	// families: their methods, and their identifiers that are not exported.
	Used map[string]bool
	// Extra holds what only some packages declare, as Owners does, under the
	// feature that they were generated with: "pack", "state", "branches", "family", "training" or "serve".
	Extra map[string]map[string]string
}

// served is the feature of packages that serve their model.
const served = "serve"

// ExtrasOf returns the features whose packages have what one of the package's files declares.
func (p *Plan) ExtrasOf(file string) []string {
	if p.Serve != nil && (strings.HasSuffix(file, ServeSuffix) || strings.HasSuffix(file, serveTests)) {
		return []string{served}
	}
	return slices.DeleteFunc(p.Extras(), func(e string) bool { return e == served })
}

// Extras returns the features of the package that not every package comes with, as keys of
// [Declared.Extra].
func (p *Plan) Extras() (out []string) {
	if p.Pack != nil {
		out = append(out, "pack")
	}
	if len(p.State) > 0 {
		out = append(out, "state")
	}
	if p.Branches != nil {
		out = append(out, "branches")
	}
	if p.Family != nil {
		out = append(out, "family")
	}
	if p.Training != nil || p.Contract.Trains {
		out = append(out, trained)
	}
	if p.Serve != nil {
		out = append(out, served)
	}
	return out
}

// Kind says what tensors of a package declare.
type Kind struct {
	Samples bool // samples are told apart
	Family  bool // there are several sizes
}

// kind returns the kind of the package.
func (p *Plan) kind() Kind { return Kind{p.BatchSize > 0, p.Family != nil} }

// uses reports whether packages of families have that identifier.
func (d *Declared) uses(name string) bool { return d != nil && d.Used[name] }

// imports reports whether a package of that name is imported.
func (d *Declared) imports(name string) bool { return d != nil && d.Packages[name] }

// ProbeTensor is the Go name of the tensor of [Probes]. It does not occur in
// anything else that is generated. ProbeDim begins the names of its open dimensions, and
// ProbeSize those of parameters for them.
const (
	ProbeTensor = "PopefgenProbe"
	ProbeDim    = "PopefgenDim"
	ProbeSize   = "popefgenDim"
	ProbeBranch = "PopefgenBranch" // name of the branch
)

// Probes returns plans of a model that has one tensor in every place, with no list
// empty, so that [Declared] can be read from their files and from templates: an
// identifier with ProbeTensor in it is of a tensor's family. The last one is of a model
// with several sizes whose samples are told apart, and has all that templates name.
func Probes() []*Plan {
	var out []*Plan
	dim := 0
	for _, c := range []struct {
		opts   Options
		shapes [][]int64 // by main program
		fused  bool
		trains bool
	}{
		{opts: Options{Tests: true, Embed: "probe.popef"}, shapes: [][]int64{{1, 1}}},
		{opts: Options{Tests: true, BatchDim: &dim}, shapes: [][]int64{{1, 1}}},
		{opts: Options{Tests: true, Pack: &PackOptions{Inputs: []string{"in0"}, Axis: 1, Fill: map[string]string{"none": ""}}}, shapes: [][]int64{{1, 1}}},
		{opts: Options{Tests: true, State: []StatePair{{Out: "out0", In: "in0"}}}, shapes: [][]int64{{1, 1}}},
		{opts: Options{Tests: true, Renames: map[string]string{ProbeBranch + "/" + ProbeTensor: ProbeTensor}}, shapes: [][]int64{{1, 1}}, fused: true},
		{opts: Options{Tests: true}, shapes: [][]int64{{1, 1}}, trains: true},
		{opts: Options{Tests: true}, shapes: [][]int64{{1, 3, 8, 5}, {2, 3, 16, 5}}},
		{opts: Options{Tests: true}, shapes: [][]int64{{1, 3}, {2, 3}}, trains: true},
		{opts: Options{Tests: true, State: []StatePair{{Out: "out0", In: "in0"}}}, shapes: [][]int64{{1, 3}, {2, 3}}},
		{opts: Options{Tests: true, Serve: true}, shapes: [][]int64{{1, 1}}},
		{opts: Options{Tests: true, Serve: true, BatchDim: &dim}, shapes: [][]int64{{1, 1}}},
		{opts: Options{Tests: true, Serve: true}, shapes: [][]int64{{1, 3, 8, 5}, {2, 3, 16, 5}}},
		{opts: Options{Tests: true, Embed: "probe.popef", Serve: true}, shapes: [][]int64{{1, 3}, {2, 3}}},
	} {
		c.opts.Package, c.opts.ModelBase = "probe", "probe.popef"
		b := &builder{model: probeModel(c.shapes), opts: c.opts}
		sizes := func(of *contract.Contract) {}
		if len(c.shapes) > 1 {
			sizes = func(of *contract.Contract) {
				for d := range of.Family.Dims {
					of.Family.Dims[d].Name, of.Family.Dims[d].Rows = fmt.Sprint(ProbeDim, string(rune('A'+d))), true
				}
			}
		}
		b.probe = sizes
		if c.fused {
			for i := range b.model.Metadata.Anchors {
				b.model.Metadata.Anchors[i].Name = ProbeBranch + "/" + ProbeTensor
			}
			b.probe = probeFused
		}
		if c.trains {
			b.model.Metadata.IsInference = false
			b.probe = func(of *contract.Contract) {
				sizes(of)
				probeTraining(of)
			}
		}
		for _, pass := range passes() {
			pass(b)
		}
		if len(b.problems) > 0 {
			panic("plan: the model that names are read from has no package: " + b.problems[0]) // no input leads here
		}
		b.plan.Parts = []string{"probe.popef", "more.popef"}
		out = append(out, &b.plan)
	}
	return out
}

// probeTraining makes the model of a probe one that evaluates and has a value of the optimizer.
func probeTraining(of *contract.Contract) {
	const evaluate = 99
	of.Evaluate = evaluate
	for i := range of.Anchors {
		if of.Anchors[i].Role == contract.RunOutput {
			of.Anchors[i].Programs = append(of.Anchors[i].Programs, evaluate)
		}
	}
	of.Anchors = append(of.Anchors, contract.Anchor{Name: "rate", Handle: "rate", Type: popef.Input, Role: contract.Optimizer, Info: popef.TensorInfo{DataType: popef.F32}, Repeats: 1, Index: len(of.Anchors)})
}

// probeModel has a tensor of that name in every struct, with a main program for each shape of the
// run inputs and outputs.
func probeModel(shapes [][]int64) *popef.Model {
	info := func(shape ...int64) popef.TensorInfo { return popef.TensorInfo{DataType: popef.F32, Shape: shape} }
	m := &popef.Model{}
	m.Metadata = popef.Metadata{ReplicationFactor: 1, DeviceIterations: 1, IsInference: true, ProgramFlow: popef.ProgramFlow{Load: []uint32{0}, Save: []uint32{2}}}
	add := func(handle string, typ popef.TensorType, program uint32, i popef.TensorInfo) {
		m.Metadata.Anchors = append(m.Metadata.Anchors, popef.Anchor{Name: ProbeTensor, Handle: handle, Type: typ, Info: i, Programs: []uint32{program}})
	}
	for i, shape := range shapes {
		program := uint32(10 + i)
		m.Metadata.ProgramFlow.Main = append(m.Metadata.ProgramFlow.Main, program)
		add(fmt.Sprint("in", i), popef.Input, program, info(shape...))
		add(fmt.Sprint("out", i), popef.Output, program, info(shape...))
	}
	add("load", popef.Input, 0, info(1, 1))
	add("save", popef.Output, 2, info(1, 1))
	return m
}
