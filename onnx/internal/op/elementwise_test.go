package op

import (
	"math"
	"testing"

	"github.com/popefgen/popefgen/onnx"
)

func TestElementwise(t *testing.T) {
	x := f32s(dims(2, 3), -2, -0.5, 0, 1.5, 2.5, 3)
	runCases(t, []opCase{
		{op: "Ceil", opset: 1, attrs: []*onnx.Attribute{aInts("consumed_inputs", 0)}, in: []*onnx.Tensor{x}, want: []*onnx.Tensor{f32s(dims(2, 3), -2, -0, 0, 2, 3, 3)}},
		{op: "Floor", opset: 1, in: []*onnx.Tensor{x}, want: []*onnx.Tensor{f32s(dims(2, 3), -2, -1, 0, 1, 2, 3)}},
		{op: "Round", opset: 11, in: []*onnx.Tensor{x}, want: []*onnx.Tensor{f32s(dims(2, 3), -2, -0, 0, 2, 2, 3)}},
		{op: "Relu", opset: 14, in: []*onnx.Tensor{tensor(onnx.Int32, dims(3), -1, 0, 7)}, want: []*onnx.Tensor{tensor(onnx.Int32, dims(3), 0, 0, 7)}},
		{op: "LeakyRelu", opset: 1, in: []*onnx.Tensor{x}, want: []*onnx.Tensor{f32s(dims(2, 3), -0.02, -0.005, 0, 1.5, 2.5, 3)}},
		{op: "LeakyRelu", name: "LeakyRelu alpha", opset: 16, attrs: []*onnx.Attribute{aFloat("alpha", 0.5)}, in: []*onnx.Tensor{x}, want: []*onnx.Tensor{f32s(dims(2, 3), -1, -0.25, 0, 1.5, 2.5, 3)}},
		{op: "Elu", opset: 6, attrs: []*onnx.Attribute{aFloat("alpha", 2)}, in: []*onnx.Tensor{f32s(dims(2), -1, 1)}, want: []*onnx.Tensor{f32s(dims(2), 2*math.Expm1(-1), 1)}},
		{op: "HardSigmoid", opset: 6, in: []*onnx.Tensor{f32s(dims(3), -9, 1, 9)}, want: []*onnx.Tensor{f32s(dims(3), 0, 0.7, 1)}},
		{op: "Erf", opset: 9, in: []*onnx.Tensor{f32s(dims(), 0.5)}, want: []*onnx.Tensor{f32s(dims(), math.Erf(0.5))}},
		{op: "Not", opset: 1, in: []*onnx.Tensor{bools(dims(2), 1, 0)}, want: []*onnx.Tensor{bools(dims(2), 0, 1)}},
		{op: "Sqrt", name: "Sqrt float16", opset: 13, in: []*onnx.Tensor{tensor(onnx.Float16, dims(2), 4, 9)}, want: []*onnx.Tensor{tensor(onnx.Float16, dims(2), 2, 3)}},
	})
}

