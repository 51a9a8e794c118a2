package weights

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/cpu/internal/align"
	"github.com/popefgen/popefgen/ipu/cpu/internal/plan"
	"github.com/popefgen/popefgen/ipu/graph"
)

// Set is a weight set: the persistent tensors that one program gives their values and that
// nothing changes afterwards: weights, what is computed from them, and what
// kernels make of both. The values depend on nothing but the executable and on
// what the program's streams deliver. Where each of these streams lends memory
// that does not change (ipu.Constant), engines that were lent the same memory
// have the values in common.
type Set struct {
	Program int              // index into Plan.Programs
	Streams []graph.StreamID // that decide the values
	Tensors []member
	Packs   []int  // into Plan.Packed
	bytes   int64  // of packs, aligned
	Skip    []bool // by step of the program: its results are values of the set and what only they are made of

	versions []*Version // that engines may join; guarded by Shared.weights
}

// member is one tensor of a set.
type member struct {
	Tensor graph.TensorID
	Stream graph.StreamID // that it is copied from; -1 for one that is computed
	Stored bool           // a node writes it row-major
}

// setsOf finds the weight sets of a plan, one a program at most. It takes programs
// that only load: without loops, branches and outputs.
func setsOf(p *plan.Plan) []Set {
	writers := map[graph.TensorID]int{}
	for i := range p.Programs {
		for _, s := range p.Programs[i].Steps {
			for _, o := range s.Out {
				if o.Place == plan.InPersistent {
					writers[graph.TensorID(o.Index)]++
				}
			}
		}
	}
	var all []Set
	for i := range p.Programs {
		if g := setOf(p, i, writers); g != nil {
			all = append(all, *g)
		}
	}
	return all
}

// setOf finds the weight set of a program: tensors that nothing else writes, and
// the program once, before it reads them, with what follows from its streams
// and constants.
func setOf(p *plan.Plan, n int, writers map[graph.TensorID]int) *Set {
	prog := &p.Programs[n]
	g := &Set{Program: n, Skip: make([]bool, len(prog.Steps))}
	members, read := map[graph.TensorID]bool{}, map[graph.TensorID]bool{}
	foreign := make([]bool, len(prog.Buffers)) // depends on other persistent tensors
	whole := func(buffer int) int {
		for prog.Buffers[buffer].Part {
			buffer = prog.Buffers[buffer].Within
		}
		return buffer
	}
	for i := range prog.Steps {
		s := &prog.Steps[i]
		switch s.Kind {
		case plan.CopyIn, plan.Compute, plan.Move, plan.Keep, plan.Share, plan.Begin:
		default:
			return nil
		}
		strange := false
		for _, o := range s.In {
			switch o.Place {
			case plan.InBuffer:
				strange = strange || foreign[whole(o.Index)]
			case plan.InPersistent, plan.InPacked:
				t := graph.TensorID(o.Index)
				if o.Place == plan.InPacked {
					if t = p.Packed[o.Index].Tensor; !p.IsPersistent(t) {
						continue
					}
				}
				read[t] = true
				strange = strange || !members[t]
			}
		}
		for _, o := range s.Out {
			switch o.Place {
			case plan.InBuffer:
				b := whole(o.Index)
				foreign[b] = foreign[b] || strange
				if s.Kind == plan.CopyIn {
					g.Streams = append(g.Streams, s.Stream)
				}
			case plan.InPersistent:
				t := graph.TensorID(o.Index)
				if writers[t] != 1 || strange || read[t] {
					continue
				}
				members[t] = true
				m := member{Tensor: t, Stream: -1, Stored: s.Kind != plan.CopyIn && s.Kind != plan.Keep}
				if s.Kind == plan.CopyIn {
					m.Stream = s.Stream
					g.Streams = append(g.Streams, s.Stream)
				}
				g.Tensors = append(g.Tensors, m)
			}
		}
	}
	if len(g.Tensors) == 0 {
		return nil
	}
	slices.Sort(g.Streams)
	g.Streams = slices.Compact(g.Streams)
	for i, k := range p.Packed {
		if members[k.Tensor] {
			g.Packs = append(g.Packs, i)
			g.bytes += align.Up(k.Bytes)
		}
	}
	// Steps that set other tensors, and what these are made of, are not skipped.
	needed := make([]bool, len(prog.Buffers))
	for i := len(prog.Steps) - 1; i >= 0; i-- {
		s := &prog.Steps[i]
		g.Skip[i] = true
		both := false
		for _, o := range s.Out {
			switch {
			case o.Place == plan.InPersistent && members[graph.TensorID(o.Index)]:
				both = true
			case o.Place == plan.InPersistent, o.Place == plan.InBuffer && needed[whole(o.Index)]:
				g.Skip[i] = false
			}
		}
		if g.Skip[i] {
			continue
		}
		if both {
			return nil // to compute the one again would be to write the other
		}
		for _, o := range s.In {
			if o.Place == plan.InBuffer {
				needed[whole(o.Index)] = true
			}
		}
	}
	return g
}
