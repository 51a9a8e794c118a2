package op

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
)

func TestQuantisation(t *testing.T) {
	u8 := func(shape []int64, v ...float64) *onnx.Tensor { return tensor(onnx.Uint8, shape, v...) }
	i8 := func(shape []int64, v ...float64) *onnx.Tensor { return tensor(onnx.Int8, shape, v...) }
	one := func(v float64) *onnx.Tensor { return f32s(dims(), v) }
	x := f32s(dims(2, 3), -1, 0.5, 1.5, 2.5, 300, math.NaN())
	q := i8(dims(2, 3), -128, 0, 1, 2, 3, 127)
	axis := aInt("axis", 0)
	block := aInt("block_size", 2)
	runCases(t, []opCase{
		{op: "QuantizeLinear", opset: 10, in: []*onnx.Tensor{x, one(1), u8(dims(), 1)}, want: []*onnx.Tensor{u8(dims(2, 3), 0, 1, 3, 3, 255, 0)}},
		{op: "QuantizeLinear", name: "QuantizeLinear-10 without zero point", opset: 10, in: []*onnx.Tensor{x, one(0.5)}, want: []*onnx.Tensor{u8(dims(2, 3), 0, 1, 3, 5, 255, 0)}},
		{op: "QuantizeLinear", name: "QuantizeLinear-13 per axis", opset: 13, attrs: []*onnx.Attribute{axis}, in: []*onnx.Tensor{x, list32(0.5, 2), i8(dims(2), 10, -10)}, want: []*onnx.Tensor{i8(dims(2, 3), 8, 11, 13, -9, 127, -128)}},
		{op: "QuantizeLinear", name: "QuantizeLinear-19 of integers", opset: 19, in: []*onnx.Tensor{tensor(onnx.Int32, dims(3), -3, 3, 1000), one(2), i8(dims(), 0)}, want: []*onnx.Tensor{i8(dims(3), -2, 2, 127)}},
		{op: "QuantizeLinear", name: "QuantizeLinear-19 of half precision", opset: 19, in: []*onnx.Tensor{tensor(onnx.Float16, dims(3), -3, 3, 1000), tensor(onnx.Float16, dims(), 2), i8(dims(), 1)}, want: []*onnx.Tensor{i8(dims(3), -1, 3, 127)}},
		{op: "QuantizeLinear", name: "QuantizeLinear-21 blocks", opset: 21, attrs: []*onnx.Attribute{aInt("axis", 1), block, aInt("output_dtype", int64(onnx.Int16))}, in: []*onnx.Tensor{x, f32s(dims(2, 2), 1, 0.5, 0.25, 1)}, want: []*onnx.Tensor{tensor(onnx.Int16, dims(2, 3), -1, 0, 3, 10, 1200, -32768)}},
		{op: "QuantizeLinear", name: "QuantizeLinear-21 of 4 bits", opset: 21, in: []*onnx.Tensor{list32(-9, 3.5, 9), one(1), tensor(onnx.Int4, dims(1), 1)}, want: []*onnx.Tensor{tensor(onnx.Int4, dims(3), -8, 5, 7)}},
		{op: "QuantizeLinear", name: "QuantizeLinear-23 precision", opset: 23, attrs: []*onnx.Attribute{aInt("precision", int64(onnx.BFloat16))}, in: []*onnx.Tensor{list32(1001), one(4)}, want: []*onnx.Tensor{u8(dims(1), 250)}},
		{op: "QuantizeLinear", name: "QuantizeLinear-25 of 2 bits", opset: 25, in: []*onnx.Tensor{list32(-9, 1, 9), one(1), tensor(onnx.Uint2, dims(), 1)}, want: []*onnx.Tensor{tensor(onnx.Uint2, dims(3), 0, 2, 3)}},
		{op: "QuantizeLinear", name: "QuantizeLinear-21 to float", opset: 21, attrs: []*onnx.Attribute{aInt("output_dtype", int64(onnx.F8E4M3FNUZ)), aInt("axis", 0), block}, in: []*onnx.Tensor{list32(2, 4, 500), list32(2, 1)}, want: []*onnx.Tensor{tensor(onnx.F8E4M3FNUZ, dims(3), 1, 2, 240)}},
		{op: "DequantizeLinear", opset: 10, in: []*onnx.Tensor{q, one(0.5), i8(dims(), -2)}, want: []*onnx.Tensor{f32s(dims(2, 3), -63, 1, 1.5, 2, 2.5, 64.5)}},
		{op: "DequantizeLinear", name: "DequantizeLinear-13 per axis", opset: 13, attrs: []*onnx.Attribute{axis}, in: []*onnx.Tensor{q, list32(0.5, 2)}, want: []*onnx.Tensor{f32s(dims(2, 3), -64, 0, 0.5, 4, 6, 254)}},
		{op: "DequantizeLinear", name: "DequantizeLinear-13 of int32", opset: 13, in: []*onnx.Tensor{tensor(onnx.Int32, dims(2), 1<<30, -3), one(0.5)}, want: []*onnx.Tensor{list32(1<<29, -1.5)}},
		{op: "DequantizeLinear", name: "DequantizeLinear-19 half precision", opset: 19, in: []*onnx.Tensor{q, tensor(onnx.Float16, dims(), 0.5)}, want: []*onnx.Tensor{tensor(onnx.Float16, dims(2, 3), -64, 0, 0.5, 1, 1.5, 63.5)}},
		{op: "DequantizeLinear", name: "DequantizeLinear-21 blocks", opset: 21, attrs: []*onnx.Attribute{axis, block}, in: []*onnx.Tensor{tensor(onnx.Uint4, dims(3), 1, 15, 3), list32(2, 10), tensor(onnx.Uint4, dims(2), 1, 0)}, want: []*onnx.Tensor{list32(0, 28, 30)}},
		{op: "DequantizeLinear", name: "DequantizeLinear-23 other type", opset: 23, attrs: []*onnx.Attribute{aInt("output_dtype", int64(onnx.BFloat16))}, in: []*onnx.Tensor{q, one(1)}, want: []*onnx.Tensor{tensor(onnx.BFloat16, dims(2, 3), -128, 0, 1, 2, 3, 127)}},
		{op: "DequantizeLinear", name: "DequantizeLinear-25 of 2 bits", opset: 25, in: []*onnx.Tensor{tensor(onnx.Int2, dims(2), -2, 1), one(3), tensor(onnx.Int2, dims(1), 1)}, want: []*onnx.Tensor{list32(-9, 0)}},
		{op: "DequantizeLinear", name: "DequantizeLinear-19 of float", opset: 19, in: []*onnx.Tensor{tensor(onnx.F8E5M2FNUZ, dims(2), -2, 1), one(3)}, want: []*onnx.Tensor{list32(-6, 3)}},
		{op: "DynamicQuantizeLinear", opset: 11, in: []*onnx.Tensor{list32(0, 2, -3, -2.5, 1.34, 0.5)}, want: []*onnx.Tensor{u8(dims(6), 153, 255, 0, 26, 221, 179), one(5. / 255), u8(dims(), 153)}},
		{op: "DynamicQuantizeLinear", name: "DynamicQuantizeLinear of zeros", opset: 11, in: []*onnx.Tensor{list32(0, 0)}, want: []*onnx.Tensor{u8(dims(2), 0, 0), one(1), u8(dims(), 0)}},
	})
}

