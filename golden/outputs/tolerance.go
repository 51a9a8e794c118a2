package outputs

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/popefgen/popefgen/popef"
)

// Tolerance says how far an element may be off. It is right if it is at most
// ULP units in the last place away, or at most Abs + Rel·|want|. The zero
// value wants equal elements. NaN equals NaN; infinities must be the same.
type Tolerance struct {
	ULP uint64  `json:"ulp,omitempty"`
	Rel float64 `json:"rel,omitempty"`
	Abs float64 `json:"abs,omitempty"`
}

// String returns the form that [ParseTolerance] reads.
func (t Tolerance) String() string {
	var parts []string
	if t.ULP > 0 {
		parts = append(parts, fmt.Sprintf("ulp:%d", t.ULP))
	}
	if t.Rel > 0 {
		parts = append(parts, fmt.Sprintf("rel:%g", t.Rel))
	}
	if t.Abs > 0 {
		parts = append(parts, fmt.Sprintf("abs:%g", t.Abs))
	}
	if parts == nil {
		return "exact"
	}
	return strings.Join(parts, ",")
}

// ParseTolerance reads "exact" or a list of ulp:N, rel:X and abs:X.
func ParseTolerance(text string) (t Tolerance, err error) {
	if text == "exact" {
		return t, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		kind, number, _ := strings.Cut(part, ":")
		var v float64
		switch kind {
		case "ulp":
			t.ULP, err = strconv.ParseUint(number, 10, 64)
		case "rel", "abs":
			v, err = strconv.ParseFloat(number, 64)
			if !(v >= 0) || math.IsInf(v, 0) {
				err = strconv.ErrRange
			}
			if kind == "rel" {
				t.Rel = v
			} else {
				t.Abs = v
			}
		default:
			err = strconv.ErrSyntax
		}
		if err != nil {
			return Tolerance{}, fmt.Errorf("found %q, want exact or a list of ulp:N, rel:X and abs:X", part)
		}
	}
	return t, nil
}

// precisions are the tolerances that fit the arithmetic of an element type,
// relative to an element and to the largest one.
var precisions = map[popef.DataType]Tolerance{
	popef.F64: {Rel: 1e-9, Abs: 1e-11}, popef.F32: {Rel: 1e-4, Abs: 1e-6}, popef.F16: {Rel: 1e-2, Abs: 1e-3},
	popef.F8143: {Rel: 0.13, Abs: 0.02}, popef.F8152: {Rel: 0.26, Abs: 0.02},
}

// foreignPrecisions are those for numbers that another program computed, which
// adds and rounds in another order.
var foreignPrecisions = map[popef.DataType]Tolerance{
	popef.F64: {Rel: 1e-8, Abs: 1e-9}, popef.F32: {Rel: 1e-3, Abs: 1e-4}, popef.F16: {Rel: 1e-2, Abs: 1e-3},
	popef.F8143: {Rel: 0.13, Abs: 0.02}, popef.F8152: {Rel: 0.26, Abs: 0.02},
}

// suit returns a tolerance for an output of the type, given an example: exact
// for what is not floating point, else by the type's precision and the
// largest element, so that elements near zero need not be right to their last
// digit.
func suit(precisions map[popef.DataType]Tolerance, info popef.TensorInfo, example []byte) Tolerance {
	t, ok := precisions[info.DataType]
	if !ok {
		return Tolerance{}
	}
	largest := 0.0
	for i, size := 0, info.DataType.Size(); i < len(example); i += size {
		if v := math.Abs(value(info.DataType, example[i:])); !math.IsInf(v, 0) && v > largest {
			largest = v
		}
	}
	if largest == 0 {
		largest = 1
	}
	// A round number, for people.
	t.Abs *= math.Pow(10, math.Ceil(math.Log10(largest)))
	return Tolerance{Rel: t.Rel, Abs: round(t.Abs)}
}

// round drops what multiplying powers of ten leaves behind.
func round(v float64) float64 {
	r, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 6, 64), 64)
	if err != nil {
		return v
	}
	return r
}
