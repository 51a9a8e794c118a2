package modelrt

import (
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/rt/internal/callerr"
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
	return q, q.init(callerr.Subject{Model: "test"}, testAnchor("x", samples, bytes), ipu.StreamInfo{Handle: "x", Bytes: samples * bytes}, samples, rc)
}

// NewOutputQueue makes an output queue without a session.
func NewOutputQueue(samples, bytes, batches int) (*OutputQueue, error) {
	q := &OutputQueue{}
	rc := ring.Config[chunk]{Size: batches, Label: "y"}
	return q, q.init(callerr.Subject{Model: "test"}, testAnchor("y", samples, bytes), ipu.StreamInfo{Handle: "y", Direction: ipu.DeviceToHost, Bytes: samples * bytes}, samples, rc)
}

func testAnchor(name string, samples, bytes int) Anchor {
	return Anchor{Name: name, Handle: name, Info: popef.TensorInfo{DataType: popef.U8, Shape: []int64{int64(samples), int64(bytes)}}}
}
