package iputest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu"
)

// The states of an engine.
const (
	created = iota
	loaded
	lost // a device error took what was loaded
	stopped
	closed
)

// Engine is an engine of a [System]. It implements [ipu.Engine]: connecting
// nil disconnects, Close fails with [ipu.ErrBusy] while a program runs, and a
// call that overlaps another but Stop fails with ipu.ErrBusy.
//
// It behaves as a device with a clock of its own does: it prefetches inputs,
// hands out buffers that it overwrites after every call, and needs to be
// loaded again after a device error, after Stop, and when another engine was
// loaded onto its device.
type Engine struct {
	sys      *System
	label    string
	config   ipu.EngineConfig
	script   Script // zero for a portable executable
	inner    *cpu.Engine
	innerOn  ipu.Device
	index    map[string]int // of streams, by handle
	programs []programPlan

	staged *slot // of the run under way; for who has busy

	prefetch  bool
	lookahead int
	dedicated bool

	busy    atomic.Bool
	streams []stream // for who has busy
	current *run     // of a portable executable

	mu      sync.Mutex // guards what follows; taken before System.mu
	state   int
	cancel  context.CancelCauseFunc // of the call under way
	device  *Device
	failure error // what made the engine lost

	slots    []slot
	steps    context.Context // ends when the engine is loaded, stopped or closed
	endSteps context.CancelFunc
}

var _ ipu.Engine = (*Engine)(nil)

// stream is one stream of an engine.
type stream struct {
	info        ipu.StreamInfo
	depth       int
	speculative bool
	host        ipu.Stream
	tensor      []byte   // on the device
	ahead       [][]byte // prefetched and not yet consumed, oldest first
	refused     bool     // to prefetch, since the last transfer of any stream
	moved       int      // transfers completed since the engine was loaded
	buffer      []byte   // lent to the host
}

// unlimited is the most that an engine looks ahead.
const unlimited = 4096

// prepare decodes the executable and reads the options.
func (e *Engine) prepare() error {
	if err := e.sys.Accepts(ipu.Identify(e.config.Executable)); err != nil {
		return err
	}
	if err := e.setOptions(); err != nil {
		return err
	}
	if ipu.Identify(e.config.Executable) == ipu.FormatPortable {
		return e.preparePortable()
	}
	var err error
	if e.script, err = decode(e.config.Executable); err != nil {
		return err
	}
	p, err := e.script.plan()
	if err != nil {
		return err
	}
	if have, want := e.script.PackageHash, e.sys.hash; have != want && !e.config.DisableHashCheck {
		return &ipu.Error{Kind: ipu.KindPackageHash, Op: "read the executable",
			Message: fmt.Sprintf("package hash (%s) differs from the device's (%s)", have, want)}
	}
	if err := e.checkFunctions(e.script); err != nil {
		return err
	}
	e.setStreams(p.streams)
	for i, s := range e.script.Streams {
		e.streams[i].depth, e.streams[i].speculative = max(1, s.Depth), s.Speculative
	}
	e.programs = p.programs
	return nil
}

