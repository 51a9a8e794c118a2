package contract

import (
	"cmp"
	"fmt"
	"slices"
)

// Judge returns every difference between what callers see of two models or
// packages with its verdict: the breaking ones first, otherwise those of the
// model as a whole, of the old one's fields and of new fields. It is empty if
// and only if the texts, the Go names and whether there is RunSamples are the
// same. The latter two are compared only if both sides have Go names.
//
// The rules are those of docs/contract.md.
func Judge(old, new Published) []Finding { return Compare(old, new).Findings }

// Comparison is what [Compare] finds out about an old and a new contract.
type Comparison struct {
	Findings []Finding // as of [Judge]
	Fields   []int     // by index of an old field, that of the new one that it became; -1 if it is gone
	Members  []int     // by index of an old member, that of the new one of the same sizes; -1 if it is gone
}

// Compare is [Judge] that also says what became of every field and member.
func Compare(old, new Published) Comparison {
	j := &judge{old: old, new: new}
	var added []int
	j.pairs, added = pair(old.Fields, new.Fields)
	j.batched = j.findBatch()
	j.members = j.pairMembers()
	j.model()
	added = j.renames(j.optimizer(j.fused(added)))
	for i, at := range j.pairs {
		switch {
		case at >= 0:
			j.field(i, at)
		case !j.folded[i] && !slices.Contains(j.gone, old.Fields[i].Branch(&j.old.Callers)):
			j.removed(i)
		}
	}
	for _, at := range added {
		j.added(at)
	}
	j.sizes()
	slices.SortStableFunc(j.found, func(a, b Finding) int { return cmp.Compare(b.Verdict, a.Verdict) })
	return Comparison{j.found, j.pairs, j.members}
}

// judge is the state of one Judge. Fields go by their indices.
type judge struct {
	old, new Published
	pairs    []int
	members  []int
	batched  *batchChange
	gone     []string     // branches that the new one lacks
	folded   map[int]bool // old fields that a finding about the optimizer speaks of
	found    []Finding
}

// batchChange is a change of the leading dimension that all run inputs and
// outputs took part in.
type batchChange struct{ was, is int64 }

// ruling is what a difference means.
type ruling struct {
	verdict Verdict
	opens   bool
	why, do string
}

// add adds a finding about what if it changed; anchor is "" if it is not about
// one.
func (j *judge) add(k Kind, r ruling, what, anchor, was, is string) {
	if was != is {
		j.found = append(j.found, Finding{Kind: k, Verdict: r.verdict, Opens: r.opens, What: what, Anchor: anchor, Old: was, New: is, Why: r.why, Do: r.do})
	}
}

// addField adds a finding about a field if it changed.
func (j *judge) addField(k Kind, r ruling, f *Field, was, is string) {
	j.add(k, r, f.what(), f.Name, was, is)
}

// what is what findings call the field, such as `run input "image"`.
func (f *Field) what() string { return fmt.Sprintf("%s %q", groupNouns[f.Group], f.Name) }

// place is the field's place in generated code, such as Inputs.Image.
func (p *Published) place(i int) string {
	if p.GoNames != nil {
		return p.structName(&p.Fields[i]) + "." + p.GoNames[i]
	}
	return "its field of " + p.structName(&p.Fields[i])
}

const (
	again = "generate the package again"
	adapt = "adapt the callers"
)

// model judges what is not about one field.
func (j *judge) model() {
	old, new := &j.old, &j.new
	number := func(n uint32) string { return fmt.Sprint(n) }
	r := ruling{Compatible, true, "a model of this replication factor can be opened", again}
	switch {
	case new.Replicas == 1:
	case old.Replicas == 1:
		r = ruling{Breaking, false, "Open refuses every replication factor but 1 (rt.ErrReplication)", "compile the model without replication"}
	default:
		r = ruling{Compatible, false, "Open refuses both (rt.ErrReplication)", "compile the model without replication"}
	}
	j.add(KindReplicas, r, "replicas", "", number(old.Replicas), number(new.Replicas))
	j.add(KindIterations, ruling{Breaking, false,
		fmt.Sprintf("the constant DeviceIterations and the fields of Inputs and Outputs change: %s becomes %s", iterated(old.Iterations), iterated(new.Iterations)),
		fmt.Sprintf("adapt the callers to %d transfers per run, or compile with --iterations %d", new.Iterations, old.Iterations)},
		"device iterations", "", fmt.Sprint(old.Iterations), fmt.Sprint(new.Iterations))
	if new.GoNames != nil { // else it is a model, of which no package is known
		r := ruling{Compatible, true, "callers may ignore it", again}
		if old.Samples {
			r = ruling{Breaking, true, "RunSamples and the types of one sample are gone", "generate the package with --batch-dim"}
		}
		j.add(KindSamples, r, "samples", "", yesNo(old.Samples), yesNo(new.Samples))
	}
	r = ruling{Compatible, false, "it was written by an older popefgen, whose packages compare all of a model", again}
	if old.hash1 != "" || new.hash1 != "" { // what 2 and 3 differ in has findings of its own
		j.add(KindFormat, r, "format of the contract", "", old.format(), new.format())
	}
	j.training()
	j.order()
}

