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
func proveRows(ctx context.Context, m *onnx.Model, o Options, members []*member, r *Result) {
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
		if f.Dims[d].Rows = err == nil; err != nil {
			r.Mixed[f.Dims[d].Name] = err
		}
	}
}

// alikeRows proves that members that differ in one dimension alone compute a row in the same way.
func alikeRows(e *graph.Executable, f *family.Family, d int, all []rows.Member) error {
	groups := map[string][]rows.Member{}
	var order []string
	for i := range f.Members {
		others := slices.Clone(f.Members[i].Sizes)
		others[d] = 0
		key := fmt.Sprint(others)
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], all[i])
	}
	for _, key := range order {
		if err := rows.Alike(e, groups[key]...); err != nil {
			return err
		}
	}
	return nil
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
	o.DisablePasses = nil
	for _, p := range pass.Passes {
		o.DisablePasses = append(o.DisablePasses, p.Name)
	}
	plain := make([]*member, len(members))
	for i, mem := range members {
		plain[i] = &member{ins: mem.ins, sizes: mem.sizes, text: mem.text, options: mem.options}
	}
	if err := compileMembers(ctx, m, o, plain); err != nil {
		return nil, err
	}
	r, err := joinMembers(plain)
	if err != nil {
		return nil, err
	}
	return r.Executable, nil
}
