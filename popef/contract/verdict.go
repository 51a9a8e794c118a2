package contract

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Verdict says what a change means for the code that calls a generated
// package, once the package is generated again from the new model.
type Verdict uint8

// The verdicts, from the mildest on.
const (
	// Identical: nothing changed. The package need not be generated again.
	Identical Verdict = iota
	// Compatible: callers build and mean the same, once the package is
	// generated again; only a pin has to be renewed.
	Compatible
	// Breaking: some callers do not build any more, or fail when they run.
	Breaking
)

var verdictNames = [...]string{"identical", "compatible", "breaking"}

// String returns the verdict in lower case.
func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return fmt.Sprintf("verdict(%d)", uint8(v))
}

// MarshalText returns what String does.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// Kind says what a finding is about. The values are stable: programs may rely
// on them.
type Kind string

// The kinds of finding.
const (
	KindRemoved      Kind = "removed"       // an anchor is gone
	KindAdded        Kind = "added"         // an anchor is new
	KindRenamed      Kind = "renamed"       // an anchor has another name
	KindGoName       Kind = "go-name"       // the same name makes another Go identifier
	KindRole         Kind = "role"          // an anchor plays another role
	KindDirection    Kind = "direction"     // input, output
	KindType         Kind = "type"          // element type
	KindShape        Kind = "shape"         // number or size of dimensions
	KindBatch        Kind = "batch"         // the leading dimension of all run inputs and outputs, and nothing else
	KindHandle       Kind = "handle"        // stream handle
	KindData         Kind = "data"          // whether the file carries it
	KindPrograms     Kind = "programs"      // programs that move it
	KindPerReplica   Kind = "per-replica"   // whether replicas differ
	KindRemoteBuffer Kind = "remote-buffer" // whether it lives in one
	KindRepeats      Kind = "repeats"       // blocks in the remote buffer
	KindReplicas     Kind = "replicas"
	KindIPUs         Kind = "ipus"
	KindIterations   Kind = "iterations"
	KindSeed         Kind = "seed"
	KindLoadFlow     Kind = "load-flow"
	KindMainFlow     Kind = "main-flow"
	KindSaveFlow     Kind = "save-flow"
	KindSamples      Kind = "samples" // whether the package has RunSamples

	// Kinds outside the contract, see [Notes].
	KindWeights    Kind = "weights"
	KindExecutable Kind = "executable"
	KindOptions    Kind = "options"
	KindNames      Kind = "program-names"
	KindTarget     Kind = "target"
)

// Outside reports whether the kind is about something that is no part of the
// contract.
func (k Kind) Outside() bool {
	switch k {
	case KindWeights, KindExecutable, KindOptions, KindNames, KindTarget:
		return true
	}
	return false
}

// Finding is one difference between two models and what it means for callers.
type Finding struct {
	Kind    Kind    `json:"kind"`
	Verdict Verdict `json:"verdict"`
	What    string  `json:"what"`             // what changed, such as `run input "image"` or "main programs"
	Anchor  string  `json:"anchor,omitempty"` // the anchor's name, in the old model if it is there; empty if it is not about one
	Old     string  `json:"old"`              // what it was; empty if there was nothing
	New     string  `json:"new"`              // what it is; empty if there is nothing
	Why     string  `json:"why"`              // why callers break, or do not
	Do      string  `json:"do"`               // what to do about it
}

// Change returns the difference in words, such as
// `run input "image": shape was [1 28 28], is [8 28 28]`.
func (f Finding) Change() string {
	switch f.Kind {
	case KindRemoved:
		return fmt.Sprintf("%s is gone; it was %s", f.What, f.Old)
	case KindAdded:
		return fmt.Sprintf("%s is new: %s", f.What, f.New)
	case KindRenamed:
		return fmt.Sprintf("%s: the name was %s, is %s", f.What, f.Old, f.New)
	case KindGoName:
		return fmt.Sprintf("%s: the Go name was %s, is %s", f.What, f.Old, f.New)
	}
	if f.Anchor == "" {
		return fmt.Sprintf("%s: was %s, is %s", f.What, f.Old, f.New)
	}
	return fmt.Sprintf("%s: %s was %s, is %s", f.What, kindWords[f.Kind], f.Old, f.New)
}

