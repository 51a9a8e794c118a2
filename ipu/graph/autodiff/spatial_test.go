package autodiff_test

import (
	"slices"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/graph"
)

// window is a kernel that slides over spatial axes.
type window struct{ size, kernel, strides, dilations, begin, end []int64 }

// window draws one that fits, over so many axes.
func (d *draw) window(axes int, padding bool) window {
	var w window
	for range axes {
		k, dilation := d.size("kernel", 1, 3), d.size("dilation", 1, 2)
		span := (k-1)*dilation + 1
		begin, end := int64(0), int64(0)
		if padding {
			begin, end = d.size("begin", 0, min(k-1, 1)), d.size("end", 0, min(k-1, 1))
		}
		w.kernel, w.dilations, w.begin, w.end = append(w.kernel, k), append(w.dilations, dilation), append(w.begin, begin), append(w.end, end)
		w.strides = append(w.strides, d.size("stride", 1, 3))
		w.size = append(w.size, span+d.size("size", 0, 3))
	}
	return w
}

var spatialCases = map[string]func(*draw){
	"Conv": func(d *draw) {
		w := d.window(int(d.size("axes", 1, 2)), true)
		group, c, m := d.size("group", 1, 2), d.size("channels", 1, 2), d.size("results", 1, 2)
		x := d.x(append([]int64{d.size("batch", 1, 2), group * c}, w.size...), -2, 2)
		in := []graph.TensorID{x, d.x(append([]int64{group * m, c}, w.kernel...), -2, 2)}
		if d.yes("bias") {
			in = append(in, d.x([]int64{group * m}, -2, 2))
		}
		d.give(&graph.Conv{Strides: w.strides, Dilations: w.dilations, PadsBegin: w.begin, PadsEnd: w.end, Group: group}, in...)
	},
	"ConvTranspose": func(d *draw) {
		w := d.window(int(d.size("axes", 1, 2)), true)
		group, c, m := d.size("group", 1, 2), d.size("channels", 1, 2), d.size("results", 1, 2)
		o := &graph.ConvTranspose{Strides: w.strides, Dilations: w.dilations, Group: group}
		var size []int64
		for i, k := range w.kernel {
			n := d.size("size", 1, 3)
			size = append(size, n)
			o.PadsBegin = append(o.PadsBegin, d.size("begin", -1, 1))
			o.Output = append(o.Output, max((n-1)*w.strides[i]+(k-1)*w.dilations[i]+1+d.size("output", -2, 2), 1))
		}
		x := d.x(append([]int64{d.size("batch", 1, 2), group * c}, size...), -2, 2)
		in := []graph.TensorID{x, d.x(append([]int64{group * c, m}, w.kernel...), -2, 2)}
		if d.yes("bias") {
			in = append(in, d.x([]int64{group * m}, -2, 2))
		}
		d.give(o, in...)
	},
	"ConvWeightGradient": func(d *draw) {
		w := d.window(int(d.size("axes", 1, 2)), true)
		group, c, m, n := d.size("group", 1, 2), d.size("channels", 1, 2), d.size("results", 1, 2), d.size("batch", 1, 2)
		o := &graph.ConvWeightGradient{Kernel: w.kernel, Strides: w.strides, Dilations: w.dilations, Group: group}
		var out []int64
		for range w.kernel {
			o.PadsBegin, out = append(o.PadsBegin, d.size("begin", -1, 1)), append(out, d.size("out", 1, 3))
		}
		d.give(o, d.x(append([]int64{n, group * c}, w.size...), -2, 2), d.x(append([]int64{n, group * m}, out...), -2, 2))
	},
	"Col2Im": func(d *draw) {
		w := d.window(int(d.size("axes", 1, 2)), true)
		blocks, block := int64(1), int64(1)
		for i := range w.size {
			span := (w.kernel[i]-1)*w.dilations[i] + 1
			blocks *= (w.size[i]+w.begin[i]+w.end[i]-span)/w.strides[i] + 1
			block *= w.kernel[i]
		}
		o := &graph.Col2Im{Image: w.size, Block: w.kernel, Strides: w.strides, Dilations: w.dilations, PadsBegin: w.begin, PadsEnd: w.end}
		d.give(o, d.x([]int64{d.size("batch", 1, 2), block * d.size("channels", 1, 2), blocks}, -2, 2))
	},
	"MaxPool": func(d *draw) {
		w := d.window(int(d.size("axes", 1, 2)), true)
		o := &graph.MaxPool{Kernel: w.kernel, Strides: w.strides, Dilations: w.dilations, PadsBegin: w.begin, PadsEnd: w.end, Ceil: d.yes("ceil"), ColumnMajor: d.yes("column major")}
		d.give(o, d.apart(append([]int64{d.size("batch", 1, 2), 2}, w.size...)))
	},
	"AveragePool": func(d *draw) {
		w := d.window(int(d.size("axes", 1, 2)), true)
		o := &graph.AveragePool{Kernel: w.kernel, Strides: w.strides, Dilations: w.dilations, PadsBegin: w.begin, PadsEnd: w.end, Ceil: d.yes("ceil"), CountIncludePad: d.yes("padding counts")}
		d.give(o, d.x(append([]int64{d.size("batch", 1, 2), 2}, w.size...), -2, 2))
	},
	"LpPool": func(d *draw) {
		w := d.window(int(d.size("axes", 1, 2)), true)
		o := &graph.LpPool{Kernel: w.kernel, Strides: w.strides, Dilations: w.dilations, PadsBegin: w.begin, PadsEnd: w.end, Ceil: d.yes("ceil"), P: float64(d.size("P", 1, 3))}
		sign := rapid.SampledFrom([]float64{-1, 1}).Draw(d.T, "sign")
		d.give(o, d.x(append([]int64{1, 2}, w.size...), min(0.5*sign, 2*sign), max(0.5*sign, 2*sign)))
	},
	"Resize": func(d *draw) {
		shape := []int64{1, d.size("channels", 1, 2), d.size("height", 1, 4), d.size("width", 1, 4)}
		o := &graph.Resize{CubicA: -0.75, Extrapolation: 1.5, ExcludeOutside: d.yes("exclude outside"), Antialias: d.yes("antialias")}
		o.Mode = rapid.SampledFrom([]graph.ResizeMode{graph.ResizeNearest, graph.ResizeLinear, graph.ResizeCubic}).Draw(d.T, "mode")
		o.Rounding = rapid.SampledFrom([]graph.NearestRounding{graph.RoundPreferFloor, graph.RoundFloor, graph.RoundCeil, graph.RoundSimple}).Draw(d.T, "rounding")
		o.Coordinates = rapid.SampledFrom([]graph.Coordinates{graph.HalfPixel, graph.AlignCorners, graph.Asymmetric, graph.CropAndResize}).Draw(d.T, "coordinates")
		o.Sizes, o.Scales = []int64{shape[0], shape[1]}, []float64{1, 1}
		for _, n := range shape[2:] {
			size := d.size("size", 1, 6)
			o.Sizes, o.Scales = append(o.Sizes, size), append(o.Scales, float64(size)/float64(n))
		}
		if o.Coordinates == graph.CropAndResize {
			o.RoiStart, o.RoiEnd = []float64{0, 0, -0.25, 0.125}, []float64{1, 1, 0.75, 1.25}
		}
		d.give(o, d.x(shape, -2, 2))
	},
}

