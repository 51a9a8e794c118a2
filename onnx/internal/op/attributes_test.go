package op

import (
	"math"
	"strconv"
	"testing"

	"github.com/popefgen/popefgen/onnx"
)

// TestAttributes gives attributes that models seldom have another value than
// their default.
func TestAttributes(t *testing.T) {
	i32 := func(shape []int64, v ...float64) *onnx.Tensor { return tensor(onnx.Int32, shape, v...) }
	u8 := func(shape []int64, v ...float64) *onnx.Tensor { return tensor(onnx.Uint8, shape, v...) }
	a := f32s(dims(2, 3), 1, 2, 3, 4, 5, 6)
	legacy := []*onnx.Attribute{aInt("broadcast", 1), aInt("axis", 0)}
	linear := aStr("mode", "linear")
	line, doubled := f32s(dims(1, 1, 1, 2), 1, 3), []*onnx.Tensor{f32s(dims(1, 1, 1, 4), 1, 2, 3, 3)}
	wave := f32s(dims(1, 1, 4), 1, -2, 3, -4)
	two := aInts("kernel_shape", 2)
	square := f32s(dims(1, 1, 2, 2), 1, 2, 3, 4)
	roi, first, half := f32s(dims(1, 4), 0, 0, 2, 2), i64s(dims(1), 0), aFloat("spatial_scale", 0.5)
	runCases(t, []opCase{
		{op: "Div", opset: 6, attrs: legacy, in: []*onnx.Tensor{a, list32(1, 2)}, want: []*onnx.Tensor{f32s(dims(2, 3), 1, 2, 3, 2, 2.5, 3)}},
		{op: "Pow", opset: 1, attrs: legacy, in: []*onnx.Tensor{a, list32(1, 2)}, want: []*onnx.Tensor{f32s(dims(2, 3), 1, 2, 3, 16, 25, 36)}},
		{op: "Equal", opset: 1, attrs: legacy, in: []*onnx.Tensor{i32(dims(2, 3), 1, 2, 3, 4, 5, 6), i32(dims(2), 2, 5)}, want: []*onnx.Tensor{bools(dims(2, 3), 0, 1, 0, 0, 1, 0)}},
		{op: "Greater", opset: 1, attrs: legacy, in: []*onnx.Tensor{a, list32(1, 5)}, want: []*onnx.Tensor{bools(dims(2, 3), 0, 1, 1, 0, 0, 1)}},
		{op: "Less", opset: 1, attrs: legacy, in: []*onnx.Tensor{a, list32(1, 5)}, want: []*onnx.Tensor{bools(dims(2, 3), 0, 0, 0, 1, 0, 0)}},
		{op: "Concat", opset: 1, attrs: []*onnx.Attribute{aInt("axis", 0)}, in: []*onnx.Tensor{list32(1), list32(2)}, want: []*onnx.Tensor{list32(1, 2)}},
		{op: "BatchNormalization", name: "BatchNormalization-6 per element", opset: 6, attrs: []*onnx.Attribute{aInt("is_test", 1), aInt("spatial", 0), aFloat("epsilon", 0)},
			in: []*onnx.Tensor{f32s(dims(1, 1, 2), 3, 6), f32s(dims(1, 2), 1, 2), f32s(dims(1, 2), 0, 1), f32s(dims(1, 2), 1, 2), f32s(dims(1, 2), 4, 16)}, want: []*onnx.Tensor{f32s(dims(1, 1, 2), 1, 3)}},
		{op: "Col2Im", name: "Col2Im dilations", opset: 18, attrs: []*onnx.Attribute{aInts("dilations", 2, 2)}, fixed: []int{1, 2}, in: []*onnx.Tensor{f32s(dims(1, 4, 1), 1, 2, 3, 4), list1(3, 3), list1(2, 2)},
			want: []*onnx.Tensor{f32s(dims(1, 1, 3, 3), 1, 0, 2, 0, 0, 0, 3, 0, 4)}},
		{op: "GlobalLpPool", opset: 1, attrs: []*onnx.Attribute{aFloat("p", 1)}, in: []*onnx.Tensor{wave}, want: []*onnx.Tensor{f32s(dims(1, 1, 1), 10)}},
		{op: "LpPool", name: "LpPool-1 pads", opset: 1, attrs: []*onnx.Attribute{two, aFloat("p", 1), aInts("strides", 2), aInts("pads", 1, 1)}, in: []*onnx.Tensor{wave}, want: []*onnx.Tensor{f32s(dims(1, 1, 3), 1, 5, 4)}},
		{op: "LpPool", name: "LpPool-1 auto_pad", opset: 1, attrs: []*onnx.Attribute{two, aFloat("p", 1), aInts("strides", 2), aStr("auto_pad", "SAME_UPPER")}, in: []*onnx.Tensor{wave}, want: []*onnx.Tensor{f32s(dims(1, 1, 2), 3, 7)}},
		{op: "LpPool", name: "LpPool-18 rounded up", opset: 18, attrs: []*onnx.Attribute{aInts("kernel_shape", 3), aInt("p", 1), aInts("strides", 2), aInt("ceil_mode", 1)}, in: []*onnx.Tensor{wave}, want: []*onnx.Tensor{f32s(dims(1, 1, 2), 6, 7)}},
		{op: "LpPool", name: "LpPool-18 dilations", opset: 18, attrs: []*onnx.Attribute{two, aInt("p", 1), aInts("dilations", 2)}, in: []*onnx.Tensor{wave}, want: []*onnx.Tensor{f32s(dims(1, 1, 2), 4, 6)}},
		{op: "LRN", name: "LRN bias", opset: 13, attrs: []*onnx.Attribute{aInt("size", 1), aFloat("alpha", 1), aFloat("beta", 1), aFloat("bias", 2)}, in: []*onnx.Tensor{f32s(dims(1, 2, 1), 1, 2)}, want: []*onnx.Tensor{f32s(dims(1, 2, 1), 1./3, 2./6)}},
		{op: "MaxUnpool", name: "MaxUnpool pads", opset: 11, attrs: []*onnx.Attribute{two, aInts("strides", 2), aInts("pads", 1, 0)}, in: []*onnx.Tensor{f32s(dims(1, 1, 2), 5, 6), i64s(dims(1, 1, 2), 1, 2)}, want: []*onnx.Tensor{f32s(dims(1, 1, 3), 0, 5, 6)}},
		{op: "OneHot", name: "OneHot-9 axis", opset: 9, attrs: []*onnx.Attribute{aInt("axis", 0)}, fixed: []int{1}, in: []*onnx.Tensor{list1(1, 0), i64s(dims(), 2), list32(0, 1)}, want: []*onnx.Tensor{f32s(dims(2, 2), 0, 1, 1, 0)}},
		{op: "MaxRoiPool", opset: 1, attrs: []*onnx.Attribute{aInts("pooled_shape", 1, 1), half},
			in: []*onnx.Tensor{f32s(dims(1, 1, 3, 3), 1, 2, 3, 4, 5, 6, 7, 8, 9), f32s(dims(1, 5), 0, 0, 0, 2, 2)}, want: []*onnx.Tensor{f32s(dims(1, 1, 1, 1), 5)}},
		{op: "RoiAlign", opset: 10, attrs: []*onnx.Attribute{half, aInt("sampling_ratio", 1)}, in: []*onnx.Tensor{square, roi, first}, want: []*onnx.Tensor{f32s(dims(1, 1, 1, 1), 2.5)}},
		{op: "RoiAlign", name: "RoiAlign-10 max", opset: 10, attrs: []*onnx.Attribute{half, aInt("sampling_ratio", 1), aStr("mode", "max")}, in: []*onnx.Tensor{square, roi, first}, want: []*onnx.Tensor{f32s(dims(1, 1, 1, 1), 1)}},
		{op: "RoiAlign", opset: 16, attrs: []*onnx.Attribute{half, aInt("sampling_ratio", 1)}, in: []*onnx.Tensor{square, roi, first}, want: []*onnx.Tensor{f32s(dims(1, 1, 1, 1), 1)}},
		{op: "Upsample", opset: 1, attrs: []*onnx.Attribute{aStr("mode", "bilinear"), aFloat("width_scale", 2), aFloat("height_scale", 1)}, in: []*onnx.Tensor{line}, want: doubled},
		{op: "Upsample", opset: 7, attrs: []*onnx.Attribute{linear, {Name: "scales", Type: onnx.AttrFloats, Floats: []float32{1, 1, 1, 2}}}, in: []*onnx.Tensor{line}, want: doubled},
		{op: "Upsample", opset: 9, attrs: []*onnx.Attribute{linear}, fixed: []int{1}, in: []*onnx.Tensor{line, list32(1, 1, 1, 2)}, want: doubled},
		{op: "LayerNormalization", name: "LayerNormalization stash_type", opset: 17, attrs: []*onnx.Attribute{aInt("stash_type", int64(onnx.BFloat16)), aFloat("epsilon", 0)}, in: []*onnx.Tensor{f32s(dims(1, 2), 1, 3), list32(1, 2)},
			want: []*onnx.Tensor{f32s(dims(1, 2), -1, 2), tensor(onnx.BFloat16, dims(1, 1), 2), tensor(onnx.BFloat16, dims(1, 1), 1)}},
		{op: "HammingWindow", name: "HammingWindow double", opset: 17, attrs: []*onnx.Attribute{aInt("output_datatype", int64(onnx.Double))}, fixed: []int{0}, in: []*onnx.Tensor{i64s(dims(), 2)}, want: []*onnx.Tensor{tensor(onnx.Double, dims(2), 4./46, 1)}},
		{op: "BlackmanWindow", name: "BlackmanWindow half", opset: 17, attrs: []*onnx.Attribute{aInt("output_datatype", int64(onnx.Float16))}, fixed: []int{0}, in: []*onnx.Tensor{i64s(dims(), 2)}, want: []*onnx.Tensor{tensor(onnx.Float16, dims(2), 0, 1)}},
		{op: "Selu", name: "Selu-1 attributes", opset: 1, attrs: []*onnx.Attribute{aFloat("alpha", 2), aFloat("gamma", 3)}, in: []*onnx.Tensor{list32(-1, 1)}, want: []*onnx.Tensor{list32(6*math.Expm1(-1), 3)}},
		{op: "QuantizeLinear", name: "QuantizeLinear saturate of integers", opset: 19, attrs: []*onnx.Attribute{aInt("saturate", 0)}, in: []*onnx.Tensor{list32(-300, 3), f32s(dims(), 1), tensor(onnx.Int8, dims(), 0)}, want: []*onnx.Tensor{tensor(onnx.Int8, dims(2), -128, 3)}},
	})

	// A reduction over no axes is what it does to every element by itself.
	pair := list32(2, 4)
	for op, want := range map[string]*onnx.Tensor{"L1": pair, "L2": pair, "LogSum": list32(math.Log(2), math.Log(4)), "LogSumExp": pair, "Max": pair, "Mean": pair, "Min": pair, "Prod": pair} {
		runCases(t, []opCase{{op: "Reduce" + op, opset: 18, attrs: []*onnx.Attribute{aInt("noop_with_empty_axes", 1)}, in: []*onnx.Tensor{pair}, want: []*onnx.Tensor{want}}})
	}

	// Convolutions of integers in two groups.
	x, w, group := u8(dims(1, 2, 4), 1, 2, 3, 4, 5, 6, 7, 8), u8(dims(2, 1, 2), 1, 2, 3, 4), aInt("group", 2)
	for i, c := range []struct {
		attrs []*onnx.Attribute
		want  []float64
	}{
		{[]*onnx.Attribute{aInts("strides", 2), aInts("kernel_shape", 2)}, []float64{5, 11, 39, 53}},
		{[]*onnx.Attribute{aInts("dilations", 2), aStr("auto_pad", "VALID")}, []float64{7, 10, 43, 50}},
		{[]*onnx.Attribute{aStr("auto_pad", "SAME_UPPER")}, []float64{5, 8, 11, 4, 39, 46, 53, 24}},
		{[]*onnx.Attribute{aInts("strides", 2), aInts("pads", 1, 1)}, []float64{2, 8, 4, 20, 46, 24}},
	} {
		shape := dims(1, 2, int64(len(c.want)/2))
		one, zero := f32s(dims(), 1), u8(dims(), 0)
		attrs := append(c.attrs, group)
		runCases(t, []opCase{
			{op: "ConvInteger", name: "ConvInteger in groups " + strconv.Itoa(i), opset: 10, attrs: attrs, in: []*onnx.Tensor{x, w}, want: []*onnx.Tensor{i32(shape, c.want...)}},
			{op: "QLinearConv", name: "QLinearConv in groups " + strconv.Itoa(i), opset: 10, attrs: attrs, in: []*onnx.Tensor{x, one, zero, w, one, zero, one, zero}, want: []*onnx.Tensor{u8(shape, c.want...)}},
		})
	}
}

