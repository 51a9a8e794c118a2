package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// queued is a session whose queues clients fill, and the goroutine that runs it.
type queued struct {
	session rt.Session
	group   *modelrt.QueueGroup

	ended chan struct{} // closed when the session ran no more
	err   error         // why; written before
}

// openQueues opens a session with queues for every stream that a run moves.
func (t *Target) openQueues(ctx context.Context, c Config) (*driver, error) {
	s, end, err := t.session(ctx)
	if err != nil {
		return nil, err
	}
	q := &queued{session: s, ended: make(chan struct{})}
	d, err := q.open(ctx, t, c)
	if err != nil {
		return nil, errors.Join(err, end())
	}
	go func() {
		defer close(q.ended)
		q.err = modelrt.Queues(s).Run(ctx)
	}()
	d.close = func() error {
		err := end() // Run returns
		<-q.ended
		return err
	}
	return d, nil
}

func (q *queued) open(ctx context.Context, t *Target, c Config) (*driver, error) {
	contractOf := q.session.Contract()
	m, err := modelrt.NewQueueManager(ctx, q.session, modelrt.QueueConfig{RingSize: modelrt.RingSizeForMain(contractOf, max(2, c.Clients*c.InFlight), 1)})
	if err != nil {
		return nil, err
	}
	var queues []modelrt.Queue
	for _, in := range t.Inputs {
		queue, err := m.InputQueue(in.Anchor.Handle)
		if err != nil {
			return nil, err
		}
		queues = append(queues, queue)
	}
	for _, a := range outputs(contractOf) {
		queue, err := m.OutputQueue(a.Handle)
		if err != nil {
			return nil, err
		}
		queues = append(queues, queue)
	}
	if len(queues) == 0 {
		return nil, errors.New("--mode queues: the model has no inputs and outputs that could be enqueued")
	}
	if q.group, err = m.Group(queues...); err != nil {
		return nil, err
	}
	d := &driver{}
	for i := range c.Clients {
		client := &enqueuer{ctx: ctx, queued: q, turns: turns{inputs: t.Inputs, at: i}, tickets: make([]rt.Ticket, c.InFlight)}
		for range c.InFlight {
			out, err := memories(contractOf)
			if err != nil {
				return nil, err
			}
			client.parts = append(client.parts, slices.Concat(make([][]byte, len(t.Inputs)), out))
		}
		d.clients = append(d.clients, client)
	}
	return d, nil
}

// enqueuer is a client that fills queues.
type enqueuer struct {
	ctx     context.Context
	queued  *queued
	turns   turns
	parts   [][][]byte // of each request in flight: inputs, then outputs
	tickets []rt.Ticket
}

func (c *enqueuer) start(slot int) (err error) {
	parts := c.parts[slot]
	c.turns.next(parts[:len(c.turns.inputs)])
	c.tickets[slot], err = c.queued.group.Enqueue(c.ctx, parts...)
	return c.queued.because(err)
}

func (c *enqueuer) finish(slot int) error {
	return c.queued.because(c.tickets[slot].Wait(c.ctx))
}

// because returns why the device's side ended, if that is why a request failed.
func (q *queued) because(err error) error {
	if !errors.Is(err, modelrt.ErrDisconnected) {
		return err
	}
	<-q.ended
	if q.err == nil {
		return err
	}
	return fmt.Errorf("device side: %w", q.err)
}
