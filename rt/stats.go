package rt

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Stats is what a session has done and what it holds. Of a runner, every
// replica has its own.
type Stats struct {
	Requests uint64 // runs of the main programs that have ended, failed ones included
	Errors   uint64 // of these, how many failed

	// How long successful requests took, and the parts of that; nothing without
	// the option [Timed].
	Request     Distribution // from the call of Run or Submit to the end
	Queue       Distribution // waiting for the engine, behind other requests
	Preparation Distribution // binding memory; the load programs too, when they run
	Computation Distribution // the main programs, with their transfers

	ExecutableBytes int64 // size of the executable, decompressed
	DataBytes       int64 // data in the model's files that is fed to inputs in place
}

// Distribution describes durations. Mean, Min and Max are exact, percentiles
// are off by 1.6 % at most.
type Distribution struct {
	Count          uint64
	Mean, Min, Max time.Duration
	P50, P90, P99  time.Duration // percentiles

	counts []uint64
}

// Percentile returns the duration that the fraction q of all durations does not
// exceed; q is between 0 and 1. It is 0 if there are none.
func (d *Distribution) Percentile(q float64) time.Duration {
	rank := uint64(q * float64(d.Count))
	if float64(rank) < q*float64(d.Count) || rank == 0 {
		rank++
	}
	var seen uint64
	for i, n := range d.counts {
		if seen += n; seen >= rank {
			return min(max(bucketMiddle(i), d.Min), d.Max)
		}
	}
	return d.Max
}

// Trace is where the time of one successful request went.
type Trace struct {
	Request uint64 // its number in the session, from 1

	Total, Queue, Preparation, Computation time.Duration // as in [Stats]
}

// Stats returns the session's statistics. It may be called at any time, also
// after Close; its numbers may be of different moments.
func (s *Session) Stats() Stats {
	st := Stats{
		Requests:        s.gate.requests(),
		Errors:          s.count.errors.Load(),
		ExecutableBytes: s.executableBytes,
		DataBytes:       s.dataBytes,
	}
	if t := s.count.times; t != nil {
		st.Request, st.Queue = t.request.snapshot(), t.queue.snapshot()
		st.Preparation, st.Computation = t.preparation.snapshot(), t.computation.snapshot()
	}
	return st
}

// Traces returns the traces of the last requests, oldest first: of up to 256,
// and of none without the option [Timed].
func (s *Session) Traces() []Trace {
	t := s.count.times
	if t == nil {
		return nil
	}
	var out []Trace
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
	times  *times // nil without Timed
}

// times is the memory for durations; it never grows.
type times struct {
	request, queue, preparation, computation histogram

	traced atomic.Int64 // how many traces were written
	ring   [256]traceSlot

	// The request under way, in nanoseconds since epoch.
	asked, begun, computing int64
}

// epoch is the zero of this package's clock: reading the monotonic clock alone
// is cheaper than time.Now.
var epoch = time.Now()

func now() int64 { return int64(time.Since(epoch)) }

// begin notes that a request that was made at asked has the engine.
func (t *times) begin(asked int64) {
	t.asked, t.begun = asked, now()
	t.computing = t.begun
}

// end notes that the request with this number succeeded.
func (t *times) end(number uint64) time.Duration {
	ended := now()
	total := ended - t.asked
	t.request.add(total)
	t.queue.add(t.begun - t.asked)
	t.preparation.add(t.computing - t.begun)
	t.computation.add(ended - t.computing)
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

func (s *traceSlot) load(index int64) (Trace, bool) {
	before := s.index.Load()
	d := func(i int) time.Duration { return time.Duration(s.values[i].Load()) }
	t := Trace{Request: uint64(s.values[0].Load()), Total: d(1), Queue: d(2), Preparation: d(3), Computation: d(4)}
	return t, before == index+1 && s.index.Load() == before
}

// A histogram has, for every power of two, 2^subBits buckets of equal width.
const (
	subBits    = 5
	subBuckets = 1 << subBits
	buckets    = (64 - subBits) * subBuckets
)

type histogram struct {
	total, min, max atomic.Int64 // nanoseconds
	counts          [buckets]atomic.Uint64
}

// add counts one duration. Only one goroutine may do so at a time.
func (h *histogram) add(d int64) {
	d = max(d, 0)
	h.total.Store(h.total.Load() + d)
	if m := h.min.Load(); m == 0 || d+1 < m {
		h.min.Store(d + 1) // 0 means none yet
	}
	if d > h.max.Load() {
		h.max.Store(d)
	}
	c := &h.counts[bucket(uint64(d))]
	c.Store(c.Load() + 1)
}

// bucket returns the index of the bucket that counts d.
func bucket(d uint64) int {
	if d < subBuckets {
		return int(d)
	}
	shift := bits.Len64(d) - subBits - 1
	return shift*subBuckets + int(d>>shift)
}

// bucketMiddle returns the middle of a bucket.
func bucketMiddle(i int) time.Duration {
	if i < 2*subBuckets {
		return time.Duration(i)
	}
	shift := i/subBuckets - 1
	low := uint64(i-shift*subBuckets) << shift
	return time.Duration(low + 1<<shift/2)
}

// snapshot describes what was counted up to now.
func (h *histogram) snapshot() Distribution {
	d := Distribution{Max: time.Duration(h.max.Load()), counts: make([]uint64, 0, buckets)}
	if m := h.min.Load(); m > 0 {
		d.Min = time.Duration(m - 1)
	}
	last := 0
	for i := range h.counts {
		n := h.counts[i].Load()
		d.counts = append(d.counts, n)
		if d.Count += n; n > 0 {
			last = i + 1
		}
	}
	d.counts = d.counts[:last]
	if d.Count > 0 {
		d.Mean = time.Duration(h.total.Load() / int64(d.Count))
		d.P50, d.P90, d.P99 = d.Percentile(0.5), d.Percentile(0.9), d.Percentile(0.99)
	}
	return d
}
