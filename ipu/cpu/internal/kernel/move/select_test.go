package move

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

var comparableTypes = []graph.DType{graph.I8, graph.U8, graph.I16, graph.U16, graph.I32, graph.U32, graph.I64, graph.U64, graph.F32, graph.F64}

// order compares elements of a type; a NaN is greatest.
func order(d graph.DType, a, b kerneltest.Elem) int {
	switch {
	case d == graph.U64:
		return cmp.Compare(uint64(a.I), uint64(b.I))
	case !d.IsFloat():
		return cmp.Compare(a.I, b.I)
	case a.F != a.F || b.F != b.F:
		return -cmp.Compare(a.F, b.F) // to cmp.Compare, a NaN is least
	}
	return cmp.Compare(a.F, b.F)
}

// drawLanes draws a tensor and an axis of it. lane returns the elements along
// the axis through a place.
func drawLanes(t *rapid.T) (x graph.TensorType, data []byte, axis int, lane func(at []int64) []kerneltest.Elem) {
	x = graph.TensorType{DType: rapid.SampledFrom(comparableTypes).Draw(t, "type"), Shape: kerneltest.DrawShape(t, 1)}
	data = kerneltest.DrawTensor(t, x)
	axis = rapid.IntRange(0, len(x.Shape)-1).Draw(t, "axis")
	all := kerneltest.Load(x.DType, data)
	return x, data, axis, func(at []int64) []kerneltest.Elem {
		at = slices.Clone(at)
		var out []kerneltest.Elem
		for i := range x.Shape[axis] {
			at[axis] = i
			out = append(out, all[kerneltest.Flatten(x.Shape, at)])
		}
		return out
	}
}

func TestArgMax(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		x, data, axis, lane := drawLanes(t)
		if x.Shape[axis] == 0 {
			return
		}
		op := &graph.ArgMax{Axis: int64(axis), KeepDims: true, Min: rapid.Bool().Draw(t, "min"), Last: rapid.Bool().Draw(t, "last")}
		out, got := run(t, op, []graph.TensorType{x}, [][]byte{data})
		result := kerneltest.Load(graph.I64, got[0])
		kerneltest.Coords(out[0].Shape, func(at []int64, flat int) {
			values := lane(at)
			best := 0
			for i, v := range values {
				c := order(x.DType, v, values[best])
				if op.Min && v.F == v.F && values[best].F == values[best].F {
					c = -c
				}
				if c > 0 || c == 0 && op.Last {
					best = i
				}
			}
			if result[flat].I != int64(best) {
				t.Fatalf("%+v of %v at %v is %d, want %d of %v", op, x, at, result[flat].I, best, values)
			}
		})
	})
}

func TestTopK(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		x, data, axis, lane := drawLanes(t)
		op := &graph.TopK{Axis: int64(axis), K: rapid.Int64Range(0, x.Shape[axis]).Draw(t, "k"), Least: rapid.Bool().Draw(t, "least")}
		out, got := run(t, op, []graph.TensorType{x}, [][]byte{data})
		values, positions := kerneltest.Load(x.DType, got[0]), kerneltest.Load(graph.I64, got[1])
		if op.K == 0 {
			return
		}
		first := slices.Clone(out[0].Shape)
		first[axis] = 1
		kerneltest.Coords(first, func(at []int64, _ int) {
			all := lane(at)
			want := make([]int, len(all))
			for i := range want {
				want[i] = i
			}
			slices.SortStableFunc(want, func(a, b int) int {
				c := order(x.DType, all[b], all[a])
				if op.Least {
					c = -c
				}
				return c
			})
			c := slices.Clone(at)
			for i, w := range want[:op.K] {
				c[axis] = int64(i)
				flat := kerneltest.Flatten(out[0].Shape, c)
				if positions[flat].I != int64(w) || order(x.DType, values[flat], all[w]) != 0 {
					t.Fatalf("%+v of %v: number %d at %v is %v of %d, want %v of %d", op, x, i, at, values[flat], positions[flat].I, all[w], w)
				}
			}
		})
	})
}

