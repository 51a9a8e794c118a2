package vec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// precision says how far from the exact result the loops for float32 may be,
// in units in the last place of it, as docs/kernels.md does. What is measured
// in units of the argument's precision loses its own near a limit of zero.
type precision struct {
	op          graph.Unary
	exact       func(x float64) float64
	plain, fast float64 // in Go, with SIMD instructions
	absolute    bool    // in units of x's precision, not the result's
	product     bool    // with x, of what may be too small for a normal number
}

var precisions = []precision{
	{op: graph.Unary{Fn: graph.Exp}, exact: math.Exp, plain: 0.56, fast: 1},
	{op: graph.Unary{Fn: graph.Log}, exact: math.Log, plain: 0.56, fast: 1},
	{op: graph.Unary{Fn: graph.Erf}, exact: math.Erf, plain: 0.56, fast: 4},
	{op: graph.Unary{Fn: graph.Tanh}, exact: math.Tanh, plain: 0.56, fast: 2.6},
	{op: graph.Unary{Fn: graph.Sigmoid}, exact: Sigmoid64, plain: 0.56, fast: 2.4},
	{op: graph.Unary{Fn: graph.Softplus}, exact: Softplus64, plain: 0.56, fast: 2.7},
	{op: graph.Unary{Fn: graph.Elu, Alpha: 1.5}, exact: func(x float64) float64 {
		if x < 0 {
			return 1.5 * math.Expm1(x)
		}
		return x
	}, plain: 0.56, fast: 1.8},
	{op: graph.Unary{Fn: graph.Celu, Alpha: 2}, exact: func(x float64) float64 {
		if x < 0 {
			return 2 * math.Expm1(x/2)
		}
		return x
	}, plain: 0.56, fast: 1.1},
	{op: graph.Unary{Fn: graph.Selu, Alpha: 1.5, Beta: 1.25}, exact: func(x float64) float64 {
		if x < 0 {
			return 1.25 * 1.5 * math.Expm1(x)
		}
		return 1.25 * x
	}, plain: 0.56, fast: 2.5},
	{op: graph.Unary{Fn: graph.Swish, Alpha: 1}, exact: func(x float64) float64 { return x * Sigmoid64(x) }, plain: 2, fast: 3.2, product: true},
	{op: graph.Unary{Fn: graph.Mish}, exact: func(x float64) float64 { return x * math.Tanh(Softplus64(x)) }, plain: 2, fast: 4.2, product: true},
	{op: graph.Unary{Fn: graph.Gelu}, exact: func(x float64) float64 { return x * 0.5 * math.Erfc(-x/math.Sqrt2) }, plain: 2, fast: 1.6, absolute: true},
	{op: graph.Unary{Fn: graph.Sin}, exact: math.Sin, plain: 0.51, fast: 2},
	{op: graph.Unary{Fn: graph.Cos}, exact: math.Cos, plain: 0.51, fast: 2},
	{op: graph.Unary{Fn: graph.Atan}, exact: math.Atan, plain: 0.51, fast: 2},
	{op: graph.Unary{Fn: graph.Asin}, exact: math.Asin, plain: 0.51, fast: 2},
	{op: graph.Unary{Fn: graph.Acos}, exact: math.Acos, plain: 0.51, fast: 2},
	{op: graph.Unary{Fn: graph.Sinh}, exact: math.Sinh, plain: 0.51, fast: 2},
	{op: graph.Unary{Fn: graph.Cosh}, exact: math.Cosh, plain: 0.51, fast: 2},
	{op: graph.Unary{Fn: graph.GeluTanh}, exact: func(x float64) float64 {
		return x * Sigmoid64(2*geluSlope*(x+0.044715*x*x*x))
	}, plain: 2, fast: 1.95, absolute: true},
}

// sweep returns numbers of all magnitudes, close ones up to 110, and those where
// sine and cosine vanish.
func sweep() []float32 {
	var xs []float32
	for b := uint32(0); b < 0x7f800000; b += 40009 {
		x := math.Float32frombits(b)
		xs = append(xs, x, -x)
	}
	for i := range 200000 {
		x := float32(i) * (110. / 200000)
		xs = append(xs, x, -x)
	}
	for i := range 100000 { // where arcs are
		x := float32(i) * (1. / 100000)
		xs = append(xs, x, -x)
	}
	// Next to whole quarter turns.
	for k := 1; k < 1<<19; k += 31 {
		xs = append(xs, float32(float64(k)*math.Pi/2))
	}
	return xs
}

