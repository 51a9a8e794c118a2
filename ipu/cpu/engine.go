package cpu

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/need"
	"github.com/popefgen/popefgen/ipu/cpu/internal/plan"
	"github.com/popefgen/popefgen/ipu/cpu/internal/weights"
	"github.com/popefgen/popefgen/ipu/cpu/internal/workers"
	"github.com/popefgen/popefgen/ipu/graph"
)

// The states of an engine.
const (
	created int32 = iota
	loaded
	stopped
	closed
)

// Engine executes one portable executable. It implements [ipu.Engine].
//
// One goroutine at a time drives it: Connect, Load, Run and Close return
// [ipu.ErrBusy] while another of them is under way. Stop, EnableProfile and
// Profile may be called at any time.
//
// A run that fails leaves the engine loaded, but persistent tensors that the
// program was to write hold old, new or half-written values.
type Engine struct {
	name    string // for profiles
	shared  *weights.Shared
	lease   *weights.Lease    // of shared
	exe     *graph.Executable // these are the shared executable's
	opts    options
	plan    *plan.Plan
	bound   map[plan.NodeKey]int // index into kernels
	kernels []tensor.Kernel
	unused  func(part []byte) // called with parts of the executable; may be nil

	state   atomic.Int32
	busy    atomic.Bool
	profile atomic.Pointer[profile]

	pool     *workers.Pool
	streams  []stream
	handles  map[string]int // index into streams
	programs []program      // ascending by index
	built    bool           // memory is allocated and the programs are bound to it

	persistent map[graph.TensorID]*persistent
	packs      []packed        // in the order of Plan.Packed
	filling    *program        // that sets the values of its weight set
	later      setTask         // what is to be packed in this run
	fault      weights.Failure // of the last run that failed
	wake       chan struct{}   // tells who waits for another engine that this one was stopped
	staging    []byte          // memory for transfers to tensors that are only kept packed; dropped after each run
	release    []func()        // give back memory that the garbage collector does not know
	spent      int64           // operations of loops in this run that may go on for ever
	simulated  *simulated      // device that it is loaded onto, or nil: the CPU
	encoded    []byte          // the executable as it was given
	need       *need.Need      // of memory on simulated devices; nil: it has not been asked for
	at         int             // the instruction that runs, for messages about a panic
	worn       *workers.Labels // by the goroutine that runs a program
}

var (
	_ ipu.Preparer = (*Engine)(nil)
	_ ipu.Prepared = (*program)(nil)
)

// stream is one stream and what is connected to it.
type stream struct {
	info     ipu.StreamInfo
	elem     int // bytes of an element
	host     ipu.Stream
	direct   ipu.Direct   // host, if it is one
	constant ipu.Constant // host, if it is one
	window   *ipu.Window  // of host, if it has one
	releaser ipu.Releaser // host, if it is one
}

// program is one program as it runs.
type program struct {
	engine  *Engine
	plan    *plan.Program
	number  int   // index into Plan.Programs
	streams []int // that it moves
	code    []instruction
	// inputs and outputs are the transfers that may use the host's memory in
	// place, for the check that they do not overlap.
	inputs, outputs []*transfer
	persistent      []*persistent // that steps other than transfers use

	set      *weights.Set  // weights that it sets, or nil
	setIndex int           // of set, for the lease
	sources  []*byte       // memory to list those of the set in
	rest     []instruction // code without what sets values of the set

	ahead  []looking         // inputs that a simulated device moves ahead
	labels []*workers.Labels // per step of the plan; nil unless the option is on

	ready bool // every stream that it moves is connected, and persistent has values
}

// assemble makes an engine that takes part in a shared executable until it is closed
// or collected.
func assemble(c ipu.EngineConfig, opts options, l *weights.Lease, kernels []tensor.Kernel) *Engine {
	m := l.Shared
	e := &Engine{
		name:    c.Name,
		encoded: c.Executable,
		shared:  m,
		lease:   l,
		exe:     m.Exe,
		opts:    opts,
		plan:    m.Plan,
		kernels: kernels,
		bound:   m.Bound,
		unused:  c.Unused,
		pool:    workers.New(opts.Threads),
		handles: map[string]int{},
		wake:    make(chan struct{}, 1),
	}
	cleanup := runtime.AddCleanup(e, (*weights.Lease).End, l)
	e.release = append(e.release, func() { cleanup.Stop(); l.End() })
	for i, s := range e.exe.Streams {
		d := ipu.HostToDevice
		if s.Direction == graph.DeviceToHost {
			d = ipu.DeviceToHost
		}
		e.handles[s.Handle] = i
		e.streams = append(e.streams, stream{elem: s.Type.DType.Size(), info: ipu.StreamInfo{
			Handle:    s.Handle,
			Direction: d,
			Bytes:     int(s.Type.Bytes()),
			Type:      s.Type.DType.String(),
			Shape:     slices.Clone(s.Type.Shape),
		}})
	}
	e.describeFields()
	for i := range m.Plan.Programs {
		p := program{engine: e, plan: &m.Plan.Programs[i], number: i}
		moved, times := map[graph.StreamID]bool{}, graph.Transfers(e.exe.Programs[i].Steps)
		for k := range p.plan.Steps {
			s := &p.plan.Steps[k]
			if (s.Kind == plan.CopyIn || s.Kind == plan.CopyOut) && !moved[s.Stream] {
				moved[s.Stream] = true
				p.streams = append(p.streams, int(s.Stream))
				info := &e.streams[s.Stream].info
				info.Programs = append(info.Programs, p.plan.Index)
				info.Transfers = append(info.Transfers, times[s.Stream])
			}
		}
		e.programs = append(e.programs, p)
	}
	return e
}

