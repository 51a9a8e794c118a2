package contract

import (
	"fmt"
	"slices"
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
	KindRemoved    Kind = "removed"   // a field is gone
	KindAdded      Kind = "added"     // a field is new
	KindRenamed    Kind = "renamed"   // an anchor has another name
	KindGoName     Kind = "go-name"   // the same name makes another Go identifier
	KindRole       Kind = "role"      // a field moves to another struct
	KindType       Kind = "type"      // element type
	KindShape      Kind = "shape"     // number or size of dimensions
	KindBatch      Kind = "batch"     // the leading dimension of all run inputs and outputs, and nothing else
	KindRepeats    Kind = "repeats"   // blocks in the remote buffer
	KindTransfers  Kind = "transfers" // of a run input or output in a run, where it has a number of its own
	KindHandle     Kind = "handle"    // stream handle of an anchor that shares its name
	KindOrder      Kind = "order"     // of the fields of a struct
	KindReplicas   Kind = "replicas"
	KindIterations Kind = "iterations"
	KindSamples    Kind = "samples" // whether the package has RunSamples
	KindFormat     Kind = "format"  // of the contract's text

	// Kinds of families.
	KindOpened        Kind = "opened"         // a length that was fixed follows from an open dimension, or is counted
	KindFixed         Kind = "fixed"          // the other way around
	KindBound         Kind = "bound"          // the most that a length may be that data decides
	KindDims          Kind = "dimensions"     // which dimensions are open, and their order
	KindMemberRemoved Kind = "member-removed" // a size is gone
	KindMemberAdded   Kind = "member-added"   // a size is new
	KindMemberName    Kind = "member-name"    // the same size makes another Go identifier
	KindRows          Kind = "rows"           // whether rows along a dimension are proven independent
	KindPad           Kind = "pad"            // what an input may be padded with

	// Kinds of fused models.
	KindBranches      Kind = "branches"       // whether the model is fused
	KindBranchRemoved Kind = "branch-removed" // a branch is gone
	KindBranchAdded   Kind = "branch-added"   // a branch is new

	// Kinds of models that train.
	KindTraining        Kind = "training"         // whether the model trains
	KindEvaluated       Kind = "evaluated"        // whether Evaluate returns an output
	KindOptimizer       Kind = "optimizer"        // what the optimizer keeps for the weights
	KindOptimizerFields Kind = "optimizer-fields" // what callers see of an optimizer of another rule
	KindKept            Kind = "kept"             // whether what is saved is a weight, or state, that the model loads again

	// Kinds outside the contract, see [Notes].
	KindWeights    Kind = "weights"
	KindStreams    Kind = "streams"
	KindPrograms   Kind = "programs"
	KindExecutable Kind = "executable"
	KindOptions    Kind = "options"
	KindNames      Kind = "program-names"
	KindTarget     Kind = "target"
)

// Outside reports whether the kind is about something that is no part of the
// contract.
func (k Kind) Outside() bool {
	switch k {
	case KindWeights, KindStreams, KindPrograms, KindExecutable, KindOptions, KindNames, KindTarget:
		return true
	}
	return false
}

// Finding is one difference between two models and what it means for callers.
type Finding struct {
	Kind    Kind    `json:"kind"`
	Verdict Verdict `json:"verdict"`
	Opens   bool    `json:"opens"`            // whether the package of the old model opens the new one as it is, as far as this goes
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
	case KindMemberRemoved, KindBranchRemoved:
		return fmt.Sprintf("%s is gone", f.What)
	case KindMemberAdded, KindBranchAdded:
		return fmt.Sprintf("%s is new", f.What)
	case KindMemberName:
		return fmt.Sprintf("%s: the Go name was %s, is %s", f.What, f.Old, f.New)
	case KindAdded:
		return fmt.Sprintf("%s is new: %s", f.What, f.New)
	case KindRenamed:
		return fmt.Sprintf("%s: the name was %s, is %s", f.What, f.Old, f.New)
	case KindGoName:
		return fmt.Sprintf("%s: the Go name was %s, is %s", f.What, f.Old, f.New)
	}
	if word := kindWords[f.Kind]; word != "" {
		return fmt.Sprintf("%s: %s was %s, is %s", f.What, word, f.Old, f.New)
	}
	return fmt.Sprintf("%s: was %s, is %s", f.What, f.Old, f.New)
}

var kindWords = map[Kind]string{
	KindRole: "its role", KindType: "type", KindShape: "shape", KindBatch: "shape", KindHandle: "stream handle", KindRepeats: "repeats", KindTransfers: "transfers", KindEvaluated: "returned by Evaluate", KindKept: "what it is",
	KindOpened: "shape", KindFixed: "shape", KindBound: "shape",
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

// Opens reports whether a package that was generated from the old model opens
// the new one as it is, without being generated again: the Open of generated
// code refuses a model if and only if this says so. The findings are those of
// [Judge] or [Compare].
func Opens(findings []Finding) bool {
	return !slices.ContainsFunc(findings, func(f Finding) bool { return !f.Opens })
}
