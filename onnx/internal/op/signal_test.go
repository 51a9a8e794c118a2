package op

import (
	"math"
	"testing"

	"github.com/popefgen/popefgen/onnx"
)

func TestSignals(t *testing.T) {
	x := f32s(dims(1, 4, 1), 1, 2, 3, 4)
	spectrum := f32s(dims(1, 4, 2), 10, 0, -2, 2, -2, 0, -2, -2)
	half := f32s(dims(1, 3, 2), 10, 0, -2, 2, -2, 0)
	one, two := aInt("onesided", 1), aInt("inverse", 1)
	c := math.Cos(2 * math.Pi / 5)
	runCases(t, []opCase{
		{op: "DFT", opset: 17, in: []*onnx.Tensor{x}, want: []*onnx.Tensor{spectrum}},
		{op: "DFT", name: "DFT-17 one-sided along axis 0", opset: 17, attrs: []*onnx.Attribute{one, aInt("axis", 0)}, in: []*onnx.Tensor{f32s(dims(4, 1), 1, 2, 3, 4)}, want: []*onnx.Tensor{f32s(dims(3, 2), 10, 0, -2, 2, -2, 0)}},
		{op: "DFT", name: "DFT-19 length", opset: 19, fixed: []int{1}, in: []*onnx.Tensor{x, i64s(dims(), 2)}, want: []*onnx.Tensor{f32s(dims(1, 2, 2), 3, 0, -1, 0)}},
		{op: "DFT", opset: 20, attrs: []*onnx.Attribute{two}, in: []*onnx.Tensor{spectrum}, want: []*onnx.Tensor{f32s(dims(1, 4, 2), 1, 0, 2, 0, 3, 0, 4, 0)}},
		{op: "DFT", name: "DFT-20 back to real numbers", opset: 20, attrs: []*onnx.Attribute{one, two}, fixed: []int{2}, in: []*onnx.Tensor{half, nil, i64s(dims(), 1)}, want: []*onnx.Tensor{x}},
		{op: "DFT", name: "DFT-20 zeros appended", opset: 20, fixed: []int{1, 2}, in: []*onnx.Tensor{f32s(dims(1, 1, 1), 3), i64s(dims(), 2), i64s(dims(), -2)}, want: []*onnx.Tensor{f32s(dims(1, 2, 2), 3, 0, 3, 0)}},
		{op: "DFT", name: "DFT double", opset: 17, in: []*onnx.Tensor{tensor(onnx.Double, dims(1, 2, 1), 1, 2)}, want: []*onnx.Tensor{tensor(onnx.Double, dims(1, 2, 2), 3, 0, -1, 0)}},
		{op: "STFT", opset: 17, fixed: []int{1, 3}, in: []*onnx.Tensor{f32s(dims(1, 6, 1), 1, 2, 3, 4, 5, 6), i64s(dims(), 2), list32(1, 1, 1, 1), i64s(dims(), 4)},
			want: []*onnx.Tensor{f32s(dims(1, 2, 3, 2), 10, 0, -2, 2, -2, 0, 18, 0, -2, 2, -2, 0)}},
		{op: "STFT", name: "STFT both sides, no window", opset: 17, attrs: []*onnx.Attribute{aInt("onesided", 0)}, fixed: []int{1, 3}, in: []*onnx.Tensor{x, i64s(dims(), 1), nil, i64s(dims(), 2)},
			want: []*onnx.Tensor{f32s(dims(1, 3, 2, 2), 3, 0, -1, 0, 5, 0, -1, 0, 7, 0, -1, 0)}},
		{op: "HannWindow", opset: 17, fixed: []int{0}, in: []*onnx.Tensor{i64s(dims(), 5)}, want: []*onnx.Tensor{list32(0, 0.5-0.5*c, 0.5+0.5*math.Cos(math.Pi/5), 0.5+0.5*math.Cos(math.Pi/5), 0.5-0.5*c)}},
		{op: "HannWindow", name: "HannWindow symmetric", opset: 17, attrs: []*onnx.Attribute{aInt("periodic", 0), aInt("output_datatype", int64(onnx.Double))}, fixed: []int{0}, in: []*onnx.Tensor{tensor(onnx.Int32, dims(), 3)}, want: []*onnx.Tensor{tensor(onnx.Double, dims(3), 0, 1, 0)}},
		{op: "HammingWindow", opset: 17, attrs: []*onnx.Attribute{aInt("periodic", 0)}, fixed: []int{0}, in: []*onnx.Tensor{i64s(dims(), 3)}, want: []*onnx.Tensor{list32(4./46, 1, 4./46)}},
		{op: "BlackmanWindow", opset: 17, attrs: []*onnx.Attribute{aInt("periodic", 0)}, fixed: []int{0}, in: []*onnx.Tensor{i64s(dims(), 3)}, want: []*onnx.Tensor{list32(0, 1, 0)}},
		{op: "HannWindow", name: "HannWindow of one", opset: 17, attrs: []*onnx.Attribute{aInt("periodic", 0)}, fixed: []int{0}, in: []*onnx.Tensor{i64s(dims(), 1)}, want: []*onnx.Tensor{list32(0)}},
		{op: "MelWeightMatrix", opset: 17, fixed: []int{0, 1, 2, 3, 4}, in: []*onnx.Tensor{i64s(dims(), 2), i64s(dims(), 16), i64s(dims(), 8192), f32s(dims(), 0), f32s(dims(), 4096)},
			want: []*onnx.Tensor{f32s(dims(9, 2), 1, 0, 0.5, 0.5, 0, 1, 0, 0.5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)}},
	})
}
