package op

import (
	"math"
	"testing"

	"github.com/popefgen/popefgen/onnx"
)

func TestProducts(t *testing.T) {
	a, b := f32s(dims(2, 2), 1, 2, 3, 4), f32s(dims(2, 2), 5, 6, 7, 8)
	runCases(t, []opCase{
		{op: "MatMul", opset: 1, in: []*onnx.Tensor{a, b}, want: []*onnx.Tensor{f32s(dims(2, 2), 19, 22, 43, 50)}},
		{op: "MatMul", name: "MatMul-9 integers", opset: 9, in: []*onnx.Tensor{i64s(dims(1, 2), 1, 2), i64s(dims(2), 3, 4)}, want: []*onnx.Tensor{i64s(dims(1), 11)}},
		{op: "Gemm", name: "Gemm-6 broadcast", opset: 6, attrs: []*onnx.Attribute{aInt("broadcast", 1), aInt("transB", 1)}, in: []*onnx.Tensor{a, b, list32(100, 200)}, want: []*onnx.Tensor{f32s(dims(2, 2), 117, 223, 139, 253)}},
		{op: "Gemm", name: "Gemm-11 without C", opset: 11, attrs: []*onnx.Attribute{aFloat("alpha", 2), aInt("transA", 1)}, in: []*onnx.Tensor{a, b}, want: []*onnx.Tensor{f32s(dims(2, 2), 52, 60, 76, 88)}},
		{op: "Gemm", name: "Gemm-13 beta", opset: 13, attrs: []*onnx.Attribute{aFloat("beta", 0.5)}, in: []*onnx.Tensor{a, b, f32s(dims(2, 1), 2, 4)}, want: []*onnx.Tensor{f32s(dims(2, 2), 20, 23, 45, 52)}},
	})
}

func TestWindows(t *testing.T) {
	x := f32s(dims(1, 1, 5), 1, 2, 3, 4, 5)
	k := aInts("kernel_shape", 2)
	w := f32s(dims(1, 1, 2), 1, 10)
	pool := func(op string, opset int64, want []float64, attrs ...*onnx.Attribute) opCase {
		name := op
		for _, a := range attrs {
			name += " " + a.Name + string(a.String)
		}
		return opCase{op: op, name: name, opset: opset, attrs: append(attrs, k), in: []*onnx.Tensor{x}, want: []*onnx.Tensor{f32s(dims(1, 1, int64(len(want))), want...)}}
	}
	stride := aInts("strides", 2)
	image := f32s(dims(1, 1, 2, 2), 1, 2, 3, 4)
	runCases(t, []opCase{
		pool("MaxPool", 1, []float64{2, 3, 4, 5}),
		pool("MaxPool", 8, []float64{2, 4, 5}, stride, aInts("pads", 0, 1)),
		pool("MaxPool", 11, []float64{2, 4, 5}, stride, aInt("ceil_mode", 1)),
		pool("MaxPool", 10, []float64{3, 4, 5}, aInts("dilations", 2)),
		pool("MaxPool", 1, []float64{2, 4, 5}, stride, aStr("auto_pad", "SAME_UPPER")),
		pool("MaxPool", 1, []float64{1, 3, 5}, stride, aStr("auto_pad", "SAME_LOWER")),
		pool("MaxPool", 12, []float64{2, 4, 5}, stride, aStr("auto_pad", "VALID"), aInt("ceil_mode", 1)),
		pool("AveragePool", 1, []float64{1, 2.5, 4.5}, stride, aInts("pads", 1, 0)),
		pool("AveragePool", 7, []float64{0.5, 2.5, 4.5}, stride, aInts("pads", 1, 0), aInt("count_include_pad", 1)),
		pool("AveragePool", 10, []float64{1.5, 3.5, 5}, stride, aInt("ceil_mode", 1)),
		pool("AveragePool", 19, []float64{2, 3, 4}, aInts("dilations", 2)),
		{op: "MaxPool", name: "MaxPool-8 indices by column", opset: 8, attrs: []*onnx.Attribute{aInts("kernel_shape", 1, 2), aInt("storage_order", 1)}, in: []*onnx.Tensor{image}, want: []*onnx.Tensor{f32s(dims(1, 1, 2, 1), 2, 4), i64s(dims(1, 1, 2, 1), 2, 3)}},
		{op: "MaxPool", name: "MaxPool-12 uint8", opset: 12, attrs: []*onnx.Attribute{aInts("kernel_shape", 2, 2)}, in: []*onnx.Tensor{tensor(onnx.Uint8, dims(1, 1, 2, 2), 1, 250, 3, 4)}, want: []*onnx.Tensor{tensor(onnx.Uint8, dims(1, 1, 1, 1), 250)}},
		{op: "Conv", name: "Conv-1", opset: 1, attrs: []*onnx.Attribute{k}, in: []*onnx.Tensor{x, w, list32(0.5)}, want: []*onnx.Tensor{f32s(dims(1, 1, 4), 21.5, 32.5, 43.5, 54.5)}},
		{op: "Conv", name: "Conv-11 same lower", opset: 11, attrs: []*onnx.Attribute{aStr("auto_pad", "SAME_LOWER"), aInts("strides", 3)}, fixed: []int{1}, in: []*onnx.Tensor{x, w}, want: []*onnx.Tensor{f32s(dims(1, 1, 2), 21, 54)}},
		{op: "GlobalMaxPool", opset: 1, in: []*onnx.Tensor{image}, want: []*onnx.Tensor{f32s(dims(1, 1, 1, 1), 4)}},
		{op: "GlobalAveragePool", opset: 1, in: []*onnx.Tensor{image}, want: []*onnx.Tensor{f32s(dims(1, 1, 1, 1), 2.5)}},
	})
}

