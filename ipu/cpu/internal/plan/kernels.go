package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu/cpu/internal/bind"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/workers"
	"github.com/popefgen/popefgen/ipu/graph"
)

// bindAll binds the kernels of all programs: which of them want packed operands
// decides how weights are kept, and that the plans of programs. As many goroutines
// bind as the plan is for. Where one node can't be bound, they are bound again one by one,
// so that it is always the same of which the error is.
func (c *compiler) bindAll() error {
	nodes, ends := c.reached()
	if len(nodes) > maxSteps {
		return c.bindInOrder(nodes, ends) // more than a plan may have, as it will say
	}
	kernels, results := make([]tensor.Kernel, len(nodes)), make([]int, len(nodes))
	var failed atomic.Bool
	const chunk = 16
	workers.Each(c.opts.Threads, (len(nodes)+chunk-1)/chunk, func(i int) {
		for k := i * chunk; k < min(len(nodes), (i+1)*chunk); k++ {
			if failed.Load() || c.ctx.Err() != nil {
				failed.Store(true)
				return
			}
			var err error
			key := nodes[k]
			node, made := &c.exe.Graphs[key.Graph].Nodes[key.Node], c.made.Of(key.Graph, key.Node)
			if kernels[k], results[k], err = bind.Node(c.exe, node, made, c.tables); err != nil {
				failed.Store(true)
			}
		}
	})
	if failed.Load() {
		c.tables.Release()
		return c.bindInOrder(nodes, ends)
	}
	c.kernels, c.results, c.nodes = kernels, results, nodes
	for k, key := range nodes {
		c.bound[key] = k
	}
	return nil
}

// reached returns the nodes that have kernels in the graphs that programs run, each once, and
// how many there are up to the end of each program. Those beyond one more than a plan
// may have are left out.
func (c *compiler) reached() (nodes []NodeKey, ends []int) {
	seen := make([]bool, len(c.exe.Graphs))
	var visit func(g graph.GraphID)
	visit = func(g graph.GraphID) {
		if seen[g] {
			return
		}
		seen[g] = true
		for n := range c.exe.Graphs[g].Nodes {
			node := &c.exe.Graphs[g].Nodes[n]
			subs := graph.Subgraphs(node.Op)
			for _, sub := range subs {
				visit(sub)
			}
			if _, ok := node.Op.(*graph.Reshape); ok || len(subs) > 0 || unwanted(node) {
				continue
			}
			if len(nodes) > maxSteps {
				return
			}
			nodes = append(nodes, NodeKey{g, n})
		}
	}
	for i := range c.exe.Programs {
		graph.Walk(c.exe.Programs[i].Steps, func(s *graph.Step) {
			if s.Kind == graph.Call {
				visit(s.Graph)
			}
		})
		ends = append(ends, len(nodes))
	}
	return nodes, ends
}

// bindInOrder binds the kernels of nodes, of which each program has those up to its end.
func (c *compiler) bindInOrder(nodes []NodeKey, ends []int) error {
	c.made = nil // some of them may be others' already
	at := 0
	for i, end := range ends {
		for ; at < end; at++ {
			if _, err := c.kernel(nodes[at].Graph, nodes[at].Node); err != nil {
				p := &c.exe.Programs[i]
				err = fmt.Errorf("plan program %d %q: %w", p.Index, p.Name, err)
				if of := c.taken(); of != "" && errors.Is(err, budget.ErrExceeded) {
					err = fmt.Errorf("%w; %s, or compile it with fewer sizes", err, of)
				}
				return err
			}
		}
		c.tablesOf = append(c.tablesOf, c.tables.Used())
	}
	return nil
}

// kernel returns the index of a node's kernel, which it binds at first.
func (c *compiler) kernel(g graph.GraphID, n int) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	key := NodeKey{g, n}
	if k, ok := c.bound[key]; ok {
		return k, nil
	}
	node := &c.exe.Graphs[g].Nodes[n]
	k, results, err := bind.Node(c.exe, node, c.made.Of(g, n), c.tables)
	if err != nil {
		return 0, fmt.Errorf("node %d %q of graph %q: %w", c.from.Of(g, n), node.Name, c.exe.Graphs[g].Name, err)
	}
	i := len(c.kernels)
	c.kernels, c.results = append(c.kernels, k), append(c.results, results)
	c.nodes, c.bound[key] = append(c.nodes, key), i
	return i, nil
}

// taken says, where several programs have been bound, what their kernels have taken of the
// budget; "" for fewer.
func (c *compiler) taken() string {
	const named = 4
	var parts []string
	last, more := int64(0), 0
	for i, n := range c.tablesOf {
		if used := n - last; used > 0 && len(parts) < named {
			parts = append(parts, fmt.Sprintf("program %d %q %s", c.exe.Programs[i].Index, c.exe.Programs[i].Name, budget.Text(used)))
		} else if used > 0 {
			more++
		}
		last = n
	}
	if len(parts) == 0 {
		return ""
	}
	text := strings.Join(parts, ", ")
	if more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return "for the tables of kernels " + text + " have taken " + budget.Text(last) + " before"
}

// unwanted reports whether a node need not run: it has no effect, and nobody wants
// its results.
func unwanted(n *graph.Node) bool {
	return !graph.HasEffect(n.Op) && !slices.ContainsFunc(n.Outputs, func(t graph.TensorID) bool { return t != graph.None })
}

// programs plans all programs, by as many goroutines as the plan is for: none depends on
// another. Where one of them can't be planned, they are planned again one by one, so that
// it is always the same of which the error is.
func (c *compiler) programs() error {
	all := c.exe.Programs
	c.plan.Programs = make([]Program, len(all))
	plan := func(i int) error {
		g, err := c.program(&all[i])
		if err != nil {
			return fmt.Errorf("plan program %d %q: %w", all[i].Index, all[i].Name, err)
		}
		g.Work = c.work.steps(all[i].Steps)
		c.plan.Programs[i] = *g
		return nil
	}
	var failed atomic.Bool
	if bound := len(c.kernels) <= maxSteps; bound {
		workers.Each(c.opts.Threads, len(all), func(i int) {
			if !failed.Load() && plan(i) != nil {
				failed.Store(true)
			}
		})
	} else {
		failed.Store(true)
	}
	if failed.Load() {
		c.steps.Store(0)
		for i := range all {
			if err := plan(i); err != nil {
				return err
			}
		}
	}
	for i := range c.plan.Programs {
		c.plan.ArenaBytes = max(c.plan.ArenaBytes, c.plan.Programs[i].ArenaBytes)
	}
	return nil
}
