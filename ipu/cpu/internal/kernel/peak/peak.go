package peak

import (
	"runtime"
	"sync"
	"time"
)

// peakTime is for how long [Peak] measures.
const peakTime = 30 * time.Millisecond

// Peak measures how many float32 additions and multiplications a second the
// machine does at most on that many threads at the same time, with the
// instructions that kernels use: a loop that touches no memory and whose
// operations do not wait for each other. It takes some 30 ms.
func Peak(threads int) float64 {
	rates := make([]float64, max(1, threads))
	var ready, all sync.WaitGroup
	start := make(chan struct{})
	ready.Add(len(rates))
	for i := range rates {
		all.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			ready.Done()
			<-start
			rates[i] = threadPeak(peakTime)
		})
	}
	ready.Wait()
	close(start)
	all.Wait()
	total := 0.0
	for _, r := range rates {
		total += r
	}
	return total
}

// threadPeak returns the best rate of short rounds, which it repeats for a
// time: what other programs on the machine take away is not counted.
func threadPeak(during time.Duration) float64 {
	flops, round := peakRound()
	best := 0.0
	for begin := time.Now(); ; {
		start := time.Now()
		round()
		took := time.Since(start)
		best = max(best, flops/took.Seconds())
		if time.Since(begin) >= during {
			return best
		}
	}
}

// goRound is a round in plain Go, which computes with one element at a time.
// Its operands stay in registers: six sums, the factors and x.
func goRound() (flops float64, round func()) {
	const n = 20000
	factors := [6]float32{1, 2, 3, 4, 5, 6}
	return 2 * 6 * n, func() {
		var a, b, c, d, e, f, x float32
		k := factors
		for range n {
			x++
			a += x * k[0]
			b += x * k[1]
			c += x * k[2]
			d += x * k[3]
			e += x * k[4]
			f += x * k[5]
		}
		factors[0] = 1 + 0*(a+b+c+d+e+f) // or the compiler would leave all of it out
	}
}
