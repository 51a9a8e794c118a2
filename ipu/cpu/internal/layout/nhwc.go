package layout

import (
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/nhwc"
	"github.com/popefgen/popefgen/ipu/cpu/internal/workers"
	"github.com/popefgen/popefgen/ipu/graph"
)

// Activations of bytes have a layout of their own, which is decided before
// that of the others: convolutions to bytes read and write NHWC (see
// [nhwc.Conv]), and what stands between them does too where it can:
// additions, maxima and concatenations of floats that were converted from
// bytes and are made bytes again. What other operators read or write is
// converted.

// inNHWC returns a copy of exe in which activations of bytes are in NHWC
// where there are kernels for that, or exe itself. Tensors of exe keep their
// numbers.
func inNHWC(exe *graph.Executable, o Options) (*graph.Executable, Origins) {
	if !nhwc.Supported() || !slices.ContainsFunc(exe.Graphs, func(g graph.Graph) bool {
		return slices.ContainsFunc(g.Nodes, func(n graph.Node) bool { _, ok := n.Op.(*graph.IntegerConv); return ok })
	}) {
		return exe, nil
	}
	l := &layout{given: exe, Options: o}
	l.survey()
	regions := make([]*region, len(exe.Graphs))
	workers.Each(o.planners(), len(regions), func(g int) {
		p := nhwcRegion{region: l.region(graph.GraphID(g)), maxima: map[graph.TensorID]*graph.Node{}}
		p.write()
		regions[g] = p.region
	})
	out, from, _ := l.joined(regions)
	return out, from
}

// nhwcRegion is one graph while its activations of bytes become NHWC. The
// blocked tensors of the region are those in NHWC.
type nhwcRegion struct {
	*region
	maxima map[graph.TensorID]*graph.Node // by maxima of floats, what would convert those on NHWC to them
}

// write makes the graph's nodes.
func (p *nhwcRegion) write() {
	for i := range p.nodes {
		n := &p.nodes[i]
		done := false
		switch op := n.Op.(type) {
		case *graph.IntegerConv:
			done = p.convolution(i, op)
		case *graph.MaxPool:
			done = p.most(i, op)
		case *graph.Quantize:
			done = p.binary(i, op) || p.moved(i, op) || p.looked(i, op)
		}
		if done {
			continue
		}
		for _, t := range n.Inputs {
			p.asNCHW(t)
		}
		p.add(*n, i)
	}
	for _, t := range p.given.Graphs[p.g].Results {
		p.asNCHW(t)
	}
	p.drop()
}

// drop removes nodes whose results nobody reads any more.
func (p *nhwcRegion) drop() {
	used := map[graph.TensorID]bool{}
	var nodes []graph.Node
	var from []int
	for i := len(p.out) - 1; i >= 0; i-- {
		n := p.out[i]
		keep := len(p.blocked) == 0
		switch n.Op.(type) {
		case *graph.Dequantize, *graph.Binary, *graph.Unary, *graph.Clip, *graph.Pointwise, *graph.MaxPool, *graph.Concat, *graph.Reshape,
			*nhwc.FromNHWC, *nhwc.ToNHWC, *nhwc.MaxPool:
		default:
			keep = true
		}
		for _, t := range n.Outputs {
			keep = keep || t != graph.None && (used[t] || int(t) < len(p.outside) && (p.outside[t] || p.writers[t] != 1))
		}
		if !keep {
			continue
		}
		for _, t := range n.Inputs {
			used[t] = true
		}
		nodes, from = append(nodes, n), append(from, p.from[i])
	}
	slices.Reverse(nodes)
	slices.Reverse(from)
	p.out, p.from, p.kernels = nodes, from, nil
}

// bytes reports whether a tensor may be in NHWC.
func (p *nhwcRegion) bytes(t graph.TensorID) bool {
	if t == graph.None {
		return false
	}
	e := &p.given.Tensors[t]
	return !e.Const && !e.Persistent && p.writers[t] == 1 && (e.Type.DType == graph.I8 || e.Type.DType == graph.U8) &&
		e.Type.Rank() >= 3 && e.Type.Rank() <= 4 && e.Type.Elements() > 0 && p.steady(t)
}

func (p *nhwcRegion) signed(t graph.TensorID) bool { return p.typ(t).DType == graph.I8 }

// asNHWC returns the tensor that holds t in NHWC, for node i.
func (p *nhwcRegion) asNHWC(t graph.TensorID, i int) graph.TensorID {
	if b, ok := p.blocked[t]; ok {
		return b
	}
	b := p.tensor(t, nhwc.Type(p.typ(t).Shape))
	p.add(graph.Node{Op: &nhwc.ToNHWC{}, Name: p.nodes[i].Name, Inputs: []graph.TensorID{t}, Outputs: []graph.TensorID{b}}, i)
	p.blocked[t], p.planar[t] = b, true
	return b
}