// unit returns the distance from x to the next float32 away from zero.
func unit(x float64) float64 {
	y := math.Abs(x)
	return float64(math.Nextafter32(float32(y), float32(math.Inf(1)))) - float64(float32(y))
}

// TestFloat32Precision measures the functions that are computed by polynomials
// against the math package, over all magnitudes and close up.
func TestFloat32Precision(t *testing.T) {
	if testing.Short() {
		t.Skip("millions of numbers")
	}
	xs := sweep()
	dst := make([]float32, len(xs))
	wants := make([]float64, len(xs))
	for _, c := range precisions {
		for i, x := range xs {
			wants[i] = c.exact(float64(x))
		}
		t.Run(string(c.op.Fn), func(t *testing.T) {
			kerneltest.EachPath(t, func(t *testing.T) {
				UnaryF32(&c.op)(dst, xs)
				worst, at := 0.0, float32(0)
				for i, x := range xs {
					want := wants[i]
					if w := float32(want); want != want || math.IsInf(float64(w), 0) {
						if kerneltest.Ulps(graph.F32, float64(dst[i]), want) != 0 {
							t.Fatalf("%s(%v) = %v, want %v", c.op.Fn, x, dst[i], want)
						}
						continue
					}
					u := unit(want)
					switch {
					case c.absolute:
						u = unit(float64(x))
					case c.product:
						u = max(u, math.Abs(float64(x))*math.SmallestNonzeroFloat32)
					}
					if e := math.Abs(float64(dst[i])-want) / u; !(e <= worst) {
						worst, at = e, x
					}
				}
				t.Logf("%-10s %.2f units, at %v", c.op.Fn, worst, at)
				limit := c.fast
				if tensor.Path == tensor.PathGo {
					limit = c.plain
				}
				require.LessOrEqualf(t, worst, limit, "%s: units in the last place, at %v", c.op.Fn, at)
			})
		})
	}
}

// TestFloat32Specials checks NaN, infinities, zeros and the smallest numbers.
func TestFloat32Specials(t *testing.T) {
	inf, zero := float32(math.Inf(1)), float32(math.Copysign(0, -1))
	xs := []float32{float32(math.NaN()), math.Float32frombits(0xffc00001), inf, -inf, 0, zero, 1e-45, -1e-45, 1e-39, -1e-39, math.MaxFloat32, -math.MaxFloat32}
	all := precisions
	for _, fn := range kerneltest.UnaryFns {
		op := graph.Unary{Fn: fn, Alpha: 0.25, Beta: 0.5}
		all = append(all, precision{op: op, exact: func(x float64) float64 { return unaryReference(&op, x) }})
	}
	kerneltest.EachPath(t, func(t *testing.T) {
		for _, c := range all {
			dst := make([]float32, len(xs))
			UnaryF32(&c.op)(dst, xs)
			for i, x := range xs {
				want := float32(c.exact(float64(x)))
				require.LessOrEqualf(t, kerneltest.Ulps(graph.F32, float64(dst[i]), float64(want)), 2., "%s(%v) = %v, want %v", c.op.Fn, x, dst[i], want)
				if x == 0 && want == 0 {
					require.Equalf(t, math.Signbit(float64(want)), math.Signbit(float64(dst[i])), "%s(%v) = %v, want %v", c.op.Fn, x, dst[i], want)
				}
			}
		}
	})
}

// TestPowHalf compares powers of one half with the math package's.
func TestPowHalf(t *testing.T) {
	xs := append(sweep()[:1<<12], float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), 0, float32(math.Copysign(0, -1)))
	in := []graph.TensorType{{DType: graph.F32, Shape: []int64{int64(len(xs))}}, {DType: graph.F32}}
	kerneltest.EachPath(t, func(t *testing.T) {
		_, got := run(t, &graph.Binary{Fn: graph.Pow}, in, [][]byte{tensor.RawBytes(xs), tensor.RawBytes([]float32{0.5})})
		for i, y := range tensor.F32s(got[0]) {
			want := float32(math.Pow(float64(xs[i]), 0.5))
			require.Truef(t, math.Float32bits(want) == math.Float32bits(y) || want != want && y != y, "%v to the power of ½ is %v, want %v", xs[i], y, want)
		}
	})
}

