package move

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

func ints(b []byte) []int64 { return tensor.View[int64](b) }

func TestNonZero(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		x := graph.TensorType{DType: graph.Bool, Shape: kerneltest.DrawShape(t, 0)}
		data := kerneltest.DrawTensor(t, x)
		n := x.Elements()
		bound := rapid.Int64Range(0, n+2).Draw(t, "bound")
		_, out := run(t, &graph.NonZero{Bound: bound}, []graph.TensorType{x}, [][]byte{data})
		want := make([]int64, x.Rank()*int(bound))
		total := int64(0)
		kerneltest.Coords(x.Shape, func(at []int64, flat int) {
			if data[flat] == 0 {
				return
			}
			if total < bound {
				for d, c := range at {
					want[int64(d)*bound+total] = c
				}
			}
			total++
		})
		require.Equal(t, total, ints(out[1])[0])
		require.Equal(t, want, append([]int64{}, ints(out[0])...))
	})
}

// TestUnique compares with the definition: for each row, the rows before it.
func TestUnique(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		x := graph.TensorType{DType: rapid.SampledFrom(append(comparableTypes, graph.Bool)).Draw(t, "type"), Shape: kerneltest.DrawShape(t, 1)}
		rows := rapid.Int64Range(0, 30).Draw(t, "rows")
		x.Shape[0] = rows
		if x.Elements() > 2000 {
			x.Shape = x.Shape[:1]
		}
		data := kerneltest.DrawTensor(t, x)
		all := kerneltest.Load(x.DType, data)
		in, memory, n := []graph.TensorType{x}, [][]byte{data}, rows
		if rapid.Bool().Draw(t, "counted") {
			n = rapid.Int64Range(0, rows).Draw(t, "count")
			in, memory = append(in, graph.TensorType{DType: graph.I64}), append(memory, binary.LittleEndian.AppendUint64(nil, uint64(n)))
		}
		width := 0
		if rows > 0 {
			width = len(all) / int(rows)
		}
		compare := func(a, b int64) int {
			return slices.CompareFunc(all[int(a)*width:][:width], all[int(b)*width:][:width], func(a, b kerneltest.Elem) int {
				if x.DType.IsFloat() && a.F != a.F && b.F != b.F {
					return 0
				}
				return order(x.DType, a, b)
			})
		}
		sorted := rapid.Bool().Draw(t, "sorted")
		var first []int64
		for i := range n {
			if !slices.ContainsFunc(first, func(j int64) bool { return compare(i, j) == 0 }) {
				first = append(first, i)
			}
		}
		if sorted {
			slices.SortFunc(first, compare)
		}
		wantFirst, inverse, counts := make([]int64, rows), make([]int64, rows), make([]int64, rows)
		copy(wantFirst, first)
		for i := range n {
			g := slices.IndexFunc(first, func(j int64) bool { return compare(i, j) == 0 })
			inverse[i] = int64(g)
			counts[g]++
		}
		_, out := run(t, &graph.Unique{Sorted: sorted}, in, memory)
		for i, want := range [][]int64{wantFirst, inverse, counts, {int64(len(first))}} {
			require.Equal(t, want, append([]int64{}, ints(out[i])...), "result %d", i)
		}
	})
}

// picked is the definition of NonMaxSuppression: the best of those left, again and again.
func picked(boxes, scores []float32, centred bool, most int, overlap float32, least *float32) (out []int) {
	type interval [2]float32
	sides := func(i int) (s [2]interval) {
		for a := range s {
			p, q := boxes[4*i+a], boxes[4*i+2+a]
			if centred {
				p, q = p-q/2, p+q/2
			}
			s[a] = interval{min(p, q), max(p, q)}
		}
		return s
	}
	area := func(s [2]interval) float32 { return (s[0][1] - s[0][0]) * (s[1][1] - s[1][0]) }
	left := make([]bool, len(scores))
	for i, s := range scores {
		left[i] = least == nil || s > *least
	}
	for len(out) < most {
		best := -1
		for i, ok := range left {
			if ok && (best < 0 || scores[i] > scores[best]) {
				best = i
			}
		}
		if best < 0 {
			return out
		}
		out = append(out, best)
		for i := range left {
			a, b := sides(i), sides(best)
			inter := area([2]interval{{max(a[0][0], b[0][0]), min(a[0][1], b[0][1])}, {max(a[1][0], b[1][0]), min(a[1][1], b[1][1])}})
			apart := a[0][0] >= b[0][1] || b[0][0] >= a[0][1] || a[1][0] >= b[1][1] || b[1][0] >= a[1][1]
			if i == best || !apart && inter/(area(a)+area(b)-inter) > overlap {
				left[i] = false
			}
		}
	}
	return out
}

