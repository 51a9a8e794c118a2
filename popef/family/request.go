package family

import (
	"fmt"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/popef"
)

// Single returns a model as one of a member's size, without the other members. It
// lives until m is closed.
func (f *Family) Single(m *popef.Model, member int) *popef.Model {
	return m.Select(f.Members[member].Program)
}

// Named returns sizes with the names of their dimensions, as in "batch=4 seq=16"; a size that is
// negative is left out.
func (f *Family) Named(sizes []int64) string {
	var parts []string
	for d, n := range sizes {
		if n >= 0 {
			parts = append(parts, fmt.Sprintf("%s=%d", f.Dims[d].Name, n))
		}
	}
	return strings.Join(parts, " ")
}

// Programs returns the members with their programs for a message, as in "seq=16 (program 5); seq=32
// (program 10)"; of many the first.
func (f *Family) Programs() string {
	return f.list(func(m *Member) string { return fmt.Sprintf("%s (program %d)", f.Named(m.Sizes), m.Program) })
}

// list joins what is said of members; of many of the first.
func (f *Family) list(say func(m *Member) string) string {
	const most = 8
	var all []string
	for i := range f.Members {
		if i == most {
			all = append(all, fmt.Sprintf("%d more", len(f.Members)-most))
			break
		}
		all = append(all, say(&f.Members[i]))
	}
	return strings.Join(all, "; ")
}

// Sizes returns the sizes of the open dimensions that inputs of the given shapes, by
// name, have: -1 for a dimension that none of them shows. An input that does not fit its tensor, or
// contradicts another, is an error. Inputs that the family does not have are left out.
func (f *Family) Sizes(shapes map[string][]int64) ([]int64, error) {
	sizes, from := make([]int64, len(f.Dims)), make([]string, len(f.Dims))
	for d := range sizes {
		sizes[d] = -1
	}
	for i := range f.Tensors {
		t := &f.Tensors[i]
		shape, given := shapes[t.Name]
		if t.Type != popef.Input || !given {
			continue
		}
		if len(shape) != len(t.Axes) {
			return nil, fmt.Errorf("input %q is %v: found %d dimensions, want %d", t.Name, shape, len(shape), len(t.Axes))
		}
		for k := range t.Axes {
			a, n := &t.Axes[k], shape[k]
			switch {
			case !a.Same() && a.Sizes == nil && n != a.Size:
				return nil, fmt.Errorf("input %q is %v: dimension %d is %d, want %d", t.Name, shape, k, n, a.Size)
			case !a.Same():
			case sizes[a.Dim] >= 0 && sizes[a.Dim] != n:
				return nil, fmt.Errorf("input %q is %v, which makes %q %d, and input %q makes it %d: give both the same size",
					t.Name, shape, f.Dims[a.Dim].Name, n, from[a.Dim], sizes[a.Dim])
			default:
				sizes[a.Dim], from[a.Dim] = n, t.Name
			}
		}
	}
	return sizes, f.derived(shapes, sizes, from)
}

// derived checks inputs' axes that follow from a dimension, and fills in the size of one that
// nothing else shows.
func (f *Family) derived(shapes map[string][]int64, sizes []int64, from []string) error {
	for i := range f.Tensors {
		t := &f.Tensors[i]
		shape, given := shapes[t.Name]
		if t.Type != popef.Input || !given {
			continue
		}
		for k := range t.Axes {
			a, n := &t.Axes[k], shape[k]
			if a.Dim < 0 || a.Same() || n < 0 || n > maxNumber {
				continue
			}
			if sizes[a.Dim] < 0 { // the least that makes n
				sizes[a.Dim], from[a.Dim] = max(0, -floorDiv(a.Add-n*a.Div, a.Mul)), t.Name
				if a.At(sizes[a.Dim]) != n {
					return fmt.Errorf("input %q is %v: no size of %q makes dimension %d %d", t.Name, shape, f.Dims[a.Dim].Name, k, n)
				}
			}
			if want := a.At(sizes[a.Dim]); want != n {
				return fmt.Errorf("input %q is %v: dimension %d is %d, and input %q makes %q %d, from which it follows as %d: give sizes that agree",
					t.Name, shape, k, n, from[a.Dim], f.Dims[a.Dim].Name, sizes[a.Dim], want)
			}
		}
	}
	return nil
}