func TestIntegerProducts(t *testing.T) {
	u8 := func(shape []int64, v ...float64) *onnx.Tensor { return tensor(onnx.Uint8, shape, v...) }
	i8 := func(shape []int64, v ...float64) *onnx.Tensor { return tensor(onnx.Int8, shape, v...) }
	i32 := func(shape []int64, v ...float64) *onnx.Tensor { return tensor(onnx.Int32, shape, v...) }
	one := func(v float64) *onnx.Tensor { return f32s(dims(), v) }
	a, b := u8(dims(2, 2), 1, 2, 3, 4), i8(dims(2, 2), 5, -6, 7, 8)
	x, w := u8(dims(1, 1, 3), 1, 2, 3), u8(dims(2, 1, 2), 1, 2, 3, 4)
	// So long that float32 could not hold the sums.
	long, ones := make([]float64, 1000), make([]float64, 1000)
	for i := range long {
		long[i], ones[i] = 255, 255
	}
	ones[0] = 254
	runCases(t, []opCase{
		{op: "MatMulInteger", opset: 10, in: []*onnx.Tensor{a, b}, want: []*onnx.Tensor{i32(dims(2, 2), 19, 10, 43, 14)}},
		{op: "MatMulInteger", name: "MatMulInteger zero points", opset: 10, in: []*onnx.Tensor{a, b, u8(dims(1), 1), i8(dims(2), 1, 2)}, want: []*onnx.Tensor{i32(dims(2, 2), 6, 6, 26, 2)}},
		{op: "MatMulInteger", name: "MatMulInteger zero points of rows", opset: 10, fixed: []int{2}, in: []*onnx.Tensor{a, b, u8(dims(2), 1, 3)}, want: []*onnx.Tensor{i32(dims(2, 2), 7, 8, 7, 8)}},
		{op: "MatMulInteger", name: "MatMulInteger long sums", opset: 10, in: []*onnx.Tensor{u8(dims(1, 1000), long...), u8(dims(1000, 1), ones...)}, want: []*onnx.Tensor{i32(dims(1, 1), 255*255*1000-255)}},
		{op: "ConvInteger", opset: 10, attrs: []*onnx.Attribute{aInts("pads", 1, 0)}, in: []*onnx.Tensor{x, w, u8(dims(), 1)}, want: []*onnx.Tensor{i32(dims(1, 2, 3), 0, 2, 5, 0, 4, 11)}},
		{op: "ConvInteger", name: "ConvInteger zero points of channels", opset: 10, in: []*onnx.Tensor{x, w, nil, u8(dims(2), 1, 3)}, want: []*onnx.Tensor{i32(dims(1, 2, 2), 2, 3, 2, 3)}},
		{op: "ConvInteger", name: "ConvInteger long sums", opset: 10, in: []*onnx.Tensor{u8(dims(1, 1, 1000), long...), u8(dims(1, 1, 1000), ones...)}, want: []*onnx.Tensor{i32(dims(1, 1, 1), 255*255*1000-255)}},
		{op: "QLinearMatMul", opset: 10, in: []*onnx.Tensor{a, one(0.5), u8(dims(), 0), b, one(1), i8(dims(), 0), one(2), u8(dims(), 3)}, want: []*onnx.Tensor{u8(dims(2, 2), 8, 5, 14, 7)}},
		{op: "QLinearMatMul", name: "QLinearMatMul-21 by row and column", opset: 21, in: []*onnx.Tensor{a, list32(1, 2), u8(dims(2), 1, 3), b, list32(0.5, 1), i8(dims(2), 0, 0), list32(1), i8(dims(1), -1)}, want: []*onnx.Tensor{i8(dims(2, 2), 3, 7, 6, 15)}},
		{op: "QLinearMatMul", name: "QLinearMatMul-21 half precision", opset: 21, in: []*onnx.Tensor{a, tensor(onnx.Float16, dims(1), 0.5), u8(dims(1), 0), b, tensor(onnx.Float16, dims(1), 1), i8(dims(1), 0), tensor(onnx.Float16, dims(1), 2), u8(dims(1), 3)}, want: []*onnx.Tensor{u8(dims(2, 2), 8, 5, 14, 7)}},
		{op: "QLinearConv", opset: 10, in: []*onnx.Tensor{x, one(1), u8(dims(), 1), w, list32(1, 0.5), u8(dims(2), 0, 1), one(2), u8(dims(), 4), i32(dims(2), 10, -2)}, want: []*onnx.Tensor{u8(dims(1, 2, 2), 10, 12, 4, 6)}},
	})
}

