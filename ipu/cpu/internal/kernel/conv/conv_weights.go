package conv

import (
	"fmt"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

func bindConvWeightGradient(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	o := op.(*graph.ConvWeightGradient)
	x, dy := in[0].Shape, in[1].Shape
	s := ConvShape{
		Batch: int(x[0]), Group: int(o.Group), Channels: int(x[1] / o.Group), Maps: int(dy[1] / o.Group),
		In: [3]int{1, 1, 1}, Out: [3]int{1, 1, 1}, Kernel: [3]int{1, 1, 1},
		Stride: [3]int{1, 1, 1}, Dilation: [3]int{1, 1, 1},
	}
	skip := 5 - len(x)
	for i := range len(x) - 2 {
		s.In[skip+i], s.Out[skip+i], s.Kernel[skip+i] = int(x[2+i]), int(dy[2+i]), int(o.Kernel[i])
		s.Stride[skip+i], s.Dilation[skip+i], s.Pad[skip+i] = int(o.Strides[i]), int(o.Dilations[i]), int(o.PadsBegin[i])
	}
	switch in[0].DType {
	case graph.F32:
		if k := newVectorConvWeights(s); k != nil {
			return k, nil
		}
		return &convWeights[float32]{ConvShape: s}, nil
	case graph.F64:
		return &convWeights[float64]{ConvShape: s}, nil
	}
	return nil, fmt.Errorf("no kernel for %v with gradients %v", in[0], in[1])
}

// convWeights computes the gradient of a convolution's weights one after the other: each adds up, row by row, the products
// of the result's gradient with the elements of the operand that the weight was multiplied with.
type convWeights[T tensor.Float] struct {
	ConvShape
	task convWeightsTask[T]
}

// Scratch implements [Kernel].
func (*convWeights[T]) Scratch() int { return 0 }

// convWeightsTask is one run. The units of work are the weights between one channel and one output channel.
type convWeightsTask[T tensor.Float] struct {
	*convWeights[T]
	x, dy, dw, db []T
	units, parts  int
	pool          tensor.Pool
}

// Run implements [Kernel].
func (k *convWeights[T]) Run(p tensor.Pool, in, out [][]byte, _ []byte) error {
	t := &k.task
	*t = convWeightsTask[T]{convWeights: k, x: tensor.View[T](in[0]), dy: tensor.View[T](in[1]), dw: tensor.View[T](out[0]), db: tensor.View[T](tensor.Memory(out, 1)), pool: p}
	t.units = k.Group * k.Maps * k.Channels
	t.parts = tensor.Cut(p, t.units, k.Batch*Product3(k.Out)*Product3(k.Kernel)+1)
	if t.parts > 0 {
		p.Run(t, t.parts)
	}
	addMaps(&k.ConvShape, t.db, t.dy)
	*t = convWeightsTask[T]{}
	return nil
}

// addMaps sets db, if it is wanted, to the sums of the output channels of dy.
func addMaps[T tensor.Float](s *ConvShape, db, dy []T) {
	plane, maps := Product3(s.Out), s.Group*s.Maps
	for m := range db {
		sum := 0.0
		for n := range s.Batch {
			row := T(0)
			for _, v := range dy[(n*maps+m)*plane:][:plane] {
				row += v
			}
			sum += float64(row)
		}
		db[m] = T(sum)
	}
}

// Do implements [Task].
func (t *convWeightsTask[T]) Do(part int) {
	window := Product3(t.Kernel)
	pace := tensor.Pace{Pool: t.pool}
	for unit, end := tensor.Span(t.units, t.parts, part, 1); unit < end; unit++ {
		m, c := unit/t.Channels, unit%t.Channels
		for k := range window {
			if pace.Ended(t.Batch * Product3(t.Out)) {
				return
			}
			t.dw[unit*window+k] = t.weight(m, m/t.Maps*t.Channels+c, k)
		}
	}
}

// weight returns the gradient of element k of the kernel between channel c and output channel m, of all groups.
func (t *convWeightsTask[T]) weight(m, c, k int) T {
	kx, ky, kz := k%t.Kernel[2], k/t.Kernel[2]%t.Kernel[1], k/(t.Kernel[2]*t.Kernel[1])
	lo, hi := t.Inside(2, kx)
	y0, y1 := t.Inside(1, ky)
	z0, z1 := t.Inside(0, kz)
	in, out := Product3(t.In), Product3(t.Out)
	sum := 0.0
	for n := range t.Batch {
		x, dy := t.x[(n*t.Group*t.Channels+c)*in:][:in], t.dy[(n*t.Group*t.Maps+m)*out:][:out]
		for oz := z0; oz < z1; oz++ {
			iz := oz*t.Stride[0] - t.Pad[0] + kz*t.Dilation[0]
			for oy := y0; oy < y1; oy++ {
				iy := oy*t.Stride[1] - t.Pad[1] + ky*t.Dilation[1]
				row := T(0)
				at := (iz*t.In[1]+iy)*t.In[2] + lo*t.Stride[2] - t.Pad[2] + kx*t.Dilation[2]
				for _, v := range dy[(oz*t.Out[1]+oy)*t.Out[2]:][lo:max(lo, hi)] {
					row += T(v * x[at])
					at += t.Stride[2]
				}
				sum += float64(row)
			}
		}
	}
	return T(sum)
}
