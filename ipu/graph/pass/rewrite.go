package pass

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/num"
)

// rewriter replaces nodes one by one and knows, while it does, who writes and
// who reads what.
type rewriter struct {
	*graph.Executable
	*passContext
	g   graph.GraphID
	out []*graph.Node // the nodes of the graph at hand, rewritten up to the current one
	n   *graph.Node   // the current node

	def     []*graph.Node   // the node that writes a tensor, nil if none or several do
	in      []graph.GraphID // the graph of that node, or that has the tensor as a parameter; -1 if none
	reads   []int           // by nodes, results and outputs
	changed []bool          // persistent tensors that nodes write
	weight  []bool          // persistent tensors that the load program alone writes, by copies
	inner   []bool          // graphs that operators use
	known   []int8          // of [rewriter.settled]: 1 yes, -1 no, 0 or missing if it is not known yet
}

// rewrite calls rule for every node of every graph until it changes nothing
// any more, and removes what nobody reads then. rule reports whether it
// replaced the current node.
func rewrite(e *graph.Executable, c *passContext, rule func(r *rewriter, n *graph.Node) bool) {
	const rounds = 32 // bounds rules that undo each other
	for range rounds {
		r := newRewriter(e, c)
		again := false
		for g := range e.Graphs {
			again = r.graph(graph.GraphID(g), rule) || again
		}
		if !again {
			return
		}
		removeDead(e)
	}
}

func newRewriter(e *graph.Executable, c *passContext) *rewriter {
	n := len(e.Tensors)
	r := &rewriter{Executable: e, passContext: c, def: make([]*graph.Node, n), in: slices.Repeat([]graph.GraphID{-1}, n), reads: make([]int, n),
		changed: make([]bool, n), weight: make([]bool, n), inner: make([]bool, len(e.Graphs))}
	for g := range e.Graphs {
		gr := &e.Graphs[g]
		for _, t := range gr.Params {
			r.in[t] = graph.GraphID(g)
		}
		r.count(gr.Results, 1)
		for i := range gr.Nodes {
			r.add(graph.GraphID(g), &gr.Nodes[i])
			for _, sub := range graph.Subgraphs(gr.Nodes[i].Op) {
				r.inner[sub] = true
			}
		}
	}
	copied := make([]int, n) // programs that copy a tensor in, the load program as 1, any other as 2
	forSteps(e, func(p int, s *graph.Step) {
		switch s.Kind {
		case graph.CopyOut:
			r.reads[s.Tensor]++
		case graph.CopyIn:
			if c.Load != nil && e.Programs[p].Index == *c.Load {
				copied[s.Tensor] |= 1
			} else {
				copied[s.Tensor] |= 2
			}
		}
	})
	for i := range e.Tensors {
		r.weight[i] = e.Tensors[i].Persistent && !r.changed[i] && copied[i] == 1
	}
	return r
}

// add notes that n is a node of graph g.
func (r *rewriter) add(g graph.GraphID, n *graph.Node) {
	r.count(n.Inputs, 1)
	for _, t := range n.Outputs {
		if t == graph.None {
			continue
		}
		if r.Tensors[t].Persistent {
			r.changed[t] = true
			continue
		}
		r.def[t], r.in[t] = n, g
	}
}

func (r *rewriter) count(ids []graph.TensorID, by int) {
	for _, t := range ids {
		if t != graph.None {
			r.reads[t] += by
		}
	}
}

// graph applies rule to the nodes of one graph.
func (r *rewriter) graph(g graph.GraphID, rule func(*rewriter, *graph.Node) bool) bool {
	nodes := r.Graphs[g].Nodes
	r.g, r.out = g, make([]*graph.Node, 0, len(nodes))
	again := false
	for i := range nodes {
		n := nodes[i]
		r.n = &n
		for _, t := range n.Outputs {
			if t != graph.None && r.def[t] == &nodes[i] {
				r.def[t] = &n
			}
		}
		if !r.ended() && !r.dead(&n) {
			again = rule(r, &n) || again
		}
		r.out = append(r.out, &n)
	}
	if again {
		nodes = make([]graph.Node, len(r.out))
		for i, n := range r.out {
			nodes[i] = *n
			for _, t := range n.Outputs {
				if t != graph.None && r.def[t] == n {
					r.def[t] = &nodes[i]
				}
			}
		}
		r.Graphs[g].Nodes = nodes
	}
	return again
}

