package autodiff

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// loop is the way back through a counted Loop: a loop that begins with the last iteration. Each of its iterations
// computes the body again, with what was carried into it, which a copy of the loop collects before; it carries the
// gradients of what is carried, and sums of the gradients of what the body reads from outside.
type loop struct {
	*pull
	n       *graph.Node
	o       *graph.Loop
	body    graph.Graph
	carried int                     // how many values are
	active  map[graph.TensorID]bool // in the body, its parameters included
	grad    []int                   // the carried values with gradients
	scanned map[int]graph.TensorID  // nodes of the body that take the iteration's slice of a tensor outside

	iteration graph.TensorID   // of the loop that is gone back through
	values    []graph.TensorID // of the carried values at the beginning of an iteration
	dvalues   []graph.TensorID // parameters: gradients of those of grad
	sums      []graph.TensorID // parameters: gradients of outer so far
	outer     []graph.TensorID // tensors outside of the body with gradients
	slices    []graph.TensorID // tensors of which slices are scanned, as often as they are
	results   []graph.TensorID
}

func backLoop(p *pull, n *graph.Node) {
	o := n.Op.(*graph.Loop)
	if o.Count < 0 || o.While || n.Inputs[1] != graph.None {
		refuse("how often it runs is known only when it runs: gradients need a loop with a constant number of iterations and without a condition")
	}
	l := &loop{pull: p, n: n, o: o, body: p.e.Graphs[o.Body], carried: len(n.Inputs) - 2}
	if o.Count == 0 {
		for i := range l.carried {
			if d := p.dy(n, i); d != graph.None {
				p.give(n, 2+i, func() graph.TensorID { return d })
			}
		}
		return
	}
	l.findActive()
	l.findGradients()
	back := l.backBody()
	if len(l.grad)+len(l.outer)+len(l.slices) == 0 {
		return
	}
	l.load(back)
	l.run(back)
}

// findActive finds what depends in the body on what gradients are wanted of: what is carried, until nothing changes.
func (l *loop) findActive() {
	s := l.within()
	for _, t := range l.pull.outerOf(l.o.Body) {
		s.active[t] = true
	}
	mark := func(i int) bool {
		t := l.body.Params[1+i]
		if s.active[t] || !differentiable(l.dtype(t)) || l.detached[t] {
			return false
		}
		s.active[t] = true
		return true
	}
	for i := range l.carried {
		if l.wants(l.n, 2+i) {
			mark(i)
		}
	}
	for changed := true; changed; {
		s.spread(l.body.Nodes)
		changed = false
		for i := range l.carried {
			if s.active[l.body.Results[i]] && mark(i) {
				changed = true
			}
		}
	}
	l.active = s.active
}

// findGradients finds which carried values have gradients: those of which there are some after the loop, and those that
// matter for others.
func (l *loop) findGradients() {
	matters := make([]bool, l.carried)
	for i := range matters {
		matters[i] = l.dy(l.n, i) != graph.None
	}
	for changed := true; changed; {
		changed = false
		set := map[graph.TensorID]bool{}
		for i, t := range l.body.Results {
			if i < l.carried && matters[i] || i >= l.carried && l.dy(l.n, i) != graph.None {
				set[t] = true
			}
		}
		l.matter(l.body.Nodes, set)
		for i := range matters {
			if !matters[i] && set[l.body.Params[1+i]] {
				matters[i], changed = true, true
			}
		}
	}
	for i, m := range matters {
		if m && l.active[l.body.Params[1+i]] {
			l.grad = append(l.grad, i)
		}
	}
}

// backBody makes the body of the loop back.
func (l *loop) backBody() graph.GraphID {
	l.scanned = map[int]graph.TensorID{}
	return l.inside(l.body.Name+"/grad", func() {
		names := map[graph.TensorID]graph.TensorID{}
		j := l.local("iteration", graph.TensorType{DType: graph.I64})
		l.iteration = l.copyOf(l.body.Params[0], names)
		for _, t := range l.body.Params[1:] {
			l.values = append(l.values, l.copyOf(t, names))
		}
		params := []graph.TensorID{j}
		s := l.within()
		for t := range l.active {
			if c, ok := names[t]; ok {
				t = c
			}
			s.active[t] = true
		}
		l.clone(l.body.Nodes, names)
		nodes := l.unscanned(s)
		s.spread(nodes)
		results := renamed(l.body.Results, names)
		for _, i := range l.grad {
			d := l.local("grad/"+l.e.Tensors[l.body.Params[1+i]].Name, l.typ(l.body.Params[1+i]))
			l.dvalues = append(l.dvalues, d)
			s.begins(results[i], d)
		}
		for i := l.carried; i < len(results); i++ {
			if d := l.dy(l.n, i); d != graph.None && s.active[results[i]] {
				s.begins(results[i], l.op(&graph.Gather{}, d, l.iteration))
			}
		}
		s.reverse(nodes)
		l.collect(s)
		g := &l.e.Graphs[l.cur]
		g.Params = slices.Concat(params, l.dvalues, l.sums)
		g.Results = l.results
		l.sweep(l.cur, l.results)
	})
}

