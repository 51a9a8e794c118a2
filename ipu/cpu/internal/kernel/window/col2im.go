package window

import (
	"fmt"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

func bindCol2Im(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	o := op.(*graph.Col2Im)
	switch in[0].DType {
	case graph.F32:
		return newCol2Im[float32](o, out[0].Shape), nil
	case graph.F64:
		return newCol2Im[float64](o, out[0].Shape), nil
	case graph.I8, graph.U8:
		return newCol2Im[uint8](o, out[0].Shape), nil
	case graph.I16, graph.U16:
		return newCol2Im[uint16](o, out[0].Shape), nil
	case graph.I32, graph.U32:
		return newCol2Im[uint32](o, out[0].Shape), nil
	case graph.I64, graph.U64:
		return newCol2Im[uint64](o, out[0].Shape), nil
	}
	return nil, fmt.Errorf("no kernel for %v", in[0])
}

// col2im adds up columns of blocks to images.
type col2im[T tensor.Number] struct {
	axes   []PoolAxis // in: the image; out: blocks; kernel: a block
	planes int        // images by channels
	image  int        // elements of an image
	block  int        // elements of a block
	blocks int
	x, y   []T
	parts  int
}

func newCol2Im[T tensor.Number](o *graph.Col2Im, y []int64) *col2im[T] {
	k := &col2im[T]{planes: tensor.Elements(y[:2]), image: tensor.Elements(y[2:]), block: 1, blocks: 1}
	for i := range o.Image {
		a := PoolAxis{In: int(o.Image[i]), Kernel: int(o.Block[i]), Stride: int(o.Strides[i]), Dilation: int(o.Dilations[i]),
			Pad: int(o.PadsBegin[i]), PadEnd: int(o.PadsEnd[i])}
		a.Out = (a.In+a.Pad+a.PadEnd-(a.Kernel-1)*a.Dilation-1)/a.Stride + 1
		k.axes = append(k.axes, a)
		k.block *= a.Kernel
		k.blocks *= a.Out
	}
	return k
}

// Scratch implements [Kernel].
func (k *col2im[T]) Scratch() int { return 0 }

// Run implements [Kernel].
func (k *col2im[T]) Run(p tensor.Pool, in, out [][]byte, _ []byte) error {
	k.x, k.y = tensor.View[T](in[0]), tensor.View[T](out[0])
	k.parts = tensor.Cut(p, k.planes, k.block*k.blocks+k.image)
	p.Run(k, k.parts)
	k.x, k.y = nil, nil
	return nil
}

// Do implements [Task].
func (k *col2im[T]) Do(part int) {
	for i, end := tensor.Span(k.planes, k.parts, part, 1); i < end; i++ {
		y := k.y[i*k.image:][:k.image]
		clear(y)
		for e := range k.block {
			k.element(y, k.x[(i*k.block+e)*k.blocks:][:k.blocks], e)
		}
	}
}

// element adds element e of every block to an image.
func (k *col2im[T]) element(y, x []T, e int) {
	var lo, hi, at, base [tensor.MaxAxes]int
	last := len(k.axes) - 1
	for i := last; i >= 0; i-- {
		a := &k.axes[i]
		base[i] = e%a.Kernel*a.Dilation - a.Pad // of the first block, in the image
		lo[i], hi[i] = a.inside(e % a.Kernel)
		at[i] = lo[i]
		e /= a.Kernel
		if lo[i] >= hi[i] {
			return
		}
	}
	stride := k.axes[last].Stride
	for {
		from, to := 0, 0
		for i := range last {
			from = from*k.axes[i].Out + at[i]
			to = to*k.axes[i].In + base[i] + at[i]*k.axes[i].Stride
		}
		src := x[from*k.axes[last].Out+lo[last]:][:hi[last]-lo[last]]
		dst := y[to*k.axes[last].In+base[last]+lo[last]*stride:]
		for j, to := 0, 0; j < len(src); j, to = j+1, to+stride {
			dst[to] += src[j]
		}
		i := last - 1
		for ; i >= 0; i-- {
			if at[i]++; at[i] < hi[i] {
				break
			}
			at[i] = lo[i]
		}
		if i < 0 {
			return
		}
	}
}
