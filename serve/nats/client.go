package natsserve

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/popefgen/popefgen/serve/oip"
)

// Client submits jobs and waits for their answers. Its methods may be called from any goroutine.
type Client struct {
	// Trace, unless nil, returns the headers of W3C Trace Context that the jobs of Infer have, for the context that it is called with. It is
	// set before the first call.
	Trace func(ctx context.Context) (traceparent, tracestate string)
	*queue
	nc     *nats.Conn
	agreed agreed
}

// NewClient returns a client over a connection, which stays the caller's to close. It makes the streams that do not
// exist yet.
func NewClient(ctx context.Context, nc *nats.Conn, c Config) (*Client, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("client of a queue: %w", err)
	}
	q, err := open(ctx, js, c)
	if err != nil {
		return nil, err
	}
	return &Client{queue: q, nc: nc}, nil
}

// Codes of JetStream's API that nats.go has no names for.
const (
	notStored     = 10077 // for a reason that the description says: a limit of the stream
	noResources   = 10023 // the server has no more room
	noMemory      = 10028
	noStorage     = 10047 // what a stream is to set aside is more than that
	tooManyStored = "maximum messages exceeded"
)

// full returns why there is no room for a job, "" if that is not what err says.
func (c *Config) full(err error) string {
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return ""
	}
	switch {
	case api.ErrorCode == notStored && api.Description == tooManyStored:
		return fmt.Sprintf("%d jobs wait already", c.MaxJobs)
	case api.ErrorCode == notStored:
		return "the jobs that wait take all the room that they may have: " + api.Description
	case api.ErrorCode == noResources, api.ErrorCode == noMemory, api.ErrorCode == noStorage:
		return "the NATS server has no room for it (max_file_store, max_memory_store, limits of the account): " + api.Description
	}
	return ""
}

// Submit puts a job into the queue. Once it returns nil, the job is stored. It may be called again with the same
// job after an error that leaves open whether the job is stored. The error is an *oip.Error with the code
// InvalidArgument for a job that can't be right, Exhausted if there is no room: MaxJobs wait already, or JobBytes, or the server's store is full.
func (c *Client) Submit(ctx context.Context, j *Job) error {
	m, err := c.message(j)
	if err != nil {
		return err
	}
	_, err = c.js.PublishMsg(ctx, m)
	why := c.full(err)
	switch {
	case why != "":
		return &oip.Error{Code: oip.Exhausted, Text: fmt.Sprintf("submit job %q: %s", j.ID, why), RetryAfter: c.RetryDelay, Cause: err}
	case errors.Is(err, nats.ErrMaxPayload):
		return &oip.Error{Code: oip.TooLarge, Text: fmt.Sprintf("submit job %q: its %d bytes are more than the %d of a message (max_payload of the NATS server)", j.ID, len(j.Body), c.nc.MaxPayload()), Cause: err}
	case err != nil:
		return fmt.Errorf("submit job %q: %w", j.ID, err)
	}
	return nil
}

// Await returns the answer of a job, as soon as it is stored. The error is an *oip.Error if that is what the job got,
// and another one if ctx ends first, or the server can't be asked.
func (c *Client) Await(ctx context.Context, id string) (Answer, error) {
	// What core NATS delivers says only that it is worth looking: the stream may have refused that message as
	// a second answer, and messages are lost while the connection is.
	hint := make(chan *nats.Msg, 1)
	sub, err := c.nc.ChanSubscribe(c.answerSubject(id), hint)
	if err != nil {
		return Answer{}, fmt.Errorf("await the answer of job %q: %w", id, err)
	}
	defer sub.Unsubscribe()
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		m, err := c.answers.GetLastMsgForSubject(ctx, c.answerSubject(id))
		switch {
		case err == nil:
			return answer(m.Header, m.Data)
		case ctx.Err() != nil:
			return Answer{}, fmt.Errorf("await the answer of job %q: %w", id, ctx.Err())
		case c.nc.IsClosed():
			return Answer{}, fmt.Errorf("await the answer of job %q: %w", id, nats.ErrConnectionClosed)
		}
		t := time.NewTimer(wait)
		select {
		case <-hint:
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
	}
}
