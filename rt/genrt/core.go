// Package genrt is what generated code calls, and tools that stand in for it: a
// [Core] opens the model, once for each replica, and gives an engine to one request
// at a time; [Input] and [Output] are the ends of its streams over the caller's
// memory; [Flat], [From] and [Rows] are views of tensors. [Generation] and
// [OldestGeneration] stop the build where code and runtime do not fit each other.
// Users need nothing of it: package rt has what they name.
package genrt

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/callerr"
	"github.com/popefgen/popefgen/rt/internal/hostmem"
	"github.com/popefgen/popefgen/rt/internal/line"
	"github.com/popefgen/popefgen/rt/internal/packed"
	"github.com/popefgen/popefgen/rt/internal/session"
)

// Core is what a generated Runner is built around: it opens the model, once for
// every replica, and gives an engine to one request at a time. Its methods are
// for generated code, which calls them in a fixed order:
//
//	synchronous: Begin, Bind every stream of that replica, Main
//	submitted:   Reserve or TryReserve, store the request in the slot, Enqueue
//	saving:      Begin, Bind every stream of that replica, Save
//
// The zero Core behaves as if closed.
type Core struct {
	about     callerr.Subject // of its errors
	model     *popef.Model
	replicas  []*replica
	only      *session.Session // of the replica, if there is but one
	queue     *line.Queue
	config    rt.Config
	frozen    []bool        // by run input
	next      atomic.Uint32 // where the search for the least busy replica starts
	batcher   batcher
	packer    packed.Packer
	family    *Family         // that it is the core of; nil for a model of one size
	branches  *Branches       // likewise, of a fused model
	training  *training       // of a model that trains
	room      *budget.Budget  // of a checkpoint
	resumed   uint64          // steps of that
	overlap   []*overlap      // by replica; nil where submitted requests do not overlap
	submitted []sampleRequest // samples, by slot of the queue

	closing  sync.Once
	done     chan struct{} // closed when Close begins; nil before Open
	closeErr error
}

// replica is one session of a runner, with the windows of its streams.
type replica struct {
	session *session.Session
	run     []*hostmem.Span   // bound to memory during a run; nil for a frozen input; of a family those of the member that runs
	inputs  []int             // streams of the run inputs that are not frozen
	saved   []*hostmem.Span   // bound to memory while saving
	members *members          // of a family
	values  []value           // of an optimizer
	branch  [][]*hostmem.Span // of a fused model: run by branch
}

// Open opens the model of spec: from source, or from where an option says. It
// refuses a model that callers would see as another ([*rt.ContractError]), makes a session for
// every replica, connects its bindings and runs the load programs once.
// bindings is called for every replica in order. bind is called for a submitted
// request, before it runs, to bind the replica's streams to the memory in the
// request's slot; it should also forget that memory. With a negative replica it
// should do no more than forget it.
//
// An Input of role [LoadInput] must be bound already, to memory that
// stays valid and unchanged until Close. It may belong to all replicas.
func (c *Core) Open(ctx context.Context, spec *Spec, source Source, bindings func() []Binding, bind func(replica, slot int), opts ...rt.RunnerOption) error {
	o, err := runnerOptions(opts)
	if err == nil {
		ctx = o.OnBudget(ctx)
		c.model, err = loadModel(ctx, source, o)
	}
	if err != nil {
		err = callerr.Subject{Model: "package " + spec.Package}.Errorf("open", err)
		if source.Model != nil {
			err = callerr.Join(err, source.Model.Close())
		}
		return err
	}
	c.about = callerr.Subject{Model: callerr.ModelName(c.model)}
	over := false // it is open, or was closed
	defer func() {
		if !over { // code of the caller has ended the goroutine
			_ = c.Close()
		}
	}()
	err = c.open(ctx, spec, bindings, bind, o)
	over = true
	if err != nil {
		return callerr.Join(c.about.Errorf("open", err), c.Close())
	}
	return nil
}

