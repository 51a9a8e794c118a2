package graph

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// MaxRank is the greatest number of dimensions a tensor may have.
const MaxRank = 32

// MaxTensorBytes is the limit of a tensor: every tensor is smaller. It keeps products
// of dimensions far from the ends of an int64.
const MaxTensorBytes = 1 << 40

// Elements returns the number of elements, 1 for a scalar. It is -1 for a
// shape that [TensorType.Check] refuses for a dimension below zero or for its
// size.
func (t TensorType) Elements() int64 {
	n, empty := int64(1), false
	for _, d := range t.Shape {
		switch {
		case d < 0:
			return -1
		case d == 0:
			empty = true
		case d > MaxTensorBytes/n:
			return -1
		default:
			n *= d
		}
	}
	if empty {
		return 0
	}
	return n
}

// Bytes returns the bytes of memory a tensor of this type takes, or -1 where
// [TensorType.Elements] is -1.
func (t TensorType) Bytes() int64 {
	n := t.Elements()
	if n < 0 {
		return -1
	}
	return n * int64(t.DType.Size())
}

// Rank returns the number of dimensions.
func (t TensorType) Rank() int { return len(t.Shape) }

// Equal reports whether both types have the same elements and shape.
func (t TensorType) Equal(u TensorType) bool {
	return t.DType == u.DType && slices.Equal(t.Shape, u.Shape)
}

// String returns the type as in "f32[4,10]"; a scalar is "f32[]".
func (t TensorType) String() string {
	return t.DType.String() + ShapeString(t.Shape)
}

// ShapeString returns a shape as in "[4,10]".
func ShapeString(shape []int64) string {
	var b strings.Builder
	b.WriteByte('[')
	for i, d := range shape {
		if i > 0 {
			b.WriteByte(',')
		}
		if i == MaxRank {
			b.WriteString("…")
			break
		}
		b.WriteString(strconv.FormatInt(d, 10))
	}
	b.WriteByte(']')
	return b.String()
}

// Check reports what makes t unusable: an unknown element type, a rank above
// [MaxRank], a dimension below zero, or a size of [MaxTensorBytes] or more. A
// zero dimension counts as one here, so that strides stay within bounds too.
func (t TensorType) Check() error {
	if !t.DType.Valid() {
		return fmt.Errorf("element type %v is not a type of the portable executable", t.DType)
	}
	if len(t.Shape) > MaxRank {
		return fmt.Errorf("%v has %d dimensions, want at most %d", t, len(t.Shape), MaxRank)
	}
	n := int64(t.DType.Size())
	for i, d := range t.Shape {
		if d < 0 {
			return fmt.Errorf("%v: dimension %d is %d, want 0 or more", t, i, d)
		}
		if d == 0 {
			continue
		}
		if d > (MaxTensorBytes-1)/n {
			return fmt.Errorf("%v is too big: its dimensions make 2^40 bytes or more", t)
		}
		n *= d
	}
	return nil
}

// Broadcast returns the shape that numpy's rules give for operands of the
// given shapes: they are aligned at their last axes, and an axis of 1 is
// stretched to the others' size. Without operands it is a scalar.
func Broadcast(shapes ...[]int64) ([]int64, error) {
	rank := 0
	for _, s := range shapes {
		rank = max(rank, len(s))
	}
	out := make([]int64, rank)
	for i := range out {
		out[i] = 1
	}
	for _, s := range shapes {
		for i, d := range s {
			switch o := &out[rank-len(s)+i]; {
			case d == *o || d == 1:
			case *o == 1:
				*o = d
			default:
				return nil, fmt.Errorf("shapes %s do not broadcast: axis %d from the end is %d and %d",
					shapeList(shapes), len(s)-i, *o, d)
			}
		}
	}
	return out, nil
}

func shapeList(shapes [][]int64) string {
	var b strings.Builder
	for i, s := range shapes {
		switch {
		case i == 0:
		case i == len(shapes)-1:
			b.WriteString(" and ")
		default:
			b.WriteString(", ")
		}
		b.WriteString(ShapeString(s))
	}
	return b.String()
}

// BroadcastsTo reports whether shape can be stretched to exactly to.
func BroadcastsTo(shape, to []int64) bool {
	if len(shape) > len(to) {
		return false
	}
	for i, d := range shape {
		if d != 1 && d != to[len(to)-len(shape)+i] {
			return false
		}
	}
	return true
}

// satMul multiplies two numbers that are not negative and stays at the
// greatest int64 instead of overflowing.
func satMul(a, b int64) int64 {
	if a == 0 || b == 0 {
		return 0
	}
	if a > math.MaxInt64/b {
		return math.MaxInt64
	}
	return a * b
}

// satAdd adds numbers that are not negative and stays at the greatest int64
// instead of overflowing.
func satAdd(a ...int64) int64 {
	var n int64
	for _, v := range a {
		if v > math.MaxInt64-n {
			return math.MaxInt64
		}
		n += v
	}
	return n
}
