// Package histogram counts durations in buckets, without a lock.
package histogram

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// A histogram has, for every power of two, 2^subBits buckets of equal width.
const (
	subBits    = 5
	subBuckets = 1 << subBits
	Buckets    = (64 - subBits) * subBuckets
)

// Histogram counts durations.
type Histogram struct {
	Total, Min, Max atomic.Int64 // nanoseconds
	Counts          [Buckets]atomic.Uint64
}

// Add counts one duration. Only one goroutine may do so at a time.
func (h *Histogram) Add(d int64) {
	d = max(d, 0)
	h.Total.Store(h.Total.Load() + d)
	if m := h.Min.Load(); m == 0 || d+1 < m {
		h.Min.Store(d + 1) // 0 means none yet
	}
	if d > h.Max.Load() {
		h.Max.Store(d)
	}
	c := &h.Counts[bucket(uint64(d))]
	c.Store(c.Load() + 1)
}

// bucket returns the index of the bucket that counts d.
func bucket(d uint64) int {
	if d < subBuckets {
		return int(d)
	}
	shift := bits.Len64(d) - subBits - 1
	return shift*subBuckets + int(d>>shift)
}

// BucketMiddle returns the middle of a bucket.
func BucketMiddle(i int) time.Duration {
	if i < 2*subBuckets {
		return time.Duration(i)
	}
	shift := i/subBuckets - 1
	low := uint64(i-shift*subBuckets) << shift
	return time.Duration(low + 1<<shift/2)
}
