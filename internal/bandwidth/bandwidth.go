// Package bandwidth measures how fast one thread reads memory that it reads
// again and again: what bounds products with vectors, whose weights are used
// once.
package bandwidth

import (
	"sync"
	"time"
	"unsafe"
)

// block is what a loop reads at least.
const block = 512

// Read returns the bytes a second that one thread reads from a block of so many
// bytes, from whatever level of the memory it lies in; 0 where the machine has
// no loop for it. It takes some 30 ms.
func Read(bytes int) float64 {
	read := reader()
	if read == nil {
		return 0
	}
	bytes = max(bytes/block, 1) * block
	mem := make([]byte, bytes+64)
	for i := range mem {
		mem[i] = byte(i) // pages that were never written are all the same one
	}
	from := unsafe.SliceData(mem[-uintptr(unsafe.Pointer(unsafe.SliceData(mem)))&63:])
	rounds := max(1, 1<<20/bytes)
	best := time.Duration(0)
	for begin, n := time.Now(), 0; n < 5 || time.Since(begin) < 30*time.Millisecond; n++ {
		start := time.Now()
		for range rounds {
			read(from, bytes)
		}
		if took := time.Since(start); best == 0 || took < best {
			best = took
		}
	}
	return float64(rounds*bytes) / best.Seconds()
}

// Together returns the bytes a second that threads read at once, each from its
// share of so many bytes.
func Together(bytes, threads int) float64 {
	rates := make([]float64, threads)
	var all sync.WaitGroup
	for i := range rates {
		all.Go(func() { rates[i] = Read(bytes / threads) })
	}
	all.Wait()
	sum := 0.0
	for _, r := range rates {
		sum += r
	}
	return sum
}
