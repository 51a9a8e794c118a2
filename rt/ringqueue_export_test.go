package rt

import (
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/rt/ring"
)

// NewInputQueue makes an input queue without a session, for a transfer of that
// many samples of bytes; there is room for so many batches.
func NewInputQueue(samples, bytes, batches int, onTimeout func(*InputQueue), c ring.Config[struct{}]) (*InputQueue, error) {
	q := &InputQueue{}
	rc := ring.Config[chunk]{Size: batches, Label: "x", Timeout: c.Timeout, Consumer: c.Consumer}
	if onTimeout != nil {
		rc.OnTimeout = func(*ring.Ring[chunk]) { onTimeout(q) }
	}
	return q, q.init(subject{model: "test"}, testAnchor("x", samples, bytes), ipu.StreamInfo{Handle: "x", Bytes: samples * bytes}, samples, rc)
}

// NewOutputQueue makes an output queue without a session.
func NewOutputQueue(samples, bytes, batches int) (*OutputQueue, error) {
	q := &OutputQueue{}
	rc := ring.Config[chunk]{Size: batches, Label: "y"}
	return q, q.init(subject{model: "test"}, testAnchor("y", samples, bytes), ipu.StreamInfo{Handle: "y", Direction: ipu.DeviceToHost, Bytes: samples * bytes}, samples, rc)
}

func testAnchor(name string, samples, bytes int) Anchor {
	return Anchor{Name: name, Handle: name, Info: popef.TensorInfo{DataType: popef.U8, Shape: []int64{int64(samples), int64(bytes)}}}
}

// WaitingToEnqueue returns how many goroutines wait for room in a queue.
func WaitingToEnqueue(q *InputQueue) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting
}

// HoldTurn takes the turn of a queue, so that whoever waits for room next waits
// on when there is some, until the function that it returns is called.
func HoldTurn(q *InputQueue) (release func()) {
	q.turn <- struct{}{}
	return func() { <-q.turn }
}

// LockQueue keeps everybody from enqueueing to a queue until the function that it
// returns is called.
func LockQueue(q *InputQueue) (unlock func()) {
	q.mu.Lock()
	return q.mu.Unlock
}

// IsLocked reports whether somebody is enqueueing to a queue.
func IsLocked(q *OutputQueue) bool {
	free := q.mu.TryLock()
	if free {
		q.mu.Unlock()
	}
	return !free
}

// Drains reports whether a Run of the queues ends when nothing is left to do.
func Drains(m *QueueManager) bool { return m.loop.drains() }
