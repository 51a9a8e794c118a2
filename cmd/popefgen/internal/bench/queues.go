package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/popefgen/popefgen/rt"
)

// queued is a session that one goroutine runs again and again, and whose
// queues clients fill.
type queued struct {
	session *rt.Session
	inputs  []*rt.InputQueue
	outputs []*rt.OutputQueue
	mu      sync.Mutex // a request goes to all queues before the next one does

	failed chan struct{} // closed when the session ran no more
	err    error         // why; written before
}

// openQueues opens a session with queues for every stream that a run moves.
func (t *Target) openQueues(ctx context.Context, c Config) (*driver, error) {
	s, end, err := t.session(ctx)
	if err != nil {
		return nil, err
	}
	q := &queued{session: s, failed: make(chan struct{})}
	d, err := q.open(ctx, t, c)
	if err != nil {
		return nil, errors.Join(err, end())
	}
	go q.run(ctx)
	d.close = func() error {
		err := end() // the session's Run returns
		<-q.failed
		return err
	}
	return d, nil
}

func (q *queued) open(ctx context.Context, t *Target, c Config) (*driver, error) {
	contractOf := q.session.Contract()
	m, err := q.session.NewQueueManager(ctx, rt.QueueConfig{RingSize: rt.RingSizeForMain(contractOf, max(2, c.Clients*c.InFlight), 1)})
	if err != nil {
		return nil, err
	}
	for _, in := range t.Inputs {
		queue, err := m.InputQueue(in.Anchor.Handle)
		if err != nil {
			return nil, err
		}
		q.inputs = append(q.inputs, queue)
	}
	for _, a := range outputs(contractOf) {
		i := slices.IndexFunc(m.Outputs(), func(o *rt.OutputQueue) bool { return o.Anchor().Handle == a.Handle })
		q.outputs = append(q.outputs, m.Outputs()[i])
	}
	if len(q.inputs)+len(q.outputs) == 0 {
		return nil, errors.New("--mode queues: the model has no inputs and outputs that could be enqueued")
	}
	d := &driver{}
	for i := range c.Clients {
		client := &enqueuer{ctx: ctx, queued: q, turns: turns{inputs: t.Inputs, at: i}, in: make([][]byte, len(t.Inputs))}
		for range c.InFlight {
			out, err := memories(contractOf)
			if err != nil {
				return nil, err
			}
			client.slots = append(client.slots, newPending(out, len(t.Inputs)+len(out)))
		}
		d.clients = append(d.clients, client)
	}
	return d, nil
}

// run is the device's side.
func (q *queued) run(ctx context.Context) {
	defer close(q.failed)
	for {
		if err := q.session.Run(ctx); err != nil {
			q.err = err
			q.session.QueueManager().DisconnectAll() // who waits for room gives up
			return
		}
	}
}

// pending is a request that was enqueued.
type pending struct {
	out   [][]byte
	parts int32 // tensors
	left  atomic.Int32
	err   atomic.Pointer[error]
	done  func(error)   // called for every tensor
	ended chan struct{} // capacity 1
}

func newPending(out [][]byte, parts int) *pending {
	p := &pending{out: out, parts: int32(parts), ended: make(chan struct{}, 1)}
	p.done = func(err error) {
		if err != nil {
			first := err // err itself shall not escape
			p.err.CompareAndSwap(nil, &first)
		}
		if p.left.Add(-1) == 0 {
			p.ended <- struct{}{}
		}
	}
	return p
}

// enqueuer is a client that fills queues.
type enqueuer struct {
	ctx    context.Context
	queued *queued
	turns  turns
	in     [][]byte
	slots  []*pending
}

func (c *enqueuer) start(slot int) error {
	p, q := c.slots[slot], c.queued
	p.left.Store(p.parts)
	c.turns.next(c.in)
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, queue := range q.outputs {
		if err := queue.Enqueue(c.ctx, rt.OutputData{Data: p.out[i], OnDone: p.done}); err != nil {
			return q.because(err)
		}
	}
	for i, queue := range q.inputs {
		if err := queue.Enqueue(c.ctx, rt.InputData{Data: c.in[i], OnDone: p.done}); err != nil {
			return q.because(err)
		}
	}
	return nil
}

func (c *enqueuer) finish(slot int) error {
	p := c.slots[slot]
	select {
	case <-p.ended:
		if err := p.err.Load(); err != nil {
			return c.queued.because(*err)
		}
		return nil
	case <-c.queued.failed:
		return c.queued.because(nil)
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}

// because returns why the device's side ended, if that is why a request failed.
func (q *queued) because(err error) error {
	if err == nil || errors.Is(err, rt.ErrDisconnected) {
		<-q.failed
		return fmt.Errorf("device side: %w", q.err)
	}
	return err
}
