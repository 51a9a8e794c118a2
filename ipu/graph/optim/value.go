package optim

import (
	"fmt"
	"path"
)

// Value is one number of an optimizer.
type Value struct {
	V float32
	// Const says that the number is part of the executable. One that is not is fed by the host before the first step, and may be
	// changed between steps.
	Const bool
}

// Specific is the value that weights have whose names match.
type Specific struct {
	Pattern string // of [path.Match]
	Value   Value
}

// Values is a number of an optimizer for all weights: the first of Specific that matches a weight's name, or Default.
type Values struct {
	Default  Value
	Specific []Specific
}

// Const returns a number that is part of the executable, the same for all weights.
func Const(v float32) Values { return Values{Default: Value{v, true}} }

// Changeable returns a number that the host feeds, the same for all weights.
func Changeable(v float32) Values { return Values{Default: Value{v, false}} }

// With returns v with a value of its own for weights that match a pattern, before those that v has for others.
func (v Values) With(pattern string, value Value) Values {
	v.Specific = append([]Specific{{pattern, value}}, v.Specific...)
	return v
}

// Of returns the value for a weight, and whether it is one that other weights do not have.
func (v Values) Of(weight string) (value Value, specific bool) {
	for _, s := range v.Specific {
		if ok, _ := path.Match(s.Pattern, weight); ok {
			return s.Value, true
		}
	}
	return v.Default, false
}

// setting is one of an optimizer's numbers under its name.
type setting struct {
	name   string
	values Values
	ok     func(v float32) bool // nil if all finite numbers do
	want   string
}

// check reports what is wrong with a setting.
func (s *setting) check() error {
	for i := -1; i < len(s.values.Specific); i++ {
		v, what := s.values.Default.V, s.name
		if i >= 0 {
			p := s.values.Specific[i].Pattern
			if _, err := path.Match(p, ""); err != nil {
				return fmt.Errorf("%s: pattern %q is malformed: write weights' names with *, ? and [a-z]", s.name, p)
			}
			v, what = s.values.Specific[i].Value.V, fmt.Sprintf("%s of weights %q", s.name, p)
		}
		if v-v != 0 || s.ok != nil && !s.ok(v) { // infinite or no number
			want := s.want
			if want == "" {
				want = "a finite number"
			}
			return fmt.Errorf("%s is %g, want %s", what, v, want)
		}
	}
	return nil
}

// compound is a number that a step needs, made of some of the optimizer's.
type compound struct {
	value    float32
	constant bool
	specific bool
}

// mix collects what a compound number is made of.
type mix struct {
	weight string
	compound
}

func (m *mix) of(v Values) float32 {
	x, specific := v.Of(m.weight)
	m.constant = m.constant && x.Const
	m.specific = m.specific || specific
	return x.V
}