// TestPowPrecision compares powers with the math package's, rounded once: over
// all magnitudes of either operand, and of all pairs of special ones.
func TestPowPrecision(t *testing.T) {
	if testing.Short() {
		t.Skip("hundreds of thousands of numbers")
	}
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	special := []float32{0, float32(math.Copysign(0, -1)), 1, -1, 2, -2, 3, -3, 0.5, -0.5, 2.5, -2.5, 1e-45, -1e-45, 1e-39, 1 << 24, 1<<24 + 2, -(1<<24 + 2),
		1<<23 + 1, -(1<<23 + 1), math.MaxFloat32, -math.MaxFloat32, 0.99999994, 1.0000001, inf, -inf, nan}
	var x, y []float32
	for _, v := range special {
		for _, w := range special {
			x, y = append(x, v), append(y, w)
		}
	}
	r := rand.New(rand.NewPCG(3, 4))
	for range 200000 {
		v := math.Float32frombits(r.Uint32() &^ (1 << 31))
		x, y = append(x, v), append(y, float32(r.NormFloat64()*20))
		// A result of any magnitude.
		x, y = append(x, v), append(y, float32((r.Float64()*300-150)/math.Log2(float64(v))))
		x, y = append(x, -v), append(y, float32(r.IntN(40)-20))
	}
	exacts := make([]float64, len(x))
	for i := range x {
		exacts[i] = math.Pow(float64(x[i]), float64(y[i]))
	}
	dt := graph.TensorType{DType: graph.F32, Shape: []int64{int64(len(x))}}
	kerneltest.EachPath(t, func(t *testing.T) {
		_, got := run(t, &graph.Binary{Fn: graph.Pow}, []graph.TensorType{dt, dt}, [][]byte{tensor.RawBytes(x), tensor.RawBytes(y)})
		worst := 0.0
		for i, z := range tensor.F32s(got[0]) {
			exact := exacts[i]
			want := float32(exact)
			if want != want || math.IsInf(float64(want), 0) || want == 0 {
				if math.Float32bits(want) != math.Float32bits(z) && !(want != want && z != z) && !(math.Abs(float64(z)-exact) <= 0.51*unit(exact)) {
					t.Fatalf("%v to the power of %v is %v, want %v", x[i], y[i], z, want)
				}
				continue
			}
			e := math.Abs(float64(z)-exact) / unit(exact)
			if !(e <= 0.51) {
				t.Fatalf("%v to the power of %v is %v, want %v", x[i], y[i], z, want)
			}
			worst = max(worst, e)
		}
		t.Logf("%.3f units", worst)
	})
}

// TestDivideByOne compares quotients by one number with those of the
// processor's division, bit for bit.
func TestDivideByOne(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	r := rand.New(rand.NewPCG(5, 6))
	x := []float32{0, float32(math.Copysign(0, -1)), inf, -inf, nan, 1e-45, -1e-40, 0x1p-60, 0x1.fffffep-61, 0x1p60, 0x1.000002p60, math.MaxFloat32}
	for range 3000 {
		x = append(x, float32(r.NormFloat64()), math.Float32frombits(r.Uint32()), math.Float32frombits(0x3f800000|r.Uint32()&(1<<23-1)))
	}
	n := int64(len(x))
	xt := graph.TensorType{DType: graph.F32, Shape: []int64{n}}
	divisors := []float32{0, float32(math.Copysign(0, -1)), inf, nan, 1e-45, 3e-39, 0x1p-60, 0x1.fffffep-61, 0x1.8p60, 1, -2, 3, -7, 9, 0.1, 1.9999999, 1.0000001}
	for range 200 {
		divisors = append(divisors, float32(r.NormFloat64()), math.Float32frombits(0x3f800000|r.Uint32()&(1<<23-1)))
	}
	kerneltest.EachPath(t, func(t *testing.T) {
		k, err := newKernel(&graph.Binary{Fn: graph.Div}, []graph.TensorType{xt, {DType: graph.F32}}, []graph.TensorType{xt})
		require.NoError(t, err)
		y := make([]float32, n)
		scratch := kerneltest.Aligned(k.Scratch())
		for _, d := range divisors {
			require.NoError(t, k.Run(tensor.Serial{}, [][]byte{tensor.RawBytes(x), tensor.RawBytes([]float32{d})}, [][]byte{tensor.RawBytes(y)}, scratch))
			for i, v := range x {
				want := v / d
				if math.Float32bits(want) != math.Float32bits(y[i]) && (want == want || y[i] == y[i]) {
					t.Fatalf("%v / %v is %v, want %v", v, d, y[i], want)
				}
			}
		}
	})
}

