package rt

import (
	"context"
	"fmt"
	"slices"

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
	Contract   string       // the canonical text of the model's contract
	Iterations int          // transfers of every run input and output in one run, at least 1
	QueueDepth int          // places for submitted requests, at least 1
	Anchors    []AnchorSpec // those that memory is bound to
}

// AnchorSpec is what generated code knows of one anchor.
type AnchorSpec struct {
	Name   string // name in the model
	Handle string // stream handle
	GoName string // name of its Go type and fields
	Role   Role
	Bytes  int // size of one transfer
}

// Source says where a model comes from: bytes, which must not change until
// Close, or a file.
type Source struct {
	Name  string // names Bytes in messages
	Bytes []byte
	Path  string // used if Bytes is nil
}

// Binding connects a stream of generated code, an [*Input] or [*Output], to
// its handle.
type Binding struct {
	Handle string
	Stream ipu.Stream
}

// Core is what a generated Runner is built around: it opens the model, and
// gives the engine to one request at a time. Its methods are for generated
// code, which calls them in a fixed order:
//
//	synchronous: Begin, Bind every stream, Main
//	submitted:   Reserve, store the request in the slot, Enqueue
//	saving:      Begin, Bind every stream, Save
//
// The zero Core behaves as if closed.
type Core struct {
	session *Session
	bind    func(slot int)
	run     []*window // bound to memory during a run
	saved   []*window // bound to memory while saving
}

// Open opens the model of spec: from source, or from where an option says. It
// refuses a model of another contract ([*ContractError]), makes a session,
// connects bindings and runs the load programs once. bind is called for a
// submitted request, before it runs, to bind the streams to the memory in its
// slot; it should also forget that memory.
//
// An Input of role [LoadInput] or [Seed] must be bound already, to memory that
// stays valid and unchanged until Close.
func (c *Core) Open(ctx context.Context, spec *Spec, source Source, bindings []Binding, bind func(slot int), opts ...Option) error {
	o, err := newOptions(opts)
	if err != nil {
		return fmt.Errorf("%s: open: %w", spec.Package, err)
	}
	model, err := loadModel(source, o)
	if err != nil {
		return fmt.Errorf("%s: open: %w", spec.Package, err)
	}
	s, err := openSession(ctx, spec, model, o)
	if err != nil {
		model.Close()
		return err
	}
	s.owned = model
	if err := c.prepare(ctx, s, spec, bindings); err != nil {
		s.Close()
		return err
	}
	c.session, c.bind = s, bind
	s.queue = newQueue(&s.gate, spec.QueueDepth, c.serve)
	return nil
}

// loadModel reads the model from where source or an option says.
func loadModel(source Source, o *options) (*popef.Model, error) {
	switch {
	case len(o.files) > 0:
		return popef.Load(o.files...)
	case o.bytes != nil:
		return popef.LoadBytes("bytes given to WithModelBytes", o.bytes)
	case source.Bytes != nil:
		return popef.LoadBytes(source.Name, source.Bytes)
	}
	return popef.Load(source.Path)
}

// openSession compares the contracts and makes a session.
func openSession(ctx context.Context, spec *Spec, m *popef.Model, o *options) (*Session, error) {
	found := contract.Of(m)
	if text := found.Text(); text != spec.Contract {
		want, err := contract.Parse(spec.Contract)
		if err != nil {
			return nil, fmt.Errorf("%s: open: %w: its contract: %w", spec.Package, ErrGenerated, err)
		}
		return nil, fmt.Errorf("%s: open: %w", spec.Package, &ContractError{
			Package: spec.Package, Model: modelName(m), Want: want.Hash(), Found: contract.HashText(text), Changes: contract.Diff(want, found),
		})
	}
	if spec.Iterations != found.DeviceIterations() || spec.QueueDepth < 1 {
		return nil, fmt.Errorf("%s: open: %w: %d iterations (the contract has %d), queue depth %d",
			spec.Package, ErrGenerated, spec.Iterations, found.DeviceIterations(), spec.QueueDepth)
	}
	return newSession(ctx, m, found, o)
}

