package rows

import (
	"bytes"
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// kind is what is known of the rows of a tensor. The later one says less.
type kind uint8

const (
	alike kind = iota // no rows: the same whatever the rows hold
	apart             // row i follows from row i of the inputs alone
	mixed             // anything
)

// value is what is known of a tensor.
type value struct {
	kind   kind
	at     layout        // of alike, with factors that are level where that is known, and of apart: of all elements in a list if rows begin or end within an axis
	data   *graph.Tensor // the constant that it is, if it is one
	fault  *Finding      // of mixed: why
	placed *Finding      // a row's number decides its value: why; nil if it does not
	places []int64       // shape of a tensor of which the elements are places, numbered over all of it, each in the part with the element's own first two coordinates; nil if they are not
	zeros  span          // of the elements in rows that are zeros in the inputs; of all where there are no rows
}

// span is the least and the greatest value of elements, from -Inf to Inf where
// nothing is known.
type span struct{ lo, hi float64 }

var anything = span{math.Inf(-1), math.Inf(1)}

func (s span) with(t span) span { return span{min(s.lo, t.lo), max(s.hi, t.hi)} }

// in reports whether s lies within lo and hi.
func (s span) in(lo, hi int64) bool { return s.lo >= float64(lo) && s.hi <= float64(hi) }

func (v *value) equal(w *value) bool {
	return v.kind == w.kind && v.at.equal(w.at) && v.data == w.data && (v.placed == nil) == (w.placed == nil) && slices.Equal(v.places, w.places) && v.zeros == w.zeros
}

// same reports whether a constant's elements are equal along all digits of l, a
// layout of its elements, that count rows.
func (a *analysis) same(t *graph.Tensor, l layout) bool {
	size := t.Type.DType.Size()
	fs := canonical(slices.Concat(l...))
	n := t.Type.Elements()
	if !a.spend(n >> 4) {
		return false
	}
	// Runs of elements within which no digit counts.
	run := int64(1)
	if k := len(fs) - 1; k >= 0 && fs[k].weight <= 0 {
		run, fs = fs[k].size, fs[:k]
	}
	bytesOf := func(i int64) []byte { return t.Data[i*int64(size):][:run*int64(size)] }
	for i := int64(0); i < n; i += run {
		first, stride, rest := i, run, i/run
		for _, f := range slices.Backward(fs) {
			if f.weight > 0 {
				first -= rest % f.size * stride
			}
			rest, stride = rest/f.size, stride*f.size
		}
		if first != i && !bytes.Equal(bytesOf(first), bytesOf(i)) {
			return false
		}
	}
	return true
}
