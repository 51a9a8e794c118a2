package compile

import (
	"context"
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/pass"
	"github.com/popefgen/popefgen/ipu/graph/rows"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/family"
)

// proveRows finds out along which dimensions of a family rows do not depend on each other, nor
// on how many there are.
//
// Passes write a member of one row in another way than its siblings, since much is the identity
// there. What each member computes is looked at as it is; that they compute the same is seen
// before the passes as well.
func proveRows(ctx context.Context, m *onnx.Model, o Options, dims []openDim, members []*member, r *Result) {
	f := r.Family
	r.Mixed = map[string]error{}
	var plain *graph.Executable
	for d := range f.Dims {
		all, err := rowMembers(f, d, r.Metadata.Anchors)
		for i := range all {
			if err == nil {
				err = rows.Alike(r.Executable, all[i])
			}
		}
		if err == nil && alikeRows(r.Executable, f, d, all) != nil {
			if plain == nil {
				plain, err = unoptimised(ctx, m, o, members)
			}
			if err == nil {
				err = alikeRows(plain, f, d, all)
			}
		}
		for _, i := range lone(f, d) {
			if err == nil {
				err = probeRows(ctx, m, o, &dims[d], d, members[i], f)
			}
		}
		if f.Dims[d].Rows = err == nil; err != nil {
			r.Mixed[f.Dims[d].Name] = err
		}
	}
}

// siblings returns the members in groups of those that differ in one dimension alone.
func siblings(f *family.Family, d int) [][]int {
	at := map[string]int{}
	var groups [][]int
	for i := range f.Members {
		others := slices.Clone(f.Members[i].Sizes)
		others[d] = 0
		key := fmt.Sprint(others)
		g, ok := at[key]
		if !ok {
			g = len(groups)
			at[key], groups = g, append(groups, nil)
		}
		groups[g] = append(groups[g], i)
	}
	return groups
}

// alikeRows proves that members that differ in one dimension alone compute a row in the same way.
func alikeRows(e *graph.Executable, f *family.Family, d int, all []rows.Member) error {
	for _, group := range siblings(f, d) {
		var same []rows.Member
		for _, i := range group {
			same = append(same, all[i])
		}
		if err := rows.Alike(e, same...); err != nil {
			return err
		}
	}
	return nil
}

// lone returns the members of several rows that have no sibling to compare them with: their own
// rows may be independent and still depend on how many there are.
func lone(f *family.Family, d int) []int {
	var all []int
	for _, group := range siblings(f, d) {
		if len(group) == 1 && f.Members[group[0]].Sizes[d] > 1 {
			all = append(all, group[0])
		}
	}
	return all
}

// probeRows compiles a member at a size along a dimension that the family does not have, and
// proves that both compute a row in the same way.
func probeRows(ctx context.Context, m *onnx.Model, o Options, dim *openDim, d int, mem *member, f *family.Family) error {
	n := mem.sizes[d] - 1
	if n < 2 { // a single row says little
		n = mem.sizes[d] + 1
	}
	probe := &member{options: resized(o.Options, mem, dim, n), sizes: slices.Clone(mem.sizes)}
	probe.sizes[d] = n
	probe.text = fmt.Sprintf("%s with %s=%d, compiled to compare,", mem.text, dim.name, n)
	if probe.ins, probe.err = onnx.StaticInputs(m, probe.options); probe.err != nil {
		return probe.err
	}
	pair := []*member{fresh(mem), probe}
	err := alikePair(ctx, m, o, d, pair, f)
	if err != nil && ctx.Err() == nil {
		err = alikePair(ctx, m, withoutPasses(o), d, []*member{fresh(mem), fresh(probe)}, f)
	}
	return err
}

// alikePair compiles two members that differ in dimension d alone and compares their rows.
func alikePair(ctx context.Context, m *onnx.Model, o Options, d int, pair []*member, f *family.Family) error {
	if err := compileMembers(ctx, m, o, pair); err != nil {
		return err
	}
	if err := alike(pair); err != nil {
		return err
	}
	r, err := joinMembers(pair)
	if err != nil {
		return err
	}
	two := &family.Family{Dims: f.Dims, Tensors: slices.Clone(f.Tensors)}
	for i, mem := range pair {
		two.Members = append(two.Members, family.Member{Program: r.Metadata.ProgramFlow.Main[i], Sizes: mem.sizes})
	}
	for k := range two.Tensors {
		two.Tensors[k].Anchors = []int{k, len(two.Tensors) + k}
	}
	all, err := rowMembers(two, d, r.Metadata.Anchors)
	if err != nil {
		return err
	}
	return rows.Alike(r.Executable, all...)
}

// rowMembers returns the members with their rows along a dimension.
func rowMembers(f *family.Family, d int, anchors []popef.Anchor) ([]rows.Member, error) {
	all := make([]rows.Member, len(f.Members))
	for i := range f.Members {
		all[i] = rows.Member{Program: int(f.Members[i].Program), N: f.Members[i].Sizes[d], Axes: map[string]int{}}
		for k := range f.Tensors {
			t := &f.Tensors[k]
			for axis := range t.Axes {
				x := &t.Axes[axis]
				if x.Sizes == nil || x.Dim != d {
					continue
				}
				handle := anchors[t.Anchors[i]].Handle
				if _, ok := all[i].Axes[handle]; ok || x.Add != 0 || x.Div != 1 {
					return nil, fmt.Errorf("%s %q is no list of rows along it", t.Type, t.Name)
				}
				all[i].Axes[handle] = axis
			}
		}
	}
	return all, nil
}

// unoptimised returns the executable of members without passes.
func unoptimised(ctx context.Context, m *onnx.Model, o Options, members []*member) (*graph.Executable, error) {
	plain := make([]*member, len(members))
	for i, mem := range members {
		plain[i] = fresh(mem)
	}
	if err := compileMembers(ctx, m, withoutPasses(o), plain); err != nil {
		return nil, err
	}
	r, err := joinMembers(plain)
	if err != nil {
		return nil, err
	}
	return r.Executable, nil
}

// fresh returns a member that is not compiled yet.
func fresh(mem *member) *member {
	return &member{ins: mem.ins, sizes: mem.sizes, text: mem.text, options: mem.options}
}

// withoutPasses returns o with all passes disabled.
func withoutPasses(o Options) Options {
	o.DisablePasses = nil
	for _, p := range pass.Passes {
		o.DisablePasses = append(o.DisablePasses, p.Name)
	}
	return o
}
