package session

import (
	"sync/atomic"
	"time"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/histogram"
	"github.com/popefgen/popefgen/rt/internal/line"
)

// Stats returns the session's statistics. It may be called at any time, also
// after Close; its numbers may be of different moments.
func (s *Session) Stats() rt.Stats {
	st := rt.Stats{
		Requests:        s.Gate.Requests(),
		Errors:          s.Count.errors.Load(),
		ExecutableBytes: s.executableBytes,
		DataBytes:       s.dataBytes,
	}
	if t := s.Count.Times; t != nil {
		st.Request, st.Queue = Snapshot(&t.request), Snapshot(&t.queue)
		st.Preparation, st.Computation = Snapshot(&t.preparation), Snapshot(&t.computation)
	}
	return st
}

// Traces returns the traces of the last requests, oldest first: of up to 256,
// and of none without the option [rt.Timed].
func (s *Session) Traces() []rt.Trace {
	t := s.Count.Times
	if t == nil {
		return nil
	}
	var out []rt.Trace
	end := t.traced.Load()
	for i := max(0, end-int64(len(t.ring))); i < end; i++ {
		if trace, ok := t.ring[i%int64(len(t.ring))].load(i); ok {
			out = append(out, trace)
		}
	}
	return out
}

// counters are a session's statistics. Only who holds the gate writes them, so
// that plain atomic stores are enough.
type counters struct {
	errors atomic.Uint64
	Times  *times // nil without Timed
}

// times is the memory for durations; it never grows.
type times struct {
	request, queue, preparation, computation histogram.Histogram

	traced atomic.Int64 // how many traces were written
	ring   [256]traceSlot

	// The request under way, in nanoseconds since epoch.
	asked, begun, computing int64
}

// Begin notes that a request that was made at asked has the engine.
func (t *times) Begin(asked int64) {
	t.asked, t.begun = asked, line.Now()
	t.computing = t.begun
}

// end notes that the request with this number succeeded.
func (t *times) end(number uint64) time.Duration {
	ended := line.Now()
	total := ended - t.asked
	t.request.Add(total)
	t.queue.Add(t.begun - t.asked)
	t.preparation.Add(t.computing - t.begun)
	t.computation.Add(ended - t.computing)
	n := t.traced.Load()
	t.ring[n%int64(len(t.ring))].store(n, number, total, t.begun-t.asked, t.computing-t.begun, ended-t.computing)
	t.traced.Store(n + 1)
	return time.Duration(total)
}

// traceSlot holds one trace. A reader that meets a writer sees that the index
// changed, and does without.
type traceSlot struct {
	index  atomic.Int64 // of the trace, plus 1; 0 while it is written
	values [5]atomic.Int64
}

func (s *traceSlot) store(index int64, number uint64, durations ...int64) {
	s.index.Store(0)
	s.values[0].Store(int64(number))
	for i, d := range durations {
		s.values[i+1].Store(d)
	}
	s.index.Store(index + 1)
}

func (s *traceSlot) load(index int64) (rt.Trace, bool) {
	before := s.index.Load()
	d := func(i int) time.Duration { return time.Duration(s.values[i].Load()) }
	t := rt.Trace{Request: uint64(s.values[0].Load()), Total: d(1), Queue: d(2), Preparation: d(3), Computation: d(4)}
	return t, before == index+1 && s.index.Load() == before
}

// Snapshot describes what was counted up to now.
func Snapshot(h *histogram.Histogram) rt.Distribution {
	d := rt.Distribution{Max: time.Duration(h.Max.Load()), Counts: make([]uint64, 0, histogram.Buckets)}
	if m := h.Min.Load(); m > 0 {
		d.Min = time.Duration(m - 1)
	}
	last := 0
	for i := range h.Counts {
		n := h.Counts[i].Load()
		d.Counts = append(d.Counts, n)
		if d.Count += n; n > 0 {
			last = i + 1
		}
	}
	d.Counts = d.Counts[:last]
	if d.Count > 0 {
		d.Mean = time.Duration(h.Total.Load() / int64(d.Count))
		d.P50, d.P90, d.P99 = d.Percentile(0.5), d.Percentile(0.9), d.Percentile(0.99)
	}
	return d
}
