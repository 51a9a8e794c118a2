package cpu

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/plan"
	"sync/atomic"
	"time"
)

// NodeProfile is what one step of a program did over all runs since profiling
// was enabled.
type NodeProfile struct {
	Program int    // the program's index
	Step    int    // index into the plan's steps
	Name    string // the node's name, or the stream's handle
	Graph   string // the name of the node's graph; empty for stream copies
	Op      string // the operator's kind; empty for stream copies
	// Function is what the operator computes, where its kind does not say it:
	// "exp" of a Unary.
	Function string
	Kind     StepKind
	Calls    int64 // how often it ran
	Total    time.Duration
	// FLOPs is how many additions and multiplications of products and
	// convolutions one call has, 2·M·K·N for a product of [M,K] and [K,N]; 0
	// for operators that work on one element at a time.
	FLOPs float64
	// Bytes is how many bytes of memory one call has to read and write: every
	// operand and every result once, but the weights of a recurrence once for
	// every element of the sequence, and nothing where memory is shared.
	Bytes int64
	// Size is how many bytes of memory one call touches: Bytes without what is
	// read again.
	Size int64
}

// profile counts, per program and step of the plan.
type profile struct{ steps [][]counter }

type counter struct{ calls, nanoseconds atomic.Int64 }

// add counts an instruction of the step. Those that only ask for the host's
// memory, or hand it back, belong to another instruction's call; some do nothing.
func (c *counter) add(since time.Time, op opcode) {
	switch op {
	case opClaim, opComplete, opRelease, opPass, opNothing:
	default:
		c.calls.Add(1)
	}
	c.nanoseconds.Add(int64(time.Since(since)))
}

// EnableProfile starts counting from zero, or stops it. Profiling costs two
// readings of the clock per step; it may be switched while a program runs.
func (e *Engine) EnableProfile(on bool) {
	if !on {
		e.profile.Store(nil)
		return
	}
	p := &profile{steps: make([][]counter, len(e.plan.Programs))}
	for i := range p.steps {
		p.steps[i] = make([]counter, len(e.plan.Programs[i].Steps))
	}
	e.profile.Store(p)
}

// Profile returns the steps that were run since profiling was enabled, in the
// order of the plan. It is empty while profiling is off.
func (e *Engine) Profile() []NodeProfile {
	p := e.profile.Load()
	if p == nil {
		return nil
	}
	var out []NodeProfile
	for i, steps := range p.steps {
		g := &e.plan.Programs[i]
		for k := range steps {
			calls := steps[k].calls.Load()
			if calls == 0 {
				continue
			}
			s := &g.Steps[k]
			c := e.costOf(g, s)
			n := NodeProfile{Program: g.Index, Step: k, Name: s.Name, Op: s.Op, Kind: s.Kind,
				Calls: calls, Total: time.Duration(steps[k].nanoseconds.Load()), FLOPs: c.flops, Bytes: c.bytes, Size: c.size}
			switch s.Kind {
			case plan.Compute, plan.Move, plan.Share:
				n.Graph = e.exe.Graphs[s.Graph].Name
			}
			if s.Kind == plan.Compute {
				n.Function = function(e.exe.Graphs[s.Graph].Nodes[s.Node].Op)
			}
			out = append(out, n)
		}
	}
	return out
}
