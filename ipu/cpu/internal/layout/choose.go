// Package layout decides how activations lie in memory: in NCHWc, the
// blocked layout, in NHWC where they are int8, or in the NCHW of the model, and which
// operators are fused and run depth-first, tile by tile. Its decisions follow a
// cost model (cost.go) over a record of what operators take on a machine. No bit of a
// result depends on them.
package layout

import (
	"fmt"

	"github.com/popefgen/popefgen/ipu/cpu/internal/bind"
	"github.com/popefgen/popefgen/ipu/cpu/internal/costs"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/nchwc"
	"github.com/popefgen/popefgen/ipu/graph"
)

// Options is what the decisions about layouts depend on.
type Options struct {
	Threads int
	Memory  int64 // bytes that the tables of a kernel may take
	Tiling  bool  // operators may become fused tiles
	NHWC    bool  // int8 activations may be NHWC
	Costs   costs.Record
}

// Choose returns a copy of exe in which activations are NHWC int8 or NCHWc where
// that saves time, with operators fused tile by tile, or exe itself, and for every
// node the node of exe that it comes from, with the kernels that it has made on the way.
// Tensors of exe keep their numbers. Graphs are looked at by as many goroutines as the plan
// is for; what is decided does not depend on that.
func Choose(exe *graph.Executable, o Options) (*graph.Executable, Origins, Kernels, Summary) {
	planar := exe
	var from, inner Origins
	var kernels Kernels
	if o.NHWC {
		planar, from = inNHWC(exe, o)
	}
	exe, inner, kernels = inNCHWc(planar, nchwc.Lanes(), o)
	return exe, from.through(inner), kernels, layoutOf(planar, exe)
}

// Kernels are, by graph and node, kernels that are made already. Each is good for one node.
type Kernels [][]bind.Made

// Of returns the kernel of node n of graph g, which may have none.
func (k Kernels) Of(g graph.GraphID, n int) bind.Made {
	if k == nil || n >= len(k[g]) {
		return bind.Made{}
	}
	return k[g][n]
}

// Origins tells, for every node of an executable in NCHWc, which node of the
// executable as it was given it comes from.
type Origins [][]int

// Of returns the node that node n of graph g comes from.
func (o Origins) Of(g graph.GraphID, n int) int {
	if o == nil {
		return n
	}
	return o[g][n]
}

// through returns the origins of nodes of which inner tells where they come
// from in an executable of which o tells the same.
func (o Origins) through(inner Origins) Origins {
	if o == nil || inner == nil {
		return append(o, inner...)
	}
	all := make(Origins, len(inner))
	for g := range inner {
		for _, n := range inner[g] {
			all[g] = append(all[g], o[g][n])
		}
	}
	return all
}

// Summary is how much is kept in NCHWc. It depends on the machine: on how many
// channels make a vector.
type Summary struct {
	Channels    int64 // of a block: the c of NCHWc
	Tensors     int   // in NCHWc
	Conversions int   // to NCHWc or back
	FusedTiles  int   // nodes that are several operators, tile by tile
}

// String returns it in words.
func (l Summary) String() string {
	if l.Tensors == 0 {
		return "no activation in NCHWc"
	}
	s := fmt.Sprintf("%d activations in NCHW%dc, %d conversions", l.Tensors, l.Channels, l.Conversions)
	if l.FusedTiles > 0 {
		s += fmt.Sprintf(", %d times fused tiles", l.FusedTiles)
	}
	return s
}

// layoutOf sums up what of an executable in NCHWc is so, beside the one as it
// was given.
func layoutOf(given, exe *graph.Executable) (l Summary) {
	if given == exe {
		return l
	}
	l.Channels = nchwc.Lanes()
	count := func(op graph.Op) {
		switch op.(type) {
		case *nchwc.ToNCHWc:
			l.Tensors++
			l.Conversions++
		case *nchwc.FromNCHWc:
			l.Conversions++
		default:
			l.Tensors++
		}
	}
	for g := range exe.Graphs {
		for _, n := range exe.Graphs[g].Nodes {
			switch op := n.Op.(type) {
			case *nchwc.FusedTiles:
				l.FusedTiles++
				for _, m := range op.Members {
					count(m.Op)
				}
			case *nchwc.FromNCHWc:
				count(op)
			case *graph.Reshape:
			default:
				if len(n.Outputs) > 0 && int(n.Outputs[0]) >= len(given.Tensors) {
					count(op)
				}
			}
		}
	}
	return l
}