// order judges the order of the fields of each struct, as far as both have
// them.
func (j *judge) order() {
	if j.old.hash1 != "" || j.new.hash1 != "" {
		return // it was sorted by name
	}
	for g := Inputs; g < numGroups; g++ {
		var was, is []string
		var at []int
		for i, k := range j.pairs {
			if k >= 0 && j.old.Fields[i].Group == g && j.new.Fields[k].Group == g {
				was, at = append(was, quote(j.old.Fields[i].Name)), append(at, k)
			}
		}
		if slices.IsSorted(at) {
			continue
		}
		slices.Sort(at)
		for _, k := range at {
			is = append(is, quote(j.new.Fields[k].Name))
		}
		r := ruling{Compatible, true, "Open binds fields by the names of their anchors, whatever their order; literals of " + g.String() + " without field names do not build", again}
		if (j.old.Samples || j.new.Samples) && (g == Inputs || g == Outputs) {
			r.verdict, r.why, r.do = Breaking, "RunSamples takes its slices in this order", "give RunSamples its slices in the new order, or export the model with the old one"
		}
		// The names may be the same where anchors that share one changed places.
		j.found = append(j.found, Finding{KindOrder, r.verdict, r.opens, "order of " + g.String(), "", fmt.Sprint(was), fmt.Sprint(is), r.why, r.do})
	}
}

// iterated is the Go type of a field, T being that of its tensor.
func iterated(n int) string {
	if n == 1 {
		return "*T"
	}
	return fmt.Sprintf("*[%d]T", n)
}

// field judges what became of a field that both have.
func (j *judge) field(i, at int) {
	a, b := &j.old.Fields[i], &j.new.Fields[at]
	j.name(i, at)
	if a.Group != b.Group {
		j.addField(KindRole, ruling{Breaking, false, fmt.Sprintf("%s moves to %v%s", j.old.place(i), b.Group, j.lastOf(a.Group)), adapt}, a,
			groupNouns[a.Group], groupNouns[b.Group])
	}
	j.addField(KindType, ruling{Breaking, false, fmt.Sprintf("the elements of %s have another Go type", j.old.place(i)),
		fmt.Sprintf("convert at the callers, or compile the model with %v", a.Info.DataType)}, a, a.Info.DataType.String(), b.Info.DataType.String())

	if a.Axes != nil || b.Axes != nil {
		j.shape(i, at)
	} else {
		j.array(i, at)
	}
	j.addField(KindRepeats, ruling{Breaking, false, fmt.Sprintf("they are the first dimension of the array in %s", j.old.place(i)), adapt}, a,
		fmt.Sprint(a.Repeats), fmt.Sprint(b.Repeats))
	if a.runs() && b.runs() && (a.Transfers > 0 || b.Transfers > 0) {
		was, is := j.old.Transfers(a), j.new.Transfers(b)
		j.addField(KindTransfers, ruling{Breaking, false, fmt.Sprintf("the type of %s changes: %s becomes %s", j.old.place(i), iterated(was), iterated(is)),
			"adapt the callers, or compile the model with the old number of batches and the old return type"}, a, fmt.Sprint(was), fmt.Sprint(is))
	}
	j.trained(i, at)
	j.addField(KindHandle, ruling{Breaking, false, "several anchors have this name, and nothing but the stream handle tells which of them it is",
		"see which is which, generate the package again and adapt the callers"}, a, quote(a.Handle), quote(b.Handle))
}

// array judges the shape of a field that is an array in both.
func (j *judge) array(i, at int) {
	a, b := &j.old.Fields[i], &j.new.Fields[at]
	kind, r := KindShape, ruling{Breaking, false, fmt.Sprintf("the array in %s has another Go type", j.old.place(i)),
		"adapt the callers, or compile the model with the old shape"}
	if j.batched != nil && leads(a, b, j.batched) {
		kind = KindBatch
		r.why = fmt.Sprintf("for whole-batch calls the first array length of %s is %d, no longer %d; RunSamples stays as it is, as one sample is what it was",
			j.old.place(i), j.batched.is, j.batched.was)
		r.do = fmt.Sprintf("adapt whole-batch callers or let them call RunSamples (generate with --batch-dim 0), or compile with --batch %d", j.batched.was)
	}
	j.addField(kind, r, a, fmt.Sprint(a.Info.Shape), fmt.Sprint(b.Info.Shape))
}

