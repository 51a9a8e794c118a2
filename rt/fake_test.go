package rt_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/popefgen/popefgen/ipu"
)

// fake is a back end whose programs are Go functions. An executable is the
// name of a script.
type fake struct{}

const fakeName = "rt-fake"

func init() { ipu.Register(through(fake{})) }

// script says what an engine of the fake back end does.
type script struct {
	streams  []ipu.StreamInfo
	programs map[int]func(ctx context.Context, e *engine) error
	fetching bool  // moves data as a device with its own clock does, not in place
	instant  bool  // Run does nothing at all, for benchmarks
	failLoad error // of Engine.Load
	failMake error // of NewEngine
	hash     bool  // compiled by another Poplar

	engine *engine // the last one made
}

var scripts sync.Map // name -> *script

// register makes an executable that does what s says.
func register(t testing.TB, s *script) []byte {
	name := "fake " + t.Name()
	scripts.Store(name, s)
	t.Cleanup(func() { scripts.Delete(name) })
	return []byte(name)
}

func (fake) Name() string { return fakeName }

// fakeDevices are the devices of the back end.
var fakeDevices = []*device{
	{info: ipu.DeviceInfo{ID: 0, Backend: fakeName, Kind: "ipu", Description: "busy", NumIPUs: 1, RemoteBuffers: true}, busy: true},
	{info: ipu.DeviceInfo{ID: 1, Backend: fakeName, Kind: "ipu", Description: "two", NumIPUs: 2}},
	{info: ipu.DeviceInfo{ID: 2, Backend: fakeName, Kind: "ipu", Description: "one", NumIPUs: 1, RemoteBuffers: true}},
}

func (fake) Devices(ctx context.Context) ([]ipu.Device, error) {
	var all []ipu.Device
	for _, d := range fakeDevices {
		all = append(all, d)
	}
	return all, ctx.Err()
}

func (fake) Accepts(ipu.Format) error { return nil }

func (fake) NewEngine(c ipu.EngineConfig) (ipu.Engine, error) {
	v, ok := scripts.Load(string(c.Executable))
	if !ok {
		return nil, fmt.Errorf("no script %q", c.Executable)
	}
	s := v.(*script)
	if s.failMake != nil {
		return nil, s.failMake
	}
	if s.hash && !c.DisableHashCheck {
		return nil, &ipu.Error{Kind: ipu.KindPackageHash, Op: "make an engine"}
	}
	s.engine = &engine{script: s, config: c, connected: map[string]ipu.Stream{}, memory: map[string][]byte{}, moved: map[string][]byte{}}
	return s.engine, nil
}

type device struct {
	info     ipu.DeviceInfo
	busy     bool
	attached atomic.Int32
}

func (d *device) Info() ipu.DeviceInfo { return d.info }

func (d *device) Attach() (bool, error) {
	if d.busy {
		return false, nil
	}
	d.attached.Store(1)
	return true, nil
}

func (d *device) Detach() error {
	d.attached.Store(0)
	return nil
}

// engine records what happens to it.
type engine struct {
	script    *script
	config    ipu.EngineConfig
	connected map[string]ipu.Stream
	memory    map[string][]byte // persistent tensors
	moved     map[string][]byte // a buffer for each stream

	mu     sync.Mutex
	trace  []string
	stop   chan struct{} // closed by Stop; nil before Load
	closed bool
	inRun  atomic.Int32
	ctx    context.Context // of the run
}

func (e *engine) log(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.trace = append(e.trace, fmt.Sprintf(format, args...))
}

// took returns the trace so far and starts a new one.
func (e *engine) took() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := strings.Join(e.trace, ", ")
	e.trace = nil
	return s
}

func (e *engine) Streams() []ipu.StreamInfo { return e.script.streams }
func (e *engine) Inline() bool              { return true }

func (e *engine) Programs() []ipu.ProgramInfo {
	var all []ipu.ProgramInfo
	for i := range e.script.programs {
		all = append(all, ipu.ProgramInfo{Index: i})
	}
	slices.SortFunc(all, func(a, b ipu.ProgramInfo) int { return a.Index - b.Index })
	return all
}

func (e *engine) Connect(handle string, s ipu.Stream) error {
	for _, info := range e.script.streams {
		if info.Handle == handle {
			e.connected[handle] = s
			e.moved[handle] = make([]byte, info.Bytes)
			return nil
		}
	}
	return fmt.Errorf("stream %q: %w", handle, ipu.ErrUnknownStream)
}

func (e *engine) Load(ctx context.Context, d ipu.Device) error {
	if e.script.failLoad != nil {
		return e.script.failLoad
	}
	e.mu.Lock()
	e.stop = make(chan struct{})
	e.mu.Unlock()
	clear(e.memory)
	e.log("load")
	return ctx.Err()
}

// stopping is closed by Stop.
func (e *engine) stopping() chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stop
}

func (e *engine) Run(ctx context.Context, program int) error {
	if e.script.instant {
		return nil
	}
	if e.inRun.Add(1) != 1 {
		panic("two goroutines drive the engine")
	}
	defer e.inRun.Add(-1)
	if err := ctx.Err(); err != nil {
		return err
	}
	stop := e.stopping()
	if stop == nil {
		return ipu.ErrNotLoaded
	}
	select {
	case <-stop:
		return ipu.ErrStopped
	default:
	}
	e.ctx = ctx
	return e.script.programs[program](ctx, e)
}

func (e *engine) Stop() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return ipu.ErrClosed
	}
	if e.stop == nil {
		return ipu.ErrNotLoaded
	}
	select {
	case <-e.stop:
	default:
		close(e.stop)
	}
	return nil
}

func (e *engine) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	return nil
}

// in returns the next transfer of an input.
func (e *engine) in(handle string) ([]byte, error) {
	s := e.connected[handle]
	if d, ok := s.(ipu.Direct); ok && !e.script.fetching {
		return d.Memory(e.ctx)
	}
	buf := e.moved[handle]
	if s.Prefetch(buf) { // and be told that it was in vain
		s.InvalidatePrefetched()
		clear(buf)
	}
	if s.Prefetch(buf) {
		return buf, nil
	}
	return buf, s.Fetch(e.ctx, buf)
}

// done ends the transfer that in returned.
func (e *engine) done(handle string) { e.connected[handle].Complete() }

// out delivers a transfer of an output.
func (e *engine) out(handle string, data []byte) error {
	s := e.connected[handle]
	defer s.Complete()
	if d, ok := s.(ipu.Direct); ok && !e.script.fetching {
		mem, err := d.Memory(e.ctx)
		if err != nil {
			return err
		}
		if mem != nil {
			copy(mem, data)
			return nil
		}
	}
	return s.Fetch(e.ctx, data)
}

// set keeps the next transfer of an input.
func (e *engine) set(handle string) error {
	data, err := e.in(handle)
	if err != nil {
		return errors.Join(ipu.ErrCallback, err)
	}
	e.memory[handle] = append(e.memory[handle][:0], data...)
	e.done(handle)
	return nil
}

func f32s(data []byte, i int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
}

func putF32(data []byte, i int, v float32) {
	binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(v))
}

func floats(values ...float32) []byte {
	b := make([]byte, 4*len(values))
	for i, v := range values {
		putF32(b, i, v)
	}
	return b
}
