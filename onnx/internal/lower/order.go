package lower

import (
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/onnx"
)

// scope maps the names that a graph defines to values; a subgraph sees those
// of the graphs around it.
type scope struct {
	parent *scope
	values map[string]*Value
	nodes  []*onnx.Node // that define more of them, needed or not
}

func newScope(parent *scope) *scope { return &scope{parent: parent, values: make(map[string]*Value)} }

// lookup returns the value of a name, nil if there is none.
func (s *scope) lookup(name string) *Value {
	for ; s != nil; s = s.parent {
		if v := s.values[name]; v != nil {
			return v
		}
	}
	return nil
}

// step is one node to lower.
type step struct {
	node  *onnx.Node
	index int // place in the list that it comes from
}

// schedule returns the nodes on which outputs depend, so that every node
// comes after those it depends on, and otherwise in the order given. It
// checks that every name is defined once and before anything needs it.
func schedule(nodes []*onnx.Node, outputs []string, sc *scope) ([]step, error) {
	sc.nodes = nodes
	producer := make(map[string]int, len(nodes))
	for i, n := range nodes {
		for _, name := range n.Outputs {
			if name == "" {
				continue
			}
			if j, ok := producer[name]; ok && j == i {
				return nil, fmt.Errorf("%s defines %q twice; every name is to be defined once", label(n, i), name)
			} else if ok {
				return nil, fmt.Errorf("%s and %s both define %q; every name is to be defined once", label(nodes[j], j), label(n, i), name)
			}
			if sc.values[name] != nil {
				return nil, fmt.Errorf("%s defines %q, which is a graph input or initializer already", label(n, i), name)
			}
			producer[name] = i
		}
	}
	// Depth first from the nodes that are needed, without recursion.
	const unseen, open, done = 0, 1, 2
	type frame struct {
		node int
		uses []string
	}
	state := make([]uint8, len(nodes))
	var order []step
	var stack []frame
	push := func(i int) error {
		uses, err := nodes[i].Reads()
		if err != nil {
			return fmt.Errorf("%s: %w", label(nodes[i], i), err)
		}
		state[i] = open
		stack = append(stack, frame{i, uses})
		return nil
	}
	visit := func(root int) error {
		if err := push(root); err != nil {
			return err
		}
		for len(stack) > 0 {
			f := &stack[len(stack)-1]
			if len(f.uses) == 0 {
				state[f.node] = done
				order = append(order, step{nodes[f.node], f.node})
				stack = stack[:len(stack)-1]
				continue
			}
			name := f.uses[0]
			f.uses = f.uses[1:]
			i, ok := producer[name]
			switch {
			case !ok:
				if sc.lookup(name) == nil {
					return fmt.Errorf("%s uses %q, which nothing defines", label(nodes[f.node], f.node), name)
				}
			case state[i] == open:
				return fmt.Errorf("%s depends on its own result %q: the graph has a cycle", label(nodes[i], i), name)
			case state[i] == unseen:
				if err := push(i); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for _, name := range outputs {
		i, ok := producer[name]
		if !ok {
			if name == "" || sc.lookup(name) == nil {
				return nil, fmt.Errorf("graph output %q is not defined by any node, input or initializer", name)
			}
			continue
		}
		if state[i] == unseen {
			if err := visit(i); err != nil {
				return nil, err
			}
		}
	}
	// Exporters write nodes in order, so that the file's order is one that
	// works nearly always; it makes the executable easier to read beside it.
	if byFile := slices.Clone(order); inOrder(byFile, producer) {
		return byFile, nil
	}
	return order, nil
}

// inOrder sorts steps by index and reports whether that is a valid order.
func inOrder(steps []step, producer map[string]int) bool {
	slices.SortFunc(steps, func(a, b step) int { return a.index - b.index })
	for _, s := range steps {
		names, _ := s.node.Reads() // checked before
		for _, name := range names {
			if i, ok := producer[name]; ok && i >= s.index {
				return false
			}
		}
	}
	return true
}

// label names a node for messages.
func label(n *onnx.Node, index int) string {
	op := n.OpType
	if d := canonicalDomain(n.Domain); d != "" {
		op = d + "." + op
	}
	op = printable.Line(op)
	if n.Name == "" {
		return fmt.Sprintf("node %d (%s)", index, op)
	}
	return fmt.Sprintf("node %q (%s, number %d)", n.Name, op, index)
}
