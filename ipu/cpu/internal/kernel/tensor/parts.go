package tensor

import (
	"math"
	"sync/atomic"
)

// Grain is the least work, counted in simple element operations, that is
// worth handing to another core which polls for it: some 4 µs. It is a
// variable for the tests, which cut small tensors too.
var Grain = 16 << 10

// MaxParts bounds the parts of one task, so that kernels whose parts need
// memory of their own can size it when they are bound.
const MaxParts = 64

// Long is the most work of one part where that can be: some 4 ms, in
// simple element operations. Between parts a run may be cancelled.
const Long = 1 << 24

// Cut returns into how many parts to cut n items that take cost simple
// element operations each: 1 if the work is small or p has one worker, else a
// few per worker so that a slow core does not hold up the others; 0 if n is 0.
// Of long work there are more, whatever p.
func Cut(p Pool, n, cost int) int {
	parts := CutSlots(p, n, cost)
	if most := float64(n) * float64(cost) / Long; most > float64(parts) {
		return int(min(most+1, float64(n), 1<<30))
	}
	return parts
}

// CutSlots is cut for parts that have memory of their own: at most [maxParts],
// so their loops must look themselves whether a run has ended (see watch).
func CutSlots(p Pool, n, cost int) int {
	if n == 0 {
		return 0
	}
	w := WorkersFor(p, float64(n)*float64(cost))
	if w == 1 {
		return 1
	}
	parts := min(MostParts(n, cost), 4*w)
	if parts > w {
		parts -= parts % w // as many for each
	}
	return parts
}

// WorkersFor returns how many workers should share work that takes one of
// them so many simple element operations.
func WorkersFor(p Pool, cost float64) int {
	w := p.Workers()
	if w <= 1 || !p.Pays(int(min(cost, math.MaxInt32))) {
		return 1
	}
	return w
}

// Watch divides the items of a part into stretches, between which a run may be
// cancelled.
type Watch struct {
	Pool  Pool
	every int // items
}

// NewWatch returns a watch over items that take cost simple element operations.
func NewWatch(p Pool, cost int) Watch {
	w := Watch{p, max(1, Long/max(1, cost))}
	if w.every >= stretchUnit {
		w.every -= w.every % stretchUnit
	}
	return w
}

// stretchUnit is what long stretches have a multiple of items of, so that they
// share no cache line.
const stretchUnit = 1024

// Next returns where the stretch ends that begins at an item before end; at that
// item itself if the run has ended.
func (w *Watch) Next(at, end int) int {
	if end-at <= w.every {
		return end
	}
	if w.Pool.Ended() {
		return at
	}
	return at + w.every
}

// Pace lets the loops within an item look, now and then, whether the run has
// ended.
type Pace struct {
	Pool Pool
	done int // since it last looked, in simple element operations
}

// Ended reports whether the run has ended, after so much more work.
func (p *Pace) Ended(cost int) bool {
	if p.done += cost; p.done < Long {
		return false
	}
	p.done = 0
	return p.Pool.Ended()
}

// MostParts returns the greatest number of parts that cutSlots gives, whatever the
// pool.
func MostParts(n, cost int) int {
	return max(1, min(int(min(float64(n)*float64(cost)/float64(Grain), MaxParts)), n))
}

// Span returns the items [lo, hi) of part, one of parts, of n items. Inner
// borders are multiples of unit, so that parts share no cache line.
func Span(n, parts, part, unit int) (lo, hi int) {
	if parts == 1 {
		return 0, n
	}
	units := (n + unit - 1) / unit
	lo = units * part / parts * unit
	hi = units * (part + 1) / parts * unit
	return min(lo, n), min(hi, n)
}

// Tickets hands out the numbers below a limit to the parts of a task. Even
// parts get them from the first on, odd ones from the last on: a [Pool] of two
// lets each core go over the same half of the data in one task after the
// other. It shares no cache line with anything else, nor one of the pair that
// processors fetch together: every draw would make the other cores read it anew.
type Tickets struct {
	Pool Pool
	_    [112]byte
	left atomic.Uint64 // from the low half on, up to the high half
	_    [120]byte
}

// Reset makes n numbers available to a task of p.
func (t *Tickets) Reset(p Pool, n int) {
	t.Pool = p
	t.left.Store(uint64(n) << 32)
}

// Draw returns a number, if there is one left and the run has not ended.
func (t *Tickets) Draw(part int) (n int, ok bool) {
	if t.Pool.Ended() {
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

// MostScratch bounds the memory for gathered panels where a single one does
// not take more: enormous windows get fewer parts.
const MostScratch = 16 << 20
