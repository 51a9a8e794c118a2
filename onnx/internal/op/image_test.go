package op

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
)

func TestConvolutionsOfOtherKinds(t *testing.T) {
	x, w := f32s(dims(1, 1, 3), 1, 2, 3), f32s(dims(1, 1, 2), 1, 10)
	two := aInts("strides", 2)
	transpose := func(name string, opset int64, want []float64, attrs ...*onnx.Attribute) opCase {
		return opCase{op: "ConvTranspose", name: "ConvTranspose " + name, opset: opset, attrs: attrs, in: []*onnx.Tensor{x, w},
			want: []*onnx.Tensor{f32s(dims(1, 1, int64(len(want))), want...)}}
	}
	image := f32s(dims(1, 1, 1, 3), 1, 2, 3)
	offset := f32s(dims(1, 2, 1, 3), 0, 0, 0, 0.5, 0.5, 0.5)
	one := f32s(dims(1, 1, 1, 1), 2)
	sigmoid := func(v float64) float64 { return 1 / (1 + math.Exp(-v)) }
	k2, k1 := f32s(dims(1, 1, 2), 10, 1), f32s(dims(1, 1, 1), 1)
	runCases(t, []opCase{
		transpose("stride", 1, []float64{1, 10, 2, 20, 3, 30}, two, aInts("kernel_shape", 2)),
		transpose("pads", 11, []float64{10, 2, 20, 3, 30}, two, aInts("pads", 1, 0)),
		transpose("output padding", 11, []float64{1, 10, 2, 20, 3, 30, 0}, two, aInts("output_padding", 1)),
		transpose("output shape", 11, []float64{10, 2, 20, 3, 30}, two, aInts("output_shape", 5)),
		transpose("output shape, all of it", 11, []float64{10, 2, 20, 3, 30}, two, aInts("output_shape", 1, 1, 5)),
		transpose("output shape, upper", 22, []float64{1, 10, 2, 20, 3}, two, aInts("output_shape", 5), aStr("auto_pad", "SAME_UPPER")),
		transpose("great output shape", 11, []float64{1, 10, 2, 20, 3, 30, 0}, two, aInts("output_shape", 7)),
		transpose("same lower", 11, []float64{12, 23, 30}, aStr("auto_pad", "SAME_LOWER")),
		transpose("same upper", 11, []float64{1, 12, 23}, aStr("auto_pad", "SAME_UPPER")),
		transpose("valid", 11, []float64{1, 12, 23, 30}, aStr("auto_pad", "VALID")),
		transpose("dilations", 22, []float64{1, 2, 13, 20, 30}, aInts("dilations", 2)),
		{op: "ConvTranspose", name: "ConvTranspose groups", opset: 11, attrs: []*onnx.Attribute{aInt("group", 2)}, fixed: []int{1},
			in:   []*onnx.Tensor{f32s(dims(1, 2, 1), 1, 2), f32s(dims(2, 1, 2), 1, 2, 3, 4), list32(0, 100)},
			want: []*onnx.Tensor{f32s(dims(1, 2, 2), 1, 2, 106, 108)}},
		{op: "ConvTranspose", name: "ConvTranspose-22 bfloat16", opset: 22, in: []*onnx.Tensor{tensor(onnx.BFloat16, dims(1, 1, 1), 2), tensor(onnx.BFloat16, dims(1, 1, 2), 3, 4)},
			want: []*onnx.Tensor{tensor(onnx.BFloat16, dims(1, 1, 2), 6, 8)}},
		{op: "MaxPool", name: "MaxPool valid, rounded up", opset: 12, attrs: []*onnx.Attribute{aInts("kernel_shape", 2), two, aStr("auto_pad", "VALID"), aInt("ceil_mode", 1)}, in: []*onnx.Tensor{x},
			want: []*onnx.Tensor{f32s(dims(1, 1, 2), 2, 3)}},
		{op: "DeformConv", opset: 19, in: []*onnx.Tensor{image, one, offset}, want: []*onnx.Tensor{f32s(dims(1, 1, 1, 3), 3, 5, 3)}},
		{op: "DeformConv", name: "DeformConv-22 mask and bias", opset: 22, attrs: []*onnx.Attribute{aInts("kernel_shape", 1, 1), aInt("offset_group", 1)},
			in: []*onnx.Tensor{image, one, offset, list32(1), f32s(dims(1, 1, 1, 3), 1, 0, 0.5)}, want: []*onnx.Tensor{f32s(dims(1, 1, 1, 3), 4, 1, 2.5)}},
		{op: "Col2Im", opset: 18, fixed: []int{1, 2}, in: []*onnx.Tensor{f32s(dims(1, 2, 2), 1, 2, 3, 4), list1(3), list1(2)}, want: []*onnx.Tensor{f32s(dims(1, 1, 3), 1, 5, 4)}},
		{op: "Col2Im", name: "Col2Im-18 integers, padded", opset: 18, attrs: []*onnx.Attribute{aInts("pads", 1, 0), aInts("strides", 2)}, fixed: []int{1, 2},
			in: []*onnx.Tensor{tensor(onnx.Int16, dims(1, 2, 2), 1, 2, 3, 4), list1(3), list1(2)}, want: []*onnx.Tensor{tensor(onnx.Int16, dims(1, 1, 3), 3, 2, 4)}},
		{op: "CausalConvWithState", opset: 27, in: []*onnx.Tensor{x, k2}, want: []*onnx.Tensor{f32s(dims(1, 1, 3), 1, 12, 23), f32s(dims(1, 1, 1), 3)}},
		{op: "CausalConvWithState", name: "CausalConvWithState with a past", opset: 27, in: []*onnx.Tensor{x, k2, list32(0.5), f32s(dims(1, 1, 1), 5)},
			want: []*onnx.Tensor{f32s(dims(1, 1, 3), 51.5, 12.5, 23.5), f32s(dims(1, 1, 1), 3)}},
		{op: "CausalConvWithState", name: "CausalConvWithState silu", opset: 27, attrs: []*onnx.Attribute{aStr("activation", "silu")}, in: []*onnx.Tensor{x, k1},
			want: []*onnx.Tensor{f32s(dims(1, 1, 3), sigmoid(1), 2*sigmoid(2), 3*sigmoid(3)), f32s(dims(1, 1, 0))}},
	})
}

