package genrt

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/hostmem"
	"github.com/popefgen/popefgen/rt/internal/line"
	"github.com/popefgen/popefgen/rt/internal/session"
)

// overlap serves the submitted requests of a replica in three steps, each in a goroutine
// of its own: their memory is given to the device, which may move their inputs, they are
// computed, their outputs are moved back. A request has a slot of the device from the first
// step to the last.
type overlap struct {
	core    *Core
	replica int
	session *session.Session
	engine  ipu.Stager
	program int
	bind    func(slot int)  // points ends at the memory of a request
	ends    []*hostmem.Span // of run inputs and then of run outputs, that belong to no engine; nil if frozen
	inputs  int             // of ends
	late    []bool          // by end: it is joined with others in a stream, which is moved when the request runs

	waiting atomic.Int64 // requests that have not ended
	flights []flight     // by slot of the queue
	free    chan int     // slots of the device
	loaded  chan int     // slots of the queue whose inputs were moved
	ran     chan int     // and that were computed
	served  sync.WaitGroup

	mu    sync.Mutex
	jobs  chan int // slots of the queue
	begun bool     // the steps have goroutines
	ended bool     // jobs is closed
}

// flight is a request in flight.
type flight struct {
	ctx    context.Context
	slot   int      // of the device
	mem    [][]byte // by end
	in     []ipu.Staged
	out    []ipu.Staged
	staged bool // the device has its data
	err    error
}

// overlapDepth returns how many requests a runner is to have in flight.
func (c *Core) overlapDepth(o *session.Options) (int, error) {
	depth := o.Overlap
	if depth == 0 {
		for _, option := range c.model.Metadata.EngineOptions {
			if option.Name == OverlapOption {
				if n, err := strconv.Atoi(option.Value); err == nil {
					depth = min(n, o.QueueDepth)
				}
			}
		}
		return depth, nil
	}
	if c.branches != nil { // its requests move other streams than those before them
		return 0, fmt.Errorf("WithOverlap: %w: the model is fused, and requests of its branches run one after another; leave the option out, or open the models apart", rt.ErrOption)
	}
	if depth > o.QueueDepth {
		return 0, fmt.Errorf("WithOverlap: %w: %d requests in flight, and the package's QueueDepth is %d; generate it with --queue %[2]d", rt.ErrOption, depth, o.QueueDepth)
	}
	return depth, nil
}

// OverlapOption is the engine option by which a model asks for requests in flight: their
// number.
const OverlapOption = "overlap"

// overlaps makes what serves a replica's submitted requests where its device gains by
// having several in flight; nil where it does not. bindings gives ends of the streams
// that no engine is connected to, and bind points those at the memory of a request.
func (c *Core) overlaps(i int, spec *Spec, found *agreement, depth int, bindings func() []Binding, bind func(slot int)) (*overlap, error) {
	s := c.replicas[i].session
	engine, slots := s.Stager()
	if depth = min(depth, slots); depth < 3 {
		return nil, nil
	}
	o := &overlap{core: c, replica: i, session: s, engine: engine, program: s.Main[0], bind: bind, inputs: spec.inputs(), flights: make([]flight, spec.QueueDepth),
		free: make(chan int, depth), loaded: make(chan int, depth), ran: make(chan int, depth), jobs: make(chan int, spec.QueueDepth)}
	for slot := range depth {
		o.free <- slot
	}
	var streams []int // by end
	for _, b := range bindings() {
		if role := spec.Anchors[b.Anchor].Role; role != RunInput && role != RunOutput {
			continue
		}
		if _, side := b.Stream.(sideBySide); side {
			continue
		}
		stream, ok := b.Stream.(hostmem.Bound)
		at := s.IndexOf(found.handles[b.Anchor])
		if !ok || at < 0 {
			return nil, fmt.Errorf("%w: anchor %d is bound to %T", rt.ErrGenerated, b.Anchor, b.Stream)
		}
		end, _ := stream.Describe()
		if c.replicas[i].run[len(o.ends)] == nil {
			end = nil
		}
		o.ends, streams = append(o.ends, end), append(streams, at)
		o.late = append(o.late, s.Joined(at) != nil)
	}
	for k := range o.flights {
		f := &o.flights[k]
		f.mem = make([][]byte, len(o.ends))
		for e, end := range o.ends {
			switch {
			case end == nil || o.late[e]:
			case e < o.inputs:
				f.in = append(f.in, ipu.Staged{Stream: streams[e]})
			default:
				f.out = append(f.out, ipu.Staged{Stream: streams[e]})
			}
		}
	}
	return o, nil
}

