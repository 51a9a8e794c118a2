package onnx

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// UnsupportedError lists everything in a model that this package does not
// support.
type UnsupportedError struct{ Obstacles []Obstacle }

// Obstacle is one thing that is not supported, with the places that need it.
type Obstacle struct {
	What  string   // such as "operator GridSample of operator set 16"
	Hint  string   // what to do about it; may be empty
	Nodes []string // the first few places
	Count int      // all places
}

// Error lists the obstacles, one a line, with hints what to do.
func (e *UnsupportedError) Error() string {
	var b strings.Builder
	b.WriteString("the model needs what is not supported:")
	hinted := make(map[string]bool)
	for i, o := range e.Obstacles {
		if i == 100 {
			fmt.Fprintf(&b, "\n  and %d more", len(e.Obstacles)-i)
			break
		}
		fmt.Fprintf(&b, "\n  %s: %s", o.What, strings.Join(o.Nodes, ", "))
		if more := o.Count - len(o.Nodes); more > 0 {
			fmt.Fprintf(&b, " and %d more", more)
		}
		if o.Hint != "" && !hinted[o.Hint] {
			hinted[o.Hint] = true
			fmt.Fprintf(&b, "\n    hint: %s", o.Hint)
		}
	}
	return b.String()
}

// Need is a value that has to be known to lower a node and is not.
type Need struct {
	Node    string   // the node, for messages
	Operand string   // which of its operands
	Inputs  []string // the graph inputs that the value depends on; never empty
	// Data: the elements of the operand, which requests bring, decide the size
	// of the node's result, as those of NonMaxSuppression do. No executable has that.
	Data bool
}

// NeedValueError lists the values that must be known at compile time, such as
// the shape that a Reshape makes, but depend on what the host feeds.
type NeedValueError struct{ Needs []Need }

// Inputs returns the graph inputs that some needed value depends on, in the
// order in which they were met.
func (e *NeedValueError) Inputs() []string {
	var all []string
	for _, n := range e.Needs {
		for _, in := range n.Inputs {
			if !slices.Contains(all, in) {
				all = append(all, in)
			}
		}
	}
	return all
}

// Error lists the nodes and the inputs to bind.
func (e *NeedValueError) Error() string {
	var b strings.Builder
	b.WriteString("values that shapes depend on must be known when the model is compiled:")
	for i, n := range e.Needs {
		if i == 20 {
			fmt.Fprintf(&b, "\n  and %d more", len(e.Needs)-i)
			break
		}
		if n.Data {
			fmt.Fprintf(&b, "\n  %s: the size of its result depends on the elements of operand %s, which come from input %s", n.Node, n.Operand, quoted(n.Inputs))
			continue
		}
		fmt.Fprintf(&b, "\n  %s: operand %s depends on input %s", n.Node, n.Operand, quoted(n.Inputs))
	}
	if slices.ContainsFunc(e.Needs, func(n Need) bool { return n.Data }) {
		b.WriteString("\nhint: " + hintData)
	}
	bind := &NeedValueError{slices.DeleteFunc(slices.Clone(e.Needs), func(n Need) bool { return n.Data })}
	if len(bind.Needs) > 0 {
		fmt.Fprintf(&b, "\nhint: bind a value to input %s", quoted(bind.Inputs()))
	}
	return b.String()
}

func quoted(names []string) string {
	q := make([]string, len(names))
	for i, n := range names {
		q[i] = fmt.Sprintf("%q", n)
	}
	return list(q)
}

// obstacle is an error of one node that asks for something unsupported.
type obstacle struct{ reason, node, hint string }

// Error returns the reason.
func (o *obstacle) Error() string { return o.reason + " is not supported" }

// need is the error of one node that lacks a value.
type need struct {
	operand string
	inputs  []string
	data    bool // see [Need]
}

// Error names the operand.
func (n *need) Error() string {
	if n.data {
		return fmt.Sprintf("the size of its result depends on the elements of operand %s, which come from input %s", n.operand, quoted(n.inputs))
	}
	return fmt.Sprintf("operand %s must be known, but depends on input %s", n.operand, quoted(n.inputs))
}

// obstruct records an obstacle.
func (l *lowerer) obstruct(o *obstacle) {
	e := l.byText[o.reason]
	if e == nil {
		e = &Obstacle{What: o.reason, Hint: o.hint}
		l.byText[o.reason] = e
		l.obstacles = append(l.obstacles, e)
		l.note(func() { delete(l.byText, o.reason) })
	}
	before := *e
	l.note(func() { *e = before })
	l.problems++
	if e.Count++; len(e.Nodes) < 3 {
		e.Nodes = append(e.Nodes, o.node)
	}
}

// fail records something wrong with the model.
func (l *lowerer) fail(err error) {
	l.problems++
	if len(l.errs) < maxErrs {
		l.errs = append(l.errs, err)
	}
}

// report records the error of a node.
func (l *lowerer) report(where string, err error) {
	var o *obstacle
	var n *need
	switch {
	case errors.As(err, &o):
		l.obstruct(&obstacle{o.reason, where, o.hint})
	case errors.As(err, &n):
		l.problems++
		if len(l.needs) < maxNeeds {
			l.needs = append(l.needs, Need{where, n.operand, n.inputs, n.data})
		}
	default:
		l.fail(fmt.Errorf("%s: %w", where, err))
	}
}

func (l *lowerer) unsupportedOrNil() error {
	if len(l.obstacles) == 0 {
		return nil
	}
	e := &UnsupportedError{}
	for _, o := range l.obstacles {
		e.Obstacles = append(e.Obstacles, *o)
	}
	return e
}

// result returns what was in the way of lowering, the things first that the
// caller can't mend.
func (l *lowerer) result() error {
	err := errors.Join(append(l.errs, l.unsupportedOrNil())...)
	if err == nil && len(l.needs) > 0 {
		return &NeedValueError{l.needs}
	}
	return err
}
