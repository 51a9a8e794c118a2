//go:build poplar && linux && cgo

package poplar

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/popefgen/popefgen/ipu"
)

// Bounds of a ring: more transfers than these wait for room.
const (
	mostSlots = 256
	mostBytes = 64 << 20
)

// ringed is a stream whose transfers go through a ring in C's memory. While a run is under way the goroutine that waits
// for it fills and empties the ring, when the engine asks for that.
type ringed struct {
	e      *Engine
	host   ipu.Windowed
	info   ipu.StreamInfo
	output bool
	c      *C.plr_ring

	head, tail, look *uint64
	cWaits, goWaits  *uint32
	mask             uint64
	stride           uintptr
	slots            unsafe.Pointer

	pos  uint64 // transfers that the host has given, or taken
	done uint64 // of an input: those for which Complete was called
}

// connectRing connects a ring with room for what a run moves.
func (e *Engine) connectRing(info ipu.StreamInfo, handle *C.char, output C.int32_t, host ipu.Windowed, count int) (end, error) {
	slots := uint64(1)
	for slots < uint64(max(1, count)) && slots < mostSlots && slots*2*uint64(max(1, info.Bytes)) <= mostBytes {
		slots *= 2
	}
	c := C.plr_ring_new(C.uint64_t(slots), C.uint64_t(info.Bytes), C.plr_engine_mail(e.c))
	if c == nil {
		return nil, &ipu.Error{Kind: ipu.KindMemory, Message: fmt.Sprintf("there is no memory for a ring of %d transfers of %d bytes", slots, info.Bytes)}
	}
	var err C.plr_err
	if err := failure(C.plr_connect_ring(e.c, handle, output, c, &err), &err, ""); err != nil {
		C.plr_ring_free(c)
		return nil, err
	}
	long := func(p unsafe.Pointer) *uint64 { return (*uint64)(p) }
	return &ringed{
		e: e, host: host, info: info, output: output != 0, c: c,
		head: long(unsafe.Pointer(&c.head)), tail: long(unsafe.Pointer(&c.tail)), look: long(unsafe.Pointer(&c.look)),
		cWaits: (*uint32)(unsafe.Pointer(&c.c_waits)), goWaits: (*uint32)(unsafe.Pointer(&c.go_waits)),
		mask: uint64(c.mask), stride: uintptr(c.stride), slots: unsafe.Pointer(c.slots),
	}, nil
}

// slot returns the memory of transfer number i.
func (s *ringed) slot(i uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(s.slots, uintptr(i&s.mask)*s.stride)), s.info.Bytes)
}

func (s *ringed) begin(*run) {}

// pump gives the engine what the host has, or the host what the engine has delivered.
func (s *ringed) pump(r *run) error {
	if s.output {
		return s.take(r)
	}
	return s.give(r)
}

func (s *ringed) give(r *run) error {
	s.completed()
	for s.pos-s.done <= s.mask {
		if !s.host.Prefetch(s.slot(s.pos)) {
			if !s.starved() {
				atomic.StoreUint32(s.goWaits, 0)
				return nil
			}
			if err := s.host.Fetch(r.ctx, s.slot(s.pos)); err != nil { // the program moves more than the host has ahead
				return err
			}
		}
		s.pos++
		atomic.StoreUint64(s.tail, s.pos)
		wake(s.cWaits)
	}
	atomic.StoreUint32(s.goWaits, 1) // there may be more
	return nil
}

// completed tells the host what is complete.
func (s *ringed) completed() {
	for head := atomic.LoadUint64(s.head); s.done < head; s.done++ {
		s.host.Complete()
	}
}

// starved reports whether the engine waits for a transfer that is not there.
func (s *ringed) starved() bool {
	return atomic.LoadUint32(s.cWaits) != 0 && s.pos == atomic.LoadUint64(s.head)+atomic.LoadUint64(s.look)
}

func (s *ringed) take(r *run) error {
	for tail := atomic.LoadUint64(s.tail); s.pos < tail; {
		if err := s.host.Fetch(r.ctx, s.slot(s.pos)); err != nil {
			return err
		}
		s.host.Complete()
		s.pos++
		atomic.StoreUint64(s.head, s.pos)
		wake(s.cWaits)
	}
	return nil
}

func (s *ringed) waits() bool {
	if s.output {
		return atomic.LoadUint32(s.cWaits) != 0 && atomic.LoadUint64(s.tail) != s.pos
	}
	return s.starved() || atomic.LoadUint32(s.goWaits) != 0 && atomic.LoadUint64(s.head) != s.done
}

// finish has what the run left taken back: it is not for the next one.
func (s *ringed) finish(_ *run, ok bool) error {
	if s.output {
		if !ok {
			s.reset()
		}
		return nil
	}
	s.completed()
	if s.pos == s.done {
		return nil
	}
	var err error
	if atomic.LoadUint64(s.look) != 0 { // Poplar has some of it
		handle := C.CString(s.info.Handle)
		defer C.free(unsafe.Pointer(handle))
		var cerr C.plr_err
		err = failure(C.plr_connect_ring(s.e.c, handle, 0, s.c, &cerr), &cerr, "connect it again")
	}
	s.reset()
	s.host.InvalidatePrefetched()
	if ok {
		return err
	}
	return nil
}

// reset empties the ring. The engine does not use it meanwhile.
func (s *ringed) reset() {
	s.pos, s.done = 0, 0
	for _, p := range []*uint64{s.head, s.tail, s.look} {
		atomic.StoreUint64(p, 0)
	}
	atomic.StoreUint32(s.goWaits, 0)
}

func (s *ringed) release() { C.plr_ring_free(s.c) }

// RingStats says how a stream's ring was used since it was connected.
type RingStats struct {
	Fetched    int64 // transfers that the engine asked for when it needed them
	Prefetched int64 // transfers that it got ahead of time
	Refused    int64 // attempts to get one ahead of time when none was there
	Starved    int64 // transfers that it had to wait for
}

// errNoRing: a stream has no ring, as its host's side is no ipu.Windowed.
var errNoRing = errors.New("its transfers go through no ring")

// RingStats returns how the ring of a stream was used. It must not be called while a program runs.
func (e *Engine) RingStats(handle string) (RingStats, error) {
	i, ok := e.index[handle]
	if !ok {
		return RingStats{}, fmt.Errorf("stream %q: %w", handle, ipu.ErrUnknownStream)
	}
	s, ok := e.streams[i].end.(*ringed)
	if !ok {
		return RingStats{}, fmt.Errorf("stream %q: %w", handle, errNoRing)
	}
	return RingStats{int64(s.c.fetched), int64(s.c.prefetched), int64(s.c.refused), int64(s.c.starved)}, nil
}