// Plan returns the engine's plan. It must not be changed.
func (e *Engine) Plan() *Plan { return e.plan }

// MemoryReport returns the engine's use of memory, which is known before it
// is loaded.
func (e *Engine) MemoryReport() MemoryReport { return e.plan.Memory() }

// Sharing returns what the engine has in common with others now. It may be
// called at any time before Close.
func (e *Engine) Sharing() Sharing { return e.lease.Sharing() }

// Inline returns true: Run computes in the caller's goroutine.
func (e *Engine) Inline() bool { return true }

// Streams returns every stream in the order of the executable.
func (e *Engine) Streams() []ipu.StreamInfo {
	out := make([]ipu.StreamInfo, len(e.streams))
	for i, s := range e.streams {
		out[i] = s.info
		out[i].Shape = slices.Clone(s.info.Shape)
		out[i].Programs = slices.Clone(s.info.Programs)
		out[i].Transfers = slices.Clone(s.info.Transfers)
		out[i].Fields = slices.Clone(s.info.Fields)
	}
	return out
}

// Programs returns every program, by ascending index.
func (e *Engine) Programs() []ipu.ProgramInfo {
	out := make([]ipu.ProgramInfo, len(e.programs))
	for i, p := range e.programs {
		out[i] = ipu.ProgramInfo{Index: p.plan.Index, Name: p.plan.Name}
	}
	return out
}

// enter takes the engine for one call.
func (e *Engine) enter() error {
	if !e.busy.CompareAndSwap(false, true) {
		return fmt.Errorf("%w: another call drives the engine", ipu.ErrBusy)
	}
	if e.state.Load() == closed {
		e.busy.Store(false)
		return fmt.Errorf("engine: %w", ipu.ErrClosed)
	}
	return nil
}

// Connect attaches the host side of a stream; nil detaches it. The engine
// uses the memory of an [ipu.Constant] in place until another stream is
// connected or the engine is closed.
func (e *Engine) Connect(handle string, s ipu.Stream) (err error) {
	if err := e.enter(); err != nil {
		return fmt.Errorf("connect stream %q: %w", handle, err)
	}
	defer e.busy.Store(false)
	defer ipu.Guard(&err) // the streams are asked for their memory
	i, ok := e.handles[handle]
	if !ok {
		return fmt.Errorf("connect stream %q: %w, want one of %s", handle, ipu.ErrUnknownStream, e.list(nil))
	}
	t := &e.streams[i]
	next := stream{info: t.info, elem: t.elem, host: s}
	next.constant, _ = s.(ipu.Constant)
	next.direct, _ = s.(ipu.Direct)
	next.releaser, _ = s.(ipu.Releaser)
	if w, ok := s.(ipu.Windowed); ok {
		if next.window = w.Window(); next.window.Size != t.info.Bytes {
			next.window = nil // its memory does not fit, which Memory leads to
		}
	}
	e.disconnected(graph.StreamID(i), &next)
	e.returnBorrowed(t, next.constant)
	*t = next
	for k := range e.programs {
		if p := &e.programs[k]; slices.Contains(p.streams, i) {
			p.ready = false
		}
	}
	return nil
}

// list quotes the handles of some streams, or of all.
func (e *Engine) list(which []int) string {
	var all []string
	for i := range e.streams {
		if which == nil || slices.Contains(which, i) {
			all = append(all, fmt.Sprintf("%q", e.streams[i].info.Handle))
		}
	}
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ", ")
}