// TestDeformConvGroups has groups of channels and of offsets.
func TestDeformConvGroups(t *testing.T) {
	x := f32s(dims(1, 2, 3, 3), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18)
	still := func(shape ...int64) *onnx.Tensor {
		return f32s(shape, make([]float64, shape[0]*shape[1]*shape[2]*shape[3])...)
	}
	runCases(t, []opCase{
		{op: "DeformConv", name: "dilations", opset: 19, attrs: []*onnx.Attribute{aInt("group", 2), aInt("offset_group", 2), aInts("dilations", 2, 2)},
			in: []*onnx.Tensor{x, f32s(dims(2, 1, 2, 2), 1, 1, 1, 1, 2, 2, 2, 2), still(1, 16, 1, 1)}, want: []*onnx.Tensor{f32s(dims(1, 2, 1, 1), 20, 112)}},
		{op: "DeformConv", name: "strides", opset: 22, attrs: []*onnx.Attribute{aInts("strides", 2, 2)},
			in: []*onnx.Tensor{x, f32s(dims(1, 2, 1, 1), 1, 1), still(1, 2, 2, 2)}, want: []*onnx.Tensor{f32s(dims(1, 1, 2, 2), 11, 15, 23, 27)}},
		{op: "DeformConv", name: "offsets of groups", opset: 19, attrs: []*onnx.Attribute{aInt("offset_group", 2)},
			in:   []*onnx.Tensor{f32s(dims(1, 2, 1, 2), 1, 2, 10, 20), f32s(dims(1, 2, 1, 1), 1, 1), f32s(dims(1, 4, 1, 2), 0, 0, 1, 0, 0, 0, 0, -1)},
			want: []*onnx.Tensor{f32s(dims(1, 1, 1, 2), 12, 12)}},
	})
}

