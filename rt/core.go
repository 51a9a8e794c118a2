package rt

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
	"github.com/popefgen/popefgen/popef/contract"
)

// Anchor is one anchor of a model, see package contract.
type Anchor = contract.Anchor

// Role says what an anchor is to a program, see package contract.
type Role = contract.Role

// The roles of anchors that generated code binds memory to.
const (
	RunInput   = contract.RunInput
	RunOutput  = contract.RunOutput
	LoadInput  = contract.LoadInput
	SaveOutput = contract.SaveOutput
	Seed       = contract.Seed
)

// Spec is what generated code knows of its model.
type Spec struct {
	Package    string       // name of the generated package, for messages
	Contract   string       // the canonical text of what callers see, see [contract.Callers]
	Iterations int          // transfers of every run input and output in one run, at least 1
	QueueDepth int          // places for submitted requests, at least 1
	Batch      int          // samples in one transfer of every run input and output; 0 if they are not told apart
	Anchors    []AnchorSpec // those that memory is bound to
}

// AnchorSpec is what generated code knows of one anchor.
type AnchorSpec struct {
	Name   string // name in the model
	Handle string // stream handle where several anchors of the role have this name; no matter elsewhere
	GoName string // name of its Go type and fields
	Role   Role
	Bytes  int // size of one transfer
	Blocks int // of a run input or output with samples: equal blocks of a transfer that have a part of every sample
}

// Source says where a model comes from: bytes, which must not change until
// Close, or a file.
type Source struct {
	Name  string // names Bytes in messages
	Bytes []byte
	Path  string // used if Bytes is nil
}

// Binding is the stream of generated code, an [*Input] or [*Output], of an
// anchor.
type Binding struct {
	Anchor int // index in [Spec.Anchors]
	Stream ipu.Stream
}

// LeastBusy stands for the replica that has the least to do.
const LeastBusy = -1

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
	about    subject // of its errors
	model    *popef.Model
	replicas []*replica
	only     *Session // of the replica, if there is but one
	queue    *queue
	config   Config
	frozen   []bool        // by run input
	next     atomic.Uint32 // where the search for the least busy replica starts
	batcher  batcher
	group    *QueueGroup // of a generated Queues; nil for a Runner

	closing  sync.Once
	done     chan struct{} // closed when Close begins; nil before Open
	closeErr error
}

// replica is one session of a runner, with the windows of its streams.
type replica struct {
	session *Session
	run     []*window // bound to memory during a run; nil for a frozen input
	inputs  []int     // streams of the run inputs that are not frozen
	saved   []*window // bound to memory while saving
}

// Open opens the model of spec: from source, or from where an option says. It
// refuses a model that callers would see as another ([*ContractError]), makes a session for
// every replica, connects its bindings and runs the load programs once.
// bindings is called for every replica in order. bind is called for a submitted
// request, before it runs, to bind the replica's streams to the memory in the
// request's slot; it should also forget that memory. With a negative replica it
// should do no more than forget it.
//
// An Input of role [LoadInput] must be bound already, to memory that
// stays valid and unchanged until Close. It may belong to all replicas.
func (c *Core) Open(ctx context.Context, spec *Spec, source Source, bindings func() []Binding, bind func(replica, slot int), opts ...RunnerOption) error {
	o, err := runnerOptions(opts)
	if err == nil {
		err = o.forRunner()
	}
	if err == nil {
		ctx = o.onBudget(ctx)
		c.model, err = loadModel(ctx, source, o)
	}
	if err != nil {
		return subject{model: "package " + spec.Package}.errorf("open", err)
	}
	c.about = subject{model: modelName(c.model)}
	over := false // it is open, or was closed
	defer func() {
		if !over { // code of the caller has ended the goroutine
			_ = c.Close()
		}
	}()
	err = c.open(ctx, spec, bindings, bind, o)
	over = true
	if err != nil {
		return join(c.about.errorf("open", err), c.Close())
	}
	return nil
}

