package reduce

import (
	"math"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/internal/lower"
)

// elements returns how many elements a tensor has.
func elements(t *onnx.Tensor) int64 {
	n := int64(1)
	for _, d := range t.Dims {
		n *= d
	}
	return n
}

// first returns the tensor with the first n elements of an axis.
func first(t *onnx.Tensor, axis int, n int64) *onnx.Tensor {
	to := *t
	to.Dims = append([]int64(nil), t.Dims...)
	to.Dims[axis] = n
	size := int64(t.Elem.DType().Size())
	outer := int64(1)
	for _, d := range t.Dims[:axis] {
		outer *= d
	}
	for _, d := range t.Dims[axis+1:] {
		size *= d
	}
	to.Data = make([]byte, 0, outer*n*size)
	for i := range outer {
		at := i * t.Dims[axis] * size
		to.Data = append(to.Data, t.Data[at:at+n*size]...)
	}
	return &to
}

// mapped returns the tensor with each element changed, nil if its type has no
// numbers here or nothing changes.
func mapped(t *onnx.Tensor, f func(float64) float64) *onnx.Tensor {
	dt := t.Elem.DType()
	if !dt.Valid() || math.IsNaN(graph.Number(dt, make([]byte, 8))) {
		return nil
	}
	to, size, changed := *t, dt.Size(), false
	to.Data = append([]byte(nil), t.Data...)
	for b := to.Data; len(b) >= size; b = b[size:] {
		x := graph.Number(dt, b)
		if y := f(x); y != x {
			copy(b, lower.EncodeFloat(dt, y))
			changed = true
		}
	}
	if !changed {
		return nil
	}
	return &to
}

// large is the smallest whole number that is not small.
const large = 128

// plainness says how plain the elements of a tensor are, see [Size].
func plainness(t *onnx.Tensor) int {
	dt := t.Elem.DType()
	if !dt.Valid() {
		return 3
	}
	size, worst := dt.Size(), 0
	ones := true
	for b := t.Data; len(b) >= size; b = b[size:] {
		x := graph.Number(dt, b)
		ones = ones && x == 1
		switch {
		case x == 0:
		case x == math.Trunc(x) && math.Abs(x) < large:
			worst = max(worst, 2)
		default:
			return 3
		}
	}
	if ones && worst > 0 {
		return 1
	}
	return worst
}

// round returns the whole number next to x; numbers that are large or none stay.
func round(x float64) float64 {
	if y := math.RoundToEven(x); math.Abs(y) < large {
		return y
	}
	return x
}