// asNCHW makes t itself hold its value.
func (p *nhwcRegion) asNCHW(t graph.TensorID) {
	b, ok := p.blocked[t]
	if !ok || p.planar[t] {
		return
	}
	def := p.def[t]
	p.add(graph.Node{Op: &nhwc.FromNHWC{Channels: p.typ(t).Shape[1], Signed: p.signed(t)}, Name: p.nodes[def].Name,
		Inputs: []graph.TensorID{b}, Outputs: []graph.TensorID{t}}, def)
	p.planar[t] = true
}

// makes adds a node that makes y in NHWC, in place of node i.
func (p *nhwcRegion) makes(y graph.TensorID, op graph.Op, i int, in ...graph.TensorID) bool {
	b := p.tensor(y, nhwc.Type(p.typ(y).Shape))
	p.add(graph.Node{Op: op, Name: p.nodes[i].Name, Inputs: in, Outputs: []graph.TensorID{b}}, i)
	p.blocked[y] = b
	if p.outside[y] {
		p.asNCHW(y)
	}
	return true
}

// convolution makes node i one on NHWC.
func (p *nhwcRegion) convolution(i int, op *graph.IntegerConv) bool {
	n := &p.nodes[i]
	x, w, y := n.Inputs[0], n.Inputs[1], n.Outputs[0]
	const few = 3 // channels; fewer are better gathered along lines
	if !p.bytes(x) || !p.bytes(y) || p.typ(x).Shape[1] < few || !p.middle(w, operand(n, 3)) ||
		!nhwc.ConvFits(op, p.typ(x).Shape[1], p.typ(w).Shape) || !p.pays(op, x, w, y) {
		return false
	}
	in := slices.Clone(n.Inputs)
	for _, t := range in[1:] {
		p.asNCHW(t)
	}
	in[0] = p.asNHWC(x, i)
	return p.makes(y, &nhwc.Conv{IntegerConv: *op, Channels: p.typ(x).Shape[1], Signed: p.signed(x)}, i, in...)
}

// operand returns operand k of a node, None if it is left out.
func operand(n *graph.Node, k int) graph.TensorID {
	if k < len(n.Inputs) {
		return n.Inputs[k]
	}
	return graph.None
}

// middle reports whether weights are such that, made signed, they have no zero point.
func (p *nhwcRegion) middle(w, zero graph.TensorID) bool {
	want := byte(0)
	if p.typ(w).DType == graph.U8 {
		want = 128
	}
	if zero == graph.None {
		return want == 0
	}
	e := &p.given.Tensors[zero]
	return e.Const && !slices.ContainsFunc(e.Data, func(b byte) bool { return b != want })
}

// step returns the scale of a Quantize or Dequantize, if it is one that is
// known and far from the ends of what a float holds, and the zero point.
func (p *nhwcRegion) step(n *graph.Node) (scale float32, zero byte, ok bool) {
	const least, most = 1e-9, 1e9
	s := n.Inputs[1]
	v, ok := p.number(s)
	if !ok || p.typ(s).DType != graph.F32 || v < least || v > most {
		return 0, 0, false
	}
	if z := operand(n, 2); z != graph.None {
		e := &p.given.Tensors[z]
		if !e.Const || len(e.Data) != 1 {
			return 0, 0, false
		}
		zero = e.Data[0]
	}
	return float32(v), zero, true
}

// converted returns the Dequantize of bytes that writes t, or would if maxima
// of what were bytes were taken before they became floats.
func (p *nhwcRegion) converted(t graph.TensorID) *graph.Node {
	def, ok := p.def[t]
	if !ok {
		return nil
	}
	n := &p.nodes[def]
	switch op := n.Op.(type) {
	case *graph.MaxPool:
		return p.maximum(t, def, op)
	case *graph.Reshape: // what is left of a quantisation that changed nothing
		d := p.converted(n.Inputs[0])
		if d == nil || !slices.Equal(op.Shape, p.typ(n.Inputs[0]).Shape) || !p.steady(t) {
			return nil
		}
		return &graph.Node{Op: d.Op, Inputs: d.Inputs, Outputs: []graph.TensorID{t}}
	}
	op, ok := n.Op.(*graph.Dequantize)
	if !ok || op.To != graph.F32 || op.Block != 0 || !p.bytes(n.Inputs[0]) || !p.steady(t) {
		return nil
	}
	if _, _, ok := p.step(n); !ok {
		return nil
	}
	return n
}

