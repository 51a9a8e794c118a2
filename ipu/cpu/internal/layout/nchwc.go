package layout

import (
	"slices"
	"sync/atomic"

	"github.com/popefgen/popefgen/ipu/cpu/internal/bind"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/nchwc"
	"github.com/popefgen/popefgen/ipu/cpu/internal/workers"
	"github.com/popefgen/popefgen/ipu/graph"
)

// The layout is decided before anything else is planned: which activations are
// kept in NCHWc (see [nchwc.Conv]). Tensors that an
// operator on single channels ties together are in NCHWc together or not at
// all; a convolution takes and gives either. What other operators read or
// write is converted.

// inNCHWc returns a copy of exe in which activations are in NCHWc of so many
// channels where that saves time, or exe itself, with the kernels that it has made of its
// nodes. Tensors of exe keep their numbers; those in NCHWc come after them.
func inNCHWc(exe *graph.Executable, lanes int64, o Options) (*graph.Executable, Origins, Kernels) {
	if lanes == 0 || !slices.ContainsFunc(exe.Graphs, func(g graph.Graph) bool {
		return slices.ContainsFunc(g.Nodes, func(n graph.Node) bool { _, ok := n.Op.(*graph.Conv); return ok })
	}) {
		return exe, nil, nil
	}
	l := &layout{given: exe, lanes: lanes, Options: o}
	l.survey()
	regions := make([]*region, len(exe.Graphs))
	workers.Each(o.planners(), len(regions), func(g int) { regions[g] = l.graph(graph.GraphID(g)) })
	return l.joined(regions)
}

// joined returns the executable that regions, one for each graph, make of the given one, or
// that one if they add no tensor to it. Regions number the tensors that they add from where
// the given ones end; here those of a graph follow those of the graphs before.
func (l *layout) joined(regions []*region) (*graph.Executable, Origins, Kernels) {
	base := len(l.given.Tensors)
	more := 0
	for _, r := range regions {
		more += len(r.made)
	}
	if more == 0 {
		return l.given, nil, nil
	}
	out := *l.given
	out.Tensors, out.Graphs = append(make([]graph.Tensor, 0, base+more), l.given.Tensors...), slices.Clone(l.given.Graphs)
	from, kernels := make(Origins, len(regions)), make(Kernels, len(regions))
	for g, r := range regions {
		by := graph.TensorID(len(out.Tensors) - base)
		moved := func(ids []graph.TensorID) []graph.TensorID {
			if by == 0 || !slices.ContainsFunc(ids, func(t graph.TensorID) bool { return int(t) >= base }) {
				return ids
			}
			ids = slices.Clone(ids)
			for i, t := range ids {
				if int(t) >= base {
					ids[i] = t + by
				}
			}
			return ids
		}
		for i := range r.out {
			n := &r.out[i]
			n.Inputs, n.Outputs = moved(n.Inputs), moved(n.Outputs)
		}
		out.Tensors = append(out.Tensors, r.made...)
		out.Graphs[g].Nodes, from[g], kernels[g] = r.out, r.from, r.kernels
	}
	return &out, from, kernels
}

// layout is the state of one decision.
type layout struct {
	Options
	given   *graph.Executable
	lanes   int64
	writers []int           // of every tensor, over all programs; parameters of graphs count twice
	written []int           // nodes that write it
	home    []graph.GraphID // the last graph in which a node writes the tensor, or -1
	outside []bool          // read by something else than a node of its home
	inner   []bool          // graphs that nodes run
	spare   atomic.Int64    // bytes of the tables of kernels that are kept
}