// rowNorm draws a normalisation of which gradients are computed by one operator.
func (d *draw) rowNorm(mean bool) (graph.Op, []graph.TensorID) {
	shape, axis := d.shape(3), d.size("axis", 0, 2)
	in := []graph.TensorID{d.x(shape, -2, 2), d.x(shape[axis:], -2, 2)}
	if !mean {
		return &graph.RMSNorm{Axis: axis, Epsilon: 0.0625}, in
	}
	if d.yes("bias") {
		in = append(in, d.x(shape[axis:], -2, 2))
	}
	return &graph.LayerNorm{Axis: axis, Epsilon: 0.0625}, in
}

// giveGradient gives the gradient of an operator.
func (d *draw) giveGradient(op graph.Op, in ...graph.TensorID) {
	types := make([]graph.TensorType, len(in))
	for i, t := range in {
		types[i] = d.b.Type(t)
	}
	out, err := op.Infer(types)
	require.NoError(d.T, err)
	if len(in) > 2 { // the addend has no influence
		d.inputs = slices.DeleteFunc(d.inputs, func(t graph.TensorID) bool { return t == in[2] })
	}
	d.give(graph.GradientOf(op), append([]graph.TensorID{d.x(out[0].Shape, -2, 2)}, in...)...)
}

var normCases = map[string]func(*draw){
	"BatchNorm": func(d *draw) {
		shape := d.shape(int(d.size("rank", 2, 4)))
		in := []graph.TensorID{d.x(shape, -2, 2)}
		for range 3 {
			in = append(in, d.x(shape[1:2], -2, 2))
		}
		d.give(&graph.BatchNorm{Epsilon: 0.0625}, append(in, d.x(shape[1:2], 0.5, 2))...)
	},
	"LayerNorm": func(d *draw) {
		shape := d.shape(3)
		in := []graph.TensorID{d.x(shape, -2, 2), d.x(d.broadcast(shape), -2, 2)}
		if d.yes("bias") {
			in = append(in, d.x(d.broadcast(shape), -2, 2))
		}
		d.give(&graph.LayerNorm{Axis: d.size("axis", 0, 2), Epsilon: 0.0625}, in...)
	},
	"LayerNorm/jointly": func(d *draw) {
		o, in := d.rowNorm(true)
		d.give(o, in...)
	},
	"RMSNorm/jointly": func(d *draw) {
		o, in := d.rowNorm(false)
		d.give(o, in...)
	},
	"Gradient/LayerNorm": func(d *draw) {
		o, in := d.rowNorm(true)
		d.giveGradient(o, in...)
	},
	"Gradient/RMSNorm": func(d *draw) {
		o, in := d.rowNorm(false)
		d.giveGradient(o, in...)
	},
	"Gradient/GroupNorm": func(d *draw) {
		d.giveGradient(&graph.GroupNorm{Groups: 2, Epsilon: 0.0625}, d.x([]int64{2, 4, 2}, -2, 2), d.x([]int64{4}, -2, 2), d.x([]int64{4}, -2, 2))
	},
	"Gradient/Softmax": func(d *draw) {
		d.giveGradient(&graph.Softmax{Axis: d.size("axis", 0, 2), Log: d.yes("log")}, d.x(d.shape(3), -2, 2))
	},
	// Of these the operand only says where gradients go.
	"Gradient/MaxPool": func(d *draw) {
		w := d.window(2, true)
		x := d.apart(append([]int64{1, 2}, w.size...))
		d.inputs = nil
		d.giveGradient(&graph.MaxPool{Kernel: w.kernel, Strides: w.strides, Dilations: w.dilations, PadsBegin: w.begin, PadsEnd: w.end}, x)
	},
	"Gradient/AveragePool": func(d *draw) {
		w := d.window(2, true)
		x := d.x(append([]int64{1, 2}, w.size...), -2, 2)
		d.inputs = nil
		d.giveGradient(&graph.AveragePool{Kernel: w.kernel, Strides: w.strides, Dilations: w.dilations, PadsBegin: w.begin, PadsEnd: w.end}, x)
	},
	"RMSNorm": func(d *draw) {
		shape := d.shape(3)
		d.give(&graph.RMSNorm{Axis: d.size("axis", 0, 2), Epsilon: 0.0625}, d.x(shape, -2, 2), d.x(d.broadcast(shape), -2, 2))
	},
	"GroupNorm": func(d *draw) {
		groups := d.size("groups", 1, 2)
		shape := append([]int64{d.size("batch", 1, 2), groups * d.size("channels", 1, 2)}, d.shape(int(d.size("axes", 0, 2)))...)
		d.give(&graph.GroupNorm{Groups: groups, Epsilon: 0.0625}, d.x(shape, -2, 2), d.x(shape[1:2], -2, 2), d.x(shape[1:2], -2, 2))
	},
	"LRN": func(d *draw) {
		o := &graph.LRN{Size: d.size("size", 1, 8), Alpha: 0.5, Beta: 0.75, Bias: 1.25}
		d.give(o, d.x(append([]int64{d.size("batch", 1, 2), d.size("channels", 1, 5)}, d.shape(int(d.size("axes", 0, 2)))...), -2, 2))
	},
}