// maximum is converted for maxima t of windows, which node i takes.
func (p *nhwcRegion) maximum(t graph.TensorID, i int, op *graph.MaxPool) *graph.Node {
	if n, ok := p.maxima[t]; ok {
		return n
	}
	n := &p.nodes[i]
	d := p.converted(n.Inputs[0])
	if d == nil || !p.windows(n, op) || !p.have(d.Inputs[0]) || !p.steady(t) {
		return nil
	}
	x := d.Inputs[0]
	y := p.tensor(t, graph.TensorType{DType: p.typ(x).DType, Shape: p.typ(t).Shape})
	p.blocked[y] = p.tensor(t, nhwc.Type(p.typ(t).Shape))
	p.add(graph.Node{Op: &nhwc.MaxPool{MaxPool: *op, Channels: p.typ(x).Shape[1]}, Name: n.Name,
		Inputs: []graph.TensorID{p.blocked[x]}, Outputs: []graph.TensorID{p.blocked[y]}}, i)
	p.maxima[t] = &graph.Node{Op: d.Op, Inputs: append([]graph.TensorID{y}, d.Inputs[1:]...), Outputs: []graph.TensorID{t}}
	return p.maxima[t]
}

// windows reports whether a MaxPool is one on NHWC.
func (p *nhwcRegion) windows(n *graph.Node, op *graph.MaxPool) bool {
	return resultOf(n, 1) == graph.None && slices.Min(slices.Concat(op.PadsBegin, op.PadsEnd)) >= 0
}

// result reports whether node i, a Quantize, makes bytes of one known scale.
func (p *nhwcRegion) result(i int, op *graph.Quantize) bool {
	n := &p.nodes[i]
	_, _, ok := p.step(n)
	return ok && op.Block == 0 && op.Precision == graph.F32 && p.bytes(n.Outputs[0]) && p.steady(n.Inputs[0])
}

// have reports whether one of some tensors is in NHWC already.
func (p *nhwcRegion) have(t ...graph.TensorID) bool {
	return slices.ContainsFunc(t, func(t graph.TensorID) bool { _, ok := p.blocked[t]; return ok })
}

// binary makes node i, which makes bytes of a sum or a product of what were
// bytes, one on NHWC.
func (p *nhwcRegion) binary(i int, op *graph.Quantize) bool {
	n := &p.nodes[i]
	if !p.result(i, op) {
		return false
	}
	fn, operands, low, high, bounded := p.operands(n.Inputs[0])
	if operands == nil {
		return false
	}
	a, b := p.converted(operands[0]), p.converted(operands[1])
	y := n.Outputs[0]
	if a == nil || b == nil || !p.have(a.Inputs[0], b.Inputs[0]) {
		return false
	}
	if !slices.Equal(p.typ(a.Inputs[0]).Shape, p.typ(y).Shape) {
		a, b = b, a
	}
	x := []graph.TensorID{a.Inputs[0], b.Inputs[0]}
	if s := p.typ(x[1]).Shape; !slices.Equal(p.typ(x[0]).Shape, p.typ(y).Shape) ||
		!slices.Equal(s, p.typ(y).Shape) && (len(s) != p.typ(y).Rank() || !slices.Equal(s[:2], p.typ(y).Shape[:2]) || positions(s) != 1) {
		return false
	}
	if s, _, _ := p.step(n); math.Float32bits(s)&(1<<23-1) == 1<<23-1 {
		return false // the one fraction by which quotients may be rounded wrongly
	}
	both := &nhwc.Binary{Fn: fn, Bounded: bounded, Low: low, High: high, Signed: [3]bool{p.signed(x[0]), p.signed(x[1]), p.signed(y)}}
	return p.makes(y, both, i, p.asNHWC(x[0], i), p.asNHWC(x[1], i), a.Inputs[1], b.Inputs[1], n.Inputs[1],
		operand(a, 2), operand(b, 2), operand(n, 2))
}

