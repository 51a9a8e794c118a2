package iputest

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// EventKind says what happened.
type EventKind string

// The kinds of event.
const (
	EventAttach     EventKind = "attach"     // a device was attached, or was busy
	EventDetach     EventKind = "detach"     // a device was detached
	EventMake       EventKind = "make"       // an engine was made
	EventConnect    EventKind = "connect"    // a stream was connected
	EventLoad       EventKind = "load"       // an engine was loaded onto a device
	EventRun        EventKind = "run"        // a program began
	EventDone       EventKind = "done"       // a program ended, with or without an error
	EventFetch      EventKind = "fetch"      // an input transfer was asked for
	EventPrefetch   EventKind = "prefetch"   // an input transfer was asked for ahead of time
	EventDeliver    EventKind = "deliver"    // an output transfer was delivered
	EventComplete   EventKind = "complete"   // a transfer is complete
	EventInvalidate EventKind = "invalidate" // what was prefetched was thrown away
	EventCall       EventKind = "call"       // a function computed
	EventStop       EventKind = "stop"       // an engine was stopped
	EventClose      EventKind = "close"      // an engine was closed
	EventFault      EventKind = "fault"      // an injected error came to pass
	EventViolation  EventKind = "violation"  // the host broke a rule
)

// Event is one thing that happened to a [System].
type Event struct {
	Kind    EventKind
	Time    time.Time // by the system's clock
	Engine  string    // the engine's label; empty for what happens to a device alone
	Device  int       // id of the device; -1 if none is involved
	Program int       // index of the program that runs; -1 if none does
	Stream  string    // handle of the stream; empty if none is involved
	// Transfer counts the stream's transfers since the engine was loaded,
	// from 1: which one is moved, or prefetched, or complete.
	Transfer int
	Detail   string // such as "refused", "busy" or a function's name
	Err      error  // of what failed
}

// String returns the event in words, such as `digits: prefetch "x" #3: refused`
// or "device 0: attach: busy".
func (e Event) String() string {
	var b strings.Builder
	if e.Engine != "" {
		fmt.Fprintf(&b, "%s: %s", e.Engine, e.Kind)
	} else {
		fmt.Fprintf(&b, "device %d: %s", e.Device, e.Kind)
	}
	switch {
	case e.Kind == EventRun || e.Kind == EventDone:
		fmt.Fprintf(&b, " %d", e.Program)
	case e.Kind == EventLoad:
		fmt.Fprintf(&b, " on %d", e.Device)
	}
	if e.Stream != "" {
		fmt.Fprintf(&b, " %q", e.Stream)
	}
	if e.Transfer > 0 {
		fmt.Fprintf(&b, " #%d", e.Transfer)
	}
	if e.Detail != "" {
		fmt.Fprintf(&b, ": %s", e.Detail)
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	return b.String()
}

// maxEvents is how many events a log surely keeps: it forgets the oldest ones.
const maxEvents = 1 << 16

// record adds an event to the log. The caller holds s.mu.
func (s *System) record(e Event) {
	e.Time = s.clock.Now()
	if len(s.events) == 2*maxEvents {
		s.events = slices.Delete(s.events, 0, maxEvents)
	}
	s.events = append(s.events, e)
	if e.Kind == EventViolation {
		s.violations = append(s.violations, e.String())
	}
}

// Events returns what happened so far, in order: events of the given kinds, or
// all of them. A log keeps the last 65,536 events at least.
func (s *System) Events(kinds ...EventKind) []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(kinds) == 0 {
		return slices.Clone(s.events)
	}
	var out []Event
	for _, e := range s.events {
		if slices.Contains(kinds, e.Kind) {
			out = append(out, e)
		}
	}
	return out
}

// Trace returns Events as text, one line each.
func (s *System) Trace(kinds ...EventKind) []string {
	var out []string
	for _, e := range s.Events(kinds...) {
		out = append(out, e.String())
	}
	return out
}

// ClearLog forgets what happened so far.
func (s *System) ClearLog() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = nil
}

// Violations returns in words where the host broke a rule that nothing else
// enforces: it wrote to a buffer after the call that lent it, or changed the
// data of an output.
func (s *System) Violations() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.violations)
}
