package layout

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/bind"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/nchwc"
	"github.com/popefgen/popefgen/ipu/graph"
)

// Forced stands in for the cost model, so that tests try what it would not choose.
type Forced struct {
	NCHWc func() bool // reports whether a group of tensors is NCHWc
	NHWC  func() bool // reports whether a convolution of bytes is NHWC
	// fuse takes of at least two operators that may be fused the first so many, and
	// cuts them into tiles of so many blocks of channels and rows. Rows may be
	// other than 0 where byRows is true of what is taken. None are fused if take
	// is 0 or there is no kernel for them.
	Fuse func(most int, byRows func(take int) bool) (take int, blocks, rows int64)
}

// forced is what [forceLayout] was given last.
var forced Forced

// Force makes what follows decide as f says, where that is not nil, until
// restore is called. It is for tests, one at a time.
func Force(f Forced) (restore func()) {
	was := forced
	forced = f
	return func() { forced = was }
}

// planners returns how many goroutines decide: one where tests do, which are asked in order.
func (o *Options) planners() int {
	if forced.NCHWc != nil || forced.Fuse != nil || forced.NHWC != nil {
		return 1
	}
	return o.Threads
}

// choose decides which groups are NCHWc.
func (r *region) choose() {
	if forced.NCHWc == nil {
		r.decide()
		return
	}
	r.nchwc = make([]bool, len(r.members))
	for g := range r.nchwc {
		r.nchwc[g] = forced.NCHWc()
	}
}

// pays reports whether a convolution of x with w to y is better NHWC.
func (p *nhwcRegion) pays(op *graph.IntegerConv, x, w, y graph.TensorID) bool {
	if forced.NHWC == nil {
		return p.pay(op, x, w, y)
	}
	return forced.NHWC()
}

// fuseNodes returns fused tiles of as many of some nodes as are worth it, nil if none are,
// with their kernel.
func (r *region) fuseNodes(members []int) (*graph.Node, bind.Made) {
	if forced.Fuse == nil {
		return r.fuse(members)
	}
	if len(members) < 2 {
		return nil, bind.Made{}
	}
	types := func(take int) (op *nchwc.FusedTiles, n *graph.Node, types [][]graph.TensorType) {
		n = r.fusedTiles(members[:take])
		op = n.Op.(*nchwc.FusedTiles)
		types, err := op.Types(r.types(n.Inputs))
		if err != nil {
			return op, n, nil
		}
		return op, n, types
	}
	take, blocks, rows := forced.Fuse(len(members), func(take int) bool {
		op, _, all := types(take)
		return all != nil && r.byRows(op, all)
	})
	if take == 0 {
		return nil, bind.Made{}
	}
	op, n, _ := types(take)
	op.Blocks, op.Rows = blocks, rows
	k, ok := r.kernel(op, r.types(n.Inputs))
	if !ok {
		return nil, k
	}
	return n, k
}
