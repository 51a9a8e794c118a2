package reduce

import (
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// reduceFloats reduces by the definition.
func reduceFloats(fn graph.ReduceFn, x []float64) float64 {
	sum, product, l1, squares, exps := 0.0, 1.0, 0.0, 0.0, 0.0
	most, least := math.Inf(-1), math.Inf(1)
	for _, v := range x {
		sum += v
		product *= v
		l1 += math.Abs(v)
		squares += v * v
		most, least = max(most, v), min(least, v)
	}
	for _, v := range x {
		exps += math.Exp(v - most)
	}
	switch fn {
	case graph.ReduceSum:
		return sum
	case graph.ReduceMean:
		return sum / float64(len(x))
	case graph.ReduceMax:
		return most
	case graph.ReduceMin:
		return least
	case graph.ReduceProd:
		return product
	case graph.ReduceL1:
		return l1
	case graph.ReduceL2:
		return math.Sqrt(squares)
	case graph.ReduceLogSum:
		return math.Log(sum)
	case graph.ReduceSumSquare:
		return squares
	}
	if math.IsInf(most, 0) {
		return most
	}
	return most + math.Log(exps)
}

// reduceInts reduces exactly; ok is false for functions that need floats.
func reduceInts(fn graph.ReduceFn, t graph.DType, x []kerneltest.Elem) (e kerneltest.Elem, ok bool) {
	var r *big.Int
	sum, product, l1, squares := new(big.Int), big.NewInt(1), new(big.Int), new(big.Int)
	for _, e := range x {
		v := kerneltest.Exact(t, e)
		sum.Add(sum, v)
		product.And(product.Mul(product, v), new(big.Int).SetUint64(math.MaxUint64))
		l1.Add(l1, new(big.Int).Abs(v))
		squares.Add(squares, new(big.Int).Mul(v, v))
		switch {
		case r == nil, fn == graph.ReduceMax && v.Cmp(r) > 0, fn == graph.ReduceMin && v.Cmp(r) < 0:
			r = v
		}
	}
	switch fn {
	case graph.ReduceSum:
		return kerneltest.Wrapped(sum), true
	case graph.ReduceMean:
		if len(x) == 0 {
			return kerneltest.Elem{}, true
		}
		// The sum itself is kept in 64 bits.
		if t.IsUnsigned() {
			return kerneltest.Elem{I: int64(uint64(kerneltest.Wrapped(sum).I) / uint64(len(x)))}, true
		}
		return kerneltest.Elem{I: kerneltest.Wrapped(sum).I / int64(len(x))}, true
	case graph.ReduceProd:
		return kerneltest.Wrapped(product), true
	case graph.ReduceL1:
		return kerneltest.Wrapped(l1), true
	case graph.ReduceSumSquare:
		return kerneltest.Wrapped(squares), true
	case graph.ReduceMax, graph.ReduceMin:
		if r != nil {
			return kerneltest.Wrapped(r), true
		}
		low, high := big.NewInt(0), new(big.Int).Lsh(big.NewInt(1), uint(8*t.Size()))
		if t == graph.Bool {
			high.SetInt64(2)
		}
		if t.IsSigned() {
			high.Rsh(high, 1)
			low.Neg(high)
		}
		if fn == graph.ReduceMax {
			return kerneltest.Wrapped(low), true
		}
		return kerneltest.Wrapped(high.Sub(high, big.NewInt(1))), true
	}
	return kerneltest.Elem{}, false
}

func TestReduce(t *testing.T) {
	for _, fn := range kerneltest.ReduceFns {
		t.Run(string(fn), func(t *testing.T) {
			kerneltest.CheckPaths(t, func(t *rapid.T) {
				types := kerneltest.NumTypes
				if fn == graph.ReduceMax || fn == graph.ReduceMin {
					types = append(types, graph.Bool)
				}
				in := graph.TensorType{DType: rapid.SampledFrom(types).Draw(t, "type"), Shape: kerneltest.DrawShape(t, 0)}
				op := &graph.Reduce{Fn: fn, Axes: []int64{}, KeepDims: true}
				for a := range in.Shape {
					if rapid.Bool().Draw(t, "reduced") {
						op.Axes = append(op.Axes, int64(a))
					}
				}
				data := kerneltest.DrawTensor(t, in)
				out, got := run(t, op, []graph.TensorType{in}, [][]byte{data})
				x := kerneltest.Load(in.DType, data)
				groups := make([][]kerneltest.Elem, tensor.Elements(out[0].Shape))
				kerneltest.Coords(in.Shape, func(at []int64, flat int) {
					g := kerneltest.Flatten(out[0].Shape, at)
					groups[g] = append(groups[g], x[flat])
				})
				results := kerneltest.Load(in.DType, got[0])
				for g, group := range groups {
					if !in.DType.IsFloat() {
						if want, ok := reduceInts(fn, in.DType, group); ok {
							if want = kerneltest.Normal(in.DType, want); results[g].I != want.I {
								t.Fatalf("%s of %v along %v: element %d is %d, want %d", fn, in, op.Axes, g, results[g].I, want.I)
							}
							continue
						}
					}
					floats := make([]float64, len(group))
					size := 0.0
					for i, e := range group {
						floats[i] = e.F
						if !in.DType.IsFloat() {
							floats[i], _ = new(big.Float).SetInt(kerneltest.Exact(in.DType, e)).Float64()
						}
						size += math.Abs(floats[i])
					}
					b := reduceBounds(fn, in.DType, floats, size)
					if !in.DType.IsFloat() {
						if !b.holdsInteger(in.DType, results[g].I) {
							t.Fatalf("%s of %v along %v: element %d is %d, want %v truncated", fn, in, op.Axes, g, results[g].I, b)
						}
						continue
					}
					near := false // rounded to the type
					for _, v := range []float64{b.want, b.low, b.high} {
						near = near || kerneltest.Ulps(in.DType, results[g].F, kerneltest.Normal(in.DType, kerneltest.Elem{F: v}).F) <= 1
					}
					if !near && !b.holds(results[g].F) {
						t.Fatalf("%s of %v along %v: element %d of %d is %v, want %v", fn, in, op.Axes, g, len(group), results[g].F, b)
					}
				}
			})
		})
	}
}

// reduced is what a result may be: want, or what errors of rounding make of it.
type reduced struct {
	want, low, high float64
	any             bool // the errors may make it whatever they like
}

func (b reduced) holds(v float64) bool {
	return b.any || b.low <= v && v <= b.high || v == b.want
}

// holdsInteger allows what lies between its bounds after they were truncated. Where
// only one of them is a number of the type, the result may be anything.
func (b reduced) holdsInteger(t graph.DType, v int64) bool {
	cast := func(f float64) int64 {
		return kerneltest.Normal(t, kerneltest.CastReference(graph.F64, t, kerneltest.Elem{F: f})).I
	}
	if b.any || v == cast(b.want) {
		return true
	}
	least, greatest := extremes[float64](t)
	fits := func(f float64) bool { return f > least-1 && f < greatest+1 }
	if !fits(b.low) || !fits(b.high) {
		return cast(b.low) != cast(b.high)
	}
	if t == graph.U64 {
		return uint64(cast(b.low)) <= uint64(v) && uint64(v) <= uint64(cast(b.high))
	}
	return cast(b.low) <= v && v <= cast(b.high)
}

// reduceBounds returns what a sum of magnitudes size may become under a function
// that computes in float64, but adds float32 as docs/kernels.md says.
func reduceBounds(fn graph.ReduceFn, t graph.DType, x []float64, size float64) reduced {
	want := reduceFloats(fn, x)
	// Each of so many steps rounds by half a unit, and so does the reference.
	steps := float64(2*len(x)+4) * 0x1p-53
	around := func(slack float64) reduced { return reduced{want: want, low: want - slack, high: want + slack} }
	sums := max(steps, 1e-13) * size
	if t.IsFloat() && t != graph.F64 {
		sums = sumError * size
	}
	switch fn {
	case graph.ReduceSum, graph.ReduceMean:
		return around(sums)
	case graph.ReduceProd, graph.ReduceSumSquare:
		return around(max(steps, 1e-12) * math.Abs(want))
	case graph.ReduceL2:
		// Squares are that exact, and no better than the least number where they
		// are tiny.
		squares := reduceFloats(graph.ReduceSumSquare, x)
		slack := max(steps, 1e-12)*squares + float64(len(x))*math.SmallestNonzeroFloat64
		return reduced{want: want, low: math.Sqrt(max(squares-slack, 0)) * (1 - 0x1p-52), high: math.Sqrt(squares+slack) * (1 + 0x1p-52)}
	case graph.ReduceLogSum:
		// The logarithm of what is left of a sum may be that of anything down to
		// nothing, and below there is none.
		sum := reduceFloats(graph.ReduceSum, x)
		b := reduced{want: want, low: math.Log(sum - sums), high: math.Log(sum + sums), any: sum-sums < 0 && sum+sums >= 0}
		if sum-sums == 0 {
			b.low = math.Inf(-1)
		}
		b.low, b.high = b.low-4e-16*math.Abs(b.low), b.high+4e-16*math.Abs(b.high)
		return b
	}
	return around(max(steps, 1e-13) * size)
}

// sumError bounds the error of a sum of float32 as a part of the sum of
// magnitudes, as in docs/kernels.md.
const sumError = 40. / (1 << 24)

// TestReduceNothing reduces empty sets.
func TestReduceNothing(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		fn    graph.ReduceFn
		float float64
		i8    int64
	}{
		{graph.ReduceSum, 0, 0}, {graph.ReduceMean, nan, 0}, {graph.ReduceMax, -inf, -128}, {graph.ReduceMin, inf, 127},
		{graph.ReduceProd, 1, 1}, {graph.ReduceL1, 0, 0}, {graph.ReduceL2, 0, 0}, {graph.ReduceLogSum, -inf, 0},
		{graph.ReduceLogSumExp, -inf, 0}, {graph.ReduceSumSquare, 0, 0},
	} {
		for _, d := range append(kerneltest.FloatTypes, graph.I8) {
			in := graph.TensorType{DType: d, Shape: []int64{2, 0, 3}}
			out, got := run(t, &graph.Reduce{Fn: c.fn, Axes: []int64{1}}, []graph.TensorType{in}, [][]byte{{}})
			require.Equal(t, []int64{2, 3}, out[0].Shape)
			for _, e := range kerneltest.Load(d, got[0]) {
				if d.IsFloat() {
					require.Zerof(t, kerneltest.Ulps(d, e.F, c.float), "%s of no %v: %v", c.fn, d, e.F)
				} else {
					require.Equalf(t, c.i8, e.I, "%s of no %v", c.fn, d)
				}
			}
		}
	}
}

