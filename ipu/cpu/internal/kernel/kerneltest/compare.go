package kerneltest

import (
	"math"
	"math/big"
	"math/rand/v2"

	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/num"
)

// Wanted is an element as a reference computes it in float64: its value and
// the sum of the magnitudes that were added up to it, to which rounding errors
// are proportional.
type Wanted struct {
	Value, Size float64
	Open        bool // the operator does not say
}

// Roundoff returns the relative rounding error of a type.
func Roundoff(t graph.DType) float64 {
	switch t {
	case graph.F16:
		return 0x1p-11
	case graph.BF16:
		return 0x1p-8
	case graph.F32:
		return 0x1p-24
	}
	return 0x1p-53
}

// CompareSums fails where got is off by more than accumulated rounding errors
// explain.
func CompareSums(t Fataler, what any, tt graph.TensorType, got []byte, want []Wanted) {
	t.Helper()
	if len(got) != len(want)*tt.DType.Size() {
		t.Fatalf("%v: %d bytes, want %d elements of %v", what, len(got), len(want), tt)
	}
	inner := min(Roundoff(tt.DType), Roundoff(graph.F32))
	for i, g := range Load(tt.DType, got) {
		w := want[i].Value
		if g.F == w || g.F != g.F && w != w || want[i].Open {
			continue
		}
		if w != w || math.IsInf(w, 0) {
			t.Fatalf("%+v of %v: element %d is %v, want %v", what, tt, i, g.F, w)
		}
		tolerance := 64*inner*want[i].Size + 1.5*Roundoff(tt.DType)*math.Abs(w)
		switch tt.DType { // of the smallest numbers
		case graph.F16:
			tolerance += 0x1p-25
		case graph.F32, graph.BF16:
			tolerance += 0x1p-132
		}
		if !(math.Abs(g.F-w) <= tolerance) {
			t.Fatalf("%+v of %v: element %d is %v, want %v ± %v", what, tt, i, g.F, w, tolerance)
		}
	}
}

// Source draws tensors of moderate numbers, on demand with some NaN and
// infinities in between.
type Source struct {
	R       *rand.Rand
	special bool
}

// DrawSource draws a Source.
func DrawSource(t *rapid.T) *Source {
	return &Source{Seeded(rapid.Uint64().Draw(t, "data")), rapid.IntRange(0, 4).Draw(t, "special") == 0}
}

// Seeded returns a generator of random numbers.
func Seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// Tensor returns the memory of a tensor of random elements.
func (s *Source) Tensor(tt graph.TensorType) []byte {
	if tt.DType == graph.Invalid {
		return nil
	}
	elems := make([]Elem, tensor.Elements(tt.Shape))
	for i := range elems {
		if tt.DType.IsFloat() {
			elems[i].F = s.R.Float64()*4 - 2
			if s.special && s.R.IntN(50) == 0 {
				elems[i].F = []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, math.Copysign(0, -1), 1e-40}[s.R.IntN(6)]
			}
		} else {
			elems[i].I = s.R.Int64() >> s.R.IntN(64)
		}
	}
	return Store(tt.DType, elems)
}

// Values loads a tensor of floats.
func Values(tt graph.TensorType, b []byte) []float64 {
	var out []float64
	if tt.DType != graph.Invalid {
		for _, e := range Load(tt.DType, b) {
			out = append(out, e.F)
		}
	}
	return out
}

// Size draws the size of an axis: mostly near the borders of blocks.
func Size(t *rapid.T, name string) int64 {
	return rapid.SampledFrom([]int64{0, 1, 1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 32, 33, 63, 65, 130, 300}).Draw(t, name)
}

// Ulps returns how many numbers of type t lie between a and b.
func Ulps(t graph.DType, a, b float64) float64 {
	switch {
	case a != a && b != b:
		return 0
	case a != a || b != b:
		return math.Inf(1)
	}
	order := func(bits uint64, width int) int64 {
		if bits>>(width-1) != 0 {
			return -int64(bits &^ (1 << (width - 1)))
		}
		return int64(bits)
	}
	var x, y int64
	switch t {
	case graph.F16:
		x, y = order(uint64(num.Float16From64(a)), 16), order(uint64(num.Float16From64(b)), 16)
	case graph.BF16:
		x, y = order(uint64(num.BFloat16From64(a)), 16), order(uint64(num.BFloat16From64(b)), 16)
	case graph.F32:
		x, y = order(uint64(math.Float32bits(float32(a))), 32), order(uint64(math.Float32bits(float32(b))), 32)
	default:
		x, y = order(math.Float64bits(a), 64), order(math.Float64bits(b), 64)
	}
	if x < 0 != (y < 0) {
		return math.Abs(float64(x) - float64(y)) // the difference may overflow
	}
	return math.Abs(float64(x - y))
}

