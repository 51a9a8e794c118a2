package onnx

import (
	"fmt"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/internal/printable"
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
	Inputs  []string // the graph inputs that the value depends on
	// Max is the name by which [Options.Max] can say how much there may be of a result whose size
	// the value decides; "" where only the value itself helps.
	Max string
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
		if n.Max != "" {
			fmt.Fprintf(&b, "\n  %s: data decides the size of its result, and nothing says how much that may be", n.Node)
			continue
		}
		fmt.Fprintf(&b, "\n  %s: operand %s depends on input %s", n.Node, n.Operand, printable.Quoted(n.Inputs))
	}
	var most []string
	bind := &NeedValueError{}
	for _, n := range e.Needs {
		if n.Max == "" {
			bind.Needs = append(bind.Needs, n)
		} else if option := "--max " + printable.Line(n.Max) + "=N"; !slices.Contains(most, option) && len(most) < 20 {
			most = append(most, option)
		}
	}
	if most != nil {
		fmt.Fprintf(&b, "\nhint: give the most that there may be of each: %s", strings.Join(most, " "))
		if ins := e.Inputs(); len(bind.Needs) == 0 && len(ins) > 0 {
			fmt.Fprintf(&b, "; or bind a value to input %s, for one size", printable.Quoted(ins))
		}
	}
	if len(bind.Needs) > 0 {
		fmt.Fprintf(&b, "\nhint: bind a value to input %s", printable.Quoted(bind.Inputs()))
	}
	return b.String()
}
