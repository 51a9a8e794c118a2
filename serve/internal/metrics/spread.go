package metrics

import (
	"sort"
	"sync/atomic"
	"time"
)

// Spread counts values by size while requests run: two atomic additions for each. Bounds are in the unit of the values.
type Spread struct {
	bounds []int64
	counts []atomic.Uint64
	sum    atomic.Int64
}

// Times are the bounds of durations: 10 µs to 10 s.
var Times = func() (b []int64) {
	for d := 10 * time.Microsecond; d < 10*time.Second; d *= 10 {
		b = append(b, int64(d), int64(d*5/2), int64(d*5))
	}
	return append(b, int64(10*time.Second))
}()

// Sizes are the bounds of batches: powers of two up to 1,024.
var Sizes = []int64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}

// NewSpread returns a Spread with buckets up to each of the bounds, which ascend, and one for all above.
func NewSpread(bounds []int64) *Spread {
	return &Spread{bounds: bounds, counts: make([]atomic.Uint64, len(bounds)+1)}
}

// Add counts a value.
func (s *Spread) Add(v int64) {
	i := sort.Search(len(s.bounds), func(i int) bool { return v <= s.bounds[i] })
	s.counts[i].Add(1)
	s.sum.Add(v)
}

// Histogram returns what was counted, each value divided by unit: 1e9 makes seconds of nanoseconds.
func (s *Spread) Histogram(unit float64) Histogram {
	h := Histogram{Bounds: make([]float64, len(s.bounds)), Counts: make([]uint64, len(s.counts)), Sum: float64(s.sum.Load()) / unit}
	for i, b := range s.bounds {
		h.Bounds[i] = float64(b) / unit
	}
	for i := range s.counts {
		h.Counts[i] = s.counts[i].Load()
	}
	return h
}
