//go:build poplar && linux && cgo

package poplar

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/popefgen/popefgen/ipu"
)

// The states of an engine.
const (
	created = iota
	loaded
	lost // an error of the device took what was loaded
	stopped
	closed
)

// Engine is a poplar::Engine. It implements [ipu.Engine]: Close fails with [ipu.ErrBusy] while a program runs, and so
// does a call that overlaps another one, but Stop.
type Engine struct {
	c     *C.plr_engine
	mail  mail
	seats [C.PLR_SLOTS]seat
	rests bool // there are processors enough to wait in a system call

	busy     atomic.Bool
	streams  []stream // for who has busy; ends are for who has mu too
	index    map[string]int
	programs []program
	numbers  atomic.Uint32       // of runs
	current  atomic.Pointer[run] // that calls streams of Go
	halted   atomic.Bool         // Engine::stop was called since the engine was loaded
	spare    run                 // of runs that call none
	calling  *run                // of the next that calls some; nil if none has, or if streams may still have the last one's context

	mu      sync.Mutex // guards what follows
	state   int
	active  bool // a command is under way that somebody waits for
	direct  *run // the last in the first seat
	slots   [Slots]run
	epoch   uint32 // increases when a command fails
	still   int    // calls during which nothing is staged
	away    bool   // the device is another's: nothing is staged
	device  *Device
	failure error // what made the engine lost
}

// stream is one stream and what is connected to it.
type stream struct {
	info ipu.StreamInfo
	end  end // nil if nothing is
}

// end is what the engine connects to a stream for its host's side.
type end interface {
	// begin prepares a run that moves the stream.
	begin(r *run)
	// finish is called when a run that moves the stream has ended, with or without success.
	finish(r *run, ok bool) error
	// again connects the engine's side once more, as it was.
	again(e *Engine, info ipu.StreamInfo, handle *C.char) error
	// reset is called when everything that was prefetched is gone.
	reset()
	// release frees what the end has, once the engine has let go of it.
	release()
}

// program is one program.
type program struct {
	ipu.ProgramInfo
	moves []int // streams
}

// setStreams compares what is said of the streams with those that Poplar names.
func (e *Engine) setStreams(streams []ipu.StreamInfo, programs []ipu.ProgramInfo) error {
	var err C.plr_err
	var names *C.char
	var n C.size_t
	if err := failure(C.plr_engine_streams(e.c, &names, &n, &err), &err, "list streams"); err != nil {
		return err
	}
	defer C.plr_free(unsafe.Pointer(names))
	type theirs struct {
		name      string // with the sign that tells the direction
		direction ipu.Direction
	}
	there := map[string]theirs{}
	var order []string
	for at := names; len(order) < int(n); {
		name := C.GoString(at)
		at = (*C.char)(unsafe.Add(unsafe.Pointer(at), len(name)+1))
		handle, direction := strings.TrimSuffix(name, "+"), ipu.HostToDevice
		if strings.HasSuffix(name, "-") {
			handle, direction = name[:len(name)-1], ipu.DeviceToHost
		}
		there[handle] = theirs{name, direction}
		order = append(order, handle)
	}
	e.index = map[string]int{}
	for _, s := range streams {
		if d, ok := there[s.Handle]; !ok && s.Blocks == 0 {
			continue // of another executable
		} else if ok && d.name != s.Handle && d.direction != s.Direction { // a name without a sign does not tell
			return fmt.Errorf("stream %q: its direction is %v in the model's metadata and %v in the executable, which names it %q; they are of different compilations", s.Handle, s.Direction, d.direction, d.name)
		}
		e.index[s.Handle] = len(e.streams)
		e.streams = append(e.streams, stream{info: s})
	}
	for _, handle := range order {
		if _, ok := e.index[handle]; !ok { // what it moves is not known: it can't be connected
			e.index[handle] = len(e.streams)
			e.streams = append(e.streams, stream{info: ipu.StreamInfo{Handle: handle, Direction: there[handle].direction, Type: "unknown"}})
		}
	}
	for _, p := range programs {
		q := program{ProgramInfo: p}
		for i := range e.streams {
			if slices.Contains(e.streams[i].info.Programs, p.Index) {
				q.moves = append(q.moves, i)
			}
		}
		e.programs = append(e.programs, q)
	}
	return nil
}

// Inline returns false.
func (e *Engine) Inline() bool { return false }

