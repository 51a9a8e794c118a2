package iputest

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/popefgen/popefgen/ipu"
)

// journal is what the streams of one test have seen.
type journal struct {
	t  testing.TB
	mu sync.Mutex
	// completed holds the handles of streams, as their transfers completed.
	completed []string
}

func (j *journal) take() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := j.completed
	j.completed = nil
	return out
}

// suiteStream is a host's side of a stream that has a list of transfers, and
// checks that it is called as it should be.
type suiteStream struct {
	j      *journal
	handle string
	items  [][]byte // of an input, over and over; nil for an output
	got    [][]byte // by an output

	refuse func() bool   // to prefetch
	fail   func() error  // of Fetch
	block  chan struct{} // Fetch waits until it is closed, or its context ends
	inside chan struct{} // Fetch, before it waits, sends

	calls   sync.Mutex // held during a call
	ahead   int        // transfers begun and not complete
	done    int        // transfers complete
	begun   bool       // Memory was called for the transfer that is next
	fetches int
}

// enter checks that the stream's calls do not overlap.
func (s *suiteStream) enter() func() {
	if !s.calls.TryLock() {
		s.j.t.Errorf("stream %q is called while it is in a call", s.handle)
		return func() {}
	}
	return s.calls.Unlock
}

// item returns the data of the transfer that is next.
func (s *suiteStream) item() []byte { return s.items[(s.done+s.ahead)%len(s.items)] }

func (s *suiteStream) Fetch(ctx context.Context, buf []byte) error {
	defer s.enter()()
	s.fetches++
	if len(buf) != 16 {
		s.j.t.Errorf("Fetch of stream %q has %d bytes, want 16", s.handle, len(buf))
	}
	if s.inside != nil {
		s.inside <- struct{}{}
	}
	if s.block != nil {
		select {
		case <-s.block:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if s.fail != nil {
		if err := s.fail(); err != nil {
			return err
		}
	}
	if s.begun {
		s.ahead--
		s.begun = false
	}
	if s.items != nil {
		copy(buf, s.item())
	} else {
		s.got = append(s.got, slices.Clone(buf))
	}
	s.ahead++
	return nil
}

func (s *suiteStream) Prefetch(buf []byte) bool {
	defer s.enter()()
	if s.items == nil {
		s.j.t.Errorf("output %q is prefetched", s.handle)
	}
	if s.refuse == nil || s.refuse() {
		for i := range buf {
			buf[i] = 0xEE // means nothing
		}
		return false
	}
	copy(buf, s.item())
	s.ahead++
	return true
}

func (s *suiteStream) Complete() {
	defer s.enter()()
	if s.ahead == 0 {
		s.j.t.Errorf("stream %q: Complete without a transfer", s.handle)
		return
	}
	s.ahead--
	s.done++
	s.begun = false
	s.j.mu.Lock()
	s.j.completed = append(s.j.completed, s.handle)
	s.j.mu.Unlock()
}

func (s *suiteStream) InvalidatePrefetched() {
	defer s.enter()()
	s.ahead = 0
}

// suiteDirect is a suiteStream whose transfers have memory.
type suiteDirect struct {
	suiteStream
	memory [][]byte // of an output, one after the other; each is got when complete
	none   bool     // Memory gives none
	err    error    // of Memory
}

func (s *suiteDirect) Memory(ctx context.Context) ([]byte, error) {
	defer s.enter()()
	if s.err != nil || s.none {
		return nil, s.err
	}
	m := s.items
	if m == nil {
		m = s.memory
	}
	out := m[s.done%len(m)]
	if !s.begun {
		s.begun = true
		s.ahead++
	}
	return out, nil
}

func (s *suiteDirect) Fetch(ctx context.Context, buf []byte) error {
	if err := s.suiteStream.Fetch(ctx, buf); err != nil || s.memory == nil {
		return err
	}
	copy(s.memory[s.done%len(s.memory)], buf)
	return nil
}

// suiteConstant is a suiteDirect input whose memory does not change.
type suiteConstant struct{ suiteDirect }

func (s *suiteConstant) Constant() []byte { return s.items[0] }

// Complete may come without Memory or Fetch: the memory is known.
func (s *suiteConstant) Complete() {
	s.ahead = max(1, s.ahead)
	s.suiteDirect.Complete()
}

// noop is a direct stream that allocates and checks nothing.
type noop struct{ memory []byte }

func (s noop) Fetch(context.Context, []byte) error {
	return fmt.Errorf("fetch of a stream that has memory")
}
func (s noop) Memory(ctx context.Context) ([]byte, error) { return s.memory, nil }
func (s noop) Prefetch([]byte) bool                       { return false }
func (s noop) Complete()                                  {}
func (s noop) InvalidatePrefetched()                      {}

var (
	_ ipu.Direct   = (*suiteDirect)(nil)
	_ ipu.Constant = (*suiteConstant)(nil)
	_ ipu.Direct   = noop{}
)

// vector is the memory of four float32 elements, aligned to them.
func vector(v ...float32) []byte {
	b := make([]byte, 16, 64) // big enough for an allocation of its own, which is aligned
	for i, f := range v {
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(f))
	}
	return b
}

// unaligned moves b to memory that is aligned to nothing.
func unaligned(b []byte) []byte {
	out := make([]byte, len(b)+1, 64)[1:]
	copy(out, b)
	return out
}

// elements returns the elements of a vector.
func elements(b []byte) []float32 {
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}
