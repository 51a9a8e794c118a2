package pass

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// fusePointwise joins elementwise operators of one shape whose intermediate
// values nobody else reads.
func fusePointwise(e *graph.Executable, c *passContext) {
	rewrite(e, c, func(r *rewriter, n *graph.Node) bool { return r.fuse(n) })
}

// elementwise returns the instruction that a node is to a [Pointwise], whose
// own it may be.
func (r *rewriter) elementwise(n *graph.Node) (*graph.Pointwise, bool) {
	if len(n.Outputs) != 1 || n.Outputs[0] == graph.None {
		return nil, false
	}
	d := r.Tensors[n.Outputs[0]].Type.DType
	if !graph.PointwiseType(d) {
		return nil, false
	}
	for _, t := range n.Inputs {
		if t != graph.None && r.Tensors[t].Type.DType != d {
			return nil, false
		}
	}
	args := make([]int64, len(n.Inputs))
	for i := range args {
		args[i] = int64(i)
	}
	one := func(fn string, alpha, beta float64) (*graph.Pointwise, bool) {
		return &graph.Pointwise{Fns: []string{fn}, Args: args, Alpha: []float64{alpha}, Beta: []float64{beta}}, graph.PointwiseArity(fn) == len(args)
	}
	switch op := n.Op.(type) {
	case *graph.Pointwise:
		return op, true
	case *graph.Unary:
		return one(string(op.Fn), op.Alpha, op.Beta)
	case *graph.Binary:
		return one(string(op.Fn), 0, 0)
	case *graph.Clip:
		for len(args) < 3 {
			args = append(args, -1)
		}
		for i, t := range n.Inputs {
			if t == graph.None {
				args[i] = -1
			}
		}
		return one(graph.PointwiseClip, 0, 0)
	}
	return nil, false
}

// fuse makes the current node the last of a fused operator, if there is one.
func (r *rewriter) fuse(n *graph.Node) bool {
	op, ok := r.elementwise(n)
	if !ok || len(n.Outputs) == 0 || n.Outputs[0] == graph.None {
		return false
	}
	out := n.Outputs[0]
	inside := map[*graph.Node]bool{n: true}
	order := []*graph.Node{n} // the last one first
	count := len(op.Fns)
	// A node joins once all that read it have: those come later in the graph.
	const window = 128 // bounds the work
	for i := len(r.out) - 1; i >= max(0, len(r.out)-window); i-- {
		p := r.out[i]
		if len(p.Outputs) != 1 || p.Outputs[0] == graph.None || !r.keeps(p.Outputs[0], out) {
			continue
		}
		t := p.Outputs[0]
		if r.Tensors[t].Persistent || r.reads[t] == 0 || r.node(t) != p || !r.readInside(t, order) {
			continue
		}
		q, ok := r.elementwise(p)
		if !ok || count+len(q.Fns) > graph.MaxPointwiseInstructions || r.operandCount(append(order, p)) > graph.MaxPointwiseOperands {
			continue
		}
		inside[p] = true
		order = append(order, p)
		count += len(q.Fns)
	}
	if len(order) == 1 {
		return false
	}
	slices.Reverse(order)
	return r.join(order)
}

// readInside reports whether nobody but some nodes reads t.
func (r *rewriter) readInside(t graph.TensorID, nodes []*graph.Node) bool {
	n := 0
	for _, p := range nodes {
		for _, x := range p.Inputs {
			if x == t {
				n++
			}
		}
	}
	return n == r.reads[t]
}

// operandCount returns how many different tensors some nodes, the last one
// first, read that those before it do not write.
func (r *rewriter) operandCount(nodes []*graph.Node) int {
	seen := map[graph.TensorID]bool{}
	for _, p := range nodes[1:] { // the first one, which comes last, may update a state
		seen[p.Outputs[0]] = true
	}
	n := 0
	for _, p := range nodes {
		for _, x := range p.Inputs {
			if x != graph.None && !seen[x] {
				seen[x] = true
				n++
			}
		}
	}
	return n
}

// join replaces the current node, the last of some in execution order, by one
// that computes all of them.
func (r *rewriter) join(nodes []*graph.Node) bool {
	var in []graph.TensorID
	written := map[graph.TensorID]bool{}
	for _, p := range nodes[:len(nodes)-1] { // the last one may update a state
		written[p.Outputs[0]] = true
	}
	value := map[graph.TensorID]int64{}
	for _, p := range nodes {
		for _, x := range p.Inputs {
			if _, ok := value[x]; !ok && x != graph.None && !written[x] {
				value[x] = int64(len(in))
				in = append(in, x)
			}
		}
	}
	all := &graph.Pointwise{}
	for _, p := range nodes {
		op, _ := r.elementwise(p)
		first := int64(len(in) + len(all.Fns)) // value of the first instruction
		for _, a := range op.Args {
			switch {
			case a < 0:
			case a < int64(len(p.Inputs)):
				a = value[p.Inputs[a]]
			default:
				a += first - int64(len(p.Inputs))
			}
			all.Args = append(all.Args, a)
		}
		all.Fns = append(all.Fns, op.Fns...)
		all.Alpha, all.Beta = append(all.Alpha, op.Alpha...), append(all.Beta, op.Beta...)
		value[p.Outputs[0]] = int64(len(in) + len(all.Fns) - 1)
	}
	for range len(nodes) - 1 {
		r.did("elementwise operators joined with those that follow")
	}
	return r.replace("loops", all, in...)
}