func TestResizing(t *testing.T) {
	line := list32(1, 2, 3, 4)
	mode := func(m string) *onnx.Attribute { return aStr("mode", m) }
	coordinates := func(m string) *onnx.Attribute { return aStr("coordinate_transformation_mode", m) }
	empty := f32s(dims(0))
	scaled := func(name string, opset int64, scale float64, want *onnx.Tensor, attrs ...*onnx.Attribute) opCase {
		return opCase{op: "Resize", name: "Resize by scale, " + name, opset: opset, attrs: attrs, fixed: []int{1, 2}, in: []*onnx.Tensor{line, empty, list32(scale)}, want: []*onnx.Tensor{want}}
	}
	sized := func(name string, opset int64, x *onnx.Tensor, sizes []float64, want *onnx.Tensor, attrs ...*onnx.Attribute) opCase {
		return opCase{op: "Resize", name: "Resize by size, " + name, opset: opset, attrs: attrs, fixed: []int{3}, in: []*onnx.Tensor{x, nil, nil, list1(sizes...)}, want: []*onnx.Tensor{want}}
	}
	image := f32s(dims(1, 1, 1, 2), 1, 2)
	deep := f32s(dims(1, 8, 1, 1), 1, 2, 3, 4, 5, 6, 7, 8)
	block := aInt("blocksize", 2)
	runCases(t, []opCase{
		{op: "Resize", name: "Resize-10 shrinks upwards", opset: 10, fixed: []int{1}, in: []*onnx.Tensor{line, list32(0.6)}, want: []*onnx.Tensor{list32(1, 3)}},
		{op: "Resize", name: "Resize-10 linear", opset: 10, attrs: []*onnx.Attribute{mode("linear")}, fixed: []int{1}, in: []*onnx.Tensor{list32(1, 2), list32(2)}, want: []*onnx.Tensor{list32(1, 1.5, 2, 2)}},
		{op: "Upsample", name: "Upsample-1", opset: 1, attrs: []*onnx.Attribute{aFloat("height_scale", 2), aFloat("width_scale", 1.5)}, in: []*onnx.Tensor{image}, want: []*onnx.Tensor{f32s(dims(1, 1, 2, 3), 1, 1, 2, 1, 1, 2)}},
		{op: "Upsample", name: "Upsample-1 bilinear", opset: 1, attrs: []*onnx.Attribute{mode("bilinear"), aFloat("height_scale", 1), aFloat("width_scale", 2)}, in: []*onnx.Tensor{image}, want: []*onnx.Tensor{f32s(dims(1, 1, 1, 4), 1, 1.5, 2, 2)}},
		{op: "Upsample", name: "Upsample-7", opset: 7, attrs: []*onnx.Attribute{{Name: "scales", Type: onnx.AttrFloats, Floats: []float32{1, 1, 1, 2}}, mode("linear")}, in: []*onnx.Tensor{image}, want: []*onnx.Tensor{f32s(dims(1, 1, 1, 4), 1, 1.5, 2, 2)}},
		{op: "Upsample", name: "Upsample-9", opset: 9, fixed: []int{1}, in: []*onnx.Tensor{list32(1, 2), list32(2)}, want: []*onnx.Tensor{list32(1, 1, 2, 2)}},
		scaled("nearest", 11, 2, list32(1, 1, 2, 2, 3, 3, 4, 4)),
		scaled("nearest ceil", 13, 2, list32(1, 2, 2, 3, 3, 4, 4, 4), aStr("nearest_mode", "ceil")),
		scaled("prefer ceil", 13, 0.5, list32(2, 4), aStr("nearest_mode", "round_prefer_ceil")),
		scaled("prefer floor", 13, 0.5, list32(1, 3)),
		{op: "Resize", name: "Resize, half-way in float32 alone", opset: 18, attrs: []*onnx.Attribute{coordinates("pytorch_half_pixel")}, fixed: []int{1, 2},
			in: []*onnx.Tensor{list32(1, 2, 3, 4, 5, 6, 7), empty, list32(1.9)}, want: []*onnx.Tensor{list32(1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 7, 7)}},
		scaled("corners of a length that is not s·n", 13, 0.6, list32(1, 4), mode("linear"), coordinates("align_corners")),
		scaled("corners to one element", 13, 0.4, list32(1), mode("linear"), coordinates("align_corners")),
		scaled("cubic corners", 13, 0.9, list32(1, 2.5, 4), mode("cubic"), coordinates("align_corners")),
		scaled("antialiased corners", 18, 0.6, list32(11./9, 34./9), mode("linear"), coordinates("align_corners"), aInt("antialias", 1)),
		scaled("half pixel of one element, cubic", 13, 0.4, list32(1), mode("cubic"), coordinates("pytorch_half_pixel")),
		scaled("symmetric", 19, 0.6, list32(5./3, 10./3), mode("linear"), coordinates("half_pixel_symmetric")),
		scaled("antialias", 18, 0.5, list32(1.625, 3.375), mode("linear"), aInt("antialias", 1)),
		scaled("antialias, excluded", 18, 0.5, list32(3/1.75, 5-3/1.75), mode("linear"), aInt("antialias", 1), aInt("exclude_outside", 1)),
		scaled("a product in single precision", 13, 0.7, list32(1, 2), aStr("nearest_mode", "floor"), coordinates("asymmetric")),
		sized("nn", 11, list32(1, 2, 3, 4), []float64{2}, list32(2, 4), coordinates("tf_half_pixel_for_nn"), aStr("nearest_mode", "floor")),
		sized("pytorch", 13, list32(1, 2, 3), []float64{1}, list32(1), mode("linear"), coordinates("pytorch_half_pixel")),
		sized("cubic", 19, list32(1, 2), []float64{4}, list32(0.89453125, 1.2265625, 1.7734375, 2.10546875), mode("cubic")),
		sized("unsigned bytes", 13, tensor(onnx.Uint8, dims(2), 0, 3), []float64{4}, tensor(onnx.Uint8, dims(4), 0, 0, 2, 3), mode("linear")),
		sized("long integers", 13, i64s(dims(2), -3, 3), []float64{3}, i64s(dims(3), -3, 0, 3), mode("linear")),
		sized("bools", 13, bools(dims(2), 0, 1), []float64{4}, bools(dims(4), 0, 0, 1, 1)),
		sized("axes", 18, f32s(dims(2, 1), 1, 2), []float64{4}, f32s(dims(4, 1), 1, 1, 2, 2), aInts("axes", -2)),
		sized("not larger", 18, f32s(dims(2, 1), 1, 2), []float64{5, 2}, f32s(dims(4, 2), 1, 1, 1, 1, 2, 2, 2, 2), aStr("keep_aspect_ratio_policy", "not_larger")),
		sized("not smaller", 18, f32s(dims(2, 1), 1, 2), []float64{3, 1}, f32s(dims(3, 2), 1, 1, 1, 1, 2, 2), aStr("keep_aspect_ratio_policy", "not_smaller"), aStr("nearest_mode", "floor")),
		// In float32 these places are 3.4999998, 14.499999 and 10.500001.
		sized("half-way but in float32, prefer ceil", 13, list32(0, 1, 2, 3, 4, 5, 6), []float64{2}, list32(0, 4), coordinates("asymmetric"), aStr("nearest_mode", "round_prefer_ceil")),
		sized("half-way but in float32, prefer ceil, half pixel", 13, list32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19), []float64{6}, list32(1, 5, 8, 11, 15, 18), aStr("nearest_mode", "round_prefer_ceil")),
		sized("half-way but in float32, prefer floor", 13, list32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21), []float64{13}, list32(0, 2, 4, 5, 7, 9, 10, 12, 14, 16, 17, 19, 21)),
		// The axis of two keeps its size, but not by the scale 1: the filter of 1/0.75 elements
		// applies there too, which ONNX Runtime leaves out and ONNX's reference does not.
		sized("not larger, antialiased where the size stays", 18, f32s(dims(4, 2), 1, 2, 1, 2, 1, 2, 1, 2), []float64{3, 9}, f32s(dims(3, 2), 14./11, 2, 14./11, 2, 14./11, 2),
			aStr("keep_aspect_ratio_policy", "not_larger"), mode("linear"), aInt("antialias", 1)),
		sized("not larger, antialiased corners where the size stays", 18, f32s(dims(4, 2), 1, 2, 1, 2, 1, 2, 1, 2), []float64{3, 9}, f32s(dims(3, 2), 7./6, 11./6, 7./6, 11./6, 7./6, 11./6),
			aStr("keep_aspect_ratio_policy", "not_larger"), mode("linear"), coordinates("align_corners"), aInt("antialias", 1)),
		sized("nothing", 13, f32s(dims(0, 2)), []float64{0, 4}, f32s(dims(0, 4))),
		{op: "Resize", name: "Resize crops", opset: 11, attrs: []*onnx.Attribute{mode("linear"), coordinates("tf_crop_and_resize"), aFloat("extrapolation_value", -9)}, fixed: []int{1, 2, 3},
			in: []*onnx.Tensor{list32(1, 2, 3), list32(0.25, 1.75), empty, list1(3)}, want: []*onnx.Tensor{list32(1.5, 3, -9)}},
		{op: "Resize", name: "Resize crops integers", opset: 13, attrs: []*onnx.Attribute{coordinates("tf_crop_and_resize"), aFloat("extrapolation_value", 300)}, fixed: []int{1, 3},
			in: []*onnx.Tensor{tensor(onnx.Uint8, dims(3), 1, 2, 3), list32(0, 2), nil, list1(2)}, want: []*onnx.Tensor{tensor(onnx.Uint8, dims(2), 1, 255)}},
		{op: "DepthToSpace", opset: 1, attrs: []*onnx.Attribute{block}, in: []*onnx.Tensor{deep}, want: []*onnx.Tensor{f32s(dims(1, 2, 2, 2), 1, 3, 5, 7, 2, 4, 6, 8)}},
		{op: "DepthToSpace", name: "DepthToSpace-11 CRD", opset: 11, attrs: []*onnx.Attribute{block, mode("CRD")}, in: []*onnx.Tensor{deep}, want: []*onnx.Tensor{f32s(dims(1, 2, 2, 2), 1, 2, 3, 4, 5, 6, 7, 8)}},
		{op: "SpaceToDepth", opset: 13, attrs: []*onnx.Attribute{block}, in: []*onnx.Tensor{f32s(dims(1, 2, 2, 2), 1, 3, 5, 7, 2, 4, 6, 8)}, want: []*onnx.Tensor{f32s(dims(1, 8, 1, 1), 1, 2, 3, 4, 5, 6, 7, 8)}},
		{op: "CenterCropPad", name: "CenterCropPad crops", opset: 18, fixed: []int{1}, in: []*onnx.Tensor{list32(1, 2, 3, 4, 5), list1(2)}, want: []*onnx.Tensor{list32(2, 3)}},
		{op: "CenterCropPad", name: "CenterCropPad pads", opset: 18, attrs: []*onnx.Attribute{aInts("axes", -1, 0)}, fixed: []int{1}, in: []*onnx.Tensor{i64s(dims(3, 2), 1, 2, 3, 4, 5, 6), list1(5, 1)}, want: []*onnx.Tensor{i64s(dims(1, 5), 0, 3, 4, 0, 0)}},
	})
}

