package natsserve

import (
	"bytes"
	"context"
	"crypto/rand"
	"time"

	"github.com/popefgen/popefgen/serve/internal/agree"
	"github.com/popefgen/popefgen/serve/internal/wire"
	"github.com/popefgen/popefgen/serve/oip"
)

// agreed is what a client knows of the contracts of models.
type agreed = agree.Client

// Infer submits a request as a job with an id of its own and waits for the answer, so that typed clients work over a
// queue. If ctx ends first the job stays in the queue; it is not computed after the deadline of ctx.
func (c *Client) Infer(ctx context.Context, spec *oip.Spec, x oip.Exchange) error {
	for asked := 0; ; asked++ {
		hash, err := c.agreed.Hash(spec)
		if err != nil {
			return err
		}
		err = c.ask(ctx, spec, hash, x)
		if asked > 0 {
			return err
		}
		if again, err := c.agreed.Answer(spec, hash, err); !again {
			return err
		}
	}
}

// Close does nothing: the connection is the caller's.
func (c *Client) Close() error { return nil }

func (c *Client) ask(ctx context.Context, spec *oip.Spec, hash string, x oip.Exchange) error {
	var w wire.Writer
	until, limited := ctx.Deadline()
	w.Request(spec, hash, 0, x) // how long it may take is what the job says: it waits, too
	j := &Job{ID: rand.Text(), Model: spec.Name, Header: len(w.Text), Body: w.Text}
	for _, p := range w.Parts {
		j.Body = append(j.Body, p...)
	}
	if limited {
		j.Expires = until
	}
	if c.Trace != nil {
		j.Traceparent, j.Tracestate = c.Trace(ctx)
	}
	if err := c.Submit(ctx, j); err != nil {
		return contextual(ctx, err)
	}
	a, err := c.Await(ctx, j.ID)
	if err != nil {
		return contextual(ctx, err)
	}
	var r wire.Reader
	r.Reset(bytes.NewReader(a.Body), int64(len(a.Body)))
	if err := r.Answer(spec, x, int64(a.Header)); err != nil {
		return &oip.Error{Code: oip.Internal, Text: "answer of job " + j.ID + " for model '" + spec.Name + "': " + err.Error(), Cause: err}
	}
	return nil
}

// contextual returns the error of a caller whose time is over as the type that transports have.
func contextual(ctx context.Context, err error) error {
	var code oip.Code
	until, limited := ctx.Deadline()
	switch {
	case ctx.Err() == nil:
		return err
	case limited && !time.Now().Before(until):
		code = oip.Deadline
	default:
		code = oip.Canceled
	}
	return &oip.Error{Code: code, Text: err.Error(), Cause: err}
}

var _ oip.Transport = (*Client)(nil)
