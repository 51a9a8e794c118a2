package op

import (
	"math"
	"testing"

	"github.com/popefgen/popefgen/onnx"
)

func TestShapes(t *testing.T) {
	x := f32s(dims(2, 3), 1, 2, 3, 4, 5, 6)
	as := func(d ...int64) []*onnx.Tensor { return []*onnx.Tensor{f32s(d, 1, 2, 3, 4, 5, 6)} }
	empty := f32s(dims(0, 3))
	runCases(t, []opCase{
		{op: "Reshape", opset: 1, attrs: []*onnx.Attribute{aInts("shape", 3, -1)}, in: []*onnx.Tensor{x}, want: as(3, 2)},
		{op: "Reshape", name: "Reshape-5 copies a dimension", opset: 5, fixed: []int{1}, in: []*onnx.Tensor{x, list1(0, 1, -1)}, want: as(2, 1, 3)},
		{op: "Reshape", name: "Reshape-14 zero is a zero", opset: 14, attrs: []*onnx.Attribute{aInt("allowzero", 1)}, fixed: []int{1}, in: []*onnx.Tensor{empty, list1(3, 0)}, want: []*onnx.Tensor{f32s(dims(3, 0))}},
		{op: "Reshape", name: "to scalar", opset: 13, fixed: []int{1}, in: []*onnx.Tensor{f32s(dims(1, 1), 7), list1()}, want: []*onnx.Tensor{f32s(dims(), 7)}},
		{op: "Flatten", opset: 1, attrs: []*onnx.Attribute{aInt("axis", 0)}, in: []*onnx.Tensor{x}, want: as(1, 6)},
		{op: "Flatten", name: "Flatten past the end", opset: 9, attrs: []*onnx.Attribute{aInt("axis", 2)}, in: []*onnx.Tensor{x}, want: as(6, 1)},
		{op: "Flatten", name: "Flatten-11 negative", opset: 11, attrs: []*onnx.Attribute{aInt("axis", -1)}, in: []*onnx.Tensor{f32s(dims(1, 2, 3), 1, 2, 3, 4, 5, 6)}, want: as(2, 3)},
		{op: "Squeeze", opset: 1, in: []*onnx.Tensor{f32s(dims(1, 2, 1, 3), 1, 2, 3, 4, 5, 6)}, want: as(2, 3)},
		{op: "Squeeze", opset: 11, attrs: []*onnx.Attribute{aInts("axes", -2)}, in: []*onnx.Tensor{f32s(dims(1, 2, 1, 3), 1, 2, 3, 4, 5, 6)}, want: as(1, 2, 3)},
		{op: "Squeeze", opset: 13, fixed: []int{1}, in: []*onnx.Tensor{f32s(dims(1, 2, 1, 3), 1, 2, 3, 4, 5, 6), list1(0)}, want: as(2, 1, 3)},
		{op: "Squeeze", name: "Squeeze-13 without axes", opset: 13, in: []*onnx.Tensor{f32s(dims(1, 2, 1, 3), 1, 2, 3, 4, 5, 6)}, want: as(2, 3)},
		{op: "Unsqueeze", opset: 1, attrs: []*onnx.Attribute{aInts("axes", 3, 0)}, in: []*onnx.Tensor{x}, want: as(1, 2, 3, 1)},
		{op: "Unsqueeze", opset: 13, fixed: []int{1}, in: []*onnx.Tensor{x, list1(-1, 1)}, want: as(2, 1, 3, 1)},
		{op: "Expand", name: "Expand both ways", opset: 8, fixed: []int{1}, in: []*onnx.Tensor{f32s(dims(2, 1), 1, 2), list1(2, 1, 2)}, want: []*onnx.Tensor{f32s(dims(2, 2, 2), 1, 1, 2, 2, 1, 1, 2, 2)}},
		{op: "Identity", opset: 1, in: []*onnx.Tensor{x}, want: []*onnx.Tensor{x}},
		{op: "Shape", name: "Shape-15 part", opset: 15, attrs: []*onnx.Attribute{aInt("start", -2), aInt("end", 9)}, in: []*onnx.Tensor{f32s(dims(4, 1, 2), 1, 2, 3, 4, 5, 6, 7, 8)}, want: []*onnx.Tensor{list1(1, 2)}},
		{op: "Shape", name: "Shape-15 empty part", opset: 15, attrs: []*onnx.Attribute{aInt("start", 2), aInt("end", 1)}, in: []*onnx.Tensor{x}, want: []*onnx.Tensor{list1()}},
		{op: "Size", opset: 1, in: []*onnx.Tensor{x}, want: []*onnx.Tensor{i64s(dims(), 6)}},
		{op: "Dropout", name: "Dropout-1 mask", opset: 1, attrs: []*onnx.Attribute{aInt("is_test", 1), aFloat("ratio", 0.9), aInts("consumed_inputs", 0)}, in: []*onnx.Tensor{x}, want: []*onnx.Tensor{x, f32s(dims(2, 3), 1, 1, 1, 1, 1, 1)}},
		{op: "Dropout", opset: 6, attrs: []*onnx.Attribute{aInt("is_test", 1)}, in: []*onnx.Tensor{x}, want: []*onnx.Tensor{x}},
		{op: "Dropout", name: "Dropout-10 mask", opset: 10, in: []*onnx.Tensor{x}, want: []*onnx.Tensor{x, bools(dims(2, 3), 1, 1, 1, 1, 1, 1)}},
		{op: "Dropout", name: "Dropout-12 training with ratio 0", opset: 12, fixed: []int{1, 2}, in: []*onnx.Tensor{x, f32s(dims(), 0), bools(dims(), 1)}, want: []*onnx.Tensor{x, bools(dims(2, 3), 1, 1, 1, 1, 1, 1)}},
		{op: "Dropout", name: "Dropout-12 operands", opset: 12, attrs: []*onnx.Attribute{aInt("seed", 3)}, fixed: []int{2}, in: []*onnx.Tensor{x, f32s(dims(), 0.3), bools(dims(), 0)}, want: []*onnx.Tensor{x, bools(dims(2, 3), 1, 1, 1, 1, 1, 1)}},
	})
}

