package opinion

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/reduce"
	"github.com/popefgen/popefgen/onnx/verify"
)

// Question is a model and what is known of its failure.
type Question struct {
	Start        *reduce.Case
	Room, Values *Room // for candidates, and for looking values up

	Ours   *Program // which is judged
	Plain  *Program // the same in the plainest way
	Second *Program // which says what is right

	Stored    Stored         // outputs that are right; nil if there are none
	Pattern   *regexp.Regexp // what the program says if it fails; nil if that is not known
	Check     string         // a command that decides; "" for none
	Timeout   time.Duration  // of a run of the command
	Tolerance verify.Tolerance

	Say func(format string, args ...any) // talk
}

// Answer says what a failure is, and how to look for the smallest.
type Answer struct {
	Start     *reduce.Case
	Predicate reduce.Predicate
	Source    reduce.Source
	Reference Reference       // what the result should give
	Keep      map[string]bool // see [reduce.Options.Outputs]
}

// NothingError says that there is nothing to reduce.
type NothingError struct{ Why string }

// Error returns why.
func (e *NothingError) Error() string { return e.Why }

func after(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}

// Choose runs the model and decides what its failure is. The error is a
// [*NothingError] if it does not fail.
func (q *Question) Choose(ctx context.Context) (*Answer, error) {
	a := &Answer{Start: q.Start, Source: &Values{q.Values, q.Plain}, Reference: q.Plain}
	if q.Check != "" {
		k := &Check{Room: q.Room, Command: q.Check, Timeout: q.Timeout}
		a.Predicate = k
		ok, err := k.Interesting(ctx, q.Start)
		if err == nil && !ok {
			err = &NothingError{"the command does not end with 0 for the whole model: there is nothing to reduce" + after(k.Last)}
		}
		return a, err
	}
	fails := &Fails{Room: q.Room, Program: q.Ours, Pattern: q.Pattern}
	said, failed, err := fails.Said(ctx, q.Start)
	if err != nil {
		return nil, err
	}
	if q.Pattern != nil {
		if !failed || !q.Pattern.MatchString(said) {
			return nil, &NothingError{fmt.Sprintf("run says nothing that matches %q of the whole model: there is nothing to reduce%s", q.Pattern, after(said))}
		}
		a.Predicate = fails
		return a, nil
	}
	if failed {
		fails.Sign = SignOf(said)
		q.Say("run fails: %s\nlooking for the smallest model that fails with: %s", said, strings.TrimSpace(fails.Sign))
		a.Predicate = fails
		return a, nil
	}
	d := &Differ{Room: q.Room, Program: q.Ours, Reference: q.Second, Tolerance: q.Tolerance}
	a.Predicate = d
	if q.Stored != nil {
		err = q.chooseStored(ctx, a, d)
	} else {
		a.Reference, a.Source = q.Second, &Values{q.Values, q.Second}
		err = q.differs(ctx, d, a.Start, q.Second.Name)
	}
	return a, err
}

// chooseStored decides what a failure is where outputs are stored. Other models
// than this one have other outputs, so where the second opinion is what is stored,
// it goes on; else the graph can be cut at stored values only.
func (q *Question) chooseStored(ctx context.Context, a *Answer, d *Differ) error {
	names := map[string]bool{}
	for name := range q.Stored {
		names[name] = true
	}
	a.Start = exposed(q.Start, names)
	d.Reference = q.Stored
	if err := q.differs(ctx, d, a.Start, "what is stored"); err != nil {
		return err
	}
	other := *d
	other.Program = q.Second
	agreed, err := other.Compare(ctx, a.Start)
	var run *RunError
	switch {
	case err != nil && !errors.As(err, &run):
		return err
	case err == nil && !slices.ContainsFunc(agreed, Difference.bad):
		q.Say("%s agrees with what is stored, and says what is right from here on", q.Second.Name)
		d.Reference, a.Reference, a.Source = q.Second, q.Second, &Values{q.Values, q.Second}
		return nil
	}
	q.Say("%s differs from what is stored, too: the graph is cut where values are stored, and nowhere else (--expect NAME=FILE gives more)", q.Second.Name)
	a.Keep, a.Reference, a.Source = names, q.Stored, q.Stored
	return nil
}

// differs says how far outputs are off; the error is a [*NothingError] if none is
// out of tolerance.
func (q *Question) differs(ctx context.Context, d *Differ, c *reduce.Case, from string) error {
	all, err := d.Compare(ctx, c)
	if err != nil {
		return err
	}
	why := fmt.Sprintf("nothing differs from %s, within %g + %g·|want|:", from, q.Tolerance.Abs, q.Tolerance.Rel)
	for _, d := range all {
		if d.bad() {
			q.Say("output %q: %s", d.Output.Name, d.Difference)
		}
		why += fmt.Sprintf("\n  output %q: %s; %d elements", d.Output.Name, d.Difference, d.Elements)
	}
	if slices.ContainsFunc(all, Difference.bad) {
		return nil
	}
	return &NothingError{why}
}

// exposed returns the case with those of the named values as its outputs that it
// computes.
func exposed(c *reduce.Case, names map[string]bool) *reduce.Case {
	m, g := *c.Model, *c.Model.Graph
	g.Outputs = nil
	for _, v := range c.Model.Graph.Outputs {
		if names[v.Name] {
			g.Outputs = append(g.Outputs, v)
		}
	}
	for _, n := range g.Nodes {
		for _, name := range n.Outputs {
			if names[name] && !slices.ContainsFunc(g.Outputs, func(v onnx.ValueInfo) bool { return v.Name == name }) {
				g.Outputs = append(g.Outputs, onnx.ValueInfo{Name: name})
			}
		}
	}
	m.Graph = &g
	return &reduce.Case{Model: &m, Inputs: c.Inputs}
}
