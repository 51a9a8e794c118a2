package reduce

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

func TestBatchNorm(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		d := rapid.SampledFrom(kerneltest.FloatTypes).Draw(t, "type")
		shape := kerneltest.DrawShape(t, 2)
		in := []graph.TensorType{{DType: d, Shape: shape}}
		s := kerneltest.DrawSource(t)
		data := [][]byte{s.Tensor(in[0])}
		for i := range 4 {
			in = append(in, graph.TensorType{DType: d, Shape: shape[1:2]})
			data = append(data, s.Tensor(in[i+1]))
		}
		op := &graph.BatchNorm{Epsilon: 2.5}
		out, got := runPacked(t, op, in, data)
		var v [5][]float64
		for i := range v {
			v[i] = kerneltest.Values(in[i], data[i])
		}
		want := make([]kerneltest.Wanted, tensor.Elements(shape))
		kerneltest.Coords(shape, func(at []int64, flat int) {
			c := at[1]
			r := v[1][c] / math.Sqrt(v[4][c]+op.Epsilon)
			want[flat].Value = (v[0][flat]-v[3][c])*r + v[2][c]
			want[flat].Size = (math.Abs(v[0][flat])+math.Abs(v[3][c]))*math.Abs(r) + math.Abs(v[2][c])
		})
		kerneltest.CompareSums(t, op, out[0], got[0], want)
	})
}

func TestSoftmax(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		tt := graph.TensorType{DType: rapid.SampledFrom(kerneltest.FloatTypes).Draw(t, "type"), Shape: kerneltest.DrawShape(t, 1)}
		op := &graph.Softmax{Axis: rapid.Int64Range(0, int64(len(tt.Shape)-1)).Draw(t, "axis"), Log: rapid.Bool().Draw(t, "log")}
		x := kerneltest.DrawSource(t).Tensor(tt)
		out, got := run(t, op, []graph.TensorType{tt}, [][]byte{x})

		v := kerneltest.Values(tt, x)
		inner := tensor.Elements(tt.Shape[op.Axis+1:])
		n := int(tt.Shape[op.Axis])
		want := make([]kerneltest.Wanted, len(v))
		for i := range v {
			first := i/(n*inner)*n*inner + i%inner
			most := math.Inf(-1)
			for j := range n {
				most = max(most, v[first+j*inner])
			}
			total := 0.0
			for j := range n {
				total += math.Exp(v[first+j*inner] - most)
			}
			if op.Log {
				want[i].Value = v[i] - most - math.Log(total)
				want[i].Size = math.Abs(v[i]) + math.Abs(most) + math.Abs(math.Log(total)) + 1
			} else {
				want[i].Value = math.Exp(v[i]-most) / total
				want[i].Size = want[i].Value
			}
		}
		kerneltest.CompareSums(t, op, out[0], got[0], want)
	})
}

// TestSoftmaxOfLargeNumbers would overflow without the maximum taken off.
func TestSoftmaxOfLargeNumbers(t *testing.T) {
	tt := graph.TensorType{DType: graph.F32, Shape: []int64{3}}
	_, got := run(t, &graph.Softmax{}, []graph.TensorType{tt}, [][]byte{kerneltest.Store(graph.F32, []kerneltest.Elem{{F: 1e30}, {F: 1e30}, {F: math.Inf(-1)}})})
	require.Equal(t, []float32{0.5, 0.5, 0}, tensor.F32s(got[0]))
	_, got = run(t, &graph.Softmax{Log: true}, []graph.TensorType{tt}, [][]byte{kerneltest.Store(graph.F32, []kerneltest.Elem{{F: 1000}, {F: 0}, {F: math.Inf(-1)}})})
	require.Equal(t, []float32{0, -1000, float32(math.Inf(-1))}, tensor.F32s(got[0]))
}

