package layout

import (
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/cpu/internal/bind"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/nchwc"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
	"github.com/popefgen/popefgen/ipu/graph"
)

// unit is one or more nodes that become one node on NCHWc: a convolution,
// whose first operand may have another layout than the result, or an operator
// on single channels.
type unit struct {
	nodes  []int // of the graph, in order; the unit stands where the last one does
	op     graph.Op
	in     []graph.TensorID
	out    graph.TensorID
	tied   []int       // operands in the layout of the result
	spread []int       // operands with one element per channel
	conv   *nchwc.Conv // op, without In and Out
	slow   bool        // its kernel goes through planes
	kernel bind.Made   // for op with its operands in NCHWc, or none
}

// foldPads lets convolutions pad their operand with zeros themselves where a Pad
// does nothing else.
func (r *region) foldPads() {
	for i := range r.nodes {
		n := &r.nodes[i]
		op, ok := n.Op.(*graph.Pad)
		if !ok || op.Mode != graph.PadConstant || !r.movable(n.Outputs[0]) || !r.steady(n.Inputs[0]) || r.outside[n.Outputs[0]] ||
			slices.Min(op.Before) < 0 || slices.Min(op.After) < 0 || slices.Max(op.Before[:2]) > 0 || slices.Max(op.After[:2]) > 0 {
			continue
		}
		if len(n.Inputs) > 1 && n.Inputs[1] != graph.None {
			if v, ok := r.number(n.Inputs[1]); !ok || v != 0 || math.Signbit(v) {
				continue
			}
		}
		x, y := n.Inputs[0], n.Outputs[0]
		if slices.ContainsFunc(r.uses[y], func(k int) bool {
			_, ok := r.nodes[k].Op.(*graph.Conv)
			return !ok || slices.Contains(r.nodes[k].Inputs[1:], y)
		}) {
			continue
		}
		for _, k := range r.uses[y] {
			conv := *r.nodes[k].Op.(*graph.Conv)
			conv.PadsBegin, conv.PadsEnd = slices.Clone(conv.PadsBegin), slices.Clone(conv.PadsEnd)
			for axis := range conv.PadsBegin {
				conv.PadsBegin[axis] += op.Before[2+axis]
				conv.PadsEnd[axis] += op.After[2+axis]
			}
			in := slices.Clone(r.nodes[k].Inputs)
			in[0] = x
			r.nodes[k].Op, r.nodes[k].Inputs = &conv, in
		}
		r.uses[x] = append(slices.DeleteFunc(r.uses[x], func(k int) bool { return k == i }), r.uses[y]...)
		slices.Sort(r.uses[x])
		r.uses[y] = nil
		n.Op = nil
	}
}

// match finds the units. Later nodes come first, so that an addition finds the
// convolution that it belongs to before that becomes a unit of its own.
func (r *region) match() {
	r.at = make([]*unit, len(r.nodes))
	for i := len(r.nodes) - 1; i >= 0; i-- {
		if r.at[i] != nil || r.nodes[i].Op == nil {
			continue
		}
		u := r.residual(i)
		if u == nil {
			u = r.convolution(i)
		}
		if u == nil {
			u = r.single(i)
		}
		if u == nil {
			continue
		}
		for _, n := range u.nodes {
			r.at[n] = u
		}
		r.units = append(r.units, u)
	}
}

// movable reports whether a tensor may be in NCHWc.
func (r *region) movable(t graph.TensorID) bool {
	if t == graph.None {
		return false
	}
	e := &r.given.Tensors[t]
	if e.Const || e.Persistent || r.writers[t] != 1 || e.Type.DType != graph.F32 && e.Type.DType != graph.F16 ||
		e.Type.Rank() < 3 || e.Type.Rank() > 4 || e.Type.Elements() == 0 {
		return false
	}
	return r.steady(t)
}

// steady reports whether a tensor has one value wherever the graph reads it.
func (r *region) steady(t graph.TensorID) bool {
	if t == graph.None || r.given.Tensors[t].Const {
		return true
	}
	def, here := r.def[t]
	switch r.written[t] {
	case 0:
		return true
	case 1:
		return here && !slices.ContainsFunc(r.uses[t], func(n int) bool { return n <= def }) || !here && !r.inner[r.home[t]]
	}
	return false
}

// once reports whether nothing but one node reads a tensor, once.
func (r *region) once(t graph.TensorID) bool { return len(r.uses[t]) == 1 && !r.outside[t] }

func (r *region) typ(t graph.TensorID) graph.TensorType {
	if t == graph.None {
		return graph.TensorType{}
	}
	return r.entry(t).Type
}

