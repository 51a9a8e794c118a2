package graph

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// What operators on images and windows refuse.
func TestInferImageErrors(t *testing.T) {
	type types = []TensorType
	ones := []int64{1, 1}
	zeros := []int64{0, 0}
	gradient := func(change func(o *ConvWeightGradient)) *ConvWeightGradient {
		o := &ConvWeightGradient{Kernel: []int64{3}, Strides: []int64{1}, Dilations: []int64{1}, PadsBegin: []int64{0}, Group: 1}
		change(o)
		return o
	}
	transposed := func(change func(o *ConvTranspose)) *ConvTranspose {
		o := &ConvTranspose{Strides: []int64{1}, Dilations: []int64{1}, PadsBegin: []int64{0}, Output: []int64{4}, Group: 1}
		change(o)
		return o
	}
	x, w := f32(1, 4, 3), f32(4, 2, 2)
	resize := func(change func(o *Resize)) *Resize {
		o := &Resize{Mode: ResizeLinear, Coordinates: HalfPixel, Sizes: []int64{4}, Scales: []float64{2}}
		change(o)
		return o
	}
	deform := &DeformConv{Strides: ones, Dilations: ones, PadsBegin: zeros, PadsEnd: zeros, Group: 1, OffsetGroup: 2}
	col := func(image, block int64) *Col2Im {
		return &Col2Im{Image: []int64{image}, Block: []int64{block}, Strides: []int64{1}, Dilations: []int64{1}, PadsBegin: []int64{0}, PadsEnd: []int64{0}}
	}
	pool := &LpPool{Kernel: []int64{2}, Strides: []int64{1}, Dilations: []int64{1}, PadsBegin: []int64{0}, PadsEnd: []int64{0}, P: math.NaN()}
	tests := []struct {
		name string
		op   Op
		in   types
		want string
	}{
		{"gradient of another batch", gradient(func(*ConvWeightGradient) {}), types{f32(2, 4, 2), f32(3, 4, 2)}, "of the same batch"},
		{"gradient of another rank", gradient(func(*ConvWeightGradient) {}), types{f32(2, 4, 2), f32(2, 4, 2, 2)}, "want 3 to 5 dimensions"},
		{"gradient of another type", gradient(func(*ConvWeightGradient) {}), types{f32(2, 4, 2), typ(F16, 2, 4, 2)}, "dy is f16"},
		{"gradient's group", gradient(func(o *ConvWeightGradient) { o.Group = 3 }), types{f32(2, 3, 2), f32(2, 4, 2)}, "attribute Group is 3"},
		{"gradient's kernel", gradient(func(o *ConvWeightGradient) { o.Kernel = []int64{-1} }), types{f32(2, 3, 2), f32(2, 4, 2)}, "attribute Kernel[0] is -1"},
		{"gradient far apart", gradient(func(o *ConvWeightGradient) { o.Kernel = []int64{1 << 12}; o.Dilations = []int64{1 << 39} }), types{f32(2, 3, 2), f32(2, 4, 2)}, "too far apart"},
		{"rank", transposed(func(*ConvTranspose) {}), types{f32(1, 2), w}, "x is f32[1,2], want 3 to 5 dimensions"},
		{"group", transposed(func(o *ConvTranspose) { o.Group = 3 }), types{x, w}, "attribute Group is 3"},
		{"channels", transposed(func(*ConvTranspose) {}), types{x, f32(3, 2, 2)}, "want 4 channels in dimension 0"},
		{"bias", transposed(func(o *ConvTranspose) { o.Group = 2 }), types{x, w, f32(2)}, "b is f32[2], want shape [4]"},
		{"output", transposed(func(o *ConvTranspose) { o.Output = []int64{-1} }), types{x, w}, "attribute Output[0] is -1"},
		{"too big", transposed(func(o *ConvTranspose) { o.Output = []int64{1 << 39} }), types{x, w}, "is too big"},
		{"far apart", transposed(func(o *ConvTranspose) { o.Strides = []int64{1 << 39}; o.Dilations = []int64{1 << 39} }),
			types{f32(1, 1, 1<<20), f32(1, 1, 1)}, "too far apart"},
		{"deform rank", &DeformConv{Strides: ones[:1], Dilations: ones[:1], PadsBegin: zeros[:1], PadsEnd: zeros[:1], Group: 1, OffsetGroup: 1},
			types{f32(1, 4, 3), f32(5, 4, 2), f32(1, 4, 2)}, "want 4 dimensions (batch, channels and 2 spatial axes)"},
		{"offset", deform, types{f32(1, 4, 3, 3), f32(5, 4, 2, 2), f32(1, 8, 2, 2)}, "offset is f32[1,8,2,2], want shape [1,16,2,2]"},
		{"offset group", &DeformConv{Strides: ones, Dilations: ones, PadsBegin: zeros, PadsEnd: zeros, Group: 1, OffsetGroup: 3},
			types{f32(1, 4, 3, 3), f32(5, 4, 2, 2), f32(1, 24, 2, 2)}, "attribute OffsetGroup is 3"},
		{"mask", deform, types{f32(1, 4, 3, 3), f32(5, 4, 2, 2), f32(1, 16, 2, 2), none, f32(1, 16, 2, 2)}, "mask is f32[1,16,2,2], want shape [1,8,2,2]"},
		{"blocks", col(5, 2), types{f32(1, 2, 5)}, "want 4 blocks in dimension 2"},
		{"block", col(5, 2), types{f32(1, 3, 4)}, "want a multiple of 2 in dimension 1"},
		{"block too big", col(5, 6), types{f32(1, 6, 1)}, "a kernel that spans 6 is larger"},
		{"no image", &Col2Im{}, types{f32(1, 6, 1)}, "attribute Image has 0 numbers"},
		{"mode", resize(func(o *Resize) { o.Mode = "best" }), types{f32(2)}, `attribute Mode is "best"`},
		{"rounding", resize(func(o *Resize) { o.Mode = ResizeNearest }), types{f32(2)}, `attribute Rounding is ""`},
		{"coordinates", resize(func(o *Resize) { o.Coordinates = "centred" }), types{f32(2)}, `attribute Coordinates is "centred"`},
		{"integers", resize(func(*Resize) {}), types{typ(U8, 2)}, "mode linear: x is u8[2]"},
		{"scale", resize(func(o *Resize) { o.Scales[0] = 4 }), types{f32(2)}, "scale 4 gives a length of 8, but attribute Sizes says 4"},
		{"scale below zero", resize(func(o *Resize) { o.Scales[0] = -2 }), types{f32(2)}, "scale -2"},
		{"not a scale", resize(func(o *Resize) { o.Scales[0] = math.NaN() }), types{f32(2)}, "scale NaN"},
		{"out of nothing", resize(func(o *Resize) { o.Sizes[0] = 1 }), types{f32(0)}, "has no elements to make 1 of"},
		{"roi", resize(func(o *Resize) { o.Coordinates = CropAndResize }), types{f32(2)}, "have 1, 0 and 0 numbers, want 1, 1 and 1"},
		{"sample mode", &GridSample{}, types{f32(1, 1, 2), f32(1, 3, 1)}, `attribute Mode is ""`},
		{"sample padding", &GridSample{Mode: ResizeCubic}, types{f32(1, 1, 2), f32(1, 3, 1)}, `attribute Padding is ""`},
		{"grid", &GridSample{Mode: ResizeCubic, Padding: SampleBorder}, types{f32(1, 1, 2, 2), f32(1, 3, 3, 3)}, "with 1 in the first and 2 in the last"},
		{"roi mode", &RoiAlign{}, types{f32(1, 1, 2, 2), f32(3, 4), typ(I64, 3)}, `attribute Mode is ""`},
		{"sampling ratio", &RoiAlign{Mode: RoiMax, SamplingRatio: 1 << 20}, types{f32(1, 1, 2, 2), f32(3, 4), typ(I64, 3)}, "attribute SamplingRatio is 1048576"},
		{"rois", &RoiAlign{Mode: RoiMax, Height: 1, Width: 1}, types{f32(1, 1, 2, 2), f32(3, 5), typ(I64, 3)}, "rois is f32[3,5], want 2 dimensions with 4"},
		{"roi height", &MaxRoiPool{Width: 1}, types{f32(1, 1, 2, 2), f32(3, 5)}, "attribute Height, Width[0] is 0"},
		{"roi scale", &MaxRoiPool{Height: 1, Width: 1, SpatialScale: math.Inf(1)}, types{f32(1, 1, 2, 2), f32(3, 5)}, "attribute SpatialScale is +Inf"},
		{"roi images", &RoiAlign{Mode: RoiMax, Height: 1, Width: 1}, types{f32(1, 1, 2, 2), f32(3, 4), typ(I64, 2)}, "images is i64[2], want shape [3]"},
		{"order", pool, types{f32(1, 1, 4)}, "attribute P is NaN"},
		{"indices", &MaxUnpool{Shape: []int64{1, 1, 8}}, types{f32(1, 1, 4), typ(I32, 1, 1, 4)}, "want elements of type i64"},
		{"unpool shape", &MaxUnpool{Shape: []int64{1, 2, 8}}, types{f32(1, 1, 4), typ(I64, 1, 1, 4)}, "attribute Shape is [1,2,8]"},
		{"groups", &GroupNorm{Groups: 3}, types{f32(1, 4), f32(4), f32(4)}, "attribute Groups is 3"},
		{"group bias", &GroupNorm{Groups: 2}, types{f32(1, 4), f32(4), f32(2)}, "bias is f32[2], want shape [4]"},
		{"lrn size", &LRN{}, types{f32(1, 4)}, "attribute Size is 0"},
		{"lrn alpha", &LRN{Size: 1, Alpha: math.NaN()}, types{f32(1, 4)}, "want numbers"},
		{"not square", &Det{}, types{f32(3, 2)}, "want square matrices"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := tt.op.Infer(tt.in)
			require.ErrorContains(t, err, tt.want)
		})
	}
}
