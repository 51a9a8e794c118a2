// Package sizes reads what people write about sizes of a model: one size for each open dimension,
// or several, which make a family. It says what a family's sizes follow from, too.
package sizes

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/popefgen/popefgen/internal/nearest"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/popef/family"
)

// Options fix a model's open dimensions, as flags and project files say: to one size
// each, or to several, which make a family.
type Options struct {
	Batch List                    // of open first dimensions
	Dims  map[string]List         // by name or place
	Sizes []map[string]int64      // members one by one
	Pads  map[string][]family.Pad // by dimension
}

// List is the sizes of a dimension: numbers, or what makes them of another dimension's.
type List struct {
	Sizes []int64
	As    string // the other dimension's name, or a rule such as past+1
	Text  string // as it was given
}

// rangeForm is FROM..TO:*FACTOR or FROM..TO:+STEP.
var rangeForm = regexp.MustCompile(`^([0-9]+)\.\.([0-9]+)(?::([*+])([0-9]+))?$`)

// ruleForm is what makes a size of another dimension's, without a divisor: 2*past+1, past-1.
var ruleForm = regexp.MustCompile(`^(?:([0-9]+) *\* *)?([^-+0-9 ][^*]*?)(?: *\* *([0-9]+))?(?: *([-+]) *([0-9]+))?$`)

// dividedForm is such a rule, or a name, divided: (past+1)/2, past/2.
var dividedForm = regexp.MustCompile(`^(?:\((.+)\)|([^-+()]+?)) */ *([0-9]+)$`)

// parseRule reads what makes a size of another dimension's: its name, times, plus and divided by numbers.
func parseRule(text string) (r compile.Rule, ok bool) {
	div := "1"
	if m := dividedForm.FindStringSubmatch(text); m != nil {
		text, div = strings.TrimSpace(m[1]+m[2]), m[3]
	}
	m := ruleForm.FindStringSubmatch(text)
	if m == nil || m[1] != "" && m[3] != "" {
		return r, false
	}
	r.Of, ok = m[2], true
	for _, v := range []struct {
		to   *int64
		text string
		bits int
	}{{&r.Mul, cmp.Or(m[1]+m[3], "1"), 21}, {&r.Add, m[4] + cmp.Or(m[5], "0"), 41}, {&r.Div, div, 21}} {
		n, err := strconv.ParseInt(v.text, 10, v.bits)
		*v.to, ok = n, ok && err == nil
	}
	return r, ok && r.Mul > 0 && r.Div > 0
}

// timesForm begins a rule as no size does.
var timesForm = regexp.MustCompile(`^[0-9]+ *\* *[^0-9]`)

// Parse reads a list of sizes and ranges of them, as in 1,2,8..64:*2. What begins like
// neither is the name of another dimension, or a rule of one.
func Parse(text string) (List, error) {
	l := List{Text: text}
	if text != "" && !strings.ContainsAny(text[:1], "0123456789-+") || timesForm.MatchString(text) {
		l.As = text
		return l, nil
	}
	for word := range strings.SplitSeq(text, ",") {
		word = strings.TrimSpace(word)
		if n, err := strconv.ParseInt(word, 10, 64); err == nil {
			if n < 0 {
				return l, fmt.Errorf("found %d, want a size", n)
			}
			l.Sizes = append(l.Sizes, n)
			continue
		}
		r, err := parseRange(word)
		if err != nil {
			return l, err
		}
		l.Sizes = append(l.Sizes, r...)
		if len(l.Sizes) > compile.MaxMembers {
			return l, tooMany(len(l.Sizes))
		}
	}
	for i, n := range l.Sizes {
		if slices.Contains(l.Sizes[:i], n) {
			return l, fmt.Errorf("%d is there twice, want each size once", n)
		}
	}
	return l, nil
}

// errSizes says how sizes are written.
var errSizes = errors.New("want sizes such as 16, 16,32,64 or 16..128:*2 (16, 32, 64 and 128; :+16 adds 16 each time)")

