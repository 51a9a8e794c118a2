package compile

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile/internal/merge"
	"github.com/popefgen/popefgen/popef"
)

// JoinTrained makes one model of those that one makes for the members of o, a family that learns: each of them is a training model
// ([export.Training]) of m in one size, with the same weights, states, values of the optimizer and random numbers. These are in the result once, with
// the programs that load and save them. Each member has a main program and one that evaluates, which stand side by side: 5 and 9, 10 and 11, and so
// on. one may be called by several goroutines at a time. Of o only what says sizes is used; no smaller request is filled up, since a step
// learns of all that it is given. Errors are those of one, or [*FamilyError].
func JoinTrained(ctx context.Context, m *onnx.Model, o Options, one func(ctx context.Context, sized onnx.Options) (*Result, error)) (*Result, error) {
	if len(o.Pads) > 0 {
		return nil, noFamily("padding is declared for a model that learns, and a step would learn of what is filled in: want requests of exactly the sizes that there are")
	}
	dims, members, err := o.members(m)
	if err != nil {
		return nil, err
	}
	each(members, func(mem *member) {
		if mem.result, mem.err = one(ctx, mem.options); mem.err == nil {
			mem.cost = operations(mem.result.Executable, MainProgram)
		}
	})
	if err := firstError(members); err != nil {
		return nil, o.why(ctx, m, dims, members, err)
	}
	if err := alike(members); err != nil {
		return nil, err
	}
	sortMembers(members)
	r, err := joinTrained(members)
	if err != nil {
		return nil, err
	}
	r.Family = describe(ctx, m, &o, dims, members, r)
	if err := checkNames(r.Family); err != nil {
		return nil, err
	}
	return r, ctx.Err()
}

// joinTrained makes one model of those of the members, which are in order.
func joinTrained(members []*member) (*Result, error) {
	r := *members[0].result
	to := merge.New(r.Executable.Name, r.Executable.Producer, LoadProgram, r.Executable.Programs[0].Name)
	r.Metadata.Anchors, r.Metadata.ProgramFlow.Main, r.Metadata.Programs, r.Warnings = nil, nil, nil, nil
	shared := sharedAnchors(members[0])
	used := map[string]bool{}
	for _, a := range shared {
		used[a.Handle] = true
	}
	for i, mem := range members {
		if err := sameShared(members[0], mem); err != nil {
			return nil, err
		}
		index := map[uint32]uint32{MainProgram: MainProgram, export.EvaluateProgram: export.EvaluateProgram}
		if i > 0 {
			index[MainProgram] = uint32(nextProgram + 2*(i-1))
			index[export.EvaluateProgram] = index[MainProgram] + 1
		}
		handles := map[string]string{}
		for _, a := range mem.result.Metadata.Anchors {
			if !slices.Contains(a.Programs, MainProgram) {
				continue
			}
			handle := a.Handle
			if i > 0 {
				handle = fmt.Sprintf("%s#%d", handle, index[MainProgram])
			}
			for used[handle] {
				handle += "#"
			}
			used[handle] = true
			handles[a.Handle], a.Handle = handle, handle
			a.Programs = slices.Clone(a.Programs)
			for k := range a.Programs {
				a.Programs[k] = index[a.Programs[k]]
			}
			r.Metadata.Anchors = append(r.Metadata.Anchors, a)
		}
		var own []merge.Program
		for _, p := range mem.result.Metadata.Programs {
			as, ok := index[p.Index]
			if !ok {
				if i == 0 {
					r.Metadata.Programs = append(r.Metadata.Programs, p)
				}
				continue
			}
			name := fmt.Sprintf("%s %s", p.Name, mem.text)
			own = append(own, merge.Program{From: int(p.Index), As: graph.Program{Index: int(as), Name: name}})
			r.Metadata.Programs = append(r.Metadata.Programs, popef.ProgramInfo{Index: as, Name: name})
		}
		handle := func(h string) string {
			if as, ok := handles[h]; ok {
				return as
			}
			return h
		}
		if err := to.Add(mem.result.Executable, LoadProgram, own, handle); err != nil {
			return nil, err
		}
		r.Metadata.ProgramFlow.Main = append(r.Metadata.ProgramFlow.Main, index[MainProgram])
		for _, w := range mem.result.Warnings {
			if !slices.Contains(r.Warnings, w) {
				r.Warnings = append(r.Warnings, w)
			}
		}
	}
	r.Metadata.Anchors = append(r.Metadata.Anchors, shared...)
	slices.SortFunc(r.Metadata.Programs, func(a, b popef.ProgramInfo) int { return int(a.Index) - int(b.Index) })
	r.Executable = to.Executable()
	return &r, nil
}

// sharedAnchors returns the anchors that no main program moves: of what all members share.
func sharedAnchors(mem *member) []popef.Anchor {
	return slices.DeleteFunc(slices.Clone(mem.result.Metadata.Anchors), func(a popef.Anchor) bool { return slices.Contains(a.Programs, MainProgram) })
}

// sameShared refuses members that learn other things.
func sameShared(a, b *member) error {
	const remedy = "members share what they learn; compile these sizes as models of their own"
	first, second := sharedAnchors(a), sharedAnchors(b)
	for i := range max(len(first), len(second)) {
		switch {
		case i >= len(first):
			return noFamily("%q is in the member %s and not in the member %s: %s", second[i].Name, b.text, a.text, remedy)
		case i >= len(second):
			return noFamily("%q is in the member %s and not in the member %s: %s", first[i].Name, a.text, b.text, remedy)
		}
		x, y := first[i], second[i]
		if x.Name != y.Name || x.Handle != y.Handle || !x.Info.Equal(y.Info) || !slices.Equal(x.Programs, y.Programs) {
			return noFamily("%q, %v, of the member %s is %q, %v, in the member %s: %s", x.Name, x.Info, a.text, y.Name, y.Info, b.text, remedy)
		}
	}
	for i, w := range a.result.Weights {
		if v := b.result.Weights; i >= len(v) || w.Name != v[i].Name || !bytes.Equal(w.Data, v[i].Data) {
			return noFamily("%q has another value in the member %s than in the member %s: %s", w.Name, a.text, b.text, remedy)
		}
	}
	return nil
}
