package reduce

import (
	"fmt"
	"math"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
	"github.com/popefgen/popefgen/ipu/graph"
)

func bindLayerNorm(op graph.Op, in, _ []graph.TensorType) (tensor.Kernel, error) {
	o := op.(*graph.LayerNorm)
	switch in[0].DType {
	case graph.F32:
		return newLayerNorm[float32](o, in), nil
	case graph.F64:
		return newLayerNorm[float64](o, in), nil
	}
	return nil, fmt.Errorf("no kernel for %v", in[0])
}

// layerNorm computes (x-mean)/√(variance+ε)·scale + bias over rows, the
// elements from an axis to the last.
type layerNorm[T tensor.Float] struct {
	epsilon     float64
	rows, row   int
	scale, bias layerOperand
	task        layerNormTask[T]
}

// layerOperand is how the scale or bias lies along x. All its axes are
// repeated or walked with strides.
type layerOperand struct {
	direct  bool  // the same for every row, and a row of x long
	lead    []int // strides along the axes before the normalised ones
	tail    []int // strides along the normalised axes
	leadDim []int
	tailDim []int
}

func newLayerOperand(x, t []int64, axis int64) layerOperand {
	s := tensor.BroadcastStrides(x, t)
	o := layerOperand{lead: s[:axis], tail: s[axis:], leadDim: tensor.Ints(x[:axis]), tailDim: tensor.Ints(x[axis:])}
	o.direct = tensor.Elements(t) == tensor.Elements(x[axis:])
	for _, stride := range o.lead {
		if stride != 0 {
			o.direct = false
		}
	}
	return o
}

// offset returns where row i's first element lies.
func (o *layerOperand) offset(i int) int { return strideOffset(o.leadDim, o.lead, i) }

// at returns where element j of a row lies relative to its first.
func (o *layerOperand) at(j int) int { return strideOffset(o.tailDim, o.tail, j) }

// strideOffset returns the offset of element i, counted in row-major order of
// dims, of a tensor with strides.
func strideOffset(dims, strides []int, i int) int {
	n := 0
	for axis := len(dims) - 1; axis >= 0; axis-- {
		n += i % dims[axis] * strides[axis]
		i /= dims[axis]
	}
	return n
}

func newLayerNorm[T tensor.Float](o *graph.LayerNorm, in []graph.TensorType) *layerNorm[T] {
	x := in[0].Shape
	k := &layerNorm[T]{epsilon: o.Epsilon, rows: tensor.Elements(x[:o.Axis]), row: tensor.Elements(x[o.Axis:])}
	k.scale = newLayerOperand(x, in[1].Shape, o.Axis)
	if b := tensor.Operand(in, 2); b.DType != graph.Invalid {
		k.bias = newLayerOperand(x, b.Shape, o.Axis)
	}
	return k
}

// Scratch implements [Kernel].
func (k *layerNorm[T]) Scratch() int { return 0 }

// InPlace implements [InPlacer].
func (k *layerNorm[T]) InPlace(i int) bool { return i == 0 }

// Run implements [Kernel].
func (k *layerNorm[T]) Run(p tensor.Pool, in, out [][]byte, _ []byte) error {
	t := &k.task
	*t = layerNormTask[T]{
		layerNorm: k, x: tensor.View[T](in[0]), scaleData: tensor.View[T](in[1]), biasData: tensor.View[T](tensor.Memory(in, 2)),
		y: tensor.View[T](tensor.Memory(out, 0)), mean: tensor.F32s(tensor.Memory(out, 1)), deviation: tensor.F32s(tensor.Memory(out, 2)),
	}
	t.parts = tensor.Cut(p, k.rows, 2*k.row+16)
	p.Run(t, t.parts)
	*t = layerNormTask[T]{}
	return nil
}

type layerNormTask[T tensor.Float] struct {
	*layerNorm[T]
	x, y                []T
	scaleData, biasData []T
	mean, deviation     []float32
	parts               int
}

// Do implements [Task].
func (t *layerNormTask[T]) Do(part int) {
	i, end := tensor.Span(t.rows, t.parts, part, 1)
	if t.y != nil && t.mean == nil && t.deviation == nil && t.scale.direct && t.biasData != nil && t.bias.direct && t.row > 0 &&
		vec.VectorLayerNorm(t.y[i*t.row:], t.x[i*t.row:end*t.row], t.scaleData[:t.row], t.biasData, t.epsilon) {
		return
	}
	for ; i < end; i++ {
		x := t.x[i*t.row:][:t.row]
		mean := LongSum(x) / float64(t.row)
		r := 1 / math.Sqrt(LongSquares(x, T(mean))/float64(t.row)+t.epsilon)
		if t.mean != nil {
			t.mean[i] = float32(mean)
		}
		if t.deviation != nil {
			t.deviation[i] = float32(r)
		}
		if t.y != nil {
			t.normalise(i, x, t.y[i*t.row:][:t.row], T(mean), T(r))
		}
	}
}

// normalise writes row i of the result.
func (t *layerNormTask[T]) normalise(i int, x, y []T, mean, r T) {
	y = y[:len(x)]
	if t.scale.direct && (t.biasData == nil || t.bias.direct) {
		scale := t.scaleData[:len(x)]
		if vec.VectorScale(y, x, scale, t.biasData, mean, r) {
			return
		}
		if t.biasData == nil {
			for j, v := range x {
				y[j] = (v - mean) * r * scale[j]
			}
			return
		}
		bias := t.biasData[:len(x)]
		for j, v := range x {
			y[j] = T((v-mean)*r*scale[j]) + bias[j]
		}
		return
	}
	scale := t.scaleData[t.scale.offset(i):]
	for j, v := range x {
		y[j] = (v - mean) * r * scale[t.scale.at(j)]
	}
	if t.biasData != nil {
		bias := t.biasData[t.bias.offset(i):]
		for j := range y {
			y[j] += bias[t.bias.at(j)]
		}
	}
}

// sumBlock is how many elements are added up in the type at hand before the
// sum goes to a float64.
const sumBlock = 256

// LongSum adds up any number of elements without losing precision to length.
func LongSum[T tensor.Float](x []T) float64 {
	total, ok := vec.VectorSum(x)
	if ok {
		return total
	}
	for ; len(x) > sumBlock; x = x[sumBlock:] {
		total += float64(Sum(x[:sumBlock]))
	}
	return total + float64(Sum(x))
}

// LongSquares adds up the squares of the elements' distances from mean.
func LongSquares[T tensor.Float](x []T, mean T) float64 {
	total, ok := vec.VectorSquares(x, mean)
	if ok {
		return total
	}
	for len(x) > 0 {
		block := x[:min(sumBlock, len(x))]
		x = x[len(block):]
		var s0, s1, s2, s3 T
		for len(block) >= 4 {
			d0, d1, d2, d3 := block[0]-mean, block[1]-mean, block[2]-mean, block[3]-mean
			s0 += T(d0 * d0)
			s1 += T(d1 * d1)
			s2 += T(d2 * d2)
			s3 += T(d3 * d3)
			block = block[4:]
		}
		for _, v := range block {
			s0 += T((v - mean) * (v - mean))
		}
		total += float64(s0+s1) + float64(s2+s3)
	}
	return total
}
