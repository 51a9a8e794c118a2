package compile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/popefgen/popefgen/internal/nearest"
	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/onnx"
)

// Rule says that a dimension always has the size ⌊(Mul·n+Add)/Div⌋, where n is that of the dimension
// Of, as an attention mask is as long as the past and what is new. Mul and Div of 0 stand for 1.
type Rule struct {
	Of            string
	Mul, Add, Div int64
}

// Bounds on what a rule that callers give may say; a family's file has the same.
const (
	maxRuleFactor = 1 << 20
	maxRuleAdd    = 1 << 40
)

// String returns the rule as users write it, as in past+1 or (2*past+1)/2.
func (r Rule) String() string {
	text, mul, div := r.Of, cmp.Or(r.Mul, 1), cmp.Or(r.Div, 1)
	if mul != 1 {
		text = fmt.Sprintf("%d*%s", mul, text)
	}
	if r.Add != 0 {
		text += fmt.Sprintf("%+d", r.Add)
	}
	if div != 1 {
		if r.Add != 0 {
			text = "(" + text + ")"
		}
		text += fmt.Sprintf("/%d", div)
	}
	return text
}

// At returns the size that follows from n elements of the dimension Of.
func (r Rule) At(n int64) int64 { return r.axis().at(n) }

func (r Rule) axis() axisRule {
	return axisRule{mul: cmp.Or(r.Mul, 1), div: cmp.Or(r.Div, 1), low: r.Add, high: r.Add}
}

// at returns the size of an axis where the dimension has n elements.
func (r axisRule) at(n int64) int64 {
	size := r.mul*n + r.add()
	if size < 0 {
		return -((-size + r.div - 1) / r.div)
	}
	return size / r.div
}

// applyRules checks what o.Rules says of dims in every member, and gives the axes that follow from another dimension to
// that one: they are no dimension of their own.
func (o *Options) applyRules(m *onnx.Model, dims []openDim, members []*member) ([]openDim, error) {
	find := func(name string) int {
		return slices.IndexFunc(dims, func(d openDim) bool {
			return d.name == name || slices.Contains(d.symbols, name) || slices.ContainsFunc(d.at, func(at place) bool {
				return name == fmt.Sprintf("%s[%d]", members[0].ins[at.input].Name, at.axis)
			})
		})
	}
	follows := map[int]string{}
	for _, name := range slices.Sorted(maps.Keys(o.Rules)) {
		rule := o.Rules[name]
		said := fmt.Sprintf("%s=%s", name, rule)
		own, base := find(name), find(rule.Of)
		for _, of := range []string{name, rule.Of} {
			if find(of) < 0 {
				var names []string
				for _, d := range dims {
					names = append(names, d.name)
				}
				return nil, noFamily("--dim %s: no input has the dimension %q%s", said, printable.Line(of), nearest.DidYouMean(of, names))
			}
		}
		mul, div := cmp.Or(rule.Mul, 1), cmp.Or(rule.Div, 1)
		switch {
		case mul < 1 || mul > maxRuleFactor || div < 1 || div > maxRuleFactor || rule.Add < -maxRuleAdd || rule.Add > maxRuleAdd:
			return nil, noFamily("--dim %s: want factors and divisors from 1 to %d, and at most %d added", said, maxRuleFactor, int64(maxRuleAdd))
		case own == base:
			return nil, noFamily("--dim %s: the dimension would follow from itself, want another one", said)
		case follows[own] != "":
			return nil, noFamily("--dim %s: what it follows from is said twice, by %s too; want it once", said, follows[own])
		}
		for _, mem := range members {
			n := dims[base].of(mem)
			if got, want := dims[own].of(mem), rule.At(n); n > maxRuleAdd || got != want {
				return nil, noFamily("--dim %s: a member has %s=%d and %s=%d, which makes it %d: leave the rule out, or give sizes that follow it",
					said, name, got, rule.Of, n, want)
			}
		}
		follows[own] = said
	}
	for _, name := range slices.Sorted(maps.Keys(o.Rules)) {
		rule := o.Rules[name]
		own, base := find(name), find(rule.Of)
		if follows[base] != "" {
			return nil, noFamily("--dim %s=%s: %q follows from another dimension itself (%s); say what %q follows from of that one", name, rule, rule.Of, follows[base], name)
		}
		if dims[own].same(members) {
			continue // a number, whatever the other dimension has
		}
		for _, at := range dims[own].at {
			at.rule = rule.axis()
			dims[base].at = append(dims[base].at, at)
		}
		if dims[base].follows == nil {
			dims[base].follows = map[string]axisRule{}
		}
		for _, symbol := range dims[own].symbols {
			dims[base].follows[symbol] = rule.axis()
		}
		dims[own].at = dims[own].at[:0:0]
		dims[own].gone = true
	}
	return slices.DeleteFunc(dims, func(d openDim) bool { return d.gone }), nil
}

// same reports whether a dimension has one size in all members.
func (d *openDim) same(members []*member) bool {
	return !slices.ContainsFunc(members, func(m *member) bool { return d.of(m) != d.of(members[0]) })
}

// ruleOf looks for a dimension that is longer than another by the same in all members that compile, of several sizes of that one, and by
// something else in each that does not.
func ruleOf(dims []openDim, members []*member) (name string, rule Rule, ok bool) {
	for base := range dims {
		for own := range dims {
			longer := func(m *member) int64 { return m.sizes[own] - m.sizes[base] }
			good := slices.DeleteFunc(slices.Clone(members), func(m *member) bool { return m.err != nil })
			several := slices.ContainsFunc(good, func(m *member) bool { return m.sizes[base] != good[0].sizes[base] })
			if !several || longer(good[0]) <= 0 {
				continue
			}
			if !slices.ContainsFunc(members, func(m *member) bool { return (m.err == nil) != (longer(m) == longer(good[0])) }) {
				return dims[own].name, Rule{Of: dims[base].name, Add: longer(good[0])}, true
			}
		}
	}
	return "", Rule{}, false
}

// paddedBy says where padding of a dimension belongs that follows from another one, "" if name is none.
func paddedBy(name string, dims []openDim) string {
	for _, d := range dims {
		if _, ok := d.follows[name]; ok {
			return fmt.Sprintf("; it follows from %q: declare what its inputs are filled up with for that one", d.name)
		}
	}
	return ""
}
