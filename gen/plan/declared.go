package plan

import "github.com/popefgen/popefgen/popef"

// Declared are the names that generated files have for themselves, whatever the
// model: no tensor and no package may have one of them. A nil Declared has none.
type Declared struct {
	// Owners has the identifiers of the package: by whom each is declared, for
	// messages.
	Owners map[string]string
	// Packages has the names of the packages that are imported.
	Packages map[string]bool
	// Families lists what each tensor declares, with %s for its name; by whether
	// samples are told apart.
	Families map[bool][]string
	// Extra holds what only some packages declare, as Owners does, under the
	// feature that they were generated with: "pack" or "state".
	Extra map[string]map[string]string
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
	return out
}

// imports reports whether a package of that name is imported.
func (d *Declared) imports(name string) bool { return d != nil && d.Packages[name] }

// ProbeTensor is the Go name of the tensor of [Probes]. It does not occur in
// anything else that is generated.
const ProbeTensor = "PopefgenProbe"

// Probes returns plans of a model that has one tensor in every place, with no list
// empty, so that [Declared] can be read from their files and from templates: an
// identifier with ProbeTensor in it is of a tensor's family.
func Probes() []*Plan {
	var out []*Plan
	dim := 0
	for _, o := range []Options{
		{Tests: true, Embed: "probe.popef"},
		{Tests: true, BatchDim: &dim},
		{Tests: true, Pack: &PackOptions{Inputs: []string{"in"}, Axis: 1, Fill: map[string]string{"none": ""}}},
		{Tests: true, State: []StatePair{{Out: "out", In: "in"}}},
	} {
		o.Package, o.ModelBase = "probe", "probe.popef"
		p, err := Build(probeModel(), o, nil)
		if err != nil {
			panic("plan: the model that names are read from has no package: " + err.Error()) // no input leads here
		}
		p.Parts = []string{"probe.popef", "more.popef"}
		out = append(out, p)
	}
	return out
}

// probeModel has a tensor of that name in every struct.
func probeModel() *popef.Model {
	info := popef.TensorInfo{DataType: popef.F32, Shape: []int64{1, 1}}
	m := &popef.Model{}
	m.Metadata = popef.Metadata{ReplicationFactor: 1, DeviceIterations: 1, ProgramFlow: popef.ProgramFlow{Load: []uint32{0}, Main: []uint32{1}, Save: []uint32{2}}}
	for _, a := range []struct {
		handle  string
		typ     popef.TensorType
		program uint32
	}{{"in", popef.Input, 1}, {"out", popef.Output, 1}, {"load", popef.Input, 0}, {"save", popef.Output, 2}} {
		m.Metadata.Anchors = append(m.Metadata.Anchors, popef.Anchor{Name: ProbeTensor, Handle: a.handle, Type: a.typ, Info: info, Programs: []uint32{a.program}})
	}
	return m
}