func TestBinary(t *testing.T) {
	a := f32s(dims(2, 3), 1, 2, 3, 4, 5, 6)
	broadcast := aInt("broadcast", 1)
	runCases(t, []opCase{
		{op: "Add", name: "Add-1 same shapes", opset: 1, in: []*onnx.Tensor{a, a}, want: []*onnx.Tensor{f32s(dims(2, 3), 2, 4, 6, 8, 10, 12)}},
		{op: "Add", name: "Add-6 suffix", opset: 6, attrs: []*onnx.Attribute{broadcast}, in: []*onnx.Tensor{a, f32s(dims(3), 10, 20, 30)}, want: []*onnx.Tensor{f32s(dims(2, 3), 11, 22, 33, 14, 25, 36)}},
		{op: "Add", name: "Add-6 axis", opset: 6, attrs: []*onnx.Attribute{broadcast, aInt("axis", 0)}, in: []*onnx.Tensor{a, f32s(dims(2), 10, 20)}, want: []*onnx.Tensor{f32s(dims(2, 3), 11, 12, 13, 24, 25, 26)}},
		{op: "Sub", name: "Sub-6 negative axis", opset: 6, attrs: []*onnx.Attribute{broadcast, aInt("axis", -2)}, in: []*onnx.Tensor{a, f32s(dims(2), 1, 2)}, want: []*onnx.Tensor{f32s(dims(2, 3), 0, 1, 2, 2, 3, 4)}},
		{op: "Mul", name: "Mul-6 scalar", opset: 6, attrs: []*onnx.Attribute{broadcast}, in: []*onnx.Tensor{a, f32s(dims(), 2)}, want: []*onnx.Tensor{f32s(dims(2, 3), 2, 4, 6, 8, 10, 12)}},
		{op: "Div", name: "Div-7 numpy", opset: 7, in: []*onnx.Tensor{a, f32s(dims(2, 1), 1, 2)}, want: []*onnx.Tensor{f32s(dims(2, 3), 1, 2, 3, 2, 2.5, 3)}},
		{op: "Div", name: "Div-14 integers", opset: 14, in: []*onnx.Tensor{i64s(dims(2), -7, 7), i64s(dims(1), 2)}, want: []*onnx.Tensor{i64s(dims(2), -3, 3)}},
		{op: "Pow", name: "Pow-12 types", opset: 12, in: []*onnx.Tensor{f32s(dims(2), 2, 3), i64s(dims(), 2)}, want: []*onnx.Tensor{f32s(dims(2), 4, 9)}},
		{op: "Greater", opset: 1, attrs: []*onnx.Attribute{broadcast}, in: []*onnx.Tensor{a, f32s(dims(1), 3)}, want: []*onnx.Tensor{bools(dims(2, 3), 0, 0, 0, 1, 1, 1)}},
		{op: "LessOrEqual", opset: 16, in: []*onnx.Tensor{a, f32s(dims(3), 1, 5, 3)}, want: []*onnx.Tensor{bools(dims(2, 3), 1, 1, 1, 0, 1, 0)}},
		{op: "Equal", opset: 19, in: []*onnx.Tensor{bools(dims(2), 0, 1), bools(dims(), 1)}, want: []*onnx.Tensor{bools(dims(2), 0, 1)}},
		{op: "Xor", opset: 1, in: []*onnx.Tensor{bools(dims(2), 0, 1), bools(dims(2), 1, 1)}, want: []*onnx.Tensor{bools(dims(2), 1, 0)}},
		{op: "Max", name: "Max-6 three", opset: 6, in: []*onnx.Tensor{list32(1, 5), list32(2, 4), list32(3, 3)}, want: []*onnx.Tensor{list32(3, 5)}},
		{op: "Min", name: "Min-8 broadcast", opset: 8, in: []*onnx.Tensor{a, f32s(dims(), 3)}, want: []*onnx.Tensor{f32s(dims(2, 3), 1, 2, 3, 3, 3, 3)}},
		{op: "Sum", name: "Sum of one", opset: 6, in: []*onnx.Tensor{a}, want: []*onnx.Tensor{a}},
		{op: "Mean", opset: 8, in: []*onnx.Tensor{list32(1, 5), list32(2, 4), list32(6, 0)}, want: []*onnx.Tensor{list32(3, 3)}},
		{op: "Clip", name: "Clip-1 one end", opset: 1, attrs: []*onnx.Attribute{aFloat("min", 2)}, in: []*onnx.Tensor{a}, want: []*onnx.Tensor{f32s(dims(2, 3), 2, 2, 3, 4, 5, 6)}},
		{op: "Clip", name: "Clip-6 both", opset: 6, attrs: []*onnx.Attribute{aFloat("min", 2), aFloat("max", 4)}, in: []*onnx.Tensor{a}, want: []*onnx.Tensor{f32s(dims(2, 3), 2, 2, 3, 4, 4, 4)}},
		{op: "Clip", name: "Clip-11 max only", opset: 11, in: []*onnx.Tensor{a, nil, f32s(dims(), 4)}, want: []*onnx.Tensor{f32s(dims(2, 3), 1, 2, 3, 4, 4, 4)}},
		{op: "Clip", name: "Clip-12 int8", opset: 12, fixed: []int{1}, in: []*onnx.Tensor{tensor(onnx.Int8, dims(2), -9, 9), tensor(onnx.Int8, dims(), -1)}, want: []*onnx.Tensor{tensor(onnx.Int8, dims(2), -1, 9)}},
		{op: "Where", opset: 9, in: []*onnx.Tensor{bools(dims(2, 1), 1, 0), a, f32s(dims(), 0)}, want: []*onnx.Tensor{f32s(dims(2, 3), 1, 2, 3, 0, 0, 0)}},
	})
}

func list32(v ...float64) *onnx.Tensor { return f32s(dims(int64(len(v))), v...) }