func (c *Core) open(ctx context.Context, spec *Spec, bindings func() []Binding, bind func(replica, slot int), o *session.Options) error {
	found, err := agree(spec, c.model)
	if err != nil {
		return err
	}
	for i, d := range o.ReplicaDevices { // before a replica that has none looks for one
		ok, err := d.Attach()
		if err == nil && !ok {
			err = fmt.Errorf("%w: it is held by somebody else", ipu.ErrNoDevice)
		}
		if err != nil {
			return callerr.Subject{Model: c.about.Model, Replica: fmt.Sprintf("replica %d", i)}.Errorf("open", fmt.Errorf("attach %s: %w", session.DescribeDevice(d), err))
		}
	}
	if c.family != nil {
		if err := c.family.begin(ctx, spec, found, o); err != nil {
			return err
		}
	}
	if c.branches != nil {
		if err := c.branches.begin(spec, found, o); err != nil {
			return err
		}
	}
	found.freeze(spec, o)
	if err := c.resume(ctx, o); err != nil {
		return err
	}
	o.QueueDepth = spec.QueueDepth
	c.queue, c.done = line.NewQueue(c.about, spec.QueueDepth, o.MaxWaiting), make(chan struct{})
	c.queue.Samples, c.submitted = c.sampled, make([]sampleRequest, spec.QueueDepth)
	c.queue.Drop = func(slot int) {
		clear(c.submitted[slot].samples)
		if bind != nil {
			bind(-1, slot)
		}
	}
	for i := range o.Replicas {
		own := *o
		if d, ok := o.ReplicaDevices[i]; ok {
			own.Device = d
		}
		s, err := session.New(ctx, c.model, found.contract, i, &own)
		if err != nil {
			return err
		}
		r := &replica{session: s}
		s.Lane = &line.Lane{Queue: c.queue, Gate: &s.Gate, Serve: func(ctx context.Context, slot int) error { return c.serve(ctx, i, slot, bind) },
			Refused: func(err error) error { return s.Errorf("submit", s.Refused(err)) }}
		c.queue.Lanes = append(c.queue.Lanes, s.Lane)
		c.replicas = append(c.replicas, r)
		if names := s.State(nil); o.Replicas > 1 && (spec.Trains || len(names) > 0) {
			changes, do := "its steps change the weights", "" // of an engine that does not tell its state
			if len(names) > 0 {
				changes = fmt.Sprintf("its programs change what the load programs set from anchors %q", names)
			}
			if spec.Trains {
				do = "; open one, or compile the model with --replicas, whose gradients are added up"
			}
			return s.Errorf("open", fmt.Errorf("WithReplicas: %w: %s, so %d replicas would drift apart%s", rt.ErrStateful, changes, o.Replicas, do))
		}
		if err := r.prepare(ctx, spec, found, bindings()); err != nil {
			return err
		}
	}
	if spec.Trains {
		if err := c.trains(spec, found, o); err != nil {
			return err
		}
	}
	if len(c.replicas) == 1 {
		c.only = c.replicas[0].session
	}
	depth, err := c.overlapDepth(o)
	if err != nil {
		return err
	}
	if depth >= 3 && bind != nil && c.branches == nil {
		next := len(c.replicas) // the code has ends for every call of bindings, and bind knows them by their number
		for i := range c.replicas {
			ends := next
			v, err := c.overlaps(i, spec, found, depth, bindings, func(slot int) { bind(ends, slot) })
			if err != nil {
				return err
			}
			if v != nil {
				next++
			}
			c.overlap = append(c.overlap, v)
		}
	}
	for _, w := range c.replicas[0].run[:spec.inputs()] {
		c.frozen = append(c.frozen, w == nil)
	}
	c.config, c.batcher.most = o.Config, o.MaxWaiting
	if err := c.openPacker(spec, o.Packing, o.MaxWaiting); err != nil {
		return err
	}
	return c.batcher.init(c, spec, o.Batching, budget.From(ctx).Part(0))
}