func TestSampling(t *testing.T) {
	line := f32s(dims(1, 1, 1, 3), 1, 2, 3)
	grid := f32s(dims(1, 1, 3, 2), 0.5, 0, 1, 0, -2, 0)
	region := f32s(dims(1, 4), 0, 0, 2, 2)
	square := f32s(dims(1, 1, 2, 2), 1, 2, 3, 4)
	sample := func(name string, opset int64, want []float64, attrs ...*onnx.Attribute) opCase {
		return opCase{op: "GridSample", name: "GridSample " + name, opset: opset, attrs: attrs, in: []*onnx.Tensor{line, grid}, want: []*onnx.Tensor{f32s(dims(1, 1, 1, 3), want...)}}
	}
	align := aInt("align_corners", 1)
	runCases(t, []opCase{
		sample("bilinear", 16, []float64{2.75, 1.5, 0}),
		sample("align", 22, []float64{2.5, 3, 0}, align),
		sample("border", 20, []float64{2.75, 3, 1}, aStr("padding_mode", "border")),
		sample("reflection", 20, []float64{2.5, 3, 2}, align, aStr("padding_mode", "reflection"), aStr("mode", "linear")),
		sample("nearest", 16, []float64{3, 3, 0}, aStr("mode", "nearest"), aStr("padding_mode", "zeros")),
		sample("bicubic", 16, []float64{2.59375, 3, 1}, align, aStr("mode", "bicubic"), aStr("padding_mode", "border")),
		{op: "GridSample", name: "GridSample cubic, border: the place itself may be outside", opset: 20, attrs: []*onnx.Attribute{aStr("mode", "cubic"), aStr("padding_mode", "border"), aInt("align_corners", 1)},
			in: []*onnx.Tensor{f32s(dims(1, 1, 1, 3), 1, 2, 4), f32s(dims(1, 1, 1, 2), 1.25, 0)}, want: []*onnx.Tensor{f32s(dims(1, 1, 1, 1), 4.2109375)}},
		{op: "GridSample", name: "GridSample of integers and a wide grid", opset: 22, attrs: []*onnx.Attribute{align}, in: []*onnx.Tensor{tensor(onnx.Int32, dims(1, 1, 3), 1, 20, 30), tensor(onnx.Double, dims(1, 1, 1), 0.25)},
			want: []*onnx.Tensor{tensor(onnx.Int32, dims(1, 1, 1), 22)}},
		{op: "AffineGrid", opset: 20, fixed: []int{1}, in: []*onnx.Tensor{f32s(dims(1, 2, 3), 2, 0, 0.5, 0, 3, 0), list1(1, 1, 1, 2)}, want: []*onnx.Tensor{f32s(dims(1, 1, 2, 2), -0.5, 0, 1.5, 0)}},
		{op: "AffineGrid", name: "AffineGrid aligned volume", opset: 20, attrs: []*onnx.Attribute{align}, fixed: []int{1},
			in:   []*onnx.Tensor{f32s(dims(1, 3, 4), 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 9), list1(1, 1, 2, 1, 2)},
			want: []*onnx.Tensor{f32s(dims(1, 2, 1, 2, 3), -1, -1, 8, 1, -1, 8, -1, -1, 10, 1, -1, 10)}},
		{op: "RoiAlign", opset: 10, attrs: []*onnx.Attribute{aInt("sampling_ratio", 1)}, in: []*onnx.Tensor{square, region, i64s(dims(1), 0)}, want: []*onnx.Tensor{f32s(dims(1, 1, 1, 1), 4)}},
		{op: "RoiAlign", name: "RoiAlign-16 half pixels", opset: 16, attrs: []*onnx.Attribute{aInt("sampling_ratio", 1)}, in: []*onnx.Tensor{square, region, i64s(dims(1), 0)}, want: []*onnx.Tensor{f32s(dims(1, 1, 1, 1), 2.5)}},
		{op: "RoiAlign", name: "RoiAlign-22 largest", opset: 22, attrs: []*onnx.Attribute{aInt("output_width", 2), aStr("mode", "max"), aStr("coordinate_transformation_mode", "output_half_pixel")},
			in: []*onnx.Tensor{square, region, i64s(dims(1), 0)}, want: []*onnx.Tensor{f32s(dims(1, 1, 1, 2), 2, 4)}},
		{op: "MaxRoiPool", opset: 1, attrs: []*onnx.Attribute{aInts("pooled_shape", 1, 2)}, in: []*onnx.Tensor{square, f32s(dims(1, 5), 0, 0, 0, 1, 1)}, want: []*onnx.Tensor{f32s(dims(1, 1, 1, 2), 3, 4)}},
	})
}

