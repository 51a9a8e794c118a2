package popart

import (
	"context"
	"slices"
	"sync"

	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/popef"
)

// held is what load programs bring to the device and save programs fetch: weights, states, the optimizer's values, what random numbers follow from.
//
// Save programs also run whenever another session takes the device, so that the next load brings what was there. That must not change what the host was given or has fetched:
// the two are apart.
type held struct {
	info    popef.TensorInfo
	program int    // that loads it
	data    []byte // the host's

	mu     sync.Mutex // guards what is below: another session's goroutine saves when it takes the device
	device []byte     // what was saved last; nil if no program saves it
	saved  bool       // device is what the next load brings, unless given
	given  bool       // the next load brings data
}

// loads is the host's end of the stream that brings a tensor.
type loads held

func (l *loads) Memory(context.Context) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.saved && !l.given {
		return l.device, nil
	}
	return l.data, nil
}

func (l *loads) Fetch(ctx context.Context, buf []byte) error {
	m, err := l.Memory(ctx)
	copy(buf, m)
	return err
}

func (l *loads) Prefetch([]byte) bool  { return false } // a save may come before the load
func (l *loads) Complete()             {}
func (l *loads) InvalidatePrefetched() {}

// saves is the host's end of the stream that fetches it.
type saves held

func (s *saves) Fetch(_ context.Context, buf []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	copy(s.device, buf)
	s.saved = true
	return nil
}

func (s *saves) Prefetch([]byte) bool  { return false }
func (s *saves) Complete()             {}
func (s *saves) InvalidatePrefetched() {}

// give brings the host's copies of what these programs load, and of what all load programs do if the device has lost it.
func (s *session) give(ctx context.Context, programs ...int) error {
	s.each(programs, func(h *held) { h.given = true })
	err := s.run.RunLoaded(ctx, programs...)
	s.each(programs, func(h *held) {
		h.given = false
		h.saved = h.saved && err != nil // what was saved before is old now
	})
	return err
}

// take runs save programs and takes what they fetched as the host's.
func (s *session) take(ctx context.Context, programs ...int) error {
	if err := s.run.RunLoaded(ctx, programs...); err != nil {
		return err
	}
	for _, p := range programs {
		s.each(savedBy[p], func(h *held) {
			if h.saved {
				copy(h.data, h.device)
			}
		})
	}
	return nil
}

// savedBy says which programs load what a save program fetches.
var savedBy = map[int][]int{
	export.SaveProgram: {export.LoadProgram}, export.SaveSeedProgram: {export.SeedProgram}, export.SaveRandomProgram: {export.RandomProgram},
}

// each calls f for all that these programs load.
func (s *session) each(programs []int, f func(*held)) {
	for _, h := range s.host {
		if slices.Contains(programs, h.program) {
			h.mu.Lock()
			f(h)
			h.mu.Unlock()
		}
	}
}
