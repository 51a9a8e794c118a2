package graph

import (
	"fmt"
	"math"
)

// SamplePadding says what [GridSample] finds outside of its operand.
type SamplePadding string

// The paddings of ONNX's GridSample.
const (
	SampleZeros      SamplePadding = "zeros"
	SampleBorder     SamplePadding = "border"
	SampleReflection SamplePadding = "reflection"
)

// GridSample is ONNX's GridSample. Operands: x [N,C,…] with 1 to 3 spatial
// axes and grid [N,…,r], whose last axis holds places in x, the coordinate of
// x's last axis first, from -1 to 1. Result: [N,C,…] with the grid's spatial
// axes. x and grid may be of different types.
type GridSample struct {
	Mode    ResizeMode
	Padding SamplePadding
	// AlignCorners says that -1 and 1 are the centres of the outermost
	// elements; else they are their outer edges.
	AlignCorners bool
}

// RoiMode says what [RoiAlign] makes of the samples of a cell.
type RoiMode string

// The modes of ONNX's RoiAlign. ONNX defines RoiMax as the maximum of the
// four weighted neighbours of all samples.
const (
	RoiAverage RoiMode = "avg"
	RoiMax     RoiMode = "max"
)

// RoiAlign is ONNX's RoiAlign. Operands: x [N,C,H,W], rois [R,4] (x1, y1, x2,
// y2), and the image of each, [R]; an image that is not in x ends the run with
// an error. Result: [R,C,Height,Width].
type RoiAlign struct {
	Mode          RoiMode
	Height, Width int64
	SamplingRatio int64 // samples per cell and axis; 0: as many as elements, rounded up
	SpatialScale  float64
	HalfPixel     bool
}

// RoiAlignGradient is the gradient of [RoiAlign], whose attributes it has. Operands: those of RoiAlign, then dy, the gradient of
// its result. Results: the gradients of x and of rois, of their types. Of samples that are maxima alike, the first has all of it;
// the number of samples counts as constant where SamplingRatio is 0.
type RoiAlignGradient RoiAlign

// MaxRoiPool is ONNX's MaxRoiPool. Operands: x [N,C,H,W] and rois [R,5]
// (image, x1, y1, x2, y2); an image that is not in x ends the run with an
// error. Results: [R,C,Height,Width], and in I64 where in all of x the first of
// the maxima lies, -1 for cells without elements.
type MaxRoiPool struct {
	Height, Width int64
	SpatialScale  float64
}

// Kind returns "GridSample".
func (*GridSample) Kind() string { return "GridSample" }

// Infer implements [Op].
func (o *GridSample) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x", "grid")
	if err != nil {
		return nil, err
	}
	x, grid := in[0], in[1]
	if err := firstError(floats.want("x", x), floats.want("grid", grid)); err != nil {
		return nil, err
	}
	switch o.Mode {
	case ResizeNearest, ResizeLinear, ResizeCubic:
	default:
		return nil, fmt.Errorf("attribute Mode is %q, want nearest, linear or cubic", string(o.Mode))
	}
	switch o.Padding {
	case SampleZeros, SampleBorder, SampleReflection:
	default:
		return nil, fmt.Errorf("attribute Padding is %q, want zeros, border or reflection", string(o.Padding))
	}
	if x.Rank() < 3 || x.Rank() > 5 {
		return nil, fmt.Errorf("x is %v, want 3 to 5 dimensions (batch, channels and 1 to 3 spatial axes)", x)
	}
	last := x.Rank() - 1
	if grid.Rank() != x.Rank() || grid.Shape[0] != x.Shape[0] || grid.Shape[last] != int64(x.Rank()-2) {
		return nil, fmt.Errorf("grid is %v, want %d dimensions with %d in the first and %d in the last for x of type %v",
			grid, x.Rank(), x.Shape[0], x.Rank()-2, x)
	}
	return results(TensorType{x.DType, append([]int64{x.Shape[0], x.Shape[1]}, grid.Shape[1:last]...)})
}

// Kind returns "RoiAlign".
func (*RoiAlign) Kind() string { return "RoiAlign" }

// Infer implements [Op].
func (o *RoiAlign) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x", "rois", "images")
	if err != nil {
		return nil, err
	}
	if o.Mode != RoiAverage && o.Mode != RoiMax {
		return nil, fmt.Errorf("attribute Mode is %q, want avg or max", string(o.Mode))
	}
	if o.SamplingRatio < 0 || o.SamplingRatio > MaxSamples {
		return nil, fmt.Errorf("attribute SamplingRatio is %d, want 0 to %d", o.SamplingRatio, MaxSamples)
	}
	out, err := roiPool(in[0], in[1], 4, o.Height, o.Width, o.SpatialScale)
	if err != nil {
		return nil, err
	}
	if err := firstError(indices.want("images", in[2]), wantShape("images", in[2], in[1].Shape[0])); err != nil {
		return nil, err
	}
	return results(out)
}

// MaxSamples is the most samples per cell and axis of [RoiAlign].
const MaxSamples = 1 << 10

// roiPool checks what the operators on regions of interest have in common and
// returns the result's type.
func roiPool(x, rois TensorType, columns, height, width int64, scale float64) (TensorType, error) {
	if err := firstError(floats.want("x", x), sameType("rois", rois, x)); err != nil {
		return TensorType{}, err
	}
	if x.Rank() != 4 {
		return TensorType{}, fmt.Errorf("x is %v, want 4 dimensions: batch, channels, height and width", x)
	}
	if rois.Rank() != 2 || rois.Shape[1] != columns {
		return TensorType{}, fmt.Errorf("rois is %v, want 2 dimensions with %d in the second", rois, columns)
	}
	if err := perAxis("Height, Width", []int64{height, width}, 2, 1); err != nil {
		return TensorType{}, err
	}
	if math.IsNaN(scale) || math.IsInf(scale, 0) {
		return TensorType{}, fmt.Errorf("attribute SpatialScale is %v, want a finite number", scale)
	}
	return TensorType{x.DType, []int64{rois.Shape[0], x.Shape[1], height, width}}, nil
}

// Kind returns "RoiAlignGradient".
func (*RoiAlignGradient) Kind() string { return "RoiAlignGradient" }

// Infer implements [Op].
func (o *RoiAlignGradient) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x", "rois", "images", "dy")
	if err != nil {
		return nil, err
	}
	y, err := (*RoiAlign)(o).Infer(in[:3])
	if err != nil {
		return nil, err
	}
	if !in[3].Equal(y[0]) {
		return nil, fmt.Errorf("dy is %v, want the type of the result of RoiAlign, %v", in[3], y[0])
	}
	return results(in[0], in[1])
}

// Kind returns "MaxRoiPool".
func (*MaxRoiPool) Kind() string { return "MaxRoiPool" }

// Infer implements [Op].
func (o *MaxRoiPool) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x", "rois")
	if err != nil {
		return nil, err
	}
	out, err := roiPool(in[0], in[1], 5, o.Height, o.Width, o.SpatialScale)
	if err != nil {
		return nil, err
	}
	return results(out, TensorType{I64, out.Shape})
}
