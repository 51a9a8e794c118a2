package bench

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// client makes requests, up to a number of slots at a time. Neither method may
// allocate.
type client interface {
	// start begins a request in a free slot; a synchronous one ends here too.
	start(slot int) error
	// finish waits until the request of a slot has ended.
	finish(slot int) error
}

// phase is what all clients did in a time.
type phase struct {
	latency     Histogram
	took        time.Duration
	allocations uint64
	bytes       uint64
}

// add merges another phase of the same clients.
func (p *phase) add(o *phase) {
	p.latency.Merge(&o.latency)
	p.took += o.took
	p.allocations += o.allocations
	p.bytes += o.bytes
}

// drive lets every client make requests one after the other, with up to depth
// of them under way, for a time. Each makes depth requests at least.
func drive(clients []client, depth int, during time.Duration) (*phase, error) {
	p := &phase{}
	latencies := make([]Histogram, len(clients))
	errs := make([]error, len(clients))
	var ready, all sync.WaitGroup
	var stop atomic.Bool
	start := make(chan struct{})
	ready.Add(len(clients))
	for i, c := range clients {
		all.Go(func() {
			begun := make([]time.Duration, depth)
			ready.Done()
			<-start
			if errs[i] = loop(c, begun, during, &latencies[i], &stop); errs[i] != nil {
				stop.Store(true)
			}
		})
	}
	ready.Wait()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	begin := time.Now()
	close(start)
	all.Wait()
	p.took = time.Since(begin)
	runtime.ReadMemStats(&after)
	for i, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("client %d: request %d: %w", i+1, latencies[i].n+1, err)
		}
		p.latency.Merge(&latencies[i])
	}
	p.allocations = after.Mallocs - before.Mallocs
	p.bytes = after.TotalAlloc - before.TotalAlloc
	return p, nil
}

var epoch = time.Now()

// clock is the time since the program started. Reading the monotonic clock
// alone is cheaper than time.Now.
func clock() time.Duration { return time.Since(epoch) }

// loop is one client. A request begins when the one before it in its slot was
// seen to end, so that with one slot the clock is read once for each.
func loop(c client, begun []time.Duration, during time.Duration, h *Histogram, stop *atomic.Bool) error {
	depth := len(begun)
	for slot := range begun {
		begun[slot] = clock()
		if err := c.start(slot); err != nil {
			return err
		}
	}
	until := begun[0] + during
	for slot := 0; ; slot = (slot + 1) % depth {
		if err := c.finish(slot); err != nil {
			return err
		}
		now := clock()
		h.Add(now - begun[slot])
		if now >= until || stop.Load() {
			for k := 1; k < depth; k++ {
				slot := (slot + k) % depth
				if err := c.finish(slot); err != nil {
					return err
				}
				h.Add(clock() - begun[slot])
			}
			return nil
		}
		begun[slot] = now
		if err := c.start(slot); err != nil {
			return err
		}
	}
}