// TestQuantisedWeights leaves the conversion of a weight that is kept quantised
// to the passes, which may have a product of bytes for it.
func TestQuantisedWeights(t *testing.T) {
	g := &onnx.Graph{
		Nodes: []*onnx.Node{
			node("QuantizeLinear", names("x", "s", "z"), names("q")),
			node("DequantizeLinear", names("q", "s", "z"), names("a")),
			node("DequantizeLinear", names("w", "ws"), names("b"), aInt("axis", 1)),
			node("MatMul", names("a", "b"), names("y")),
		},
		Inputs: []onnx.ValueInfo{info("x", onnx.Float, 1, 2)},
		Initializers: []*onnx.Tensor{
			named(f32s(dims(), 0.5), "s"), named(tensor(onnx.Uint8, dims(), 128), "z"),
			named(tensor(onnx.Int8, dims(2, 2), 1, 2, 3, -4), "w"), named(list32(1, 0.25), "ws"),
		},
		Outputs: outputs("y"),
	}
	low, err := Lower(model(13, g), onnx.Options{})
	require.NoError(t, err)
	verified(t, low)
	kinds := []string{}
	for _, n := range low.Executable.Graphs[low.Main].Nodes {
		kinds = append(kinds, n.Op.Kind())
	}
	require.Equal(t, []string{"Quantize", "Dequantize", "Dequantize", "MatMul"}, kinds)
	outs, err := interpret(low, map[string][]byte{"x": f32s(dims(1, 2), 1.1, -1000).Data})
	require.NoError(t, err)
	out := low.Executable.Tensors[low.Outputs[0].Tensor].Type
	require.Equal(t, []float64{1 - 64*3, 0.5 + 64}, numbers(out.DType, outs[0]))
}
