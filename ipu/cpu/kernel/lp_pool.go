package kernel

import (
	"fmt"
	"math"

	"github.com/popefgen/popefgen/ipu/graph"
)

func bindLpPool(op graph.Op, in, out []graph.TensorType) (Kernel, error) {
	o := op.(*graph.LpPool)
	s := newPoolShape(in[0].Shape, out[0].Shape, o.Kernel, o.Strides, o.Dilations, o.PadsBegin, o.PadsEnd)
	switch in[0].DType {
	case graph.F32:
		return &lpPool[float32]{poolShape: s, p: o.P}, nil
	case graph.F64:
		return &lpPool[float64]{poolShape: s, p: o.P}, nil
	}
	return nil, fmt.Errorf("no kernel for %v", in[0])
}

// lpPool computes the p-norm of every window.
type lpPool[T float] struct {
	poolShape
	p     float64
	x, y  []T
	parts int
	pool  Pool
}

// Scratch implements [Kernel].
func (k *lpPool[T]) Scratch() int { return 0 }

// Run implements [Kernel].
func (k *lpPool[T]) Run(p Pool, in, out [][]byte, _ []byte) error {
	k.x, k.y = view[T](in[0]), view[T](out[0])
	if n := k.planes * k.rows; len(k.y) > 0 {
		k.parts, k.pool = cut(p, n, k.window*len(k.y)/n+1), p
		p.Run(k, k.parts)
	}
	k.x, k.y = nil, nil
	return nil
}

// Do implements [Task].
func (k *lpPool[T]) Do(part int) {
	var w windowRows
	a, pace := &k.axes[len(k.axes)-1], pace{pool: k.pool}
	for r, end := span(k.planes*k.rows, k.parts, part, 1); r < end; r++ {
		w.start(&k.poolShape, r%k.rows)
		x, y := k.x[r/k.rows*k.plane:][:k.plane], k.y[r*a.out:][:a.out]
		clear(y)
		for range w.count {
			row := x[w.offset():][:a.in]
			for tap, end := a.reached(); tap < end; tap++ {
				lo, hi := a.inside(tap)
				if pace.ended(16 * (hi - lo)) {
					return
				}
				if lo < hi {
					k.add(y[lo:hi], row[lo*a.stride-a.pad+tap*a.dilation:], a.stride)
				}
			}
			w.next()
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

func bindMaxUnpool(_ graph.Op, in, _ []graph.TensorType) (Kernel, error) {
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
type maxUnpool[T unsigned] struct{}

// Scratch implements [Kernel].
func (maxUnpool[T]) Scratch() int { return 0 }

// Run implements [Kernel].
func (maxUnpool[T]) Run(_ Pool, in, out [][]byte, _ []byte) error {
	x, index, y := view[T](in[0]), view[int64](in[1]), view[T](out[0])
	clear(y)
	for i, at := range index {
		if at < 0 || at >= int64(len(y)) {
			return fmt.Errorf("index %d of element %d is out of range, want 0 to %d", at, i, len(y)-1)
		}
		y[at] = x[i]
	}
	return nil
}