// dead reports whether nobody reads what a node writes.
func (r *rewriter) dead(n *graph.Node) bool {
	if graph.HasEffect(n.Op) {
		return false
	}
	for _, t := range n.Outputs {
		if t != graph.None && (r.Tensors[t].Persistent || r.reads[t] > 0) {
			return false
		}
	}
	return true
}

// release gives up reads of tensors, and those of nodes that nobody needs any
// more.
func (r *rewriter) release(ids []graph.TensorID) {
	for _, t := range ids {
		if t == graph.None {
			continue
		}
		if r.reads[t]--; r.reads[t] == 0 && r.def[t] != nil && r.dead(r.def[t]) {
			r.release(r.def[t].Inputs)
		}
	}
}

// replace makes the current node compute op from other operands. Its results
// keep their types.
func (r *rewriter) replace(what string, op graph.Op, inputs ...graph.TensorID) bool {
	r.count(inputs, 1)
	r.release(r.n.Inputs)
	r.n.Op, r.n.Inputs = op, inputs
	r.did(what)
	return true
}

// emit adds a node before the current one and returns its first result, or
// None if op does not take such operands.
func (r *rewriter) emit(op graph.Op, inputs ...graph.TensorID) graph.TensorID {
	types := make([]graph.TensorType, len(inputs))
	for i, t := range inputs {
		if t != graph.None {
			types[i] = r.Tensors[t].Type
		}
	}
	out, err := op.Infer(types)
	if err != nil {
		return graph.None
	}
	id := r.tensor(graph.Tensor{Name: r.n.Name, Type: graph.TensorType{DType: out[0].DType, Shape: slices.Clone(out[0].Shape)}})
	n := &graph.Node{Op: op, Name: r.n.Name, Inputs: inputs, Outputs: []graph.TensorID{id}}
	r.out = append(r.out, n)
	r.add(r.g, n)
	return id
}

// tensor adds an entry to the tensor table.
func (r *rewriter) tensor(t graph.Tensor) graph.TensorID {
	id := graph.TensorID(len(r.Tensors))
	r.Tensors = append(r.Tensors, t)
	r.def, r.in, r.reads = append(r.def, nil), append(r.in, -1), append(r.reads, 0)
	r.changed, r.weight = append(r.changed, false), append(r.weight, false)
	return id
}

// shaped returns a tensor's elements in another shape.
func (r *rewriter) shaped(t graph.TensorID, shape ...int64) graph.TensorID {
	if slices.Equal(r.Tensors[t].Type.Shape, shape) {
		return t
	}
	return r.emit(&graph.Reshape{Shape: slices.Clone(shape)}, t)
}

// float adds a constant of a floating-point type d, whose elements are all v.
func (r *rewriter) float(d graph.DType, v float64, shape ...int64) graph.TensorID {
	t := graph.Tensor{Name: r.n.Name, Type: graph.TensorType{DType: d, Shape: slices.Clone(shape)}, Const: true}
	data := make([]byte, 0, t.Type.Bytes())
	for range t.Type.Elements() {
		switch d {
		case graph.F64:
			data = binary.LittleEndian.AppendUint64(data, math.Float64bits(v))
		case graph.F16:
			data = binary.LittleEndian.AppendUint16(data, uint16(num.Float16From64(v)))
		case graph.BF16:
			data = binary.LittleEndian.AppendUint16(data, uint16(num.BFloat16From64(v)))
		default:
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(v)))
		}
	}
	t.Data = data
	return r.tensor(t)
}

// number returns the value of a constant whose elements are all equal.
func (r *rewriter) number(t graph.TensorID) (float64, bool) {
	if t == graph.None {
		return 0, false
	}
	e := &r.Tensors[t]
	n := e.Type.Elements()
	if !e.Const || n == 0 || n > 1<<16 {
		return 0, false
	}
	var at func(i int64) float64
	switch e.Type.DType {
	case graph.F32:
		at = func(i int64) float64 { return float64(math.Float32frombits(binary.LittleEndian.Uint32(e.Data[4*i:]))) }
	case graph.F64:
		at = func(i int64) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(e.Data[8*i:])) }
	case graph.I32:
		at = func(i int64) float64 { return float64(int32(binary.LittleEndian.Uint32(e.Data[4*i:]))) }
	case graph.I64:
		at = func(i int64) float64 { return float64(int64(binary.LittleEndian.Uint64(e.Data[8*i:]))) }
	default:
		return 0, false
	}
	v := at(0)
	for i := int64(1); i < n; i++ {
		if at(i) != v {
			return 0, false
		}
	}
	return v, true
}