// Load allocates the engine's memory, packs constants unless another engine of
// the same executable has done so, and forgets the values of persistent tensors:
// they are zero until a program sets them. A program that is too large for a simulated device is [ipu.ErrMemory], with the arithmetic.
func (e *Engine) Load(ctx context.Context, d ipu.Device) (err error) {
	fail := func(err error) error { return fmt.Errorf("load the engine: %w", err) }
	if err := e.enter(); err != nil {
		return fail(err)
	}
	defer e.busy.Store(false)
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	cpu, ok := d.(*device)
	if !ok {
		return fail(fmt.Errorf("%w: the device is not one of the cpu back end", ipu.ErrWrongBackend))
	}
	if !cpu.attached.Load() {
		return fail(fmt.Errorf("%w", ipu.ErrNotAttached))
	}
	e.leaveSimulated()
	e.state.CompareAndSwap(loaded, created)
	if cpu.simulated != nil {
		if err := e.enterSimulated(cpu.simulated); err != nil {
			return fail(err)
		}
	}
	if !e.built {
		if err := e.build(); err != nil {
			return fail(err)
		}
		e.built = true
	}
	e.simulated = cpu.simulated
	for _, p := range e.persistent {
		p.defined = false
		p.lender = nil
	}
	e.lease.Forget()
	for i := range e.programs {
		e.programs[i].ready = false
	}
	e.state.Store(loaded)
	return nil
}

// Run runs a program to its end, in the caller's goroutine. ctx is looked at
// at the start, before every node, in loops and every few milliseconds of a long
// node, and handed to streams.
func (e *Engine) Run(ctx context.Context, index int) error {
	if err := e.enter(); err != nil {
		return fmt.Errorf("run program %d: %w", index, err)
	}
	defer e.busy.Store(false)
	if s := e.state.Load(); s != loaded {
		return e.notLoaded(s, index)
	}
	p, err := e.program(index)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return e.failed(p, len(p.code), err)
	}
	return p.Run(ctx)
}

// Prepare implements [ipu.Preparer].
func (e *Engine) Prepare(index int) (ipu.Prepared, error) {
	p, err := e.program(index)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// notLoaded says why a program can't run in a state other than loaded.
func (e *Engine) notLoaded(state int32, index int) error {
	switch state {
	case stopped:
		return fmt.Errorf("run program %d: %w: load it again", index, ipu.ErrStopped)
	case closed:
		return fmt.Errorf("run program %d: %w", index, ipu.ErrClosed)
	}
	return fmt.Errorf("run program %d: %w", index, ipu.ErrNotLoaded)
}

// program returns the program of that index.
func (e *Engine) program(index int) (*program, error) {
	for i := range e.programs {
		if e.programs[i].plan.Index == index {
			return &e.programs[i], nil
		}
	}
	return nil, fmt.Errorf("run program %d: %w, want one of %v", index, ipu.ErrUnknownProgram, e.indices())
}

func (e *Engine) indices() []int {
	out := make([]int, len(e.programs))
	for i, p := range e.programs {
		out[i] = p.plan.Index
	}
	return out
}

func (e *Engine) unconnected(p *program) error {
	var open []int
	for _, s := range p.streams {
		if e.streams[s].host == nil {
			open = append(open, s)
		}
	}
	return fmt.Errorf("run program %d %q: %w: %s", p.plan.Index, p.plan.Name, ipu.ErrUnconnected, e.list(open))
}

// Stop makes a running program end before its next node; a stream that blocks
// must be released by the host. Afterwards the engine must be loaded again.
func (e *Engine) Stop() error {
	for {
		switch s := e.state.Load(); s {
		case loaded:
			if e.state.CompareAndSwap(loaded, stopped) {
				select {
				case e.wake <- struct{}{}:
				default:
				}
				return nil
			}
		case stopped:
			return nil
		case closed:
			return fmt.Errorf("stop the engine: %w", ipu.ErrClosed)
		default:
			return fmt.Errorf("stop the engine: %w", ipu.ErrNotLoaded)
		}
	}
}

// Close ends the engine's goroutines and drops its memory. It returns
// [ipu.ErrBusy] while a program runs: stop it first.
func (e *Engine) Close() error {
	if err := e.enter(); err != nil {
		if errors.Is(err, ipu.ErrClosed) {
			return nil
		}
		return fmt.Errorf("close the engine: %w", err)
	}
	e.state.Store(closed)
	e.leaveSimulated()
	e.encoded = nil
	e.pool.Close()
	for i := range e.streams {
		s := &e.streams[i]
		s.host, s.direct, s.constant, s.releaser, s.window = nil, nil, nil, nil, nil
	}
	for i := range e.programs {
		e.programs[i] = program{engine: e, plan: e.programs[i].plan}
	}
	e.kernels, e.persistent, e.packs = nil, nil, nil
	for _, release := range e.release {
		release()
	}
	e.release = nil
	e.busy.Store(false)
	return nil
}