var kindWords = map[Kind]string{
	KindRole: "its role", KindDirection: "direction", KindType: "type", KindShape: "shape", KindBatch: "shape", KindHandle: "stream handle",
	KindData: "its data", KindPrograms: "programs", KindPerReplica: "per replica", KindRemoteBuffer: "remote buffer", KindRepeats: "repeats",
}

// String returns the finding on one line.
func (f Finding) String() string {
	return fmt.Sprintf("%s (%s); to do: %s", f.Change(), f.Why, f.Do)
}

// Worst returns the verdict on the contracts that findings are about: the
// worst among them, where those outside the contract do not count.
func Worst(findings []Finding) Verdict {
	worst := Identical
	for _, f := range findings {
		if !f.Kind.Outside() {
			worst = max(worst, f.Verdict)
		}
	}
	return worst
}

// Judge returns every difference between two contracts with its verdict: the
// breaking ones first, otherwise in the order of [Diff]. It is empty if and
// only if the contracts, their Go names and whether they have RunSamples are the
// same. The latter two are compared only if both sides have Go names.
//
// The rules are those of docs/contract.md. Anchors that generated code shows,
// which is decided by their roles, break callers when they go, move to another
// struct or change type or shape, and inputs also when they come. Everything
// else changes what is generated, but nothing that a caller sees.
func Judge(old, new Published) []Finding {
	j := &judge{old: old, new: new}
	pairs, added := pair(old.Anchors, new.Anchors)
	j.batched = j.findBatch(pairs)
	j.model()
	renamed := j.renames(pairs, added)
	for i, at := range pairs {
		a := &old.Anchors[i]
		switch {
		case at >= 0:
			j.anchor(a, &new.Anchors[at])
		case renamed[i] != nil:
			j.anchor(a, renamed[i])
		default:
			j.removed(a)
		}
	}
	for _, at := range added {
		if b := &new.Anchors[at]; !slices.Contains(renamed, b) {
			j.added(b)
		}
	}
	slices.SortStableFunc(j.found, func(a, b Finding) int { return cmp.Compare(b.Verdict, a.Verdict) })
	return j.found
}

// judge is the state of one Judge.
type judge struct {
	old, new Published
	batched  *batchChange
	found    []Finding
}

// batchChange is a change of the leading dimension that all run inputs and
// outputs took part in.
type batchChange struct{ was, is int64 }

// group is the struct of generated code that shows an anchor, "" if none does.
func (a *Anchor) group() string {
	switch a.Role {
	case RunInput:
		return "Inputs"
	case RunOutput:
		return "Outputs"
	case LoadInput:
		return "LoadInputs"
	case Seed:
		if !a.HasData {
			return "LoadInputs"
		}
	case SaveOutput:
		return "SaveOutputs"
	}
	return ""
}

// field is the anchor's place in generated code, such as Inputs.Image.
func (p *Published) field(a *Anchor) string {
	if name := p.GoNames[a.Handle]; name != "" {
		return a.group() + "." + name
	}
	return "its field of " + a.group()
}

// anchorFinding adds a finding about an anchor if it changed.
func (j *judge) anchorFinding(k Kind, v Verdict, a *Anchor, was, is, why, do string) {
	if was != is {
		what := fmt.Sprintf("%v %q", a.Role, a.Name)
		if a.Role == Unused {
			what = fmt.Sprintf("unused anchor %q", a.Name)
		}
		j.found = append(j.found, Finding{k, v, what, a.Name, was, is, why, do})
	}
}

