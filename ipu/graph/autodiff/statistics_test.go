package autodiff_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/autodiff"
)

// TestStatistics compares gradients through the mean and the inverse deviation that normalisations give besides with those of these
// computed with Reduce: they are F32, too coarse for differences.
func TestStatistics(t *testing.T) {
	const epsilon = 0.0625
	check(t, 1, func(r *rapid.T) {
		d := newDraw(r)
		shape := []int64{d.size("batch", 1, 3), 2 * d.size("channels", 1, 2), d.size("width", 2, 3)}
		x := d.x(shape, -2, 2)
		flat, axes := x, []int64{1, 2}
		var norm []graph.TensorID
		if d.yes("groups") {
			c := d.fixed(f64(shape[1]), encode(graph.F64, d.numbers(shape[1], -2, 2)))
			norm = d.node(&graph.GroupNorm{Groups: 2, Epsilon: epsilon}, x, c, c)
			flat, axes = d.node1(&graph.Reshape{Shape: []int64{shape[0], 2, shape[1] / 2 * shape[2]}}, x), []int64{2}
		} else {
			c := d.fixed(f64(), encode(graph.F64, []float64{1.5}))
			norm = d.node(&graph.LayerNorm{Axis: 1, Epsilon: epsilon}, x, c, c)
		}
		number := func(v float64) graph.TensorID { return d.fixed(f64(), encode(graph.F64, []float64{v})) }
		mean := d.node1(&graph.Reduce{Fn: graph.ReduceMean, Axes: axes, KeepDims: true}, flat)
		centred := d.binary(graph.Sub, flat, mean)
		variance := d.node1(&graph.Reduce{Fn: graph.ReduceMean, Axes: axes}, d.binary(graph.Mul, centred, centred))
		root := d.node1(&graph.Unary{Fn: graph.Sqrt}, d.binary(graph.Add, variance, number(epsilon)))
		plain := []graph.TensorID{norm[0], mean, d.node1(&graph.Unary{Fn: graph.Reciprocal}, root)}
		e, err := d.b.Finish()
		require.NoError(d, err)
		from := int(d.size("first result", 0, 1))
		var got [2][]float64
		weights := [3][]float64{}
		for i := range weights {
			weights[i] = d.numbers(e.Tensors[norm[i]].Type.Elements(), -2, 2)
		}
		for k, results := range [][]graph.TensorID{norm, plain} {
			info, err := autodiff.Backward(e, d.main, autodiff.Options{Provided: results[from:], Required: []graph.TensorID{x}})
			require.NoError(d, err)
			for i := range results[from:] {
				dt := info.Inputs[i].Tensor
				d.values[dt] = encode(e.Tensors[dt].Type.DType, weights[from+i])
			}
			p := newInterpreter(e, d.values)
			require.NoError(d, p.run(d.main))
			require.NoError(d, p.run(info.Graph))
			got[k] = decode(graph.F64, p.values[info.Outputs[0].Tensor])
		}
		require.InDeltaSlice(d, got[1], got[0], 1e-9)
	})
}
