package kernel

import "github.com/popefgen/popefgen/ipu/graph"

// blockedPool folds the windows of blocks of channels in the order of the
// kernels for planes: the rows under a window into one, then stretches of that.
type blockedPool struct {
	poolShape // of blocks; strip is in pixels
	fold      poolFold
	loops     *windowLoops
	lanes     int
	countPad  bool
	counts    []float32 // as of averagePool, for every lane
	task      blockedPoolTask
}

// newBlockedPool returns a kernel for blocks of x, nil if there is none: sums
// of whole planes are added in another order.
func newBlockedPool(op graph.Op, x, y graph.TensorType) Kernel {
	last := x.Rank() - 1
	lanes := int(x.Shape[last])
	if path == pathGo || lanes != path.lanes() || elements(y.Shape) == 0 {
		return nil
	}
	k := &blockedPool{lanes: lanes}
	in, out := x.Shape[:last], y.Shape[:last]
	switch o := op.(type) {
	case *graph.MaxPool:
		k.poolShape = newPoolShape(in, out, o.Kernel, o.Strides, o.Dilations, o.PadsBegin, o.PadsEnd)
		k.loops = pick(&wideMost, &narrowMost)
	case *graph.AveragePool:
		k.poolShape = newPoolShape(in, out, o.Kernel, o.Strides, o.Dilations, o.PadsBegin, o.PadsEnd)
		k.fold, k.loops, k.countPad = addWindow, pick(&wideSum, &narrowSum), o.CountIncludePad
		if k.global {
			return nil
		}
		a := &k.axes[len(k.axes)-1]
		k.counts = make([]float32, 0, a.out*lanes)
		for o := range a.out {
			lo, hi := a.taps(o)
			n := hi - lo
			if k.countPad {
				n = a.padded(o)
			}
			for range lanes {
				k.counts = append(k.counts, float32(n))
			}
		}
	default:
		return nil
	}
	a := &k.axes[len(k.axes)-1]
	k.strip = max(a.pad+a.in, (a.out-1)*a.stride+(a.kernel-1)*a.dilation+1)
	if k.strip*lanes > longestStrip || a.out > 0 && a.kernel > longestRow/lanes/a.out {
		return nil
	}
	return k
}

// blockedParts is into how many parts the rows of the output are cut, at most, and
// what one of them costs.
func (k *blockedPool) blockedParts() (most, cost int) {
	a := &k.axes[len(k.axes)-1]
	cost = k.window*a.in/a.kernel + a.kernel*a.out + a.out*min(a.stride, 2)*4 + 100
	return mostParts(k.planes*k.rows, cost), cost
}

// Scratch implements [Kernel].
func (k *blockedPool) Scratch() int {
	most, _ := k.blockedParts()
	return most * k.strip * k.lanes * 4
}

type blockedPoolTask struct {
	*blockedPool
	x, y, scratch []float32
	parts         int
}

// Run implements [Kernel].
func (k *blockedPool) Run(p Pool, in, out [][]byte, scratch []byte) error {
	t := &k.task
	_, cost := k.blockedParts()
	*t = blockedPoolTask{blockedPool: k, x: f32s(in[0]), y: f32s(out[0]), scratch: f32s(scratch)}
	t.parts = cutSlots(p, k.planes*k.rows, cost)
	p.Run(t, t.parts)
	*t = blockedPoolTask{}
	return nil
}

// Do implements [Task].
func (t *blockedPoolTask) Do(part int) {
	var w windowRows
	a := &t.axes[len(t.axes)-1]
	strip := t.scratch[part*t.strip*t.lanes:][:t.strip*t.lanes]
	fillWith(strip, t.fold.identity())
	for r, end := span(t.planes*t.rows, t.parts, part, 1); r < end; r++ {
		w.start(&t.poolShape, r%t.rows)
		rows := w.count
		if t.countPad {
			rows = w.padded
		}
		y := t.y[r*a.out*t.lanes:][:a.out*t.lanes]
		t.foldRows(strip[a.pad*t.lanes:][:a.in*t.lanes], t.x[r/t.rows*t.plane*t.lanes:], &w)
		t.slide(y, strip, a)
		if t.fold == addWindow {
			divideWindows(y, t.counts, rows)
		}
	}
}

// foldRows folds the rows of a plane of blocks under a window into one.
func (t *blockedPoolTask) foldRows(row, x []float32, w *windowRows) {
	inner, stride := 1, 0 // rows of the input that are stride elements apart
	if i := len(t.axes) - 2; i >= 0 {
		inner, stride = w.hi[i]-w.lo[i], t.axes[i].dilation*len(row)
	}
	if w.count == 0 {
		fillWith(row, t.fold.identity())
		return
	}
	at := w.offset() * t.lanes
	copy(row, x[at:])
	if inner > 1 {
		t.loops.rows(&row[0], &x[at+stride], len(row), inner-1, 4*stride)
	}
}

// slide folds stretches of the strip, a pixel of y each.
func (t *blockedPoolTask) slide(y, strip []float32, a *poolAxis) {
	pixel := 4 * t.lanes
	switch {
	case path == pathAVX512 && t.fold == addWindow:
		sumPixelsAVX512(&y[0], &strip[0], a.out, a.kernel, a.dilation*pixel, a.stride*pixel)
	case path == pathAVX512:
		mostPixelsAVX512(&y[0], &strip[0], a.out, a.kernel, a.dilation*pixel, a.stride*pixel)
	case t.fold == addWindow:
		sumPixelsAVX2(&y[0], &strip[0], a.out, a.kernel, a.dilation*pixel, a.stride*pixel)
	default:
		mostPixelsAVX2(&y[0], &strip[0], a.out, a.kernel, a.dilation*pixel, a.stride*pixel)
	}
}
