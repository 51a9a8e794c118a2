//go:build poplar && linux && cgo

package poplar

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"context"
	"runtime/cgo"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/popefgen/popefgen/ipu"
)

// called is a stream that Poplar calls through cgo. A goroutine of its own makes the calls of the host, so that one that
// panics, or ends its goroutine, does so nowhere near C++.
type called struct {
	e      *Engine
	host   ipu.Stream
	info   ipu.StreamInfo
	output bool
	handle cgo.Handle

	calls   chan call
	answers chan answer
	inside  atomic.Bool // the host is being called

	starting sync.Mutex    // guards ended
	ended    chan struct{} // closed when the goroutine has ended; nil without one

	mu    sync.Mutex // held during a call, and for ahead
	ahead int        // transfers fetched or prefetched and not complete
}

// What a call is for.
type operation uint8

const (
	fetch operation = iota
	prefetch
	complete
	invalidate
)

type call struct {
	op  operation
	buf []byte
	run *run // nil outside of runs
}

type answer struct {
	ok  bool
	err error
}

func (e *Engine) connectGo(info ipu.StreamInfo, handle *C.char, host ipu.Stream) (end, error) {
	s := &called{e: e, host: host, info: info, output: info.Direction == ipu.DeviceToHost, calls: make(chan call), answers: make(chan answer, 1)}
	s.handle = cgo.NewHandle(s)
	if err := s.again(e, info, handle); err != nil {
		s.handle.Delete()
		return nil, err
	}
	return s, nil
}

func (s *called) again(e *Engine, info ipu.StreamInfo, handle *C.char) error {
	var err C.plr_err
	return failure(C.plr_connect_go(e.c, handle, isOutput(info), C.uint64_t(s.handle), C.size_t(info.Bytes), &err), &err, "")
}

// do has the goroutine make a call of the host.
func (s *called) do(c call) answer {
	s.start()
	s.inside.Store(true)
	defer s.inside.Store(false)
	s.calls <- c
	return <-s.answers
}

// start starts the goroutine, unless it is there.
func (s *called) start() {
	s.starting.Lock()
	defer s.starting.Unlock()
	if s.ended != nil {
		select {
		case <-s.ended: // a call has ended it
		default:
			return
		}
	}
	s.ended = make(chan struct{})
	go s.serve(s.ended)
}

func (s *called) serve(ended chan struct{}) {
	defer close(ended)
	for c := range s.calls {
		if c.run == nil {
			c.run = &run{ctx: context.Background()}
		}
		s.one(c)
	}
}

// one makes one call, and answers whatever happens.
func (s *called) one(c call) {
	a, returned := answer{}, false
	s.mu.Lock()
	defer func() {
		s.mu.Unlock()
		if !returned {
			a = answer{err: ipu.NewExitError()}
		}
		s.answers <- a
	}()
	a = s.make(c)
	returned = true
}

func (s *called) make(c call) (a answer) {
	defer ipu.Guard(&a.err)
	switch c.op {
	case fetch:
		a.err = s.host.Fetch(c.run.ctx, c.buf)
		if a.err == nil {
			s.ahead++
		}
	case prefetch:
		if a.ok = s.host.Prefetch(c.buf); a.ok {
			s.ahead++
		}
	case complete:
		s.ahead = max(0, s.ahead-1)
		s.host.Complete()
	case invalidate:
		s.ahead = 0
		s.host.InvalidatePrefetched()
	}
	return a
}

// begin and finish take the lock: what the host does before a run is seen in the goroutine, and what that does after it.
func (s *called) begin(*run) {
	s.mu.Lock()
	defer s.mu.Unlock()
}

// finish has what was prefetched in a run that failed thrown away: the host starts at its oldest incomplete transfer.
func (s *called) finish(r *run, ok bool) error {
	s.begin(r)
	if ok {
		return nil
	}
	if !s.output {
		handle := C.CString(s.info.Handle)
		defer C.free(unsafe.Pointer(handle))
		_ = s.again(s.e, s.info, handle) // it was connected before; if that fails now the engine can do no more, and says so when it runs
	}
	s.reset()
	return nil
}

// reset tells the host of what is gone, unless Poplar has.
func (s *called) reset() {
	s.mu.Lock()
	ahead := s.ahead
	s.mu.Unlock()
	if ahead > 0 {
		s.do(call{op: invalidate}) // its error has nobody to go to
	}
}

func (s *called) release() {
	s.handle.Delete()
	close(s.calls)
	s.starting.Lock()
	defer s.starting.Unlock()
	if s.ended != nil {
		<-s.ended
	}
}

// callback makes a call that Poplar has made, and ends the run if it fails.
func callback(id C.uint64_t, op operation, mem unsafe.Pointer, n C.uint64_t) (ok bool, err error) {
	s := cgo.Handle(id).Value().(*called)
	c := call{op: op, buf: unsafe.Slice((*byte)(mem), int(n)), run: s.e.current.Load()}
	a := s.do(c)
	if a.err != nil && c.run != nil {
		c.run.fail(s.info.Handle, a.err)
	}
	return a.ok, a.err
}

func status(err error) C.int32_t {
	if err != nil {
		return -1
	}
	return 0
}

//export plrGoFetch
func plrGoFetch(id C.uint64_t, mem unsafe.Pointer, n C.uint64_t) C.int32_t {
	_, err := callback(id, fetch, mem, n)
	return status(err)
}

//export plrGoPrefetch
func plrGoPrefetch(id C.uint64_t, mem unsafe.Pointer, n C.uint64_t) C.int32_t {
	ok, err := callback(id, prefetch, mem, n)
	if ok && err == nil {
		return 1
	}
	return status(err)
}

//export plrGoComplete
func plrGoComplete(id C.uint64_t) C.int32_t {
	_, err := callback(id, complete, nil, 0)
	return status(err)
}

//export plrGoInvalidate
func plrGoInvalidate(id C.uint64_t) C.int32_t {
	_, err := callback(id, invalidate, nil, 0)
	return status(err)
}
