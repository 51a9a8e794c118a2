package lower

import (
	"errors"
	"fmt"

	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/onnx"
)

// obstacle is an error of one node that asks for something unsupported.
type obstacle struct{ reason, node, hint string }

// Error returns the reason.
func (o *obstacle) Error() string { return o.reason + " is not supported" }

// need is the error of one node that lacks a value.
type need struct {
	operand string
	inputs  []string
	most    string // see [onnx.Need.Max]
}

// Error names the operand.
func (n *need) Error() string {
	if n.most != "" {
		return fmt.Sprintf("data decides the size of its result, and nothing says how much that may be: give the most, with --max %s=N", printable.Line(n.most))
	}
	return fmt.Sprintf("operand %s must be known, but depends on input %s", n.operand, printable.Quoted(n.inputs))
}

// obstruct records an obstacle.
func (l *lowerer) obstruct(o *obstacle) {
	e := l.byText[o.reason]
	if e == nil {
		e = &onnx.Obstacle{What: o.reason, Hint: o.hint}
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
			l.needs = append(l.needs, onnx.Need{Node: where, Operand: n.operand, Inputs: n.inputs, Max: n.most})
		}
	default:
		l.fail(fmt.Errorf("%s: %w", where, err))
	}
}

func (l *lowerer) unsupportedOrNil() error {
	if len(l.obstacles) == 0 {
		return nil
	}
	e := &onnx.UnsupportedError{}
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
		return &onnx.NeedValueError{Needs: l.needs}
	}
	return err
}