// survey finds out who writes and reads the tensors.
func (l *layout) survey() {
	n := len(l.given.Tensors)
	l.writers, l.written, l.outside = make([]int, n), make([]int, n), make([]bool, n)
	l.inner = make([]bool, len(l.given.Graphs))
	l.home = slices.Repeat([]graph.GraphID{-1}, n)
	for g := range l.given.Graphs {
		for _, t := range l.given.Graphs[g].Params {
			l.writers[t] += 2
		}
		for i := range l.given.Graphs[g].Nodes {
			for _, sub := range graph.Subgraphs(l.given.Graphs[g].Nodes[i].Op) {
				l.inner[sub] = true
			}
			for _, t := range l.given.Graphs[g].Nodes[i].Outputs {
				if t != graph.None {
					l.writers[t]++
					l.written[t]++
					l.home[t] = graph.GraphID(g)
				}
			}
		}
	}
	for g := range l.given.Graphs {
		for i := range l.given.Graphs[g].Nodes {
			for _, t := range l.given.Graphs[g].Nodes[i].Inputs {
				if t != graph.None && l.home[t] != graph.GraphID(g) {
					l.outside[t] = true
				}
			}
		}
		for _, t := range l.given.Graphs[g].Results {
			l.outside[t] = true
		}
	}
	for i := range l.given.Programs {
		graph.Walk(l.given.Programs[i].Steps, func(s *graph.Step) {
			switch s.Kind {
			case graph.CopyIn:
				l.writers[s.Tensor]++
			case graph.CopyOut:
				l.outside[s.Tensor] = true
			}
		})
	}
}

// region is one graph while its layout is decided.
type region struct {
	*layout
	g     graph.GraphID
	nodes []graph.Node             // padding folded; the operator of one that is not needed any more is nil
	def   map[graph.TensorID]int   // the node that writes a tensor
	uses  map[graph.TensorID][]int // the nodes that read it
	units []*unit
	at    []*unit // by node

	group   map[graph.TensorID]int // of a tensor that may be in NCHWc
	members [][]graph.TensorID     // of every group
	near    [][]*unit              // units whose cost depends on a group
	nchwc   []bool                 // groups that are in NCHWc

	// While nodes are written.
	out     []graph.Node
	from    []int
	kernels []bind.Made    // of nodes in out, where there is one that fits
	made    []graph.Tensor // that out has besides the given ones, numbered after those
	blocked map[graph.TensorID]graph.TensorID
	planar  map[graph.TensorID]bool  // of tensors in NCHWc, those that were converted back
	counts  map[graph.TensorID]int64 // the channels of tensors in NCHWc
}

// region returns graph g as it was given, of which nothing is decided yet.
func (l *layout) region(g graph.GraphID) *region {
	r := &region{layout: l, g: g, nodes: slices.Clone(l.given.Graphs[g].Nodes), def: map[graph.TensorID]int{}, uses: map[graph.TensorID][]int{},
		group: map[graph.TensorID]int{}, blocked: map[graph.TensorID]graph.TensorID{}, planar: map[graph.TensorID]bool{},
		counts: map[graph.TensorID]int64{}}
	for i := range r.nodes {
		for _, t := range r.nodes[i].Outputs {
			if t != graph.None {
				r.def[t] = i
			}
		}
		for _, t := range r.nodes[i].Inputs {
			if t != graph.None {
				r.uses[t] = append(r.uses[t], i)
			}
		}
	}
	return r
}

// graph returns graph g with activations in NCHWc.
func (l *layout) graph(g graph.GraphID) *region {
	r := l.region(g)
	r.foldPads()
	r.match()
	r.tie()
	r.choose()
	r.write()
	if l.Tiling {
		r.join()
	}
	return r
}

// tie puts tensors that units tie together into groups.
func (r *region) tie() {
	parent := map[graph.TensorID]graph.TensorID{}
	root := func(t graph.TensorID) graph.TensorID {
		for parent[t] != t {
			parent[t] = parent[parent[t]]
			t = parent[t]
		}
		return t
	}
	var order []graph.TensorID
	add := func(t graph.TensorID) {
		if _, ok := parent[t]; !ok {
			parent[t] = t
			order = append(order, t)
		}
	}
	for _, u := range r.units {
		add(u.out)
		for _, i := range u.tied {
			add(u.in[i])
			parent[root(u.in[i])] = root(u.out)
		}
		if u.conv != nil && r.movable(u.in[0]) {
			add(u.in[0])
		}
	}
	number := map[graph.TensorID]int{}
	for _, t := range order {
		to := root(t)
		if _, ok := number[to]; !ok {
			number[to] = len(r.members)
			r.members = append(r.members, nil)
		}
		g := number[to]
		r.group[t] = g
		r.members[g] = append(r.members[g], t)
	}
	r.near = make([][]*unit, len(r.members))
	for _, u := range r.units {
		g := r.group[u.out]
		r.near[g] = append(r.near[g], u)
		if x, ok := r.group[u.in[0]]; ok && u.conv != nil && x != g {
			r.near[x] = append(r.near[x], u)
		}
	}
}