// prepare connects the bindings and runs the load programs.
func (r *replica) prepare(ctx context.Context, spec *Spec, found *agreement, bindings []Binding) error {
	s := r.session
	if err := s.Begin(ctx); err != nil {
		return s.Errorf("open", err)
	}
	defer s.Gate.Release(0)
	for _, b := range bindings {
		if err := r.attach(spec, found, b); err != nil {
			return s.Errorf("open", err)
		}
	}
	if f := found.family; f != nil {
		if err := f.attach(r); err != nil {
			return s.Errorf("open", err)
		}
	}
	if err := found.drop(s); err != nil {
		return s.Errorf("open", err)
	}
	if n := len(r.run); n < spec.inputs() {
		return s.Errorf("open", fmt.Errorf("%w: %d run inputs and outputs are bound", rt.ErrGenerated, n))
	}
	if c := found.branches; c != nil {
		c.split(r)
	}
	if err := s.Check(s.Main); err != nil {
		return s.Errorf("open", err)
	}
	if err := s.Activate(ctx, 0); err != nil {
		return s.Errorf("open", err)
	}
	if err := s.RunLoad(ctx, 0); err != nil {
		return err
	}
	s.Ready = true
	return nil
}

// attach connects one binding.
func (r *replica) attach(spec *Spec, found *agreement, b Binding) error {
	s := r.session
	if side, ok := b.Stream.(sideBySide); ok && b.Anchor >= 0 && b.Anchor < len(spec.Anchors) {
		side.bindTo(s.Joined(s.IndexOf(found.handles[b.Anchor])))
		return nil
	}
	if v, ok := b.Stream.(*hostmem.Live); ok && b.Anchor >= 0 && b.Anchor < len(spec.Anchors) {
		return r.attachValue(&spec.Anchors[b.Anchor], found.handles[b.Anchor], v)
	}
	stream, ok := b.Stream.(hostmem.Bound)
	if b.Anchor < 0 || b.Anchor >= len(spec.Anchors) || !ok {
		return fmt.Errorf("%w: anchor %d is bound to %T, of %d anchors", rt.ErrGenerated, b.Anchor, b.Stream, len(spec.Anchors))
	}
	a, handle := &spec.Anchors[b.Anchor], found.handles[b.Anchor]
	i := s.IndexOf(handle)
	if i < 0 {
		return fmt.Errorf("anchor %q: %w: the executable has no stream %q", a.Name, rt.ErrUnknownStream, handle)
	}
	w, size := stream.Describe()
	transfers := spec.transfers(a)
	if st := s.Infos[i]; a.Bytes != st.Bytes || size != transfers*st.Bytes {
		return fmt.Errorf("anchor %q: %w: %s is %d bytes and %d a transfer, and the executable moves %d transfers of %d bytes",
			a.Name, rt.ErrGenerated, a.GoName, size, a.Bytes, transfers, st.Bytes)
	}
	w.Anchor, w.At.Size, w.At.Count = a.Name, a.Bytes, transfers
	var connected ipu.Stream = stream
	switch a.Role {
	case RunInput, RunOutput:
		if s.Ends[i] == session.Frozen {
			r.run = append(r.run, nil)
			return nil
		}
		r.run = append(r.run, w)
		if a.Role == RunInput {
			r.inputs = append(r.inputs, i)
		}
		s.Windows = append(s.Windows, w)
	case SaveOutput:
		r.saved = append(r.saved, w)
		s.Windows = append(s.Windows, w)
	default: // given once, and the same wherever a program asks for it
		if s.Ends[i] == session.Frozen {
			return nil
		}
		if w.At.Block == nil {
			return &rt.NilAnchorError{Field: "LoadInputs." + a.GoName, Anchor: a.Name}
		}
		connected = hostmem.Fixed{Data: w.At.Block}
	}
	return s.Attach(i, connected, session.Given)
}

// Replicas returns the number of replicas.
func (c *Core) Replicas() int { return len(c.replicas) }

// Frozen reports whether run input i, in the order of the generated Inputs, has
// the same data in every request.
func (c *Core) Frozen(i int) bool { return i < len(c.frozen) && c.frozen[i] }

