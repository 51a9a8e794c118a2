package rt

import (
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/popef"
)

// NewInputQueue makes an input queue without a session, for a transfer of that
// many samples of bytes; there is room for so many batches.
func NewInputQueue(samples, bytes, batches int, onTimeout func(*InputQueue), c RingConfig[struct{}]) (*InputQueue, error) {
	q := &InputQueue{}
	rc := RingConfig[chunk]{Size: batches, Label: "x", Timeout: c.Timeout, Consumer: c.Consumer}
	if onTimeout != nil {
		rc.OnTimeout = func(*Ring[chunk]) { onTimeout(q) }
	}
	return q, q.init(subject{model: "test"}, testAnchor("x", samples, bytes), ipu.StreamInfo{Handle: "x", Bytes: samples * bytes}, samples, rc)
}

// NewOutputQueue makes an output queue without a session.
func NewOutputQueue(samples, bytes, batches int) (*OutputQueue, error) {
	q := &OutputQueue{}
	rc := RingConfig[chunk]{Size: batches, Label: "y"}
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