func TestLayerNorm(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		d := rapid.SampledFrom(kerneltest.FloatTypes).Draw(t, "type")
		shape := kerneltest.DrawShape(t, 1)
		axis := rapid.IntRange(0, len(shape)-1).Draw(t, "axis")
		in := []graph.TensorType{{DType: d, Shape: shape}, {DType: d, Shape: shape[axis:]}, {}}
		if rapid.Bool().Draw(t, "odd scale") {
			in[1].Shape = kerneltest.DrawBroadcast(t, shape)
		}
		switch rapid.IntRange(0, 2).Draw(t, "bias") {
		case 0:
			in[2] = in[1]
		case 1:
			in[2] = graph.TensorType{DType: d, Shape: kerneltest.DrawBroadcast(t, shape)}
		}
		s := kerneltest.DrawSource(t)
		data := [][]byte{s.Tensor(in[0]), s.Tensor(in[1]), s.Tensor(in[2])}
		op := &graph.LayerNorm{Axis: int64(axis), Epsilon: 0.25}
		out, got := runPacked(t, op, in, data)

		x, scale, bias := kerneltest.Values(in[0], data[0]), kerneltest.Values(in[1], data[1]), kerneltest.Values(in[2], data[2])
		n := tensor.Elements(shape[axis:])
		rows := tensor.Elements(shape[:axis])
		means, deviations := make([]kerneltest.Wanted, rows), make([]kerneltest.Wanted, rows)
		for i := range rows {
			row := x[i*n:][:n]
			mean, square := 0.0, 0.0
			for _, v := range row {
				mean += v / float64(n)
			}
			for _, v := range row {
				square += (v - mean) * (v - mean) / float64(n)
			}
			means[i] = kerneltest.Wanted{Value: mean, Size: 2}
			r := 1 / math.Sqrt(square+op.Epsilon)
			deviations[i] = kerneltest.Wanted{Value: r, Size: 2 * r}
		}
		want := make([]kerneltest.Wanted, len(x))
		kerneltest.Coords(shape, func(at []int64, flat int) {
			w, m, r := &want[flat], means[flat/n], deviations[flat/n]
			g := scale[kerneltest.Flatten(in[1].Shape, at)]
			w.Value = (x[flat] - m.Value) * r.Value * g
			w.Size = 4 * math.Abs(r.Value*g)
			if bias != nil {
				b := bias[kerneltest.Flatten(in[2].Shape, at)]
				w.Value += b
				w.Size += math.Abs(b)
			}
		})
		kerneltest.CompareSums(t, op, out[0], got[0], want)
		if n > 0 {
			kerneltest.CompareSums(t, op, out[1], got[1], means)
			kerneltest.CompareSums(t, op, out[2], got[2], deviations)
		}
	})
}

// TestLayerNormOfLongRows has a mean that is large beside the deviation.
func TestLayerNormOfLongRows(t *testing.T) {
	const n = 1 << 18
	tt := graph.TensorType{DType: graph.F32, Shape: []int64{1, n}}
	x := make([]kerneltest.Elem, n)
	for i := range x {
		x[i].F = 1000 + float64(i%2)
	}
	one := graph.TensorType{DType: graph.F32}
	_, got := run(t, &graph.LayerNorm{Axis: 1}, []graph.TensorType{tt, one}, [][]byte{kerneltest.Store(graph.F32, x), kerneltest.Store(graph.F32, []kerneltest.Elem{{F: 1}})})
	require.InDelta(t, -1, tensor.F32s(got[0])[0], 1e-4)
	require.InDelta(t, 1, tensor.F32s(got[0])[n-1], 1e-4)
}

// TestRowsTogether checks that a row's result does not depend on the rows
// beside it nor on being written over its operand, and that it is near what
// plain Go computes.
func TestRowsTogether(t *testing.T) {
	const most = 5
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 128, 130, 257, 1000, 4096, 4097} {
		f := func(shape ...int64) graph.TensorType { return graph.TensorType{DType: graph.F32, Shape: shape} }
		numbers := func(n int) []byte {
			v := make([]float32, n)
			for i := range v {
				v[i] = float32(3*r.NormFloat64() + 1)
			}
			return tensor.RawBytes(v)
		}
		x, scale, bias := numbers(most*n), numbers(n), numbers(n)
		row := f(int64(n))
		for _, c := range []struct {
			op   graph.Op
			in   []graph.TensorType
			data [][]byte
		}{
			{&graph.Softmax{Axis: 1}, nil, nil},
			{&graph.LayerNorm{Axis: 1, Epsilon: 1e-5}, []graph.TensorType{row, row}, [][]byte{scale, bias}},
			{&graph.RMSNorm{Axis: 1, Epsilon: 1e-5}, []graph.TensorType{row}, [][]byte{scale}},
		} {
			compute := func(first, rows int) []float32 {
				in := append([]graph.TensorType{f(int64(rows), int64(n))}, c.in...)
				data := append([][]byte{x[4*n*first:][:4*n*rows]}, c.data...)
				_, out := run(t, c.op, in, data)
				return tensor.F32s(out[0])
			}
			var plain []float32
			kerneltest.EachPath(t, func(t *testing.T) {
				all := compute(0, most)
				if tensor.Path == tensor.PathGo {
					plain = all
				}
				for i, v := range all {
					require.InDeltaf(t, plain[i], v, 1e-5*max(1, math.Abs(float64(plain[i]))), "%s: %d elements a row, element %d", c.op.Kind(), n, i)
				}
				for rows := 1; rows < most; rows++ {
					for first := 0; first+rows <= most; first++ {
						require.Equalf(t, all[first*n:][:rows*n], compute(first, rows), "%s: %d elements a row, %d rows from %d on", c.op.Kind(), n, rows, first)
					}
				}
			})
		}
	}
}
