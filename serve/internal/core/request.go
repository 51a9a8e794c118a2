package core

import (
	"context"
	"time"

	"github.com/popefgen/popefgen/serve/internal/agree"
	"github.com/popefgen/popefgen/serve/oip"
)

// Refusal returns the error that a request would get now because the model's limit is reached or the server
// stops, nil if it would be taken. Protocols ask before they read a body.
func (v *Version) Refusal() error {
	var err error
	switch {
	case v.core.closing.Load():
		err = oip.Errorf(oip.Unavailable, "the server stops: ask another one")
	case v.gate.full():
		err = v.exhausted()
	default:
		return nil
	}
	v.counts.early.Add(1)
	return err
}

// Get returns memory for one request, whose time begins now.
func (v *Version) Get() *Call {
	c := v.calls.Get().(*Call)
	c.Request.Reset(v.Spec)
	c.Times = Times{Begun: time.Now()}
	v.counts.inFlight.Add(1)
	return c
}

// Put counts the request and gives the memory back. What Output returned is no longer valid.
func (v *Version) Put(c *Call) {
	c.Times.Ended = time.Now()
	err := c.Err
	if err == nil && !c.ran {
		err = errUnread
	}
	v.counts.end(c, err)
	for _, o := range v.core.observers {
		o.End(c.ctx, v, c, err)
	}
	v.counts.inFlight.Add(-1)
	if c.spoiled {
		return
	}
	c.Err, c.ctx, c.ran, c.until = nil, context.Background(), false, time.Time{}
	c.Protocol, c.Deadline, c.Received, c.Sent = REST, time.Time{}, 0, 0
	c.Traceparent, c.Tracestate = "", ""
	clear(c.Batches)
	c.Batches, c.runs = c.Batches[:0], 0
	v.calls.Put(c)
}

// errUnread is of requests that did not come to Run while their protocol did not say why.
var errUnread error = &oip.Error{Code: oip.InvalidArgument, Text: "the request could not be read"}

// Run waits until the model may compute the request and computes it. Its context is that of the
// transport: it ends when the caller is gone. The error is an *oip.Error.
func (v *Version) Run(ctx context.Context, c *Call) (err error) {
	c.ran = true
	for _, o := range v.core.observers {
		ctx = o.Begin(ctx, v, c)
	}
	c.ctx = ctx
	if err := v.compute(ctx, c); err != nil {
		c.Err = err
		return err
	}
	return nil
}

func (v *Version) compute(ctx context.Context, c *Call) error {
	if err := agree.Check(v.Spec, v.hash, c.Contract); err != nil {
		return err
	}
	c.until = c.Times.Begun.Add(v.limits.Timeout)
	if c.Timeout > 0 && c.Timeout < v.limits.Timeout {
		c.until = c.Times.Begun.Add(c.Timeout)
	}
	if !c.Deadline.IsZero() && c.Deadline.Before(c.until) {
		c.until = c.Deadline
	}
	c.Times.Queued = time.Now()
	if err := over(ctx, c, c.Times.Queued); err != nil {
		return Failure(v.Spec.Name, err)
	}
	room, wait := v.gate.take(c)
	if !room {
		return v.exhausted()
	}
	c.Times.Computing = c.Times.Queued
	if wait {
		if err := v.gate.await(ctx, c); err != nil {
			c.Times.Computing = time.Time{}
			return Failure(v.Spec.Name, err)
		}
		c.Times.Computing = time.Now()
		// Its place came as its time ended: the model does not see it.
		if err := over(ctx, c, c.Times.Computing); err != nil {
			v.gate.leave()
			c.Times.Computing = time.Time{}
			return Failure(v.Spec.Name, err)
		}
	}
	c.computes.begin(ctx, c.until, c.follower)
	if err := v.call(c); err != nil {
		return Failure(v.Spec.Name, err)
	}
	return nil
}

// over returns why the request should not go on at that time, nil if it should.
func over(ctx context.Context, c *Call, now time.Time) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !now.Before(c.until) {
		return context.DeadlineExceeded
	}
	return nil
}

// call has the model compute, and gives the place back however that ends.
func (v *Version) call(c *Call) (err error) {
	returned := false
	defer func() {
		if !returned {
			c.spoiled = true
			err = panicked(v.Spec.Name, recover())
			c.Err = err // if the goroutine ends by runtime.Goexit nobody else sets it
		}
		if !c.computes.end() {
			c.computes, c.Kept = &callContext{}, nil
		}
		c.Times.Computed = time.Now()
		v.gate.leave()
	}()
	err = c.Memory.Run(c.computes)
	returned = true
	return err
}