func (e *Engine) preparePortable() error {
	var err error
	if e.inner, e.innerOn, err = portable(e.config); err != nil {
		return err
	}
	e.setStreams(e.inner.Streams())
	for _, p := range e.inner.Programs() {
		q := programPlan{ProgramInfo: p}
		for i, s := range e.streams {
			if slices.Contains(s.info.Programs, p.Index) {
				q.moves = append(q.moves, i)
			}
		}
		e.programs = append(e.programs, q)
	}
	for i := range e.streams {
		if err := e.inner.Connect(e.streams[i].info.Handle, &wire{e: e, i: i}); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) setStreams(infos []ipu.StreamInfo) {
	e.streams = make([]stream, len(infos))
	e.index = map[string]int{}
	for i, info := range infos {
		e.streams[i] = stream{info: info, depth: 1, tensor: make([]byte, info.Bytes)}
		e.index[info.Handle] = i
	}
}

func (e *Engine) setOptions() error {
	e.prefetch, e.lookahead = true, unlimited
	for _, o := range e.config.Options {
		ok := true
		switch o.Name {
		case "exchange.enablePrefetch":
			e.prefetch = o.Value == "true"
			ok = e.prefetch || o.Value == "false"
		case "streamCallbacks.maxLookahead":
			n, err := strconv.ParseUint(o.Value, 10, 32)
			if ok = err == nil || o.Value == "unlimited"; err == nil {
				e.lookahead = int(min(n, unlimited))
			}
		case "streamCallbacks.multiThreadMode":
			ok = slices.Contains([]string{"singleThread", "collaborative", "dedicated"}, o.Value)
			e.dedicated = o.Value != "singleThread"
		}
		if !ok {
			return &ipu.Error{Kind: ipu.KindInvalidOption, Op: fmt.Sprintf("option %q", o.Name), Message: fmt.Sprintf("it does not take %q", o.Value)}
		}
	}
	return nil
}

// checkFunctions checks that the system has every function of a script.
func (e *Engine) checkFunctions(s Script) error {
	var check func(steps []Step) error
	check = func(steps []Step) error {
		for _, step := range steps {
			if step.Do == doCall && e.sys.functions[step.Func] == nil {
				return fmt.Errorf("%w: there is no function %q", ErrScript, step.Func)
			}
			if err := check(step.Steps); err != nil {
				return err
			}
		}
		return nil
	}
	for _, p := range s.Programs {
		if err := check(p.Steps); err != nil {
			return err
		}
	}
	return nil
}

// Label names the engine in the system's log: the model's name, with a number
// if it is not the first of that name.
func (e *Engine) Label() string { return e.label }

// Config returns what the engine was made with.
func (e *Engine) Config() ipu.EngineConfig { return e.config }

// Tensor returns a copy of the tensor of the stream with that handle, as it is
// on the device, or nil if there is none. It must not be called while a
// program runs.
func (e *Engine) Tensor(handle string) []byte {
	i, ok := e.index[handle]
	if !ok {
		return nil
	}
	return slices.Clone(e.streams[i].tensor)
}

// Inline returns false.
func (e *Engine) Inline() bool { return false }

// Streams returns every stream in the order of the executable.
func (e *Engine) Streams() []ipu.StreamInfo {
	out := make([]ipu.StreamInfo, len(e.streams))
	for i, s := range e.streams {
		out[i] = s.info
		out[i].Shape, out[i].Programs = slices.Clone(s.info.Shape), slices.Clone(s.info.Programs)
	}
	return out
}

// Programs returns every program, by ascending index.
func (e *Engine) Programs() []ipu.ProgramInfo {
	out := make([]ipu.ProgramInfo, len(e.programs))
	for i, p := range e.programs {
		out[i] = p.ProgramInfo
	}
	return out
}

// enter takes the engine for one call, which Stop cancels through the context.
func (e *Engine) enter(ctx context.Context) (context.Context, error) {
	if !e.busy.CompareAndSwap(false, true) {
		return nil, fmt.Errorf("%w: another call drives the engine", ipu.ErrBusy)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state == closed {
		cancel(nil)
		e.busy.Store(false)
		return nil, ipu.ErrClosed
	}
	e.cancel = cancel
	return ctx, nil
}

func (e *Engine) leave() {
	e.mu.Lock()
	e.cancel(nil)
	e.cancel = nil
	e.mu.Unlock()
	e.busy.Store(false)
}

// log records an event of the engine.
func (e *Engine) log(event Event) {
	event.Engine = e.label
	e.sys.mu.Lock()
	defer e.sys.mu.Unlock()
	e.sys.record(event)
}

// Connect attaches the host side of a stream. What was prefetched from the one
// before is thrown away.
func (e *Engine) Connect(handle string, host ipu.Stream) error {
	fail := func(err error) error { return fmt.Errorf("connect stream %q: %w", handle, err) }
	if _, err := e.enter(context.Background()); err != nil {
		return fail(err)
	}
	defer e.leave()
	i, ok := e.index[handle]
	if !ok {
		var have []string
		for _, s := range e.streams {
			have = append(have, strconv.Quote(s.info.Handle))
		}
		return fail(fmt.Errorf("%w, want one of %s", ipu.ErrUnknownStream, strings.Join(have, ", ")))
	}
	e.discard(i, -1)
	e.streams[i].host = host
	e.log(Event{Kind: EventConnect, Device: -1, Program: -1, Stream: handle})
	return nil
}

// Load places the executable on a device of the same system.
func (e *Engine) Load(ctx context.Context, d ipu.Device) error {
	fail := func(err error) error { return fmt.Errorf("load the engine: %w", err) }
	ctx, err := e.enter(ctx)
	if err != nil {
		return fail(err)
	}
	defer e.leave()
	if ctx.Err() != nil {
		return fail(ended(ctx))
	}
	device, ok := d.(*Device)
	if !ok || device.unit.sys != e.sys {
		return fail(fmt.Errorf("%w: the device is not one of the test system %q", ipu.ErrWrongBackend, e.sys.name))
	}
	for i := range e.streams {
		e.discard(i, -1)
	}
	if err := e.load(ctx, device); err != nil {
		return fail(err)
	}
	return nil
}

func (e *Engine) load(ctx context.Context, device *Device) error {
	u := device.unit
	event := Event{Kind: EventLoad, Engine: e.label, Device: u.info.ID, Program: -1}
	if err := e.allowed(device); err != nil {
		return err
	}
	err := e.sys.strike(ctx, atLoad, u.info.ID, event, fmt.Sprintf("device %d", u.info.ID))
	if err == nil && e.inner != nil {
		err = e.inner.Load(ctx, e.innerOn)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sys.mu.Lock()
	defer e.sys.mu.Unlock()
	if ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err())) { // the cpu engine knows of no Stop
		err = ended(ctx)
	}
	event.Err = err
	if err != nil {
		u.suffer(err)
		e.sys.record(event)
		if e.state == loaded {
			e.state, e.failure = lost, err
		}
		return err
	}
	for i := range e.streams {
		clear(e.streams[i].tensor)
		e.streams[i].moved = 0
	}
	e.restage()
	if e.device != nil && e.device.unit != u && e.device.unit.loaded == e {
		e.device.unit.loaded = nil
	}
	e.state, e.device, e.failure = loaded, device, nil
	u.loaded = e
	e.sys.record(event)
	return nil
}

// allowed returns why the engine can't be loaded onto a device.
func (e *Engine) allowed(device *Device) error {
	s, u := e.sys, device.unit
	s.mu.Lock()
	defer s.mu.Unlock()
	id, need := u.info.ID, e.script
	refuse := func(kind ipu.ErrorKind, format string, args ...any) error {
		return &ipu.Error{Kind: kind, Op: fmt.Sprintf("device %d", id), Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case u.holder != device:
		return fmt.Errorf("device %d: %w", id, ipu.ErrNotAttached)
	case u.running != nil:
		return fmt.Errorf("device %d: %w: %s runs a program on it", id, ipu.ErrBusy, u.running.label)
	case u.broken != nil:
		return &ipu.Error{Kind: u.broken.Kind, Recovery: u.broken.Recovery, Op: fmt.Sprintf("device %d", id),
			Message: "the device must be repaired first", Err: u.broken}
	case need.NumIPUs != 0 && need.NumIPUs != u.info.NumIPUs:
		return refuse(ipu.KindOther, "the program needs %d IPUs, the device has %d", need.NumIPUs, u.info.NumIPUs)
	case need.Version != 0 && need.Version != u.info.Version:
		return refuse(ipu.KindOther, "the program was compiled for version %d, the device has %d", need.Version, u.info.Version)
	case need.RemoteBuffers && !u.info.RemoteBuffers:
		return refuse(ipu.KindOther, "the program needs remote buffers, which the device does not support")
	case need.Tiles > u.info.TilesPerIPU:
		return refuse(ipu.KindMemory, "the program needs %d tiles of each IPU, the device has %d", need.Tiles, u.info.TilesPerIPU)
	}
	return nil
}

// Stop makes the program under way, if any, end with [ipu.ErrStopped] as soon
// as the host returns from the stream's call that it may be in. Stopping again
// does nothing.
func (e *Engine) Stop() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.state == closed:
		return fmt.Errorf("stop the engine: %w", ipu.ErrClosed)
	case e.state == stopped && e.cancel == nil:
		return nil
	case e.state == created && e.cancel == nil:
		return fmt.Errorf("stop the engine: %w", ipu.ErrNotLoaded)
	}
	if e.state != created {
		e.state = stopped
	}
	e.endSteps()
	if e.cancel != nil {
		e.cancel(ipu.ErrStopped)
	}
	e.log(Event{Kind: EventStop, Device: -1, Program: -1})
	return nil
}

// Close releases the engine.
func (e *Engine) Close() error {
	if _, err := e.enter(context.Background()); err != nil {
		if errors.Is(err, ipu.ErrClosed) {
			return nil
		}
		return fmt.Errorf("close the engine: %w", err)
	}
	defer e.leave()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.state = closed
	e.endSteps()
	e.sys.mu.Lock()
	if e.device != nil && e.device.unit.loaded == e {
		e.device.unit.loaded = nil
	}
	e.sys.record(Event{Kind: EventClose, Engine: e.label, Device: -1, Program: -1})
	e.sys.mu.Unlock()
	for i := range e.streams {
		e.streams[i].host = nil
	}
	if e.inner != nil {
		return e.inner.Close()
	}
	return nil
}
