package op

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx/internal/lower"
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
func upsampleImage(c *call) []*lower.Value {
	x := c.In(0)
	scales := make([]float64, 2)
	for i, name := range []string{"height_scale", "width_scale"} {
		scales[i] = c.Float(name)
	}
	if x.Rank() != 4 {
		c.Fail("operand 0 is %v, want 4 dimensions: batch, channels, height and width", x.Type)
	}
	return c.simpleResize(x, append([]float64{1, 1}, scales...), "bilinear")
}

func upsampleAttribute(c *call) []*lower.Value {
	return c.simpleResize(c.In(0), c.Floats("scales"), "linear")
}

// resizeScales is Resize-10 and Upsample-9.
func resizeScales(c *call) []*lower.Value {
	x := c.In(0)
	c.In(1)
	scales, _ := c.knownFloats(1, "scales")
	return c.simpleResize(x, scales, "linear")
}

// simpleResize is what there was before Resize-11. linear is the name of the
// mode that is not nearest.
func (c *call) simpleResize(x *lower.Value, scales []float64, linear string) []*lower.Value {
	op := &graph.Resize{Coordinates: graph.Asymmetric, Rounding: graph.RoundSimple, Scales: scales}
	switch mode := c.Str("mode"); mode {
	case "nearest":
		op.Mode = graph.ResizeNearest
	case linear:
		op.Mode = graph.ResizeLinear
	default:
		c.Fail("attribute \"mode\" is %q, want nearest or %s", mode, linear)
	}
	if int64(len(scales)) != x.Rank() {
		c.Fail("scales has %d numbers, want one for each axis of %v", len(scales), x.Type)
	}
	op.Sizes = c.scaled(x.Type.Shape, scales)
	return lower.One(c.resize(op, x))
}

// scaled returns the sizes that scales give. Like ONNX's own inference it
// multiplies in single precision: 0.7·10 is 7, not 6.99….
func (c *call) scaled(shape []int64, scales []float64) []int64 {
	out := make([]int64, len(shape))
	for i, d := range shape {
		f := math.Floor(float64(float32(d) * float32(scales[i])))
		if !(f >= 0 && f < graph.MaxTensorBytes) {
			c.Fail("scale %v of axis %d makes no size of %d", scales[i], i, d)
		}
		out[i] = int64(f)
	}
	return out
}

