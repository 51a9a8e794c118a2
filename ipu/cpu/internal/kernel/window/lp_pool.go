package window

import (
	"fmt"
	"math"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

func bindLpPool(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	o := op.(*graph.LpPool)
	s := NewPoolShape(in[0].Shape, out[0].Shape, o.Kernel, o.Strides, o.Dilations, o.PadsBegin, o.PadsEnd)
	switch in[0].DType {
	case graph.F32:
		return &lpPool[float32]{PoolShape: s, p: o.P}, nil
	case graph.F64:
		return &lpPool[float64]{PoolShape: s, p: o.P}, nil
	}
	return nil, fmt.Errorf("no kernel for %v", in[0])
}

// lpPool computes the p-norm of every window.
type lpPool[T tensor.Float] struct {
	PoolShape
	p     float64
	x, y  []T
	parts int
	pool  tensor.Pool
}

// Scratch implements [Kernel].
func (k *lpPool[T]) Scratch() int { return 0 }

// Run implements [Kernel].
func (k *lpPool[T]) Run(p tensor.Pool, in, out [][]byte, _ []byte) error {
	k.x, k.y = tensor.View[T](in[0]), tensor.View[T](out[0])
	if n := k.Planes * k.Rows; len(k.y) > 0 {
		k.parts, k.pool = tensor.Cut(p, n, k.Window*len(k.y)/n+1), p
		p.Run(k, k.parts)
	}
	k.x, k.y = nil, nil
	return nil
}

// Do implements [Task].
func (k *lpPool[T]) Do(part int) {
	var w WindowRows
	a, pace := &k.Axes[len(k.Axes)-1], tensor.Pace{Pool: k.pool}
	for r, end := tensor.Span(k.Planes*k.Rows, k.parts, part, 1); r < end; r++ {
		w.Start(&k.PoolShape, r%k.Rows)
		x, y := k.x[r/k.Rows*k.Plane:][:k.Plane], k.y[r*a.Out:][:a.Out]
		clear(y)
		for range w.Count {
			row := x[w.Offset():][:a.In]
			for tap, end := a.reached(); tap < end; tap++ {
				lo, hi := a.inside(tap)
				if pace.Ended(16 * (hi - lo)) {
					return
				}
				if lo < hi {
					k.add(y[lo:hi], row[lo*a.Stride-a.Pad+tap*a.Dilation:], a.Stride)
				}
			}
			w.Next()
		}
		switch k.p {
		case 1:
		case 2:
			for i, v := range y {
				y[i] = T(math.Sqrt(float64(v)))
			}
		default:
			for i, v := range y {
				y[i] = T(math.Pow(float64(v), 1/k.p))
			}
		}
	}
}

// add adds powers of every stride-th element of x to y.
func (k *lpPool[T]) add(y, x []T, stride int) {
	switch k.p {
	case 1:
		for i, at := 0, 0; i < len(y); i, at = i+1, at+stride {
			y[i] += max(x[at], -x[at])
		}
	case 2:
		for i, at := 0, 0; i < len(y); i, at = i+1, at+stride {
			y[i] += T(x[at] * x[at])
		}
	default:
		for i, at := 0, 0; i < len(y); i, at = i+1, at+stride {
			y[i] += T(math.Pow(math.Abs(float64(x[at])), k.p))
		}
	}
}

func bindMaxUnpool(_ graph.Op, in, _ []graph.TensorType) (tensor.Kernel, error) {
	switch in[0].DType.Size() {
	case 1:
		return maxUnpool[uint8]{}, nil
	case 2:
		return maxUnpool[uint16]{}, nil
	case 4:
		return maxUnpool[uint32]{}, nil
	case 8:
		return maxUnpool[uint64]{}, nil
	}
	return nil, fmt.Errorf("no kernel for %v", in[0])
}

// maxUnpool puts elements where indices say, into zeros.
type maxUnpool[T tensor.Unsigned] struct{}

// Scratch implements [Kernel].
func (maxUnpool[T]) Scratch() int { return 0 }

// Run implements [Kernel].
func (maxUnpool[T]) Run(_ tensor.Pool, in, out [][]byte, _ []byte) error {
	x, index, y := tensor.View[T](in[0]), tensor.View[int64](in[1]), tensor.View[T](out[0])
	clear(y)
	for i, at := range index {
		if at < 0 || at >= int64(len(y)) {
			return fmt.Errorf("index %d of element %d is out of range, want 0 to %d", at, i, len(y)-1)
		}
		y[at] = x[i]
	}
	return nil
}
