package rt

import (
	"sync/atomic"
	"time"
)

// Stats is what a session has done and what it holds.
type Stats struct {
	Requests uint64 // runs of the main programs that have ended, failed ones included
	Errors   uint64 // of these, how many failed

	// The durations of successful requests, from the moment the engine was
	// free for them to their end; all 0 without the option [Timed].
	Total, Min, Max time.Duration

	ExecutableBytes int64 // size of the executable, decompressed
	DataBytes       int64 // data in the model's files that is fed to inputs in place
}

// counters are a session's statistics. Only who holds the gate writes them.
type counters struct {
	timed           bool
	errors          atomic.Uint64
	total, min, max atomic.Int64 // nanoseconds
}

func (c *counters) add(d time.Duration) {
	n := max(int64(d), 1) // 0 means that nothing was measured
	c.total.Add(n)
	if m := c.min.Load(); m == 0 || n < m {
		c.min.Store(n)
	}
	if n > c.max.Load() {
		c.max.Store(n)
	}
}

// Stats returns the session's statistics. It may be called at any time, also
// after Close; its numbers may be of different moments.
func (s *Session) Stats() Stats {
	return Stats{
		Requests:        s.gate.requests(),
		Errors:          s.count.errors.Load(),
		Total:           time.Duration(s.count.total.Load()),
		Min:             time.Duration(s.count.min.Load()),
		Max:             time.Duration(s.count.max.Load()),
		ExecutableBytes: s.executableBytes,
		DataBytes:       s.dataBytes,
	}
}
