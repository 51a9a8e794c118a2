package lower

import (
	"math"

	"github.com/popefgen/popefgen/ipu/graph"
)

// Element is what is known of one element of a short list of integers, such as a shape or
// a place: the numbers between which it lies.
type Element struct {
	Low, High int64
	at        *Value // a scalar with it, if there is one
}

// Known reports whether the element is one number.
func (e Element) Known() bool { return e.Low == e.High }

// maxElements bounds the lists whose elements are looked at one by one.
const maxElements = 64

// Elements returns what is known of each element of an integer value. Of a longer list than a
// shape or of another type it returns nil, but for what comparisons of such lists give: 0 where it
// is false, 1 where it is true.
func (v *Value) Elements() []Element {
	n := v.Type.Elements()
	if v.Type.DType == graph.Bool {
		return v.truths()
	}
	if v.Type.DType != graph.I64 && v.Type.DType != graph.I32 || n > maxElements || n < 0 {
		return nil
	}
	if v.elements != nil {
		return v.elements
	}
	out := make([]Element, n)
	if v.Known {
		list, err := v.Ints()
		if err != nil {
			return nil
		}
		for i, x := range list {
			out[i] = Element{Low: x, High: x}
		}
		return out
	}
	for i := range out {
		out[i] = Element{Low: math.MinInt64, High: math.MaxInt64}
		if v.Type.DType == graph.I32 {
			out[i] = Element{Low: math.MinInt32, High: math.MaxInt32}
		}
	}
	if n == 1 && v.Rank() == 0 {
		out[0].at = v
	}
	return out
}

// truths is [Value.Elements] for bools.
func (v *Value) truths() []Element {
	if !v.Known || v.Type.Elements() > maxElements {
		return v.elements
	}
	out := make([]Element, len(v.Data))
	for i, x := range v.Data {
		n := int64(min(x, 1))
		out[i] = Element{Low: n, High: n}
	}
	return out
}

// Within notes between which numbers all elements of v lie, and returns v.
func (v *Value) Within(low, high int64) *Value {
	if v.Known || v.Elements() == nil {
		return v
	}
	w := *v
	w.elements = make([]Element, v.Type.Elements())
	for i := range w.elements {
		w.elements[i] = Element{Low: low, High: high}
	}
	w.standsAlone()
	return &w
}

// standsAlone makes a scalar the value of its element.
func (v *Value) standsAlone() {
	if len(v.elements) == 1 && v.elements[0].at == nil && v.Rank() == 0 {
		v.elements = []Element{{Low: v.elements[0].Low, High: v.elements[0].High, at: v}}
	}
}

// At returns element i of an integer value as an I64 scalar.
func (c *Call) At(v *Value, i int) *Value {
	e := v.Elements()[i]
	switch {
	case e.Known():
		return Int(e.Low)
	case e.at != nil && e.at.Type.DType == graph.I64:
		return e.at
	}
	x := v
	if x.Rank() != 1 {
		x = c.Emit(&graph.Reshape{Shape: []int64{x.Type.Elements()}}, x)
	}
	one := c.Emit(&graph.Reshape{Shape: []int64{}}, c.Emit(&graph.Slice{Start: []int64{int64(i)}, Size: []int64{1}, Step: []int64{1}}, x))
	if one.Type.DType != graph.I64 {
		one = c.Emit(&graph.Cast{To: graph.I64}, one)
	}
	if !one.Known && one.elements == nil {
		one.elements = []Element{{Low: e.Low, High: e.High}}
	}
	one.standsAlone()
	// Others in the same graph get the same scalar, so that it is seen to be the same.
	if v.elements != nil && c.l.current == 0 && c.l.attempts == 0 {
		v.elements[i].at = one
	}
	return one
}

// List returns a list of elements that are known or are scalars.
func (c *Call) List(elements ...*Value) *Value {
	if len(elements) == 0 {
		return KnownInts()
	}
	parts := make([]*Value, len(elements))
	for i, e := range elements {
		parts[i] = c.Emit(&graph.Reshape{Shape: []int64{1}}, e)
	}
	return c.Emit(&graph.Concat{}, parts...)
}