// unscanned returns the nodes of the current graph without those that take the iteration's slice of a tensor
// outside, whose gradient is collected instead of being added up among zeros.
func (l *loop) unscanned(s *pull) []graph.Node {
	var rest []graph.Node
	for i, n := range l.nodesOf(l.cur) {
		g, ok := n.Op.(*graph.Gather)
		if ok && g.Axis == 0 && n.Inputs[1] == l.iteration && l.pull.active[n.Inputs[0]] && s.active[n.Inputs[0]] && n.Outputs[0] != graph.None {
			s.active[n.Outputs[0]] = true
			l.scanned[i] = n.Outputs[0]
			continue
		}
		rest = append(rest, n)
	}
	return rest
}

// collect makes the results of the body: gradients of what is carried, sums, slices.
func (l *loop) collect(s *pull) {
	for k, i := range l.grad {
		d, ok := s.grads[l.values[i]]
		if !ok {
			d = l.zeros(l.typ(l.dvalues[k]))
		}
		l.results = append(l.results, d)
	}
	for _, t := range l.pull.outerOf(l.o.Body) {
		if d, ok := s.grads[t]; ok {
			l.outer = append(l.outer, t)
			sum := l.local("sum", l.typ(t))
			l.sums = append(l.sums, sum)
			l.results = append(l.results, l.add(sum, d))
		}
	}
	nodes := l.emitted()
	for i := range nodes {
		if t, ok := l.scanned[i]; ok {
			if d, ok := s.grads[t]; ok {
				l.slices = append(l.slices, nodes[i].Inputs[0])
				l.results = append(l.results, d)
			}
		}
	}
}

// load lets the body back begin with the values that were carried into the iteration, as far as it reads them, and adds the loop that
// collects them.
func (l *loop) load(back graph.GraphID) {
	reads := l.outsideOf(back).reads
	var needed []int
	for i, t := range l.values {
		if slices.Contains(reads, t) {
			needed = append(needed, i)
		}
	}
	if len(needed) == 0 && !slices.Contains(reads, l.iteration) {
		return
	}
	var stacks []graph.TensorID
	if len(needed) > 0 {
		stacks = l.stack(needed)
	}
	rest := l.e.Graphs[back].Nodes
	l.e.Graphs[back].Nodes = nil
	around := l.cur
	l.cur = back
	l.node(graph.Node{Op: &graph.Binary{Fn: graph.Sub}, Name: l.name,
		Inputs: []graph.TensorID{l.number(float64(l.o.Count-1), graph.I64), l.e.Graphs[back].Params[0]}, Outputs: []graph.TensorID{l.iteration}})
	for k, i := range needed {
		l.node(graph.Node{Op: &graph.Gather{}, Name: l.name, Inputs: []graph.TensorID{stacks[k], l.iteration}, Outputs: []graph.TensorID{l.values[i]}})
	}
	l.e.Graphs[back].Nodes = append(l.e.Graphs[back].Nodes, rest...)
	l.cur = around
}

// stack runs the loop again and returns what each iteration got of some carried values, along a new first axis.
func (l *loop) stack(needed []int) []graph.TensorID {
	names := map[graph.TensorID]graph.TensorID{}
	again := l.cloneGraph(l.o.Body, names)
	g := &l.e.Graphs[again]
	results := slices.Clone(g.Results[:l.carried])
	for _, i := range needed {
		results = append(results, g.Params[1+i])
	}
	g.Results = results
	l.sweep(again, results)
	return l.ops(&graph.Loop{Body: again, Count: l.o.Count}, l.n.Inputs...)[l.carried:]
}

// run adds the loop back and gives away what it computes.
func (l *loop) run(back graph.GraphID) {
	in := []graph.TensorID{graph.None, graph.None}
	for k, i := range l.grad {
		d := l.dy(l.n, i)
		if d == graph.None {
			d = l.zeros(l.typ(l.dvalues[k]))
		}
		in = append(in, d)
	}
	for _, t := range l.outer {
		in = append(in, l.zeros(l.typ(t)))
	}
	out := l.ops(&graph.Loop{Body: back, Count: l.o.Count}, in...)
	for k, i := range l.grad {
		if l.wants(l.n, 2+i) {
			l.accumulate(l.n.Inputs[2+i], out[k])
		}
	}
	out = out[len(l.grad):]
	for k, t := range l.outer {
		l.accumulate(t, out[k])
	}
	for k, t := range l.slices {
		d := l.backwards(out[len(l.outer)+k], 0)
		after := make([]int64, len(l.shape(t)))
		after[0] = l.shape(t)[0] - l.o.Count
		l.accumulate(t, l.pad(d, make([]int64, len(after)), after))
	}
}
