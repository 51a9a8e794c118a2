package layout

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/cpu/internal/bind"
	"github.com/popefgen/popefgen/ipu/cpu/internal/costs"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/nchwc"
	"github.com/popefgen/popefgen/ipu/graph"
)

// Operators in NCHWc are fused to tiles, see [nchwc.FusedTiles],
// where what they hand on would not stay in the second-level cache.

// tilingBytes are the sizes that decide about tiling, by that of the second-level
// cache.
type tilingBytes struct {
	// What an operator's operand and result may take to be worth no tiling: they
	// are still in the cache for the next operator. Where several workers share
	// an operator each of them has to wait for the others.
	cached, shared int64
	// What a tile may take of the cache, what it may take where it
	// can't be any smaller, and what is enough for it.
	tile, large, enough int64
}

func tilingBytesOf(c *costs.Record) tilingBytes {
	const part = 8
	return tilingBytes{cached: c.CacheBytes, shared: c.CacheBytes / part, tile: c.CacheBytes - c.CacheBytes/part,
		large: 2 * (c.CacheBytes - c.CacheBytes/part), enough: 2 * c.CacheBytes / part}
}

// join fuses the nodes of a region.
func (r *region) join() {
	readers := map[graph.TensorID][]int{}
	for i := range r.out {
		for _, t := range r.out[i].Inputs {
			if t != graph.None {
				readers[t] = append(readers[t], i)
			}
		}
	}
	joined := make([]bool, len(r.out))
	type tiles struct {
		node   graph.Node
		kernel bind.Made
	}
	fused := map[int]tiles{} // by their last node
	for i := range r.out {
		if joined[i] || !r.linkable(i, true) {
			continue
		}
		members := []int{i}
		for {
			t := r.out[members[len(members)-1]].Outputs[0]
			if int(t) < len(r.given.Tensors) || len(readers[t]) != 1 {
				break
			}
			next := readers[t][0]
			if joined[next] || !r.linkable(next, false) || !r.follows(next, t) {
				break
			}
			members = append(members, next)
		}
		n, kernel := r.fuseNodes(members)
		if n == nil {
			continue
		}
		members = members[:len(n.Op.(*nchwc.FusedTiles).Members)]
		for _, m := range members {
			joined[m] = true
		}
		fused[members[len(members)-1]] = tiles{*n, kernel}
	}
	if len(fused) == 0 {
		return
	}
	nodes, from, kernels := r.out, r.from, r.kernels
	r.out, r.from, r.kernels = nil, nil, nil
	for i := range nodes {
		if f, ok := fused[i]; ok {
			r.addMade(f.node, from[i], f.kernel)
		} else if !joined[i] {
			r.addMade(nodes[i], from[i], kernels[i])
		}
	}
}

// linkable reports whether node i may be fused, as its first or further
// on.
func (r *region) linkable(i int, first bool) bool {
	n := &r.out[i]
	if len(n.Outputs) != 1 || slices.ContainsFunc(n.Inputs, func(t graph.TensorID) bool {
		return t != graph.None && int(t) < len(r.given.Tensors) && !r.steady(t)
	}) {
		return false
	}
	switch op := n.Op.(type) {
	case *nchwc.Conv:
		if !op.Out {
			return false
		}
		if op.Group > 1 {
			return op.In && op.Group == op.Channels
		}
		return first && (op.In || op.Channels < r.lanes)
	case *nchwc.ToNCHWc:
		return first
	case *nchwc.FromNCHWc:
		return !first
	case *nchwc.Pool, *nchwc.Resize:
		return true
	case *graph.Unary, *graph.Clip, *graph.Binary, *graph.Pointwise:
		return int(n.Outputs[0]) >= len(r.given.Tensors)
	}
	return false
}

// follows reports whether node next, which may be further on in fused tiles, computes
// the images and blocks of channels of t, the result of the node before, each from
// the same ones of t. Convolutions over all channels are none of those nodes,
// weights are never in NCHWc, and where there are as many blocks there are as many
// channels: fused nodes leave them alone.
func (r *region) follows(next int, t graph.TensorID) bool {
	n := &r.out[next]
	x, y := r.typ(t), r.typ(n.Outputs[0])
	if _, ok := n.Op.(*nchwc.FromNCHWc); ok {
		y = r.nchwcOf(y)
	}
	return x.Shape[0] == y.Shape[0] && x.Shape[1] == y.Shape[1]
}

// channels returns how many channels the result of node i has; those that fill
// up the last block count where nothing tells.
func (r *region) channels(i int) int64 {
	n := &r.out[i]
	switch op := n.Op.(type) {
	case *nchwc.Conv:
		return r.typ(n.Inputs[1]).Shape[0]
	case *nchwc.ToNCHWc:
		return r.typ(n.Inputs[0]).Shape[1]
	case *nchwc.FromNCHWc:
		return op.Channels
	}
	return r.counts[n.Outputs[0]]
}

// fuse returns the fused tiles of nodes, nil if that does not pay, with their kernel.
func (r *region) fuse(members []int) (*graph.Node, bind.Made) {
	for len(members) > 1 {
		n := r.fusedTiles(members)
		op := n.Op.(*nchwc.FusedTiles)
		if in := r.types(n.Inputs); r.cut(op, in) {
			if k, ok := r.kernel(op, in); ok {
				return n, k
			}
		}
		members = members[:len(members)-1]
	}
	return nil, bind.Made{}
}

