package onnx

import (
	"math"
	"testing"
)

func TestProducts(t *testing.T) {
	a, b := f32s(dims(2, 2), 1, 2, 3, 4), f32s(dims(2, 2), 5, 6, 7, 8)
	runCases(t, []opCase{
		{op: "MatMul", opset: 1, in: []*Tensor{a, b}, want: []*Tensor{f32s(dims(2, 2), 19, 22, 43, 50)}},
		{op: "MatMul", name: "MatMul-9 integers", opset: 9, in: []*Tensor{i64s(dims(1, 2), 1, 2), i64s(dims(2), 3, 4)}, want: []*Tensor{i64s(dims(1), 11)}},
		{op: "Gemm", name: "Gemm-6 broadcast", opset: 6, attrs: []*Attribute{aInt("broadcast", 1), aInt("transB", 1)}, in: []*Tensor{a, b, list32(100, 200)}, want: []*Tensor{f32s(dims(2, 2), 117, 223, 139, 253)}},
		{op: "Gemm", name: "Gemm-11 without C", opset: 11, attrs: []*Attribute{aFloat("alpha", 2), aInt("transA", 1)}, in: []*Tensor{a, b}, want: []*Tensor{f32s(dims(2, 2), 52, 60, 76, 88)}},
		{op: "Gemm", name: "Gemm-13 beta", opset: 13, attrs: []*Attribute{aFloat("beta", 0.5)}, in: []*Tensor{a, b, f32s(dims(2, 1), 2, 4)}, want: []*Tensor{f32s(dims(2, 2), 20, 23, 45, 52)}},
	})
}

func TestWindows(t *testing.T) {
	x := f32s(dims(1, 1, 5), 1, 2, 3, 4, 5)
	k := aInts("kernel_shape", 2)
	w := f32s(dims(1, 1, 2), 1, 10)
	pool := func(op string, opset int64, want []float64, attrs ...*Attribute) opCase {
		name := op
		for _, a := range attrs {
			name += " " + a.Name + string(a.String)
		}
		return opCase{op: op, name: name, opset: opset, attrs: append(attrs, k), in: []*Tensor{x}, want: []*Tensor{f32s(dims(1, 1, int64(len(want))), want...)}}
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
		{op: "MaxPool", name: "MaxPool-8 indices by column", opset: 8, attrs: []*Attribute{aInts("kernel_shape", 1, 2), aInt("storage_order", 1)}, in: []*Tensor{image}, want: []*Tensor{f32s(dims(1, 1, 2, 1), 2, 4), i64s(dims(1, 1, 2, 1), 2, 3)}},
		{op: "MaxPool", name: "MaxPool-12 uint8", opset: 12, attrs: []*Attribute{aInts("kernel_shape", 2, 2)}, in: []*Tensor{tensor(Uint8, dims(1, 1, 2, 2), 1, 250, 3, 4)}, want: []*Tensor{tensor(Uint8, dims(1, 1, 1, 1), 250)}},
		{op: "Conv", name: "Conv-1", opset: 1, attrs: []*Attribute{k}, in: []*Tensor{x, w, list32(0.5)}, want: []*Tensor{f32s(dims(1, 1, 4), 21.5, 32.5, 43.5, 54.5)}},
		{op: "Conv", name: "Conv-11 same lower", opset: 11, attrs: []*Attribute{aStr("auto_pad", "SAME_LOWER"), aInts("strides", 3)}, fixed: []int{1}, in: []*Tensor{x, w}, want: []*Tensor{f32s(dims(1, 1, 2), 21, 54)}},
		{op: "GlobalMaxPool", opset: 1, in: []*Tensor{image}, want: []*Tensor{f32s(dims(1, 1, 1, 1), 4)}},
		{op: "GlobalAveragePool", opset: 1, in: []*Tensor{image}, want: []*Tensor{f32s(dims(1, 1, 1, 1), 2.5)}},
	})
}

