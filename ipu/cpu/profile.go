package cpu

import (
	"sync/atomic"
	"time"
)

// NodeProfile is the time one step of a program took, over all runs since
// profiling was enabled.
type NodeProfile struct {
	Program int // the program's index
	Step    int // index into the plan's steps
	Name    string
	Op      string // the operator's kind; empty for stream copies
	Kind    StepKind
	Calls   int64
	Total   time.Duration
}

// profile counts, per program and step of the plan.
type profile struct{ steps [][]counter }

type counter struct{ calls, nanoseconds atomic.Int64 }

func (c *counter) add(since time.Time) {
	c.calls.Add(1)
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
			out = append(out, NodeProfile{Program: g.Index, Step: k, Name: s.Name, Op: s.Op, Kind: s.Kind,
				Calls: calls, Total: time.Duration(steps[k].nanoseconds.Load())})
		}
	}
	return out
}
