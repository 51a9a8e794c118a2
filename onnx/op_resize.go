package onnx

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// resizeOps change the size of images.
var resizeOps = map[string]definition{
	"Resize":        takes("X:any roi:floats scales:float sizes:int64").since(10, resizeScales, "mode=nearest").taking("X:any scales:float").since(11, resize, "antialias=0 axes:ints coordinate_transformation_mode=half_pixel cubic_coeff_a=-0.75 exclude_outside=0 extrapolation_value=0.0 keep_aspect_ratio_policy=stretch mode=nearest nearest_mode=round_prefer_floor"),
	"Upsample":      takes("X:any scales:float").since(1, upsampleImage, "height_scale:float! mode=nearest width_scale:float!").since(7, upsampleAttribute, "mode=nearest scales:floats!").since(9, resizeScales, "mode=nearest").droppedIn(10),
	"DepthToSpace":  takes("input:any").since(1, depthToSpace, "blocksize:int! mode=DCR"),
	"SpaceToDepth":  takes("input:any").since(1, spaceToDepth, "blocksize:int!"),
	"CenterCropPad": takes("input_data:any shape:indices").since(18, centerCropPad, "axes:ints"),
}

// upsampleImage is Upsample-1, of images only.
func upsampleImage(c *call) []*value {
	x := c.in(0)
	scales := make([]float64, 2)
	for i, name := range []string{"height_scale", "width_scale"} {
		scales[i] = c.float(name)
	}
	if x.rank() != 4 {
		c.fail("operand 0 is %v, want 4 dimensions: batch, channels, height and width", x.typ)
	}
	return c.simpleResize(x, append([]float64{1, 1}, scales...), "bilinear")
}

func upsampleAttribute(c *call) []*value {
	return c.simpleResize(c.in(0), c.floats("scales"), "linear")
}

// resizeScales is Resize-10 and Upsample-9.
func resizeScales(c *call) []*value {
	x := c.in(0)
	c.in(1)
	scales, _ := c.knownFloats(1, "scales")
	return c.simpleResize(x, scales, "linear")
}

// simpleResize is what there was before Resize-11. linear is the name of the
// mode that is not nearest.
func (c *call) simpleResize(x *value, scales []float64, linear string) []*value {
	op := &graph.Resize{Coordinates: graph.Asymmetric, Rounding: graph.RoundSimple, Scales: scales}
	switch mode := c.str("mode"); mode {
	case "nearest":
		op.Mode = graph.ResizeNearest
	case linear:
		op.Mode = graph.ResizeLinear
	default:
		c.fail("attribute \"mode\" is %q, want nearest or %s", mode, linear)
	}
	if int64(len(scales)) != x.rank() {
		c.fail("scales has %d numbers, want one for each axis of %v", len(scales), x.typ)
	}
	op.Sizes = c.scaled(x.typ.Shape, scales)
	return one(c.resize(op, x))
}

// scaled returns the sizes that scales give. Like ONNX's own inference it
// multiplies in single precision: 0.7·10 is 7, not 6.99….
func (c *call) scaled(shape []int64, scales []float64) []int64 {
	out := make([]int64, len(shape))
	for i, d := range shape {
		f := math.Floor(float64(float32(d) * float32(scales[i])))
		if !(f >= 0 && f < graph.MaxTensorBytes) {
			c.fail("scale %v of axis %d makes no size of %d", scales[i], i, d)
		}
		out[i] = int64(f)
	}
	return out
}

