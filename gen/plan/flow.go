package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/internal/nearest"
	"github.com/popefgen/popefgen/popef/contract"
)

// Flow is how a stream of a model with several sizes runs.
type Flow struct {
	Rows  int    // open dimension of whose rows a stream is one; -1 if states have none
	Past  int    // open dimension by which states grow; -1 if none does
	Step  int64  // positions that a request adds to what grows
	Most  int64  // positions that a stream holds at most
	Dims  []Dim  // open dimensions that a request to a stream has sizes in
	Fills []Fill // inputs that the stream fills
}

// Fill is an input that a stream fills.
type Fill struct {
	Input int    // index in Plan.Inputs
	Kind  string // name of genrt's constant, without Fill: "Mask", "Bias" or "Positions"
}

// Filled reports whether the stream fills input i.
func (p *Plan) Filled(i int) bool {
	return p.Flow != nil && slices.ContainsFunc(p.Flow.Fills, func(f Fill) bool { return f.Input == i })
}

// StreamExample returns sizes for examples of what a request to a stream reads: those of the first member.
func (p *Plan) StreamExample() (sizes []int64) {
	for d, n := range p.Family.Example {
		if d != p.Flow.Rows && d != p.Flow.Past {
			sizes = append(sizes, n)
		}
	}
	return sizes
}

// cached is a state that grows: by so many positions along the axis of an open dimension.
type cached struct {
	pair string // as it was given
	dim  int
	step int64
}

// grows returns by how many positions an output is longer than the input of its state, and along
// which open dimension. It returns 0 if they do not differ in that alone.
func (b *builder) grows(in, out int) (dim int, step int64) {
	c := &b.plan.Contract
	from, to := &c.Fields[in], &c.Fields[out]
	if len(from.Axes) == 0 || len(from.Axes) != len(to.Axes) || from.Info.DataType != to.Info.DataType {
		return 0, 0
	}
	for i := range from.Axes {
		x, y := from.Axes[i], to.Axes[i]
		switch {
		case x == y && x.Loose < 0:
		case step == 0 && y.Dim == x.Dim && same(&x) && y.Mul == 1 && y.Div == 1 && y.Add > 0 && !y.Counted:
			dim, step = x.Dim, y.Add
		default:
			return 0, 0
		}
	}
	return dim, step
}

// same reports whether an axis has the size of an open dimension.
func same(a *contract.Axis) bool {
	return a.Dim >= 0 && a.Mul == 1 && a.Add == 0 && a.Div == 1 && !a.Counted
}

// flow decides how streams of a model with several sizes run.
func (b *builder) flow() {
	p := &b.plan
	fill := b.opts.StateFill
	if len(p.State) == 0 || len(b.problems) > 0 {
		if len(p.State) == 0 && len(fill) > 0 {
			b.problem("state-fill: there is no state; want --state PRESENT=PAST too")
		}
		return
	}
	if p.Family == nil || p.BatchSize > 0 {
		if len(fill) > 0 {
			b.problem("state-fill: no state grows, so that nothing tells apart what is filled; want a model of several sizes of its past (compile --dim)")
		}
		return
	}
	f := &Flow{Rows: -1, Past: -1}
	for _, x := range b.cached {
		if f.Past >= 0 && (x.dim != f.Past || x.step != f.Step) {
			b.problem("state %s: it grows by %d along dimension %q, and another state by %d along %q; want one step of one dimension",
				x.pair, x.step, p.Family.Dims[x.dim].Name, f.Step, p.Family.Dims[f.Past].Name)
			return
		}
		f.Past, f.Step = x.dim, x.step
	}
	b.flowRows(f)
	for d, dim := range p.Family.Dims {
		if d != f.Rows && d != f.Past {
			f.Dims = append(f.Dims, dim)
		}
	}
	if f.Past >= 0 {
		for _, m := range p.Contract.Members {
			f.Most = max(f.Most, m.Sizes[f.Past])
		}
	}
	b.flowFills(f)
	p.Flow = f
}

// flowRows finds the dimension of whose rows a stream is one: the one that is open in every state. What
// else is open in a state would have to stay as it is from request to request.
func (b *builder) flowRows(f *Flow) {
	p := &b.plan
	for i, pair := range b.statePairs {
		field, name := &p.Contract.Fields[pair[0]], p.Anchors[pair[0]].Name
		rows := -1
		for k := range field.Axes {
			x := &field.Axes[k]
			switch {
			case x.Loose >= 0 || x.Counted:
				b.problem("state %q: the length of its axis %d follows from no open dimension", name, k)
			case x.Dim < 0 || x.Dim == f.Past && p.State[i].Grows > 0 && same(x):
			case rows < 0 && same(x) && p.Contract.Dims[x.Dim].Rows:
				rows = x.Dim
			default:
				b.problem("state %q: %s: dimension %q is open in it, and a stream has one size of its state: want one that is fixed, one whose rows are proven to be "+
					"independent of each other (a stream is a row then), or an output that is longer than its input by what a request adds (a cache, which grows); compile the model with --dim %s=SIZE",
					name, p.Anchors[pair[0]].Info, p.Family.Dims[x.Dim].Name, p.Family.Dims[x.Dim].Name)
			}
		}
		if i > 0 && rows != f.Rows {
			b.problem("state %q: %s: the states of a stream are rows of one open dimension, or of none, and those of %q are others", name, p.Anchors[pair[0]].Info, p.Anchors[b.statePairs[0][0]].Name)
			return
		}
		f.Rows = rows
	}
}

