package verify

import (
	"fmt"
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// Tolerance says how far a floating-point element may be off: by at most
// Abs + Rel·|want|. Integers and bools must be equal. NaN equals NaN, and
// infinities must be the same. The rule is numpy.testing.assert_allclose's.
type Tolerance struct{ Rel, Abs float64 }

// Difference is the outcome of comparing two tensors of one type and shape.
type Difference struct {
	Elements int64   // compared
	Bad      int64   // elements out of tolerance
	Worst    float64 // largest |got-want| of all elements; +Inf where one is not finite
	Index    []int64 // where the worst offender is: an element out of tolerance if there is one
	Got      float64 // its value
	Want     float64 // and what was expected
	Noise    int64   // elements that pass because a run of inputs changed by rounding gives them
}

// String describes the difference for people.
func (d Difference) String() string {
	if d.Bad == 0 {
		return fmt.Sprintf("worst error %.3g", d.Worst)
	}
	return fmt.Sprintf("%d of %d elements differ, worst at %v: got %v, want %v", d.Bad, d.Elements, d.Index, d.Got, d.Want)
}

// Compare compares got with want, row-major little-endian elements of type t.
// Both must have exactly the bytes of t. Others are what the same computation gave
// for inputs that differ by rounding alone: an element that one of them has
// within the tolerance is not out of it.
func Compare(t graph.TensorType, got, want []byte, tol Tolerance, others ...[]byte) (Difference, error) {
	size := t.DType.Size()
	n := t.Elements()
	if int64(len(got)) != n*int64(size) || int64(len(want)) != n*int64(size) {
		return Difference{}, fmt.Errorf("comparing %s: found %d and %d bytes, want %d", t, len(got), len(want), n*int64(size))
	}
	for _, o := range others {
		if len(o) != len(want) {
			return Difference{}, fmt.Errorf("comparing %s: found %d bytes of another run, want %d", t, len(o), len(want))
		}
	}
	d := Difference{Elements: n}
	exact := !t.DType.IsFloat()
	if exact && slices.Equal(got, want) {
		return d, nil
	}
	at := int64(-1)
	worstBad := -1.0
	for i := range n {
		g, w := graph.Number(t.DType, got[i*int64(size):]), graph.Number(t.DType, want[i*int64(size):])
		diff, ok := compare(g, w, tol, exact)
		if exact {
			// 64-bit integers beyond 2^53 are told apart by their bytes.
			ok = slices.Equal(got[i*int64(size):(i+1)*int64(size)], want[i*int64(size):(i+1)*int64(size)])
		}
		if !ok && slices.ContainsFunc(others, func(o []byte) bool {
			at := i * int64(size)
			if exact {
				return slices.Equal(o[at:at+int64(size)], want[at:at+int64(size)])
			}
			_, ok := compare(graph.Number(t.DType, o[at:]), w, tol, false)
			return ok
		}) {
			d.Noise++
			continue
		}
		d.Worst = max(d.Worst, diff)
		if !ok {
			d.Bad++
			if diff > worstBad {
				worstBad, at, d.Got, d.Want = diff, i, g, w
			}
		}
	}
	if at >= 0 {
		d.Index = make([]int64, len(t.Shape))
		for i := len(t.Shape) - 1; i >= 0; i-- {
			d.Index[i] = at % t.Shape[i]
			at /= t.Shape[i]
		}
	}
	return d, nil
}

// compare returns the distance of g from w and whether it is tolerable.
func compare(g, w float64, tol Tolerance, exact bool) (float64, bool) {
	if g == w || math.IsNaN(g) && math.IsNaN(w) {
		return 0, true
	}
	diff := math.Abs(g - w)
	if math.IsNaN(diff) || math.IsInf(g, 0) || math.IsInf(w, 0) {
		return math.Inf(1), false
	}
	return diff, !exact && diff <= tol.Abs+tol.Rel*math.Abs(w)
}
