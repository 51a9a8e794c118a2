package contract

import (
	"fmt"
	"slices"
	"strings"
)

// stateKind returns what an optimizer keeps for weights under such a name, "Accl1" for "Accl1___w"; "" if the name is not that of a state.
func stateKind(name string) string {
	if slices.Contains(stateNames, name) {
		return name
	}
	for _, prefix := range statePrefixes {
		if strings.HasPrefix(name, prefix) {
			return strings.TrimSuffix(prefix, "___")
		}
	}
	return ""
}

// ofOptimizer reports whether a field of a training model is there for its optimizer: a value that can be set, or a state.
func (f *Field) ofOptimizer() bool {
	return f.Group == OptimizerValues || f.Kept && stateKind(f.Name) != ""
}

// rule returns the kinds of state that a training model's optimizer keeps, sorted: two optimizers whose checkpoints fit each other have the same.
func (c *Callers) rule() []string {
	kinds := []string{}
	for i := range c.Fields {
		if f := &c.Fields[i]; c.Trains && f.Kept && stateKind(f.Name) != "" {
			kinds = append(kinds, stateKind(f.Name))
		}
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// otherRule reports whether both models train, with optimizers that keep other kinds of state.
func otherRule(old, new *Callers) bool {
	return old.Trains && new.Trains && !slices.Equal(old.rule(), new.rule())
}

// optimizer judges an optimizer of another rule in two findings, where one for each of its states would bury what matters. It marks the fields
// that they speak of, and returns the new fields without them.
func (j *judge) optimizer(added []int) (rest []int) {
	if !otherRule(&j.old.Callers, &j.new.Callers) {
		return added
	}
	var gone, come []int
	j.folded = map[int]bool{}
	for i, at := range j.pairs {
		if at < 0 && j.old.Fields[i].ofOptimizer() {
			gone, j.folded[i] = append(gone, i), true
		}
	}
	for _, at := range added {
		if j.new.Fields[at].ofOptimizer() {
			come = append(come, at)
		} else {
			rest = append(rest, at)
		}
	}
	was, is := j.old.optimizer(), j.new.optimizer()
	if was == is { // with gradients that are accumulated, or another scaling of the loss
		was, is = was+" and "+states(j.old.rule()), is+" and "+states(j.new.rule())
	}
	j.found = append(j.found, Finding{Kind: KindOptimizer, Verdict: Breaking, What: "optimizer", Old: was, New: is,
		Why: "it keeps other states for the weights: checkpoints of the old one do not fit",
		Do:  "generate the package again, and train on from the weights: popefgen extract --checkpoint FILE -o MODEL.onnx, and popefgen compile --train MODEL.onnx"})
	r := ruling{Breaking, false, "they come and go with the optimizer's states and the values that can be changed", "take the old ones out of the callers"}
	if len(gone) == 0 {
		r = ruling{Compatible, true, "callers may ignore what is new", again}
	}
	j.add(KindOptimizerFields, r, "fields of the optimizer", "", j.old.places(gone), j.new.places(come))
	return rest
}

// optimizer says what the model learns by: the text of the command line if it is known, the states otherwise.
func (p *Published) optimizer() string {
	if p.Optimizer != "" {
		return quote(p.Optimizer)
	}
	return "one with " + states(p.rule())
}

// states lists kinds of state.
func states(kinds []string) string {
	if len(kinds) == 0 {
		return "no states"
	}
	return "the states " + strings.Join(kinds, ", ")
}

// places names at most four of the fields in generated code, or their anchors if Go names are not known: values first, as few callers use states.
func (p *Published) places(fields []int) string {
	if len(fields) == 0 {
		return "none"
	}
	fields = slices.Clone(fields)
	slices.SortStableFunc(fields, func(a, b int) int { return int(p.Fields[b].Group) - int(p.Fields[a].Group) })
	var names []string
	const most = 4
	for _, i := range fields[:min(most, len(fields))] {
		if p.GoNames != nil {
			names = append(names, p.place(i))
		} else {
			names = append(names, p.Fields[i].what())
		}
	}
	more := ""
	if n := len(fields); n > most {
		more = fmt.Sprintf(" and %d more", n-most)
	}
	return strings.Join(names, ", ") + more
}
