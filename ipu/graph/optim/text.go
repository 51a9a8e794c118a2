package optim

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/popefgen/popefgen/internal/nearest"
	"github.com/popefgen/popefgen/ipu/graph"
)

// ErrText marks every error by which [Parse] refuses a text.
var ErrText = errors.New("it names no optimizer")

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrText, fmt.Errorf(format, args...))
}

// kinds are the optimizers by the names that people write, in the order in which they are listed.
var kinds = []struct {
	name string
	make func() Optimizer
}{
	{"sgd", func() Optimizer { return NewSGD() }},
	{"adam", func() Optimizer { return adamOf(graph.UpdateAdam, true) }},
	{"adamw", func() Optimizer { return adamOf(graph.UpdateAdam, false) }},
	{"adamax", func() Optimizer { return adamOf(graph.UpdateAdaMax, false) }},
	{"lamb", func() Optimizer { return adamOf(graph.UpdateLamb, false) }},
	{"adagrad", func() Optimizer { return NewAdaptive(graph.UpdateAdaGrad) }},
	{"rmsprop", func() Optimizer { return NewAdaptive(graph.UpdateRMSProp) }},
	{"centred-rmsprop", func() Optimizer { return NewAdaptive(graph.UpdateCentredRMSProp) }},
	{"adadelta", func() Optimizer { return NewAdaptive(graph.UpdateAdaDelta) }},
}

// adamOf returns the defaults of [NewAdam] with a learning rate that such optimizers are used with.
func adamOf(rule graph.UpdateRule, l2 bool) Optimizer {
	o := NewAdam()
	o.Rule, o.L2, o.LearningRate = rule, l2, Const(0.001)
	return o
}

// Names returns the names of optimizers that [Parse] knows.
func Names() []string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.name
	}
	return names
}

// Setting is one of an optimizer's numbers.
type Setting struct {
	Name string // such as "learning-rate"
	*Values
}

// Settings returns the numbers of an optimizer that its formula reads, loss scaling among them.
func Settings(o Optimizer) []Setting {
	_, all, _ := opened(o)
	return all
}

// flag is a setting of an optimizer that is no number.
type flag struct {
	name string
	on   *bool
}

// opened returns a copy of o whose numbers and flags can be set; read gives the copy after that.
func opened(o Optimizer) (read func() Optimizer, all []Setting, flags []flag) {
	switch o := o.(type) {
	case SGD:
		all = []Setting{{"learning-rate", &o.LearningRate}, {"weight-decay", &o.WeightDecay}, {"momentum", &o.Momentum},
			{"dampening", &o.Dampening}, {"velocity-scaling", &o.VelocityScaling}, {"loss-scaling", &o.LossScaling}}
		return func() Optimizer { return o }, all, []flag{{"nesterov", &o.Nesterov}}
	case Adam:
		all = []Setting{{"learning-rate", &o.LearningRate}, {"weight-decay", &o.WeightDecay}, {"beta1", &o.Beta1}, {"beta2", &o.Beta2},
			{"eps", &o.Eps}, {"loss-scaling", &o.LossScaling}}
		flags = []flag{{"no-bias", &o.NoBias}}
		switch o.Rule {
		case graph.UpdateLamb:
			all = append(all, Setting{"max-weight-norm", &o.MaxWeightNorm})
			flags = append(flags, flag{"l2", &o.L2})
		case graph.UpdateAdaMax:
			flags = append(flags, flag{"l2", &o.L2})
		}
		return func() Optimizer { return o }, all, flags
	case Adaptive:
		all = []Setting{{"learning-rate", &o.LearningRate}, {"weight-decay", &o.WeightDecay}, {"eps", &o.Eps},
			{"momentum", &o.Momentum}, {"loss-scaling", &o.LossScaling}}
		flags = []flag{{"l2", &o.L2}}
		if o.Rule != graph.UpdateAdaGrad {
			all = append(all, Setting{"alpha", &o.Alpha})
		}
		if o.Rule != graph.UpdateAdaDelta {
			flags = append(flags, flag{"tensorflow", &o.TensorFlow})
		}
		return func() Optimizer { return o }, all, flags
	}
	return func() Optimizer { return o }, nil, nil
}

