package kernel

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/graph"
)

func TestGroupNorm(t *testing.T) {
	checkPaths(t, func(t *rapid.T) {
		d := rapid.SampledFrom(floatTypes).Draw(t, "type")
		groups, channels := rapid.Int64Range(1, 4).Draw(t, "groups"), rapid.Int64Range(1, 3).Draw(t, "channels")
		c := groups * channels
		shape := append([]int64{rapid.Int64Range(0, 3).Draw(t, "batch"), c}, drawShape(t, 0)...)
		in := []graph.TensorType{{DType: d, Shape: shape}, {DType: d, Shape: []int64{c}}, {DType: d, Shape: []int64{c}}}
		src := &source{r: seeded(rapid.Uint64().Draw(t, "data"))}
		data := [][]byte{src.tensor(in[0]), src.tensor(in[1]), src.tensor(in[2])}
		op := &graph.GroupNorm{Groups: groups, Epsilon: 0.01}
		out, got := run(t, op, in, data)

		x, scale, bias := values(in[0], data[0]), values(in[1], data[1]), values(in[2], data[2])
		n := int(channels) * elements(shape[2:])
		rows := int(shape[0] * groups)
		want := make([]wanted, len(x))
		means, deviations := make([]wanted, rows), make([]wanted, rows)
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
			means[r], deviations[r] = wanted{value: mean, size: 2}, wanted{value: dev, size: 100}
			for i, v := range x[r*n:][:n] {
				ch := r%int(groups)*int(channels) + i/(n/int(channels))
				want[r*n+i] = wanted{value: (v-mean)*dev*scale[ch] + bias[ch], size: 100}
			}
		}
		compareSums(t, op, out[0], got[0], want)
		compareSums(t, op, out[1], got[1], means)
		compareSums(t, op, out[2], got[2], deviations)
	})
}

func TestLRN(t *testing.T) {
	checkPaths(t, func(t *rapid.T) {
		d := rapid.SampledFrom(floatTypes).Draw(t, "type")
		shape := append([]int64{rapid.Int64Range(0, 2).Draw(t, "batch"), rapid.Int64Range(1, 9).Draw(t, "channels")}, rapid.Int64Range(0, 600).Draw(t, "plane"))
		tt := graph.TensorType{DType: d, Shape: shape}
		op := &graph.LRN{Size: rapid.Int64Range(1, 12).Draw(t, "size"), Alpha: 0.5, Bias: 1.5, Beta: rapid.SampledFrom([]float64{0.75, 0.5, 1}).Draw(t, "beta")}
		data := (&source{r: seeded(rapid.Uint64().Draw(t, "data"))}).tensor(tt)
		out, got := run(t, op, []graph.TensorType{tt}, [][]byte{data})

		x := values(tt, data)
		want := make([]wanted, len(x))
		coords(shape, func(at []int64, flat int) {
			sum := 0.0
			first := at[1] - (op.Size-1)/2 // one more after than before
			for c := max(first, 0); c < min(first+op.Size, shape[1]); c++ {
				v := x[(at[0]*shape[1]+c)*shape[2]+at[2]]
				sum += v * v
			}
			want[flat] = wanted{value: x[flat] / math.Pow(op.Bias+op.Alpha/float64(op.Size)*sum, op.Beta), size: math.Abs(x[flat])}
		})
		compareSums(t, op, out[0], got[0], want)
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
	checkPaths(t, func(t *rapid.T) {
		d := rapid.SampledFrom(floatTypes).Draw(t, "type")
		n, batch := rapid.Int64Range(0, 5).Draw(t, "n"), rapid.Int64Range(0, 4).Draw(t, "batch")
		tt := graph.TensorType{DType: d, Shape: []int64{batch, n, n}}
		src := &source{r: seeded(rapid.Uint64().Draw(t, "data"))}
		elems := make([]elem, batch*n*n)
		for i := range elems {
			elems[i].f = float64(src.r.IntN(5) - 2) // often singular
		}
		_, got := run(t, &graph.Det{}, []graph.TensorType{tt}, [][]byte{store(d, elems)})
		want := make([]wanted, batch)
		for b := range want {
			var m [][]float64
			for r := range n {
				var row []float64
				for c := range n {
					row = append(row, elems[(int64(b)*n+r)*n+c].f)
				}
				m = append(m, row)
			}
			want[b] = wanted{value: cofactors(m), size: 64}
		}
		compareSums(t, &graph.Det{}, graph.TensorType{DType: d, Shape: []int64{batch}}, got[0], want)
	})
	require.Equal(t, -2.0, determinant(Serial{}, []float64{0, 1, 2, 3}, 2))
}
