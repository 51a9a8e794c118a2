package bench

import (
	"sync"
	"time"

	"github.com/popefgen/popefgen/ipu/cpu/kernel"
)

// Machine is what the machine can do at most, measured in this process. Its
// JSON form is described in docs/bench.md.
type Machine struct {
	Threads      int     `json:"threads"`
	Instructions string  `json:"instructions"`           // of the kernels: avx512, avx2 or go
	GFLOPs       float64 `json:"peak_gflops_per_second"` // float32 multiply-adds that touch no memory
	GBytes       float64 `json:"copy_gbytes_per_second"` // bytes read and written while main memory is copied
}

// copyBytes is how much memory [MeasureMachine] copies, more than caches hold.
const copyBytes = 96 << 20

// MeasureMachine measures with that many threads.
func MeasureMachine(threads int) Machine {
	return Machine{
		Threads: threads, Instructions: kernel.Path(),
		GFLOPs: kernel.Peak(threads) / 1e9, GBytes: copyRate(threads) / 1e9,
	}
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