// choose returns a replica: the one that is asked for, or the least busy one.
func (c *Core) choose(asked int) (int, error) {
	n := len(c.replicas)
	switch {
	case n == 0:
		return 0, rt.ErrClosed
	case asked >= 0 && asked < n:
		return asked, nil
	case asked != rt.LeastBusy:
		return 0, fmt.Errorf("%w: %d of %d", rt.ErrReplica, asked, n)
	case n == 1:
		return 0, nil
	}
	start, best, least := int(c.next.Add(1)), 0, math.MaxInt
	for k := range n {
		i := (start + k) % n
		s := c.replicas[i].session
		load := s.Gate.Load()
		if o := c.overlapOf(i); o != nil {
			load += int(o.waiting.Load())
		}
		if s.Failed.Load() != nil && !s.AutoReset || s.Gate.Shut() {
			load += math.MaxInt / 2 // it fails quickly and would draw every request
		}
		if load < least {
			best, least = i, load
		}
		if load == 0 {
			break
		}
	}
	return best, nil
}

// Begin takes the engine of a replica, which it returns, for a synchronous run
// or a save, which the next call must be. It waits for submitted requests that
// came before, and for other callers. Errors: [rt.ErrClosed], [rt.ErrOverloaded] with
// [rt.WithMaxWaiting], [rt.ErrConcurrent] with [rt.SingleCaller], [rt.ErrReplica], or ctx's
// if it ends first.
func (c *Core) Begin(ctx context.Context, replica int) (int, error) {
	if s := c.only; s != nil && (replica == rt.LeastBusy || replica == 0) && s.Count.Times == nil && ctx.Err() == nil && s.Gate.Take(line.Held) {
		return 0, nil
	}
	return c.begin(ctx, replica)
}

func (c *Core) begin(ctx context.Context, replica int) (int, error) {
	i, err := c.choose(replica)
	if err != nil {
		return 0, c.errorf("run", err)
	}
	s := c.replicas[i].session
	if err := s.BeginRequest(ctx); err != nil {
		return 0, s.Errorf("run", err)
	}
	return i, nil
}

// Main runs the main programs of a replica in the caller's goroutine, over the
// memory that its streams were bound to after Begin, and leaves the engine to
// the next request. The streams forget the memory.
func (c *Core) Main(ctx context.Context, replica int) error {
	r := c.replicas[replica]
	s := r.session
	// As s.short says; a condition that is returned takes longer.
	if s.Alone == nil || !s.Ready || s.Halted.Load() || len(s.Buffers) > 0 || s.Feeder.Load() != nil {
		return r.request(ctx)
	}
	if err := s.Alone.Run(ctx); err != nil {
		return r.missed(err)
	}
	forget(r.run)
	s.Gate.Release(1)
	return nil
}

// request is Main, whatever the session has to do for it.
func (r *replica) request(ctx context.Context) error {
	defer r.end()
	return r.session.Request(ctx)
}

// missed is the end of a short request that failed.
func (r *replica) missed(err error) error {
	defer r.end()
	return r.session.Missed(err)
}

func (r *replica) end() {
	forget(r.run)
	r.session.Gate.Release(1)
}

// Save runs the save programs of a replica as Main runs the main programs.
func (c *Core) Save(ctx context.Context, replica int) error {
	r := c.replicas[replica]
	defer r.endSave()
	return r.session.RunSave(ctx)
}

func (r *replica) endSave() {
	forget(r.saved)
	r.session.Gate.Release(0)
}

// SaveAtClose makes Close run the save programs of a replica, over the memory
// that bind binds its streams to; nil undoes it. It waits for the replica's
// engine, until ctx ends.
func (c *Core) SaveAtClose(ctx context.Context, replica int, bind func()) error {
	if replica == rt.LeastBusy {
		replica = len(c.replicas) // which is none
	}
	if err := c.checkReplica(replica); err != nil {
		return c.errorf("save at close", err)
	}
	s := c.replicas[replica].session
	if err := s.Begin(ctx); err != nil {
		return s.Errorf("save at close", err)
	}
	s.Mu.Lock()
	s.AtClose = bind
	s.Mu.Unlock()
	s.Gate.Release(0)
	return nil
}

