package kernel

import (
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/graph"
)

var reduceFns = []graph.ReduceFn{graph.ReduceSum, graph.ReduceMean, graph.ReduceMax, graph.ReduceMin, graph.ReduceProd,
	graph.ReduceL1, graph.ReduceL2, graph.ReduceLogSum, graph.ReduceLogSumExp, graph.ReduceSumSquare}

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
func reduceInts(fn graph.ReduceFn, t graph.DType, x []elem) (e elem, ok bool) {
	var r *big.Int
	sum, product, l1, squares := new(big.Int), big.NewInt(1), new(big.Int), new(big.Int)
	for _, e := range x {
		v := exact(t, e)
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
		return wrapped(sum), true
	case graph.ReduceMean:
		if len(x) == 0 {
			return elem{}, true
		}
		// The sum itself is kept in 64 bits.
		if t.IsUnsigned() {
			return elem{i: int64(uint64(wrapped(sum).i) / uint64(len(x)))}, true
		}
		return elem{i: wrapped(sum).i / int64(len(x))}, true
	case graph.ReduceProd:
		return wrapped(product), true
	case graph.ReduceL1:
		return wrapped(l1), true
	case graph.ReduceSumSquare:
		return wrapped(squares), true
	case graph.ReduceMax, graph.ReduceMin:
		if r != nil {
			return wrapped(r), true
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
			return wrapped(low), true
		}
		return wrapped(high.Sub(high, big.NewInt(1))), true
	}
	return elem{}, false
}

func TestReduce(t *testing.T) {
	for _, fn := range reduceFns {
		t.Run(string(fn), func(t *testing.T) {
			checkPaths(t, func(t *rapid.T) {
				types := numTypes
				if fn == graph.ReduceMax || fn == graph.ReduceMin {
					types = append(types, graph.Bool)
				}
				in := graph.TensorType{DType: rapid.SampledFrom(types).Draw(t, "type"), Shape: drawShape(t, 0)}
				op := &graph.Reduce{Fn: fn, Axes: []int64{}, KeepDims: true}
				for a := range in.Shape {
					if rapid.Bool().Draw(t, "reduced") {
						op.Axes = append(op.Axes, int64(a))
					}
				}
				data := drawTensor(t, in)
				out, got := run(t, op, []graph.TensorType{in}, [][]byte{data})
				x := load(in.DType, data)
				groups := make([][]elem, elements(out[0].Shape))
				coords(in.Shape, func(at []int64, flat int) {
					g := flatten(out[0].Shape, at)
					groups[g] = append(groups[g], x[flat])
				})
				results := load(in.DType, got[0])
				for g, group := range groups {
					if !in.DType.IsFloat() {
						if want, ok := reduceInts(fn, in.DType, group); ok {
							if want = normal(in.DType, want); results[g].i != want.i {
								t.Fatalf("%s of %v along %v: element %d is %d, want %d", fn, in, op.Axes, g, results[g].i, want.i)
							}
							continue
						}
					}
					floats := make([]float64, len(group))
					size := 0.0
					for i, e := range group {
						floats[i] = e.f
						if !in.DType.IsFloat() {
							floats[i], _ = new(big.Float).SetInt(exact(in.DType, e)).Float64()
						}
						size += math.Abs(floats[i])
					}
					want := reduceFloats(fn, floats)
					if !in.DType.IsFloat() {
						// A result next to an integer may be truncated either way.
						near := math.Abs(want-math.Round(want)) < 1e-6 || math.Abs(want) > 1e15
						// So may the logarithm of what cancellation in float64 leaves.
						near = near || fn == graph.ReduceLogSum && 1e-6*math.Exp(want) < 1e-13*size
						if w := castReference(graph.F64, in.DType, elem{f: want}); !near && normal(in.DType, w).i != results[g].i {
							t.Fatalf("%s of %v along %v: element %d is %d, want %v", fn, in, op.Axes, g, results[g].i, want)
						}
						continue
					}
					// Cancellation in float64 is the reference's as well.
					slack := 1e-13 * size
					switch fn {
					case graph.ReduceProd, graph.ReduceSumSquare, graph.ReduceL2:
						slack = 1e-12 * math.Abs(want)
					}
					sums := 1e-13 * size
					if in.DType != graph.F64 {
						sums = sumError * size
					}
					if fn == graph.ReduceSum || fn == graph.ReduceMean {
						slack = sums
					}
					if fn == graph.ReduceLogSum {
						slack = sums / math.Abs(math.Exp(want))
					}
					if !(math.Abs(results[g].f-want) <= slack) && !(ulps(in.DType, results[g].f, normal(in.DType, elem{f: want}).f) <= 1) {
						t.Fatalf("%s of %v along %v: element %d of %d is %v, want %v", fn, in, op.Axes, g, len(group), results[g].f, want)
					}
				}
			})
		})
	}
}