// TestTopKSieve compares the best of long rows, of many equal elements too, with
// those of a sorted row.
func TestTopKSieve(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		n, lanes := rapid.IntRange(100, 3000).Draw(t, "n"), 3
		r := rand.New(rand.NewPCG(uint64(n), rapid.Uint64().Draw(t, "seed")))
		kinds := rapid.SampledFrom([]int{2, n / 8, 1 << 30}).Draw(t, "kinds")
		x := make([]float32, lanes*n)
		for i := range x {
			x[i] = float32(r.IntN(kinds) - kinds/2)
			if r.IntN(2) == 0 {
				x[i] = -x[i] // of zeros, both
			}
		}
		if rapid.Bool().Draw(t, "not numbers") {
			inf := float32(math.Inf(1))
			for _, v := range []float32{inf, -inf, float32(math.NaN())} {
				x[r.IntN(len(x))] = v
			}
		}
		op := &graph.TopK{Axis: 1, K: int64(rapid.IntRange(1, n/4).Draw(t, "k")), Least: rapid.Bool().Draw(t, "least")}
		dt := graph.TensorType{DType: graph.F32, Shape: []int64{int64(lanes), int64(n)}}
		_, got := run(t, op, []graph.TensorType{dt}, [][]byte{tensor.RawBytes(x)})
		values, positions := tensor.F32s(got[0]), tensor.View[int64](got[1])
		for lane := range lanes {
			row := x[lane*n:][:n]
			want := make([]int64, n)
			for i := range want {
				want[i] = int64(i)
			}
			slices.SortStableFunc(want, func(a, b int64) int {
				if op.Least {
					a, b = b, a
				}
				v, w := row[a], row[b]
				switch {
				case v != v && w != w || v == w:
					return 0
				case v > w || v != v:
					return -1
				}
				return 1
			})
			at := lane * int(op.K)
			require.Equal(t, want[:op.K], positions[at:][:op.K])
			for i, p := range want[:op.K] {
				require.Equal(t, math.Float32bits(row[p]), math.Float32bits(values[at+i]))
			}
		}
	})
}

func TestCumulate(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		x, data, axis, lane := drawLanes(t)
		op := &graph.Cumulate{
			Axis: int64(axis), Fn: rapid.SampledFrom([]graph.CumulateFn{graph.CumulateSum, graph.CumulateProd}).Draw(t, "fn"),
			Exclusive: rapid.Bool().Draw(t, "exclusive"), Reverse: rapid.Bool().Draw(t, "reverse"),
		}
		_, got := run(t, op, []graph.TensorType{x}, [][]byte{data})
		want := make([]kerneltest.Elem, tensor.Elements(x.Shape))
		kerneltest.Coords(x.Shape, func(at []int64, flat int) {
			all := lane(at)
			n := int(at[axis])
			if op.Reverse {
				slices.Reverse(all)
				n = len(all) - 1 - n
			}
			if !op.Exclusive {
				n++
			}
			acc := kerneltest.Elem{}
			if op.Fn == graph.CumulateProd {
				acc = kerneltest.Elem{F: 1, I: 1}
			}
			for _, v := range all[:n] {
				if op.Fn == graph.CumulateSum {
					acc = kerneltest.Normal(x.DType, kerneltest.Elem{F: acc.F + v.F, I: acc.I + v.I})
				} else {
					acc = kerneltest.Normal(x.DType, kerneltest.Elem{F: acc.F * v.F, I: acc.I * v.I})
				}
			}
			want[flat] = acc
		})
		kerneltest.Compare(t, op, x, got[0], want, 0)
	})
}

func TestTfIdf(t *testing.T) {
	op := &graph.TfIdf{
		MinGram: 1, MaxGram: 3, MaxSkip: 1, Counts: []int64{0, 2, 6}, Columns: []int64{4, 0, 1, 2, 3},
		Pool: []int64{1, -7, 1, 2, 2, 3, 1, 2, 3},
	}
	x := graph.TensorType{DType: graph.I32, Shape: []int64{2, 5}}
	data := kerneltest.Store(graph.I32, []kerneltest.Elem{{I: 1}, {I: 2}, {I: 2}, {I: 3}, {I: 3}, {I: -7}, {I: 1}, {I: 9}, {I: 2}, {I: 9}})
	for _, tt := range []struct {
		name     string
		presence bool
		weights  []float64
		want     []float32
	}{
		// Row 1: of 1 and 2 one follows at distance 1 and one at 2, 2 and 3 do
		// three times, and 1 2 3 once at distance 1 (no) and 2 (1 2 3).
		{"counts", false, nil, []float32{0, 2, 3, 1, 1, 1, 1, 0, 0, 1}},
		{"presence", true, nil, []float32{0, 1, 1, 1, 1, 1, 1, 0, 0, 1}},
		{"weighted", false, []float64{1, 10, 100, 1000, 0.5}, []float32{0, 20, 300, 1000, 0.5, 1, 10, 0, 0, 0.5}},
		{"weighted presence", true, []float64{1, 10, 100, 1000, 0.5}, []float32{0, 10, 100, 1000, 0.5, 1, 10, 0, 0, 0.5}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := *op
			o.Presence, o.Weights = tt.presence, tt.weights
			_, got := run(t, &o, []graph.TensorType{x}, [][]byte{data})
			require.Equal(t, tt.want, tensor.F32s(got[0]))
		})
	}
	long := *op
	long.MaxSkip = math.MaxInt64
	_, got := run(t, &long, []graph.TensorType{x}, [][]byte{data})
	require.Equal(t, float32(1), tensor.F32s(got[0])[5], "a huge skip ends")
}