// Parse returns the optimizer that a text describes: a name, then settings with commas before them.
//
//	adam,learning-rate=~0.001,beta1=0.8,weight-decay=0.01,weight-decay@*.bias=0
//
// The names are those of [Names]: adam adds weight decay to the gradient, as PyTorch's Adam, and adamw to the step; the others add it to the
// step, or to the gradient with the word l2. Other words are nesterov (sgd), no-bias (those with two moments) and tensorflow ([Adaptive]).
// A number is constant unless it has ~ before it, and with @PATTERN it is that of weights whose names match alone, the first
// pattern that matches. lr stands for learning-rate. What is left out are PopART's defaults, but for the learning rate of adam, adamw, adamax and lamb, which is
// 0.001. Errors wrap [ErrText].
func Parse(text string) (Optimizer, error) {
	words := strings.Split(text, ",")
	name := strings.TrimSpace(words[0])
	for _, k := range kinds {
		if k.name != name {
			continue
		}
		read, all, flags := opened(k.make())
		given := map[string]bool{}
		for _, w := range words[1:] {
			if err := set(name, strings.TrimSpace(w), all, flags, given); err != nil {
				return nil, err
			}
		}
		o := read()
		if err := check(o); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrText, err)
		}
		return o, nil
	}
	return nil, refuse("optimizer %q: want one of %s%s", name, strings.Join(Names(), ", "), nearest.Like(name, Names()))
}

// set sets what one word of a text says.
func set(name, word string, all []Setting, flags []flag, given map[string]bool) error {
	what, number, numeric := word, "", false
	if at := strings.LastIndexByte(word, '='); at >= 0 {
		what, number, numeric = word[:at], word[at+1:], true
	}
	if given[what] {
		return refuse("optimizer %s: %q is given twice, want it once", name, what)
	}
	given[what] = true
	setting, pattern, specific := strings.Cut(what, "@")
	if setting == "lr" {
		setting = "learning-rate"
	}
	var names []string
	for _, f := range flags {
		if f.name == word {
			*f.on = true
			return nil
		}
		names = append(names, f.name)
	}
	for _, s := range all {
		names = append(names, s.Name)
		if s.Name != setting {
			continue
		}
		if !numeric {
			return refuse("optimizer %s: %q: the number is missing, as in %s=0.01, or %s=~0.01 if it is to be changeable", name, word, what, what)
		}
		v, err := parseValue(number)
		if err != nil {
			return refuse("optimizer %s: %s: %w", name, what, err)
		}
		if specific {
			s.Specific = append(s.Specific, Specific{pattern, v})
		} else {
			s.Default = v
		}
		return nil
	}
	return refuse("optimizer %s has no %q%s", name, setting, nearest.DidYouMean(setting, names))
}

func parseValue(text string) (Value, error) {
	number := strings.TrimPrefix(text, "~")
	v, err := strconv.ParseFloat(number, 32)
	if err != nil || v-v != 0 {
		return Value{}, fmt.Errorf("%q is no number, want one such as 0.01, or ~0.01 if it is to be changeable", text)
	}
	return Value{float32(v), number == text}, nil
}

// Text returns the text with all numbers of which [Parse] makes o.
func Text(o Optimizer) string {
	_, all, flags := opened(o)
	words := []string{nameOf(o)}
	for _, f := range flags {
		if *f.on {
			words = append(words, f.name)
		}
	}
	for _, s := range all {
		words = append(words, s.Name+"="+s.Default.text())
		for _, p := range s.Specific {
			words = append(words, s.Name+"@"+p.Pattern+"="+p.Value.text())
		}
	}
	return strings.Join(words, ",")
}

// text returns the number as [Parse] reads it.
func (v Value) text() string {
	number := strconv.FormatFloat(float64(v.V), 'g', -1, 32)
	if v.V == float32(math.Trunc(float64(v.V))) && math.Abs(float64(v.V)) < 1e6 {
		number = strconv.FormatFloat(float64(v.V), 'f', -1, 32)
	}
	if v.Const {
		return number
	}
	return "~" + number
}

// nameOf returns the name of an optimizer's kind.
func nameOf(o Optimizer) string {
	switch o := o.(type) {
	case Adam:
		switch {
		case o.Rule == graph.UpdateAdaMax, o.Rule == graph.UpdateLamb:
			return string(o.Rule)
		case o.L2:
			return "adam"
		}
		return "adamw"
	case Adaptive:
		if o.Rule == "" {
			return string(graph.UpdateRMSProp)
		}
		return strings.ReplaceAll(string(o.Rule), " ", "-")
	}
	return "sgd"
}
