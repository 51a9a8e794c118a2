package soak

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/popefgen/popefgen/serve/internal/core"
	"github.com/popefgen/popefgen/serve/internal/testmodel"
	"github.com/popefgen/popefgen/serve/oip"
)

// tally is what callers of a model saw.
type tally struct {
	ok      [core.Protocols]atomic.Uint64
	failed  [core.Protocols][core.Codes]atomic.Uint64
	left    [core.Protocols]atomic.Uint64 // requests whose callers left
	batches [testmodel.Samples + 1]atomic.Uint64
}

// Counted is what the callers of the model Exact saw, and the server must have counted.
type Counted struct {
	OK, Failed [core.Protocols]uint64
	Refused    uint64 // of those that failed
	Samples    uint64
	Batches    [testmodel.Samples + 1]uint64 // requests that were answered, by their samples
}

// Done returns how many requests were answered, over all protocols.
func (c *Counted) Done() (n uint64) {
	for _, k := range c.OK {
		n += k
	}
	return n
}

// Failures returns how many failed.
func (c *Counted) Failures() (n uint64) {
	for _, k := range c.Failed {
		n += k
	}
	return n
}

func (t *tally) counted() (c Counted) {
	for p := range c.OK {
		c.OK[p] = t.ok[p].Load()
		for code := range t.failed[p] {
			c.Failed[p] += t.failed[p][code].Load()
		}
		c.Refused += t.failed[p][oip.Exhausted].Load()
	}
	for n := range t.batches {
		c.Batches[n] = t.batches[n].Load()
		c.Samples += uint64(n) * c.Batches[n]
	}
	return c
}

// compare compares what the server counted with what callers saw.
func (s *Soak) compare(c *core.Core, check func(Counted)) {
	of := func(model string) core.Statistics {
		all := c.Statistics(model)
		if len(all) != 1 {
			s.t.Fatalf("statistics of %d versions of %s, expected 1", len(all), model)
		}
		return all[0]
	}
	for _, model := range []string{Shared, Exact} { // an answer is with its caller before it is counted
		for begun := time.Now(); of(model).InFlight > 0; time.Sleep(time.Millisecond) {
			if time.Since(begun) > 20*time.Second {
				s.t.Fatalf("%s: %d requests are in flight, and nobody asks", model, of(model).InFlight)
			}
		}
	}
	happened := [core.Codes]uint64{}
	answered := uint64(0)
	for _, model := range []string{Shared, Exact} {
		t, got := s.tallies[model], of(model)
		if got.Computing+got.Waiting > 0 {
			s.t.Errorf("%s: %d requests compute and %d wait, and nobody asks", model, got.Computing, got.Waiting)
		}
		saw := t.counted()
		answered += saw.Done()
		left, more := uint64(0), got.Latency.Count+got.Failure.Count-saw.Done()-saw.Failures()
		counted := func(what string, got, want uint64) {
			if got < want || got > want && model == Exact {
				s.t.Errorf("%s: the server counted %d %s, its callers %d", model, got, what, want)
			}
		}
		counted("requests refused", got.Refused, saw.Refused)
		counted("samples", got.Samples, saw.Samples)
		for p := range saw.OK {
			name := core.Protocol(p).String()
			left += t.left[p].Load()
			counted("requests answered over "+name, got.Done[p], saw.OK[p])
			for code := range t.failed[p] {
				n := t.failed[p][code].Load()
				happened[code] += n
				if oip.Code(code) != oip.Exhausted { // which are not all counted by protocol
					counted("requests that failed over "+name+" with "+oip.Code(code).String(), got.Failed[p][code], n)
				}
			}
		}
		for _, b := range got.Requests {
			counted(fmt.Sprintf("requests of %d samples", b.Samples), b.Count, saw.Batches[b.Samples])
		}
		runs, computed := uint64(0), uint64(0) // runs compute samples of several requests, and of some that fail or leave
		for _, b := range got.Batches {
			runs, computed = runs+b.Count, computed+uint64(b.Samples)*b.Count
		}
		if runs != got.Runs.Count || computed != got.Computed || computed < got.Samples {
			s.t.Errorf("%s: the server counted %d runs of %d samples, by their samples %d of %d; %d samples were answered", model, got.Runs.Count, got.Computed, runs, computed, got.Samples)
		}
		if more > left {
			s.t.Errorf("%s: the server counted %d requests more than its callers saw answered, and %d left", model, more, left)
		}
		s.t.Logf("%s: %d answered, %d failed, %d more counted of %d that left", model, saw.Done(), saw.Failures(), more, left)
		if model == Exact && check != nil {
			check(saw)
		}
	}
	s.t.Logf("%d late, %d refused, %d failed by devices, %d left, %d reloads, %d breaking models refused, %d faults", happened[oip.Deadline], happened[oip.Exhausted],
		happened[oip.Internal]+happened[oip.Unavailable], s.left.Load(), s.reloads.Load(), s.breaking.Load(), s.faults.Load())
	for _, h := range []struct {
		what string
		n    uint64
		long bool // of a soak of some time alone
	}{
		{"answered", answered, false}, {"a fault", uint64(s.faults.Load()), false}, {"late", happened[oip.Deadline], true}, {"refused", happened[oip.Exhausted], true},
		{"failed by a device", happened[oip.Internal], true}, {"left", uint64(s.left.Load()), true}, {"a reload", uint64(s.reloads.Load()), true},
		{"a breaking model refused", uint64(s.breaking.Load()), true},
	} {
		if h.n == 0 && (!h.long || s.d >= 20*time.Second) {
			s.t.Errorf("nothing of this happened: %s", h.what)
		}
	}
}