func TestMovement(t *testing.T) {
	x := f32s(dims(2, 3), 1, 2, 3, 4, 5, 6)
	line := list32(0, 1, 2, 3, 4, 5, 6, 7)
	const low, high = math.MinInt64, math.MaxInt64
	runCases(t, []opCase{
		{op: "Transpose", opset: 1, in: []*onnx.Tensor{x}, want: []*onnx.Tensor{f32s(dims(3, 2), 1, 4, 2, 5, 3, 6)}},
		{op: "Concat", name: "Concat-1 default axis", opset: 1, in: []*onnx.Tensor{x, f32s(dims(2, 1), 7, 8)}, want: []*onnx.Tensor{f32s(dims(2, 4), 1, 2, 3, 7, 4, 5, 6, 8)}},
		{op: "Concat", name: "Concat-11 negative axis", opset: 11, attrs: []*onnx.Attribute{aInt("axis", -2)}, in: []*onnx.Tensor{x, f32s(dims(1, 3), 7, 8, 9)}, want: []*onnx.Tensor{f32s(dims(3, 3), 1, 2, 3, 4, 5, 6, 7, 8, 9)}},
		{op: "Slice", opset: 1, attrs: []*onnx.Attribute{aInts("starts", 1), aInts("ends", -1), aInts("axes", 1)}, in: []*onnx.Tensor{x}, want: []*onnx.Tensor{f32s(dims(2, 1), 2, 5)}},
		{op: "Slice", name: "Slice-10 extremes", opset: 10, fixed: []int{1, 2, 3, 4}, in: []*onnx.Tensor{line, list1(high), list1(low), list1(0), list1(-3)}, want: []*onnx.Tensor{list32(7, 4, 1)}},
		{op: "Slice", name: "Slice-11 great step", opset: 11, fixed: []int{1, 2, 3, 4}, in: []*onnx.Tensor{line, list1(1), list1(high), list1(-1), list1(high)}, want: []*onnx.Tensor{list32(1)}},
		{op: "Slice", name: "Slice-13 least step", opset: 13, fixed: []int{1, 2, 3, 4}, in: []*onnx.Tensor{line, list1(-1), list1(low), list1(0), list1(low)}, want: []*onnx.Tensor{list32(7)}},
		{op: "Slice", name: "Slice-13 nothing", opset: 13, fixed: []int{1, 2}, in: []*onnx.Tensor{line, list1(20), list1(high)}, want: []*onnx.Tensor{list32()}},
		{op: "Slice", name: "Slice-13 int32", opset: 13, fixed: []int{1, 2, 4}, in: []*onnx.Tensor{line, tensor(onnx.Int32, dims(1), -2), tensor(onnx.Int32, dims(1), 0), nil, tensor(onnx.Int32, dims(1), -2)}, want: []*onnx.Tensor{list32(6, 4, 2)}},
		{op: "Split", name: "Split-1 operand", opset: 1, attrs: []*onnx.Attribute{aInt("axis", 1)}, fixed: []int{1}, in: []*onnx.Tensor{x, list1(1, 2)}, want: []*onnx.Tensor{f32s(dims(2, 1), 1, 4), f32s(dims(2, 2), 2, 3, 5, 6)}},
		{op: "Split", name: "Split-2 equal", opset: 2, in: []*onnx.Tensor{x}, want: []*onnx.Tensor{nil, f32s(dims(1, 3), 4, 5, 6)}},
		{op: "Split", name: "Split-11 sizes", opset: 11, attrs: []*onnx.Attribute{aInt("axis", -1), aInts("split", 0, 3)}, in: []*onnx.Tensor{x}, want: []*onnx.Tensor{f32s(dims(2, 0)), x}},
		{op: "Split", name: "Split-18 uneven", opset: 18, attrs: []*onnx.Attribute{aInt("num_outputs", 3)}, in: []*onnx.Tensor{line}, want: []*onnx.Tensor{list32(0, 1, 2), list32(3, 4, 5), list32(6, 7)}},
		{op: "Split", name: "Split-18 runs out", opset: 18, attrs: []*onnx.Attribute{aInt("num_outputs", 4)}, in: []*onnx.Tensor{list32(0, 1, 2, 3, 4)}, want: []*onnx.Tensor{list32(0, 1), list32(2, 3), list32(4), list32()}},
		{op: "Pad", opset: 1, attrs: []*onnx.Attribute{aInts("paddings", 0, 1, 1, 0), aFloat("value", 9)}, in: []*onnx.Tensor{x}, want: []*onnx.Tensor{f32s(dims(3, 4), 9, 1, 2, 3, 9, 4, 5, 6, 9, 9, 9, 9)}},
		{op: "Pad", name: "Pad-2 reflect", opset: 2, attrs: []*onnx.Attribute{aInts("pads", 0, 1, 0, 0), aStr("mode", "reflect")}, in: []*onnx.Tensor{x}, want: []*onnx.Tensor{f32s(dims(2, 4), 2, 1, 2, 3, 5, 4, 5, 6)}},
		{op: "Pad", name: "Pad-11 value", opset: 11, fixed: []int{1}, in: []*onnx.Tensor{x, list1(0, -1, 0, 1), f32s(dims(), 7)}, want: []*onnx.Tensor{f32s(dims(2, 3), 2, 3, 7, 5, 6, 7)}},
		{op: "Pad", name: "Pad-18 axes", opset: 18, attrs: []*onnx.Attribute{aStr("mode", "edge")}, fixed: []int{1, 3}, in: []*onnx.Tensor{x, list1(1, 0), nil, list1(-1)}, want: []*onnx.Tensor{f32s(dims(2, 4), 1, 1, 2, 3, 4, 4, 5, 6)}},
		{op: "Pad", name: "Pad-19 wrap", opset: 19, attrs: []*onnx.Attribute{aStr("mode", "wrap")}, fixed: []int{1}, in: []*onnx.Tensor{list32(1, 2, 3), list1(1, 2)}, want: []*onnx.Tensor{list32(3, 1, 2, 3, 1, 2)}},
		{op: "Gather", opset: 1, attrs: []*onnx.Attribute{aInt("axis", 1)}, in: []*onnx.Tensor{x, i64s(dims(1, 2), 2, 0)}, want: []*onnx.Tensor{f32s(dims(2, 1, 2), 3, 1, 6, 4)}},
		{op: "Gather", name: "Gather-11 negative", opset: 11, attrs: []*onnx.Attribute{aInt("axis", -2)}, in: []*onnx.Tensor{x, tensor(onnx.Int32, dims(), -1)}, want: []*onnx.Tensor{list32(4, 5, 6)}},
	})
}
