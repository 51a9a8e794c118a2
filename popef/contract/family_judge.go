package contract

import (
	"fmt"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/popef/family"
)

// pairMembers returns, for every old member, the index of the new one of its
// sizes or -1. Members are paired only where the same dimensions are open.
func (j *judge) pairMembers() []int {
	if j.old.Members == nil {
		return nil
	}
	out := make([]int, len(j.old.Members))
	same := j.sameDims()
	for i, m := range j.old.Members {
		out[i] = -1
		if same {
			if at, ok := slices.BinarySearchFunc(j.new.Members, m, compareKeys); ok {
				out[i] = at
			}
		}
	}
	return out
}

// compareKeys compares what tells members apart: their sizes, or where no
// dimension is open their lengths.
func compareKeys(a, b Member) int {
	if len(a.Sizes) == 0 && len(b.Sizes) == 0 {
		return slices.Compare(a.Loose, b.Loose)
	}
	return slices.Compare(a.Sizes, b.Sizes)
}

// sameDims reports whether both have the same open dimensions, in this order.
func (j *judge) sameDims() bool {
	return slices.EqualFunc(j.old.Dims, j.new.Dims, func(a, b Dim) bool { return a.Name == b.Name })
}

// size says which size a member is: by the dimensions and, if it is known, by
// its constant.
func (p *Published) size(i int) string {
	s := ""
	for k, n := range p.Members[i].Sizes {
		s += fmt.Sprintf(" %s=%d", dimName(p.Dims[k].Name), n)
	}
	if s == "" {
		s = p.Members[i].text()
	}
	return "size" + s
}

// constant says what callers call a member: its constant, if that is known.
func (p *Published) constant(i int) string {
	if p.SizeNames != nil {
		return "the constant " + p.SizeNames[i]
	}
	return "its constant of type Size"
}

// flags are those of compile that make the sizes of all members.
func (c *Callers) flags() string {
	s := ""
	for d := range c.Dims {
		var sizes []int64
		for _, m := range c.Members {
			sizes = append(sizes, m.Sizes[d])
		}
		slices.Sort(sizes)
		sizes = slices.Compact(sizes)
		const most = 8
		more := ""
		if len(sizes) > most {
			sizes, more = sizes[:most], ",…"
		}
		list := strings.Trim(strings.ReplaceAll(fmt.Sprint(sizes), " ", ","), "[]") + more
		s += " --dim " + printable.ShellWord(c.Dims[d].Name+"="+list)
	}
	return strings.TrimPrefix(s, " ")
}

// shape judges the shape of a field of which a length is open in one of both.
func (j *judge) shape(i, at int) {
	a, b := &j.old.Fields[i], &j.new.Fields[at]
	was, is := j.old.shapeText(a), j.new.shapeText(b)
	kind, r := KindShape, ruling{Breaking, false, fmt.Sprintf("the type of %s has other lengths", j.old.place(i)),
		"adapt the callers, or compile the model with the old shape"}
	if len(a.Info.Shape) == len(b.Info.Shape) {
		opened, fixed, bound := 0, 0, 0
		for k := range a.Info.Shape {
			x, y := a.axis(k), b.axis(k)
			switch {
			case j.old.axisText(&x) == j.new.axisText(&y):
			case x.open() && !y.open():
				fixed++
			case !x.open() && y.open():
				opened++
			case x.Counted && y.Counted && x.Dim < 0 && y.Dim < 0 && x.Loose < 0 && y.Loose < 0:
				bound++
			default:
				opened, fixed = opened+1, fixed+1
			}
		}
		switch {
		case opened > 0 && fixed == 0:
			kind = KindOpened
			r.why = fmt.Sprintf("%s becomes a struct with its open lengths, no longer an array", j.old.place(i))
			if a.Axes != nil {
				r.why = fmt.Sprintf("the type of %s gets another length that callers give or look at", j.old.place(i))
			}
			r.do = adapt + ", or compile the model with one size of it"
		case fixed > 0 && opened == 0:
			kind = KindFixed
			r.why = fmt.Sprintf("%s becomes an array, no longer a struct with its open lengths", j.old.place(i))
			if b.Axes != nil {
				r.why = fmt.Sprintf("the type of %s loses a length that callers give or look at", j.old.place(i))
			}
			r.do = adapt + j.compiledWith()
		case bound > 0 && opened+fixed == 0:
			kind = KindBound
			r = ruling{Compatible, false, "no type changes; results may be longer or shorter, and buffers are made for the bound", again}
		}
	}
	j.addField(kind, r, a, was, is)
}