func (c *Core) open(ctx context.Context, spec *Spec, bindings func() []Binding, bind func(replica, slot int), o *options) error {
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
			return subject{c.about.model, fmt.Sprintf("replica %d", i)}.errorf("open", fmt.Errorf("attach %s: %w", describeDevice(d), err))
		}
	}
	found.freeze(spec, o)
	o.QueueDepth = spec.QueueDepth
	c.queue, c.done = newQueue(c.about, spec.QueueDepth, o.MaxWaiting), make(chan struct{})
	c.queue.samples = c.sampled
	if bind != nil {
		c.queue.drop = func(slot int) { bind(-1, slot) }
	}
	for i := range o.Replicas {
		own := *o
		if d, ok := o.ReplicaDevices[i]; ok {
			own.Device = d
		}
		s, err := newSession(ctx, c.model, found.contract, i, &own)
		if err != nil {
			return err
		}
		r := &replica{session: s}
		s.lane = &lane{queue: c.queue, gate: &s.gate, serve: func(ctx context.Context, slot int) error { return c.serve(ctx, i, slot, bind) },
			refused: func(err error) error { return s.errorf("submit", s.refused(err)) }}
		c.queue.lanes = append(c.queue.lanes, s.lane)
		c.replicas = append(c.replicas, r)
		if names := s.state(nil); o.Replicas > 1 && len(names) > 0 {
			return s.errorf("open", fmt.Errorf("WithReplicas: %w: its programs change what the load programs set from anchors %q, so %d replicas would drift apart",
				ErrStateful, names, o.Replicas))
		}
		if err := r.prepare(ctx, spec, found, bindings()); err != nil {
			return err
		}
	}
	if len(c.replicas) == 1 {
		c.only = c.replicas[0].session
	}
	for _, w := range c.replicas[0].run[:spec.inputs()] {
		c.frozen = append(c.frozen, w == nil)
	}
	c.config, c.batcher.most = o.Config, o.MaxWaiting
	return c.batcher.init(c, spec, o.Batching)
}

// forRunner returns which option has no meaning for a runner.
func (o *options) forRunner() error {
	for i, d := range o.ReplicaDevices {
		if d == nil {
			return fmt.Errorf("WithReplicaDevices: %w: nil device for replica %d", ErrOption, i)
		}
		if i < 0 || i >= o.Replicas {
			return fmt.Errorf("WithReplicaDevices: %w: %s for replica %d of %d", ErrOption, describeDevice(d), i, o.Replicas)
		}
	}
	switch {
	case o.Device != nil && o.Replicas > 1 && !o.Device.Info().Shared:
		return fmt.Errorf("WithDevice: %w: %d replicas can't share this device; use WithReplicaDevices", ErrOption, o.Replicas)
	case o.DeviceID != nil && o.Replicas > 1:
		return fmt.Errorf("WithDeviceID: %w: %d replicas can't all have the same device; use WithReplicaDevices", ErrOption, o.Replicas)
	}
	if o.Replicas > 1 && o.SingleCaller {
		return fmt.Errorf("SingleCaller: %w: %d replicas are for many callers", ErrOption, o.Replicas)
	}
	return nil
}

// inputs returns the number of run inputs.
func (spec *Spec) inputs() int {
	n := 0
	for _, a := range spec.Anchors {
		if a.Role == RunInput {
			n++
		}
	}
	return n
}

// onBudget returns ctx with the budget that all memory of the model counts on,
// unless it has one: its limit is that of the engine option "memory". Back ends
// refuse a value that is no size.
func (o *options) onBudget(ctx context.Context) context.Context {
	limit := int64(0)
	for _, e := range o.EngineOptions {
		if n, err := budget.Parse(e.Value); e.Name == "memory" && err == nil {
			limit = n
		}
	}
	return budget.Into(ctx, budget.From(ctx).Part(limit))
}

