package core

import (
	"context"

	"github.com/popefgen/popefgen/rt"
)

// follower is a request as the runtime knows it, which tells it what runs computed the request: the runtime makes
// batches of the samples of many. Requests to models that it tells nothing of are a run each.
type follower struct {
	version *Version
	call    *Call
	muted   bool
}

// Follow has the version count the runs, and its traces know the request again.
func (f *follower) Follow() (rt.RunObserver, any) {
	var mark any
	if t := f.version.core.traces; t != nil {
		mark = t.Mark(f.call.ctx)
	}
	return (*runCounter)(f.version), mark
}

// Ran notes a run that computed the request, or a part of it.
func (f *follower) Ran(r rt.Run) {
	c := f.call
	if c.runs++; c.runs == 1 {
		c.Times.Running = r.Begun
	}
	if r.Mark != nil {
		c.Batches = append(c.Batches, r.Mark)
	}
}

// Mute hides the follower from what is called with the request's context, until it is called with false: hooks may have other models
// compute.
func (f *follower) Mute(on bool) { f.muted = on }

// runCounter is a version, which learns of every run that computed requests to it.
type runCounter Version

// ObserveRun counts a run, and has the traces know of it.
func (n *runCounter) ObserveRun(r rt.Run, marks []any) any {
	if r.Err == nil {
		n.counts.ran(r.Samples, r.Padding(), r.Ended.Sub(r.Begun))
	}
	if t := n.core.traces; t != nil {
		return t.Ran((*Version)(n), r, marks)
	}
	return nil
}

// newCall returns the memory of a request, a *Call.
func (v *Version) newCall() any {
	c := &Call{Memory: v.model.NewCall(), place: make(chan struct{}, 1), ctx: context.Background(), computes: &callContext{}}
	c.follower = &follower{version: v, call: c}
	return c
}
