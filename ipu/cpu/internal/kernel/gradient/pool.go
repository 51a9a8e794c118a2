package gradient

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/window"
	"github.com/popefgen/popefgen/ipu/graph"
)

// pool goes back through maxima and means of windows, plane by plane. The gradient of a maximum goes to the first element in row-major
// order that is as large; NaN is the largest. The maxima are found again, which is cheaper than to store and read where they
// were.
type pool[T tensor.Float] struct {
	shape    window.PoolShape
	mean     bool
	countPad bool // the padding counts in means
	pairs    bool // windows of 2 by 2 elements that do not overlap, on two axes
	outs     int  // windows in a plane
	task     poolTask[T]
}

func newPool[T tensor.Float](o *graph.Gradient, in []graph.TensorType) *pool[T] {
	k := &pool[T]{shape: window.NewPoolShape(in[1].Shape, in[0].Shape, o.Kernel, o.Strides, o.Dilations, o.PadsBegin, o.PadsEnd),
		mean: o.Of == "AveragePool", countPad: o.CountIncludePad, outs: tensor.Elements(in[0].Shape[2:])}
	k.pairs = !k.mean && len(k.shape.Axes) == 2
	for _, a := range k.shape.Axes {
		k.pairs = k.pairs && a.Kernel == 2 && a.Stride == 2 && a.Dilation == 1 && a.Pad == 0 && 2*a.Out <= a.In
	}
	return k
}

// Scratch implements [tensor.Kernel].
func (k *pool[T]) Scratch() int { return 0 }

// Run implements [tensor.Kernel].
func (k *pool[T]) Run(p tensor.Pool, in, out [][]byte, _ []byte) error {
	t := &k.task
	*t = poolTask[T]{pool: k, dy: tensor.View[T](in[0]), x: tensor.View[T](in[1]), dx: tensor.View[T](out[0]), workers: p}
	if len(t.dx) > 0 {
		cost := 2*k.outs*min(k.shape.Window, k.shape.Plane) + k.shape.Plane
		if k.pairs {
			cost = k.shape.Plane
		}
		t.parts = tensor.Cut(p, k.shape.Planes, cost)
		p.Run(t, t.parts)
	}
	*t = poolTask[T]{}
	return nil
}

type poolTask[T tensor.Float] struct {
	*pool[T]
	dy, x, dx []T
	parts     int
	workers   tensor.Pool
}

// Do implements [tensor.Task].
func (t *poolTask[T]) Do(part int) {
	s := &t.shape
	pace := tensor.Pace{Pool: t.workers}
	for i, end := tensor.Span(s.Planes, t.parts, part, 1); i < end; i++ {
		dy, x, dx := t.dy[i*t.outs:][:t.outs], t.x[i*s.Plane:][:s.Plane], t.dx[i*s.Plane:][:s.Plane]
		if t.pairs {
			if 4*t.outs < s.Plane {
				clear(dx) // of what is in no window
			}
			if backPairs(dx, x, dy, &s.Axes[0], &s.Axes[1]) {
				continue
			}
		}
		if clear(dx); !t.plane(dy, x, dx, &pace) {
			return
		}
	}
}

// plane adds up the gradients of a plane, which is zeros. It reports whether the run has not ended.
func (t *poolTask[T]) plane(dy, x, dx []T, pace *tensor.Pace) bool {
	var rows window.WindowRows
	a := &t.shape.Axes[len(t.shape.Axes)-1]
	for r := range t.shape.Rows {
		rows.Start(&t.shape, r)
		across := rows.Count
		if t.countPad {
			across = rows.Padded
		}
		for o, d := range dy[r*a.Out:][:a.Out] {
			lo, hi := a.Taps(o)
			if pace.Ended(rows.Count * (hi - lo)) {
				return false
			}
			w := rows
			first := o*a.Stride - a.Pad + lo*a.Dilation
			if t.mean {
				count := hi - lo
				if t.countPad {
					count = a.Padded(o)
				}
				d /= T(across * count)
				for range w.Count {
					for at, k := w.Offset()+first, lo; k < hi; k, at = k+1, at+a.Dilation {
						dx[at] += d
					}
					w.Next()
				}
				continue
			}
			best := -1
			var most T
			for range w.Count {
				for at, k := w.Offset()+first, lo; k < hi; k, at = k+1, at+a.Dilation {
					if v := x[at]; best < 0 || v > most || v != v && most == most {
						best, most = at, v
					}
				}
				w.Next()
			}
			if best >= 0 {
				dx[best] += d
			}
		}
	}
	return true
}