func resize(c *call) []*value {
	x := c.in(0)
	n := int(x.rank())
	op := &graph.Resize{
		Mode:           graph.ResizeMode(c.str("mode")),
		Coordinates:    graph.Coordinates(c.str("coordinate_transformation_mode")),
		Rounding:       graph.NearestRounding(c.str("nearest_mode")),
		CubicA:         c.float("cubic_coeff_a"),
		ExcludeOutside: c.bool("exclude_outside"),
		Extrapolation:  c.float("extrapolation_value"),
		Antialias:      c.bool("antialias"), // from version 18 on
		Sizes:          slices.Clone(x.typ.Shape), Scales: slices.Repeat([]float64{1}, n),
	}
	if op.Rounding == graph.RoundSimple {
		c.fail("attribute \"nearest_mode\" is %q, want round_prefer_floor, round_prefer_ceil, floor or ceil", op.Rounding)
	}
	axes, given := c.ints("axes") // from version 18 on
	if given {
		c.axes(axes, x.rank()) // refuses axes named twice
		axes = slices.Clone(axes)
		for i, a := range axes {
			axes[i] = c.axis(a, x.rank())
		}
	} else {
		for a := range x.rank() {
			axes = append(axes, a)
		}
	}
	// An operand without elements is as good as none.
	var roi, scales []float64
	if op.Coordinates == graph.CropAndResize {
		roi, _ = c.knownFloats(1, "roi")
		if len(roi) != 2*len(axes) {
			c.fail("operand 1 (roi) has %d numbers, want 2 for each of %d axes", len(roi), len(axes))
		}
		op.RoiStart, op.RoiEnd = make([]float64, n), slices.Repeat([]float64{1}, n)
	} else {
		c.opt(1)
	}
	if v := c.opt(2); v != nil && v.typ.Elements() > 0 {
		scales, _ = c.knownFloats(2, "scales")
	}
	var sizes []int64
	if v := c.opt(3); v != nil && v.typ.Elements() > 0 {
		sizes, _ = c.knownInts(3, "sizes")
	}
	if (len(scales) == 0) == (len(sizes) == 0) && len(axes) > 0 {
		c.fail("operands 2 (scales) and 3 (sizes) are both there or both left out, want one of them")
	}
	if got := len(scales) + len(sizes); got != len(axes) {
		c.fail("scales or sizes has %d numbers, want one for each of %d axes", got, len(axes))
	}
	policy := c.str("keep_aspect_ratio_policy") // from version 18 on
	if sizes != nil {
		scales = make([]float64, len(axes))
		for i, a := range axes {
			scales[i] = 1
			if d := x.typ.Shape[a]; d > 0 {
				scales[i] = float64(sizes[i]) / float64(d)
			}
		}
	}
	for i, a := range axes {
		op.Scales[a] = scales[i]
		if sizes != nil {
			op.Sizes[a] = sizes[i]
		}
		if roi != nil {
			op.RoiStart[a], op.RoiEnd[a] = roi[i], roi[len(axes)+i]
		}
	}
	switch {
	case sizes == nil:
		op.Sizes = c.scaled(x.typ.Shape, op.Scales)
	case policy == "stretch":
	case policy == "not_larger" || policy == "not_smaller":
		scale := slices.Min(scales)
		if policy == "not_smaller" {
			scale = slices.Max(scales)
		}
		for _, a := range axes {
			op.Scales[a] = scale
			op.Sizes[a] = int64(min(float64(x.typ.Shape[a])*scale+0.5, graph.MaxTensorBytes))
		}
	default:
		c.fail("attribute \"keep_aspect_ratio_policy\" is %q, want stretch, not_larger or not_smaller", policy)
	}
	for i, s := range op.Sizes {
		if s == 0 && op.Scales[i] == 0 { // nothing is left of the axis
			op.Scales[i] = 0.5 / float64(max(x.typ.Shape[i], 1))
		}
	}
	return one(c.resize(op, x))
}

// resize emits a Resize. Integers are interpolated as floats; what is left
// after the point goes.
func (c *call) resize(op *graph.Resize, x *value) *value {
	t := x.typ.DType
	if t.IsFloat() && t.Size() > 1 || op.Mode == graph.ResizeNearest && op.Coordinates != graph.CropAndResize {
		return c.emit(op, x)
	}
	return c.throughFloats(x, func(f *value) *value { return c.emit(op, f) })
}

// throughFloats applies a function of floats to a value of another type.
// Results beyond the type's range are limited to it.
func (c *call) throughFloats(x *value, f func(*value) *value) *value {
	t, wide := x.typ.DType, graph.F32
	if t.Size() > 2 {
		wide = graph.F64
	}
	y := f(c.cast(x, wide))
	if t.IsInteger() && t.Size() <= 4 {
		lo, hi := intRange(t)
		y = c.emit(&graph.Clip{}, y, scalar(wide, float64(lo)), scalar(wide, float64(hi)))
	}
	return c.cast(y, t)
}