func TestNormalisation(t *testing.T) {
	x := f32s(dims(1, 2, 2), 1, 2, 3, 4)
	log2 := math.Log(2)
	each := f32s(dims(2, 2), 1, 2, 4, 8)
	zero := f32s(dims(2, 2), 0, 0, 0, 0)
	bn := func(types ...ElemType) []*Tensor {
		return []*Tensor{tensor(types[0], dims(1, 2, 2), 1, 2, 3, 4), tensor(types[1], dims(2), 1, 2), tensor(types[1], dims(2), 0, 1), tensor(types[2], dims(2), 1, 2), tensor(types[2], dims(2), 4, 1)}
	}
	eps := aFloat("epsilon", 0)
	runCases(t, []opCase{
		{op: "BatchNormalization", opset: 6, attrs: []*Attribute{aInt("is_test", 1), eps, aInt("spatial", 1), aFloat("momentum", 0.9), aInts("consumed_inputs", 0, 0, 0, 1, 1)}, in: bn(Float, Float, Float), want: []*Tensor{f32s(dims(1, 2, 2), 0, 0.5, 3, 5)}},
		{op: "BatchNormalization", name: "BatchNormalization-7 per element", opset: 7, attrs: []*Attribute{aInt("spatial", 0), eps}, in: []*Tensor{x, each, each, zero, f32s(dims(2, 2), 1, 4, 9, 16)}, want: []*Tensor{f32s(dims(1, 2, 2), 2, 4, 8, 16)}},
		{op: "BatchNormalization", opset: 14, attrs: []*Attribute{eps, aInt("training_mode", 0)}, in: bn(Float, Float, Float), want: []*Tensor{f32s(dims(1, 2, 2), 0, 0.5, 3, 5)}},
		{op: "BatchNormalization", name: "BatchNormalization-15 types", opset: 15, attrs: []*Attribute{eps}, in: bn(Float16, Float16, Float), want: []*Tensor{tensor(Float16, dims(1, 2, 2), 0, 0.5, 3, 5)}},
		{op: "Softmax", name: "Softmax-1 over two axes", opset: 1, in: []*Tensor{f32s(dims(1, 2, 2), 0, log2, 0, 0)}, want: []*Tensor{f32s(dims(1, 2, 2), 0.2, 0.4, 0.2, 0.2)}},
		{op: "Softmax", opset: 13, attrs: []*Attribute{aInt("axis", 1)}, in: []*Tensor{f32s(dims(1, 2, 2), 0, log2, 0, 0)}, want: []*Tensor{f32s(dims(1, 2, 2), 0.5, 2./3, 0.5, 1./3)}},
		{op: "LogSoftmax", opset: 11, attrs: []*Attribute{aInt("axis", -1)}, in: []*Tensor{f32s(dims(1, 2), 0, 0)}, want: []*Tensor{f32s(dims(1, 2), -log2, -log2)}},
		{op: "LayerNormalization", opset: 17, attrs: []*Attribute{eps}, in: []*Tensor{f32s(dims(1, 2), 1, 3), list32(1, 2), list32(0, 1)}, want: []*Tensor{f32s(dims(1, 2), -1, 3), f32s(dims(1, 1), 2), f32s(dims(1, 1), 1)}},
		{op: "LayerNormalization", name: "LayerNormalization without bias", opset: 17, attrs: []*Attribute{eps, aInt("axis", 0)}, in: []*Tensor{f32s(dims(2, 1), 1, 3), list32(1)}, want: []*Tensor{f32s(dims(2, 1), -1, 1), nil, f32s(dims(1, 1), 1)}},
	})
}

func TestReduce(t *testing.T) {
	x := f32s(dims(2, 3), 1, -2, 3, 4, 5, 6)
	runCases(t, []opCase{
		{op: "ReduceSum", name: "ReduceSum-1 all", opset: 1, in: []*Tensor{x}, want: []*Tensor{f32s(dims(1, 1), 17)}},
		{op: "ReduceMax", opset: 11, attrs: []*Attribute{aInts("axes", -1), aInt("keepdims", 0)}, in: []*Tensor{x}, want: []*Tensor{list32(3, 6)}},
		{op: "ReduceSum", opset: 13, attrs: []*Attribute{aInt("keepdims", 0)}, fixed: []int{1}, in: []*Tensor{x, list1(0)}, want: []*Tensor{list32(5, 3, 9)}},
		{op: "ReduceSum", name: "ReduceSum-13 no axes is all", opset: 13, attrs: []*Attribute{aInt("keepdims", 0)}, fixed: []int{1}, in: []*Tensor{x, list1()}, want: []*Tensor{f32s(dims(), 17)}},
		{op: "ReduceSumSquare", name: "ReduceSumSquare-18 no axes is none", opset: 18, attrs: []*Attribute{aInt("noop_with_empty_axes", 1)}, in: []*Tensor{list32(2, -3)}, want: []*Tensor{list32(4, 9)}},
		{op: "ReduceMean", opset: 18, fixed: []int{1}, in: []*Tensor{x, list1(1)}, want: []*Tensor{f32s(dims(2, 1), 2./3, 5)}},
		{op: "ReduceL1", opset: 1, attrs: []*Attribute{aInts("axes", 1)}, in: []*Tensor{x}, want: []*Tensor{f32s(dims(2, 1), 6, 15)}},
		{op: "ReduceMin", name: "ReduceMin-20 bools", opset: 20, in: []*Tensor{bools(dims(2), 1, 0)}, want: []*Tensor{bools(dims(1), 0)}},
		{op: "ReduceMax", name: "ReduceMax-20 of nothing", opset: 20, in: []*Tensor{f32s(dims(0))}, want: []*Tensor{list32(math.Inf(-1))}},
	})
}

