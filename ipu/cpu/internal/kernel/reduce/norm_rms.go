package reduce

import (
	"fmt"
	"math"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
	"github.com/popefgen/popefgen/ipu/graph"
)

func bindRMSNorm(op graph.Op, in, _ []graph.TensorType) (tensor.Kernel, error) {
	o := op.(*graph.RMSNorm)
	switch in[0].DType {
	case graph.F32:
		return newRMSNorm[float32](o, in), nil
	case graph.F64:
		return newRMSNorm[float64](o, in), nil
	}
	return nil, fmt.Errorf("no kernel for %v", in[0])
}

// rmsNorm computes x/√(mean(x²)+ε)·scale over rows, the elements from an axis
// to the last.
type rmsNorm[T tensor.Float] struct {
	epsilon   float64
	rows, row int
	scale     layerOperand
	task      rmsNormTask[T]
}

func newRMSNorm[T tensor.Float](o *graph.RMSNorm, in []graph.TensorType) *rmsNorm[T] {
	x := in[0].Shape
	return &rmsNorm[T]{epsilon: o.Epsilon, rows: tensor.Elements(x[:o.Axis]), row: tensor.Elements(x[o.Axis:]), scale: newLayerOperand(x, in[1].Shape, o.Axis)}
}

// Scratch implements [Kernel].
func (k *rmsNorm[T]) Scratch() int { return 0 }

// InPlace implements [InPlacer].
func (k *rmsNorm[T]) InPlace(i int) bool { return i == 0 }

// Run implements [Kernel].
func (k *rmsNorm[T]) Run(p tensor.Pool, in, out [][]byte, _ []byte) error {
	t := &k.task
	*t = rmsNormTask[T]{rmsNorm: k, x: tensor.View[T](in[0]), scaleData: tensor.View[T](in[1]), y: tensor.View[T](out[0])}
	t.parts = tensor.Cut(p, k.rows, 3*k.row+16)
	p.Run(t, t.parts)
	*t = rmsNormTask[T]{}
	return nil
}

type rmsNormTask[T tensor.Float] struct {
	*rmsNorm[T]
	x, y, scaleData []T
	parts           int
}

// Do implements [Task].
func (t *rmsNormTask[T]) Do(part int) {
	i, end := tensor.Span(t.rows, t.parts, part, 1)
	if t.scale.direct && t.row > 0 && vec.VectorRMSNorm(t.y[i*t.row:], t.x[i*t.row:end*t.row], t.scaleData[:t.row], t.epsilon) {
		return
	}
	for ; i < end; i++ {
		x := t.x[i*t.row:][:t.row]
		y := t.y[i*t.row:][:len(x)]
		r := T(1 / math.Sqrt(LongSquares(x, 0)/float64(t.row)+t.epsilon))
		if t.scale.direct {
			scale := t.scaleData[:len(x)]
			if vec.VectorScale(y, x, scale, nil, 0, r) {
				continue
			}
			for j, v := range x {
				y[j] = v * r * scale[j]
			}
			continue
		}
		scale := t.scaleData[t.scale.offset(i):]
		for j, v := range x {
			y[j] = v * r * scale[t.scale.at(j)]
		}
	}
}
