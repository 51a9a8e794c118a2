package core

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/popefgen/popefgen/serve/oip"
)

// Codes is how many codes an error of a request may have.
const Codes = int(oip.Unsupported) + 1

// Protocols is how many protocols there are.
const Protocols = int(Queue) + 1

// Bounds are the upper ends of a histogram's buckets; there is one more above the last.
var Bounds = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, 30 * time.Second,
}

// maxBatches is up to which number of samples requests and runs are counted by their number; above, they are counted together.
const maxBatches = 1024

// counts is what is counted of a version. Each number is right by itself; a snapshot under load may be of two moments.
type counts struct {
	failed   [Protocols][Codes]atomic.Uint64
	done     [Protocols]atomic.Uint64
	early    atomic.Uint64 // requests refused before they got memory
	failure  atomic.Int64  // nanoseconds of requests that failed
	latency  histogram     // of those that succeeded
	queue    histogram     // of those that got a place: until the run that computed them began
	decode   histogram
	compute  histogram
	encode   histogram
	samples  atomic.Uint64
	received atomic.Uint64
	sent     atomic.Uint64
	inFlight atomic.Int64
	last     atomic.Int64  // Unix time of the last request, in milliseconds
	typical  atomic.Int64  // nanoseconds that requests lately computed
	requests []total       // by samples; the last also has those of more
	runs     []total       // the same of runs
	run      histogram     // their times
	computed atomic.Uint64 // samples of runs
	padding  atomic.Uint64 // samples that runs computed for nobody
}

func newCounts(spec *oip.Spec) *counts {
	sizes := min(max(spec.Samples, 1), maxBatches) + 1
	return &counts{requests: make([]total, sizes), runs: make([]total, sizes)}
}

type total struct {
	count atomic.Uint64
	time  atomic.Int64
}

func (t *total) add(d time.Duration) {
	t.count.Add(1)
	t.time.Add(int64(d))
}

type histogram struct {
	time    atomic.Int64
	buckets [len(Bounds) + 1]atomic.Uint64
}

func (h *histogram) add(d time.Duration) {
	i := 0
	for i < len(Bounds) && d > Bounds[i] {
		i++
	}
	h.buckets[i].Add(1)
	h.time.Add(int64(d))
}

// code returns the code of an error of a request.
func code(err error) oip.Code {
	var e *oip.Error
	if errors.As(err, &e) && int(e.Code) < Codes {
		return e.Code
	}
	return oip.Internal
}

// end counts a request.
func (n *counts) end(c *Call, err error) {
	t := &c.Times
	n.received.Add(uint64(c.Received))
	n.sent.Add(uint64(c.Sent))
	n.last.Store(t.Ended.UnixMilli())
	computing := t.Computes()
	if !computing.IsZero() {
		n.queue.add(computing.Sub(t.Queued))
	}
	if err != nil {
		n.failed[c.Protocol][code(err)].Add(1)
		n.failure.Add(int64(t.Ended.Sub(t.Begun)))
		return
	}
	computed := t.Computed.Sub(computing)
	n.done[c.Protocol].Add(1)
	n.latency.add(t.Ended.Sub(t.Begun))
	n.decode.add(t.Queued.Sub(t.Begun))
	n.compute.add(computed)
	n.encode.add(t.Ended.Sub(t.Computed))
	samples := c.Samples()
	n.samples.Add(uint64(samples))
	n.requests[min(samples, len(n.requests)-1)].add(computed)
	if c.runs == 0 { // nobody tells of the model's runs
		n.ran(samples, 0, computed)
	}
	place := int64(t.Computed.Sub(t.Computing))
	// A mean in which the last requests count most. Two that come at once may lose one, which does not matter.
	old := n.typical.Load()
	if old == 0 {
		old = place
	}
	n.typical.Store(old + (place-old)/8)
}

// ran counts a run that computed so many samples, and padding beside them.
func (n *counts) ran(samples, padding int, took time.Duration) {
	n.run.add(took)
	n.runs[min(samples, len(n.runs)-1)].add(took)
	n.computed.Add(uint64(samples))
	n.padding.Add(uint64(padding))
}