// isNCHWc reports whether a tensor is in NCHWc.
func (r *region) isNCHWc(t graph.TensorID) bool {
	g, ok := r.group[t]
	return ok && r.nchwc[g]
}

// decide chooses the groups that are in NCHWc. All of them are at first;
// those that cost more than they save leave one by one, as long as that helps.
// What convolutions join stays in NCHWc only if it saves time as a whole.
func (r *region) decide() {
	own := make([]float64, len(r.members))
	for g, all := range r.members {
		for _, t := range all {
			own[g] += r.conversions(t)
		}
		for _, u := range r.near[g] {
			if u.conv == nil {
				own[g] += r.unitCost(u, true, true) - r.unitCost(u, false, false)
			}
		}
	}
	r.nchwc = slices.Repeat([]bool{true}, len(r.members))
	cost := func(u *unit) float64 { return r.unitCost(u, r.isNCHWc(u.in[0]), r.isNCHWc(u.out)) }
	const rounds = 8
	for range rounds {
		changed := false
		for g := range r.members {
			gain := own[g]
			if !r.nchwc[g] {
				gain = -gain
			}
			for _, u := range r.near[g] {
				if u.conv != nil {
					gain += cost(u)
				}
			}
			r.nchwc[g] = !r.nchwc[g]
			for _, u := range r.near[g] {
				if u.conv != nil {
					gain -= cost(u)
				}
			}
			if gain > 0 {
				changed = true
			} else {
				r.nchwc[g] = !r.nchwc[g]
			}
		}
		if !changed {
			break
		}
	}
	r.weigh(own, cost)
}

// weigh takes what convolutions join out of NCHWc where it costs more than
// it saves.
func (r *region) weigh(own []float64, cost func(*unit) float64) {
	seen := make([]bool, len(r.members))
	for first := range r.members {
		if seen[first] {
			continue
		}
		seen[first] = true
		joined, total := []int{first}, 0.0
		counted := map[*unit]bool{}
		for k := 0; k < len(joined); k++ {
			g := joined[k]
			if r.nchwc[g] {
				total += own[g]
			}
			for _, u := range r.near[g] {
				if u.conv == nil || counted[u] {
					continue
				}
				counted[u] = true
				total += cost(u) - r.unitCost(u, false, false)
				for _, t := range []graph.TensorID{u.in[0], u.out} {
					if h, ok := r.group[t]; ok && !seen[h] {
						seen[h] = true
						joined = append(joined, h)
					}
				}
			}
		}
		if total >= 0 {
			for _, g := range joined {
				r.nchwc[g] = false
			}
		}
	}
}

// write makes the graph's nodes.
func (r *region) write() {
	for i := range r.nodes {
		if r.nodes[i].Op == nil {
			continue
		}
		u := r.at[i]
		if u == nil || !r.isNCHWc(u.out) && (u.conv == nil || !r.isNCHWc(u.in[0])) {
			n := r.nodes[i]
			for _, t := range n.Inputs {
				r.asNCHW(t, i)
			}
			r.add(n, i)
			continue
		}
		if i != u.nodes[len(u.nodes)-1] {
			continue
		}
		r.writeUnit(u, i)
	}
}

func (r *region) add(n graph.Node, from int) { r.addMade(n, from, bind.Made{}) }

// addMade adds a node of which there may be a kernel already.
func (r *region) addMade(n graph.Node, from int, k bind.Made) {
	r.out, r.from, r.kernels = append(r.out, n), append(r.from, from), append(r.kernels, k)
}

