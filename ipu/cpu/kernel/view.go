package kernel

import (
	"fmt"
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/popefgen/popefgen/ipu/graph"
)

// signed, unsigned, integer, float and number are the element types that Go
// computes with by itself.
type (
	signed interface {
		~int8 | ~int16 | ~int32 | ~int64
	}
	unsigned interface {
		~uint8 | ~uint16 | ~uint32 | ~uint64
	}
	integer interface{ signed | unsigned }
	float   interface{ ~float32 | ~float64 }
	number  interface{ integer | float }
)

// view gives the memory of a tensor its element type. b must be aligned to
// T's size, as Kernel.Run promises; nothing is copied.
func view[T any](b []byte) []T {
	var zero T
	n := len(b) / int(unsafe.Sizeof(zero))
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

func f32s(b []byte) []float32 { return view[float32](b) }
func f64s(b []byte) []float64 { return view[float64](b) }

// elements returns how many elements a verified shape has.
func elements(shape []int64) int {
	n := 1
	for _, d := range shape {
		n *= int(d)
	}
	return n
}

// strides returns the row-major strides of shape, in elements.
func strides(shape []int64) []int {
	s := make([]int, len(shape))
	n := 1
	for i := len(shape) - 1; i >= 0; i-- {
		s[i] = n
		n *= int(shape[i])
	}
	return s
}

// ints converts a shape.
func ints(shape []int64) []int {
	s := make([]int, len(shape))
	for i, d := range shape {
		s[i] = int(d)
	}
	return s
}

// roundUp returns the multiple of unit that is not below n.
func roundUp(n, unit int) int { return (n + unit - 1) / unit * unit }

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

// maxAxes bounds the axes that a loop keeps after merging.
const maxAxes = graph.MaxRank

// maxOperands bounds the operands that a loop walks.
const maxOperands = 3

// loop walks operands whose elements lie at fixed strides, in the row-major
// order of a common shape. Axes of one element are dropped and neighbouring
// axes merged where every operand allows it, so the innermost axis (a row) is
// as long as can be.
type loop struct {
	shape   []int   // merged axes, outermost first; never empty
	strides [][]int // per operand: its step along every merged axis, in elements
	rows    int     // product of all axes but the last; 0 if there are no elements
	inner   int     // length of the last axis
}

// newLoop makes the loop over shape for operands with the given strides, one
// stride per axis of shape and operand.
func newLoop(shape []int, operands ...[]int) (loop, error) {
	if len(operands) > maxOperands {
		return loop{}, fmt.Errorf("loop over %d operands, at most %d", len(operands), maxOperands)
	}
	l := loop{strides: make([][]int, len(operands))}
	total := 1
	for axis, d := range shape {
		total *= d
		if d == 1 {
			continue
		}
		last := len(l.shape) - 1
		merge := last >= 0
		for k, s := range operands {
			if merge && l.strides[k][last] != s[axis]*d {
				merge = false
			}
		}
		if merge {
			l.shape[last] *= d
			for k, s := range operands {
				l.strides[k][last] = s[axis]
			}
			continue
		}
		l.shape = append(l.shape, d)
		for k, s := range operands {
			l.strides[k] = append(l.strides[k], s[axis])
		}
	}
	if len(l.shape) == 0 {
		l.shape = []int{1}
		for k := range operands {
			l.strides[k] = []int{1}
		}
	}
	if len(l.shape) > maxAxes {
		return loop{}, fmt.Errorf("shape %v has more than %d axes that can't be merged", shape, maxAxes)
	}
	l.inner = l.shape[len(l.shape)-1]
	if total != 0 {
		l.rows = total / l.inner
	}
	return l, nil
}

// broadcast makes the loop over shape for row-major operands of shapes that
// numpy's rules broadcast to it. On the last axis every stride is 0 or 1.
func broadcast(shape []int64, operands ...[]int64) (loop, error) {
	all := make([][]int, len(operands))
	for k, s := range operands {
		all[k] = broadcastStrides(shape, s)
	}
	return newLoop(ints(shape), all...)
}

// broadcastStrides returns the strides of a row-major operand along the axes
// of the shape it is broadcast to: 0 where it repeats.
func broadcastStrides(shape, operand []int64) []int {
	out := make([]int, len(shape))
	own := strides(operand)
	skip := len(shape) - len(operand)
	for i, d := range operand {
		if d != 1 {
			out[skip+i] = own[i]
		}
	}
	return out
}

// stride returns operand k's step along a row.
func (l *loop) stride(k int) int { return l.strides[k][len(l.shape)-1] }

// cursor is the position of one row of a loop. off holds, per operand, the
// index of the row's first element relative to the operand's first.
type cursor struct {
	off [maxOperands]int
	at  [maxAxes]int
}

// seek puts c on a row.
func (l *loop) seek(c *cursor, row int) {
	c.off = [maxOperands]int{}
	for axis := len(l.shape) - 2; axis >= 0; axis-- {
		d := l.shape[axis]
		c.at[axis] = row % d
		row /= d
		for k := range l.strides {
			c.off[k] += c.at[axis] * l.strides[k][axis]
		}
	}
}

// next moves c to the following row.
func (l *loop) next(c *cursor) {
	for axis := len(l.shape) - 2; axis >= 0; axis-- {
		c.at[axis]++
		if c.at[axis] < l.shape[axis] {
			for k := range l.strides {
				c.off[k] += l.strides[k][axis]
			}
			return
		}
		c.at[axis] = 0
		for k := range l.strides {
			c.off[k] -= (l.shape[axis] - 1) * l.strides[k][axis]
		}
	}
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