// sumError bounds the error of a sum of float32 as a part of the sum of
// magnitudes, as docs/kernels.md has it.
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
		for _, d := range append(floatTypes, graph.I8) {
			in := graph.TensorType{DType: d, Shape: []int64{2, 0, 3}}
			out, got := run(t, &graph.Reduce{Fn: c.fn, Axes: []int64{1}}, []graph.TensorType{in}, [][]byte{{}})
			require.Equal(t, []int64{2, 3}, out[0].Shape)
			for _, e := range load(d, got[0]) {
				if d.IsFloat() {
					require.Zerof(t, ulps(d, e.f, c.float), "%s of no %v: %v", c.fn, d, e.f)
				} else {
					require.Equalf(t, c.i8, e.i, "%s of no %v", c.fn, d)
				}
			}
		}
	}
}

// TestReduceSumIsPrecise adds what float32 accumulation would lose.
func TestReduceSumIsPrecise(t *testing.T) {
	x := make([]elem, 1<<20)
	for i := range x {
		x[i].f = 0.1
	}
	x[0].f = 1 << 24
	in := graph.TensorType{DType: graph.F32, Shape: []int64{1 << 20}}
	_, got := run(t, &graph.Reduce{Fn: graph.ReduceSum, Axes: []int64{0}}, []graph.TensorType{in}, [][]byte{store(graph.F32, x)})
	want := 1<<24 + (1<<20-1)*float64(float32(0.1))
	require.InEpsilon(t, want, float64(f32s(got[0])[0]), sumError)
}

func TestLogSumExpIsStable(t *testing.T) {
	for _, d := range floatTypes {
		for _, c := range []struct{ x, y, want float64 }{
			{10000, 10000, 10000 + math.Ln2}, {-10000, -10000, -10000 + math.Ln2}, {math.Inf(1), 0, math.Inf(1)},
			{math.Inf(-1), 1, 1}, {math.Inf(-1), math.Inf(-1), math.Inf(-1)}, {math.NaN(), math.Inf(1), math.NaN()},
		} {
			in := graph.TensorType{DType: d, Shape: []int64{2}}
			x := store(d, []elem{{f: c.x}, {f: c.y}})
			_, got := run(t, &graph.Reduce{Fn: graph.ReduceLogSumExp, Axes: []int64{0}}, []graph.TensorType{in}, [][]byte{x})
			large := load(d, store(d, []elem{{f: c.x}}))[0].f
			if want := c.want - c.x + large; math.IsInf(c.x, 0) || want != want {
				require.Zero(t, ulps(d, load(d, got[0])[0].f, c.want))
			} else {
				require.LessOrEqual(t, ulps(d, load(d, got[0])[0].f, want), 1.0)
			}
		}
	}
}

// TestMeansOfBlocks compares means of planes with those of blocks of channels,
// bit for bit, on each path, and with means by AveragePool.
func TestMeansOfBlocks(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		if path == pathGo {
			return
		}
		lanes := path.lanes()
		r := seeded(7)
		for _, pixels := range []int{1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 49, 63, 64, 65, 100, 128, 196, 1024, 1025, 2500} {
			planar, blocked := make([]float32, lanes*pixels), make([]float32, lanes*pixels)
			for c := range lanes {
				for p := range pixels {
					v := float32(r.NormFloat64())
					planar[c*pixels+p], blocked[p*lanes+c] = v, v
				}
			}
			n, l := int64(pixels), int64(lanes)
			op := &graph.Reduce{Fn: graph.ReduceMean, Axes: []int64{2, 3}, KeepDims: true}
			_, a := run(t, op, []graph.TensorType{{DType: graph.F32, Shape: []int64{1, l, 1, n}}}, [][]byte{rawBytes(planar)})
			_, b := run(t, op, []graph.TensorType{{DType: graph.F32, Shape: []int64{1, 1, 1, n, l}}}, [][]byte{rawBytes(blocked)})
			require.Equal(t, a[0], b[0], "%d pixels", pixels)
			ones, zeros := []int64{1, 1}, []int64{0, 0}
			pool := &graph.AveragePool{Kernel: []int64{1, n}, Strides: ones, Dilations: ones, PadsBegin: zeros, PadsEnd: zeros}
			_, c := run(t, pool, []graph.TensorType{{DType: graph.F32, Shape: []int64{1, l, 1, n}}}, [][]byte{rawBytes(planar)})
			require.Equal(t, a[0], c[0], "%d pixels", pixels)
		}
	})
}