// number returns the value of a constant of one float.
func (r *region) number(t graph.TensorID) (float64, bool) {
	e := &r.given.Tensors[t]
	if !e.Const || e.Type.Elements() != 1 || !e.Type.DType.IsFloat() {
		return 0, false
	}
	v := graph.Number(e.Type.DType, e.Data)
	return v, !math.IsNaN(v)
}

// convolution makes a unit of a convolution at node i.
func (r *region) convolution(i int) *unit {
	n := &r.nodes[i]
	op, ok := n.Op.(*graph.Conv)
	if !ok || !r.movable(n.Outputs[0]) {
		return nil
	}
	x, w := r.typ(n.Inputs[0]), r.typ(n.Inputs[1])
	if positions(x.Shape) == 1 || x.Shape[1] == 1 && w.Shape[0] == 1 {
		return nil // a product, or one channel alone
	}
	if op.Group > 1 && (op.Group != x.Shape[1] || op.Group != w.Shape[0]) {
		return nil
	}
	conv := &nchwc.Conv{Conv: *op, Lanes: r.lanes, Channels: x.Shape[1], Half: x.DType == graph.F16}
	u := &unit{nodes: []int{i}, op: conv, conv: conv, in: slices.Clone(n.Inputs), out: n.Outputs[0]}
	if op.Group > 1 {
		u.tied = []int{0} // single channels
	}
	for len(u.in) < 3 {
		u.in = append(u.in, graph.None)
	}
	if !r.fits(u) {
		return nil
	}
	return u
}

// positions returns how many positions a channel has.
func positions(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape[2:] {
		n *= d
	}
	return n
}

// residual makes a unit of a convolution and the addition, at node i, of
// another tensor to its result, with what limits the sum.
func (r *region) residual(i int) *unit {
	low, high, bounded := math.Inf(-1), math.Inf(1), false
	nodes := []int{i}
	n := &r.nodes[i]
	var limit *graph.Node
	switch op := n.Op.(type) {
	case *graph.Unary:
		if op.Fn == graph.Relu {
			limit = n
		}
	case *graph.Clip:
		limit = n
	}
	if limit != nil {
		if low, high, bounded = r.limits(limit.Op, limit.Inputs[1:]); !bounded {
			return nil
		}
		x := limit.Inputs[0]
		add, ok := r.def[x]
		if !ok || !r.movable(x) || !r.once(x) || r.at[add] != nil {
			return nil
		}
		n = &r.nodes[add]
		nodes = []int{add, i}
	}
	var addends []graph.TensorID
	switch op := n.Op.(type) {
	case *graph.Binary:
		if op.Fn == graph.Add {
			addends = n.Inputs
		}
	case *graph.Pointwise:
		if bounded || op.Fns[0] != string(graph.Add) || len(op.Fns) > 2 || op.Args[0] >= int64(len(n.Inputs)) || op.Args[1] >= int64(len(n.Inputs)) {
			return nil
		}
		addends = []graph.TensorID{n.Inputs[op.Args[0]], n.Inputs[op.Args[1]]}
		if len(op.Fns) == 2 {
			args := make([]graph.TensorID, len(op.Args)-2)
			for k, a := range op.Args[2:] {
				switch {
				case a < 0:
					args[k] = graph.None
				case a < int64(len(n.Inputs)):
					args[k] = n.Inputs[a]
				case k > 0:
					return nil
				}
			}
			var fn graph.Op = &graph.Unary{Fn: graph.UnaryFn(op.Fns[1])}
			if op.Fns[1] == graph.PointwiseClip {
				fn = &graph.Clip{}
			}
			if op.Args[2] != int64(len(n.Inputs)) {
				return nil
			}
			if low, high, bounded = r.limits(fn, args[1:]); !bounded {
				return nil
			}
		}
	}
	if len(addends) != 2 {
		return nil
	}
	var best *unit
	for k, y := range addends {
		at, ok := r.def[y]
		if !ok || !r.once(y) || r.at[at] != nil || best != nil && at < best.nodes[0] {
			continue
		}
		u, other := r.convolution(at), addends[1-k]
		if u == nil || u.conv.Bounded || !r.movable(other) || !r.typ(other).Equal(r.typ(y)) ||
			slices.ContainsFunc(u.in, func(t graph.TensorID) bool { return !r.steady(t) }) {
			continue
		}
		u.nodes = append(u.nodes, nodes...)
		u.conv.Bounded, u.conv.Low, u.conv.High = bounded, low, high
		u.in = append(u.in, other)
		u.tied = append(u.tied, 3)
		u.out = r.nodes[i].Outputs[0]
		if r.movable(u.out) && r.fits(u) {
			best = u
		}
	}
	return best
}

