package op

import (
	"math"
	"testing"

	"github.com/popefgen/popefgen/onnx"
)

func TestActivations(t *testing.T) {
	x := list32(-2, -0.5, 0, 0.5, 2)
	each := func(f func(x float64) float64) []*onnx.Tensor {
		return []*onnx.Tensor{list32(f(-2), f(-0.5), f(0), f(0.5), f(2))}
	}
	selu := func(alpha, gamma float64) func(x float64) float64 {
		return func(x float64) float64 {
			if x < 0 {
				return gamma * alpha * math.Expm1(x)
			}
			return gamma * x
		}
	}
	sigmoid := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	tanh := func(x float64) float64 { return x / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x))) }
	channels := f32s(dims(1, 2, 2), -1, 2, -3, -4)
	runCases(t, []opCase{
		{op: "Selu", opset: 1, in: []*onnx.Tensor{x}, want: each(selu(1.6732, 1.0507))},
		{op: "Selu", opset: 6, in: []*onnx.Tensor{x}, want: each(selu(1.67326319217681884765625, 1.05070102214813232421875))},
		{op: "Selu", opset: 22, attrs: []*onnx.Attribute{aFloat("alpha", 2), aFloat("gamma", 3)}, in: []*onnx.Tensor{x}, want: each(selu(2, 3))},
		{op: "Celu", opset: 12, in: []*onnx.Tensor{x}, attrs: []*onnx.Attribute{aFloat("alpha", 2)}, want: each(func(x float64) float64 { return max(x, 0) + min(0, 2*math.Expm1(x/2)) })},
		{op: "Celu", opset: 28, in: []*onnx.Tensor{tensor(onnx.Double, dims(1), -1)}, want: []*onnx.Tensor{tensor(onnx.Double, dims(1), math.Expm1(-1))}},
		{op: "ThresholdedRelu", opset: 10, attrs: []*onnx.Attribute{aFloat("alpha", 0.5)}, in: []*onnx.Tensor{x}, want: each(func(x float64) float64 { return map[bool]float64{true: x}[x > 0.5] })},
		{op: "ThresholdedRelu", opset: 22, in: []*onnx.Tensor{x}, want: each(func(x float64) float64 { return map[bool]float64{true: x}[x > 1] })},
		{op: "HardSwish", opset: 14, in: []*onnx.Tensor{x}, want: each(func(x float64) float64 { return x * max(0, min(1, x/6+0.5)) })},
		{op: "Gelu", opset: 20, in: []*onnx.Tensor{x}, want: each(func(x float64) float64 { return x / 2 * (1 + math.Erf(x/math.Sqrt2)) })},
		{op: "Gelu", name: "Gelu tanh", opset: 20, attrs: []*onnx.Attribute{aStr("approximate", "tanh")}, in: []*onnx.Tensor{x}, want: each(tanh)},
		{op: "Mish", opset: 18, in: []*onnx.Tensor{x}, want: each(func(x float64) float64 { return x * math.Tanh(math.Log1p(math.Exp(x))) })},
		{op: "Swish", opset: 24, attrs: []*onnx.Attribute{aFloat("alpha", 2)}, in: []*onnx.Tensor{x}, want: each(func(x float64) float64 { return x * sigmoid(2*x) })},
		{op: "SwiGLU", opset: 28, in: []*onnx.Tensor{x, list32(1, 2, 3, 4, 5)}, want: []*onnx.Tensor{list32(-2*sigmoid(-2), -sigmoid(-0.5), 0, 2*sigmoid(0.5), 10*sigmoid(2))}},
		{op: "PRelu", opset: 1, in: []*onnx.Tensor{channels, list32(10, 100)}, want: []*onnx.Tensor{f32s(dims(1, 2, 2), -10, 2, -300, -400)}},
		{op: "PRelu", name: "PRelu-6 one slope", opset: 6, in: []*onnx.Tensor{channels, list32(10)}, want: []*onnx.Tensor{f32s(dims(1, 2, 2), -10, 2, -30, -40)}},
		{op: "PRelu", opset: 7, in: []*onnx.Tensor{channels, list32(10, 100)}, want: []*onnx.Tensor{f32s(dims(1, 2, 2), -10, 2, -30, -400)}},
		{op: "PRelu", opset: 9, in: []*onnx.Tensor{tensor(onnx.Int32, dims(2), -3, 3), tensor(onnx.Int32, dims(1), 2)}, want: []*onnx.Tensor{tensor(onnx.Int32, dims(2), -6, 3)}},
		{op: "PRelu", name: "PRelu-16 unsigned", opset: 16, in: []*onnx.Tensor{tensor(onnx.Uint64, dims(2), 3, 4), tensor(onnx.Uint64, dims(), 2)}, want: []*onnx.Tensor{tensor(onnx.Uint64, dims(2), 3, 4)}},
		{op: "Gelu", name: "PopART's Gelu", domain: "ai.graphcore", opset: 1, in: []*onnx.Tensor{x}, want: each(tanh)},
		{op: "PrintTensor", domain: "ai.graphcore", opset: 1, attrs: []*onnx.Attribute{aInt("print_gradient", 0), aStr("title", "x")}, in: []*onnx.Tensor{x}, want: []*onnx.Tensor{x}},
	})
}
