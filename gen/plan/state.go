package plan

import (
	"slices"

	"github.com/popefgen/popefgen/internal/nearest"
	"github.com/popefgen/popefgen/popef/contract"
)

// StatePair is an output that is the input of the next request.
type StatePair struct {
	Out, In string // names of anchors, or stream handles
}

// State is a tensor that a stream keeps from one request to the next.
type State struct {
	Input, Output int   // index in Plan.Inputs, and in Plan.Outputs
	Tensor        int   // index in Plan.Tensors: one type for both, or that of the input of a state that grows
	Grows         int64 // positions by which a request makes it longer; 0 for a state of one size
}

// states finds the pairs, and makes one tensor of each.
func (b *builder) states() {
	p := &b.plan
	if len(b.opts.State) == 0 {
		return
	}
	if p.Uneven() {
		b.problem("state: a run moves inputs and outputs another number of times each, and a state goes from one transfer to the next")
		return
	}
	if p.DeviceIterations > 1 {
		b.problem("state: the model has %d device iterations, and each would begin with the state before the first; compile it without --iterations", p.DeviceIterations)
		return
	}
	given := map[int]string{} // anchors to the pair that has them
	for _, s := range b.opts.State {
		pair := s.Out + "=" + s.In
		out, in := b.stateAnchor(pair, s.Out, contract.RunOutput), b.stateAnchor(pair, s.In, contract.RunInput)
		if out < 0 || in < 0 {
			continue
		}
		before := ""
		for _, i := range []int{out, in} {
			if given[i] != "" && before == "" {
				before = given[i]
				b.problem("state %s: %s %q belongs to state %s already; want each once", pair, roleNoun(p.Anchors[i].Role), p.Anchors[i].Name, before)
			}
			given[i] = pair
		}
		dim, grows := b.grows(in, out)
		switch {
		case before != "":
			continue
		case grows > 0:
			b.cached = append(b.cached, cached{pair, dim, grows})
			b.statePairs = append(b.statePairs, [2]int{in, out})
			p.State = append(p.State, State{Grows: grows})
			continue
		case p.Anchors[out].Info != p.Anchors[in].Info:
			b.problem("state %s: the output is %s and the input %s; want one type for both%s", pair, p.Anchors[out].Info, p.Anchors[in].Info, b.growsByOwn(in, out))
			continue
		}
		b.merge(in, out)
		b.statePairs = append(b.statePairs, [2]int{in, out})
		p.State = append(p.State, State{})
	}
}

// stateAnchor finds one side of a pair.
func (b *builder) stateAnchor(pair, name string, role contract.Role) int {
	var names []string
	found := -1
	for _, byHandle := range []bool{false, true} {
		for i, a := range b.plan.Anchors {
			switch key := a.Name; {
			case a.Role != role:
			case byHandle && b.metas[i].Handle == name, !byHandle && key == name:
				if found >= 0 {
					b.problem("state %s: several %ss are called %q; choose one by its stream handle", pair, roleNoun(role), name)
					return -1
				}
				found = i
			default:
				names = append(names, key)
			}
		}
		if found >= 0 {
			return found
		}
	}
	hint := nearest.DidYouMean(name, names)
	for i, a := range b.plan.Anchors {
		if a.Name == name || b.metas[i].Handle == name {
			hint = "; it is an " + roleNoun(a.Role) + " (want --state OUTPUT=INPUT)"
		}
	}
	b.problem("state %s: the model has no %s %q%s", pair, roleNoun(role), name, hint)
	return -1
}

// merge gives the output of a state the type of its input.
func (b *builder) merge(in, out int) {
	p := &b.plan
	gone := b.tensor[out]
	b.tensor[out] = b.tensor[in]
	if gone == b.tensor[in] || slices.Contains(b.tensor, gone) {
		return // another anchor has this type too
	}
	p.Tensors = slices.Delete(p.Tensors, gone, gone+1)
	for i := range b.tensor {
		if b.tensor[i] > gone {
			b.tensor[i]--
		}
	}
	b.renamed = b.renamed[:len(p.Tensors)]
}

// stateFields notes where the states stand among the inputs and outputs.
func (b *builder) stateFields() {
	p := &b.plan
	at := func(fields []Field, anchor int) int {
		return slices.IndexFunc(fields, func(f Field) bool { return f.Anchor == anchor })
	}
	for i, pair := range b.statePairs {
		p.State[i].Input, p.State[i].Output, p.State[i].Tensor = at(p.Inputs, pair[0]), at(p.Outputs, pair[1]), b.tensor[pair[0]]
	}
	if p.Flow != nil {
		for i := range p.Flow.Fills {
			p.Flow.Fills[i].Input = at(p.Inputs, p.Flow.Fills[i].Input)
		}
	}
}

// StreamInputs are the inputs that a request to a stream has: all but its state, and what the
// stream fills.
func (p *Plan) StreamInputs() (fields []Field) {
	for i, f := range p.Inputs {
		if !slices.ContainsFunc(p.State, func(s State) bool { return s.Input == i }) && !p.Filled(i) {
			fields = append(fields, f)
		}
	}
	return fields
}

// StreamOutputs are the outputs that a request to a stream has: all but its state.
func (p *Plan) StreamOutputs() (fields []Field) {
	for i, f := range p.Outputs {
		if !slices.ContainsFunc(p.State, func(s State) bool { return s.Output == i }) {
			fields = append(fields, f)
		}
	}
	return fields
}

// StateOfInput returns the name of the field of State that input i reads, or "".
func (p *Plan) StateOfInput(i int) string {
	for _, s := range p.State {
		if s.Input == i {
			return p.Inputs[i].Name
		}
	}
	return ""
}

// StateOfOutput returns the name of the field of State that output i fills, or "".
func (p *Plan) StateOfOutput(i int) string {
	for _, s := range p.State {
		if s.Output == i {
			return p.Inputs[s.Input].Name
		}
	}
	return ""
}
