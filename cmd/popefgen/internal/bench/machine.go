package bench

import (
	"sync"
	"time"

	"github.com/popefgen/popefgen/internal/bandwidth"
	"github.com/popefgen/popefgen/ipu/cpu"
)

// Machine is what the machine can do at most, measured in this process. Its
// JSON form is described in docs/bench.md.
type Machine struct {
	Threads      int     `json:"threads"`
	Instructions string  `json:"instructions"`           // of the kernels: avx512, avx2 or go
	GFLOPs       float64 `json:"peak_gflops_per_second"` // float32 multiply-adds that touch no memory
	GBytes       float64 `json:"copy_gbytes_per_second"` // bytes read and written while main memory is copied
	Reads        []Reads `json:"reads,omitempty"`        // by size; none where there is no loop to measure with
}

// Reads is how fast the threads together read a block of memory again and again.
type Reads struct {
	Bytes  int64   `json:"bytes"`
	GBytes float64 `json:"gbytes_per_second"`
}

// The blocks that [MeasureMachine] reads: from what fits into any first-level
// cache to what fits into few caches at all, four times as much each.
const smallestRead, largestRead = 16 << 10, 64 << 20

// copyBytes is how much memory [MeasureMachine] copies, more than caches hold.
const copyBytes = 96 << 20

// MeasureMachine measures with that many threads.
func MeasureMachine(threads int) Machine {
	m := Machine{
		Threads: threads, Instructions: cpu.Path(),
		GFLOPs: cpu.Peak(threads) / 1e9, GBytes: copyRate(threads) / 1e9,
	}
	for size := smallestRead; size <= largestRead; size *= 4 {
		if rate := bandwidth.Together(size, threads); rate > 0 {
			m.Reads = append(m.Reads, Reads{int64(size), rate / 1e9})
		}
	}
	return m
}

// readRate returns how fast memory of that size is read, of what was measured
// the largest that is not larger; 0 if nothing was.
func (m *Machine) readRate(size int64) float64 {
	rate := 0.0
	for i, r := range m.Reads {
		if i == 0 || r.Bytes <= size {
			rate = r.GBytes
		}
	}
	return rate
}

// copyRate returns the best of several rates at which all threads together
// copy memory.
func copyRate(threads int) float64 {
	size := copyBytes / 2 / threads
	from, to := make([][]byte, threads), make([][]byte, threads)
	for i := range from {
		from[i], to[i] = make([]byte, size), make([]byte, size)
		for k := 0; k < size; k += 1 << 10 { // pages that were never written share one
			from[i][k] = 1
		}
	}
	best := 0.0
	for range 6 { // the first finds pages that are not there yet
		var all sync.WaitGroup
		start := time.Now()
		for i := range from {
			all.Go(func() { copy(to[i], from[i]) })
		}
		all.Wait()
		best = max(best, float64(2*size*threads)/time.Since(start).Seconds())
	}
	return best
}