func TestNorms(t *testing.T) {
	x := f32s(dims(1, 1, 4), 3, -4, 0, 12)
	kernel := aInts("kernel_shape", 2)
	two := f32s(dims(1, 2, 2), 1, 3, -1, 5)
	four := f32s(dims(1, 4, 1), 1, 3, -1, 5)
	eps := aFloat("epsilon", 0)
	matrix := f32s(dims(2, 2, 2), 1, 2, 3, 4, 0, 2, 2, 4)
	indices := i64s(dims(1, 1, 2), 1, 3)
	runCases(t, []opCase{
		{op: "LpPool", name: "LpPool-1", opset: 1, attrs: []*onnx.Attribute{kernel, aFloat("p", 1)}, in: []*onnx.Tensor{x}, want: []*onnx.Tensor{f32s(dims(1, 1, 3), 7, 4, 12)}},
		{op: "LpPool", name: "LpPool-2", opset: 2, attrs: []*onnx.Attribute{kernel, aInt("p", 2), aInts("pads", 1, 0), aInts("strides", 2)}, in: []*onnx.Tensor{x}, want: []*onnx.Tensor{f32s(dims(1, 1, 2), 3, 4)}},
		{op: "LpPool", name: "LpPool-18 rounds up, dilated", opset: 18, attrs: []*onnx.Attribute{kernel, aInt("p", 3), aInts("dilations", 2), aInts("strides", 3), aInt("ceil_mode", 1)}, in: []*onnx.Tensor{x},
			want: []*onnx.Tensor{f32s(dims(1, 1, 2), 3, 12)}},
		{op: "LpPool", name: "LpPool-22 same", opset: 22, attrs: []*onnx.Attribute{kernel, aStr("auto_pad", "SAME_UPPER")}, in: []*onnx.Tensor{x}, want: []*onnx.Tensor{f32s(dims(1, 1, 4), 5, 4, 12, 12)}},
		{op: "GlobalLpPool", name: "GlobalLpPool-1", opset: 1, attrs: []*onnx.Attribute{aFloat("p", 2)}, in: []*onnx.Tensor{x}, want: []*onnx.Tensor{f32s(dims(1, 1, 1), 13)}},
		{op: "GlobalLpPool", name: "GlobalLpPool-2 cubes", opset: 2, attrs: []*onnx.Attribute{aInt("p", 3)}, in: []*onnx.Tensor{x}, want: []*onnx.Tensor{f32s(dims(1, 1, 1), math.Cbrt(27+64+1728))}},
		{op: "GlobalLpPool", name: "GlobalLpPool-22 sums", opset: 22, attrs: []*onnx.Attribute{aInt("p", 1)}, in: []*onnx.Tensor{tensor(onnx.Float16, dims(1, 1, 2), 3, -4)}, want: []*onnx.Tensor{tensor(onnx.Float16, dims(1, 1, 1), 7)}},
		{op: "LpNormalization", opset: 1, attrs: []*onnx.Attribute{aInt("axis", 1)}, in: []*onnx.Tensor{f32s(dims(2, 2), 3, -4, 0, 0)}, want: []*onnx.Tensor{f32s(dims(2, 2), 0.6, -0.8, 0, 0)}},
		{op: "LpNormalization", name: "LpNormalization-22 of great numbers", opset: 22, in: []*onnx.Tensor{list32(3e30, -4e30)}, want: []*onnx.Tensor{list32(0.6, -0.8)}},
		{op: "LpNormalization", name: "LpNormalization-22 sums", opset: 22, attrs: []*onnx.Attribute{aInt("p", 1), aInt("axis", 0)}, in: []*onnx.Tensor{tensor(onnx.Float16, dims(2), 3e4, -5e4)}, want: []*onnx.Tensor{tensor(onnx.Float16, dims(2), 0.375, -0.625)}},
		{op: "MaxUnpool", opset: 9, attrs: []*onnx.Attribute{kernel, aInts("strides", 2)}, in: []*onnx.Tensor{f32s(dims(1, 1, 2), 5, 7), indices}, want: []*onnx.Tensor{f32s(dims(1, 1, 4), 0, 5, 0, 7)}},
		{op: "MaxUnpool", name: "MaxUnpool-11 larger", opset: 11, attrs: []*onnx.Attribute{kernel, aInts("strides", 2)}, fixed: []int{2}, in: []*onnx.Tensor{f32s(dims(1, 1, 2), 5, 7), indices, list1(1, 1, 6)},
			want: []*onnx.Tensor{f32s(dims(1, 1, 6), 0, 5, 0, 7, 0, 0)}},
		{op: "InstanceNormalization", opset: 1, attrs: []*onnx.Attribute{eps, aInts("consumed_inputs", 0)}, in: []*onnx.Tensor{two, list32(1, 2), list32(0, 10)}, want: []*onnx.Tensor{f32s(dims(1, 2, 2), -1, 1, 8, 12)}},
		{op: "InstanceNormalization", name: "InstanceNormalization-22 bfloat16", opset: 22, attrs: []*onnx.Attribute{eps}, in: []*onnx.Tensor{tensor(onnx.BFloat16, dims(1, 1, 2), 1, 3), tensor(onnx.BFloat16, dims(1), 1), tensor(onnx.BFloat16, dims(1), 0)},
			want: []*onnx.Tensor{tensor(onnx.BFloat16, dims(1, 1, 2), -1, 1)}},
		{op: "GroupNormalization", name: "GroupNormalization-18 per group", opset: 18, attrs: []*onnx.Attribute{eps, aInt("num_groups", 2)}, in: []*onnx.Tensor{four, list32(1, 2), list32(0, 10)}, want: []*onnx.Tensor{f32s(dims(1, 4, 1), -1, 1, 8, 12)}},
		{op: "GroupNormalization", name: "GroupNormalization-21 per channel", opset: 21, attrs: []*onnx.Attribute{eps, aInt("num_groups", 2), aInt("stash_type", 1)}, in: []*onnx.Tensor{four, list32(1, 2, 3, 4), list32(0, 0, 0, 10)},
			want: []*onnx.Tensor{f32s(dims(1, 4, 1), -1, 2, -3, 14)}},
		{op: "GroupNormalization", name: "GroupNormalization-21 in double precision", opset: 21, attrs: []*onnx.Attribute{eps, aInt("num_groups", 1), aInt("stash_type", int64(onnx.Double))}, in: []*onnx.Tensor{f32s(dims(1, 2), 1, 3), list32(1, 1), list32(0, 0)},
			want: []*onnx.Tensor{f32s(dims(1, 2), -1, 1)}},
		{op: "MeanVarianceNormalization", opset: 9, in: []*onnx.Tensor{f32s(dims(2, 2, 1, 1), 1, 3, 5, 13)}, want: []*onnx.Tensor{f32s(dims(2, 2, 1, 1), -1, -1, 1, 1)}},
		{op: "MeanVarianceNormalization", name: "MeanVarianceNormalization-13 axes", opset: 13, attrs: []*onnx.Attribute{aInts("axes", -1)}, in: []*onnx.Tensor{tensor(onnx.Float16, dims(2, 2), 1, 3, 7, 7)}, want: []*onnx.Tensor{tensor(onnx.Float16, dims(2, 2), -1, 1, 0, 0)}},
		{op: "LRN", opset: 1, attrs: []*onnx.Attribute{aInt("size", 2), aFloat("alpha", 2), aFloat("beta", 1), aFloat("bias", 1)}, in: []*onnx.Tensor{f32s(dims(1, 3, 1, 1), 1, 2, 3)},
			want: []*onnx.Tensor{f32s(dims(1, 3, 1, 1), 1./6, 2./14, 3./10)}},
		{op: "Det", opset: 11, in: []*onnx.Tensor{matrix}, want: []*onnx.Tensor{list32(-2, -4)}},
		{op: "Det", name: "Det-22 of one", opset: 22, in: []*onnx.Tensor{tensor(onnx.Double, dims(1, 1), 3)}, want: []*onnx.Tensor{tensor(onnx.Double, dims(), 3)}},
	})
}