// limits returns what a rectifier or a Clip with the given bounds keeps its
// operand within.
func (r *region) limits(op graph.Op, bounds []graph.TensorID) (low, high float64, ok bool) {
	low, high = math.Inf(-1), math.Inf(1)
	switch op := op.(type) {
	case *graph.Unary:
		return 0, high, op.Fn == graph.Relu
	case *graph.Clip:
		for i, b := range []*float64{&low, &high} {
			if i >= len(bounds) || bounds[i] == graph.None {
				continue
			}
			if *b, ok = r.number(bounds[i]); !ok {
				return 0, 0, false
			}
		}
		return min(low, high), high, true // the upper bound is taken last
	}
	return 0, 0, false
}

// single makes a unit of an operator at node i that computes every channel by
// itself, or moves channels in whole blocks.
func (r *region) single(i int) *unit {
	n := &r.nodes[i]
	if len(n.Outputs) == 0 || len(n.Inputs) == 0 || !r.movable(n.Outputs[0]) ||
		slices.ContainsFunc(n.Outputs[1:], func(t graph.TensorID) bool { return t != graph.None }) {
		return nil
	}
	u := &unit{nodes: []int{i}, op: n.Op, in: n.Inputs, out: n.Outputs[0], tied: []int{0}}
	x, y := r.typ(u.in[0]), r.typ(u.out)
	half := y.DType == graph.F16
	ok := true
	switch op := n.Op.(type) {
	case *graph.Unary:
		if half && !vec.ExactOfHalf(op.Fn) {
			u.op = rounded(graph.Pointwise{Fns: []string{string(op.Fn)}, Args: []int64{0}, Alpha: []float64{op.Alpha}, Beta: []float64{op.Beta}})
		}
	case *graph.Clip:
		ok = !half
	case *graph.Binary:
		ok = !op.Fn.Compares() && r.elementwise(u)
		one := graph.Pointwise{Fns: []string{string(op.Fn)}, Args: []int64{0, 1}, Alpha: []float64{0}, Beta: []float64{0}}
		switch {
		case half:
			u.op = rounded(one)
		case len(u.spread) > 0:
			u.op = &one
		}
	case *graph.Pointwise:
		ok = r.elementwise(u)
		if half {
			u.op = rounded(*op)
		}
	case *graph.Concat:
		ok = r.concat(u, op)
	case *graph.Slice:
		u.op = r.slice(op, x.Shape)
	case *graph.Pad:
		u.op, u.in = r.pad(op, n.Inputs, half)
	case *graph.MaxPool:
		u.op = &nchwc.Pool{Pool: op}
	case *graph.AveragePool:
		ok = !half
		u.op = &nchwc.Pool{Pool: op}
		if wholePlanes(op, x.Shape) {
			// Its kernel for planes is that of a mean, which there is in NCHWc too.
			u.op = &graph.Reduce{Fn: graph.ReduceMean, Axes: positionAxes(x.Rank()), KeepDims: true}
		}
	case *graph.Resize:
		ok = !half
		u.op = &nchwc.Resize{Resize: *op}
	case *graph.Reduce:
		ok = !half && overPositions(op, x.Rank())
	default:
		return nil
	}
	if !ok || u.op == nil || !r.fits(u) {
		return nil
	}
	return u
}

// rounded returns p of numbers of half precision as they stand in NCHWc.
func rounded(p graph.Pointwise) graph.Op {
	return &vec.RoundedPointwise{Pointwise: p, To: graph.F16}
}

// elementwise sorts the operands of an operator on floats: those of the result's
// shape are tied to it, those of one element stay as they are, those
// with one element per channel are spread.
func (r *region) elementwise(u *unit) bool {
	u.tied = nil
	y := r.typ(u.out)
	for i, t := range u.in {
		x := r.typ(t)
		switch {
		case x.DType != y.DType:
			return false
		case x.Equal(y):
			u.tied = append(u.tied, i)
		case x.Elements() == 1 && x.Rank() <= y.Rank():
		case perChannelShape(x.Shape, y.Shape) != nil:
			u.spread = append(u.spread, i)
		default:
			return false
		}
	}
	return len(u.tied) > 0
}

// perChannelShape returns the shape [N,C,1,…] of a tensor of shape x that
// has one element for each channel of y, of one image or of each; nil if it
// has not.
func perChannelShape(x, y []int64) []int64 {
	full := slices.Concat(slices.Repeat([]int64{1}, max(0, len(y)-len(x))), x)
	if len(full) != len(y) || full[1] != y[1] || positions(full) != 1 {
		return nil
	}
	return full
}