func resize(c *call) []*lower.Value {
	x := c.In(0)
	n := int(x.Rank())
	op := &graph.Resize{
		Mode:           graph.ResizeMode(c.Str("mode")),
		Coordinates:    graph.Coordinates(c.Str("coordinate_transformation_mode")),
		Rounding:       graph.NearestRounding(c.Str("nearest_mode")),
		CubicA:         c.Float("cubic_coeff_a"),
		ExcludeOutside: c.Bool("exclude_outside"),
		Extrapolation:  c.Float("extrapolation_value"),
		Antialias:      c.Bool("antialias"), // from version 18 on
		Sizes:          slices.Clone(x.Type.Shape), Scales: slices.Repeat([]float64{1}, n),
	}
	if op.Rounding == graph.RoundSimple {
		c.Fail("attribute \"nearest_mode\" is %q, want round_prefer_floor, round_prefer_ceil, floor or ceil", op.Rounding)
	}
	axes, given := c.Ints("axes") // from version 18 on
	if given {
		c.Axes(axes, x.Rank()) // refuses axes named twice
		axes = slices.Clone(axes)
		for i, a := range axes {
			axes[i] = c.Axis(a, x.Rank())
		}
	} else {
		for a := range x.Rank() {
			axes = append(axes, a)
		}
	}
	// An operand without elements is as good as none.
	var roi, scales []float64
	if op.Coordinates == graph.CropAndResize {
		roi, _ = c.knownFloats(1, "roi")
		if len(roi) != 2*len(axes) {
			c.Fail("operand 1 (roi) has %d numbers, want 2 for each of %d axes", len(roi), len(axes))
		}
		op.RoiStart, op.RoiEnd = make([]float64, n), slices.Repeat([]float64{1}, n)
	} else {
		c.Opt(1)
	}
	if v := c.Opt(2); v != nil && v.Type.Elements() > 0 {
		scales, _ = c.knownFloats(2, "scales")
	}
	var sizes []int64
	if v := c.Opt(3); v != nil && v.Type.Elements() > 0 {
		sizes, _ = c.KnownInts(3, "sizes")
	}
	if (len(scales) == 0) == (len(sizes) == 0) && len(axes) > 0 {
		c.Fail("operands 2 (scales) and 3 (sizes) are both there or both left out, want one of them")
	}
	if got := len(scales) + len(sizes); got != len(axes) {
		c.Fail("scales or sizes has %d numbers, want one for each of %d axes", got, len(axes))
	}
	policy := c.Str("keep_aspect_ratio_policy") // from version 18 on
	if sizes != nil {
		scales = make([]float64, len(axes))
		for i, a := range axes {
			scales[i] = 1
			if d := x.Type.Shape[a]; d > 0 {
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
		op.Sizes = c.scaled(x.Type.Shape, op.Scales)
	case policy == "stretch":
	case policy == "not_larger" || policy == "not_smaller":
		scale := slices.Min(scales)
		if policy == "not_smaller" {
			scale = slices.Max(scales)
		}
		for _, a := range axes {
			op.Scales[a] = scale
			op.Sizes[a] = int64(min(float64(x.Type.Shape[a])*scale+0.5, graph.MaxTensorBytes))
		}
	default:
		c.Fail("attribute \"keep_aspect_ratio_policy\" is %q, want stretch, not_larger or not_smaller", policy)
	}
	for i, s := range op.Sizes {
		if s == 0 && op.Scales[i] == 0 { // nothing is left of the axis
			op.Scales[i] = 0.5 / float64(max(x.Type.Shape[i], 1))
		}
	}
	return lower.One(c.resize(op, x))
}

// resize emits a Resize. Integers are interpolated as floats; what is left
// after the point goes.
func (c *call) resize(op *graph.Resize, x *lower.Value) *lower.Value {
	t := x.Type.DType
	if t.IsFloat() && t.Size() > 1 || op.Mode == graph.ResizeNearest && op.Coordinates != graph.CropAndResize {
		return c.Emit(op, x)
	}
	return c.throughFloats(x, func(f *lower.Value) *lower.Value { return c.Emit(op, f) })
}

// throughFloats applies a function of floats to a value of another type.
// Results beyond the type's range are limited to it.
func (c *call) throughFloats(x *lower.Value, f func(*lower.Value) *lower.Value) *lower.Value {
	t, wide := x.Type.DType, graph.F32
	if t.Size() > 2 {
		wide = graph.F64
	}
	y := f(c.cast(x, wide))
	if t.IsInteger() && t.Size() <= 4 {
		lo, hi := lower.IntRange(t)
		y = c.Emit(&graph.Clip{}, y, lower.Scalar(wide, float64(lo)), lower.Scalar(wide, float64(hi)))
	}
	return c.cast(y, t)
}

// knownFloats returns operand i, a list of floats that must be known now, and
// whether it is there at all.
func (c *call) knownFloats(i int, what string) ([]float64, bool) {
	v := c.Known(i, what)
	if v == nil {
		return nil, false
	}
	if v.Rank() > 1 || !v.Type.DType.IsFloat() {
		c.Fail("operand %d (%s) is %v, want a list of floats", i, what, v.Type)
	}
	data, err := c.Fold(&graph.Cast{To: graph.F64}, []graph.TensorType{{DType: graph.F64, Shape: v.Type.Shape}}, v)
	if err != nil {
		c.Fail("operand %d (%s): %w", i, what, err)
	}
	out := make([]float64, len(data[0])/8)
	for j := range out {
		out[j] = math.Float64frombits(binary.LittleEndian.Uint64(data[0][8*j:]))
	}
	return out, true
}

// blockSize returns the attribute of the operators that move blocks.
func (c *call) blockSize(x *lower.Value) int64 {
	b := c.Int("blocksize")
	if x.Rank() != 4 {
		c.Fail("operand 0 is %v, want 4 dimensions: batch, channels, height and width", x.Type)
	}
	if b < 1 || b > math.MaxInt32 {
		c.Fail("attribute \"blocksize\" is %d, want 1 to %d", b, math.MaxInt32)
	}
	return b
}

func depthToSpace(c *call) []*lower.Value {
	x := c.In(0)
	b := c.blockSize(x)
	s := x.Type.Shape
	if s[1]%(b*b) != 0 {
		c.Fail("operand 0 is %v, want a number of channels that %d divides, the square of attribute blocksize", x.Type, b*b)
	}
	depth := s[1] / (b * b)
	split, perm := []int64{s[0], b, b, depth, s[2], s[3]}, []int64{0, 3, 4, 1, 5, 2}
	switch mode := c.Str("mode"); mode { // from version 11 on
	case "DCR":
	case "CRD":
		split, perm = []int64{s[0], depth, b, b, s[2], s[3]}, []int64{0, 1, 4, 2, 5, 3}
	default:
		c.Fail("attribute \"mode\" is %q, want DCR or CRD", mode)
	}
	return lower.One(c.rearrange(x, split, perm, []int64{s[0], depth, s[2] * b, s[3] * b}))
}

func spaceToDepth(c *call) []*lower.Value {
	x := c.In(0)
	b := c.blockSize(x)
	s := x.Type.Shape
	if s[2]%b != 0 || s[3]%b != 0 {
		c.Fail("operand 0 is %v, want a height and a width that attribute blocksize, %d, divides", x.Type, b)
	}
	h, w := s[2]/b, s[3]/b
	return lower.One(c.rearrange(x, []int64{s[0], s[1], h, b, w, b}, []int64{0, 3, 5, 1, 2, 4}, []int64{s[0], s[1] * b * b, h, w}))
}

// rearrange permutes the axes of x seen as a tensor of shape split.
func (c *call) rearrange(x *lower.Value, split, perm, shape []int64) *lower.Value {
	y := c.Emit(&graph.Transpose{Perm: perm}, c.Emit(&graph.Reshape{Shape: split}, x))
	return c.Emit(&graph.Reshape{Shape: shape}, y)
}

func centerCropPad(c *call) []*lower.Value {
	x := c.In(0)
	axes, given := c.Ints("axes")
	if !given {
		for a := range x.Rank() {
			axes = append(axes, a)
		}
	}
	c.Axes(axes, x.Rank()) // refuses axes named twice
	if by := c.In(1); by.Rank() == 1 && by.Type.Elements() == int64(len(axes)) && c.MayDecide(by) {
		return lower.One(c.centreBy(x, by, axes))
	}
	want := c.RequireKnownInts(1, "shape")
	if len(want) != len(axes) {
		c.Fail("operand 1 (shape) has %d numbers, want one for each of %d axes", len(want), len(axes))
	}
	crop := whole(x)
	pad := &graph.Pad{Before: make([]int64, x.Rank()), After: make([]int64, x.Rank()), Mode: graph.PadConstant}
	for i, a := range axes {
		a = c.Axis(a, x.Rank())
		dim := x.Type.Shape[a]
		switch d := want[i] - dim; {
		case want[i] < 0 || want[i] >= graph.MaxTensorBytes:
			c.Fail("operand 1 (shape) is %s, want sizes", graph.ShapeString(want))
		case d < 0:
			crop.Start[a], crop.Size[a] = -d/2, want[i]
		default:
			pad.Before[a], pad.After[a] = d/2, d-d/2
		}
	}
	return lower.One(c.Emit(pad, c.Emit(crop, x)))
}