func tooMany(n int) error {
	return fmt.Errorf("these are %d sizes or more, want at most %d: a range with a larger factor or step", n, compile.MaxMembers)
}

// parseRange reads FROM..TO:*FACTOR or FROM..TO:+STEP.
func parseRange(word string) (all []int64, err error) {
	m := rangeForm.FindStringSubmatch(word)
	if m == nil {
		return nil, fmt.Errorf("found %q, %w", word, errSizes)
	}
	if m[3] == "" {
		return nil, fmt.Errorf("found %q, want it with a factor or a step: %s:*2 or %s:+1", word, word, word)
	}
	var v [3]int64 // from, to, by
	for i, text := range []string{m[1], m[2], m[4]} {
		if v[i], err = strconv.ParseInt(text, 10, 40); err != nil {
			return nil, fmt.Errorf("found %q, a number of which is too large", word)
		}
	}
	times := m[3] == "*"
	switch {
	case v[0] > v[1]:
		return nil, fmt.Errorf("found %q, which ends below its begin", word)
	case times && (v[2] < 2 || v[0] < 1):
		return nil, fmt.Errorf("found %q, want a factor from 2 on and a begin from 1 on", word)
	case !times && v[2] < 1:
		return nil, fmt.Errorf("found %q, want a step from 1 on", word)
	}
	for n := v[0]; n <= v[1]; {
		if all = append(all, n); len(all) > compile.MaxMembers {
			return nil, tooMany(len(all))
		}
		if times {
			n *= v[2]
		} else {
			n += v[2]
		}
	}
	return all, nil
}

// UnmarshalYAML implements the yaml package's InterfaceUnmarshaler: a number, a list of them, or
// text as on the command line. It keeps the text, for [Parse].
func (l *List) UnmarshalYAML(unmarshal func(any) error) error {
	var n int64
	large := (*yaml.OverflowError)(nil)
	if err := unmarshal(&n); err == nil || errors.As(err, &large) {
		l.Text = strconv.FormatInt(n, 10)
		return err
	}
	var list []int64
	if unmarshal(&list) == nil {
		words := make([]string, len(list))
		for i, n := range list {
			words[i] = strconv.FormatInt(n, 10)
		}
		l.Text = strings.Join(words, ",")
		return nil
	}
	return unmarshal(&l.Text)
}

// manySizes is a list of sizes, as people write it.
var manySizes = regexp.MustCompile(`^[^=,]+=[0-9]+(,[^=,]+=[0-9]+)+$`)

// ParseDims reads the values of --dim.
func ParseDims(texts []string) (map[string]List, error) {
	dims := map[string]List{}
	for _, text := range texts {
		if manySizes.MatchString(text) {
			return nil, fmt.Errorf("--dim %s: want one size; give each its own: --dim %s", text, strings.ReplaceAll(text, ",", " --dim "))
		}
		// Sizes have no "=", other than some names.
		at := max(strings.LastIndexByte(text, '='), 0)
		name := text[:at]
		if _, ok := dims[name]; ok {
			return nil, fmt.Errorf("--dim: %q is given twice, want it once", name)
		}
		l, err := Parse(strings.TrimPrefix(text[at:], "="))
		if name == "" || l.Text == "" {
			return nil, notDim(text)
		}
		if err != nil {
			return nil, fmt.Errorf("--dim %s: %w", text, err)
		}
		dims[name] = l
	}
	return dims, nil
}

func notDim(text string) error {
	return fmt.Errorf("--dim %s: want NAME=SIZE or INPUT[AXIS]=SIZE, one for each --dim", text)
}

// ParseBatch reads the value of --batch.
func ParseBatch(text string) (List, error) {
	l, err := Parse(text)
	if err == nil && (l.As != "" || len(l.Sizes) == 0) {
		err = fmt.Errorf("found %q, %w", text, errSizes)
	}
	if strings.HasPrefix(text, "-") || err == nil && slices.Contains(l.Sizes, 0) {
		err = errors.New("want at least 1")
	}
	if err != nil {
		return l, fmt.Errorf("--batch %s: %w", text, err)
	}
	return l, nil
}

