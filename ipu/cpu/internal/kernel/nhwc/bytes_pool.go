package nhwc

import (
	"math"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/window"
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

// nhwcMaxPool is the kernel of a [MaxPool].
type nhwcMaxPool struct {
	axes          [2]window.PoolAxis
	images, pixel int
	mask          uint64
	chunks        int
	x, y          []byte // of the run in progress
	parts         int
}

func bindMaxPool(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	o := op.(*MaxPool)
	x, y := in[0].Shape, out[0].Shape
	n := len(x) - 2
	k := &nhwcMaxPool{images: int(x[0]), pixel: int(x[n+1]), mask: math.MaxUint64}
	k.axes[0] = window.PoolAxis{In: 1, Out: 1, Kernel: 1, Stride: 1, Dilation: 1}
	for i := range n {
		k.axes[2-n+i] = window.PoolAxis{In: int(x[1+i]), Out: int(y[1+i]), Kernel: int(o.Kernel[i]), Stride: int(o.Strides[i]), Dilation: int(o.Dilations[i]), Pad: int(o.PadsBegin[i]), PadEnd: int(o.PadsEnd[i])}
	}
	k.chunks = (k.pixel + 63) / 64
	k.mask >>= 64*k.chunks - k.pixel
	return k, nil
}

// Scratch implements [Kernel].
func (k *nhwcMaxPool) Scratch() int { return 0 }

// Run implements [Kernel].
func (k *nhwcMaxPool) Run(p tensor.Pool, in, out [][]byte, _ []byte) error {
	if len(out[0]) == 0 {
		return nil
	}
	k.x, k.y = in[0], out[0]
	window := k.axes[0].Kernel * k.axes[1].Kernel
	k.parts = tensor.Cut(p, k.images*k.axes[0].Out, k.axes[1].Out*(4*k.chunks*window+20))
	p.Run(k, k.parts)
	k.x, k.y = nil, nil
	return nil
}

// Do implements [Task].
func (k *nhwcMaxPool) Do(part int) {
	a, b := &k.axes[0], &k.axes[1]
	lo, hi := tensor.Span(k.images*a.Out, k.parts, part, 1)
	line := b.In * k.pixel
	for i := lo; i < hi; i++ {
		image, y := i/a.Out, i%a.Out
		first, end := a.Taps(y)
		top := (image*a.In + y*a.Stride - a.Pad + first*a.Dilation) * line
		for x := range b.Out {
			to := k.y[(i*b.Out+x)*k.pixel:][:k.pixel]
			from, last := b.Taps(x)
			if first >= end || from >= last {
				clear(to) // the least number
				continue
			}
			bytesMost(&bytesMostArgs{
				out: &to[0], x: &k.x[top+(x*b.Stride-b.Pad+from*b.Dilation)*k.pixel], chunks: k.chunks, mask: k.mask,
				lines: end - first, line: a.Dilation * line, taps: last - from, tap: b.Dilation * k.pixel,
			})
		}
	}
}