// flowFills finds the inputs that the stream fills, and refuses those that nobody could: what
// follows from the length of a cache is known to the stream alone.
func (b *builder) flowFills(f *Flow) {
	p := &b.plan
	kinds := map[string]string{"mask": "Mask", "bias": "Bias", "positions": "Positions"}
	filled := map[int]bool{}
	told := false
	for _, what := range sortedKeys(b.opts.StateFill) {
		name, flag := b.opts.StateFill[what], fmt.Sprintf("state-fill %s=%s", what, b.opts.StateFill[what])
		if kinds[what] == "" {
			b.problem("%s: want mask, bias or positions%s", flag, nearest.DidYouMean(what, sortedKeys(kinds)))
			continue
		}
		if f.Past < 0 {
			b.problem("%s: no state grows, so that there is nothing to tell the model of", flag)
			return
		}
		i := b.stateAnchor(flag, name, contract.RunInput)
		if i < 0 {
			continue
		}
		t, field := &p.Tensors[b.tensor[i]], &p.Contract.Fields[i]
		each := fmt.Sprintf("%d new positions: a last axis of that size, and before it rows alone", f.Step)
		if what != "positions" {
			told = true
			each = fmt.Sprintf("the past and %d new positions: a last axis of %s%+d, and before it rows alone", f.Step, p.Family.Dims[f.Past].Name, f.Step)
		}
		switch float := strings.HasPrefix(t.Elem, "float") || t.Elem == "rt.Float16"; {
		case filled[i]:
			b.problem("%s: %q is filled already; want each input once", flag, name)
		case !b.lines(field, f, what != "positions"):
			b.problem("%s: %s: want one number for each of %s", flag, p.Anchors[i].Info, each)
		case strings.HasPrefix(t.Elem, "rt.") && t.Elem != "rt.Float16", t.Elem == "bool" && what != "mask", what == "bias" && !float:
			b.problem("%s: %s: the stream can't fill elements of this type", flag, p.Anchors[i].Info)
		case what == "positions" && f.Most > largest[t.Elem]:
			b.problem("%s: %s: numbers up to %d do not fit into its elements", flag, p.Anchors[i].Info, f.Most)
		}
		filled[i] = true
		f.Fills = append(f.Fills, Fill{Input: i, Kind: kinds[what]})
	}
	if f.Past < 0 {
		return
	}
	dim := p.Family.Dims[f.Past].Name
	for i, a := range p.Anchors {
		state := slices.ContainsFunc(b.statePairs, func(s [2]int) bool { return s[0] == i || s[1] == i })
		if a.Role != contract.RunInput && a.Role != contract.RunOutput || state || filled[i] {
			continue
		}
		if slices.ContainsFunc(p.Contract.Fields[i].Axes, func(x contract.Axis) bool { return x.Dim == f.Past }) {
			b.problem("%s %q: %s: its size follows from %q, which only the stream knows; name it as a state (--state PRESENT=PAST) or let the stream fill it (--state-fill mask=INPUT, bias=INPUT)",
				roleNoun(a.Role), a.Name, a.Info, dim)
		}
	}
	if !told && len(b.problems) == 0 {
		b.problem("state: dimension %q has the size of a member, and nothing tells the model how much of it is filled; name the input that does, for the stream to fill it: "+
			"--state-fill mask=INPUT (1 for what is there, 0 elsewhere) or bias=INPUT (0 for what is there, and the lowest value elsewhere)", dim)
	}
}

// growsByOwn says what to do where the output of a state has a dimension of its own that is longer than its input's by the
// same in every member: that it always is so is for people to say.
func (b *builder) growsByOwn(in, out int) string {
	c := &b.plan.Contract
	from, to := c.Fields[in].Axes, c.Fields[out].Axes
	if len(from) != len(to) {
		return ""
	}
	for i := range from {
		if !same(&from[i]) || !same(&to[i]) {
			continue
		}
		past, own := from[i].Dim, to[i].Dim
		longer := func(m contract.Member) int64 { return m.Sizes[own] - m.Sizes[past] }
		step := longer(c.Members[0])
		if step < 1 || slices.ContainsFunc(c.Members, func(m contract.Member) bool { return longer(m) != step }) {
			continue
		}
		name, of := c.Dims[own].Name, c.Dims[past].Name
		return fmt.Sprintf("; dimension %q is %s%+d in every size that there is, and one of its own: if it always is, compile the model with --dim %s=%s%+d", name, of, step, name, of, step)
	}
	return ""
}

// lines reports whether a field is rows of numbers, one for each position: of the past and what is new,
// or of what is new alone.
func (b *builder) lines(field *contract.Field, f *Flow, past bool) bool {
	axes := field.Axes
	if axes == nil {
		for _, n := range field.Info.Shape {
			axes = append(axes, contract.Axis{Size: n, Dim: -1, Loose: -1})
		}
	}
	if len(axes) == 0 {
		return false
	}
	for i := range axes[:len(axes)-1] {
		if x := &axes[i]; !(x.Dim < 0 && x.Loose < 0 && x.Size == 1 && !x.Counted || x.Dim == f.Rows && f.Rows >= 0 && same(x)) {
			return false
		}
	}
	last := &axes[len(axes)-1]
	if past {
		return last.Dim == f.Past && last.Mul == 1 && last.Add == f.Step && last.Div == 1
	}
	return last.Dim < 0 && last.Loose < 0 && last.Size == f.Step && !last.Counted
}
