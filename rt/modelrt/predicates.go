package modelrt

import (
	"slices"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/rt"
)

// CallbackPolicy says what [HandleInputs] and [HandleOutputs]
// do with an anchor.
type CallbackPolicy uint8

// The callback policies.
const (
	BindUser  CallbackPolicy = iota // connect what the factory makes
	BindEmpty                       // connect an empty end: the input gets arbitrary bytes, the output is dropped
	SkipBind                        // leave it as it is
)

// Policy is any family of policies.
type Policy interface{ rt.DataPolicy | CallbackPolicy }

// Predicate chooses a policy for an anchor. Those below return accept for the
// anchors that they are named for, and reject for all others. Customary are
// UseUserData and UseFileData, or BindUser and BindEmpty.
type Predicate[P Policy] func(a Anchor) P

// The two families of predicates.
type (
	DataPredicate     = Predicate[rt.DataPolicy]  // see [rt.WithDataPolicy]
	CallbackPredicate = Predicate[CallbackPolicy] // see [HandleInputs]
)

// when makes a predicate of a condition.
func when[P Policy](accept, reject P, holds func(a Anchor) bool) Predicate[P] {
	return func(a Anchor) P {
		if holds(a) {
			return accept
		}
		return reject
	}
}

// InLoad accepts anchors that a load program of the flow moves.
func InLoad[P Policy](flow popef.ProgramFlow, accept, reject P) Predicate[P] {
	return InPrograms(flow.Load, accept, reject)
}

// InMain accepts anchors that a main program of the flow moves.
func InMain[P Policy](flow popef.ProgramFlow, accept, reject P) Predicate[P] {
	return InPrograms(flow.Main, accept, reject)
}

// InSave accepts anchors that a save program of the flow moves.
func InSave[P Policy](flow popef.ProgramFlow, accept, reject P) Predicate[P] {
	return InPrograms(flow.Save, accept, reject)
}

// NotAssigned accepts anchors whose programs are not recorded.
func NotAssigned[P Policy](accept, reject P) Predicate[P] {
	return when(accept, reject, func(a Anchor) bool { return len(a.Programs) == 0 })
}

// NonScalar accepts anchors with at least one dimension.
func NonScalar[P Policy](accept, reject P) Predicate[P] {
	return when(accept, reject, func(a Anchor) bool { return len(a.Info.Shape) > 0 })
}

// InPrograms accepts anchors that one of the programs with these indices moves.
func InPrograms[P Policy](programs []uint32, accept, reject P) Predicate[P] {
	programs = slices.Clone(programs)
	return when(accept, reject, func(a Anchor) bool { return moves(programs, a) })
}

func moves(programs []uint32, a Anchor) bool {
	return slices.ContainsFunc(programs, func(p uint32) bool { return slices.Contains(a.Programs, p) })
}

// ProgramsPolicy is a group of programs and the policy of the anchors that they
// move.
type ProgramsPolicy[P Policy] struct {
	Programs []uint32
	Policy   P
}

// ByPrograms gives an anchor the policy of the first group of which a program
// moves it, and reject if there is none.
func ByPrograms[P Policy](groups []ProgramsPolicy[P], reject P) Predicate[P] {
	groups = slices.Clone(groups)
	return func(a Anchor) P {
		for _, g := range groups {
			if moves(g.Programs, a) {
				return g.Policy
			}
		}
		return reject
	}
}

// AnchorPolicy is the policy of one anchor, which its stream handle names.
type AnchorPolicy[P Policy] struct {
	Handle string
	Policy P
}

// ByAnchor gives an anchor the policy of the first entry with its handle, and
// reject if there is none.
func ByAnchor[P Policy](anchors []AnchorPolicy[P], reject P) Predicate[P] {
	anchors = slices.Clone(anchors)
	return func(a Anchor) P {
		for _, p := range anchors {
			if p.Handle == a.Handle {
				return p.Policy
			}
		}
		return reject
	}
}

// OrBind accepts an anchor if one of the predicates returns accept for it.
func OrBind[P Policy](accept, reject P, predicates ...Predicate[P]) Predicate[P] {
	return when(accept, reject, func(a Anchor) bool {
		return slices.ContainsFunc(predicates, func(p Predicate[P]) bool { return p(a) == accept })
	})
}

// AndBind accepts an anchor if all the predicates return accept for it.
func AndBind[P Policy](accept, reject P, predicates ...Predicate[P]) Predicate[P] {
	return when(accept, reject, func(a Anchor) bool {
		return !slices.ContainsFunc(predicates, func(p Predicate[P]) bool { return p(a) != accept })
	})
}
