package nchwc

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/window"
	"github.com/popefgen/popefgen/ipu/graph"
)

// blockedPool folds the windows of a tensor in NCHWc in the order of the
// kernels for planes: the rows under a window into one, then stretches of that.
type blockedPool struct {
	window.PoolShape // of blocks; strip is in pixels
	fold             window.PoolFold
	loops            *window.WindowLoops
	lanes            int
	countPad         bool
	counts           []float32 // as of averagePool, for every lane
	task             blockedPoolTask
}

// newBlockedPool returns a kernel for x in NCHWc, nil if there is none: sums
// of whole planes are added in another order.
func newBlockedPool(op graph.Op, x, y graph.TensorType) tensor.Kernel {
	last := x.Rank() - 1
	lanes := int(x.Shape[last])
	if tensor.Path == tensor.PathGo || lanes != tensor.Path.Lanes() || tensor.Elements(y.Shape) == 0 {
		return nil
	}
	k := &blockedPool{lanes: lanes}
	in, out := x.Shape[:last], y.Shape[:last]
	switch o := op.(type) {
	case *graph.MaxPool:
		k.PoolShape = window.NewPoolShape(in, out, o.Kernel, o.Strides, o.Dilations, o.PadsBegin, o.PadsEnd)
		k.loops = vec.Pick(&window.WideMost, &window.NarrowMost)
	case *graph.AveragePool:
		k.PoolShape = window.NewPoolShape(in, out, o.Kernel, o.Strides, o.Dilations, o.PadsBegin, o.PadsEnd)
		k.fold, k.loops, k.countPad = window.AddWindow, vec.Pick(&window.WideSum, &window.NarrowSum), o.CountIncludePad
		if k.Global {
			return nil
		}
		a := &k.Axes[len(k.Axes)-1]
		k.counts = make([]float32, 0, a.Out*lanes)
		for o := range a.Out {
			lo, hi := a.Taps(o)
			n := hi - lo
			if k.countPad {
				n = a.Padded(o)
			}
			for range lanes {
				k.counts = append(k.counts, float32(n))
			}
		}
	default:
		return nil
	}
	a := &k.Axes[len(k.Axes)-1]
	k.Strip = max(a.Pad+a.In, (a.Out-1)*a.Stride+(a.Kernel-1)*a.Dilation+1)
	if k.Strip*lanes > window.LongestStrip || a.Out > 0 && a.Kernel > window.LongestRow/lanes/a.Out {
		return nil
	}
	return k
}

// blockedParts is into how many parts the rows of the output are cut, at most, and
// what one of them costs.
func (k *blockedPool) blockedParts() (most, cost int) {
	a := &k.Axes[len(k.Axes)-1]
	cost = k.Window*a.In/a.Kernel + a.Kernel*a.Out + a.Out*min(a.Stride, 2)*4 + 100
	return tensor.MostParts(k.Planes*k.Rows, cost), cost
}

// Scratch implements [Kernel].
func (k *blockedPool) Scratch() int {
	most, _ := k.blockedParts()
	return most * k.Strip * k.lanes * 4
}

type blockedPoolTask struct {
	*blockedPool
	x, y, scratch []float32
	parts         int
}

// Run implements [Kernel].
func (k *blockedPool) Run(p tensor.Pool, in, out [][]byte, scratch []byte) error {
	t := &k.task
	_, cost := k.blockedParts()
	*t = blockedPoolTask{blockedPool: k, x: tensor.F32s(in[0]), y: tensor.F32s(out[0]), scratch: tensor.F32s(scratch)}
	t.parts = tensor.CutSlots(p, k.Planes*k.Rows, cost)
	p.Run(t, t.parts)
	*t = blockedPoolTask{}
	return nil
}

// Do implements [Task].
func (t *blockedPoolTask) Do(part int) {
	var w window.WindowRows
	a := &t.Axes[len(t.Axes)-1]
	strip := t.scratch[part*t.Strip*t.lanes:][:t.Strip*t.lanes]
	vec.FillWith(strip, t.fold.Identity())
	for r, end := tensor.Span(t.Planes*t.Rows, t.parts, part, 1); r < end; r++ {
		w.Start(&t.PoolShape, r%t.Rows)
		rows := w.Count
		if t.countPad {
			rows = w.Padded
		}
		y := t.y[r*a.Out*t.lanes:][:a.Out*t.lanes]
		t.foldRows(strip[a.Pad*t.lanes:][:a.In*t.lanes], t.x[r/t.Rows*t.Plane*t.lanes:], &w)
		t.slide(y, strip, a)
		if t.fold == window.AddWindow {
			window.DivideWindows(y, t.counts, rows)
		}
	}
}

// foldRows folds the rows of a plane of blocks under a window into one.
func (t *blockedPoolTask) foldRows(row, x []float32, w *window.WindowRows) {
	inner, stride := 1, 0 // rows of the input that are stride elements apart
	if i := len(t.Axes) - 2; i >= 0 {
		inner, stride = w.Hi[i]-w.Lo[i], t.Axes[i].Dilation*len(row)
	}
	if w.Count == 0 {
		vec.FillWith(row, t.fold.Identity())
		return
	}
	at := w.Offset() * t.lanes
	copy(row, x[at:])
	if inner > 1 {
		t.loops.Rows(&row[0], &x[at+stride], len(row), inner-1, 4*stride)
	}
}

// slide folds stretches of the strip, a pixel of y each.
func (t *blockedPoolTask) slide(y, strip []float32, a *window.PoolAxis) {
	pixel := 4 * t.lanes
	switch {
	case tensor.Path == tensor.PathAVX512 && t.fold == window.AddWindow:
		sumPixelsAVX512(&y[0], &strip[0], a.Out, a.Kernel, a.Dilation*pixel, a.Stride*pixel)
	case tensor.Path == tensor.PathAVX512:
		mostPixelsAVX512(&y[0], &strip[0], a.Out, a.Kernel, a.Dilation*pixel, a.Stride*pixel)
	case t.fold == window.AddWindow:
		sumPixelsAVX2(&y[0], &strip[0], a.Out, a.Kernel, a.Dilation*pixel, a.Stride*pixel)
	default:
		mostPixelsAVX2(&y[0], &strip[0], a.Out, a.Kernel, a.Dilation*pixel, a.Stride*pixel)
	}
}