// knownFloats returns operand i, a list of floats that must be known now, and
// whether it is there at all.
func (c *call) knownFloats(i int, what string) ([]float64, bool) {
	v := c.known(i, what)
	if v == nil {
		return nil, false
	}
	if v.rank() > 1 || !v.typ.DType.IsFloat() {
		c.fail("operand %d (%s) is %v, want a list of floats", i, what, v.typ)
	}
	_, data, err := c.fold(&graph.Cast{To: graph.F64}, v)
	if err == nil && data == nil {
		err = fmt.Errorf("%v has too many elements", v.typ)
	}
	if err != nil {
		c.fail("operand %d (%s): %w", i, what, err)
	}
	out := make([]float64, len(data[0])/8)
	for j := range out {
		out[j] = math.Float64frombits(binary.LittleEndian.Uint64(data[0][8*j:]))
	}
	return out, true
}

// blockSize returns the attribute of the operators that move blocks.
func (c *call) blockSize(x *value) int64 {
	b := c.int("blocksize")
	if x.rank() != 4 {
		c.fail("operand 0 is %v, want 4 dimensions: batch, channels, height and width", x.typ)
	}
	if b < 1 || b > math.MaxInt32 {
		c.fail("attribute \"blocksize\" is %d, want 1 to %d", b, math.MaxInt32)
	}
	return b
}

func depthToSpace(c *call) []*value {
	x := c.in(0)
	b := c.blockSize(x)
	s := x.typ.Shape
	if s[1]%(b*b) != 0 {
		c.fail("operand 0 is %v, want a number of channels that %d divides, the square of attribute blocksize", x.typ, b*b)
	}
	depth := s[1] / (b * b)
	split, perm := []int64{s[0], b, b, depth, s[2], s[3]}, []int64{0, 3, 4, 1, 5, 2}
	switch mode := c.str("mode"); mode { // from version 11 on
	case "DCR":
	case "CRD":
		split, perm = []int64{s[0], depth, b, b, s[2], s[3]}, []int64{0, 1, 4, 2, 5, 3}
	default:
		c.fail("attribute \"mode\" is %q, want DCR or CRD", mode)
	}
	return one(c.rearrange(x, split, perm, []int64{s[0], depth, s[2] * b, s[3] * b}))
}

func spaceToDepth(c *call) []*value {
	x := c.in(0)
	b := c.blockSize(x)
	s := x.typ.Shape
	if s[2]%b != 0 || s[3]%b != 0 {
		c.fail("operand 0 is %v, want a height and a width that attribute blocksize, %d, divides", x.typ, b)
	}
	h, w := s[2]/b, s[3]/b
	return one(c.rearrange(x, []int64{s[0], s[1], h, b, w, b}, []int64{0, 3, 5, 1, 2, 4}, []int64{s[0], s[1] * b * b, h, w}))
}

// rearrange permutes the axes of x seen as a tensor of shape split.
func (c *call) rearrange(x *value, split, perm, shape []int64) *value {
	y := c.emit(&graph.Transpose{Perm: perm}, c.emit(&graph.Reshape{Shape: split}, x))
	return c.emit(&graph.Reshape{Shape: shape}, y)
}

func centerCropPad(c *call) []*value {
	x := c.in(0)
	want := c.requireKnownInts(1, "shape")
	axes, given := c.ints("axes")
	if !given {
		for a := range x.rank() {
			axes = append(axes, a)
		}
	}
	c.axes(axes, x.rank()) // refuses axes named twice
	if len(want) != len(axes) {
		c.fail("operand 1 (shape) has %d numbers, want one for each of %d axes", len(want), len(axes))
	}
	crop := whole(x)
	pad := &graph.Pad{Before: make([]int64, x.rank()), After: make([]int64, x.rank()), Mode: graph.PadConstant}
	for i, a := range axes {
		a = c.axis(a, x.rank())
		dim := x.typ.Shape[a]
		switch d := want[i] - dim; {
		case want[i] < 0 || want[i] >= graph.MaxTensorBytes:
			c.fail("operand 1 (shape) is %s, want sizes", graph.ShapeString(want))
		case d < 0:
			crop.Start[a], crop.Size[a] = -d/2, want[i]
		default:
			pad.Before[a], pad.After[a] = d/2, d-d/2
		}
	}
	return one(c.emit(pad, c.emit(crop, x)))
}
