package reduce

import (
	"cmp"
	"slices"

	"github.com/popefgen/popefgen/onnx"
)

// keep returns the case with some of the nodes of the best one and the given
// outputs. What they read of the others becomes an input or, where it depends on no
// input, an initializer, both with the value that the best case computes. It is
// nil if there is no such value, or no output.
func (r *reducer) keep(kept []bool, outputs []string) *Case {
	g := r.best.Model.Graph
	if r.o.Outputs != nil {
		outputs = slices.DeleteFunc(slices.Clone(outputs), func(name string) bool { return !r.o.Outputs[name] })
	}
	if len(outputs) == 0 {
		return nil
	}
	at := producers(g)
	c := r.best.clone()
	to := c.Model.Graph
	to.Nodes = nil
	var needed []string
	seen := map[string]bool{}
	for i, n := range g.Nodes {
		if !kept[i] {
			continue
		}
		to.Nodes = append(to.Nodes, n)
		for _, name := range reads(n) {
			if p, ok := at[name]; ok && !kept[p] && !seen[name] {
				seen[name] = true
				needed = append(needed, name)
			}
		}
	}
	r.fetch(needed)
	fixed := static(g)
	for _, name := range needed {
		t := r.values[name]
		if t == nil {
			return nil
		}
		named := *t
		named.Name = name
		if fixed[name] {
			to.Initializers = append(to.Initializers, &named)
			continue
		}
		to.Inputs = append(to.Inputs, onnx.Declare(name, t.Elem, t.Dims))
		c.Inputs[name] = &named
	}
	to.Outputs = r.declared(outputs)
	return c
}

// declared returns values of the best case as outputs, with what is known of
// their types.
func (r *reducer) declared(names []string) []onnx.ValueInfo {
	var out []onnx.ValueInfo
	for _, name := range names {
		v := onnx.ValueInfo{Name: name}
		g := r.best.Model.Graph
		for _, known := range slices.Concat(g.Outputs, g.Values) {
			if known.Name == name {
				v.Elem = known.Elem
			}
		}
		if t := r.values[name]; t != nil {
			v = onnx.Declare(name, t.Elem, t.Dims)
		}
		out = append(out, v)
	}
	return out
}

// static returns which values depend on initializers and shapes alone: they are
// known when the model is compiled.
func static(g *onnx.Graph) map[string]bool {
	known := map[string]bool{}
	for _, t := range g.Initializers {
		known[t.Name] = true
	}
	for again := true; again; { // once for nodes in order, which they nearly always are
		again = false
		for _, n := range g.Nodes {
			all := true
			if n.OpType != "Shape" && n.OpType != "Size" {
				for _, name := range reads(n) {
					all = all && known[name]
				}
			}
			for _, name := range n.Outputs {
				if all && name != "" && !known[name] {
					known[name], again = true, true
				}
			}
		}
	}
	return known
}

// all returns a list that keeps all nodes of the best case.
func (r *reducer) all() []bool {
	return slices.Repeat([]bool{true}, len(r.best.Model.Graph.Nodes))
}

// left returns the outputs of the best case that some of its nodes compute.
func (r *reducer) left(kept []bool) []string {
	g := r.best.Model.Graph
	at := producers(g)
	var names []string
	for _, name := range outputNames(g) {
		if i, ok := at[name]; ok && kept[i] {
			names = append(names, name)
		}
	}
	return names
}

