package window

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
)

// windowLoop folds elements that lie stride bytes apart.
type windowLoop func(dst, x *float32, n, taps, stride int)

// WindowLoops are the loops of one kind of pooling.
type WindowLoops struct {
	Rows   windowLoop    // folds rows into dst
	slides [2]windowLoop // fold stretches that begin at every and at every second element
}

// The loops for AVX-512 (Wide) and AVX2 (Narrow), for maxima and sums.
var (
	WideMost   = WindowLoops{mostRowsAVX512, [2]windowLoop{mostSlideAVX512, mostSlide2AVX512}}
	NarrowMost = WindowLoops{mostRowsAVX2, [2]windowLoop{mostSlideAVX2, mostSlide2AVX2}}
	WideSum    = WindowLoops{sumRowsAVX512, [2]windowLoop{sumSlideAVX512, sumSlide2AVX512}}
	NarrowSum  = WindowLoops{sumRowsAVX2, [2]windowLoop{sumSlideAVX2, sumSlide2AVX2}}
)

// foldWindows folds the windows of an output row, to, of a plane, from, with
// SIMD instructions; strip is as long as s.strip. It reports whether it can.
func foldWindows[T tensor.Number](s *PoolShape, fold PoolFold, to, from []T, strip []float32, w *WindowRows) bool {
	if !s.vectors {
		return false
	}
	y, x := tensor.AsFloat32(to), tensor.AsFloat32(from)
	l := vec.Pick(&WideMost, &NarrowMost)
	if fold == AddWindow {
		l = vec.Pick(&WideSum, &NarrowSum)
	}
	if s.Global && len(x) <= vec.SumStretch {
		if fold == AddWindow {
			y[0] = vec.LoopSum(&x[0], len(x))
		} else {
			y[0] = vec.LoopMost(&x[0], len(x))
		}
		return true
	}
	a := &s.Axes[len(s.Axes)-1]
	row := strip[a.Pad:][:a.In]
	inner, stride := 1, 0 // rows of the input that are stride elements apart
	if i := len(s.Axes) - 2; i >= 0 {
		inner, stride = w.Hi[i]-w.Lo[i], s.Axes[i].Dilation*a.In
	}
	for done := 0; done < w.Count; done += inner {
		at, rows := w.Offset(), inner
		if done == 0 {
			copy(row, x[at:])
			at, rows = at+stride, inner-1
		}
		if rows > 0 {
			_ = x[at+(rows-1)*stride+a.In-1]
			l.Rows(&row[0], &x[at], a.In, rows, 4*stride)
		}
		for range inner {
			w.Next()
		}
	}
	if w.Count == 0 {
		vec.FillWith(row, fold.Identity())
	}
	if a.Stride <= len(l.slides) {
		l.slides[a.Stride-1](&y[0], &strip[0], len(y), a.Kernel, 4*a.Dilation)
		return true
	}
	for o := range y {
		v := strip[o*a.Stride]
		for k := 1; k < a.Kernel; k++ {
			if u := strip[o*a.Stride+k*a.Dilation]; fold == AddWindow {
				v += u
			} else {
				v = max(v, u)
			}
		}
		y[o] = v
	}
	return true
}

// DivideWindows divides x by the counts of the columns, each times rows,
// with SIMD instructions.
func DivideWindows[T tensor.Float](x, counts []T, rows int) {
	y, n := tensor.AsFloat32(x), tensor.AsFloat32(counts)[:len(x)]
	if tensor.Path == tensor.PathAVX512 {
		divideScaledAVX512(&y[0], &y[0], &n[0], len(y), float32(rows))
	} else {
		divideScaledAVX2(&y[0], &y[0], &n[0], len(y), float32(rows))
	}
}