func TestNormalisation(t *testing.T) {
	x := f32s(dims(1, 2, 2), 1, 2, 3, 4)
	log2 := math.Log(2)
	each := f32s(dims(2, 2), 1, 2, 4, 8)
	zero := f32s(dims(2, 2), 0, 0, 0, 0)
	bn := func(types ...onnx.ElemType) []*onnx.Tensor {
		return []*onnx.Tensor{tensor(types[0], dims(1, 2, 2), 1, 2, 3, 4), tensor(types[1], dims(2), 1, 2), tensor(types[1], dims(2), 0, 1), tensor(types[2], dims(2), 1, 2), tensor(types[2], dims(2), 4, 1)}
	}
	eps := aFloat("epsilon", 0)
	runCases(t, []opCase{
		{op: "BatchNormalization", opset: 6, attrs: []*onnx.Attribute{aInt("is_test", 1), eps, aInt("spatial", 1), aFloat("momentum", 0.9), aInts("consumed_inputs", 0, 0, 0, 1, 1)}, in: bn(onnx.Float, onnx.Float, onnx.Float), want: []*onnx.Tensor{f32s(dims(1, 2, 2), 0, 0.5, 3, 5)}},
		{op: "BatchNormalization", name: "BatchNormalization-7 per element", opset: 7, attrs: []*onnx.Attribute{aInt("spatial", 0), eps}, in: []*onnx.Tensor{x, each, each, zero, f32s(dims(2, 2), 1, 4, 9, 16)}, want: []*onnx.Tensor{f32s(dims(1, 2, 2), 2, 4, 8, 16)}},
		{op: "BatchNormalization", opset: 14, attrs: []*onnx.Attribute{eps, aInt("training_mode", 0)}, in: bn(onnx.Float, onnx.Float, onnx.Float), want: []*onnx.Tensor{f32s(dims(1, 2, 2), 0, 0.5, 3, 5)}},
		{op: "BatchNormalization", name: "BatchNormalization-15 types", opset: 15, attrs: []*onnx.Attribute{eps}, in: bn(onnx.Float16, onnx.Float16, onnx.Float), want: []*onnx.Tensor{tensor(onnx.Float16, dims(1, 2, 2), 0, 0.5, 3, 5)}},
		{op: "Softmax", name: "Softmax-1 over two axes", opset: 1, in: []*onnx.Tensor{f32s(dims(1, 2, 2), 0, log2, 0, 0)}, want: []*onnx.Tensor{f32s(dims(1, 2, 2), 0.2, 0.4, 0.2, 0.2)}},
		{op: "Softmax", opset: 13, attrs: []*onnx.Attribute{aInt("axis", 1)}, in: []*onnx.Tensor{f32s(dims(1, 2, 2), 0, log2, 0, 0)}, want: []*onnx.Tensor{f32s(dims(1, 2, 2), 0.5, 2./3, 0.5, 1./3)}},
		{op: "LogSoftmax", opset: 11, attrs: []*onnx.Attribute{aInt("axis", -1)}, in: []*onnx.Tensor{f32s(dims(1, 2), 0, 0)}, want: []*onnx.Tensor{f32s(dims(1, 2), -log2, -log2)}},
		{op: "LayerNormalization", opset: 17, attrs: []*onnx.Attribute{eps}, in: []*onnx.Tensor{f32s(dims(1, 2), 1, 3), list32(1, 2), list32(0, 1)}, want: []*onnx.Tensor{f32s(dims(1, 2), -1, 3), f32s(dims(1, 1), 2), f32s(dims(1, 1), 1)}},
		{op: "LayerNormalization", name: "LayerNormalization without bias", opset: 17, attrs: []*onnx.Attribute{eps, aInt("axis", 0)}, in: []*onnx.Tensor{f32s(dims(2, 1), 1, 3), list32(1)}, want: []*onnx.Tensor{f32s(dims(2, 1), -1, 1), nil, f32s(dims(1, 1), 1)}},
	})
}