func (r *replica) forget() { forget(r.run) }

func forget(windows []*hostmem.Span) {
	for _, w := range windows {
		if w != nil {
			w.Clear()
		}
	}
}

// serve computes the request of a slot, in the worker's goroutine.
func (c *Core) serve(ctx context.Context, replica, slot int, bind func(replica, slot int)) error {
	r := c.replicas[replica]
	if t := r.session.Count.Times; t != nil {
		t.Begin(c.queue.Slots[slot].Asked)
	}
	if c.family != nil {
		return c.family.serve(ctx, r, slot)
	}
	defer r.forget() // what bind has chosen, of a fused model
	bind(replica, slot)
	if c.training != nil {
		return c.training.step(ctx, r)
	}
	return r.session.Request(ctx)
}

// Reserve takes a place in the queue for a request to a replica. If every place
// is taken it waits for one until ctx ends, unless more callers wait already
// than [rt.WithMaxWaiting] allows ([rt.ErrOverloaded]). Other errors: [rt.ErrClosed],
// [rt.ErrReplica].
func (c *Core) Reserve(ctx context.Context, replica int) (int, error) {
	return c.reserve(ctx, replica, true)
}

// TryReserve is Reserve that never waits: [rt.ErrQueueFull] if there is no place.
func (c *Core) TryReserve(replica int) (int, error) {
	return c.reserve(context.Background(), replica, false)
}

func (c *Core) reserve(ctx context.Context, replica int, wait bool) (int, error) {
	if err := c.checkReplica(replica); err != nil {
		return 0, c.errorf("submit", err)
	}
	slot, err := c.queue.Reserve(ctx, wait)
	if err != nil {
		return 0, c.errorf("submit", c.replicas[max(replica, 0)].session.Refused(err))
	}
	return slot, nil
}

// checkReplica returns why no request can go to that replica, if it is not
// [rt.LeastBusy].
func (c *Core) checkReplica(replica int) error {
	switch n := len(c.replicas); {
	case n == 0:
		return rt.ErrClosed
	case replica != rt.LeastBusy && (replica < 0 || replica >= n):
		return fmt.Errorf("%w: %d of %d", rt.ErrReplica, replica, n)
	}
	return nil
}

// Enqueue lines up the request in a slot that Reserve returned, for the same
// replica. If ctx ends before the request has its turn it never gets the engine;
// afterwards ctx is that of the run.
func (c *Core) Enqueue(ctx context.Context, slot, replica int) rt.Ticket {
	i, _ := c.choose(replica) // Reserve found that it exists
	s := c.replicas[i].session
	if s.Count.Times != nil {
		c.queue.Slots[slot].Asked = line.Now()
	}
	if o := c.overlapOf(i); o != nil {
		return rt.Ticket(o.enqueue(ctx, slot))
	}
	return rt.Ticket(s.Lane.Enqueue(ctx, slot))
}

// overlapOf returns what serves the submitted requests of a replica in steps, nil if
// nothing does.
func (c *Core) overlapOf(replica int) *overlap {
	if replica >= len(c.overlap) {
		return nil
	}
	return c.overlap[replica]
}

// sampled computes submitted samples, which were let in before.
func (c *Core) sampled(ctx context.Context, slot int) error {
	replica, samples := c.submitted[slot].replica, c.submitted[slot].samples
	n, err := c.batcher.count(samples)
	if err != nil {
		return c.errorf("run samples", err)
	}
	if err := c.batcher.compute(ctx, replica, samples, n); err != nil {
		return c.errorf("run samples", err)
	}
	return nil
}