// ParseTuples reads the values of --size, a member each.
func ParseTuples(texts []string) (all []map[string]int64, err error) {
	for _, text := range texts {
		tuple := map[string]int64{}
		for word := range strings.SplitSeq(text, ",") {
			at := max(strings.LastIndexByte(word, '='), 0)
			name := strings.TrimSpace(word[:at])
			n, err := strconv.ParseInt(strings.TrimPrefix(word[at:], "="), 10, 64)
			if name == "" || err != nil || n < 0 {
				return nil, fmt.Errorf("--size %s: found %q, want NAME=SIZE,NAME=SIZE and so on: all sizes of one member, such as batch=1,seq=16", text, word)
			}
			if _, ok := tuple[name]; ok {
				return nil, fmt.Errorf("--size %s: %q is given twice, want it once", text, name)
			}
			tuple[name] = n
		}
		all = append(all, tuple)
	}
	return all, nil
}

// ParsePads reads the values of --pad.
func ParsePads(texts []string) (map[string][]family.Pad, error) {
	pads := map[string][]family.Pad{}
	for _, text := range texts {
		dim, list, _ := strings.Cut(text, "=")
		if _, ok := pads[dim]; ok {
			return nil, fmt.Errorf("--pad: %q is given twice, want all its inputs in one --pad", dim)
		}
		for word := range strings.SplitSeq(list, ",") {
			// A name may have colons.
			at := strings.LastIndexByte(word, ':')
			if dim == "" || at < 1 || at == len(word)-1 {
				return nil, fmt.Errorf("--pad %s: want DIM=INPUT:VALUE,INPUT:VALUE and so on, with every input of that dimension", text)
			}
			pads[dim] = append(pads[dim], family.Pad{Input: word[:at], Value: word[at+1:]})
		}
	}
	if len(pads) == 0 {
		return nil, nil
	}
	return pads, nil
}

// Several reports whether the sizes make a family.
func (o *Options) Several() bool {
	many := len(o.Sizes) > 1 || len(o.Batch.Sizes) > 1
	for _, l := range o.Dims {
		many = many || len(l.Sizes) > 1
	}
	return many
}

// One returns an error if the sizes make a family: what wants one size says so.
func (o *Options) One(command string) error {
	if o.Several() || len(o.Pads) > 0 {
		return fmt.Errorf("%s takes a model of one size: give each dimension one, and no padding", command)
	}
	return nil
}

// batchName is what --size and references call the size of open first dimensions.
const batchName = "batch"