// enqueue lines up the request in a reserved slot of the queue.
func (o *overlap) enqueue(ctx context.Context, slot int) line.Ticket {
	q := o.core.queue
	t := q.Ticket(ctx, slot, o.session.Lane)
	o.mu.Lock()
	ended := o.ended
	if !ended {
		if !o.begun {
			o.begun = true
			o.served.Go(o.load)
			o.served.Go(o.run)
			o.served.Go(o.store)
		}
		o.waiting.Add(1)
		o.jobs <- slot // it has room for all slots
	}
	o.mu.Unlock()
	if ended {
		q.Complete(slot, o.session.Errorf("submit", o.session.Refused(rt.ErrClosed)))
	}
	return t
}

// load moves the inputs of requests to the device.
func (o *overlap) load() {
	defer close(o.loaded)
	for slot := range o.jobs {
		f := &o.flights[slot]
		at := <-o.free
		f.slot, f.staged, f.err = at, false, nil
		if f.ctx, f.err = o.core.queue.Start(slot); f.err == nil {
			o.bind(slot)
			in, out := 0, 0
			for e, end := range o.ends {
				switch {
				case end == nil:
					continue
				case o.late[e]:
				case e < o.inputs:
					f.in[in].Data, in = end.At.Block, in+1
				default:
					f.out[out].Data, out = end.At.Block, out+1
				}
				f.mem[e] = end.At.Block
				end.Clear()
			}
			// What can't be moved ahead now, Run moves, or says why not.
			f.staged = guarded(func() error { return o.engine.Stage(f.ctx, o.program, at, f.in, f.out) }) == nil
		}
		o.loaded <- slot
	}
}

// run computes them, each as a request of its session. Code of the caller, an observer, may
// end the goroutine: then another one goes on.
func (o *overlap) run() {
	slot := -1
	defer func() {
		if slot >= 0 {
			o.flights[slot].err = o.core.errorf("run", ipu.NewExitError())
			o.ran <- slot
			o.served.Go(o.run)
			return
		}
		close(o.ran)
	}()
	for slot = range o.loaded {
		if f := &o.flights[slot]; f.err == nil {
			f.err = guarded(func() error { return o.compute(f, slot) })
		}
		o.ran <- slot
		slot = -1
	}
	slot = -1
}

// compute computes a request that has a slot of the device.
func (o *overlap) compute(f *flight, slot int) error {
	s, r := o.session, o.core.replicas[o.replica]
	if err := s.Gate.Visit(f.ctx, line.Leader); err != nil {
		return s.Errorf("run", s.Refused(err))
	}
	if t := s.Count.Times; t != nil {
		t.Begin(o.core.queue.Slots[slot].Asked)
	}
	for e, w := range r.run {
		if w != nil {
			w.Over(f.mem[e])
		}
	}
	s.Staged = session.Staged{Engine: o.engine, On: f.staged, Slot: f.slot}
	defer func() {
		f.staged = s.Staged.On
		s.Staged = session.Staged{}
		r.endVisit()
	}()
	return s.Request(f.ctx)
}

// store moves their outputs back, and ends them.
func (o *overlap) store() {
	for slot := range o.ran {
		f := &o.flights[slot]
		if f.staged { // whatever became of it: the memory is the engine's until then
			if err := guarded(func() error { return o.engine.Unstage(f.ctx, o.program, f.slot) }); err != nil && f.err == nil {
				f.err = o.session.Errorf("run", o.session.Cause(err))
			}
		}
		err, at := f.err, f.slot
		clear(f.mem)
		for i := range f.in {
			f.in[i].Data = nil
		}
		for i := range f.out {
			f.out[i].Data = nil
		}
		f.ctx, f.err = nil, nil
		o.waiting.Add(-1)
		o.free <- at
		o.core.queue.Complete(slot, err)
	}
}

// close lets no request in any more; those in flight end first.
func (o *overlap) close() {
	o.mu.Lock()
	if !o.ended {
		o.ended = true
		close(o.jobs)
	}
	o.mu.Unlock()
	o.served.Wait()
}

// guarded turns a panic of f into its error.
func guarded(f func() error) (err error) {
	defer ipu.Guard(&err)
	return f()
}
