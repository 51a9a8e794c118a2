package move

import (
	"fmt"
	"math"
	"strconv"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// assertion fails unless its operand is what it wants.
type assertion struct {
	want byte
	err  *ipu.AssertionError
}

func bindAssert(op graph.Op, _, _ []graph.TensorType) (tensor.Kernel, error) {
	o := op.(*graph.Assert)
	k := &assertion{err: &ipu.AssertionError{Message: o.Message}}
	if o.Want {
		k.want = 1
	}
	return k, nil
}

// Scratch returns 0.
func (*assertion) Scratch() int { return 0 }

// Run implements [Kernel].
func (k *assertion) Run(_ tensor.Pool, in, _ [][]byte, _ []byte) error {
	if (in[0][0] != 0) != (k.want != 0) {
		return k.err
	}
	return nil
}

// labels fails if an element is no class.
type labels[T int32 | int64 | float32 | float64] struct {
	op    graph.AssertLabels
	shape []int64
	last  T // class
}

func bindAssertLabels(op graph.Op, in, _ []graph.TensorType) (tensor.Kernel, error) {
	o := *op.(*graph.AssertLabels)
	switch in[0].DType {
	case graph.I32:
		return &labels[int32]{o, in[0].Shape, int32(min(o.Classes-1, math.MaxInt32))}, nil
	case graph.F32:
		return &labels[float32]{o, in[0].Shape, float32(o.Classes - 1)}, nil
	case graph.F64:
		return &labels[float64]{o, in[0].Shape, float64(o.Classes - 1)}, nil
	}
	return &labels[int64]{o, in[0].Shape, o.Classes - 1}, nil
}

// Scratch returns 0.
func (*labels[T]) Scratch() int { return 0 }

// Run implements [Kernel].
func (k *labels[T]) Run(_ tensor.Pool, in, _ [][]byte, _ []byte) error {
	for i, v := range tensor.View[T](in[0]) {
		if !(v >= 0 && v <= k.last) && !(k.op.Ignores && int64(v) == k.op.Ignore) { // what is no number is neither
			return badLabel(&k.op, k.shape, i, v)
		}
	}
	return nil
}

// badLabel is the error of element i of labels of a shape, which is v.
func badLabel(op *graph.AssertLabels, shape []int64, i int, v any) error {
	text := fmt.Sprintf("label %s is %v, want 0 to %d", place(shape, i), v, op.Classes-1)
	if op.Ignores {
		text += fmt.Sprintf(", or %d for one that does not count", op.Ignore)
	}
	return &ipu.AssertionError{Message: text + ": check the labels that are fed"}
}

// place returns the number of an element in a vector, and its index in a tensor of more dimensions, whose first is the sample.
func place(shape []int64, i int) string {
	if len(shape) < 2 {
		return strconv.Itoa(i)
	}
	text := "]"
	for d := len(shape) - 1; d >= 0; d-- {
		n := int(shape[d])
		text = strconv.Itoa(i%n) + text
		if i /= n; d > 0 {
			text = "," + text
		}
	}
	return "[" + text
}
