package lower

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// marks are the axes of what a loop carries whose sizes data decides, and the values that it
// collects a number of times that data decides. They are found by lowering the body: each
// time it shows more, what was done is undone and the body lowered again.
type marks struct {
	axes []mark
	// buffers are the types of collected values, which are carried in a tensor of the most that
	// there can be and written to one by one; nil if the number of iterations is known.
	buffers []graph.TensorType
	bounds  []int64 // of buffers
}

// mark is an axis of a carried value.
type mark struct {
	k     int
	axis  int64
	bound int64
	guess bool // it follows from one iteration, and a greater one shows that more are needed
}

func (m *marks) of(k int, axis int64) *mark {
	for i := range m.axes {
		if m.axes[i].k == k && m.axes[i].axis == axis {
			return &m.axes[i]
		}
	}
	return nil
}

// ordered returns the marks in the order in which fit returns counts.
func (m *marks) ordered(values int) (all []mark) {
	for k := range values {
		own := slices.DeleteFunc(slices.Clone(m.axes), func(a mark) bool { return a.k != k })
		slices.SortFunc(own, func(a, b mark) int { return int(a.axis - b.axis) })
		all = append(all, own...)
	}
	return all
}

// firstMarks are those that the operands show.
func (it *iteration) firstMarks() *marks {
	m := &marks{}
	for k, v := range it.init {
		for a := range v.Rank() {
			if v.Count(a) != nil {
				m.axes = append(m.axes, mark{k: k, axis: a, bound: it.c.Bound(k, a, v.Type.Shape[a]), guess: true})
			}
		}
	}
	return m
}

// fit brings a carried value to the sizes that are marked, in the graph under construction, and
// returns it with the counts of the marked axes. Where more has to be marked it
// reports false.
func (it *iteration) fit(m *marks, k int, v *Value, to graph.TensorType) (*Value, []*Value, bool) {
	c := it.c
	grown := false
	if v.Type.DType != to.DType || v.Rank() != int64(len(to.Shape)) {
		return v, nil, true // whoever compares types says so
	}
	v = c.Clean(v)
	var counts []*Value
	for a := range v.Rank() {
		size, count, mk := v.Type.Shape[a], v.Count(a), m.of(k, a)
		switch {
		case mk == nil && count == nil && size == to.Shape[a]:
		case mk == nil:
			natural := int64(-1)
			if first := it.init[k].Type.Shape[a]; count != nil {
				natural = max(size, first)
			} else if it.trip >= 0 && it.trip < 1<<20 && size > first && size < 1<<20 {
				natural = first + it.trip*(size-first)
			}
			m.axes = append(m.axes, mark{k: k, axis: a, bound: c.Bound(k, a, natural), guess: count != nil})
			grown = true
		case mk.guess && size > mk.bound && !c.Bounded(k, a):
			mk.bound, mk.guess, grown = c.Bound(k, a, -1), false, true
		default:
			if count == nil {
				count = Int(size)
			}
			c.AtMost(k, count, mk.bound)
			counts = append(counts, c.scalar(count))
			v = c.take(v, a, mk.bound)
		}
	}
	return plain(v), counts, !grown
}

// run lowers to an operator that runs the body as a graph.
func (it *iteration) run() []*Value {
	c := it.c
	m := it.firstMarks()
	for {
		a := c.l.try()
		var out []*Value
		again := false
		err := failing(func() { out, again = it.runWith(m) })
		switch {
		case err != nil:
			a.keep()
			panic(failure{err})
		case !again:
			a.keep()
			return out
		}
		a.undo()
	}
}

// failing returns the failure that ends f, nil if none does.
func failing(f func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			f, ok := r.(failure)
			if !ok {
				panic(r)
			}
			err = f.err
		}
	}()
	f()
	return nil
}

// bufferAll makes buffers for collected values.
func (it *iteration) bufferAll(m *marks, collected []*Value) {
	c := it.c
	natural := it.trip
	if it.count != nil && natural < 0 {
		if high := c.high(c.scalar(it.count)); high < graph.MaxTensorBytes {
			natural = max(high, 0)
		}
	}
	for k, v := range collected {
		if v.Counted() {
			// With the number of iterations known, they may be written out.
			if it.count != nil {
				c.Want(it.count, "0 (M)")
			}
			if it.cond != nil {
				c.Want(it.cond, "1 (cond)")
			}
			c.Refuse(v, v.firstCounted(), "and each iteration of a loop may give another number of them")
		}
		m.buffers = append(m.buffers, v.Type)
		at := c.Axis(it.collected(k).axis, v.Rank()+1)
		m.bounds = append(m.bounds, c.Bound(len(it.init)+k, at, natural))
	}
}

// stored is a buffer with the value of an iteration at its place.
func (it *iteration) stored(k int, buffer, i, v *Value, bound int64) *Value {
	c := it.c
	c.Check(c.Binary(graph.Less, i, Int(bound)), "data makes more iterations than the %d values that it was compiled to collect: compile the model for more, with --max %s=N", bound, c.outputName(len(it.init)+k))
	at := c.Emit(&graph.Reshape{Shape: []int64{1, 1}}, i)
	row := c.Emit(&graph.Reshape{Shape: slices.Concat([]int64{1}, v.Type.Shape)}, v)
	return c.Emit(&graph.ScatterND{Fn: graph.ScatterNone}, buffer, at, row)
}

// inGraph emits to a graph that is there already.
func (c *Call) inGraph(g graph.GraphID, f func()) {
	around := c.l.current
	c.l.current = g
	defer func() { c.l.current = around }()
	f()
}

// zeros is a tensor without anything in it.
func (c *Call) zeros(t graph.TensorType) *Value {
	return c.Emit(&graph.Expand{Shape: t.Shape}, Scalar(t.DType, 0))
}

func (c *Call) outputName(i int) string {
	if i < len(c.node.Outputs) {
		return c.node.Outputs[i]
	}
	return ""
}
