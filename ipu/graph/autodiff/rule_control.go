package autodiff

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

var controlRules = map[string]rule{
	"If":   {back: backIf},
	"Loop": {back: backLoop},
}

// nodesOf lists the nodes of a graph that will get others.
func (b *emitter) nodesOf(g graph.GraphID) []graph.Node { return slices.Clone(b.e.Graphs[g].Nodes) }

// outerOf lists the tensors outside of a graph that it reads and whose gradient is wanted.
func (p *pull) outerOf(g graph.GraphID) []graph.TensorID {
	var list []graph.TensorID
	for _, t := range p.outside(g).reads {
		if p.active[t] {
			list = append(list, t)
		}
	}
	return list
}

// begins puts a gradient of a result into those from which a pull begins.
func (p *pull) begins(t, d graph.TensorID) {
	if d == graph.None || p.e.Tensors[t].Const {
		return
	}
	if old, ok := p.grads[t]; ok {
		d = p.add(old, d)
	}
	p.grads[t] = d
}

// branch is the way back through a branch of an If.
type branch struct {
	graph graph.GraphID
	grads map[graph.TensorID]graph.TensorID
}

// backIf goes back through the branch that was taken, which is computed again.
func backIf(p *pull, n *graph.Node) {
	o := n.Op.(*graph.If)
	back := func(g graph.GraphID) branch {
		var s *pull
		id := p.inside(p.e.Graphs[g].Name+"/grad", func() {
			names := map[graph.TensorID]graph.TensorID{}
			p.clone(p.e.Graphs[g].Nodes, names)
			nodes := p.nodesOf(p.cur)
			s = p.within()
			for _, t := range p.outerOf(g) {
				s.active[t] = true
			}
			for i, t := range renamed(p.e.Graphs[g].Results, names) {
				s.begins(t, p.dy(n, i))
			}
			s.reverse(nodes)
		})
		return branch{id, s.grads}
	}
	branches := []branch{back(o.Then), back(o.Else)}
	var wanted []graph.TensorID
	for i, g := range []graph.GraphID{o.Then, o.Else} {
		for _, t := range p.outerOf(g) {
			if _, ok := branches[i].grads[t]; ok && !slices.Contains(wanted, t) {
				wanted = append(wanted, t)
			}
		}
	}
	if len(wanted) == 0 {
		return
	}
	around := p.cur
	for _, b := range branches {
		p.cur = b.graph
		var results []graph.TensorID
		for _, t := range wanted {
			d, ok := b.grads[t]
			if !ok {
				d = p.zeros(p.typ(t))
			}
			results = append(results, d)
		}
		p.e.Graphs[b.graph].Results = results
		p.sweep(b.graph, results)
	}
	p.cur = around
	for i, d := range p.ops(&graph.If{Then: branches[0].graph, Else: branches[1].graph}, n.Inputs[0]) {
		p.accumulate(wanted[i], d)
	}
}