// modelFinding adds a finding about the model as a whole if it changed.
func (j *judge) modelFinding(k Kind, v Verdict, what, was, is, why, do string) {
	if was != is {
		j.found = append(j.found, Finding{Kind: k, Verdict: v, What: what, Old: was, New: is, Why: why, Do: do})
	}
}

const (
	again     = "generate the package again"
	asBefore  = "callers do not see it"
	adapt     = "adapt the callers"
	generated = "the generated package does it"
)

// model judges what is not about one anchor.
func (j *judge) model() {
	old, new := &j.old, &j.new
	number := func(n uint32) string { return fmt.Sprint(n) }

	v, why, do := Compatible, "a package of this replication factor can be opened", again
	switch {
	case new.Replicas == 1:
	case old.Replicas == 1:
		v, why, do = Breaking, "Open refuses every replication factor but 1 (rt.ErrReplication)", "compile the model without replication"
	default:
		why, do = "Open refuses both (rt.ErrReplication)", "compile the model without replication"
	}
	j.modelFinding(KindReplicas, v, "replicas", number(old.Replicas), number(new.Replicas), why, do)
	j.modelFinding(KindIPUs, Compatible, "IPUs", number(old.IPUs), number(new.IPUs),
		"Open looks for a device of this size; callers do not name it", again+"; see that such a device is there")
	j.iterations()
	if new.GoNames != nil { // else it is a model, of which no package is known
		v, why, do := Compatible, "callers may ignore it", again
		if old.Samples {
			v, why, do = Breaking, "RunSamples and the types of one sample are gone", "generate the package with --batch-dim"
		}
		j.modelFinding(KindSamples, v, "samples", yesNo(old.Samples), yesNo(new.Samples), why, do)
	}
	j.modelFinding(KindSeed, Compatible, "seed handle", quote(old.SeedHandle), quote(new.SeedHandle),
		"callers never name it; what becomes of the anchors has lines of its own", again)
	for _, f := range []struct {
		kind     Kind
		what     string
		was, now []uint32
		runs     string
	}{
		{KindLoadFlow, "load programs", old.Flow.Load, new.Flow.Load, "Open runs them by itself"},
		{KindMainFlow, "main programs", old.Flow.Main, new.Flow.Main, "Run and Submit run them by themselves"},
		{KindSaveFlow, "save programs", old.Flow.Save, new.Flow.Save, "Save runs them by itself"},
	} {
		j.modelFinding(f.kind, Compatible, f.what, fmt.Sprint(f.was), fmt.Sprint(f.now), f.runs+"; callers never name programs", again)
	}
}

// iterations judges the device iterations, which are an array dimension of
// every run input and output where there are several.
func (j *judge) iterations() {
	was, is := j.old.DeviceIterations(), j.new.DeviceIterations()
	v, why, do := Compatible, "both mean one transfer per run", again
	if was != is {
		v, why, do = Breaking, fmt.Sprintf("the constant DeviceIterations and the fields of Inputs and Outputs change: %s becomes %s", iterated(was), iterated(is)),
			fmt.Sprintf("adapt the callers to %d transfers per run, or compile with --iterations %d", is, was)
	}
	j.modelFinding(KindIterations, v, "device iterations", fmt.Sprint(j.old.Iterations), fmt.Sprint(j.new.Iterations), why, do)
}

// iterated is the Go type of a field, T being that of its tensor.
func iterated(n int) string {
	if n == 1 {
		return "*T"
	}
	return fmt.Sprintf("*[%d]T", n)
}

