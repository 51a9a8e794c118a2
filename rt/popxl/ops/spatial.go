package ops

import (
	"errors"
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/rt/popxl"
)

// ErrSpatial is the error of windows whose lists of numbers have other lengths than the image has spatial axes.
var ErrSpatial = errors.New("there are not as many numbers as spatial axes")

// Window says where a convolution or a pooling looks at its operand; all lists have one number per spatial axis.
type Window struct {
	Strides   []int64 // nil: 1 each
	Dilations []int64 // nil: 1 each
	Begin     []int64 // padding before; nil: none
	End       []int64 // padding behind; nil: none
}

// fill returns w with defaults for axes spatial axes.
func (w Window) fill(spatial int) (Window, error) {
	for _, l := range []struct {
		of    *[]int64
		usual int64
	}{{&w.Strides, 1}, {&w.Dilations, 1}, {&w.Begin, 0}, {&w.End, 0}} {
		if *l.of == nil {
			*l.of = slices.Repeat([]int64{l.usual}, spatial)
		}
		if len(*l.of) != spatial {
			return w, ErrSpatial
		}
		*l.of = slices.Clone(*l.of)
	}
	return w, nil
}

// Conv returns the convolution of x [N, C, …] with weights [M, C/groups, …], over 1 to 3 spatial axes.
func Conv[T popxl.Float](x, weights popxl.Tensor[T], groups int64, w Window) popxl.Tensor[T] {
	return conv("ops.Conv", x, weights, groups, w)
}

func conv[T popxl.Float](call string, x, weights popxl.Tensor[T], groups int64, w Window) popxl.Tensor[T] {
	if !x.Valid() {
		return x
	}
	w, err := w.fill(max(len(x.Shape())-2, 0))
	if err != nil {
		return popxl.Fail[T](x.Ir(), call, err)
	}
	return popxl.Apply[T](call, &graph.Conv{Strides: w.Strides, Dilations: w.Dilations, PadsBegin: w.Begin, PadsEnd: w.End, Group: groups}, x, weights)
}

// MaxPool returns the greatest element of each window of x [N, C, …]; kernel has the window's sizes.
func MaxPool[T popxl.Float](x popxl.Tensor[T], kernel []int64, w Window) popxl.Tensor[T] {
	const call = "ops.MaxPool"
	if !x.Valid() {
		return x
	}
	w, err := w.fill(max(len(x.Shape())-2, 0))
	if err != nil {
		return popxl.Fail[T](x.Ir(), call, err)
	}
	return popxl.Apply[T](call, &graph.MaxPool{Kernel: slices.Clone(kernel), Strides: w.Strides, Dilations: w.Dilations, PadsBegin: w.Begin, PadsEnd: w.End}, x)
}

// AveragePool returns the mean of each window of x [N, C, …]; kernel has the window's sizes. Padding does not count.
func AveragePool[T popxl.Float](x popxl.Tensor[T], kernel []int64, w Window) popxl.Tensor[T] {
	const call = "ops.AveragePool"
	if !x.Valid() {
		return x
	}
	w, err := w.fill(max(len(x.Shape())-2, 0))
	if err != nil {
		return popxl.Fail[T](x.Ir(), call, err)
	}
	return popxl.Apply[T](call, &graph.AveragePool{Kernel: clone(kernel), Strides: w.Strides, Dilations: w.Dilations, PadsBegin: w.Begin, PadsEnd: w.End}, x)
}

// ConvTranspose returns the transposed convolution of x [N, C, …] with weights [C, M/groups, …], over 1 to 3 spatial axes: the adjoint of [Conv]. A spatial axis of n elements becomes one of
// stride·(n-1) + dilation·(kernel-1) + 1 - begin - end + more, more having a number for each spatial axis, or being nil for none.
func ConvTranspose[T popxl.Float](x, weights popxl.Tensor[T], groups int64, w Window, more []int64) popxl.Tensor[T] {
	const call = "ops.ConvTranspose"
	if !x.Valid() || !weights.Valid() {
		return popxl.Failed[T](x.Ir())
	}
	shape, kernel := x.Shape(), weights.Shape()
	spatial := max(len(shape)-2, 0)
	w, err := w.fill(spatial)
	if more == nil {
		more = make([]int64, spatial)
	}
	if err == nil && len(more) != spatial {
		err = ErrSpatial
	}
	if err == nil && len(kernel) != len(shape) {
		err = fmt.Errorf("weights are %s and x is %s, want as many sizes", graph.ShapeString(kernel), graph.ShapeString(shape))
	}
	if err != nil {
		return popxl.Fail[T](x.Ir(), call, err)
	}
	op := &graph.ConvTranspose{Strides: w.Strides, Dilations: w.Dilations, PadsBegin: w.Begin, Group: groups}
	for i := range spatial {
		reach, err := landing(shape[2+i], kernel[2+i], w.Strides[i], w.Dilations[i])
		if err != nil {
			return popxl.Fail[T](x.Ir(), call, fmt.Errorf("spatial axis %d: %w", i, err))
		}
		n := reach - w.Begin[i] - w.End[i] + more[i]
		op.Output = append(op.Output, n)
	}
	return popxl.Apply[T](call, op, x, weights)
}