// Compare fails where got is more than tolerance units from want.
func Compare(t Fataler, what any, tt graph.TensorType, got []byte, want []Elem, tolerance float64) {
	t.Helper()
	if len(got) != len(want)*tt.DType.Size() {
		t.Fatalf("%v: %d bytes, want %d elements of %v", what, len(got), len(want), tt)
	}
	for i, g := range Load(tt.DType, got) {
		w := Normal(tt.DType, want[i])
		if tt.DType.IsFloat() && !(Ulps(tt.DType, g.F, w.F) <= tolerance) || g.I != w.I {
			t.Fatalf("%v of %v: element %d is %v, want %v", what, tt, i, g, w)
		}
	}
}

// Exact returns an integer element as a number.
func Exact(t graph.DType, e Elem) *big.Int {
	v := big.NewInt(e.I)
	if t == graph.U64 {
		v.SetUint64(uint64(e.I))
	}
	return v
}

// Wrapped returns the low 64 bits of v.
func Wrapped(v *big.Int) Elem {
	return Elem{I: int64(new(big.Int).And(v, new(big.Int).SetUint64(math.MaxUint64)).Uint64())}
}

// UnaryFns are the functions of [graph.Unary] that tests draw.
var UnaryFns = []graph.UnaryFn{graph.Abs, graph.Neg, graph.Sign, graph.Reciprocal, graph.Floor, graph.Ceil, graph.Round, graph.Sqrt,
	graph.Exp, graph.Log, graph.Erf, graph.Sin, graph.Cos, graph.Tan, graph.Asin, graph.Acos, graph.Atan, graph.Sinh, graph.Cosh,
	graph.Tanh, graph.Asinh, graph.Acosh, graph.Atanh, graph.Sigmoid, graph.Relu, graph.LeakyRelu, graph.HardSigmoid, graph.Softplus,
	graph.Softsign, graph.Elu}

// FromTruth returns 1 or 0.
func FromTruth(b bool) Elem {
	if b {
		return Elem{I: 1}
	}
	return Elem{}
}

// ReduceFns are the functions of [graph.Reduce].
var ReduceFns = []graph.ReduceFn{graph.ReduceSum, graph.ReduceMean, graph.ReduceMax, graph.ReduceMin, graph.ReduceProd,
	graph.ReduceL1, graph.ReduceL2, graph.ReduceLogSum, graph.ReduceLogSumExp, graph.ReduceSumSquare}

// CastReference converts one element by exact arithmetic.
func CastReference(from, to graph.DType, e Elem) Elem {
	if from.IsFloat() {
		switch {
		case to == graph.Bool:
			return FromTruth(e.F != 0)
		case to.IsFloat():
			return e // store rounds
		}
		v, _ := new(big.Int), 0
		fits := !math.IsNaN(e.F) && !math.IsInf(e.F, 0)
		if fits {
			new(big.Float).SetFloat64(e.F).Int(v) // truncates
			switch to {
			case graph.I32:
				fits = v.IsInt64() && v.Int64() == int64(int32(v.Int64()))
			case graph.U64:
				fits = v.IsInt64() || v.IsUint64()
			default:
				fits = v.IsInt64()
			}
		}
		switch {
		case fits:
			return Wrapped(v)
		case to == graph.I32:
			return Elem{I: math.MinInt32}
		}
		return Normal(to, Elem{I: math.MinInt64})
	}
	switch {
	case to == graph.Bool:
		return FromTruth(e.I != 0)
	case to == graph.F32:
		f, _ := new(big.Float).SetInt(Exact(from, e)).Float32()
		return Elem{F: float64(f)}
	case to == graph.F64:
		f, _ := new(big.Float).SetInt(Exact(from, e)).Float64()
		return Elem{F: f}
	case to.IsFloat():
		// Rounding to odd at 40 bits keeps the second rounding honest.
		f := new(big.Float).SetInt(Exact(from, e))
		cut := new(big.Float).SetPrec(40).SetMode(big.ToZero).Set(f)
		v, _ := cut.Float64()
		if cut.Acc() != big.Exact {
			v = math.Nextafter(v, v*2)
		}
		return Elem{F: v}
	}
	return e // store wraps
}