func TestGraphcoreOperators(t *testing.T) {
	x := f32s(dims(1, 2, 3), 1, 2, 3, 4, 5, 6)
	for _, c := range []struct {
		op    string
		attrs []*onnx.Attribute
		in    []*onnx.Tensor
		want  []*onnx.Tensor
	}{
		{"Scale", []*onnx.Attribute{aFloat("scale", 0.5)}, []*onnx.Tensor{list32(2, 4)}, []*onnx.Tensor{list32(1, 2)}},
		{"Scale", []*onnx.Attribute{aFloat("scale", 0.5)}, []*onnx.Tensor{i64s(dims(2), 2, -5)}, []*onnx.Tensor{i64s(dims(2), 1, -2)}},
		{"Square", nil, []*onnx.Tensor{list32(2, -3)}, []*onnx.Tensor{list32(4, 9)}},
		{"Subsample", []*onnx.Attribute{aInts("strides", 1, 2, 2)}, []*onnx.Tensor{x}, []*onnx.Tensor{f32s(dims(1, 1, 2), 1, 3)}},
		{"ConvFlipWeights", nil, []*onnx.Tensor{x}, []*onnx.Tensor{f32s(dims(2, 1, 3), 3, 2, 1, 6, 5, 4)}},
		{"GroupNormalization", []*onnx.Attribute{aInt("num_groups", 2), aFloat("epsilon", 0)}, []*onnx.Tensor{f32s(dims(1, 2, 2), 1, 3, 1, 5), list32(1, 2), list32(0, 1)},
			[]*onnx.Tensor{f32s(dims(1, 2, 2), -1, 1, -1, 3), list32(2, 3), list32(1, 0.5)}},
	} {
		n := &onnx.Node{OpType: c.op, Domain: "ai.graphcore", Attributes: c.attrs}
		g := &onnx.Graph{Nodes: []*onnx.Node{n}}
		for i, v := range c.in {
			name := string(rune('a' + i))
			n.Inputs = append(n.Inputs, name)
			g.Initializers = append(g.Initializers, named(v, name))
		}
		for i := range c.want {
			name := string(rune('p' + i))
			n.Outputs = append(n.Outputs, name)
			g.Outputs = append(g.Outputs, onnx.ValueInfo{Name: name})
		}
		m := model(11, g)
		m.Opsets = append(m.Opsets, onnx.Opset{Domain: "ai.graphcore", Version: 1})
		low, err := Lower(m, onnx.Options{})
		require.NoError(t, err, c.op)
		outs, err := interpret(low, nil)
		require.NoError(t, err, c.op)
		for i, w := range c.want {
			typ := low.Executable.Tensors[low.Outputs[i].Tensor].Type
			require.Equal(t, w.Type().String(), typ.String(), "%s: type of result %d", c.op, i)
			require.InDeltaSlice(t, numbers(typ.DType, w.Data), numbers(typ.DType, outs[i]), 1e-6, "%s: result %d", c.op, i)
		}
	}
}

