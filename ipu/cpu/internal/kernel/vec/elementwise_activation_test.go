package vec

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/graph"
)

// activationCases are the activations with their definitions, α being 0.25
// and β 0.5.
var activationCases = map[graph.UnaryFn]func(x float64) float64{
	graph.Selu: func(x float64) float64 {
		if x < 0 {
			return 0.5 * 0.25 * (math.Exp(x) - 1)
		}
		return 0.5 * x
	},
	graph.Celu:            func(x float64) float64 { return math.Max(0, x) + math.Min(0, 0.25*(math.Exp(x/0.25)-1)) },
	graph.ThresholdedRelu: func(x float64) float64 { return map[bool]float64{true: x, false: 0}[!(x <= 0.25)] },
	graph.HardSwish:       func(x float64) float64 { return x * math.Max(0, math.Min(1, x/6+0.5)) },
	graph.Swish:           func(x float64) float64 { return x / (1 + math.Exp(-0.25*x)) },
	graph.Mish:            func(x float64) float64 { return x * math.Tanh(math.Log1p(math.Exp(x))) },
	graph.Gelu:            func(x float64) float64 { return x * math.Erfc(-x/math.Sqrt2) / 2 },
	graph.GeluTanh: func(x float64) float64 {
		return x / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
	},
}

func TestActivations(t *testing.T) {
	for fn, ref := range activationCases {
		t.Run(string(fn), func(t *testing.T) {
			kerneltest.CheckPaths(t, func(t *rapid.T) {
				op := &graph.Unary{Fn: fn, Alpha: 0.25, Beta: 0.5}
				tt := graph.TensorType{DType: rapid.SampledFrom(kerneltest.FloatTypes).Draw(t, "type"), Shape: kerneltest.DrawShape(t, 0)}
				elems := kerneltest.Load(tt.DType, kerneltest.DrawTensor(t, tt))
				for i, e := range elems { // to infinity the definitions do not reach
					if math.IsInf(e.F, 0) || math.Abs(e.F) > 500 {
						elems[i].F = math.Copysign(500, e.F)
					}
				}
				x := kerneltest.Store(tt.DType, elems)
				_, got := run(t, op, []graph.TensorType{tt}, [][]byte{x})
				elems = kerneltest.Load(tt.DType, x)
				relative := map[graph.DType]float64{graph.F16: 1. / 1024, graph.BF16: 1. / 128, graph.F32: 3e-7, graph.F64: 1e-14}[tt.DType]
				absolute := map[graph.DType]float64{graph.F16: 1e-7, graph.BF16: 6e-8, graph.F32: 6e-8, graph.F64: 1e-14}[tt.DType]
				for i, e := range kerneltest.Load(tt.DType, got[0]) {
					want := ref(elems[i].F)
					if want != want && e.F != e.F || math.Abs(e.F-want) <= absolute+relative*math.Abs(want) {
						continue
					}
					t.Fatalf("%s(%v) = %v, want %v", fn, elems[i].F, e.F, want)
				}
			})
		})
	}
}

func TestPRelu(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		d := rapid.SampledFrom([]graph.DType{graph.F32, graph.F64, graph.F16, graph.BF16, graph.I32, graph.U64, graph.I8}).Draw(t, "type")
		x, slope := graph.TensorType{DType: d, Shape: []int64{2, 3, 5}}, graph.TensorType{DType: d, Shape: []int64{3, 1}}
		data := [][]byte{kerneltest.DrawTensor(t, x), kerneltest.DrawTensor(t, slope)}
		out, got := run(t, &graph.Binary{Fn: graph.PRelu}, []graph.TensorType{x, slope}, data)
		want, slopes := kerneltest.Load(d, data[0]), kerneltest.Load(d, data[1])
		for i := range want {
			s := slopes[i/5%3]
			if d.IsFloat() && want[i].F < 0 {
				want[i].F *= s.F
			} else if d.IsSigned() && want[i].I < 0 {
				want[i].I *= s.I
				if d == graph.I8 {
					want[i].I = int64(int8(want[i].I))
				} else {
					want[i].I = int64(int32(want[i].I))
				}
			}
		}
		kerneltest.Compare(t, "prelu", out[0], got[0], want, 1)
	})
}