// writeUnit makes the node of a unit at node i.
func (r *region) writeUnit(u *unit, i int) {
	n := graph.Node{Op: u.op, Name: r.nodes[i].Name, Inputs: slices.Clone(u.in), Outputs: []graph.TensorID{u.out}}
	out := r.isNCHWc(u.out)
	fits := out
	if u.conv != nil {
		op := *u.conv
		op.In, op.Out = r.isNCHWc(u.in[0]), out
		n.Op, fits = &op, op.In && out
	}
	var kernel bind.Made
	if fits {
		kernel = u.kernel
	}
	for k, t := range u.in {
		switch {
		case t == graph.None:
		case slices.Contains(u.tied, k) && out, u.conv != nil && k == 0 && r.isNCHWc(t):
			n.Inputs[k] = r.asNCHWc(t, i)
		case slices.Contains(u.spread, k):
			n.Inputs[k] = r.perChannel(t, u.out, i)
		default:
			r.asNCHW(t, i)
		}
	}
	if out {
		n.Outputs[0] = r.tensor(u.out, r.nchwcOf(r.typ(u.out)))
		r.counts[n.Outputs[0]] = r.typ(u.out).Shape[1]
		r.blocked[u.out] = n.Outputs[0]
	}
	r.addMade(n, i, kernel)
	if out && r.outside[u.out] {
		r.asNCHW(u.out, i)
	}
}

// tensor adds a tensor of the given type named like t.
func (r *region) tensor(t graph.TensorID, typ graph.TensorType) graph.TensorID {
	r.made = append(r.made, graph.Tensor{Name: r.entry(t).Name, Type: typ})
	return graph.TensorID(len(r.given.Tensors) + len(r.made) - 1)
}

// entry returns a tensor of the given ones or of those that the region has added. It is good
// until the next is added.
func (r *region) entry(t graph.TensorID) *graph.Tensor {
	if given := len(r.given.Tensors); int(t) >= given {
		return &r.made[int(t)-given]
	}
	return &r.given.Tensors[t]
}

// asNCHWc returns the tensor that holds t in NCHWc, for node i.
func (r *region) asNCHWc(t graph.TensorID, i int) graph.TensorID {
	if b, ok := r.blocked[t]; ok {
		return b
	}
	b := r.tensor(t, r.nchwcOf(r.typ(t)))
	r.add(graph.Node{Op: &nchwc.ToNCHWc{Lanes: r.lanes}, Name: r.nodes[i].Name, Inputs: []graph.TensorID{t}, Outputs: []graph.TensorID{b}}, i)
	r.blocked[t], r.planar[t] = b, true
	return b
}

// asPlanar makes t itself hold its value, for node i.
func (r *region) asNCHW(t graph.TensorID, i int) {
	b, ok := r.blocked[t]
	if !ok || r.planar[t] {
		return
	}
	typ := r.typ(t)
	r.add(graph.Node{Op: &nchwc.FromNCHWc{Channels: typ.Shape[1], To: typ.DType}, Name: r.nodes[r.def[t]].Name,
		Inputs: []graph.TensorID{b}, Outputs: []graph.TensorID{t}}, i)
	r.planar[t] = true
}

// perChannel returns, in NCHWc, a tensor with one element per channel of y,
// for node i.
func (r *region) perChannel(t, y graph.TensorID, i int) graph.TensorID {
	shape := perChannelShape(r.typ(t).Shape, r.typ(y).Shape)
	if r.isNCHWc(t) && len(shape) == r.typ(t).Rank() { // else its own channels are others
		return r.asNCHWc(t, i)
	}
	r.asNCHW(t, i)
	if !slices.Equal(shape, r.typ(t).Shape) {
		whole := r.tensor(t, graph.TensorType{DType: r.typ(t).DType, Shape: shape})
		r.add(graph.Node{Op: &graph.Reshape{Shape: shape}, Name: r.nodes[i].Name, Inputs: []graph.TensorID{t}, Outputs: []graph.TensorID{whole}}, i)
		t = whole
	}
	b := r.tensor(t, r.nchwcOf(r.typ(t)))
	r.add(graph.Node{Op: &nchwc.ToNCHWc{Lanes: r.lanes}, Name: r.nodes[i].Name, Inputs: []graph.TensorID{t}, Outputs: []graph.TensorID{b}}, i)
	return b
}

// nchwcOf returns the type in NCHWc of a tensor of type t.
func (l *layout) nchwcOf(t graph.TensorType) graph.TensorType {
	shape := slices.Concat([]int64{t.Shape[0], (t.Shape[1] + l.lanes - 1) / l.lanes}, t.Shape[2:], []int64{l.lanes})
	return graph.TensorType{DType: graph.F32, Shape: shape}
}