// name judges the names of a field, in the model and in Go.
func (j *judge) name(i, at int) {
	a, b := &j.old.Fields[i], &j.new.Fields[at]
	was, is := "", ""
	if j.old.GoNames != nil {
		was = j.old.GoNames[i]
	}
	if j.new.GoNames != nil {
		is = j.new.GoNames[at]
	}
	if a.Name != b.Name {
		r := ruling{Breaking, false, fmt.Sprintf("probably a new name, as type and shape are the same: %s gets another name, and so do its type and constants", j.old.place(i)),
			adapt + j.keep(was, at)}
		if was != "" && was == is {
			r = ruling{Compatible, false, fmt.Sprintf("its Go name %s stays, only the constant Anchor%s has another value; Open looks for anchors by name", was, was), again}
		}
		j.addField(KindRenamed, r, a, quote(a.Name), quote(b.Name))
		return
	}
	if was != "" && is != "" {
		j.addField(KindGoName, ruling{Breaking, true, "the same anchor is another field, type and constant in Go", adapt + j.keep(was, at)}, a, was, is)
	}
}

// removed judges a field that is gone.
func (j *judge) removed(i int) {
	f := &j.old.Fields[i]
	r := ruling{Breaking, false, fmt.Sprintf("%s is gone%s", j.old.place(i), j.lastOf(f.Group)), "remove it from the callers, or compile the model with it"}
	if h := j.new.hidden(f.Name); h != nil {
		r.why += fmt.Sprintf("; the model has an anchor of this name that callers do not see: %v, %s", h.Role, inFile(h.HasData))
	}
	j.addField(KindRemoved, r, f, j.old.summary(f), "")
}

// added judges a field that is new.
func (j *judge) added(at int) {
	f := &j.new.Fields[at]
	var r ruling
	switch f.Group {
	case Inputs:
		r = ruling{Breaking, false, fmt.Sprintf("it is required: callers must fill %s, which is zeros or nil until they do", j.new.place(at)), "fill it at the callers"}
	case LoadInputs:
		r = ruling{Breaking, false, fmt.Sprintf("it is required: callers must give %s to Open", j.new.place(at)), "give its value to Open"}
		if !j.old.has(LoadInputs) {
			r.why = "it is required: Open gets the argument load"
		}
	case OptimizerValues:
		r = ruling{Compatible, true, "its value stays that of the file until SetOptimizer is given another", again + " to set it"}
	default:
		in := j.new.structName(f)
		r = ruling{Compatible, true, fmt.Sprintf("callers may ignore it: New%s allocates it", in),
			again + fmt.Sprintf(" to see it; code that fills %s without New%s must then set the field", in, in)}
		if j.old.Samples && f.Group == Outputs {
			r = ruling{Breaking, true, "RunSamples gets another argument once the package is generated again; until then the output is dropped, as for whoever calls Run", "give RunSamples a slice for it"}
		}
	}
	if h := j.old.hidden(f.Name); h != nil {
		r.why += fmt.Sprintf("; before, callers did not see the anchor of this name: %v, %s", h.Role, inFile(h.HasData))
	}
	j.addField(KindAdded, r, f, "", j.new.summary(f))
}

// lastOf says what else goes with the last field of a struct.
func (j *judge) lastOf(g Group) string {
	switch {
	case j.new.has(g):
	case g == LoadInputs:
		return ", and with it LoadInputs and the argument load of Open"
	case g == OptimizerValues:
		return ", and with it SetOptimizer"
	case g == SaveOutputs:
		return ", and with it SaveOutputs and the method Save"
	}
	return ""
}

// has reports whether generated code has a field in that struct.
func (p *Published) has(g Group) bool {
	return slices.ContainsFunc(p.Fields, func(f Field) bool { return f.Group == g })
}

// hidden returns the first anchor of that name that callers do not see, nil if
// there is none or nobody knows.
func (p *Published) hidden(name string) *Anchor {
	i := slices.IndexFunc(p.Hidden, func(a Anchor) bool { return a.Name == name && a.Role != Unused })
	if i < 0 {
		return nil
	}
	return &p.Hidden[i]
}

// summary returns a field's type and shape, with what else the text has.
func (c *Callers) summary(f *Field) string {
	s := c.info(f)
	if f.Repeats != 1 {
		s += fmt.Sprintf(" repeated %d times", f.Repeats)
	}
	if f.Transfers > 0 {
		s += fmt.Sprintf(", %d transfers", f.Transfers)
	}
	if f.Handle != "" {
		s += ", handle " + quote(f.Handle)
	}
	return s
}

func quote(s string) string { return fmt.Sprintf("%q", s) }

func inFile(has bool) string {
	if has {
		return "its data is in the file"
	}
	return "its data is not in the file"
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