// TestReduceSumIsPrecise adds what float32 accumulation would lose.
func TestReduceSumIsPrecise(t *testing.T) {
	x := make([]kerneltest.Elem, 1<<20)
	for i := range x {
		x[i].F = 0.1
	}
	x[0].F = 1 << 24
	in := graph.TensorType{DType: graph.F32, Shape: []int64{1 << 20}}
	_, got := run(t, &graph.Reduce{Fn: graph.ReduceSum, Axes: []int64{0}}, []graph.TensorType{in}, [][]byte{kerneltest.Store(graph.F32, x)})
	want := 1<<24 + (1<<20-1)*float64(float32(0.1))
	require.InEpsilon(t, want, float64(tensor.F32s(got[0])[0]), sumError)
}

func TestLogSumExpIsStable(t *testing.T) {
	for _, d := range kerneltest.FloatTypes {
		for _, c := range []struct{ x, y, want float64 }{
			{10000, 10000, 10000 + math.Ln2}, {-10000, -10000, -10000 + math.Ln2}, {math.Inf(1), 0, math.Inf(1)},
			{math.Inf(-1), 1, 1}, {math.Inf(-1), math.Inf(-1), math.Inf(-1)}, {math.NaN(), math.Inf(1), math.NaN()},
		} {
			in := graph.TensorType{DType: d, Shape: []int64{2}}
			x := kerneltest.Store(d, []kerneltest.Elem{{F: c.x}, {F: c.y}})
			_, got := run(t, &graph.Reduce{Fn: graph.ReduceLogSumExp, Axes: []int64{0}}, []graph.TensorType{in}, [][]byte{x})
			large := kerneltest.Load(d, kerneltest.Store(d, []kerneltest.Elem{{F: c.x}}))[0].F
			if want := c.want - c.x + large; math.IsInf(c.x, 0) || want != want {
				require.Zero(t, kerneltest.Ulps(d, kerneltest.Load(d, got[0])[0].F, c.want))
			} else {
				require.LessOrEqual(t, kerneltest.Ulps(d, kerneltest.Load(d, got[0])[0].F, want), 1.0)
			}
		}
	}
}

func TestReduceRefusesTypes(t *testing.T) {
	i4 := []graph.TensorType{{DType: graph.I4, Shape: []int64{2}}}
	_, err := newKernel(&graph.Reduce{Fn: graph.ReduceSum}, i4, i4)
	require.ErrorContains(t, err, "has no CPU kernel")
}