// Streams returns every stream: those that the model's metadata describes, in its order, then what else the executable has.
func (e *Engine) Streams() []ipu.StreamInfo {
	out := make([]ipu.StreamInfo, len(e.streams))
	for i, s := range e.streams {
		out[i] = s.info
		out[i].Shape, out[i].Programs = slices.Clone(s.info.Shape), slices.Clone(s.info.Programs)
		out[i].Transfers, out[i].Fields = slices.Clone(s.info.Transfers), slices.Clone(s.info.Fields)
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

// enter takes the engine for one call.
func (e *Engine) enter() error {
	if !e.busy.CompareAndSwap(false, true) {
		return fmt.Errorf("%w: another call drives the engine", ipu.ErrBusy)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state == closed {
		e.busy.Store(false)
		return ipu.ErrClosed
	}
	return nil
}

// Connect attaches the host side of a stream; nil detaches it.
func (e *Engine) Connect(handle string, host ipu.Stream) (err error) {
	fail := func(err error) error { return fmt.Errorf("connect stream %q: %w", handle, err) }
	if err := e.enter(); err != nil {
		return fail(err)
	}
	defer e.busy.Store(false)
	i, ok := e.index[handle]
	if !ok {
		var have []string
		for _, s := range e.streams {
			have = append(have, fmt.Sprintf("%q", s.info.Handle))
		}
		return fail(fmt.Errorf("%w, want one of %s", ipu.ErrUnknownStream, strings.Join(have, ", ")))
	}
	s := &e.streams[i]
	if s.info.Type == "unknown" && host != nil {
		return fail(errors.New("the model's metadata has no anchor of that handle: how much it moves is not known"))
	}
	e.quiet()
	defer e.resume()
	next, err := e.connect(s.info, host)
	if err != nil {
		return fail(err)
	}
	if s.end != nil {
		s.end.release()
	}
	s.end = next
	return nil
}

// connect connects the end that fits a host's side. What the stream had before is still there for the engine to let go of.
func (e *Engine) connect(info ipu.StreamInfo, host ipu.Stream) (_ end, err error) {
	defer ipu.Guard(&err) // the host is asked for its memory
	handle := C.CString(info.Handle)
	defer C.free(unsafe.Pointer(handle))
	if info.Blocks > 0 {
		return connectRemote(info, host)
	}
	switch h := host.(type) {
	case nil:
		return nil, e.connectNull(info, handle) // Poplar can't disconnect: Run refuses
	case ipu.Empty:
		return empty{}, e.connectNull(info, handle)
	case ipu.Constant:
		if info.Direction == ipu.HostToDevice && len(h.Constant()) == info.Bytes && info.Bytes > 0 {
			return e.connectConstant(handle, h)
		}
	case ipu.Windowed:
		if w := h.Window(); w.Size == info.Bytes {
			return e.connectRing(info, handle, h)
		}
	}
	return e.connectGo(info, handle, host)
}

// reconnect connects all streams as they are connected: an engine that was loaded may have forgotten.
func (e *Engine) reconnect() error {
	for i := range e.streams {
		s := &e.streams[i]
		if s.end == nil {
			continue
		}
		handle := C.CString(s.info.Handle)
		err := s.end.again(e, s.info, handle)
		C.free(unsafe.Pointer(handle))
		if err != nil {
			return fmt.Errorf("connect stream %q: %w", s.info.Handle, err)
		}
	}
	return nil
}

func (e *Engine) connectNull(info ipu.StreamInfo, handle *C.char) error {
	var err C.plr_err
	zeros := C.size_t(0)
	if info.Direction == ipu.HostToDevice {
		zeros = C.size_t(info.Bytes)
	}
	return failure(C.plr_connect_null(e.c, handle, zeros, &err), &err, "")
}

// Load places the executable on a device of this back end. If ctx ends first, the engine is stopped.
func (e *Engine) Load(ctx context.Context, d ipu.Device) error {
	fail := func(err error) error { return fmt.Errorf("load the engine: %w", err) }
	if err := e.enter(); err != nil {
		return fail(err)
	}
	defer e.busy.Store(false)
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	device, ok := d.(*Device)
	if !ok {
		return fail(fmt.Errorf("%w: the device is not one of the poplar back end", ipu.ErrWrongBackend))
	}
	e.quiet()
	defer e.resume()
	if err := device.begin(e, true); err != nil {
		return fail(err)
	}
	defer func() { // whatever a host does
		device.end()
		e.mu.Lock()
		defer e.mu.Unlock()
		e.active = false
	}()
	if e.device != nil && e.device != device {
		e.device.forget(e)
	}
	r := &run{}
	r.begin(e, 0, ctx, nil, fmt.Sprintf("device %d", device.info.ID))
	e.mu.Lock()
	e.active = true
	e.halted.Store(false)
	r.send(C.PLR_LOAD)
	e.mu.Unlock()
	r.wait()
	e.mu.Lock()
	err := e.settle(r)
	e.mu.Unlock()
	for i := range e.streams {
		if end := e.streams[i].end; end != nil {
			end.reset()
		}
	}
	if err == nil {
		err = e.reconnect()
	}
	if err == nil {
		err = e.writeRemote(r)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil && r.stopped.Load() { // after all was written
		err = ipu.ErrStopped
	}
	e.device = device
	switch {
	case err != nil && e.state == loaded:
		e.state, e.failure = lost, err
	case err == nil:
		e.state, e.failure, e.away = loaded, nil, false
	}
	if err != nil {
		return fail(err)
	}
	return nil
}

// Stop makes the program under way end, and the engine has to be loaded again.
func (e *Engine) Stop() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.state == closed:
		return fmt.Errorf("stop the engine: %w", ipu.ErrClosed)
	case e.state == created && !e.active:
		return fmt.Errorf("stop the engine: %w", ipu.ErrNotLoaded)
	case e.state != created:
		e.state = stopped
	}
	if e.active {
		e.direct.stop()
	}
	for i := range e.slots {
		if r := &e.slots[i]; r.out {
			r.stop()
			atomic.StoreUint32(r.seat.failed, 1)
		}
	}
	return nil
}

// Close frees the engine, its thread and its memory.
func (e *Engine) Close() error {
	if err := e.enter(); err != nil {
		if errors.Is(err, ipu.ErrClosed) {
			return nil
		}
		return fmt.Errorf("close the engine: %w", err)
	}
	defer e.busy.Store(false)
	e.quiet()
	e.mu.Lock()
	e.state = closed
	device := e.device
	e.mu.Unlock()
	if device != nil {
		device.forget(e)
	}
	for i := range e.seats {
		e.seats[i].leave()
	}
	var err C.plr_err
	failed := failure(C.plr_engine_free(e.c, &err), &err, "close the engine")
	e.c = nil
	for i := range e.streams {
		if end := e.streams[i].end; end != nil {
			end.release()
			e.streams[i].end = nil
		}
	}
	for i := range e.seats {
		failed = errors.Join(failed, e.seats[i].close())
	}
	return failed
}
