package contract

import (
	"cmp"
	"slices"

	"github.com/popefgen/popefgen/popef/family"
)

// Dim is an open dimension of a family, as callers see it.
type Dim struct {
	Name string
	Rows bool         // rows along it are proven independent of each other
	Pads []family.Pad // what inputs are padded with along it, by input's name
}

// Member is one size of a family, as callers see it.
type Member struct {
	Sizes []int64 // by dimension
	Loose []int64 // sizes of the axes that follow from no single dimension, in the order of the fields
	Index int     // in [family.Family.Members]; -1 if the member was read from a text
}

// Axis is one axis of a field of a family: of one size, of the size that follows
// from an open dimension, or of one that each member has for itself. It is
// of one kind of these, and may be counted besides.
type Axis struct {
	Size          int64 // if Dim and Loose are -1
	Dim           int   // index in [Callers.Dims] of the dimension that it follows from, else -1
	Mul, Add, Div int64 // the size is ⌊(Mul·n+Add)/Div⌋, n being that of Dim
	Loose         int   // index in [Member.Loose], else -1
	Counted       bool  // data decides how many elements are filled; the size is the most there can be
}

// open reports whether the axis is no fixed length of an array.
func (a *Axis) open() bool { return a.Dim >= 0 || a.Loose >= 0 || a.Counted }

// in returns the size of the axis in a member.
func (a *Axis) in(m *Member) int64 {
	switch {
	case a.Loose >= 0:
		return m.Loose[a.Loose]
	case a.Dim < 0:
		return a.Size
	}
	rule := family.Axis{Mul: a.Mul, Add: a.Add, Div: a.Div}
	return rule.At(m.Sizes[a.Dim])
}

// Open reports whether a size of the field is not the same in every request:
// generated code has a type with fields for them then, else an array.
func (f *Field) Open() bool {
	return slices.ContainsFunc(f.Axes, func(a Axis) bool { return a.open() })
}

// Family reports whether the callers see several sizes, or sizes that data
// decides.
func (c Callers) Family() bool {
	return len(c.Dims) > 0 || slices.ContainsFunc(c.Fields, func(f Field) bool { return f.Open() })
}

// Shape returns the shape of a field in a member, both by index.
func (c Callers) Shape(field, member int) []int64 {
	f := &c.Fields[field]
	if f.Axes == nil {
		return slices.Clone(f.Info.Shape)
	}
	out := make([]int64, len(f.Axes))
	for i := range f.Axes {
		out[i] = f.Axes[i].in(&c.Members[member])
	}
	return out
}

// Member returns the index of the member of exactly these sizes, by dimension,
// -1 if there is none.
func (c Callers) Member(sizes []int64) int {
	return slices.IndexFunc(c.Members, func(m Member) bool { return slices.Equal(m.Sizes, sizes) })
}

// family adds what a family has and a model of one size has not; anchors are
// those of the fields.
func (c *Callers) family(f *family.Family, visible, all []Anchor) {
	for _, d := range f.Dims {
		pads := slices.Clone(d.Pads)
		slices.SortFunc(pads, func(a, b family.Pad) int { return cmp.Compare(a.Input, b.Input) })
		c.Dims = append(c.Dims, Dim{Name: d.Name, Rows: d.Rows, Pads: pads})
	}
	for i := range f.Members {
		c.Members = append(c.Members, Member{Sizes: slices.Clone(f.Members[i].Sizes), Index: i})
	}
	handles := map[int]string{}
	for _, a := range all {
		handles[a.Index] = a.Handle
	}
	loose := 0
	for i, a := range visible {
		at := slices.IndexFunc(f.Tensors, func(t family.Tensor) bool { return t.Anchors[0] == a.Index })
		if at < 0 {
			continue // a load input or save output
		}
		t := &f.Tensors[at]
		field := &c.Fields[i]
		for k := range t.Axes {
			axis := Axis{Size: t.Axes[k].Size, Dim: -1, Loose: -1, Counted: t.Axes[k].Count != ""}
			switch from := &t.Axes[k]; {
			case from.Dim >= 0:
				axis.Size, axis.Dim, axis.Mul, axis.Add, axis.Div = 0, from.Dim, from.Mul, from.Add, from.Div
			case from.Sizes != nil:
				axis.Size, axis.Loose = 0, loose
				loose++
				for m := range c.Members {
					c.Members[m].Loose = append(c.Members[m].Loose, from.Sizes[m])
				}
			}
			field.Axes = append(field.Axes, axis)
		}
	}
	slices.SortFunc(c.Members, compareMembers)
	for i := range c.Fields {
		field := &c.Fields[i]
		at := slices.IndexFunc(f.Tensors, func(t family.Tensor) bool { return t.Anchors[0] == visible[i].Index })
		if at < 0 {
			continue
		}
		for _, m := range c.Members {
			field.Streams = append(field.Streams, handles[f.Tensors[at].Anchors[m.Index]])
		}
	}
	c.shapes()
}

// compareMembers orders members by their sizes, so that no member stands behind
// one that it fits into.
func compareMembers(a, b Member) int {
	if c := slices.Compare(a.Sizes, b.Sizes); c != 0 {
		return c
	}
	return slices.Compare(a.Loose, b.Loose)
}

// shapes gives every field of a family the shape that it has in the first
// member, and drops the axes of those that have no open one.
func (c *Callers) shapes() {
	for i := range c.Fields {
		f := &c.Fields[i]
		if f.Axes == nil {
			continue
		}
		f.Info.Shape = c.Shape(i, 0)
		if !f.Open() {
			f.Axes = nil
		}
	}
}
