package graph

import (
	"fmt"
	"math"
)

// ResizeMode says how [Resize] computes elements between those of its operand.
type ResizeMode string

// The modes of ONNX's Resize.
const (
	ResizeNearest ResizeMode = "nearest"
	ResizeLinear  ResizeMode = "linear"
	ResizeCubic   ResizeMode = "cubic"
)

// Coordinates says which place of the operand an element of [Resize]'s result
// comes from.
type Coordinates string

// The coordinate transformations of ONNX's Resize, with x the index of the
// result's element, s the scale, n and m the operand's and the result's length.
//
// The result's length is the whole one, as in PyTorch and ONNX Runtime, also
// where s·n is not: ONNX's reference takes s·n for it, by which the last
// element of AlignCorners would not lie on the last one of the operand.
const (
	HalfPixel           Coordinates = "half_pixel"           // (x+½)/s - ½
	HalfPixelSymmetric  Coordinates = "half_pixel_symmetric" // (x+½)/s - ½ + n/2·(1-m/(s·n))
	PytorchHalfPixel    Coordinates = "pytorch_half_pixel"   // (x+½)/s - ½, or 0 if m = 1
	AlignCorners        Coordinates = "align_corners"        // x·(n-1)/(m-1), or 0 if m = 1
	Asymmetric          Coordinates = "asymmetric"           // x/s
	HalfPixelForNearest Coordinates = "tf_half_pixel_for_nn" // (x+½)/s
	// CropAndResize maps the ends of the result to RoiStart·(n-1) and
	// RoiEnd·(n-1); elements from beyond the operand are Extrapolation.
	CropAndResize Coordinates = "tf_crop_and_resize"
)

// NearestRounding says which neighbour is the nearest one.
type NearestRounding string

// The roundings of ONNX's Resize, and that of its version 10.
const (
	RoundPreferFloor NearestRounding = "round_prefer_floor"
	RoundPreferCeil  NearestRounding = "round_prefer_ceil"
	RoundFloor       NearestRounding = "floor"
	RoundCeil        NearestRounding = "ceil"
	RoundSimple      NearestRounding = "simple" // floor, or ceil on an axis that shrinks
)

// Resize is ONNX's Resize to Sizes, axis by axis. All attribute lists have one
// number for each axis of the operand, except that RoiStart and RoiEnd are
// empty unless Coordinates is CropAndResize. An axis with the scale 1 and its
// size unchanged stays as it is, except with CropAndResize. ResizeLinear and ResizeCubic want
// floats.
type Resize struct {
	Mode        ResizeMode
	Coordinates Coordinates
	Rounding    NearestRounding // of ResizeNearest
	CubicA      float64         // ONNX's cubic_coeff_a
	// Antialias stretches the filters of ResizeLinear and ResizeCubic over all
	// elements that make one of a smaller result, also along an axis whose scale is
	// below 1 but whose size stays, as in ONNX's reference.
	Antialias bool
	// ExcludeOutside takes weights of elements beyond the operand for zero;
	// without it they are those of the nearest element.
	ExcludeOutside   bool
	Extrapolation    float64
	Sizes            []int64
	Scales           []float64
	RoiStart, RoiEnd []float64
}

// Kind returns "Resize".
func (*Resize) Kind() string { return "Resize" }

// Infer implements [Op].
func (o *Resize) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x")
	if err != nil {
		return nil, err
	}
	x := in[0]
	switch o.Mode {
	case ResizeNearest:
		switch o.Rounding {
		case RoundPreferFloor, RoundPreferCeil, RoundFloor, RoundCeil, RoundSimple:
		default:
			return nil, fmt.Errorf("attribute Rounding is %q, want round_prefer_floor, round_prefer_ceil, floor, ceil or simple", string(o.Rounding))
		}
	case ResizeLinear, ResizeCubic:
		if err := floats.want("x", x); err != nil {
			return nil, fmt.Errorf("mode %s: %w", o.Mode, err)
		}
	default:
		return nil, fmt.Errorf("attribute Mode is %q, want nearest, linear or cubic", string(o.Mode))
	}
	n := x.Rank()
	rois := 0
	switch o.Coordinates {
	case HalfPixel, HalfPixelSymmetric, PytorchHalfPixel, AlignCorners, Asymmetric, HalfPixelForNearest:
	case CropAndResize:
		rois = n
	default:
		return nil, fmt.Errorf("attribute Coordinates is %q, want one of ONNX's coordinate transformations", string(o.Coordinates))
	}
	if err := perAxis("Sizes", o.Sizes, n, 0); err != nil {
		return nil, err
	}
	if len(o.Scales) != n || len(o.RoiStart) != rois || len(o.RoiEnd) != rois {
		return nil, fmt.Errorf("attributes Scales, RoiStart and RoiEnd have %d, %d and %d numbers, want %d, %d and %d for x of type %v",
			len(o.Scales), len(o.RoiStart), len(o.RoiEnd), n, rois, rois, x)
	}
	for i, d := range x.Shape {
		// The size is that which the scale gives, however it is rounded. It
		// bounds the number of elements that make one of the result, too.
		length := o.Scales[i] * float64(d)
		off := math.Abs(float64(o.Sizes[i]) - length)
		if !(o.Scales[i] > 0) || math.IsInf(length, 0) || off > 1+1e-6*length {
			return nil, fmt.Errorf("axis %d of x of type %v: scale %v gives a length of %v, but attribute Sizes says %d", i, x, o.Scales[i], length, o.Sizes[i])
		}
		if d == 0 && o.Sizes[i] > 0 {
			return nil, fmt.Errorf("axis %d of x of type %v has no elements to make %d of", i, x, o.Sizes[i])
		}
	}
	return results(TensorType{x.DType, o.Sizes})
}