func TestImageOperatorsRefuse(t *testing.T) {
	line := list32(1, 2)
	for _, c := range []struct {
		op    string
		opset int64
		attrs []*onnx.Attribute
		in    []*onnx.Tensor
		want  string
	}{
		{"Resize", 13, nil, []*onnx.Tensor{line, nil, list32(2), list1(4)}, "both there or both left out"},
		{"Resize", 13, nil, []*onnx.Tensor{line}, "both there or both left out"},
		{"Resize", 13, nil, []*onnx.Tensor{line, nil, list32(math.NaN())}, "makes no size"},
		{"Resize", 13, nil, []*onnx.Tensor{line, nil, list32(1e30)}, "makes no size"},
		{"Resize", 13, nil, []*onnx.Tensor{line, nil, nil, list1(-1)}, "Sizes[0] is -1"},
		{"Resize", 13, []*onnx.Attribute{aStr("nearest_mode", "simple")}, []*onnx.Tensor{line, nil, list32(2)}, `"nearest_mode" is "simple"`},
		{"Resize", 13, []*onnx.Attribute{aStr("coordinate_transformation_mode", "tf_crop_and_resize")}, []*onnx.Tensor{line, list32(1), list32(2)}, "has 1 numbers, want 2"},
		{"Resize", 18, []*onnx.Attribute{aStr("keep_aspect_ratio_policy", "wide")}, []*onnx.Tensor{line, nil, nil, list1(4)}, `"keep_aspect_ratio_policy" is "wide"`},
		{"Upsample", 10, nil, []*onnx.Tensor{line, list32(2)}, "ONNX dropped it in 10"},
		{"Upsample", 9, nil, []*onnx.Tensor{line, list32(2, 2)}, "scales has 2 numbers"},
		{"DepthToSpace", 13, []*onnx.Attribute{aInt("blocksize", 2)}, []*onnx.Tensor{f32s(dims(1, 2, 1, 1), 1, 2)}, "that 4 divides"},
		{"SpaceToDepth", 13, []*onnx.Attribute{aInt("blocksize", 0)}, []*onnx.Tensor{f32s(dims(1, 1, 1, 1), 1)}, `"blocksize" is 0`},
		{"AffineGrid", 20, nil, []*onnx.Tensor{f32s(dims(1, 2, 3), 1, 2, 3, 4, 5, 6), list1(1, 1, 1<<40, 1<<40)}, "too big"},
		{"AffineGrid", 20, nil, []*onnx.Tensor{f32s(dims(1, 2, 3), 1, 2, 3, 4, 5, 6), list1(1, 1, 1<<14, 1<<14)}, "a constant of 6 GiB"},
		{"ConvTranspose", 11, []*onnx.Attribute{aInts("pads", 9, 9)}, []*onnx.Tensor{f32s(dims(1, 1, 1), 1), f32s(dims(1, 1, 1), 1)}, "Output[0] is -17"},
		{"ConvTranspose", 11, []*onnx.Attribute{aInts("output_shape", 1<<50)}, []*onnx.Tensor{f32s(dims(1, 1, 1), 1), f32s(dims(1, 1, 1), 1)}, "Output[0] is 1125899906842624"},
		{"MaxUnpool", 11, []*onnx.Attribute{aInts("kernel_shape", 2)}, []*onnx.Tensor{f32s(dims(1, 1, 1), 1), i64s(dims(1, 1, 1), 9)}, "index 9 of element 0 is out of range"},
		{"LpPool", 11, []*onnx.Attribute{aInts("kernel_shape", 1), aInt("p", 0)}, []*onnx.Tensor{f32s(dims(1, 1, 1), 1)}, `"p" is 0`},
		{"CausalConvWithState", 27, []*onnx.Attribute{aStr("activation", "relu")}, []*onnx.Tensor{f32s(dims(1, 1, 1), 1), f32s(dims(1, 1, 1), 1)}, `"activation" is "relu"`},
	} {
		n := &onnx.Node{OpType: c.op, Attributes: c.attrs, Outputs: names("y")}
		g := &onnx.Graph{Nodes: []*onnx.Node{n}, Outputs: outputs("y")}
		for i, v := range c.in {
			if v == nil {
				n.Inputs = append(n.Inputs, "")
				continue
			}
			name := string(rune('a' + i))
			n.Inputs = append(n.Inputs, name)
			g.Initializers = append(g.Initializers, named(v, name))
		}
		_, err := Lower(model(c.opset, g), onnx.Options{})
		require.ErrorContains(t, err, c.want, c.op)
	}
}
