package reduce

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/popefgen/popefgen/onnx"
)

// place is an axis of an input or an initializer.
type place struct {
	tensor string
	axis   int
}

// most axes of which pairs are tried.
const mostPairs = 10

// smallerDims makes tensors smaller along their axes. Operators want sizes to fit
// each other, so sizes that are equal are made smaller together first, with those
// that are multiples of them, and with the numbers that say them; then pairs; then
// single ones.
func (r *reducer) smallerDims() {
	for _, size := range r.sizes() {
		for _, how := range []func(c *Case, from, to int64){multiples, equals, says} {
			r.bisect(size, func(from, to int64) bool {
				c := r.best.clone()
				how(c, from, to)
				return r.change(c)
			})
		}
	}
	for _, size := range r.sizes() {
		places := r.places(size)
		if len(places) > mostPairs {
			continue
		}
		for i, a := range places {
			for _, b := range places[:i] {
				r.bisect(size, func(_, to int64) bool {
					c := r.best.clone()
					return c.cutAxis(a, to) && c.cutAxis(b, to) && r.change(c)
				})
			}
		}
	}
	for _, size := range r.sizes() {
		for _, p := range r.places(size) {
			r.bisect(size, func(_, to int64) bool {
				c := r.best.clone()
				return c.cutAxis(p, to) && r.change(c)
			})
		}
	}
}

// bisect looks for a small size for what has the size from now.
func (r *reducer) bisect(from int64, try func(from, to int64) bool) {
	if r.stopped() || try(from, 1) {
		return
	}
	for lo := int64(1); from-lo > 1 && !r.stopped(); {
		mid := lo + (from-lo)/2
		if try(from, mid) {
			from = mid
		} else {
			lo = mid
		}
	}
}

// sizes returns the sizes of axes that are greater than 1, the greatest first.
func (r *reducer) sizes() []int64 {
	var all []int64
	for _, t := range r.best.tensors() {
		all = append(all, t.Dims...)
	}
	slices.SortFunc(all, func(a, b int64) int { return cmp.Compare(b, a) })
	return slices.DeleteFunc(slices.Compact(all), func(n int64) bool { return n < 2 })
}

// places returns the axes of a size.
func (r *reducer) places(size int64) []place {
	var all []place
	for _, t := range r.best.tensors() {
		for axis, n := range t.Dims {
			if n == size {
				all = append(all, place{t.Name, axis})
			}
		}
	}
	return all
}

// cutAxis makes an axis smaller, and reports whether it was larger.
func (c *Case) cutAxis(p place, to int64) bool {
	for _, t := range c.tensors() {
		if t.Name == p.tensor && p.axis < len(t.Dims) && t.Dims[p.axis] > to && t.Elem.DType().Valid() {
			c.replace(t.Name, first(t, p.axis, to))
			c.forgetShapes()
			return true
		}
	}
	return false
}

// forgetShapes drops what is declared of the shapes of values that nodes compute.
func (c *Case) forgetShapes() {
	g := c.Model.Graph
	g.Values = nil
	for i := range g.Outputs {
		g.Outputs[i].HasShape, g.Outputs[i].Dims = false, nil
	}
}

// equals makes all axes of a size smaller.
func equals(c *Case, from, to int64) { scale(c, from, to, false) }

// multiples makes all axes smaller whose sizes are multiples of one.
func multiples(c *Case, from, to int64) { scale(c, from, to, true) }

func scale(c *Case, from, to int64, multiples bool) {
	for _, t := range c.tensors() {
		for axis, n := range t.Dims {
			if n == from || multiples && n > 0 && n%from == 0 {
				c.cutAxis(place{t.Name, axis}, n/from*to)
			}
		}
	}
}

// says makes all axes of a size smaller, and changes attributes and whole numbers
// of initializers that say the size.
func says(c *Case, from, to int64) {
	equals(c, from, to)
	g := c.Model.Graph
	for _, t := range g.Initializers {
		if t.Elem != onnx.Int64 || len(t.Dims) > 1 {
			continue
		}
		changed := *t
		changed.Data = slices.Clone(t.Data)
		for b := changed.Data; len(b) >= 8; b = b[8:] {
			if int64(binary.LittleEndian.Uint64(b)) == from {
				binary.LittleEndian.PutUint64(b, uint64(to))
			}
		}
		c.replace(t.Name, &changed)
	}
	for i, n := range g.Nodes {
		m := *n
		m.Attributes = slices.Clone(n.Attributes)
		for k, a := range m.Attributes {
			b := *a
			b.Ints = slices.Clone(a.Ints)
			for j, v := range b.Ints {
				if v == from {
					b.Ints[j] = to
				}
			}
			if b.Type == onnx.AttrInt && b.Int == from {
				b.Int = to
			}
			m.Attributes[k] = &b
		}
		g.Nodes[i] = &m
	}
}
