package outputs

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/popef"
)

// Report is how far a model's outputs are from the goldens.
type Report struct {
	Cases   int      `json:"cases"`
	Outputs []Output `json:"outputs"`
}

// Output is one output over all cases.
type Output struct {
	Anchor    string           `json:"anchor"`
	Info      popef.TensorInfo `json:"-"`
	Type      string           `json:"type"` // element type and shape
	Tolerance Tolerance        `json:"tolerance"`
	Elements  int64            `json:"elements"`
	Bad       int64            `json:"bad"` // out of tolerance

	WorstAbs Worst `json:"worstAbs"`
	// WorstULP is in units in the last place; floating point only.
	WorstULP Worst `json:"worstUlp"`

	// Rows and Agree tell how many rows along the last dimension have their
	// largest element where it is in the golden; 0 rows if it is no scores.
	Rows  int64 `json:"rows,omitempty"`
	Agree int64 `json:"agree,omitempty"`

	first Worst // element out of tolerance that is the furthest off
}

// Worst is the element that is the furthest off, in some measure.
type Worst struct {
	Off   float64 `json:"off"` // the largest float64 if either element is not finite
	Case  string  `json:"case,omitempty"`
	Index []int64 `json:"index,omitempty"`
	Got   string  `json:"got,omitempty"`
	Want  string  `json:"want,omitempty"`
}

func newReport(m *Model, tolerances map[string]Tolerance) *Report {
	r := &Report{}
	for _, p := range m.Outputs {
		r.Outputs = append(r.Outputs, Output{Anchor: p.Anchor, Info: p.Info, Type: p.Info.String(), Tolerance: tolerances[p.Anchor]})
	}
	return r
}

// OK reports whether every element is within its tolerance.
func (r *Report) OK() bool {
	for i := range r.Outputs {
		if r.Outputs[i].Bad > 0 {
			return false
		}
	}
	return true
}

// add adds a case, in which the output may have another shape than in others.
func (o *Output) add(name string, got *Port, want expected) {
	if !slices.Equal(got.Info.Shape, want.info.Shape) {
		n := max(1, int64(len(want.data)/o.Info.DataType.Size()))
		o.Elements, o.Bad = o.Elements+n, o.Bad+n
		if o.first.Off < math.MaxFloat64 || o.first.Case == "" {
			o.first = Worst{Off: math.MaxFloat64, Case: name, Got: fmt.Sprintf("shape %v", got.Info.Shape), Want: fmt.Sprintf("shape %v", want.info.Shape)}
		}
		return
	}
	sized := o.Info.Shape
	o.Info.Shape = want.info.Shape
	o.compare(name, got.bytes(), want.data)
	o.Info.Shape = sized
}

// compare adds a case.
func (o *Output) compare(name string, got, want []byte) {
	t := o.Info.DataType
	size, float := t.Size(), IsFloat(t)
	o.Elements += int64(len(want) / size)
	for i := 0; i < len(want); i += size {
		g, w := got[i:i+size], want[i:i+size]
		if bytes.Equal(g, w) {
			continue
		}
		off, ok := o.judge(g, w, float)
		o.WorstAbs.take(o, name, i/size, off, g, w)
		if float {
			o.WorstULP.take(o, name, i/size, float64(ulps(t, g, w)), g, w)
		}
		if !ok {
			o.Bad++
			o.first.take(o, name, i/size, off, g, w)
		}
	}
	if n := len(o.Info.Shape); float && n > 0 && o.Info.Shape[n-1] > 1 {
		row := int(o.Info.Shape[n-1]) * size
		for i := 0; i+row <= len(want); i += row {
			o.Rows++
			if top(t, got[i:i+row]) == top(t, want[i:i+row]) {
				o.Agree++
			}
		}
	}
}

// judge returns how far an element is off, and whether that is within the
// tolerance.
func (o *Output) judge(g, w []byte, float bool) (off float64, ok bool) {
	t := o.Info.DataType
	x, y := value(t, g), value(t, w)
	off = math.Abs(x - y)
	switch {
	case !float:
		return off, o.Tolerance.Abs > 0 && off <= o.Tolerance.Abs
	case x == y || math.IsNaN(x) && math.IsNaN(y):
		return 0, true
	case math.IsNaN(off) || math.IsInf(off, 0):
		return math.MaxFloat64, false
	}
	return off, ulps(t, g, w) <= o.Tolerance.ULP || off <= o.Tolerance.Abs+o.Tolerance.Rel*math.Abs(y)
}

// take keeps an element that is further off than the one before.
func (w *Worst) take(o *Output, name string, at int, off float64, got, want []byte) {
	if off < w.Off || off == w.Off && w.Case != "" {
		return
	}
	shape := o.Info.Shape
	index := make([]int64, len(shape))
	for i := len(shape) - 1; i >= 0; i-- {
		index[i] = int64(at) % shape[i]
		at /= int(shape[i])
	}
	*w = Worst{off, name, index, text(o.Info.DataType, got), text(o.Info.DataType, want)}
}

// top returns where a row's largest element is, the first one of equals.
func top(t popef.DataType, row []byte) (at int) {
	best := math.Inf(-1)
	for i := 0; i < len(row); i += t.Size() {
		if v := value(t, row[i:]); v > best {
			best, at = v, i
		}
	}
	return at
}

// String shows the report as a diff: a line per output, and for an output
// that is out of tolerance its worst element as it was and as it is.
func (r *Report) String() string {
	var b strings.Builder
	for i := range r.Outputs {
		o := &r.Outputs[i]
		verdict := "ok  "
		if o.Bad > 0 {
			verdict = "FAIL"
		}
		fmt.Fprintf(&b, "%s  %s  %s, %d cases: %s\n", verdict, printable.Line(o.Anchor), o.Info, r.Cases, o.summary())
		if o.Bad > 0 {
			fmt.Fprintf(&b, "      %d of %d elements are out of tolerance (%v), the worst one in case %s at %v:\n", o.Bad, o.Elements, o.Tolerance, o.first.Case, o.first.Index)
			fmt.Fprintf(&b, "    - %s\n    + %s\n", o.first.Want, o.first.Got)
		}
		if o.Agree < o.Rows {
			fmt.Fprintf(&b, "      the largest element of a row is elsewhere in %d of %d rows\n", o.Rows-o.Agree, o.Rows)
		}
	}
	return b.String()
}

// summary says how far the output is off.
func (o *Output) summary() string {
	if o.WorstAbs.Case == "" {
		return fmt.Sprintf("equal in all %d elements", o.Elements)
	}
	s := fmt.Sprintf("at most %.3g off (case %s at %v)", o.WorstAbs.Off, o.WorstAbs.Case, o.WorstAbs.Index)
	if o.WorstULP.Case != "" {
		s += fmt.Sprintf(", %.0f ULP (case %s at %v)", o.WorstULP.Off, o.WorstULP.Case, o.WorstULP.Index)
	}
	if o.Rows > 0 {
		s += fmt.Sprintf(", top-1 agrees in %d of %d rows", o.Agree, o.Rows)
	}
	return s
}