// operands returns the two tensors of which t is the sum or the product, kept within
// bounds.
func (p *nhwcRegion) operands(t graph.TensorID) (op graph.BinaryFn, x []graph.TensorID, low, high float64, bounded bool) {
	low, high = math.Inf(-1), math.Inf(1)
	def, ok := p.def[t]
	if !ok || !p.steady(t) {
		return "", nil, 0, 0, false
	}
	n := &p.nodes[def]
	switch n.Op.(type) {
	case *graph.Unary, *graph.Clip:
		if low, high, bounded = p.limits(n.Op, n.Inputs[1:]); !bounded {
			return "", nil, 0, 0, false
		}
		if def, ok = p.def[n.Inputs[0]]; !ok || !p.steady(n.Inputs[0]) {
			return "", nil, 0, 0, false
		}
		n = &p.nodes[def]
	}
	switch op := n.Op.(type) {
	case *graph.Binary:
		if op.Fn == graph.Add || op.Fn == graph.Mul {
			return op.Fn, n.Inputs, low, high, bounded
		}
	case *graph.Pointwise:
		fn := graph.BinaryFn(op.Fns[0])
		if len(op.Fns) > 2 || fn != graph.Add && fn != graph.Mul || max(op.Args[0], op.Args[1]) >= int64(len(n.Inputs)) || min(op.Args[0], op.Args[1]) < 0 {
			return "", nil, 0, 0, false
		}
		x = []graph.TensorID{n.Inputs[op.Args[0]], n.Inputs[op.Args[1]]}
		if len(op.Fns) == 1 {
			return fn, x, low, high, bounded
		}
		if bounded || op.Args[2] != int64(len(n.Inputs)) {
			return "", nil, 0, 0, false
		}
		var limit graph.Op = &graph.Unary{Fn: graph.UnaryFn(op.Fns[1])}
		if op.Fns[1] == graph.PointwiseClip {
			limit = &graph.Clip{}
		}
		var bounds []graph.TensorID
		for _, a := range op.Args[3:] {
			switch {
			case a < 0:
				bounds = append(bounds, graph.None)
			case a < int64(len(n.Inputs)):
				bounds = append(bounds, n.Inputs[a])
			default:
				return "", nil, 0, 0, false
			}
		}
		if low, high, bounded = p.limits(limit, bounds); bounded {
			return fn, x, low, high, true
		}
	}
	return "", nil, 0, 0, false
}

// moved makes node i, which makes bytes of what were bytes and were only compared
// or joined, one on NHWC, or nothing at all.
func (p *nhwcRegion) moved(i int, op *graph.Quantize) bool {
	n := &p.nodes[i]
	def, ok := p.def[n.Inputs[0]]
	if !ok || !p.result(i, op) {
		return false
	}
	from, y := &p.nodes[def], n.Outputs[0]
	if d := p.converted(n.Inputs[0]); d != nil && p.unchanged(d, n) && p.have(d.Inputs[0]) {
		p.blocked[y] = p.blocked[d.Inputs[0]]
		if p.outside[y] {
			p.asNCHW(y)
		}
		return true
	}
	join, ok := from.Op.(*graph.Concat)
	if !ok || join.Axis != 1 {
		return false
	}
	var x []*graph.Node
	same := true
	for _, t := range from.Inputs {
		d := p.converted(t)
		if d == nil {
			return false
		}
		same = same && p.unchanged(d, n)
		x = append(x, d)
	}
	return p.concat(i, y, x, same)
}

// unchanged reports whether a Quantize gives the very bytes that a Dequantize
// converted.
func (p *nhwcRegion) unchanged(d, q *graph.Node) bool {
	s, z, _ := p.step(d)
	scale, zero, _ := p.step(q)
	return s == scale && z == zero && p.typ(d.Inputs[0]).DType == p.typ(q.Outputs[0]).DType
}

// concat makes node i, which makes bytes y of what joins channels, an operator on
// NHWC.
func (p *nhwcRegion) concat(i int, y graph.TensorID, from []*graph.Node, same bool) bool {
	var x []graph.TensorID
	for k, d := range from {
		t := d.Inputs[0]
		if k < len(from)-1 && p.typ(t).Shape[1]%4 != 0 {
			return false
		}
		x = append(x, t)
	}
	if !p.have(x...) || !same && !nhwc.HasLookup() {
		return false
	}
	for k, t := range x {
		x[k] = p.asNHWC(t, i)
	}
	if same {
		return p.makes(y, &graph.Concat{Axis: int64(p.typ(y).Rank() - 1)}, i, x...)
	}
	for _, d := range from {
		t := graph.TensorID(graph.None)
		if !p.unchanged(d, &p.nodes[i]) {
			if t = p.table(d, nil, &p.nodes[i]); t == graph.None {
				return false
			}
		}
		x = append(x, t)
	}
	return p.makes(y, &nhwc.Concat{}, i, x...)
}

// most makes node i, maxima of windows of bytes, those on NHWC.
func (p *nhwcRegion) most(i int, op *graph.MaxPool) bool {
	n := &p.nodes[i]
	x, y := n.Inputs[0], n.Outputs[0]
	if !p.windows(n, op) || !p.bytes(x) || !p.bytes(y) || !p.have(x) {
		return false
	}
	return p.makes(y, &nhwc.MaxPool{MaxPool: *op, Channels: p.typ(x).Shape[1]}, i, p.blocked[x])
}

// resultOf returns result k of a node, None if it is left out.
func resultOf(n *graph.Node, k int) graph.TensorID {
	if k < len(n.Outputs) {
		return n.Outputs[k]
	}
	return graph.None
}
