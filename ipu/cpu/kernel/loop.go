package kernel

import (
	"fmt"

	"github.com/popefgen/popefgen/ipu/graph"
)

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

// windowRange returns the positions o in [0, n) for which o·stride - back lies
// in [0, size), as the range [lo, hi).
func windowRange(size, n, stride, back int) (lo, hi int) {
	if back > 0 {
		lo = (back + stride - 1) / stride
	}
	if last := size - 1 + back; last >= 0 {
		hi = last/stride + 1
	}
	hi = min(hi, n)
	return min(lo, hi), hi
}