// anchor judges what became of an anchor that is in both contracts.
func (j *judge) anchor(a, b *Anchor) {
	wasIn, isIn := a.group(), b.group()
	shown := wasIn != "" && isIn != ""
	// of is the verdict on what callers see of an anchor that both packages show.
	of := func(why, do string) (Verdict, string, string) {
		switch {
		case shown:
			return Breaking, why, do
		case wasIn != "":
			return Compatible, "the new package does not show it", again
		case isIn != "":
			return Compatible, "the old package did not show it", again
		}
		return Compatible, asBefore, again
	}
	j.name(a, b)
	if a.Role != b.Role || wasIn != isIn { // a seed is shown only without data
		j.role(a, b)
	} else {
		// Else they are said with the role that they decide.
		j.anchorFinding(KindDirection, Compatible, a, a.Type.String(), b.Type.String(), asBefore, again)
		j.anchorFinding(KindData, Compatible, a, inFile(a.HasData), inFile(b.HasData), asBefore, again)
		j.anchorFinding(KindPrograms, Compatible, a, fmt.Sprint(a.Programs), fmt.Sprint(b.Programs), "its role stays; callers never name programs", again)
	}
	v, why, do := of(fmt.Sprintf("the elements of %s have another Go type", j.old.field(a)),
		fmt.Sprintf("convert at the callers, or compile the model with %v", a.Info.DataType))
	j.anchorFinding(KindType, v, a, a.Info.DataType.String(), b.Info.DataType.String(), why, do)

	kind := KindShape
	v, why, do = of(fmt.Sprintf("the array in %s has another Go type", j.old.field(a)), "adapt the callers, or compile the model with the old shape")
	if shown && j.batched != nil && leads(a, b, j.batched) {
		kind = KindBatch
		why = fmt.Sprintf("for whole-batch calls the first array length of %s is %d, no longer %d; RunSamples stays as it is, as one sample is what it was",
			j.old.field(a), j.batched.is, j.batched.was)
		do = fmt.Sprintf("adapt whole-batch callers or let them call RunSamples (generate with --batch-dim 0), or compile with --batch %d", j.batched.was)
	}
	j.anchorFinding(kind, v, a, fmt.Sprint(a.Info.Shape), fmt.Sprint(b.Info.Shape), why, do)

	v, why, do = of(fmt.Sprintf("they are the first dimension of the array in %s", j.old.field(a)), adapt)
	j.anchorFinding(KindRepeats, v, a, fmt.Sprint(a.Repeats), fmt.Sprint(b.Repeats), why, do)
	j.anchorFinding(KindHandle, Compatible, a, quote(a.Handle), quote(b.Handle), "Open connects the streams; callers never name handles",
		again+", with --rename adapted where it names the old handle")
	j.anchorFinding(KindPerReplica, Compatible, a, yesNo(a.PerReplica), yesNo(b.PerReplica), "it makes no difference to one replica", again)
	j.anchorFinding(KindRemoteBuffer, Compatible, a, yesNo(a.RemoteBuffer), yesNo(b.RemoteBuffer), "where it lives changes no Go type", again)
}

// name judges the names of an anchor, in the model and in Go.
func (j *judge) name(a, b *Anchor) {
	was, is := j.old.GoNames[a.Handle], j.new.GoNames[b.Handle]
	shown := a.group() != "" && b.group() != ""
	sameInGo := was != "" && was == is
	if a.Name != b.Name {
		v, why, do := Compatible, asBefore, again
		switch {
		case shown && sameInGo:
			why = fmt.Sprintf("both names make the Go name %s; only the constant Anchor%s has another value", was, was)
		case shown:
			v, why, do = Breaking, fmt.Sprintf("%s gets another name, and so do its type and constants", j.old.field(a)), "adapt the callers"+j.keep(was, b)
			if a.Handle != b.Handle {
				why = "probably a new name, as direction, type and shape are the same: " + why
			}
		}
		j.anchorFinding(KindRenamed, v, a, quote(a.Name), quote(b.Name), why, do)
		return
	}
	if shown && was != "" && is != "" {
		j.anchorFinding(KindGoName, Breaking, a, was, is, "the same anchor is another field, type and constant in Go", "adapt the callers"+j.keep(was, b))
	}
}

