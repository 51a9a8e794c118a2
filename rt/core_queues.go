package rt

import (
	"context"
	"fmt"
	"slices"
)

// OpenQueues is [Core.Open] for a generated Queues: run inputs and outputs are
// connected to queues, which config sizes, and bindings are those of the other
// anchors. The core then has one replica, and of its methods those that make
// requests are EnqueueParts and TryEnqueueParts. It fails with [ErrOption] for
// options and fields of config that decide what the generated code does.
func (c *Core) OpenQueues(ctx context.Context, spec *Spec, source Source, bindings []Binding, config QueueConfig, opts ...RunnerOption) error {
	o, err := runnerOptions(opts)
	if err == nil {
		err = o.forRunner()
	}
	switch {
	case err != nil:
	case o.Replicas > 1:
		err = fmt.Errorf("WithReplicas: %w: queues feed one session; open several", ErrOption)
	case config.Inputs != nil || config.Outputs != nil || config.Batch != nil:
		err = fmt.Errorf("QueueConfig: %w: Inputs, Outputs and Batch follow from the generated code", ErrOption)
	}
	if err == nil {
		ctx = o.onBudget(ctx)
		c.model, err = loadModel(ctx, source, o)
	}
	if err != nil {
		return subject{model: "package " + spec.Package}.errorf("open queues", err)
	}
	c.about = subject{model: modelName(c.model)}
	over := false // it is open, or was closed
	defer func() {
		if !over { // code of the caller has ended the goroutine
			_ = c.Close()
		}
	}()
	err = c.openQueues(ctx, spec, bindings, config, o)
	over = true
	if err != nil {
		return join(c.about.errorf("open queues", err), c.Close())
	}
	return nil
}

func (c *Core) openQueues(ctx context.Context, spec *Spec, bindings []Binding, config QueueConfig, o *options) error {
	found, err := agree(spec, c.model)
	if err != nil {
		return err
	}
	found.freeze(spec, o)
	s, err := newSession(ctx, c.model, found.contract, 0, o)
	if err != nil {
		return err
	}
	r := &replica{session: s}
	c.replicas, c.only, c.config = []*replica{r}, s, o.Config
	if err := s.begin(ctx); err != nil {
		return s.errorf("open queues", err)
	}
	defer s.gate.release(0)
	if err := c.connectQueues(r, spec, found, bindings, config); err != nil {
		return s.errorf("open queues", err)
	}
	if err := s.activate(ctx, 0); err != nil {
		return s.errorf("open queues", err)
	}
	return s.runLoad(ctx, 0)
}

// connectQueues connects everything to the streams of r, for who holds the gate.
func (c *Core) connectQueues(r *replica, spec *Spec, found *agreement, bindings []Binding, config QueueConfig) error {
	s := r.session
	for _, b := range bindings {
		if err := r.attach(spec, found, b); err != nil {
			return err
		}
	}
	if err := found.drop(s); err != nil {
		return err
	}
	var handles []string
	batch := spec.Batch
	for _, role := range []Role{RunInput, RunOutput} {
		for i, a := range spec.Anchors {
			if a.Role != role {
				continue
			}
			at := s.index(found.handles[i])
			if at < 0 {
				return fmt.Errorf("anchor %q: %w: the executable has no stream %q", a.Name, ErrUnknownStream, found.handles[i])
			}
			if a.Bytes != s.streams[at].Bytes {
				return fmt.Errorf("anchor %q: %w: %s is %d bytes, and the executable moves %d", a.Name, ErrGenerated, a.GoName, a.Bytes, s.streams[at].Bytes)
			}
			if n := s.moving(at); n > 1 {
				return fmt.Errorf("anchor %q: %w: %d main programs move it, and each would take data of its own out of a queue: use Open", a.Name, ErrOption, n)
			}
			frozen := role == RunInput && s.ends[at] == frozen
			if role == RunInput {
				c.frozen = append(c.frozen, frozen)
			}
			if !frozen {
				handles = append(handles, found.handles[i])
			}
			if a.Blocks != 1 { // its samples do not lie side by side
				batch = 1
			}
		}
	}
	user := func(a Anchor) CallbackPolicy {
		if slices.Contains(handles, a.Handle) {
			return BindUser
		}
		return SkipBind
	}
	config.Inputs, config.Outputs = user, user
	config.Batch = func(Anchor) int { return max(1, batch) }
	m, err := s.makeQueues(config)
	if err != nil {
		return err
	}
	var queues []Queue
	for _, h := range handles {
		for _, q := range m.inputs {
			if q.anchor.Handle == h {
				queues = append(queues, q)
			}
		}
		for _, q := range m.outputs {
			if q.anchor.Handle == h {
				queues = append(queues, q)
			}
		}
	}
	if c.group, err = m.Group(queues...); err != nil {
		return err
	}
	return s.check(s.main)
}

// moving returns how many main programs move a stream.
func (s *Session) moving(stream int) int {
	n := 0
	for _, p := range s.streams[stream].Programs {
		if slices.Contains(s.main, p) {
			n++
		}
	}
	return n
}

// EnqueueParts enqueues a request, see [QueueGroup.Enqueue]: its parts are the
// memory of all run inputs and run outputs of the specification, in its order.
// Those of frozen inputs are left out. parts is overwritten.
func (c *Core) EnqueueParts(ctx context.Context, parts ...[]byte) (Ticket, error) {
	if c.group == nil {
		return Ticket{}, ErrClosed
	}
	return c.group.Enqueue(ctx, c.thawed(parts)...)
}

// TryEnqueueParts is EnqueueParts that does not wait: [ErrQueueFull].
func (c *Core) TryEnqueueParts(parts ...[]byte) (Ticket, error) {
	if c.group == nil {
		return Ticket{}, ErrClosed
	}
	return c.group.TryEnqueue(c.thawed(parts)...)
}

// thawed drops the parts of frozen inputs.
func (c *Core) thawed(parts [][]byte) [][]byte {
	n := 0
	for i, p := range parts {
		if !c.Frozen(i) {
			parts[n] = p
			n++
		}
	}
	return parts[:n]
}

// Queues returns the queues that OpenQueues made, nil if it did not.
func (c *Core) Queues() *QueueManager {
	if c.only == nil {
		return nil
	}
	return c.only.QueueManager()
}

// RunQueues is [QueueManager.Run].
func (c *Core) RunQueues(ctx context.Context) error {
	if m := c.Queues(); m != nil {
		return m.Run(ctx)
	}
	return ErrClosed
}

// FlushQueues is [QueueManager.FlushAll].
func (c *Core) FlushQueues() error {
	if m := c.Queues(); m != nil {
		return m.FlushAll()
	}
	return ErrClosed
}