// Computes returns when the request began to be computed: the first run that computed it did, or, where nobody tells of runs, it got a place.
func (t *Times) Computes() time.Time {
	if t.Running.After(t.Computing) {
		return t.Running
	}
	return t.Computing
}

// Total is how often something happened, and how long it took in all.
type Total struct {
	Count uint64
	Time  time.Duration
}

// Histogram counts durations: Buckets[i] are those of at most Bounds[i] that are in no bucket before.
type Histogram struct {
	Total
	Buckets [len(Bounds) + 1]uint64
}

// Statistics is what was counted of a version since it serves.
type Statistics struct {
	Model, Version string
	Done           [Protocols]uint64        // requests that succeeded, by protocol
	Failed         [Protocols][Codes]uint64 // and that failed, by protocol and code
	Refused        uint64                   // for which there was no room; those refused before they were read are counted here and in Failure alone
	Failure        Total                    // requests that failed together; the time is of those that were not refused before they were read
	Latency        Histogram                // requests that succeeded, from their header to the end of their answer
	Queue          Histogram                // how long requests waited, for a place and for the run that computed them
	Decode         Histogram                // of requests that succeeded: reading
	Compute        Histogram                // and computing
	Encode         Histogram                // and writing the answer
	Samples        uint64                   // that they had
	Requests       []Batch                  // requests that succeeded by number of samples, for those that occurred
	Runs           Histogram                // runs of the model that succeeded, which may compute samples of several requests
	Batches        []Batch                  // and these by number of samples, without padding
	Computed       uint64                   // samples in them, also of requests that had left since
	Padding        uint64                   // samples that they computed for nobody, beside those

	Received, Sent     uint64 // bytes of bodies
	Last               time.Time
	InFlight           int // requests between their header and the end of their answer
	Computing, Waiting int // of those, now
	Limits             Limits
}

// Batch is how often so many samples were computed together.
type Batch struct {
	Samples int // the largest one counted also has those of more
	Total
}

// Statistics returns what was counted so far.
func (v *Version) Statistics() Statistics {
	n := v.counts
	s := Statistics{
		Model: v.Spec.Name, Version: v.Name, Latency: n.latency.snapshot(), Queue: n.queue.snapshot(),
		Decode: n.decode.snapshot(), Compute: n.compute.snapshot(), Encode: n.encode.snapshot(),
		Failure: Total{Time: time.Duration(n.failure.Load())}, Samples: n.samples.Load(), Refused: n.early.Load(),
		Received: n.received.Load(), Sent: n.sent.Load(), InFlight: int(n.inFlight.Load()),
		Computing: int(v.gate.busy.Load()), Waiting: int(v.gate.queue.Load()), Limits: v.limits,
	}
	s.Failure.Count = s.Refused
	for p := range s.Failed {
		s.Done[p] = n.done[p].Load()
		for i := range s.Failed[p] {
			s.Failed[p][i] = n.failed[p][i].Load()
			s.Failure.Count += s.Failed[p][i]
		}
		s.Refused += s.Failed[p][oip.Exhausted]
	}
	s.Requests, s.Batches = batchesOf(n.requests), batchesOf(n.runs)
	s.Runs, s.Computed, s.Padding = n.run.snapshot(), n.computed.Load(), n.padding.Load()
	if ms := n.last.Load(); ms != 0 {
		s.Last = time.UnixMilli(ms)
	}
	return s
}

func batchesOf(totals []total) (out []Batch) {
	for i := range totals {
		if t := totals[i].snapshot(); t.Count > 0 {
			out = append(out, Batch{i, t})
		}
	}
	return out
}

func (t *total) snapshot() Total {
	return Total{t.count.Load(), time.Duration(t.time.Load())}
}

func (h *histogram) snapshot() Histogram {
	s := Histogram{Total: Total{Time: time.Duration(h.time.Load())}}
	for i := range h.buckets {
		s.Buckets[i] = h.buckets[i].Load()
		s.Count += s.Buckets[i]
	}
	return s
}