// fusedTiles returns the fused tiles of nodes, which is not cut yet.
func (r *region) fusedTiles(members []int) *graph.Node {
	first, last := &r.out[members[0]], &r.out[members[len(members)-1]]
	op := &nchwc.FusedTiles{Channels: r.channels(members[0]), Lanes: r.lanes}
	n := &graph.Node{Op: op, Name: last.Name, Outputs: last.Outputs}
	if first.Name != last.Name {
		n.Name = first.Name + " … " + last.Name
	}
	previous := graph.None
	for _, m := range members {
		member := nchwc.FusedMember{Op: r.out[m].Op}
		for _, t := range r.out[m].Inputs {
			at := slices.Index(n.Inputs, t)
			switch {
			case t == graph.None:
				at = nchwc.OperandNone
			case t == previous:
				at = nchwc.OperandPrevious
			case at < 0:
				at = len(n.Inputs)
				n.Inputs = append(n.Inputs, t)
			}
			member.In = append(member.In, at)
		}
		op.Members = append(op.Members, member)
		previous = r.out[m].Outputs[0]
	}
	return n
}

func (r *region) types(tensors []graph.TensorID) []graph.TensorType {
	out := make([]graph.TensorType, len(tensors))
	for i, t := range tensors {
		out[i] = r.typ(t)
	}
	return out
}

// cut chooses the tiles of fused nodes and reports whether it pays.
func (r *region) cut(op *nchwc.FusedTiles, in []graph.TensorType) bool {
	types, err := op.Types(in)
	if err != nil {
		return false
	}
	sizes := tilingBytesOf(&r.Costs)
	least := sizes.cached
	if r.Threads > 1 {
		least = sizes.shared
	}
	large := false
	for m := range types {
		n := len(types[m]) - 1
		large = large || m > 0 && types[m][0].Bytes()+types[m][n].Bytes() > least
	}
	if !large {
		return false
	}
	op.Blocks, op.Rows = 1, 0
	if conv, ok := op.Members[0].Op.(*nchwc.Conv); ok && conv.Group == 1 {
		op.Blocks = 2 // as many as make a tile
		if positions(types[0][1].Shape) > 1 && op.Channels > 2*op.Lanes {
			return false // windows are laid out for all channels at once
		}
	}
	last := types[len(types)-1]
	out := last[len(last)-1]
	all := (op.Channels + op.Lanes - 1) / op.Lanes
	for tiles := out.Shape[0] * all; r.tileBytes(op, types) <= sizes.enough/2 && tiles/(2*op.Blocks) >= 4*int64(r.Threads); {
		op.Blocks *= 2
	}
	if r.tileBytes(op, types) > sizes.tile && r.byRows(op, types) {
		height := out.Shape[2]
		for parts := int64(2); parts <= height && (op.Rows == 0 || r.tileBytes(op, types) > sizes.tile); parts++ {
			op.Rows = (height + parts - 1) / parts
		}
		// Rows that windows of two tiles share are computed twice.
		if r.sharedRows(op, types)*8 > op.Rows {
			op.Rows = 0
		}
	}
	return r.tileBytes(op, types) <= sizes.large
}

// byRows reports whether tiles may be some rows: where all that it reads
// or writes but a convolution's operand and a depthwise convolution's result is
// in scratch memory.
func (r *region) byRows(op *nchwc.FusedTiles, types [][]graph.TensorType) bool {
	for m, member := range op.Members {
		conv, ok := member.Op.(*nchwc.Conv)
		switch member.Op.(type) {
		case *nchwc.Conv, *graph.Unary, *graph.Clip, *graph.Binary, *graph.Pointwise:
		default:
			return false
		}
		if types[m][0].Rank() < 4 || types[m][len(types[m])-1].Rank() != 5 {
			return false
		}
		for i, at := range member.In {
			switch {
			case at < 0 || ok && i < 3:
			case ok || types[m][i].Elements() > 1 && types[m][i].Shape[2] > 1:
				return false
			}
		}
		if ok && m == 0 && conv.Group > 1 && member.In[0] < 0 {
			return false
		}
	}
	return true
}

// sharedRows returns how many rows of the result those that members compute twice
// for two tiles are worth, on the average of the members.
func (r *region) sharedRows(op *nchwc.FusedTiles, types [][]graph.TensorType) int64 {
	shared, sum, down := int64(0), int64(0), int64(1)
	for m := len(types) - 1; m > 0; m-- {
		if conv, ok := op.Members[m].Op.(*nchwc.Conv); ok {
			down *= conv.Strides[0]
			shared = shared*conv.Strides[0] + max(0, (types[m][1].Shape[2]-1)*conv.Dilations[0]+1-conv.Strides[0])
		}
		sum += shared / down
	}
	return sum / int64(len(types))
}

// tileBytes estimates what a tile reads and writes between
// members at a time.
func (r *region) tileBytes(op *nchwc.FusedTiles, types [][]graph.TensorType) (most int64) {
	for m := range types {
		n := len(types[m]) - 1
		x, y := types[m][0], types[m][n]
		part := func(t graph.TensorType, all bool) int64 {
			bytes := t.Bytes() / t.Shape[0]
			if !all {
				bytes = bytes / t.Shape[1] * op.Blocks
				if t.Rank() == types[m][n].Rank()-1 {
					bytes *= op.Lanes // planes
				}
			}
			return bytes
		}
		conv, ok := op.Members[m].Op.(*nchwc.Conv)
		bytes := part(x, ok && conv.Group == 1) + part(y, false)
		if op.Rows > 0 {
			last := types[len(types)-1]
			height := last[len(last)-1].Shape[2]
			bytes = bytes * op.Rows / height
		}
		most = max(most, bytes)
	}
	return most
}

// kernel returns a kernel for fused tiles, if there is one.
func (r *region) kernel(op *nchwc.FusedTiles, in []graph.TensorType) (bind.Made, bool) {
	out, err := op.Infer(in)
	if err != nil {
		return bind.Made{}, false
	}
	k, err := bind.Make(op, in, out, r.Memory)
	return r.keep(k), err == nil
}
