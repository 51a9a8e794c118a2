package rt

import "time"

// Observer is told what happens to a session and, for a runner, to every
// replica: in the goroutine in which it happens and while the engine waits, so
// it should be quick. It must not drive the session.
type Observer func(Event)

// Event is something that happened.
type Event struct {
	Kind    EventKind
	Model   string        // the model's file
	Replica int           // of a runner; 0 for a session of its own
	Request uint64        // EventRequestDone: its number in the session, from 1
	Took    time.Duration // EventRequestDone: what it took, with the option Timed
	Samples int           // EventFlushed: how many samples the batch had that was not full
	Err     error         // what went wrong, if it did
}

// EventKind says what happened.
type EventKind uint8

// The kinds of event.
const (
	EventBound       EventKind = iota // the executable was put on a device
	EventUnbound                      // the session left its device
	EventHandedOver                   // another session took the device
	EventTookBack                     // the session took its device back from another one
	EventLoaded                       // the load programs ran
	EventSaved                        // the save programs ran
	EventStopped                      // somebody called Stop
	EventRequestDone                  // the main programs ran for a request
	EventFailed                       // the device failed: requests in the queue fail too
	EventReset                        // the executable was loaded again after the device failed
	EventFlushed                      // a batch that was not full was padded and run
)

var eventKinds = [...]string{"bound", "unbound", "handed over", "took back", "loaded", "saved", "stopped",
	"request done", "failed", "reset", "flushed"}

// String returns the kind in words.
func (k EventKind) String() string {
	if int(k) < len(eventKinds) {
		return eventKinds[k]
	}
	return "unknown event"
}

// observe tells the observer, if there is one.
func (s *Session) observe(e Event) {
	if s.observer == nil {
		return
	}
	e.Model, e.Replica = s.name, s.replica
	s.observer(e)
}
