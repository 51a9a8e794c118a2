package kernel

import (
	"fmt"

	"github.com/popefgen/popefgen/ipu/graph"
)

func bindCol2Im(op graph.Op, in, out []graph.TensorType) (Kernel, error) {
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
type col2im[T number] struct {
	axes   []poolAxis // in: the image; out: blocks; kernel: a block
	planes int        // images by channels
	image  int        // elements of an image
	block  int        // elements of a block
	blocks int
	x, y   []T
	parts  int
}

func newCol2Im[T number](o *graph.Col2Im, y []int64) *col2im[T] {
	k := &col2im[T]{planes: elements(y[:2]), image: elements(y[2:]), block: 1, blocks: 1}
	for i := range o.Image {
		a := poolAxis{in: int(o.Image[i]), kernel: int(o.Block[i]), stride: int(o.Strides[i]), dilation: int(o.Dilations[i]),
			pad: int(o.PadsBegin[i]), padEnd: int(o.PadsEnd[i])}
		a.out = (a.in+a.pad+a.padEnd-(a.kernel-1)*a.dilation-1)/a.stride + 1
		k.axes = append(k.axes, a)
		k.block *= a.kernel
		k.blocks *= a.out
	}
	return k
}

// Scratch implements [Kernel].
func (k *col2im[T]) Scratch() int { return 0 }

// Run implements [Kernel].
func (k *col2im[T]) Run(p Pool, in, out [][]byte, _ []byte) error {
	k.x, k.y = view[T](in[0]), view[T](out[0])
	k.parts = cut(p, k.planes, k.block*k.blocks+k.image)
	p.Run(k, k.parts)
	k.x, k.y = nil, nil
	return nil
}

// Do implements [Task].
func (k *col2im[T]) Do(part int) {
	for i, end := span(k.planes, k.parts, part, 1); i < end; i++ {
		y := k.y[i*k.image:][:k.image]
		clear(y)
		for e := range k.block {
			k.element(y, k.x[(i*k.block+e)*k.blocks:][:k.blocks], e)
		}
	}
}

// element adds element e of every block to an image.
func (k *col2im[T]) element(y, x []T, e int) {
	var lo, hi, at, base [maxAxes]int
	last := len(k.axes) - 1
	for i := last; i >= 0; i-- {
		a := &k.axes[i]
		base[i] = e%a.kernel*a.dilation - a.pad // of the first block, in the image
		lo[i], hi[i] = a.inside(e % a.kernel)
		at[i] = lo[i]
		e /= a.kernel
		if lo[i] >= hi[i] {
			return
		}
	}
	stride := k.axes[last].stride
	for {
		from, to := 0, 0
		for i := range last {
			from = from*k.axes[i].out + at[i]
			to = to*k.axes[i].in + base[i] + at[i]*k.axes[i].stride
		}
		src := x[from*k.axes[last].out+lo[last]:][:hi[last]-lo[last]]
		dst := y[to*k.axes[last].in+base[last]+lo[last]*stride:]
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
