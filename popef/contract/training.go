package contract

import (
	"slices"
	"strings"

	"github.com/popefgen/popefgen/popef"
)

// headerTraining is the first line of the canonical text of a training model.
const headerTraining = "popefgen contract 6"

// headerTrainingFamily is that of a training model of several sizes.
const headerTrainingFamily = "popefgen contract 7"

// evaluateName is the name of the program that computes what a step does without changing a weight. Of a family it is followed by a space and the
// sizes.
const evaluateName = "Evaluate"

// evaluating returns the programs that evaluate, of whose names is says which they are.
func evaluating(meta *popef.Metadata, is func(name string) bool) (out []uint32) {
	flow := slices.Concat(meta.ProgramFlow.Load, meta.ProgramFlow.Main, meta.ProgramFlow.Save)
	for _, p := range meta.Programs {
		if is(p.Name) && !slices.Contains(flow, p.Index) {
			out = append(out, p.Index)
		}
	}
	return out
}

// evaluates returns the index of the program that evaluates, 0 if there is none: load programs have that.
func evaluates(meta *popef.Metadata) uint32 {
	if all := evaluating(meta, func(name string) bool { return name == evaluateName }); len(all) > 0 {
		return all[0]
	}
	return 0
}

// evaluatesMembers finds the programs that evaluate in the sizes of a family's members: those that move the outputs of each.
func (c *Contract) evaluatesMembers(meta *popef.Metadata) {
	all := evaluating(meta, func(name string) bool { return name == evaluateName || strings.HasPrefix(name, evaluateName+" ") })
	c.Evaluates = make([]uint32, len(c.Family.Members))
	for i := range c.Family.Tensors {
		t := &c.Family.Tensors[i]
		for m, at := range t.Anchors {
			for _, p := range meta.Anchors[at].Programs {
				if t.Type == popef.Output && slices.Contains(all, p) {
					c.Evaluates[m] = p
				}
			}
		}
	}
	if slices.Contains(c.Evaluates, 0) {
		c.Evaluates = nil
		c.Evaluate = 0
		return
	}
	c.Evaluate = c.Evaluates[0]
}

// training says of fields what a package of a training model makes of them. A model trains if callers may set values of an optimizer, or
// if it was not compiled for inference, runs one main program or is a family in which data decides no size, and saves weights under the names by which it loads them.
func (c *Contract) training(out *Callers) {
	if c.Branches != nil || c.Family == nil && len(c.Flow.Main) != 1 || slices.ContainsFunc(c.Anchors, func(a Anchor) bool { return a.Counts }) {
		return
	}
	loaded := map[string]*Anchor{}
	for i := range c.Anchors {
		switch a := &c.Anchors[i]; a.Role {
		case LoadData, LoadInput, State, Seed, RandomState:
			loaded[a.Name] = a
		}
	}
	visible := c.Visible()
	for i := range out.Fields {
		f := &out.Fields[i]
		if in := loaded[f.Name]; f.Group == SaveOutputs && in != nil && in.Info.Equal(f.Info) && f.Repeats == 1 {
			f.Weight = in.Role == LoadData || in.Role == LoadInput
			f.Kept = !f.Weight
		}
		f.Evaluated = f.Group == Outputs && c.Evaluate > 0 && slices.Contains(visible[i].Programs, c.Evaluate)
		out.Trains = out.Trains || f.Group == OptimizerValues || f.Weight && !c.Inference
	}
	if out.Trains {
		for i := range out.Dims { // a step would learn of what a request is filled up with
			out.Dims[i].Rows, out.Dims[i].Pads = false, nil
		}
		return
	}
	for i := range out.Fields {
		f := &out.Fields[i]
		f.Weight, f.Kept, f.Evaluated = false, false, false
	}
}

// flags reads what stands behind a field of a training model.
func (p *parser) flags(f *Field) {
	if !p.trains {
		return
	}
	f.Evaluated = f.Group == Outputs && p.skip(" evaluate")
	f.Weight = f.Group == SaveOutputs && p.skip(" weight")
	f.Kept = f.Group == SaveOutputs && !f.Weight && p.skip(" state")
}

// training judges whether the models train, and what of it callers of a field see.
func (j *judge) training() {
	r := ruling{Compatible, true, "callers may ignore it: Step, Checkpoint and what else a training package has are new", again}
	if j.old.Trains {
		r = ruling{Breaking, false, "Step, SetOptimizer, Checkpoint and what else a training package has are gone", "open a training model, or generate a package of its own for this one"}
	}
	j.add(KindTraining, r, "training", "", yesNo(j.old.Trains), yesNo(j.new.Trains))
}

// trained judges what a package of a training model makes of a field that both have.
func (j *judge) trained(i, at int) {
	a, b := &j.old.Fields[i], &j.new.Fields[at]
	if !j.old.Trains || !j.new.Trains || a.Group != b.Group {
		return
	}
	r := ruling{Compatible, true, "NewEvaluateOutputs allocates it, and callers may ignore it", again}
	if a.Evaluated {
		r = ruling{Breaking, false, "Evaluate does not return it any more", "take it from Step at the callers, or compile the model with it as an output of the forward graph"}
	}
	j.addField(KindEvaluated, r, a, yesNo(a.Evaluated), yesNo(b.Evaluated))
	r = ruling{Compatible, true, "NewWeights allocates what is new, and callers may ignore it", again}
	if a.Weight || a.Kept {
		r = ruling{Breaking, false, "the fields of Weights, and what the method All of SaveOutputs returns, are others", "take it from Save at the callers"}
	}
	j.addField(KindKept, r, a, a.kept(), b.kept())
}

// kept says what a save output of a model that trains is to it.
func (f *Field) kept() string {
	switch {
	case f.Weight:
		return "a weight"
	case f.Kept:
		return "state"
	}
	return "not loaded again"
}
