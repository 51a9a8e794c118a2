package kernel

import (
	"math"
	"sync/atomic"
)

// grain is the least work, counted in simple element operations, that is
// worth handing to another core which looks out for it: some 4 µs. It is a
// variable for the tests, which cut small tensors too.
var grain = 16 << 10

// maxParts bounds the parts of one task, so that kernels whose parts need
// memory of their own can size it when they are bound.
const maxParts = 64

// long is how much work one part has at most where that can be: some 4 ms, in
// simple element operations. Between parts a run may be cancelled.
const long = 1 << 24

// cut returns into how many parts to cut n items that take cost simple
// element operations each: 1 if the work is small or p has one worker, else a
// few per worker so that a slow core does not hold up the others; 0 if n is 0.
// Of long work there are more, whatever p.
func cut(p Pool, n, cost int) int {
	parts := cutSlots(p, n, cost)
	if most := float64(n) * float64(cost) / long; most > float64(parts) {
		return int(min(most+1, float64(n), 1<<30))
	}
	return parts
}

// cutSlots is cut for parts that have memory of their own: at most [maxParts],
// so their loops must look themselves whether a run has ended (see watch).
func cutSlots(p Pool, n, cost int) int {
	if n == 0 {
		return 0
	}
	w := workersFor(p, float64(n)*float64(cost))
	if w == 1 {
		return 1
	}
	parts := min(mostParts(n, cost), 4*w)
	if parts > w {
		parts -= parts % w // as many for each
	}
	return parts
}

// workersFor returns how many workers should share work that takes one of
// them so many simple element operations.
func workersFor(p Pool, cost float64) int {
	w := p.Workers()
	if w <= 1 || !p.Pays(int(min(cost, math.MaxInt32))) {
		return 1
	}
	return w
}

// watch divides the items of a part into stretches, between which a run may be
// cancelled.
type watch struct {
	pool  Pool
	every int // items
}

// newWatch returns a watch over items that take cost simple element operations.
func newWatch(p Pool, cost int) watch {
	w := watch{p, max(1, long/max(1, cost))}
	if w.every >= stretchUnit {
		w.every -= w.every % stretchUnit
	}
	return w
}

// stretchUnit is what long stretches have a multiple of items of, so that they
// share no cache line.
const stretchUnit = 1024

// next returns where the stretch ends that begins at an item before end; at that
// item itself if the run has ended.
func (w *watch) next(at, end int) int {
	if end-at <= w.every {
		return end
	}
	if w.pool.Ended() {
		return at
	}
	return at + w.every
}

// pace lets the loops within an item look, now and then, whether the run has
// ended.
type pace struct {
	pool Pool
	done int // since it last looked, in simple element operations
}

// ended reports whether the run has ended, after so much more work.
func (p *pace) ended(cost int) bool {
	if p.done += cost; p.done < long {
		return false
	}
	p.done = 0
	return p.pool.Ended()
}

// mostParts returns the greatest number of parts that cutSlots gives, whatever the
// pool.
func mostParts(n, cost int) int {
	return max(1, min(int(min(float64(n)*float64(cost)/float64(grain), maxParts)), n))
}

// span returns the items [lo, hi) of part, one of parts, of n items. Inner
// borders are multiples of unit, so that parts share no cache line.
func span(n, parts, part, unit int) (lo, hi int) {
	if parts == 1 {
		return 0, n
	}
	units := (n + unit - 1) / unit
	lo = units * part / parts * unit
	hi = units * (part + 1) / parts * unit
	return min(lo, n), min(hi, n)
}

// tickets hands out the numbers below a limit to the parts of a task. Even
// parts get them from the first on, odd ones from the last on: a [Pool] of two
// lets each core go over the same half of the data in one task after the
// other. It shares no cache line with anything else, nor one of the pair that
// processors fetch together: every draw would make the other cores read it anew.
type tickets struct {
	pool Pool
	_    [112]byte
	left atomic.Uint64 // from the low half on, up to the high half
	_    [120]byte
}

// reset makes n numbers available to a task of p.
func (t *tickets) reset(p Pool, n int) {
	t.pool = p
	t.left.Store(uint64(n) << 32)
}

// draw returns a number, if there is one left and the run has not ended.
func (t *tickets) draw(part int) (n int, ok bool) {
	if t.pool.Ended() {
		return 0, false
	}
	for {
		w := t.left.Load()
		first, end := uint32(w), uint32(w>>32)
		switch {
		case first >= end:
			return 0, false
		case part%2 == 0 && t.left.CompareAndSwap(w, w+1):
			return int(first), true
		case part%2 == 1 && t.left.CompareAndSwap(w, w-1<<32):
			return int(end - 1), true
		}
	}
}

// mostScratch bounds the memory for gathered panels where a single one does
// not take more: enormous windows get fewer parts.
const mostScratch = 16 << 20
