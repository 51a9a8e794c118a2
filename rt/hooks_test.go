package rt_test

import (
	"reflect"
	"sync"
	"time"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
	"github.com/popefgen/popefgen/rt/internal/histogram"
	"github.com/popefgen/popefgen/rt/internal/hostmem"
	"github.com/popefgen/popefgen/rt/internal/line"
	"github.com/popefgen/popefgen/rt/internal/session"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// waiting returns how many turns are in a session's queue.
func waiting(s rt.Session) int { return session.Of(s).Gate.Counted() }

// draining reports whether a session lets nobody in any more. It is the last to
// do so of all that a runner's Shutdown begins with.
func draining(s rt.Session) bool { return session.Of(s).Gate.Drains() }

// prepare gives a generated stream its size, as Open does.
func prepare(s hostmem.Bound, anchor string, size, transfers int) {
	w, _ := s.Describe()
	w.Anchor, w.At.Size, w.At.Count = anchor, size, transfers
}

// describe returns the distribution of durations.
func describe(all ...time.Duration) rt.Distribution {
	var h histogram.Histogram
	for _, d := range all {
		h.Add(int64(d))
	}
	return session.Snapshot(&h)
}

// inside returns a field of what v points to, by its path, where a test has to
// wait for a state that nothing tells of.
func inside[T any](v any, path ...string) *T {
	at := reflect.ValueOf(v).Elem()
	for _, name := range path {
		if at = at.FieldByName(name); !at.IsValid() {
			panic("no field " + name)
		}
	}
	if want := reflect.TypeFor[T](); at.Type() != want {
		panic(path[len(path)-1] + " is a " + at.Type().String())
	}
	return (*T)(at.Addr().UnsafePointer())
}

// gathered returns how many samples wait for a batch to be full.
func gathered(c *genrt.Core) int {
	mu := inside[sync.Mutex](c, "batcher", "mu")
	mu.Lock()
	defer mu.Unlock()
	open := reflect.ValueOf(c).Elem().FieldByName("batcher").FieldByName("open")
	n := 0
	for i := range open.Len() {
		if o := open.Index(i); !o.IsNil() {
			n += int(o.Elem().FieldByName("count").Int())
		}
	}
	return n
}

// waitForRoom returns how many callers wait for a place in the queue.
func waitForRoom(c *genrt.Core) int { return (*inside[*line.Queue](c, "queue")).Crowd() }

// copyBatches makes a runner copy whole batches, as it does where the samples of a
// run do not lie behind each other.
func copyBatches(c *genrt.Core) { *inside[bool](c, "batcher", "direct") = false }

// waitingToEnqueue returns how many goroutines wait for room in a queue.
func waitingToEnqueue(q *modelrt.InputQueue) int {
	mu := inside[sync.Mutex](q, "mu")
	mu.Lock()
	defer mu.Unlock()
	return *inside[int](q, "waiting")
}

// holdTurn takes the turn of a queue, so that whoever waits for room next waits
// on when there is some, until the function that it returns is called.
func holdTurn(q *modelrt.InputQueue) (release func()) {
	turn := *inside[chan struct{}](q, "turn")
	turn <- struct{}{}
	return func() { <-turn }
}

// lockQueue keeps everybody from enqueueing to a queue until the function that it
// returns is called.
func lockQueue(q *modelrt.InputQueue) (unlock func()) {
	mu := inside[sync.Mutex](q, "mu")
	mu.Lock()
	return mu.Unlock
}

// isLocked reports whether somebody is enqueueing to a queue.
func isLocked(q *modelrt.OutputQueue) bool {
	mu := inside[sync.Mutex](q, "mu")
	free := mu.TryLock()
	if free {
		mu.Unlock()
	}
	return !free
}

// drains reports whether a Run of the queues ends when nothing is left to do.
func drains(m *modelrt.QueueManager) bool {
	mu := inside[sync.Mutex](m, "loop", "mu")
	mu.Lock()
	defer mu.Unlock()
	return *inside[bool](m, "loop", "draining")
}