// Choose returns the member that computes these sizes with the least cost: their own, or a
// larger one where rows are independent or padding is declared. A size of -1 may be any, and the smallest
// is taken; the sizes that the request has then are returned as well. If no member does the error says
// which there are.
func (f *Family) Choose(sizes []int64) (member int, exact []int64, err error) {
	member = -1
	for m := range f.Members {
		if f.takes(m, sizes) && (member < 0 || f.before(m, member, sizes)) {
			member = m
		}
	}
	if member < 0 {
		return -1, nil, f.refusal(sizes)
	}
	exact = slices.Clone(sizes)
	for d := range exact {
		if exact[d] < 0 {
			exact[d] = f.Members[member].Sizes[d]
		}
	}
	return member, exact, nil
}

// takes reports whether a member computes sizes.
func (f *Family) takes(m int, sizes []int64) bool {
	for d, n := range sizes {
		if has := f.Members[m].Sizes[d]; n >= 0 && n != has && (n > has || !f.fills(d) || n < f.Least(d)) {
			return false
		}
	}
	return true
}

// before reports whether member a is rather taken than b, which stands before it.
func (f *Family) before(a, b int, sizes []int64) bool {
	x, y := &f.Members[a], &f.Members[b]
	if slices.Contains(sizes, -1) { // any will do: the smallest, not the one that nobody knows the cost of
		return false
	}
	if x.Cost > 0 && y.Cost > 0 && x.Cost != y.Cost {
		return x.Cost < y.Cost
	}
	return volume(x.Sizes) < volume(y.Sizes)
}

func volume(sizes []int64) float64 {
	v := 1.0
	for _, n := range sizes {
		v *= float64(n)
	}
	return v
}

// fills reports whether smaller sizes of dimension d are computed by larger members, and the
// results can be cut back to them.
func (f *Family) fills(d int) bool {
	return f.Dims[d].Padded() && !slices.ContainsFunc(f.Tensors, func(t Tensor) bool {
		return slices.ContainsFunc(t.Axes, func(a Axis) bool { return a.Sizes != nil && a.Dim < 0 })
	})
}

// refusal says why no member computes sizes, and what to do.
func (f *Family) refusal(sizes []int64) error {
	var fixed []string
	for d, n := range sizes {
		if n >= 0 && !f.fills(d) {
			fixed = append(fixed, fmt.Sprintf("%q", f.Dims[d].Name))
		}
	}
	why := ""
	for d, n := range sizes {
		if least := f.Least(d); n >= 0 && n < least && f.fills(d) {
			why += fmt.Sprintf("; along %q nothing smaller than %d is filled up", f.Dims[d].Name, least)
		}
	}
	if fixed != nil {
		why += fmt.Sprintf("; along %s nothing may be filled up, as rows are not proven independent and no padding is declared", strings.Join(fixed, ", "))
	}
	return fmt.Errorf("the model has no size for %s, but %s%s: give one of these, or compile the model with --dim for this one as well",
		f.Named(sizes), f.list(func(m *Member) string { return f.Named(m.Sizes) }), why)
}

// Counted reports whether data decides a length of the tensor.
func (t *Tensor) Counted() bool {
	return slices.ContainsFunc(t.Axes, func(a Axis) bool { return a.Count != "" })
}

// Shape returns the shape that a tensor has in a request of these sizes which a member
// computes. Of a length that data decides it is the most.
func (t *Tensor) Shape(member int, sizes []int64) []int64 {
	out := make([]int64, len(t.Axes))
	for i := range t.Axes {
		out[i] = t.Axes[i].Of(member)
		if a := &t.Axes[i]; a.Dim >= 0 {
			out[i] = a.At(sizes[a.Dim])
		}
	}
	return out
}

// Move copies a row-major tensor src of shape from into dst of shape to, the first
// element to the first, as far as they overlap. What is left of dst is filled with value, an element, or
// stays as it is if that is nil. Both shapes have the same rank; elements have size bytes.
func Move(dst []byte, to []int64, src []byte, from []int64, size int, value []byte) {
	if len(to) == 0 {
		copy(dst, src)
		return
	}
	into, of := len(dst), len(src)
	if to[0] > 0 {
		into /= int(to[0])
	}
	if from[0] > 0 {
		of /= int(from[0])
	}
	n := int(min(to[0], from[0]))
	for i := range n {
		Move(dst[i*into:][:into], to[1:], src[i*of:][:of], from[1:], size, value)
	}
	if value != nil {
		for at := n * into; at < len(dst); at += size {
			copy(dst[at:at+size], value)
		}
	}
}
