package op

import (
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx/internal/lower"
)

// sampleOps take elements from computed places.
var sampleOps = map[string]definition{
	"GridSample": takes("X:any grid:floats").since(16, gridSample, "align_corners=0 mode=linear padding_mode=zeros"),
	"AffineGrid": takes("theta:floats size:int64").since(20, affineGrid, "align_corners=0"),
	"RoiAlign":   takes("X:T=floats rois:T batch_indices:indices").since(10, roiAlign("output_half_pixel"), "mode=avg output_height=1 output_width=1 sampling_ratio=0 spatial_scale=1.0").since(16, roiAlign("half_pixel"), "coordinate_transformation_mode=half_pixel mode=avg output_height=1 output_width=1 sampling_ratio=0 spatial_scale=1.0"),
	"MaxRoiPool": takes("X:T=floats rois:T").since(1, maxRoiPool, "pooled_shape:ints! spatial_scale=1.0"),
}

func gridSample(c *call) []*lower.Value {
	x, grid := c.In(0), c.In(1)
	op := &graph.GridSample{
		Padding: graph.SamplePadding(c.Str("padding_mode")), AlignCorners: c.Bool("align_corners"),
	}
	switch mode := c.Str("mode"); mode {
	case "bilinear", "linear": // up to version 16, from version 20 on
		op.Mode = graph.ResizeLinear
	case "bicubic", "cubic":
		op.Mode = graph.ResizeCubic
	case "nearest":
		op.Mode = graph.ResizeNearest
	default:
		c.Fail("attribute \"mode\" is %q, want linear, nearest or cubic", mode)
	}
	if t := x.Type.DType; t.IsFloat() && t.Size() > 1 {
		return lower.One(c.Emit(op, x, grid))
	}
	return lower.One(c.throughFloats(x, func(f *lower.Value) *lower.Value { return c.Emit(op, f, grid) }))
}

// affineGrid computes, for every element of an image, where a matrix moves its
// place to.
func affineGrid(c *call) []*lower.Value {
	theta := c.In(0)
	size := c.RequireKnownInts(1, "size")
	align := c.Bool("align_corners")
	n := len(size) - 2 // spatial axes
	if n != 2 && n != 3 {
		c.Fail("operand 1 (size) is %s, want 4 or 5 numbers: batch, channels and 2 or 3 spatial axes", graph.ShapeString(size))
	}
	spatial := graph.TensorType{DType: graph.F64, Shape: size[2:]}
	if err := spatial.Check(); err != nil {
		c.Fail("operand 1 (size) is %s: %w", graph.ShapeString(size), err)
	}
	points := spatial.Elements()
	if s := theta.Type.Shape; len(s) != 3 || s[0] != size[0] || s[1] != int64(n) || s[2] != int64(n)+1 {
		c.Fail("operand 0 (theta) is %v, want shape %s", theta.Type, graph.ShapeString([]int64{size[0], int64(n), int64(n) + 1}))
	}
	c.Makes(points * (8*int64(n) + 8))
	// The places of the elements in homogeneous coordinates, the last axis
	// first.
	t := theta.Type.DType
	var data []byte
	for p := range points {
		rest := p
		for a := n - 1; a >= 0; a-- {
			d := spatial.Shape[a]
			data = append(data, lower.EncodeFloat(t, gridPlace(rest%d, d, align))...)
			rest /= d
		}
		data = append(data, lower.EncodeFloat(t, 1)...)
	}
	base := lower.Known(graph.TensorType{DType: t, Shape: []int64{points, int64(n) + 1}}, data)
	y := c.Emit(&graph.MatMul{}, base, c.Emit(&graph.Transpose{Perm: []int64{0, 2, 1}}, theta))
	shape := append([]int64{size[0]}, spatial.Shape...)
	return lower.One(c.Emit(&graph.Reshape{Shape: append(shape, int64(n))}, y))
}

// gridPlace returns the coordinate, from -1 to 1, of element i of d.
func gridPlace(i, d int64, align bool) float64 {
	switch {
	case !align:
		return float64(2*i+1)/float64(d) - 1
	case d == 1:
		return -1
	}
	return 2*float64(i)/float64(d-1) - 1
}

func roiAlign(coordinates string) lowerFunc {
	return func(c *call) []*lower.Value {
		mode := coordinates
		if c.Has("coordinate_transformation_mode") {
			mode = c.Str("coordinate_transformation_mode")
		}
		if mode != "half_pixel" && mode != "output_half_pixel" {
			c.Fail("attribute \"coordinate_transformation_mode\" is %q, want half_pixel or output_half_pixel", mode)
		}
		op := &graph.RoiAlign{
			Mode: graph.RoiMode(c.Str("mode")), Height: c.Int("output_height"), Width: c.Int("output_width"),
			SamplingRatio: max(c.Int("sampling_ratio"), 0), SpatialScale: c.Float("spatial_scale"), HalfPixel: mode == "half_pixel",
		}
		return lower.One(c.Emit(op, c.In(0), c.In(1), c.In(2)))
	}
}

func maxRoiPool(c *call) []*lower.Value {
	size := c.RequireInts("pooled_shape")
	if len(size) != 2 {
		c.Fail("attribute \"pooled_shape\" is %s, want a height and a width", graph.ShapeString(size))
	}
	return lower.One(c.Emit(&graph.MaxRoiPool{Height: size[0], Width: size[1], SpatialScale: c.Float("spatial_scale")}, c.In(0), c.In(1)))
}
