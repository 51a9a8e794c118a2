package tensor

import (
	"fmt"

	"github.com/popefgen/popefgen/ipu/graph"
)

// MaxAxes bounds the axes that a loop keeps after merging.
const MaxAxes = graph.MaxRank

// MaxOperands bounds the operands that a loop walks.
const MaxOperands = 3

// Loop walks operands whose elements lie at fixed strides, in the row-major
// order of a common shape. Axes of one element are dropped and neighbouring
// axes merged where every operand allows it, so the innermost axis (a row) is
// as long as can be.
type Loop struct {
	Shape   []int   // merged axes, outermost first; never empty
	Strides [][]int // per operand: its step along every merged axis, in elements
	Rows    int     // product of all axes but the last; 0 if there are no elements
	Inner   int     // length of the last axis
}

// NewLoop returns the loop over shape for operands with the given strides, one
// stride per axis of shape and operand.
func NewLoop(shape []int, operands ...[]int) (Loop, error) {
	if len(operands) > MaxOperands {
		return Loop{}, fmt.Errorf("loop over %d operands, at most %d", len(operands), MaxOperands)
	}
	l := Loop{Strides: make([][]int, len(operands))}
	total := 1
	for axis, d := range shape {
		total *= d
		if d == 1 {
			continue
		}
		last := len(l.Shape) - 1
		merge := last >= 0
		for k, s := range operands {
			if merge && l.Strides[k][last] != s[axis]*d {
				merge = false
			}
		}
		if merge {
			l.Shape[last] *= d
			for k, s := range operands {
				l.Strides[k][last] = s[axis]
			}
			continue
		}
		l.Shape = append(l.Shape, d)
		for k, s := range operands {
			l.Strides[k] = append(l.Strides[k], s[axis])
		}
	}
	if len(l.Shape) == 0 {
		l.Shape = []int{1}
		for k := range operands {
			l.Strides[k] = []int{1}
		}
	}
	if len(l.Shape) > MaxAxes {
		return Loop{}, fmt.Errorf("shape %v has more than %d axes that can't be merged", shape, MaxAxes)
	}
	l.Inner = l.Shape[len(l.Shape)-1]
	if total != 0 {
		l.Rows = total / l.Inner
	}
	return l, nil
}

// Broadcast returns the loop over shape for row-major operands of shapes that
// numpy's rules broadcast to it. On the last axis every stride is 0 or 1.
func Broadcast(shape []int64, operands ...[]int64) (Loop, error) {
	all := make([][]int, len(operands))
	for k, s := range operands {
		all[k] = BroadcastStrides(shape, s)
	}
	return NewLoop(Ints(shape), all...)
}

// BroadcastStrides returns the strides of a row-major operand along the axes
// of the shape it is broadcast to: 0 where it repeats.
func BroadcastStrides(shape, operand []int64) []int {
	out := make([]int, len(shape))
	own := Strides(operand)
	skip := len(shape) - len(operand)
	for i, d := range operand {
		if d != 1 {
			out[skip+i] = own[i]
		}
	}
	return out
}

// Stride returns operand k's step along a row.
func (l *Loop) Stride(k int) int { return l.Strides[k][len(l.Shape)-1] }

// Cursor is the position of one row of a loop. off holds, per operand, the
// index of the row's first element relative to the operand's first.
type Cursor struct {
	Off [MaxOperands]int
	At  [MaxAxes]int
}

// Seek puts c on a row.
func (l *Loop) Seek(c *Cursor, row int) {
	c.Off = [MaxOperands]int{}
	for axis := len(l.Shape) - 2; axis >= 0; axis-- {
		d := l.Shape[axis]
		c.At[axis] = row % d
		row /= d
		for k := range l.Strides {
			c.Off[k] += c.At[axis] * l.Strides[k][axis]
		}
	}
}

// Next moves c to the following row.
func (l *Loop) Next(c *Cursor) {
	for axis := len(l.Shape) - 2; axis >= 0; axis-- {
		c.At[axis]++
		if c.At[axis] < l.Shape[axis] {
			for k := range l.Strides {
				c.Off[k] += l.Strides[k][axis]
			}
			return
		}
		c.At[axis] = 0
		for k := range l.Strides {
			c.Off[k] -= (l.Shape[axis] - 1) * l.Strides[k][axis]
		}
	}
}

// WindowRange returns the positions o in [0, n) for which o·stride - back lies
// in [0, size), as the range [lo, hi).
func WindowRange(size, n, stride, back int) (lo, hi int) {
	if back > 0 {
		lo = (back + stride - 1) / stride
	}
	if last := size - 1 + back; last >= 0 {
		hi = last/stride + 1
	}
	hi = min(hi, n)
	return min(lo, hi), hi
}