func TestReduce(t *testing.T) {
	x := f32s(dims(2, 3), 1, -2, 3, 4, 5, 6)
	runCases(t, []opCase{
		{op: "ReduceSum", name: "ReduceSum-1 all", opset: 1, in: []*onnx.Tensor{x}, want: []*onnx.Tensor{f32s(dims(1, 1), 17)}},
		{op: "ReduceMax", opset: 11, attrs: []*onnx.Attribute{aInts("axes", -1), aInt("keepdims", 0)}, in: []*onnx.Tensor{x}, want: []*onnx.Tensor{list32(3, 6)}},
		{op: "ReduceSum", opset: 13, attrs: []*onnx.Attribute{aInt("keepdims", 0)}, fixed: []int{1}, in: []*onnx.Tensor{x, list1(0)}, want: []*onnx.Tensor{list32(5, 3, 9)}},
		{op: "ReduceSum", name: "ReduceSum-13 no axes is all", opset: 13, attrs: []*onnx.Attribute{aInt("keepdims", 0)}, fixed: []int{1}, in: []*onnx.Tensor{x, list1()}, want: []*onnx.Tensor{f32s(dims(), 17)}},
		{op: "ReduceSumSquare", name: "ReduceSumSquare-18 no axes is none", opset: 18, attrs: []*onnx.Attribute{aInt("noop_with_empty_axes", 1)}, in: []*onnx.Tensor{list32(2, -3)}, want: []*onnx.Tensor{list32(4, 9)}},
		{op: "ReduceMean", opset: 18, fixed: []int{1}, in: []*onnx.Tensor{x, list1(1)}, want: []*onnx.Tensor{f32s(dims(2, 1), 2./3, 5)}},
		{op: "ReduceL1", opset: 1, attrs: []*onnx.Attribute{aInts("axes", 1)}, in: []*onnx.Tensor{x}, want: []*onnx.Tensor{f32s(dims(2, 1), 6, 15)}},
		{op: "ReduceMin", name: "ReduceMin-20 bools", opset: 20, in: []*onnx.Tensor{bools(dims(2), 1, 0)}, want: []*onnx.Tensor{bools(dims(1), 0)}},
		{op: "ReduceMax", name: "ReduceMax-20 of nothing", opset: 20, in: []*onnx.Tensor{f32s(dims(0))}, want: []*onnx.Tensor{list32(math.Inf(-1))}},
	})
}

