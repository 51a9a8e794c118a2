//go:build poplar && linux && cgo

package poplar

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/popefgen/popefgen/ipu"
)

// ringed is a stream whose transfers the engine makes itself, in the memory of each run: it is told where that lies, and
// Go has nothing to do while the run is under way.
type ringed struct {
	empty
	host   ipu.Windowed
	window *ipu.Window
	info   ipu.StreamInfo
	c      *C.plr_ring
}

// connectRing connects a stream whose host's side has memory for all transfers of a run.
func (e *Engine) connectRing(info ipu.StreamInfo, handle *C.char, host ipu.Windowed) (end, error) {
	c := C.plr_ring_new(C.uint64_t(info.Bytes), C.plr_engine_mail(e.c))
	if c == nil {
		return nil, &ipu.Error{Kind: ipu.KindMemory, Message: "there is no memory for a ring"}
	}
	s := &ringed{host: host, window: host.Window(), info: info, c: c}
	if err := s.again(e, info, handle); err != nil {
		s.release()
		return nil, err
	}
	return s, nil
}

func (s *ringed) again(e *Engine, info ipu.StreamInfo, handle *C.char) error {
	var err C.plr_err
	return failure(C.plr_connect_ring(e.c, handle, isOutput(info), s.c, &err), &err, "")
}

// isOutput is 1 for an output, 0 for an input.
func isOutput(info ipu.StreamInfo) C.int32_t {
	if info.Direction == ipu.DeviceToHost {
		return 1
	}
	return 0
}

// begin has a run find its transfers in what is left of the window.
func (s *ringed) begin(r *run) {
	w := s.window
	if w.Block == nil {
		s.lie(r, nil, 0)
		return
	}
	mem, n := w.Block[w.Done*w.Size:], w.Count-w.Done
	if w.Size > 0 {
		n = min(n, len(mem)/w.Size)
	}
	s.lie(r, mem, n)
}

// lie has a run find n transfers in mem, which is pinned until the run is over.
func (s *ringed) lie(r *run, mem []byte, n int) {
	p := &s.c.parts[r.slot]
	p.mem, p.n, p.moved, p.run, p.over = 0, C.uint64_t(n), 0, C.uint32_t(r.number), 0
	if mem != nil {
		at := unsafe.SliceData(mem)
		r.pin(at)
		p.mem = C.uintptr_t(uintptr(unsafe.Pointer(at)))
	}
}

// errMore: a program moves more than there is memory for.
var errMore = errors.New("the program moves more than a run has memory for")

// moved tells the host what a run that has ended did, and returns why it was not enough.
func (s *ringed) moved(r *run) error {
	p := &s.c.parts[r.slot]
	if !r.staged {
		for range p.moved {
			s.host.Complete()
		}
	}
	if p.over == 0 {
		return nil
	}
	if !r.staged {
		if err := s.host.Fetch(context.WithoutCancel(r.ctx), make([]byte, s.info.Bytes)); err != nil {
			return err // in its words
		}
	}
	return fmt.Errorf("%w: %d transfers", errMore, p.n)
}

func (s *ringed) release() { C.plr_ring_free(s.c) }

// RingStats says how a stream's ring was used since it was connected.
type RingStats struct {
	Fetched    int64 // transfers that the engine asked for when it needed them
	Prefetched int64 // transfers that it got ahead of time
	Refused    int64 // attempts to get one ahead of time when the run had none left
	Starved    int64 // transfers that the run had no memory for, which fails it
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