// near reports whether a constant is v as float32 arithmetic would have it.
func near(got, v float64) bool { return math.Abs(got-v) <= 1e-5*math.Abs(v) }

// single reports whether the passes that change floating-point arithmetic may
// work on a tensor. Half precision is rounded after
// every operator, which merging operators would change.
func (r *rewriter) single(t graph.TensorID) bool {
	d := r.Tensors[t].Type.DType
	return d == graph.F32 || d == graph.F64
}

// node returns the node of the current graph that writes t, nil if another
// graph or no node does, or if one of its operands may have changed since.
func (r *rewriter) node(t graph.TensorID) *graph.Node {
	if t == graph.None || r.def[t] == nil || r.in[t] != r.g {
		return nil
	}
	n := r.def[t]
	for _, x := range n.Inputs {
		if x != graph.None && !r.stable(x) {
			return nil
		}
	}
	return n
}

// stable reports whether a tensor keeps its value while a graph runs, once
// the graph has read it.
func (r *rewriter) stable(t graph.TensorID) bool {
	e := &r.Tensors[t]
	switch {
	case e.Const:
		return true
	case e.Persistent:
		return !r.changed[t]
	}
	g := r.in[t]
	return g < 0 || g == r.g || !r.inner[g]
}

// once reports whether t is read once only, and is no persistent tensor.
func (r *rewriter) once(t graph.TensorID) bool { return r.reads[t] == 1 && !r.Tensors[t].Persistent }

// producer returns the node that writes t if its operator is an O.
func producer[O graph.Op](r *rewriter, t graph.TensorID) (*graph.Node, O, bool) {
	var none O
	n := r.node(t)
	if n == nil || len(n.Outputs) == 0 || n.Outputs[0] != t {
		return nil, none, false
	}
	op, ok := n.Op.(O)
	return n, op, ok
}

// unary returns x if t is fn(x).
func (r *rewriter) unary(t graph.TensorID, fn graph.UnaryFn) (x graph.TensorID, ok bool) {
	n, op, ok := producer[*graph.Unary](r, t)
	if !ok || op.Fn != fn {
		return graph.None, false
	}
	return n.Inputs[0], true
}

// binary returns a and b if t is fn(a, b).
func (r *rewriter) binary(t graph.TensorID, fn graph.BinaryFn) (a, b graph.TensorID, ok bool) {
	n, op, ok := producer[*graph.Binary](r, t)
	if !ok || op.Fn != fn {
		return graph.None, graph.None, false
	}
	return n.Inputs[0], n.Inputs[1], true
}

// plus returns x and c if t is x+c or c+x with a constant c of one value.
func (r *rewriter) plus(t graph.TensorID) (x graph.TensorID, c float64, ok bool) {
	a, b, ok := r.binary(t, graph.Add)
	if !ok {
		return graph.None, 0, false
	}
	if c, ok := r.number(b); ok && r.keeps(a, t) {
		return a, c, true
	}
	if c, ok := r.number(a); ok && r.keeps(b, t) {
		return b, c, true
	}
	return graph.None, 0, false
}

// keeps reports whether x and y have the same type.
func (r *rewriter) keeps(x, y graph.TensorID) bool { return r.Tensors[x].Type.Equal(r.Tensors[y].Type) }

// settled reports whether a tensor depends on nothing but constants and
// weights, so that it is known once the load program has run.
func (r *rewriter) settled(t graph.TensorID) bool {
	if t == graph.None || r.Load == nil {
		return false
	}
	e := &r.Tensors[t]
	if e.Const || r.weight[t] {
		return true
	}
	for len(r.known) <= int(t) {
		r.known = append(r.known, 0)
	}
	if r.known[t] == 0 {
		r.known[t] = -1 // what depends on itself does not count
		if r.derived(t) {
			r.known[t] = 1
		}
	}
	return r.known[t] > 0
}

// derived reports whether a local tensor is computed from settled ones.
func (r *rewriter) derived(t graph.TensorID) bool {
	n := r.def[t]
	if n == nil || r.Tensors[t].Persistent || r.inner[r.in[t]] || len(graph.Subgraphs(n.Op)) > 0 {
		return false
	}
	for _, x := range n.Inputs {
		if x != graph.None && !r.settled(x) {
			return false
		}
	}
	return true
}