// Members returns the sizes of the members that the options make for m, every combination, and
// which dimensions follow from others.
func (o *Options) Members(m *onnx.Model) ([]compile.Sizes, map[string]compile.Rule, error) {
	all := []map[string]int64{{}}
	if len(o.Sizes) > 0 {
		all = o.Sizes
	}
	lists := map[string][]int64{}
	for name, l := range o.Dims {
		lists[name] = l.Sizes
	}
	// "batch" may be the name of a dimension of the model: --dim and --size mean that one then.
	own := slices.ContainsFunc(m.Graph.Inputs, func(in onnx.ValueInfo) bool {
		return slices.ContainsFunc(in.Dims, func(d onnx.Dim) bool { return d.Free() && d.Symbol == batchName })
	})
	for _, tuple := range o.Sizes {
		if len(tuple) != len(o.Sizes[0]) || !sameKeys(tuple, o.Sizes[0]) {
			return nil, nil, fmt.Errorf("--size: one gives %s and another %s, want the same dimensions in each", keys(o.Sizes[0]), keys(tuple))
		}
		for name := range tuple {
			if l, ok := o.Dims[name]; ok && l.As == "" {
				return nil, nil, fmt.Errorf("%q is given by --size and by --dim, want it once", name)
			}
			if name == batchName && o.Batch.Sizes != nil {
				return nil, nil, fmt.Errorf("the batch size is given by --size and by --batch, want it once")
			}
		}
	}
	count := len(all) * max(1, len(o.Batch.Sizes))
	for _, list := range lists {
		if count *= max(1, len(list)); count > compile.MaxMembers {
			return nil, nil, fmt.Errorf("every combination of these sizes makes more than %d members: name those that are needed one by one, --size NAME=SIZE,NAME=SIZE", compile.MaxMembers)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(lists)) {
		if o.Dims[name].As == "" {
			all = times(all, name, lists[name])
		}
	}
	const given = "\x00batch" // apart from a dimension of that name
	if o.Batch.Sizes != nil {
		all = times(all, given, o.Batch.Sizes)
	}
	sizes, rules := make([]compile.Sizes, len(all)), map[string]compile.Rule{}
	for i, dims := range all {
		s := compile.Sizes{Dims: map[string]int64{}}
		for name, n := range dims {
			switch {
			case name == given, name == batchName && !own && o.Sizes != nil:
				if s.Batch = n; n < 1 {
					return nil, nil, fmt.Errorf("a batch of %d: want at least 1", n)
				}
			default:
				s.Dims[name] = n
			}
		}
		for name, l := range o.Dims {
			if l.As == "" {
				continue
			}
			sizeOf := func(of string) (n int64, ok bool) {
				if l, tied := o.Dims[of]; tied && l.As != "" {
					return 0, false
				}
				if n, ok = dims[of]; of == batchName && !ok {
					n, ok = s.Batch, s.Batch > 0
				}
				return n, ok
			}
			rule := compile.Rule{Of: l.As, Mul: 1, Div: 1} // a name may look like a rule
			n, ok := sizeOf(l.As)
			if !ok {
				if r, is := parseRule(l.As); is {
					rule = r
					n, ok = sizeOf(r.Of)
				}
			}
			if !ok {
				return nil, nil, fmt.Errorf("%w, or NAME=OTHER or NAME=OTHER+1 of another that has sizes%s",
					notDim(name+"="+l.Text), nearest.DidYouMean(rule.Of, slices.Sorted(maps.Keys(lists))))
			}
			made := rule.At(n)
			if given, ok := dims[name]; ok && given != made {
				return nil, nil, fmt.Errorf("--size: one has %s=%d and %s=%d, and --dim %s=%s makes it %d", name, given, rule.Of, n, name, l.Text, made)
			}
			if made < 0 {
				return nil, nil, fmt.Errorf("--dim %s=%s: %s=%d makes it %d, want 0 or more", name, l.Text, rule.Of, n, made)
			}
			n, rules[name] = made, rule
			s.Dims[name] = n
		}
		sizes[i] = s
	}
	return sizes, rules, nil
}

// Set makes a model's compilation one of these sizes, or a family of them.
func (o *Options) Set(m *onnx.Model, to *compile.Options) error {
	members, rules, err := o.Members(m)
	if err != nil {
		return err
	}
	to.Pads = o.Pads
	if len(members) == 1 && len(o.Pads) == 0 {
		to.Batch, to.Dims = members[0].Batch, members[0].Dims
	} else {
		to.Members, to.Rules = members, rules
	}
	return nil
}

// times returns every combination of members with sizes of one more dimension.
func times(members []map[string]int64, name string, sizes []int64) (all []map[string]int64) {
	for _, m := range members {
		for _, n := range sizes {
			more := maps.Clone(m)
			more[name] = n
			all = append(all, more)
		}
	}
	return all
}

func sameKeys(a, b map[string]int64) bool {
	for name := range a {
		if _, ok := b[name]; !ok {
			return false
		}
	}
	return true
}

func keys(m map[string]int64) string { return strings.Join(slices.Sorted(maps.Keys(m)), ",") }
