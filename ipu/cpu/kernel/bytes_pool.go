package kernel

import (
	"math"

	"github.com/popefgen/popefgen/ipu/graph"
)

// bytesMostArgs are the arguments of the loop that takes the greatest of the
// pixels of a window, 64 bytes at a time.
type bytesMostArgs struct {
	out, x      *byte
	chunks      int
	mask        uint64 // of the last chunk
	lines, line int
	taps, tap   int
}

// pixelsMaxPool takes the greatest of windows of pixels.
type pixelsMaxPool struct {
	axes          [2]poolAxis
	images, pixel int
	mask          uint64
	chunks        int
	x, y          []byte // of the run in progress
	parts         int
}

func bindPixelsMaxPool(op graph.Op, in, out []graph.TensorType) (Kernel, error) {
	o := op.(*PixelsMaxPool)
	x, y := in[0].Shape, out[0].Shape
	n := len(x) - 2
	k := &pixelsMaxPool{images: int(x[0]), pixel: int(x[n+1]), mask: math.MaxUint64}
	k.axes[0] = poolAxis{in: 1, out: 1, kernel: 1, stride: 1, dilation: 1}
	for i := range n {
		k.axes[2-n+i] = poolAxis{int(x[1+i]), int(y[1+i]), int(o.Kernel[i]), int(o.Strides[i]), int(o.Dilations[i]), int(o.PadsBegin[i]), int(o.PadsEnd[i])}
	}
	k.chunks = (k.pixel + 63) / 64
	k.mask >>= 64*k.chunks - k.pixel
	return k, nil
}

// Scratch implements [Kernel].
func (k *pixelsMaxPool) Scratch() int { return 0 }

// Run implements [Kernel].
func (k *pixelsMaxPool) Run(p Pool, in, out [][]byte, _ []byte) error {
	if len(out[0]) == 0 {
		return nil
	}
	k.x, k.y = in[0], out[0]
	window := k.axes[0].kernel * k.axes[1].kernel
	k.parts = cut(p, k.images*k.axes[0].out, k.axes[1].out*(4*k.chunks*window+20))
	p.Run(k, k.parts)
	k.x, k.y = nil, nil
	return nil
}

// Do implements [Task].
func (k *pixelsMaxPool) Do(part int) {
	a, b := &k.axes[0], &k.axes[1]
	lo, hi := span(k.images*a.out, k.parts, part, 1)
	line := b.in * k.pixel
	for i := lo; i < hi; i++ {
		image, y := i/a.out, i%a.out
		first, end := a.taps(y)
		top := (image*a.in + y*a.stride - a.pad + first*a.dilation) * line
		for x := range b.out {
			to := k.y[(i*b.out+x)*k.pixel:][:k.pixel]
			from, last := b.taps(x)
			if first >= end || from >= last {
				clear(to) // the least number
				continue
			}
			bytesMost(&bytesMostArgs{
				out: &to[0], x: &k.x[top+(x*b.stride-b.pad+from*b.dilation)*k.pixel], chunks: k.chunks, mask: k.mask,
				lines: end - first, line: a.dilation * line, taps: last - from, tap: b.dilation * k.pixel,
			})
		}
	}
}
