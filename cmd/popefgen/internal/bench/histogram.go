package bench

import (
	"math"
	"math/bits"
	"time"
)

// A histogram has, for every power of two, 2^subBits buckets of equal width:
// the middle of a bucket is off by 0.4 % at most.
const (
	subBits    = 7
	subBuckets = 1 << subBits
	buckets    = (64 - subBits) * subBuckets
)

// Histogram counts durations in fixed memory. Its zero value is empty.
type Histogram struct {
	n, total    int64
	least, most int64
	counts      [buckets]uint64
}

// Add counts a duration; one below 0 counts as 0.
func (h *Histogram) Add(d time.Duration) {
	v := max(0, int64(d))
	if h.n == 0 || v < h.least {
		h.least = v
	}
	h.most = max(h.most, v)
	h.n++
	h.total += v
	h.counts[bucket(uint64(v))]++
}

// Merge counts all that another histogram has counted.
func (h *Histogram) Merge(o *Histogram) {
	if o.n == 0 {
		return
	}
	if h.n == 0 || o.least < h.least {
		h.least = o.least
	}
	h.most = max(h.most, o.most)
	h.n += o.n
	h.total += o.total
	for i, c := range &o.counts {
		h.counts[i] += c
	}
}

// Count returns how many durations were counted.
func (h *Histogram) Count() int64 { return h.n }

// Mean returns the exact mean, 0 without durations.
func (h *Histogram) Mean() time.Duration {
	if h.n == 0 {
		return 0
	}
	return time.Duration(h.total / h.n)
}

// Min returns the shortest duration, 0 without durations.
func (h *Histogram) Min() time.Duration { return time.Duration(h.least) }

// Max returns the longest duration, 0 without durations.
func (h *Histogram) Max() time.Duration { return time.Duration(h.most) }

// Percentile returns the duration that the fraction q of all durations does not
// exceed, off by 0.4 % at most; 0 without durations.
func (h *Histogram) Percentile(q float64) time.Duration {
	rank := uint64(max(1, math.Ceil(q*float64(h.n))))
	if rank >= uint64(h.n) {
		return time.Duration(h.most)
	}
	var seen uint64
	for i, c := range &h.counts {
		if seen += c; c > 0 && seen >= rank {
			return time.Duration(min(max(middle(i), h.least), h.most))
		}
	}
	return time.Duration(h.most)
}

// bucket returns the index of the bucket that counts v.
func bucket(v uint64) int {
	if v < subBuckets {
		return int(v)
	}
	shift := bits.Len64(v) - subBits - 1
	return shift*subBuckets + int(v>>shift)
}

// middle returns the middle of a bucket.
func middle(i int) int64 {
	if i < 2*subBuckets {
		return int64(i)
	}
	shift := i/subBuckets - 1
	low := int64(i-shift*subBuckets) << shift
	return low + int64(1)<<shift/2
}