// landing returns how many elements the n of an axis spread to.
func landing(n, kernel, stride, dilation int64) (int64, error) {
	const most = 1 << 20 // of a factor: products stay far from the ends of an int64
	if stride < 1 || dilation < 1 || stride > most || dilation > most || n > graph.MostReach/most || kernel > graph.MostReach/most {
		return 0, fmt.Errorf("a stride of %d and a dilation of %d, want 1 to %d each", stride, dilation, most)
	}
	return stride*max(n-1, 0) + dilation*max(kernel-1, 0) + 1, nil
}

// Interpolation says how [Interpolate] computes elements between those of its operand. Its zero value takes the nearest element, as PopXL does by default.
type Interpolation struct {
	Mode        graph.ResizeMode      // empty: [graph.ResizeNearest]
	Coordinates graph.Coordinates     // which place of x an element comes from; empty: [graph.HalfPixel]
	Rounding    graph.NearestRounding // which element is the nearest; empty: [graph.RoundPreferFloor]
}

// Interpolate returns x with every axis stretched by a factor of its own, as ONNX's Resize does: an axis of n elements has ⌊n·factor⌋. factors has a number above 0 for each axis of x. Cubic interpolation takes -0.75 for
// its coefficient.
func Interpolate[T popxl.Number](x popxl.Tensor[T], factors []float64, how Interpolation) popxl.Tensor[T] {
	const call = "ops.Interpolate"
	if !x.Valid() {
		return x
	}
	shape := x.Shape()
	if len(factors) != len(shape) {
		return popxl.Fail[T](x.Ir(), call, fmt.Errorf("%d factors, want the %d of x, which is %s", len(factors), len(shape), graph.ShapeString(shape)))
	}
	op := &graph.Resize{Mode: how.Mode, Coordinates: how.Coordinates, Rounding: how.Rounding, CubicA: -0.75, Scales: slices.Clone(factors), Sizes: make([]int64, len(shape))}
	if op.Mode == "" {
		op.Mode = graph.ResizeNearest
	}
	if op.Coordinates == "" {
		op.Coordinates = graph.HalfPixel
	}
	if op.Rounding == "" {
		op.Rounding = graph.RoundPreferFloor
	}
	for a, f := range factors {
		n := float64(shape[a]) * f
		if !(f > 0) || n >= graph.MaxTensorBytes {
			return popxl.Fail[T](x.Ir(), call, fmt.Errorf("factor %g of axis %d, want a number above 0 that leaves less than 2^40 elements", f, a))
		}
		op.Sizes[a] = int64(n)
	}
	return popxl.Apply[T](call, op, x)
}

// RoiAlign returns for each region of interest a grid of height × width cells, each the mean of the samples in it, which lie between the elements of x [N, C, H, W]: ONNX's RoiAlign with mode avg and, as in
// PopXL, without a shift by half a pixel. rois [R, 4] has x1, y1, x2 and y2 of each region, scale times which are places in x, and images [R] the image of x that it lies in; one that is not there
// ends the run with an error. samples is how many are taken for a cell along each axis, 0 for as many as there are elements, rounded up. The result is [R, C, height, width].
func RoiAlign[T popxl.Float, I int32 | int64](x, rois popxl.Tensor[T], images popxl.Tensor[I], height, width, samples int64, scale float64) popxl.Tensor[T] {
	return popxl.Apply[T]("ops.RoiAlign", &graph.RoiAlign{Mode: graph.RoiAverage, Height: height, Width: width, SamplingRatio: samples, SpatialScale: scale}, x, rois, images)
}

// NormalizeImage returns images x [N, …, 3], whose last axis are the three colours, as (scale·x - offsets)·factors, with offsets [3] and factors [3] for each colour, and a fourth colour of zeros behind them, as
// IPUs want it for convolutions. x may be of bytes; the result is of the type of offsets and factors.
func NormalizeImage[T popxl.Float, X popxl.Number](x popxl.Tensor[X], offsets, factors popxl.Tensor[T], scale float64) popxl.Tensor[T] {
	const call = "ops.NormalizeImage"
	if !x.Valid() || !offsets.Valid() || !factors.Valid() {
		return popxl.Failed[T](x.Ir())
	}
	shape := x.Shape()
	if len(shape) < 2 || shape[len(shape)-1] != 3 || !slices.Equal(offsets.Shape(), []int64{3}) || !slices.Equal(factors.Shape(), []int64{3}) {
		return popxl.Fail[T](x.Ir(), call, fmt.Errorf("x is %s, offsets %s and factors %s, want three colours in the last of several sizes of x, and [3] and [3]",
			graph.ShapeString(shape), graph.ShapeString(offsets.Shape()), graph.ShapeString(factors.Shape())))
	}
	ir := x.Ir()
	y := popxl.Apply[T](call, &graph.Cast{To: popxl.TypeOf[T]()}, x)
	y = popxl.Apply[T](call, &graph.Binary{Fn: graph.Mul}, y, number[T](call, ir, scale))
	y = popxl.Apply[T](call, &graph.Binary{Fn: graph.Sub}, y, offsets)
	y = popxl.Apply[T](call, &graph.Binary{Fn: graph.Mul}, y, factors)
	shape[len(shape)-1] = 1
	empty := popxl.Apply[T](call, &graph.Expand{Shape: shape}, number[T](call, ir, 0))
	return popxl.Apply[T](call, &graph.Concat{Axis: int64(len(shape) - 1)}, y, empty)
}