// axis returns an axis of the field, also if it is an array's.
func (f *Field) axis(k int) Axis {
	if f.Axes != nil {
		return f.Axes[k]
	}
	return Axis{Size: f.Info.Shape[k], Dim: -1, Loose: -1}
}

// sizes judges what only families have: dimensions, members, padding.
func (j *judge) sizes() {
	list := func(dims []Dim) string {
		return "[" + strings.TrimSuffix(strings.TrimPrefix(namesLine("", dims), " "), "\n") + "]"
	}
	j.add(KindDims, ruling{Breaking, false, "sizes of requests are given and named by them, in this order", adapt + j.compiledWith()},
		"open dimensions", "", list(j.old.Dims), list(j.new.Dims))
	if !j.sameDims() || j.old.Members == nil || j.new.Members == nil {
		return
	}
	instead := adapt + j.compiledWith()
	kept := make([]bool, len(j.new.Members))
	for i, at := range j.members {
		if at < 0 {
			then := "requests of this size are padded to a larger one or refused"
			if j.old.Trains {
				then = "steps of this size are refused"
			}
			r := ruling{Breaking, false, fmt.Sprintf("callers that use %s do not build, and %s", j.old.constant(i), then), instead}
			j.found = append(j.found, Finding{Kind: KindMemberRemoved, Verdict: r.verdict, Opens: r.opens, What: j.old.size(i), Old: "there", Why: r.why, Do: r.do})
			continue
		}
		kept[at] = true
		a, b := &j.old.Members[i], &j.new.Members[at]
		if len(a.Loose) == len(b.Loose) {
			j.add(KindShape, ruling{Breaking, false, "lengths that follow from no single dimension are others in this size", adapt}, j.old.size(i), "", fmt.Sprint(a.Loose), fmt.Sprint(b.Loose))
		}
		if j.old.SizeNames != nil && j.new.SizeNames != nil {
			j.add(KindMemberName, ruling{Breaking, true, "the same size is another constant in Go", adapt}, j.old.size(i), "", j.old.SizeNames[i], j.new.SizeNames[at])
		}
	}
	may := "what fits into it better than into a larger size runs in it"
	if j.new.Trains {
		may = "steps may have this size too"
	}
	for at := range j.new.Members {
		if !kept[at] {
			j.found = append(j.found, Finding{Kind: KindMemberAdded, Verdict: Compatible, Opens: true, What: j.new.size(at), New: "there",
				Why: "callers may ignore it: " + may, Do: again + " to name it"})
		}
	}
	for d := range j.old.Dims {
		j.padding(d)
	}
}

// compiledWith says that the model may be compiled with the old sizes, as an
// alternative; "" if data alone decided them.
func (j *judge) compiledWith() string {
	if flags := j.old.flags(); flags != "" {
		return ", or compile the model with " + flags
	}
	return ""
}

// padding judges what may be padded along a dimension that both have.
func (j *judge) padding(d int) {
	a, b := &j.old.Dims[d], &j.new.Dims[d]
	name := dimName(a.Name)
	state := func(ok bool) string {
		if ok {
			return "proven independent"
		}
		return "not proven"
	}
	r := ruling{Compatible, true, "smaller sizes may be computed by larger members now", again}
	if a.Rows {
		r = ruling{Breaking, false, "Run may not fill a larger size up any more, nor RunSamples cut one: sizes that are no member's are refused",
			"see popefgen inspect for the operator that mixes rows; compile with the sizes that callers use, or declare padding (compile --pad)"}
	}
	j.add(KindRows, r, "rows along "+name, "", state(a.Rows), state(b.Rows))
	value := func(dim *Dim, input string) (string, bool) {
		i := slices.IndexFunc(dim.Pads, func(p family.Pad) bool { return p.Input == input })
		if i < 0 {
			return "not declared", false
		}
		return dim.Pads[i].Value, true
	}
	for _, p := range a.Pads {
		now, ok := value(b, p.Input)
		r := ruling{Compatible, true, "results for the rows that callers give are declared to be the same", "nothing"}
		if !ok {
			r = ruling{Breaking, false, "Run may not fill a larger size up any more: sizes that are no member's are refused",
				"compile with --pad " + printable.ShellWord(a.Name+"="+p.Input+":"+p.Value) + ", or with the sizes that callers use"}
		}
		j.add(KindPad, r, fmt.Sprintf("padding of %q along %s", p.Input, name), "", p.Value, now)
	}
	for _, p := range b.Pads {
		if was, ok := value(a, p.Input); !ok {
			j.add(KindPad, ruling{Compatible, true, "smaller sizes may be computed by larger members now", again},
				fmt.Sprintf("padding of %q along %s", p.Input, name), "", was, p.Value)
		}
	}
}
