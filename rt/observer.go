package rt

import "time"

// Observer is a function that is called for what happens to a session and, for a runner, to every
// replica, so that a program can count, time and report it in its own way; a
// logger is another such listener, see [WithLogger].
//
// It is called in the goroutine in which something happens, mostly while the
// engine waits, so it should be quick. Calls of several sessions or replicas can
// overlap, and EventRefused and EventStopped with any other. It must not drive
// or close the session; [Session.Stats] and what else only tells may be called.
// Telling an observer allocates nothing. If it panics, the call during which it
// called it fails with [ErrPanic]; what that call did stays done. From Close on it
// is called in goroutines of its own, so that [runtime.Goexit] in it ends but these.
type Observer func(Event)

// Event is something that happened. Fields that a kind does not name are zero.
type Event struct {
	Kind    EventKind
	Model   string        // name of the model's file
	Replica int           // of a runner; 0 for a session of its own
	Request uint64        // its number in the session, from 1: EventRequestBegun, EventRequestDone, EventFailed, EventRefused after a device failure
	Took    time.Duration // EventRequestDone with the option [Timed], if it succeeded: the time since it was asked for
	Samples int           // EventFlushed: how many samples the batch had that was not full
	Err     error         // why it failed; nil if it did not
}

// EventKind says what happened.
type EventKind uint8

// The kinds of event. Every EventRequestBegun is followed by the
// EventRequestDone of the same number. Every session that was opened without an
// error is closed by one EventClosed, which is its last event but for
// EventRefused and EventStopped, whose calls may overlap with any other.
const (
	EventOpened         EventKind = iota // a session was made, or could not be made (Err)
	EventClosed                          // Close has released everything; Err is what it returned
	EventBound                           // the executable was put on a device, for the first time or again, or that failed (Err)
	EventUnbound                         // the session left its device: Unload, Bind to another, Close
	EventHandedOver                      // another session took the device, or could not (Err: the save programs failed)
	EventTookBack                        // the session took its device back from another one, or could not (Err)
	EventLoaded                          // the load programs ran, or failed (Err)
	EventSaved                           // the save programs ran, or failed (Err)
	EventStopped                         // somebody called Stop
	EventRequestBegun                    // a request has the engine
	EventRequestDone                     // the main programs ran for a request, or failed (Err)
	EventRefused                         // a request never got the engine; Err says why: the queue was full, another call was under way, its context ended, the device failed before its turn, or Close
	EventFailed                          // the device failed (Err): requests in the queue fail too
	EventReset                           // the executable was loaded again after the device failed, or that failed (Err)
	EventFlushed                         // a batch that was not full was padded, and runs
	EventWeightsUpdated                  // UpdateWeights connected other data
)

var eventKinds = [...]string{
	"opened", "closed", "bound", "unbound", "handed over", "took back", "loaded", "saved", "stopped",
	"request begun", "request done", "refused", "failed", "reset", "flushed", "weights updated",
}

// String returns the kind in words.
func (k EventKind) String() string {
	if int(k) < len(eventKinds) {
		return eventKinds[k]
	}
	return "unknown event"
}
