package optim

import (
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// Optimizer is [SGD], [Adam] or [Adaptive].
type Optimizer interface {
	// Kind names the optimizer and its settings that are no numbers: what replacing one by another must leave.
	Kind() string
	// settings returns the numbers, loss scaling among them.
	settings() []setting
	// operator returns the step of a weight without its values.
	operator(weight string) *graph.Update
	// scalar returns the value of one of the operator's scalars. Gradients come multiplied by loss scaling and by divisor.
	scalar(name string, m *mix, divisor float32) float32
}

// LossScaling is the number that the loss's gradient starts with.
const LossScaling = "lossScaling"

// Scalar is a number of a step that the host feeds.
type Scalar struct {
	// Name is PopART's: a prefix, and "___default___FLOAT" for all weights or "___specific___" and the weight's name.
	Name  string
	Value float32
}

// check reports what is wrong with an optimizer.
func check(o Optimizer) error {
	for _, s := range o.settings() {
		if err := s.check(); err != nil {
			return fmt.Errorf("optimizer %s: %w", o.Kind(), err)
		}
	}
	return nil
}

// compoundOf computes a scalar of a weight's step.
func compoundOf(o Optimizer, weight, name string, divisor float32) compound {
	m := mix{weight, compound{constant: true}}
	m.value = o.scalar(name, &m, divisor)
	return m.compound
}

// scalarName returns the name of the tensor of a scalar.
func (c compound) scalarName(prefix, weight string) string {
	if c.specific {
		return prefix + "___specific___" + weight
	}
	return prefix + "___default___FLOAT"
}

// Scalars returns the numbers of an optimizer's steps that the host feeds, sorted by name, for weights of these names. divisor is
// [Step.Divisor]. They change when the optimizer's numbers do; [Replaces] says whether another optimizer's may take their place.
func Scalars(o Optimizer, weights []string, divisor int64) ([]Scalar, error) {
	if err := check(o); err != nil {
		return nil, err
	}
	values := map[string]float32{}
	for _, w := range weights {
		for _, name := range append(o.operator(w).Scalars(), LossScaling) {
			c := compoundOf(o, w, name, float32(max(1, divisor)))
			if c.value-c.value != 0 {
				return nil, fmt.Errorf("optimizer %s: %s of weight %q is %g: its dampening must not be 1, nor its velocity or loss scaling 0", o.Kind(), name, w, c.value)
			}
			if !c.constant {
				values[c.scalarName(name, w)] = c.value
			}
		}
	}
	var all []Scalar
	for name, v := range values {
		all = append(all, Scalar{name, v})
	}
	slices.SortFunc(all, func(a, b Scalar) int { return compare(a.Name, b.Name) })
	return all, nil
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// Replaces returns an error unless the executable that trains with old can go on with o for weights of these names:
// kinds, which values are constant, and constant values have to agree.
func Replaces(o, old Optimizer, weights []string) error {
	if err := check(o); err != nil {
		return err
	}
	if o.Kind() != old.Kind() {
		return fmt.Errorf("not a valid replacement: the optimizer is %s, want %s, with which the executable was made", o.Kind(), old.Kind())
	}
	were := old.settings()
	for i, s := range o.settings() {
		for _, w := range weights {
			is, specific := s.values.Of(w)
			was, wasSpecific := were[i].values.Of(w)
			switch {
			case is.Const != was.Const:
				return fmt.Errorf("not a valid replacement: %s of weight %q is %s, want %s, as when the executable was made", s.name, w, kindOf(is), kindOf(was))
			case is.Const && is.V != was.V:
				return fmt.Errorf("not a valid replacement: %s of weight %q is %g, but it is a constant of the executable, %g: make it changeable when the executable is made", s.name, w, is.V, was.V)
			case specific != wasSpecific && !is.Const:
				return fmt.Errorf("not a valid replacement: whether weight %q has a %s of its own is another than when the executable was made", w, s.name)
			}
		}
	}
	return nil
}

func kindOf(v Value) string {
	if v.Const {
		return "constant"
	}
	return "changeable"
}

func notNegative(v float32) bool { return v >= 0 }
func positive(v float32) bool    { return v > 0 }
func part(v float32) bool        { return v >= 0 && v < 1 }
