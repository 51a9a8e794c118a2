package kernel

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/graph"
)

func TestBatchNorm(t *testing.T) {
	checkPaths(t, func(t *rapid.T) {
		d := rapid.SampledFrom(floatTypes).Draw(t, "type")
		shape := drawShape(t, 2)
		in := []graph.TensorType{{DType: d, Shape: shape}}
		s := drawSource(t)
		data := [][]byte{s.tensor(in[0])}
		for i := range 4 {
			in = append(in, graph.TensorType{DType: d, Shape: shape[1:2]})
			data = append(data, s.tensor(in[i+1]))
		}
		op := &graph.BatchNorm{Epsilon: 2.5}
		out, got := runPacked(t, op, in, data)
		var v [5][]float64
		for i := range v {
			v[i] = values(in[i], data[i])
		}
		want := make([]wanted, elements(shape))
		coords(shape, func(at []int64, flat int) {
			c := at[1]
			r := v[1][c] / math.Sqrt(v[4][c]+op.Epsilon)
			want[flat].value = (v[0][flat]-v[3][c])*r + v[2][c]
			want[flat].size = (math.Abs(v[0][flat])+math.Abs(v[3][c]))*math.Abs(r) + math.Abs(v[2][c])
		})
		compareSums(t, op, out[0], got[0], want)
	})
}

func TestSoftmax(t *testing.T) {
	checkPaths(t, func(t *rapid.T) {
		tt := graph.TensorType{DType: rapid.SampledFrom(floatTypes).Draw(t, "type"), Shape: drawShape(t, 1)}
		op := &graph.Softmax{Axis: rapid.Int64Range(0, int64(len(tt.Shape)-1)).Draw(t, "axis"), Log: rapid.Bool().Draw(t, "log")}
		x := drawSource(t).tensor(tt)
		out, got := run(t, op, []graph.TensorType{tt}, [][]byte{x})

		v := values(tt, x)
		inner := elements(tt.Shape[op.Axis+1:])
		n := int(tt.Shape[op.Axis])
		want := make([]wanted, len(v))
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
				want[i].value = v[i] - most - math.Log(total)
				want[i].size = math.Abs(v[i]) + math.Abs(most) + math.Abs(math.Log(total)) + 1
			} else {
				want[i].value = math.Exp(v[i]-most) / total
				want[i].size = want[i].value
			}
		}
		compareSums(t, op, out[0], got[0], want)
	})
}

// TestSoftmaxOfLargeNumbers would overflow without the maximum taken off.
func TestSoftmaxOfLargeNumbers(t *testing.T) {
	tt := graph.TensorType{DType: graph.F32, Shape: []int64{3}}
	_, got := run(t, &graph.Softmax{}, []graph.TensorType{tt}, [][]byte{store(graph.F32, []elem{{f: 1e30}, {f: 1e30}, {f: math.Inf(-1)}})})
	require.Equal(t, []float32{0.5, 0.5, 0}, f32s(got[0]))
	_, got = run(t, &graph.Softmax{Log: true}, []graph.TensorType{tt}, [][]byte{store(graph.F32, []elem{{f: 1000}, {f: 0}, {f: math.Inf(-1)}})})
	require.Equal(t, []float32{0, -1000, float32(math.Inf(-1))}, f32s(got[0]))
}

func TestLayerNorm(t *testing.T) {
	checkPaths(t, func(t *rapid.T) {
		d := rapid.SampledFrom(floatTypes).Draw(t, "type")
		shape := drawShape(t, 1)
		axis := rapid.IntRange(0, len(shape)-1).Draw(t, "axis")
		in := []graph.TensorType{{DType: d, Shape: shape}, {DType: d, Shape: shape[axis:]}, {}}
		if rapid.Bool().Draw(t, "odd scale") {
			in[1].Shape = drawBroadcast(t, shape)
		}
		switch rapid.IntRange(0, 2).Draw(t, "bias") {
		case 0:
			in[2] = in[1]
		case 1:
			in[2] = graph.TensorType{DType: d, Shape: drawBroadcast(t, shape)}
		}
		s := drawSource(t)
		data := [][]byte{s.tensor(in[0]), s.tensor(in[1]), s.tensor(in[2])}
		op := &graph.LayerNorm{Axis: int64(axis), Epsilon: 0.25}
		out, got := runPacked(t, op, in, data)

		x, scale, bias := values(in[0], data[0]), values(in[1], data[1]), values(in[2], data[2])
		n := elements(shape[axis:])
		rows := elements(shape[:axis])
		means, deviations := make([]wanted, rows), make([]wanted, rows)
		for i := range rows {
			row := x[i*n:][:n]
			mean, square := 0.0, 0.0
			for _, v := range row {
				mean += v / float64(n)
			}
			for _, v := range row {
				square += (v - mean) * (v - mean) / float64(n)
			}
			means[i] = wanted{value: mean, size: 2}
			r := 1 / math.Sqrt(square+op.Epsilon)
			deviations[i] = wanted{value: r, size: 2 * r}
		}
		want := make([]wanted, len(x))
		coords(shape, func(at []int64, flat int) {
			w, m, r := &want[flat], means[flat/n], deviations[flat/n]
			g := scale[flatten(in[1].Shape, at)]
			w.value = (x[flat] - m.value) * r.value * g
			w.size = 4 * math.Abs(r.value*g)
			if bias != nil {
				b := bias[flatten(in[2].Shape, at)]
				w.value += b
				w.size += math.Abs(b)
			}
		})
		compareSums(t, op, out[0], got[0], want)
		if n > 0 {
			compareSums(t, op, out[1], got[1], means)
			compareSums(t, op, out[2], got[2], deviations)
		}
	})
}

// TestLayerNormOfLongRows has a mean that is large beside the deviation.
func TestLayerNormOfLongRows(t *testing.T) {
	const n = 1 << 18
	tt := graph.TensorType{DType: graph.F32, Shape: []int64{1, n}}
	x := make([]elem, n)
	for i := range x {
		x[i].f = 1000 + float64(i%2)
	}
	one := graph.TensorType{DType: graph.F32}
	_, got := run(t, &graph.LayerNorm{Axis: 1}, []graph.TensorType{tt, one}, [][]byte{store(graph.F32, x), store(graph.F32, []elem{{f: 1}})})
	require.InDelta(t, -1, f32s(got[0])[0], 1e-4)
	require.InDelta(t, 1, f32s(got[0])[n-1], 1e-4)
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
			return rawBytes(v)
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
				return f32s(out[0])
			}
			var plain []float32
			eachPath(t, func(t *testing.T) {
				all := compute(0, most)
				if path == pathGo {
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