// concat says how to join blocks: along the axis of channels, all but the last
// operand must fill theirs.
func (r *region) concat(u *unit, op *graph.Concat) bool {
	u.tied = nil
	for i, t := range u.in {
		if op.Axis == 1 && i < len(u.in)-1 && r.typ(t).Shape[1]%r.lanes != 0 {
			return false
		}
		u.tied = append(u.tied, i)
	}
	return true
}

// slice returns the slice of whole blocks that op is, or nil.
func (r *region) slice(op *graph.Slice, shape []int64) graph.Op {
	blocks := graph.Slice{Start: slices.Clone(op.Start), Size: slices.Clone(op.Size), Step: slices.Clone(op.Step)}
	if end := op.Start[1] + op.Size[1]; op.Start[1]%r.lanes != 0 || op.Step[1] != 1 || end%r.lanes != 0 && end != shape[1] {
		return nil
	}
	blocks.Start[1] /= r.lanes
	blocks.Size[1] = (op.Size[1] + r.lanes - 1) / r.lanes
	blocks.Start, blocks.Size, blocks.Step = append(blocks.Start, 0), append(blocks.Size, r.lanes), append(blocks.Step, 1)
	return &blocks
}

// pad returns the padding of positions in NCHWc that op is, with its
// operands, or nil. Half precision is padded with zeros only.
func (r *region) pad(op *graph.Pad, in []graph.TensorID, half bool) (graph.Op, []graph.TensorID) {
	if op.Before[1] != 0 || op.After[1] != 0 {
		return nil, in
	}
	if half && len(in) > 1 && in[1] != graph.None {
		if v, ok := r.number(in[1]); !ok || v != 0 || math.Signbit(v) {
			return nil, in
		}
		in = in[:1]
	}
	return &graph.Pad{Before: append(slices.Clone(op.Before), 0), After: append(slices.Clone(op.After), 0), Mode: op.Mode}, in
}

// wholePlanes reports whether a pooling of x has one window, all of a plane.
func wholePlanes(op *graph.AveragePool, x []int64) bool {
	for i, k := range op.Kernel {
		if k != x[2+i] || op.Dilations[i] != 1 || op.PadsBegin[i] != 0 || op.PadsEnd[i] != 0 || op.Ceil {
			return false
		}
	}
	return true
}

// positionAxes returns the axes of a tensor after images and channels.
func positionAxes(rank int) []int64 {
	var axes []int64
	for axis := 2; axis < rank; axis++ {
		axes = append(axes, int64(axis))
	}
	return axes
}

// overPositions reports whether a reduction is one over all positions of each
// channel, which are summed with more digits than the result has.
func overPositions(op *graph.Reduce, rank int) bool {
	switch op.Fn {
	case graph.ReduceMean, graph.ReduceMax, graph.ReduceMin, graph.ReduceSum:
	default:
		return false
	}
	return op.KeepDims && len(op.Axes) == rank-2 && len(op.Axes) > 0 && op.Axes[0] == 2
}

// fits reports whether a unit's operator takes its operands in NCHWc.
func (r *region) fits(u *unit) bool {
	in := make([]graph.TensorType, len(u.in))
	for i, t := range u.in {
		in[i] = r.typ(t)
		switch {
		case u.conv != nil && i == 0 && (in[0].Rank() < 3 || in[0].Rank() > 4):
			return false
		case slices.Contains(u.tied, i) && !r.movable(t):
			return false
		case slices.Contains(u.spread, i):
			in[i].Shape = perChannelShape(in[i].Shape, r.typ(u.out).Shape)
			in[i] = r.nchwcOf(in[i])
		case slices.Contains(u.tied, i), u.conv != nil && i == 0:
			in[i] = r.nchwcOf(in[i])
		}
	}
	op := u.op
	if u.conv != nil {
		c := *u.conv
		c.In, c.Out = true, true
		op = &c
	}
	out, err := op.Infer(in)
	if err != nil || !out[0].Equal(r.nchwcOf(r.typ(u.out))) {
		return false
	}
	k, err := bind.Make(op, in, out, r.Memory)
	u.slow = err == nil && nchwc.ThroughPlanes(k.Kernel)
	u.kernel = r.keep(k)
	return err == nil
}

// keep returns k, for the plan to use, or no kernel if those that are kept have large tables:
// they count on no budget before that.
func (l *layout) keep(k bind.Made) bind.Made {
	const part = 16
	if k.Kernel == nil || l.spare.Add(k.Tables) > l.Memory/part {
		return bind.Made{}
	}
	return k
}