// loadModel reads the model from where source or an option says.
func loadModel(ctx context.Context, source Source, o *options) (*popef.Model, error) {
	read := popef.LoadContext
	if o.PrivateCopy {
		read = popef.LoadCopyContext
	}
	switch {
	case len(o.ModelFiles) > 0:
		return read(ctx, o.ModelFiles...)
	case o.ModelBytes != nil:
		return popef.LoadBytes("bytes given to WithModelBytes", o.ModelBytes)
	case source.Bytes != nil:
		return popef.LoadBytes(source.Name, source.Bytes)
	}
	return read(ctx, source.Path)
}

// prepare connects the bindings and runs the load programs.
func (r *replica) prepare(ctx context.Context, spec *Spec, found *agreement, bindings []Binding) error {
	s := r.session
	if err := s.begin(ctx); err != nil {
		return s.errorf("open", err)
	}
	defer s.gate.release(0)
	for _, b := range bindings {
		if err := r.attach(spec, found, b); err != nil {
			return s.errorf("open", err)
		}
	}
	if err := found.drop(s); err != nil {
		return s.errorf("open", err)
	}
	if n := len(r.run); n < spec.inputs() {
		return s.errorf("open", fmt.Errorf("%w: %d run inputs and outputs are bound", ErrGenerated, n))
	}
	if err := s.check(s.main); err != nil {
		return s.errorf("open", err)
	}
	if err := s.activate(ctx, 0); err != nil {
		return s.errorf("open", err)
	}
	if err := s.runLoad(ctx, 0); err != nil {
		return err
	}
	s.ready = true
	return nil
}