func TestConstants(t *testing.T) {
	runCases(t, []opCase{
		{op: "Constant", opset: 1, attrs: []*Attribute{aTensor("value", list1(1, 2))}, want: []*Tensor{list1(1, 2)}},
		{op: "Constant", name: "value_int", opset: 12, attrs: []*Attribute{aInt("value_int", 5)}, want: []*Tensor{i64s(dims(), 5)}},
		{op: "Constant", name: "value_ints", opset: 12, attrs: []*Attribute{aInts("value_ints", 5, 6)}, want: []*Tensor{list1(5, 6)}},
		{op: "Constant", name: "value_float", opset: 12, attrs: []*Attribute{aFloat("value_float", 0.1)}, want: []*Tensor{f32s(dims(), 0.1)}},
		{op: "Constant", name: "value_floats", opset: 13, attrs: []*Attribute{{Name: "value_floats", Type: AttrFloats, Floats: []float32{1, 2}}}, want: []*Tensor{list32(1, 2)}},
		{op: "ConstantOfShape", opset: 9, fixed: []int{0}, in: []*Tensor{list1(2, 1)}, want: []*Tensor{f32s(dims(2, 1), 0, 0)}},
		{op: "ConstantOfShape", name: "ConstantOfShape value", opset: 20, attrs: []*Attribute{aTensor("value", tensor(Uint8, dims(1), 7))}, fixed: []int{0}, in: []*Tensor{list1()}, want: []*Tensor{tensor(Uint8, dims(), 7)}},
		{op: "Range", opset: 11, fixed: []int{0, 1, 2}, in: []*Tensor{i64s(dims(), 10), i64s(dims(), 3), i64s(dims(), -3)}, want: []*Tensor{list1(10, 7, 4)}},
		{op: "Range", name: "Range of floats", opset: 11, fixed: []int{0, 1, 2}, in: []*Tensor{f32s(dims(), 0), f32s(dims(), 1), f32s(dims(), 0.4)}, want: []*Tensor{list32(0, 0.4, 0.8)}},
		{op: "Range", name: "Range of nothing", opset: 11, fixed: []int{0, 1, 2}, in: []*Tensor{tensor(Int32, dims(), 3), tensor(Int32, dims(), 3), tensor(Int32, dims(), 1)}, want: []*Tensor{tensor(Int32, dims(0))}},
		{op: "Range", name: "Range over all integers", opset: 11, fixed: []int{0, 1, 2}, in: []*Tensor{i64s(dims(), math.MinInt64), i64s(dims(), math.MaxInt64), i64s(dims(), 1<<62)}, want: []*Tensor{list1(math.MinInt64, -1<<62, 0, 1<<62)}},
		{op: "Cast", name: "Cast-1 name", opset: 1, attrs: []*Attribute{aStr("to", "INT64")}, in: []*Tensor{list32(1.5, -1.5)}, want: []*Tensor{list1(1, -1)}},
		{op: "Cast", opset: 6, attrs: []*Attribute{aInt("to", int64(Bool))}, in: []*Tensor{list32(0, -1.5)}, want: []*Tensor{bools(dims(2), 0, 1)}},
		{op: "Cast", name: "Cast-19 saturate", opset: 19, attrs: []*Attribute{aInt("to", int64(BFloat16)), aInt("saturate", 0)}, in: []*Tensor{list32(1)}, want: []*Tensor{tensor(BFloat16, dims(1), 1)}},
		{op: "CastLike", opset: 15, in: []*Tensor{list32(1, 2), tensor(Int8, dims(0))}, want: []*Tensor{tensor(Int8, dims(2), 1, 2)}},
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
	acts := &Attribute{Name: "activations", Type: AttrStrings, Strings: [][]byte{[]byte("hardsigmoid"), []byte("Relu"), []byte("Affine")}}
	alpha := &Attribute{Name: "activation_alpha", Type: AttrFloats, Floats: []float32{0.1, 2}}
	beta := &Attribute{Name: "activation_beta", Type: AttrFloats, Floats: []float32{0.4, 1}}
	hard := func(x float64) float64 { return 0.1*x + 0.4 }
	c2 := hard(0.5) * 2
	h2 := hard(1) * (2*c2 + 1)
	runCases(t, []opCase{
		{op: "LSTM", opset: 1, attrs: []*Attribute{hidden, aInt("output_sequence", 1)}, in: []*Tensor{x, w, r}, want: []*Tensor{y, yh}},
		{op: "LSTM", opset: 7, attrs: []*Attribute{hidden}, in: []*Tensor{x, w, r}, want: []*Tensor{nil, yh, f32s(dims(1, 1, 1), c)}},
		{op: "LSTM", name: "LSTM-14 batch first", opset: 14, attrs: []*Attribute{hidden, aInt("layout", 1)}, in: []*Tensor{x, w, r, nil, tensor(Int32, dims(1), 1)}, want: []*Tensor{y}},
		{op: "LSTM", name: "LSTM-22 activations", opset: 22, attrs: []*Attribute{acts, alpha, beta}, in: []*Tensor{x, w, r}, want: []*Tensor{nil, f32s(dims(1, 1, 1), h2)}},
	})
}