func TestConstants(t *testing.T) {
	runCases(t, []opCase{
		{op: "Constant", opset: 1, attrs: []*onnx.Attribute{aTensor("value", list1(1, 2))}, want: []*onnx.Tensor{list1(1, 2)}},
		{op: "Constant", name: "value_int", opset: 12, attrs: []*onnx.Attribute{aInt("value_int", 5)}, want: []*onnx.Tensor{i64s(dims(), 5)}},
		{op: "Constant", name: "value_ints", opset: 12, attrs: []*onnx.Attribute{aInts("value_ints", 5, 6)}, want: []*onnx.Tensor{list1(5, 6)}},
		{op: "Constant", name: "value_float", opset: 12, attrs: []*onnx.Attribute{aFloat("value_float", 0.1)}, want: []*onnx.Tensor{f32s(dims(), 0.1)}},
		{op: "Constant", name: "value_floats", opset: 13, attrs: []*onnx.Attribute{{Name: "value_floats", Type: onnx.AttrFloats, Floats: []float32{1, 2}}}, want: []*onnx.Tensor{list32(1, 2)}},
		{op: "ConstantOfShape", opset: 9, fixed: []int{0}, in: []*onnx.Tensor{list1(2, 1)}, want: []*onnx.Tensor{f32s(dims(2, 1), 0, 0)}},
		{op: "ConstantOfShape", name: "ConstantOfShape value", opset: 20, attrs: []*onnx.Attribute{aTensor("value", tensor(onnx.Uint8, dims(1), 7))}, fixed: []int{0}, in: []*onnx.Tensor{list1()}, want: []*onnx.Tensor{tensor(onnx.Uint8, dims(), 7)}},
		{op: "Range", opset: 11, fixed: []int{0, 1, 2}, in: []*onnx.Tensor{i64s(dims(), 10), i64s(dims(), 3), i64s(dims(), -3)}, want: []*onnx.Tensor{list1(10, 7, 4)}},
		{op: "Range", name: "Range of floats", opset: 11, fixed: []int{0, 1, 2}, in: []*onnx.Tensor{f32s(dims(), 0), f32s(dims(), 1), f32s(dims(), 0.4)}, want: []*onnx.Tensor{list32(0, 0.4, 0.8)}},
		{op: "Range", name: "Range of nothing", opset: 11, fixed: []int{0, 1, 2}, in: []*onnx.Tensor{tensor(onnx.Int32, dims(), 3), tensor(onnx.Int32, dims(), 3), tensor(onnx.Int32, dims(), 1)}, want: []*onnx.Tensor{tensor(onnx.Int32, dims(0))}},
		{op: "Range", name: "Range over all integers", opset: 11, fixed: []int{0, 1, 2}, in: []*onnx.Tensor{i64s(dims(), math.MinInt64), i64s(dims(), math.MaxInt64), i64s(dims(), 1<<62)}, want: []*onnx.Tensor{list1(math.MinInt64, -1<<62, 0, 1<<62)}},
		{op: "Cast", name: "Cast-1 name", opset: 1, attrs: []*onnx.Attribute{aStr("to", "INT64")}, in: []*onnx.Tensor{list32(1.5, -1.5)}, want: []*onnx.Tensor{list1(1, -1)}},
		{op: "Cast", opset: 6, attrs: []*onnx.Attribute{aInt("to", int64(onnx.Bool))}, in: []*onnx.Tensor{list32(0, -1.5)}, want: []*onnx.Tensor{bools(dims(2), 0, 1)}},
		{op: "Cast", name: "Cast-19 saturate", opset: 19, attrs: []*onnx.Attribute{aInt("to", int64(onnx.BFloat16)), aInt("saturate", 0)}, in: []*onnx.Tensor{list32(1)}, want: []*onnx.Tensor{tensor(onnx.BFloat16, dims(1), 1)}},
		{op: "CastLike", opset: 15, in: []*onnx.Tensor{list32(1, 2), tensor(onnx.Int8, dims(0))}, want: []*onnx.Tensor{tensor(onnx.Int8, dims(2), 1, 2)}},
	})
}

// TestLSTM checks one step of a network with a single hidden unit, whose
// result follows from the definition, at every version and with the
// attributes' default and other values.
func TestLSTM(t *testing.T) {
	sig := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	x := f32s(dims(1, 1, 1), 0.5)
	w := f32s(dims(1, 4, 1), 1, 2, 3, 4) // gates i, o, f, c
	r := f32s(dims(1, 4, 1), 0, 0, 0, 0)
	c := sig(0.5) * math.Tanh(2)
	h := sig(1) * math.Tanh(c)
	y, yh := f32s(dims(1, 1, 1, 1), h), f32s(dims(1, 1, 1), h)
	hidden := aInt("hidden_size", 1)
	acts := &onnx.Attribute{Name: "activations", Type: onnx.AttrStrings, Strings: [][]byte{[]byte("hardsigmoid"), []byte("Relu"), []byte("Affine")}}
	alpha := &onnx.Attribute{Name: "activation_alpha", Type: onnx.AttrFloats, Floats: []float32{0.1, 2}}
	beta := &onnx.Attribute{Name: "activation_beta", Type: onnx.AttrFloats, Floats: []float32{0.4, 1}}
	hard := func(x float64) float64 { return 0.1*x + 0.4 }
	c2 := hard(0.5) * 2
	h2 := hard(1) * (2*c2 + 1)
	runCases(t, []opCase{
		{op: "LSTM", opset: 1, attrs: []*onnx.Attribute{hidden, aInt("output_sequence", 1)}, in: []*onnx.Tensor{x, w, r}, want: []*onnx.Tensor{y, yh}},
		{op: "LSTM", opset: 7, attrs: []*onnx.Attribute{hidden}, in: []*onnx.Tensor{x, w, r}, want: []*onnx.Tensor{nil, yh, f32s(dims(1, 1, 1), c)}},
		{op: "LSTM", name: "LSTM-14 batch first", opset: 14, attrs: []*onnx.Attribute{hidden, aInt("layout", 1)}, in: []*onnx.Tensor{x, w, r, nil, tensor(onnx.Int32, dims(1), 1)}, want: []*onnx.Tensor{y}},
		{op: "LSTM", name: "LSTM-22 activations", opset: 22, attrs: []*onnx.Attribute{acts, alpha, beta}, in: []*onnx.Tensor{x, w, r}, want: []*onnx.Tensor{nil, f32s(dims(1, 1, 1), h2)}},
	})
}