// TestRecurrentAttributes has activations with parameters, limits and
// directions, with one hidden unit.
func TestRecurrentAttributes(t *testing.T) {
	floats := func(name string, v ...float32) *onnx.Attribute {
		return &onnx.Attribute{Name: name, Type: onnx.AttrFloats, Floats: v}
	}
	acts := func(names ...string) *onnx.Attribute {
		a := &onnx.Attribute{Name: "activations", Type: onnx.AttrStrings}
		for _, n := range names {
			a.Strings = append(a.Strings, []byte(n))
		}
		return a
	}
	sig := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	// z = 0.1x+0.5, r = 0.1(h+1)+0.5, h = 2(x+2rh+3)+1
	hard := []*onnx.Attribute{acts("HardSigmoid", "Affine"), floats("activation_alpha", 0.1, 2), floats("activation_beta", 0.5, 1)}
	gw, gr, gb := f32s(dims(1, 3, 1), 1, 0, 1), f32s(dims(1, 3, 1), 0, 1, 2), f32s(dims(1, 6), 0, 0, 0, 0, 1, 3)
	h0 := f32s(dims(1, 1, 1), 0.5)
	once, twice := f32s(dims(1, 1, 1), 0.25), f32s(dims(2, 1, 1), 0.25, 0.25)
	const h1, h2, limited = 4.4425, 14.3355625, 1.6875
	lw, lr := f32s(dims(1, 4, 1), 1, 2, 3, 4), f32s(dims(1, 4, 1), 0, 0, 0, 0)
	lx, c0 := f32s(dims(1, 1, 1), 0.5), f32s(dims(1, 1, 1), 0.5)
	coupled := (1-sig(0.5))*0.5 + sig(0.5)*math.Tanh(2)
	clipped := sig(0.5) * math.Tanh(1)
	runCases(t, []opCase{
		{op: "GRU", name: "GRU activations", opset: 7, attrs: hard, in: []*onnx.Tensor{once, gw, gr, gb, nil, h0}, want: []*onnx.Tensor{nil, f32s(dims(1, 1, 1), h1)}},
		{op: "GRU", name: "GRU clip", opset: 14, attrs: append(hard[:3:3], aFloat("clip", 1)), in: []*onnx.Tensor{once, gw, gr, gb, nil, h0}, want: []*onnx.Tensor{nil, f32s(dims(1, 1, 1), limited)}},
		{op: "GRU", name: "GRU reverse", opset: 22, attrs: append(hard[:3:3], aStr("direction", "reverse")), in: []*onnx.Tensor{twice, gw, gr, gb, nil, h0}, want: []*onnx.Tensor{f32s(dims(2, 1, 1, 1), h2, h1), f32s(dims(1, 1, 1), h2)}},
		{op: "LSTM", name: "LSTM coupled gates", opset: 7, attrs: []*onnx.Attribute{aInt("input_forget", 1)}, in: []*onnx.Tensor{lx, lw, lr, nil, nil, nil, c0}, want: []*onnx.Tensor{nil, f32s(dims(1, 1, 1), sig(1)*math.Tanh(coupled)), f32s(dims(1, 1, 1), coupled)}},
		{op: "LSTM", name: "LSTM clip in reverse", opset: 14, attrs: []*onnx.Attribute{aFloat("clip", 1), aStr("direction", "reverse")}, in: []*onnx.Tensor{lx, lw, lr}, want: []*onnx.Tensor{nil, f32s(dims(1, 1, 1), sig(1)*math.Tanh(clipped)), f32s(dims(1, 1, 1), clipped)}},
		{op: "RNN", name: "RNN activation", opset: 7, attrs: []*onnx.Attribute{acts("ScaledTanh"), floats("activation_alpha", 2), floats("activation_beta", 0.5)}, in: []*onnx.Tensor{lx, f32s(dims(1, 1, 1), 4), f32s(dims(1, 1, 1), 0)},
			want: []*onnx.Tensor{nil, f32s(dims(1, 1, 1), 2*math.Tanh(1))}},
	})
}