// TestFloat32Places checks that a result does not depend on where its element
// stands, nor on how many there are.
func TestFloat32Places(t *testing.T) {
	xs := sweep()[:1<<14]
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(xs), func(i, j int) { xs[i], xs[j] = xs[j], xs[i] })
	want, got := make([]float32, len(xs)), make([]float32, len(xs))
	kerneltest.EachPath(t, func(t *testing.T) {
		for _, c := range precisions {
			f := UnaryF32(&c.op)
			f(want, xs)
			for at, n := 0, 0; at < len(xs); at, n = at+n, (n+1)%77 {
				n = min(n, len(xs)-at)
				f(got[at:at+n], xs[at:at+n])
			}
			for i := range got {
				if math.Float32bits(want[i]) != math.Float32bits(got[i]) {
					t.Fatalf("%s(%v) is %v at one place, %v at another", c.op.Fn, xs[i], want[i], got[i])
				}
			}
		}
	})
}

// BenchmarkUnary measures functions of float32 in the first-level cache.
func BenchmarkUnary(b *testing.B) {
	x, y := make([]float32, 4096), make([]float32, 4096)
	for i := range x {
		x[i] = float32(i%401-200) / 20
	}
	for p := tensor.PathGo; p <= tensor.FastestPath(); p++ {
		for _, fn := range []graph.UnaryFn{graph.Exp, graph.Log, graph.Erf, graph.Tanh, graph.Sigmoid, graph.Softplus, graph.Gelu, graph.GeluTanh,
			graph.Mish, graph.Elu, graph.Swish, graph.HardSwish, graph.Sqrt, graph.Relu, graph.Abs} {
			b.Run(fmt.Sprintf("%s/%v", fn, p), func(b *testing.B) {
				defer func(chosen tensor.VectorPath) { tensor.Path = chosen }(tensor.Path)
				tensor.Path = p
				f := UnaryF32(&graph.Unary{Fn: fn, Alpha: 1, Beta: 1})
				best := math.Inf(1)
				for b.Loop() {
					start := time.Now()
					for range 16 {
						f(y, x)
					}
					best = min(best, float64(time.Since(start).Nanoseconds())/16/float64(len(x)))
				}
				b.ReportMetric(best, "ns/element")
			})
		}
	}
}

// TestClipLimits compares limited numbers with what Go's min and max give, bit
// for bit, for all pairs of special limits, either of which may be absent.
func TestClipLimits(t *testing.T) {
	inf, nan, zero := float32(math.Inf(1)), float32(math.NaN()), float32(math.Copysign(0, -1))
	special := []float32{nan, -inf, inf, zero, 0, 1, -1, 6, 1e-45, -1e-45, math.MaxFloat32}
	x := special
	for range 7 {
		x = append(x, x[:11]...)
	}
	xt := graph.TensorType{DType: graph.F32, Shape: []int64{int64(len(x))}}
	one := graph.TensorType{DType: graph.F32}
	kerneltest.EachPath(t, func(t *testing.T) {
		for absent := range 4 {
			in := []graph.TensorType{xt, one, one}
			for i := range 2 {
				if absent>>i&1 != 0 {
					in[1+i] = graph.TensorType{}
				}
			}
			k, err := newKernel(&graph.Clip{}, in, []graph.TensorType{xt})
			require.NoError(t, err)
			y, scratch := make([]float32, len(x)), kerneltest.Aligned(k.Scratch())
			for _, lo := range special {
				for _, hi := range special {
					limits := [][]byte{tensor.RawBytes(x), tensor.RawBytes([]float32{lo}), tensor.RawBytes([]float32{hi})}
					require.NoError(t, k.Run(tensor.Serial{}, limits, [][]byte{tensor.RawBytes(y)}, scratch))
					for i, v := range x {
						want := v
						if absent&1 == 0 {
							want = max(want, lo)
						}
						if absent&2 == 0 {
							want = min(want, hi)
						}
						if math.Float32bits(want) != math.Float32bits(y[i]) && (want == want || y[i] == y[i]) {
							t.Fatalf("%v limited to %v and %v is %v, want %v", v, lo, hi, y[i], want)
						}
					}
				}
			}
		}
	})
}
