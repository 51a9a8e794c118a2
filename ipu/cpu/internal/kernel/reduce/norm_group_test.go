package reduce

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

func TestGroupNorm(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		d := rapid.SampledFrom(kerneltest.FloatTypes).Draw(t, "type")
		groups, channels := rapid.Int64Range(1, 4).Draw(t, "groups"), rapid.Int64Range(1, 3).Draw(t, "channels")
		c := groups * channels
		shape := append([]int64{rapid.Int64Range(0, 3).Draw(t, "batch"), c}, kerneltest.DrawShape(t, 0)...)
		in := []graph.TensorType{{DType: d, Shape: shape}, {DType: d, Shape: []int64{c}}, {DType: d, Shape: []int64{c}}}
		src := &kerneltest.Source{R: kerneltest.Seeded(rapid.Uint64().Draw(t, "data"))}
		data := [][]byte{src.Tensor(in[0]), src.Tensor(in[1]), src.Tensor(in[2])}
		op := &graph.GroupNorm{Groups: groups, Epsilon: 0.01}
		out, got := run(t, op, in, data)

		x, scale, bias := kerneltest.Values(in[0], data[0]), kerneltest.Values(in[1], data[1]), kerneltest.Values(in[2], data[2])
		n := int(channels) * tensor.Elements(shape[2:])
		rows := int(shape[0] * groups)
		want := make([]kerneltest.Wanted, len(x))
		means, deviations := make([]kerneltest.Wanted, rows), make([]kerneltest.Wanted, rows)
		for r := range rows {
			mean, variance := 0.0, 0.0
			for _, v := range x[r*n:][:n] {
				mean += v / float64(n)
			}
			for _, v := range x[r*n:][:n] {
				variance += (v - mean) * (v - mean) / float64(n)
			}
			dev := 1 / math.Sqrt(variance+op.Epsilon)
			if n == 0 {
				mean, dev = math.NaN(), math.NaN()
			}
			means[r], deviations[r] = kerneltest.Wanted{Value: mean, Size: 2}, kerneltest.Wanted{Value: dev, Size: 100}
			for i, v := range x[r*n:][:n] {
				ch := r%int(groups)*int(channels) + i/(n/int(channels))
				want[r*n+i] = kerneltest.Wanted{Value: (v-mean)*dev*scale[ch] + bias[ch], Size: 100}
			}
		}
		kerneltest.CompareSums(t, op, out[0], got[0], want)
		kerneltest.CompareSums(t, op, out[1], got[1], means)
		kerneltest.CompareSums(t, op, out[2], got[2], deviations)
	})
}

func TestLRN(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		d := rapid.SampledFrom(kerneltest.FloatTypes).Draw(t, "type")
		shape := append([]int64{rapid.Int64Range(0, 2).Draw(t, "batch"), rapid.Int64Range(1, 9).Draw(t, "channels")}, rapid.Int64Range(0, 600).Draw(t, "plane"))
		tt := graph.TensorType{DType: d, Shape: shape}
		op := &graph.LRN{Size: rapid.Int64Range(1, 12).Draw(t, "size"), Alpha: 0.5, Bias: 1.5, Beta: rapid.SampledFrom([]float64{0.75, 0.5, 1}).Draw(t, "beta")}
		data := (&kerneltest.Source{R: kerneltest.Seeded(rapid.Uint64().Draw(t, "data"))}).Tensor(tt)
		out, got := run(t, op, []graph.TensorType{tt}, [][]byte{data})

		x := kerneltest.Values(tt, data)
		want := make([]kerneltest.Wanted, len(x))
		kerneltest.Coords(shape, func(at []int64, flat int) {
			sum := 0.0
			first := at[1] - (op.Size-1)/2 // one more after than before
			for c := max(first, 0); c < min(first+op.Size, shape[1]); c++ {
				v := x[(at[0]*shape[1]+c)*shape[2]+at[2]]
				sum += v * v
			}
			want[flat] = kerneltest.Wanted{Value: x[flat] / math.Pow(op.Bias+op.Alpha/float64(op.Size)*sum, op.Beta), Size: math.Abs(x[flat])}
		})
		kerneltest.CompareSums(t, op, out[0], got[0], want)
	})
}

// cofactors is a determinant by its definition.
func cofactors(m [][]float64) float64 {
	if len(m) == 0 {
		return 1
	}
	sum := 0.0
	for i := range m {
		var rest [][]float64
		for j, row := range m {
			if j != i {
				rest = append(rest, row[1:])
			}
		}
		v := m[i][0] * cofactors(rest)
		if i%2 == 1 {
			v = -v
		}
		sum += v
	}
	return sum
}

func TestDet(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		d := rapid.SampledFrom(kerneltest.FloatTypes).Draw(t, "type")
		n, batch := rapid.Int64Range(0, 5).Draw(t, "n"), rapid.Int64Range(0, 4).Draw(t, "batch")
		tt := graph.TensorType{DType: d, Shape: []int64{batch, n, n}}
		src := &kerneltest.Source{R: kerneltest.Seeded(rapid.Uint64().Draw(t, "data"))}
		elems := make([]kerneltest.Elem, batch*n*n)
		for i := range elems {
			elems[i].F = float64(src.R.IntN(5) - 2) // often singular
		}
		_, got := run(t, &graph.Det{}, []graph.TensorType{tt}, [][]byte{kerneltest.Store(d, elems)})
		want := make([]kerneltest.Wanted, batch)
		for b := range want {
			var m [][]float64
			for r := range n {
				var row []float64
				for c := range n {
					row = append(row, elems[(int64(b)*n+r)*n+c].F)
				}
				m = append(m, row)
			}
			want[b] = kerneltest.Wanted{Value: cofactors(m), Size: 64}
		}
		kerneltest.CompareSums(t, &graph.Det{}, graph.TensorType{DType: d, Shape: []int64{batch}}, got[0], want)
	})
	require.Equal(t, -2.0, determinant(tensor.Serial{}, []float64{0, 1, 2, 3}, 2))
}