// prepare connects the bindings and runs the load programs.
func (c *Core) prepare(ctx context.Context, s *Session, spec *Spec, bindings []Binding) error {
	for _, b := range bindings {
		if err := c.attach(s, spec, b); err != nil {
			return s.errorf("open", err)
		}
	}
	if err := s.check(s.main); err != nil {
		return s.errorf("open", err)
	}
	if err := s.runLoad(ctx); err != nil {
		return err
	}
	s.ready = true
	return nil
}

// attach connects one binding.
func (c *Core) attach(s *Session, spec *Spec, b Binding) error {
	at := slices.IndexFunc(spec.Anchors, func(a AnchorSpec) bool { return a.Handle == b.Handle })
	stream, ok := b.Stream.(bound)
	if at < 0 || !ok {
		return fmt.Errorf("%w: stream %q is bound to %T, of %d anchors", ErrGenerated, b.Handle, b.Stream, len(spec.Anchors))
	}
	a := &spec.Anchors[at]
	i := s.index(b.Handle)
	if i < 0 {
		return fmt.Errorf("anchor %q: %w: the executable has no stream %q", a.Name, ErrUnknownStream, b.Handle)
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
	w.anchor, w.size, w.count = a.Name, a.Bytes, transfers
	var connected ipu.Stream = stream
	switch a.Role {
	case RunInput, RunOutput:
		c.run = append(c.run, w)
		s.windows = append(s.windows, w)
	case SaveOutput:
		c.saved = append(c.saved, w)
		s.windows = append(s.windows, w)
	default: // given once, and the same wherever a program asks for it
		if w.mem == nil {
			return &NilAnchorError{Field: "LoadInputs." + a.GoName, Anchor: a.Name}
		}
		connected = constant{w.mem}
	}
	return s.connect(i, connected, given)
}

// Begin takes the engine for a synchronous run or a save, which the next call
// must be. It waits for submitted requests that came before, and with
// [Concurrent] for other callers. Errors: [ErrClosed], [ErrConcurrent], or
// ctx's if it ends first.
func (c *Core) Begin(ctx context.Context) error {
	if c.session == nil {
		return ErrClosed
	}
	if err := c.session.begin(ctx); err != nil {
		return c.session.errorf("run", err)
	}
	return nil
}

// Main runs the main programs in the caller's goroutine, over the memory that
// the streams were bound to after Begin, and leaves the engine to the next
// request. The streams forget the memory.
func (c *Core) Main(ctx context.Context) error {
	defer c.end()
	return c.session.request(ctx)
}

func (c *Core) end() {
	forget(c.run)
	c.session.gate.release(1)
}

// Save runs the save programs as Main runs the main programs.
func (c *Core) Save(ctx context.Context) error {
	defer c.endSave()
	return c.session.runSave(ctx)
}

func (c *Core) endSave() {
	forget(c.saved)
	c.session.gate.release(0)
}

func forget(windows []*window) {
	for _, w := range windows {
		w.clear()
	}
}

// serve computes the request of a slot, in the worker's goroutine.
func (c *Core) serve(slot int) error {
	defer forget(c.run)
	c.bind(slot)
	return c.session.request(context.Background())
}

// Reserve takes a place in the queue. It never blocks: [ErrQueueFull] if there
// is none, [ErrClosed] after Close.
func (c *Core) Reserve() (int, error) {
	if c.session == nil {
		return 0, ErrClosed
	}
	slot, err := c.session.queue.reserve()
	if err != nil {
		return 0, c.session.errorf("submit", err)
	}
	return slot, nil
}

// Enqueue lines up the request in a slot that Reserve returned.
func (c *Core) Enqueue(slot int) Ticket { return c.session.queue.enqueue(slot) }

// Close closes the session, see [Session.Close]. Tickets of requests that it
// stops fail with [ErrClosed].
func (c *Core) Close() error {
	if c.session == nil {
		return nil
	}
	return c.session.Close()
}

// Session returns the session under the runner, nil before Open.
func (c *Core) Session() *Session { return c.session }