// attach connects one binding.
func (r *replica) attach(spec *Spec, found *agreement, b Binding) error {
	s := r.session
	stream, ok := b.Stream.(bound)
	if b.Anchor < 0 || b.Anchor >= len(spec.Anchors) || !ok {
		return fmt.Errorf("%w: anchor %d is bound to %T, of %d anchors", ErrGenerated, b.Anchor, b.Stream, len(spec.Anchors))
	}
	a, handle := &spec.Anchors[b.Anchor], found.handles[b.Anchor]
	i := s.index(handle)
	if i < 0 {
		return fmt.Errorf("anchor %q: %w: the executable has no stream %q", a.Name, ErrUnknownStream, handle)
	}
	w, size := stream.describe()
	transfers := 1
	if a.Role == RunInput || a.Role == RunOutput {
		transfers = spec.Iterations
	}
	if st := s.streams[i]; a.Bytes != st.Bytes || size != transfers*st.Bytes {
		return fmt.Errorf("anchor %q: %w: %s is %d bytes and %d a transfer, and the executable moves %d transfers of %d bytes",
			a.Name, ErrGenerated, a.GoName, size, a.Bytes, transfers, st.Bytes)
	}
	w.anchor, w.at.Size, w.at.Count = a.Name, a.Bytes, transfers
	var connected ipu.Stream = stream
	switch a.Role {
	case RunInput, RunOutput:
		if s.ends[i] == frozen {
			r.run = append(r.run, nil)
			return nil
		}
		r.run = append(r.run, w)
		if a.Role == RunInput {
			r.inputs = append(r.inputs, i)
		}
		s.windows = append(s.windows, w)
	case SaveOutput:
		r.saved = append(r.saved, w)
		s.windows = append(s.windows, w)
	default: // given once, and the same wherever a program asks for it
		if s.ends[i] == frozen {
			return nil
		}
		if w.at.Block == nil {
			return &NilAnchorError{Field: "LoadInputs." + a.GoName, Anchor: a.Name}
		}
		connected = constant{w.at.Block}
	}
	return s.connect(i, connected, given)
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
		return 0, ErrClosed
	case asked >= 0 && asked < n:
		return asked, nil
	case asked != LeastBusy:
		return 0, fmt.Errorf("%w: %d of %d", ErrReplica, asked, n)
	case n == 1:
		return 0, nil
	}
	start, best, least := int(c.next.Add(1)), 0, math.MaxInt
	for k := range n {
		i := (start + k) % n
		s := c.replicas[i].session
		load := s.gate.load()
		if s.failed.Load() != nil && !s.autoReset || s.gate.shut() {
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
// came before, and for other callers. Errors: [ErrClosed], [ErrOverloaded] with
// [WithMaxWaiting], [ErrConcurrent] with [SingleCaller], [ErrReplica], or ctx's
// if it ends first.
func (c *Core) Begin(ctx context.Context, replica int) (int, error) {
	if s := c.only; s != nil && (replica == LeastBusy || replica == 0) && s.count.times == nil && ctx.Err() == nil && s.gate.take(held) {
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
	if err := s.beginRequest(ctx); err != nil {
		return 0, s.errorf("run", err)
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
	if s.alone == nil || !s.ready || s.stopped.Load() || len(s.buffers) > 0 || s.queues.Load() != nil {
		return r.request(ctx)
	}
	if err := s.alone.Run(ctx); err != nil {
		return r.missed(err)
	}
	forget(r.run)
	s.gate.release(1)
	return nil
}

// request is Main, whatever the session has to do for it.
func (r *replica) request(ctx context.Context) error {
	defer r.end()
	return r.session.request(ctx)
}

// missed is the end of a short request that failed.
func (r *replica) missed(err error) error {
	defer r.end()
	return r.session.missed(err)
}

func (r *replica) end() {
	forget(r.run)
	r.session.gate.release(1)
}

// Save runs the save programs of a replica as Main runs the main programs.
func (c *Core) Save(ctx context.Context, replica int) error {
	r := c.replicas[replica]
	defer r.endSave()
	return r.session.runSave(ctx)
}

func (r *replica) endSave() {
	forget(r.saved)
	r.session.gate.release(0)
}

// SaveAtClose makes Close run the save programs of a replica, over the memory
// that bind binds its streams to; nil undoes it. It waits for the replica's
// engine, until ctx ends.
func (c *Core) SaveAtClose(ctx context.Context, replica int, bind func()) error {
	if replica == LeastBusy {
		replica = len(c.replicas) // which is none
	}
	if err := c.checkReplica(replica); err != nil {
		return c.errorf("save at close", err)
	}
	s := c.replicas[replica].session
	if err := s.begin(ctx); err != nil {
		return s.errorf("save at close", err)
	}
	s.mu.Lock()
	s.atClose = bind
	s.mu.Unlock()
	s.gate.release(0)
	return nil
}

func forget(windows []*window) {
	for _, w := range windows {
		if w != nil {
			w.clear()
		}
	}
}

// serve computes the request of a slot, in the worker's goroutine.
func (c *Core) serve(ctx context.Context, replica, slot int, bind func(replica, slot int)) error {
	r := c.replicas[replica]
	defer forget(r.run)
	if t := r.session.count.times; t != nil {
		t.begin(c.queue.slots[slot].asked)
	}
	bind(replica, slot)
	return r.session.request(ctx)
}

// Reserve takes a place in the queue for a request to a replica. If every place
// is taken it waits for one until ctx ends, unless more callers wait already
// than [WithMaxWaiting] allows ([ErrOverloaded]). Other errors: [ErrClosed],
// [ErrReplica].
func (c *Core) Reserve(ctx context.Context, replica int) (int, error) {
	return c.reserve(ctx, replica, true)
}

// TryReserve is Reserve that never waits: [ErrQueueFull] if there is no place.
func (c *Core) TryReserve(replica int) (int, error) {
	return c.reserve(context.Background(), replica, false)
}

func (c *Core) reserve(ctx context.Context, replica int, wait bool) (int, error) {
	if err := c.checkReplica(replica); err != nil {
		return 0, c.errorf("submit", err)
	}
	slot, err := c.queue.reserve(ctx, wait)
	if err != nil {
		return 0, c.errorf("submit", c.replicas[max(replica, 0)].session.refused(err))
	}
	return slot, nil
}

// checkReplica returns why no request can go to that replica, if it is not
// [LeastBusy].
func (c *Core) checkReplica(replica int) error {
	switch n := len(c.replicas); {
	case n == 0:
		return ErrClosed
	case replica != LeastBusy && (replica < 0 || replica >= n):
		return fmt.Errorf("%w: %d of %d", ErrReplica, replica, n)
	}
	return nil
}

// Enqueue lines up the request in a slot that Reserve returned, for the same
// replica. If ctx ends before the request has its turn it never gets the engine;
// afterwards ctx is that of the run.
func (c *Core) Enqueue(ctx context.Context, slot, replica int) Ticket {
	i, _ := c.choose(replica) // Reserve found that it exists
	s := c.replicas[i].session
	if s.count.times != nil {
		c.queue.slots[slot].asked = now()
	}
	return s.lane.enqueue(ctx, slot)
}

// sampled computes submitted samples, which were let in before.
func (c *Core) sampled(ctx context.Context, replica int, samples []Samples) error {
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
// run inputs, see [Session.UpdateWeights]. Requests go on: each computes with
// the old values or with the new ones. If it fails at one replica the later
// ones have the old values.
func (c *Core) UpdateWeights(ctx context.Context, weights ...Weight) error {
	if err := c.checkReplica(LeastBusy); err != nil {
		return c.errorf("update weights", err)
	}
	for _, w := range weights {
		s := c.replicas[0].session
		if i, err := s.input(w.Anchor); err == nil && slices.Contains(c.replicas[0].inputs, i) {
			return c.errorf("update weights", fmt.Errorf("anchor %q: %w: every request gives this input", w.Anchor, ErrData))
		}
	}
	for _, r := range c.replicas {
		if err := r.session.UpdateWeights(ctx, weights...); err != nil {
			return err
		}
	}
	return nil
}

// Close closes every replica's session, see [Session.Close]. Tickets of
// requests that it stops fail with [ErrClosed].
func (c *Core) Close() error {
	c.closing.Do(func() {
		if c.queue != nil {
			close(c.done)
			c.queue.shut()
		}
		errs := make([]error, len(c.replicas)+1)
		var all sync.WaitGroup
		for i, r := range c.replicas {
			all.Go(func() { errs[i] = r.session.Close() })
		}
		all.Wait()
		if c.queue != nil {
			c.queue.close()
		}
		if c.model != nil {
			errs[len(c.replicas)] = c.model.Close()
		}
		if err := join(errs...); err != nil {
			c.closeErr = c.errorf("close", err)
		}
	})
	return c.closeErr
}

// Shutdown lets nobody in any more ([ErrClosed]), waits until all requests have
// ended that were accepted before, and closes. Batches that are not full run at
// once. If ctx ends first it closes all the same, which ends the requests, and
// returns ctx's error.
func (c *Core) Shutdown(ctx context.Context) error {
	switch {
	case c.group != nil:
		return join(c.only.Shutdown(ctx), c.Close())
	case c.queue == nil:
		return c.Close()
	}
	ended := c.drained(ctx)
	return join(ended, c.Close())
}

// drained waits until every request has ended.
func (c *Core) drained(ctx context.Context) error {
	waits := []<-chan error{c.queue.drain(), c.batcher.drain()}
	for _, r := range c.replicas {
		waits = append(waits, r.session.drain()...)
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
	if c.about.model == "" {
		return subject{model: "runner"}.errorf(doing, fmt.Errorf("%w: it was never opened", err))
	}
	return c.about.errorf(doing, err)
}

// NilAnchor returns err, with the model's name if it is a [*NilAnchorError]: what
// generated code found before it called any other method.
func (c *Core) NilAnchor(err error) error {
	if e, ok := err.(*NilAnchorError); ok {
		if e.Model = c.about.model; e.Model == "" {
			e.Model = "runner" // which was never opened
		}
	}
	return err
}

// Config returns every option of the runner, as it was given or by default.
func (c *Core) Config() Config { return c.config.clone() }

// Session returns the session of a replica, nil if there is no such replica.
func (c *Core) Session(replica int) *Session {
	if replica < 0 || replica >= len(c.replicas) {
		return nil
	}
	return c.replicas[replica].session
}