// ends returns what some nodes of the best case deliver to the others and use
// nowhere themselves, and the outputs among what they compute.
func (r *reducer) ends(kept []bool) []string {
	g := r.best.Model.Graph
	inside, outside := map[string]bool{}, map[string]bool{}
	for i, n := range g.Nodes {
		for _, name := range reads(n) {
			if kept[i] {
				inside[name] = true
			} else {
				outside[name] = true
			}
		}
	}
	names := r.left(kept)
	for i, n := range g.Nodes {
		for _, name := range n.Outputs {
			end := name != "" && outside[name] && (!inside[name] || r.o.Outputs[name])
			if kept[i] && end && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// tryKeep keeps some nodes of the best case: with the outputs that are left, or
// with all their ends.
func (r *reducer) tryKeep(kept []bool) bool {
	left, ends := r.left(kept), r.ends(kept)
	if len(left) > 0 && r.cut(r.keep(kept, left)) {
		return true
	}
	return !slices.Equal(left, ends) && r.cut(r.keep(kept, ends))
}

// oneKnown looks, where few values are known, for one that shows it though all
// that it is computed from have their known values.
func (r *reducer) oneKnown() {
	g := r.best.Model.Graph
	at := producers(g)
	var known []string
	for name := range r.o.Outputs {
		if _, ok := at[name]; ok {
			known = append(known, name)
		}
	}
	slices.SortFunc(known, func(a, b string) int { return cmp.Or(at[a]-at[b], cmp.Compare(a, b)) })
	r.fetch(known)
	for _, name := range known {
		kept := make([]bool, len(g.Nodes))
		for todo := []string{name}; len(todo) > 0; {
			value := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			i, ok := at[value]
			if !ok || kept[i] || value != name && r.values[value] != nil && i != at[name] {
				continue
			}
			kept[i] = true
			todo = append(todo, reads(g.Nodes[i])...)
		}
		if r.stopped() || r.cut(r.keep(kept, []string{name})) {
			return
		}
	}
}

// oneOutput keeps one output and what it needs, else as few as possible.
func (r *reducer) oneOutput() {
	names := outputNames(r.best.Model.Graph)
	if len(names) > 1 {
		for _, name := range names {
			if r.cut(r.keep(r.all(), []string{name})) {
				return
			}
		}
	}
	r.shrink(func() int { return len(r.best.Model.Graph.Outputs) }, func(from, to int) bool {
		return r.cut(r.keep(r.all(), slices.Delete(outputNames(r.best.Model.Graph), from, to)))
	})
}

// firstNode looks for the first node whose result shows it, by bisection.
func (r *reducer) firstNode() {
	lo := -1 // the result of the node there does not show it, as far as was tried
	for {
		g := r.best.Model.Graph
		hi := len(g.Nodes) - 1
		if hi-lo < 2 {
			return
		}
		mid := lo + (hi-lo)/2
		results := slices.DeleteFunc(slices.Clone(g.Nodes[mid].Outputs), func(name string) bool { return name == "" })
		needed := ancestors(g, results)
		if r.cut(r.keep(needed, results)) {
			tried := lo
			lo = -1
			for i := range tried + 1 { // those of them that are left
				if needed[i] {
					lo++
				}
			}
			continue
		}
		if r.stopped() {
			return
		}
		lo = mid
	}
}

// lastCut looks for the last place where the graph can be cut and still shows it, by
// bisection: what lies before becomes inputs.
func (r *reducer) lastCut() {
	for lo, hi := 0, len(r.best.Model.Graph.Nodes); hi-lo > 1; {
		n := len(r.best.Model.Graph.Nodes)
		mid := lo + (hi-lo)/2
		kept := r.all()
		for i := range kept {
			kept[i] = i >= mid
		}
		if r.tryKeep(kept) {
			gone := n - len(r.best.Model.Graph.Nodes)
			lo, hi = max(0, mid-gone), hi-gone
			continue
		}
		if r.stopped() {
			return
		}
		hi = mid
	}
}

// fewNodes is up to how many nodes all values are looked up at once.
const fewNodes = 32

// fewerNodes takes nodes away, many at a time first.
func (r *reducer) fewerNodes() {
	if g := r.best.Model.Graph; len(g.Nodes) <= fewNodes {
		var names []string
		for name := range producers(g) {
			names = append(names, name)
		}
		slices.Sort(names)
		r.fetch(names)
	}
	r.shrink(func() int { return len(r.best.Model.Graph.Nodes) }, func(from, to int) bool {
		kept := r.all()
		for i := from; i < to; i++ {
			kept[i] = false
		}
		return r.tryKeep(kept)
	})
}

// shrink takes runs of things out of a list of length() of them: half of it at a
// time, then a quarter, down to single ones until none of them can go.
func (r *reducer) shrink(length func() int, without func(from, to int) bool) {
	for size := length() / 2; size > 0; {
		again := false
		for from := 0; from < length() && !r.stopped(); {
			to := min(from+size, length())
			if to-from < length() && without(from, to) {
				again = true
				continue
			}
			from = to
		}
		if size > 1 || !again {
			size /= 2
		}
		if r.stopped() {
			return
		}
	}
}
