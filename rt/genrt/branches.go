package genrt

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/popef/family"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/hostmem"
	"github.com/popefgen/popefgen/rt/internal/session"
)

// Branches is the [Core] of a fused model: a request runs one branch, which is a main program, and moves
// the tensors of that alone. Generated code calls, in this order:
//
//	synchronous: Begin, Choose, Bind every stream of the branch, Main
//	submitted:   Reserve or TryReserve, store the request in the slot, Enqueue; then, when it
//	             is called to bind the slot, Choose, and Bind every stream of the branch
//
// What is chosen holds for the next run of the replica.
type Branches struct {
	Core
	runs []int // by run input and output of the specification: its branch
}

// OpenBranches is [Core.Open] for a fused model. The model may have branches that the specification
// does not know.
func (b *Branches) OpenBranches(ctx context.Context, spec *Spec, source Source, bindings func() []Binding, bind func(replica, slot int), opts ...rt.RunnerOption) error {
	b.Core.branches = b
	return b.Core.Open(ctx, spec, source, bindings, bind, opts...)
}

// begin looks up what does not depend on a replica.
func (b *Branches) begin(spec *Spec, found *agreement, o *session.Options) error {
	found.branches, o.Members, o.Main = b, true, nil
	for _, name := range spec.Branches {
		at := slices.IndexFunc(found.contract.Branches, func(x family.Branch) bool { return x.Name == name })
		if at < 0 { // the contracts say that it is there
			return fmt.Errorf("package %s: %w: the model has no branch %q", spec.Package, rt.ErrGenerated, name)
		}
		o.Main = append(o.Main, found.contract.Branches[at].Program)
	}
	for i := range spec.Anchors {
		a := &spec.Anchors[i]
		if a.Role != RunInput && a.Role != RunOutput {
			continue
		}
		name, _, _ := strings.Cut(a.Name, "/")
		at := slices.Index(spec.Branches, name)
		if at < 0 {
			return fmt.Errorf("package %s: %w: anchor %q is of no branch", spec.Package, rt.ErrGenerated, a.Name)
		}
		b.runs = append(b.runs, at)
	}
	return nil
}

// split finds the streams of each branch of a replica whose bindings are connected.
func (b *Branches) split(r *replica) {
	r.branch = make([][]*hostmem.Span, len(r.session.Main))
	for i, w := range r.run {
		r.branch[b.runs[i]] = append(r.branch[b.runs[i]], w)
	}
}

// Choose makes the next run of a replica compute a branch, by its index in [Spec.Branches], for who
// has the replica's engine.
func (b *Branches) Choose(replica, branch int) {
	r := b.replicas[replica]
	r.session.Choose(branch)
	r.run = r.branch[branch]
}