// role judges an anchor whose role changed.
func (j *judge) role(a, b *Anchor) {
	wasIn, isIn := a.group(), b.group()
	v, why, do := Compatible, asBefore, again
	switch {
	case wasIn == isIn:
		if wasIn != "" {
			why = "it stays a field of " + wasIn
		}
	case wasIn == "" && (isIn == "Outputs" || isIn == "SaveOutputs"):
		v, why, do = j.newOutput(b)
	case wasIn == "":
		v = Breaking
		why, do = j.newInput(b)
	case isIn == "":
		v = Breaking
		why, do = fmt.Sprintf("%s is gone%s", j.old.field(a), j.lastOf(wasIn)), "remove it from the callers"
	default:
		v = Breaking
		why, do = fmt.Sprintf("%s moves to %s", j.old.field(a), isIn), adapt
	}
	var was, is []string // what decided
	for _, p := range []struct{ was, is string }{
		{a.Type.String(), b.Type.String()},
		{"programs " + fmt.Sprint(a.Programs), "programs " + fmt.Sprint(b.Programs)},
		{inFile(a.HasData), inFile(b.HasData)},
	} {
		if p.was != p.is {
			was, is = append(was, p.was), append(is, p.is)
		}
	}
	because := func(r Role, reasons []string) string {
		if reasons == nil {
			return r.String()
		}
		return fmt.Sprintf("%v (%s)", r, strings.Join(reasons, ", "))
	}
	j.anchorFinding(KindRole, v, a, because(a.Role, was), because(b.Role, is), why, do)
}

// removed judges an anchor that is gone.
func (j *judge) removed(a *Anchor) {
	if a.group() == "" {
		j.anchorFinding(KindRemoved, Compatible, a, a.summary(), "", asBefore, again)
		return
	}
	j.anchorFinding(KindRemoved, Breaking, a, a.summary(), "",
		fmt.Sprintf("%s is gone%s", j.old.field(a), j.lastOf(a.group())), "remove it from the callers, or compile the model with it")
}

// added judges an anchor that is new.
func (j *judge) added(b *Anchor) {
	v, why, do := Compatible, asBefore, again
	switch b.group() {
	case "Inputs", "LoadInputs":
		v = Breaking
		why, do = j.newInput(b)
	case "Outputs", "SaveOutputs":
		v, why, do = j.newOutput(b)
	}
	j.anchorFinding(KindAdded, v, b, "", b.summary(), why, do)
}

// newInput says what an input means that callers did not have to give before.
func (j *judge) newInput(b *Anchor) (why, do string) {
	if b.group() == "LoadInputs" {
		if !j.old.has("LoadInputs") {
			return "it is required: Open gets the argument load", "give its value to Open"
		}
		return fmt.Sprintf("it is required: callers must give %s to Open", j.new.field(b)), "give its value to Open"
	}
	return fmt.Sprintf("it is required: callers must fill %s, which is zeros or nil until they do", j.new.field(b)), "fill it at the callers"
}

// newOutput says what an output means that callers did not get before.
func (j *judge) newOutput(b *Anchor) (v Verdict, why, do string) {
	in := b.group()
	if j.old.Samples && in == "Outputs" {
		return Breaking, "RunSamples gets another argument, and whoever calls Run may ignore it", "give RunSamples a slice for it"
	}
	return Compatible, fmt.Sprintf("callers may ignore it: New%s allocates it", in),
		again + fmt.Sprintf("; code that fills %s without New%s must set the field", in, in)
}

// lastOf says what else goes with the last field of a struct.
func (j *judge) lastOf(group string) string {
	switch {
	case j.new.has(group):
	case group == "LoadInputs":
		return ", and with it LoadInputs and the argument load of Open"
	case group == "SaveOutputs":
		return ", and with it SaveOutputs and the method Save"
	}
	return ""
}

// has reports whether generated code has a field in that struct.
func (p *Published) has(group string) bool {
	return slices.ContainsFunc(p.Anchors, func(a Anchor) bool { return a.group() == group })
}