// elementsOf returns what is known of the elements of an operator's result, nil if nothing is
// that does not follow from its type.
func elementsOf(op graph.Op, in []*Value, t graph.TensorType) []Element {
	if b, ok := op.(*graph.Binary); ok && t.DType == graph.Bool {
		return compared(b.Fn, in, t)
	}
	if t.DType != graph.I64 && t.DType != graph.I32 || t.Elements() > maxElements || len(t.Shape) > 1 {
		return nil
	}
	some := false
	_, joins := op.(*graph.Concat) // of which a part may be known
	all := make([][]Element, len(in))
	for i, v := range in {
		if v == nil || v.Counted() {
			return nil
		}
		all[i] = v.Elements()
		some = some || v.elements != nil || joins && v.Known
	}
	if !some {
		return nil
	}
	n := int(t.Elements())
	pick := func(from []Element, at func(i int) int) []Element {
		out := make([]Element, n)
		for i := range out {
			k := at(i)
			if k < 0 || k >= len(from) {
				return nil
			}
			out[i] = from[k]
		}
		return out
	}
	switch o := op.(type) {
	case *graph.Reshape:
		return all[0]
	case *graph.Cast:
		if all[0] == nil || t.DType == graph.I32 && !fitsInt32(all[0]) {
			return nil
		}
		return all[0]
	case *graph.Expand:
		return pick(all[0], func(i int) int { return min(i, len(all[0])-1) })
	case *graph.Slice:
		if in[0].Rank() != 1 {
			return nil
		}
		return pick(all[0], func(i int) int { return int(o.Start[0] + int64(i)*o.Step[0]) })
	case *graph.Gather:
		if in[0].Rank() != 1 || !in[1].Known {
			return nil
		}
		return pick(all[0], func(i int) int {
			k := all[1][i].Low
			if k < 0 {
				k += int64(len(all[0]))
			}
			return int(k)
		})
	case *graph.Concat:
		var out []Element
		for _, e := range all {
			if e == nil {
				return nil
			}
			out = append(out, e...)
		}
		return out
	case *graph.Binary:
		if all[0] == nil || all[1] == nil {
			return nil
		}
		out := make([]Element, n)
		for i := range out {
			a, b := all[0][min(i, len(all[0])-1)], all[1][min(i, len(all[1])-1)]
			e, ok := combined(o.Fn, a, b)
			if !ok {
				return nil
			}
			if t.DType == graph.I32 && !fitsInt32([]Element{e}) {
				return nil
			}
			out[i] = e
		}
		return out
	case *graph.Where:
		if all[0] == nil || all[1] == nil || all[2] == nil {
			return nil
		}
		out := make([]Element, n)
		for i := range out {
			part := func(k int) Element { return all[k][min(i, len(all[k])-1)] }
			switch cond, a, b := part(0), part(1), part(2); {
			case !cond.Known():
				out[i] = Element{Low: min(a.Low, b.Low), High: max(a.High, b.High)}
			case cond.Low != 0:
				out[i] = a
			default:
				out[i] = b
			}
		}
		return out
	}
	return nil
}

// compared returns what is known of a comparison of two lists, nil if nothing is.
func compared(fn graph.BinaryFn, in []*Value, t graph.TensorType) []Element {
	if t.Elements() > maxElements || len(t.Shape) > 1 || in[0].Counted() || in[1].Counted() {
		return nil
	}
	a, b := in[0].Elements(), in[1].Elements()
	if a == nil || b == nil {
		return nil
	}
	out, some := make([]Element, t.Elements()), false
	for i := range out {
		x, y := a[min(i, len(a)-1)], b[min(i, len(b)-1)]
		is, decided := holds(fn, x, y)
		out[i] = Element{Low: 0, High: 1}
		if decided {
			n := int64(0)
			if is {
				n = 1
			}
			out[i], some = Element{Low: n, High: n}, true
		}
	}
	if !some {
		return nil
	}
	return out
}

// holds reports whether fn(a, b) is true for all numbers that the elements may be, and whether it is
// either for all of them.
func holds(fn graph.BinaryFn, a, b Element) (is, decided bool) {
	switch fn {
	case graph.Equal:
		return a.Known() && b.Known() && a.Low == b.Low, a.Known() && b.Known() || a.High < b.Low || b.High < a.Low
	case graph.Less:
		return a.High < b.Low, a.High < b.Low || a.Low >= b.High
	case graph.LessEqual:
		return a.High <= b.Low, a.High <= b.Low || a.Low > b.High
	case graph.Greater:
		return holds(graph.Less, b, a)
	case graph.GreaterEqual:
		return holds(graph.LessEqual, b, a)
	}
	return false, false
}

func fitsInt32(all []Element) bool {
	for _, e := range all {
		if e.Low < math.MinInt32 || e.High > math.MaxInt32 {
			return false
		}
	}
	return true
}

// combined returns what is known of fn(a, b).
func combined(fn graph.BinaryFn, a, b Element) (Element, bool) {
	far := int64(1 << 40) // no size is as great
	if fn == graph.Mul {
		far = 1 << 31 // no product of two overflows
	}
	near := func(e Element) bool { return e.Low > -far && e.High < far }
	if fn != graph.Min && fn != graph.Max && !(near(a) && near(b)) {
		return Element{}, false
	}
	switch fn {
	case graph.Min, graph.Max:
		e := Element{Low: min(a.Low, b.Low), High: min(a.High, b.High)}
		if fn == graph.Max {
			e = Element{Low: max(a.Low, b.Low), High: max(a.High, b.High)}
		}
		switch { // it is one of them, whatever they are
		case fn == graph.Min && a.High <= b.Low, fn == graph.Max && a.Low >= b.High:
			e = a
		case fn == graph.Min && b.High <= a.Low, fn == graph.Max && b.Low >= a.High:
			e = b
		}
		return e, true
	case graph.Add:
		if b.Low == 0 && b.High == 0 {
			return a, true
		}
		if a.Low == 0 && a.High == 0 {
			return b, true
		}
		return Element{Low: a.Low + b.Low, High: a.High + b.High}, true
	case graph.Sub:
		if b.Low == 0 && b.High == 0 {
			return a, true
		}
		return Element{Low: a.Low - b.High, High: a.High - b.Low}, true
	case graph.Mul:
		if b.Low == 1 && b.High == 1 {
			return a, true
		}
		if a.Low == 1 && a.High == 1 {
			return b, true
		}
		p := [...]int64{a.Low * b.Low, a.Low * b.High, a.High * b.Low, a.High * b.High}
		return Element{Low: min(p[0], p[1], p[2], p[3]), High: max(p[0], p[1], p[2], p[3])}, true
	case graph.Div:
		if !b.Known() || b.Low <= 0 || a.Low < 0 {
			return Element{}, false
		}
		if b.Low == 1 {
			return a, true
		}
		return Element{Low: a.Low / b.Low, High: a.High / b.Low}, true
	}
	return Element{}, false
}