func TestNonMaxSuppression(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		batches, classes := rapid.Int64Range(0, 3).Draw(t, "batches"), rapid.Int64Range(0, 4).Draw(t, "classes")
		n := rapid.SampledFrom([]int64{0, 1, 2, 7, 60, 500}).Draw(t, "boxes")
		r := kerneltest.Seeded(rapid.Uint64().Draw(t, "seed"))
		in := []graph.TensorType{{DType: graph.F32, Shape: []int64{batches, n, 4}}, {DType: graph.F32, Shape: []int64{batches, classes, n}}, {}, {}, {}}
		boxes, scores := make([]float32, in[0].Elements()), make([]float32, in[1].Elements())
		centred := rapid.Bool().Draw(t, "centred")
		for i := range boxes {
			boxes[i] = float32(r.IntN(12))
			if centred && i%4 >= 2 {
				boxes[i] = float32(r.IntN(6))
			}
		}
		levels := rapid.SampledFrom([]int{2, 1000}).Draw(t, "levels")
		for i := range scores {
			scores[i] = float32(r.IntN(levels))/float32(levels) - 0.2
		}
		data := [][]byte{kerneltest.BytesOf(boxes), kerneltest.BytesOf(scores), nil, nil, nil}
		op := &graph.NonMaxSuppression{Centred: centred, Most: rapid.Int64Range(0, n).Draw(t, "most")}
		most := op.Most
		if rapid.Bool().Draw(t, "fewer") {
			most = rapid.Int64Range(-1, n+1).Draw(t, "as data")
			in[2], data[2] = graph.TensorType{DType: graph.I64, Shape: []int64{1}}, binary.LittleEndian.AppendUint64(nil, uint64(most))
		}
		overlap := float32(0)
		if rapid.Bool().Draw(t, "overlaps") {
			overlap = rapid.SampledFrom([]float32{0, 0.25, 0.5, 1}).Draw(t, "overlap")
			in[3], data[3] = graph.TensorType{DType: graph.F32}, kerneltest.BytesOf([]float32{overlap})
		}
		var least *float32
		if rapid.Bool().Draw(t, "threshold") {
			v := rapid.SampledFrom([]float32{-1, 0.1, 0.5, 2}).Draw(t, "least")
			least, in[4], data[4] = &v, graph.TensorType{DType: graph.F32, Shape: []int64{1}}, kerneltest.BytesOf([]float32{v})
		}
		var want []int64
		for b := range batches {
			for c := range classes {
				for _, i := range picked(boxes[b*n*4:][:n*4], scores[(b*classes+c)*n:][:n], centred, int(max(0, min(most, op.Most))), overlap, least) {
					want = append(want, b, c, int64(i))
				}
			}
		}
		found := int64(len(want) / 3)
		op.Bound = rapid.SampledFrom([]int64{0, found / 2, found, found + 3}).Draw(t, "bound")
		_, out := run(t, op, in, data)
		require.Equal(t, min(found, op.Bound+1), ints(out[1])[0])
		rows := make([]int64, 3*op.Bound)
		copy(rows, want)
		require.Equal(t, rows, append([]int64{}, ints(out[0])...))
	})
}

func TestScoresInOrder(t *testing.T) {
	scores := []float32{float32(math.Inf(1)), 3, 0, -1e-30, -2, float32(math.Inf(-1)), float32(math.NaN())}
	for i, v := range scores[1:] {
		require.Less(t, scoreKey(scores[i], 9), scoreKey(v, 3))
	}
	require.Equal(t, scoreKey(0, 1), scoreKey(float32(math.Copysign(0, -1)), 1))
	r := kerneltest.Seeded(1)
	for _, n := range []int{0, 1, 399, 400, 5000} {
		keys := make([]uint64, n)
		for i := range keys {
			keys[i] = scoreKey(float32(r.NormFloat64()*float64(r.IntN(3))), i)
		}
		want := slices.Sorted(slices.Values(keys))
		require.Equal(t, want, append([]uint64(nil), sortKeys(keys, make([]uint64, n))...))
	}
}
