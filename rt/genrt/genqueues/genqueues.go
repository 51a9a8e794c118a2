// Package genqueues is what the type Queues of generated packages links beside
// package genrt. Packages that are generated without Queues do without it, and
// without package modelrt.
package genqueues

import (
	"context"
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
	"github.com/popefgen/popefgen/rt/internal/callerr"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// Core is what a generated Queues is built around: it opens the model and
// its queues, and lines requests up. The zero QueuesCore behaves as if closed.
type Core struct {
	genrt.Core
	group *modelrt.QueueGroup // nil before Open
}

// Open is [Core.Open] for queues: run inputs and outputs are connected to
// queues, which config sizes, and bindings are those of the other anchors. It
// fails with [rt.ErrOption] for options and fields of config that decide what the
// generated code does.
func (c *Core) Open(ctx context.Context, spec *genrt.Spec, source genrt.Source, bindings []genrt.Binding, config modelrt.QueueConfig, opts ...rt.RunnerOption) error {
	if config.Inputs != nil || config.Outputs != nil || config.Batch != nil {
		return callerr.Subject{Model: "package " + spec.Package}.Errorf("open queues",
			fmt.Errorf("QueueConfig: %w: Inputs, Outputs and Batch follow from the generated code", rt.ErrOption))
	}
	return c.OpenSession(ctx, spec, source, bindings, func(s rt.Session, ports []genrt.Port) (err error) {
		c.group, err = connectQueues(ctx, s, ports, config, max(1, spec.Batch))
		return err
	}, opts...)
}

// connectQueues makes the queues of ports that are not frozen, and the group of
// them in their order.
func connectQueues(ctx context.Context, s rt.Session, ports []genrt.Port, config modelrt.QueueConfig, batch int) (*modelrt.QueueGroup, error) {
	var handles []string
	for _, p := range ports {
		if !p.Frozen {
			handles = append(handles, p.Handle)
		}
		if p.Anchor.Blocks != 1 { // its samples do not lie side by side
			batch = 1
		}
	}
	user := func(a modelrt.Anchor) modelrt.CallbackPolicy {
		if slices.Contains(handles, a.Handle) {
			return modelrt.BindUser
		}
		return modelrt.SkipBind
	}
	config.Inputs, config.Outputs = user, user
	config.Batch = func(modelrt.Anchor) int { return batch }
	m, err := modelrt.NewQueueManager(ctx, s, config)
	if err != nil {
		return nil, err
	}
	var queues []modelrt.Queue
	for _, h := range handles {
		for _, q := range m.Inputs() {
			if q.Anchor().Handle == h {
				queues = append(queues, q)
			}
		}
		for _, q := range m.Outputs() {
			if q.Anchor().Handle == h {
				queues = append(queues, q)
			}
		}
	}
	return m.Group(queues...)
}

// Run is [modelrt.QueueManager.Run].
func (c *Core) Run(ctx context.Context) error {
	if m := c.Manager(); m != nil {
		return m.Run(ctx)
	}
	return rt.ErrClosed
}

// Enqueue enqueues a request, see [modelrt.QueueGroup.Enqueue]: its parts are the memory
// of all run inputs and run outputs of the specification, in its order. Those of
// frozen inputs are left out. parts is overwritten.
func (c *Core) Enqueue(ctx context.Context, parts ...[]byte) (rt.Ticket, error) {
	if c.group == nil {
		return rt.Ticket{}, rt.ErrClosed
	}
	return c.group.Enqueue(ctx, c.thawed(parts)...)
}

// TryEnqueue is Enqueue that does not wait: [rt.ErrQueueFull].
func (c *Core) TryEnqueue(parts ...[]byte) (rt.Ticket, error) {
	if c.group == nil {
		return rt.Ticket{}, rt.ErrClosed
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

// Flush is [modelrt.QueueManager.FlushAll].
func (c *Core) Flush() error {
	if m := c.Manager(); m != nil {
		return m.FlushAll()
	}
	return rt.ErrClosed
}

// Manager returns the queues that Open made, nil if it did not.
func (c *Core) Manager() *modelrt.QueueManager {
	s := c.Session(0)
	if s == nil {
		return nil
	}
	return modelrt.Queues(s)
}
