package kernel

import "time"

// peak measures how many GFLOP/s of multiply-adds a core does at most on the
// current path; 0 for plain Go.
func peak() float64 {
	fn, lanes := peakAVX512, 16
	switch path {
	case pathGo:
		return 0
	case pathAVX2:
		fn, lanes = peakAVX2, 8
	}
	const rounds = 5000
	best := 0.0
	for range 100 {
		start := time.Now()
		fn(rounds)
		best = max(best, float64(2*lanes*peakFMAs*rounds)/float64(time.Since(start).Nanoseconds()))
	}
	return best
}