// UpdateWeights gives every replica in turn other data for inputs that are no
// run inputs, see [rt.Session.UpdateWeights]. Requests go on: each computes with
// the old values or with the new ones. If it fails at one replica the later
// ones have the old values.
func (c *Core) UpdateWeights(ctx context.Context, weights ...rt.Weight) error {
	if err := c.checkReplica(rt.LeastBusy); err != nil {
		return c.errorf("update weights", err)
	}
	for _, w := range weights {
		s := c.replicas[0].session
		if i, err := s.Input(w.Anchor); err == nil && slices.Contains(c.replicas[0].inputs, i) {
			return c.errorf("update weights", fmt.Errorf("anchor %q: %w: every request gives this input", w.Anchor, rt.ErrData))
		} else if err == nil && c.training.sets(i) {
			return c.errorf("update weights", fmt.Errorf("anchor %q: %w: it is a value of the optimizer: SetOptimizer sets it", w.Anchor, rt.ErrData))
		}
	}
	for _, r := range c.replicas {
		if err := r.session.UpdateWeights(ctx, weights...); err != nil {
			return err
		}
	}
	return nil
}

// Close closes every replica's session, see [rt.Session.Close]. Tickets of
// requests that it stops fail with [rt.ErrClosed].
func (c *Core) Close() error {
	c.closing.Do(func() {
		if c.queue != nil {
			close(c.done)
			c.queue.Shut()
		}
		errs := make([]error, len(c.replicas)+1)
		var all sync.WaitGroup
		for i, r := range c.replicas {
			all.Go(func() { errs[i] = r.session.Close() })
		}
		all.Wait()
		for _, o := range c.overlap {
			if o != nil {
				o.close()
			}
		}
		if c.queue != nil {
			c.queue.Close()
		}
		if c.batcher.room != nil {
			c.batcher.room.Release()
		}
		if c.room != nil {
			c.room.Release()
		}
		if c.training != nil { // a checkpoint that is being written reads the model's file
			c.training.saving.Lock()
			defer c.training.saving.Unlock()
		}
		if c.model != nil {
			errs[len(c.replicas)] = c.model.Close()
		}
		if err := callerr.Join(errs...); err != nil {
			c.closeErr = c.errorf("close", err)
		}
	})
	return c.closeErr
}

// Shutdown lets nobody in any more ([rt.ErrClosed]), waits until all requests have
// ended that were accepted before, and closes. Batches that are not full run at
// once. If ctx ends first it closes all the same, which ends the requests, and
// returns ctx's error.
func (c *Core) Shutdown(ctx context.Context) error {
	switch {
	case c.queue == nil && c.only != nil: // see OpenSession
		return callerr.Join(c.only.Shutdown(ctx), c.Close())
	case c.queue == nil:
		return c.Close()
	}
	ended := c.drained(ctx)
	return callerr.Join(ended, c.Close())
}

// drained waits until every request has ended.
func (c *Core) drained(ctx context.Context) error {
	waits := []<-chan error{c.queue.Drain(), c.batcher.drain(), c.packer.Drain()}
	if c.family != nil {
		waits = append(waits, c.family.flows.drain())
	}
	for _, r := range c.replicas {
		waits = append(waits, r.session.Drain()...)
	}
	for i := range waits {
		select {
		case <-waits[i]:
		case <-c.done: // somebody else closes
			return nil
		case <-ctx.Done():
			return c.errorf("shut down", ctx.Err())
		}
	}
	return nil
}

// errorf says of which model and in doing what an error arose.
func (c *Core) errorf(doing string, err error) error {
	if c.about.Model == "" {
		return callerr.Subject{Model: "runner"}.Errorf(doing, fmt.Errorf("%w: it was never opened", err))
	}
	return c.about.Errorf(doing, err)
}

// NilAnchor returns err, with the model's name if it is a [*rt.NilAnchorError]: what
// generated code found before it called any other method.
func (c *Core) NilAnchor(err error) error {
	if e, ok := err.(*rt.NilAnchorError); ok {
		if e.Model = c.about.Model; e.Model == "" {
			e.Model = "runner" // which was never opened
		}
	}
	return err
}

// Config returns every option of the runner, as it was given or by default.
func (c *Core) Config() rt.Config { return session.CloneConfig(&c.config) }

// Session returns the session of a replica, nil if there is no such replica.
func (c *Core) Session(replica int) rt.Session {
	if replica < 0 || replica >= len(c.replicas) {
		return nil
	}
	return c.replicas[replica].session
}
