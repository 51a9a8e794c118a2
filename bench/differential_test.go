package main

import (
	"encoding/binary"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/popefgen/popefgen/bench/peer"
	"github.com/popefgen/popefgen/bench/peer/onnxruntime"
	"github.com/popefgen/popefgen/bench/peer/popefgen"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/onnx/verify"
)

var (
	draws    = flag.Int("draws", 20, "random models of each operator that TestRandomOperators compares with ONNX Runtime's answers")
	drawSeed = flag.Uint64("draw-seed", 1, "of the first of them")
)

func sortedKeys(a attrs) []string { return slices.Sorted(maps.Keys(a)) }

func attrString(a attrs) string {
	var b strings.Builder
	for _, k := range sortedKeys(a) {
		fmt.Fprintf(&b, " %s=%v", k, a[k])
	}
	return b.String()
}

// TestRandomOperators runs models of one operator, with random attributes, sizes and
// numbers, and compares with ONNX Runtime.
func TestRandomOperators(t *testing.T) {
	needLibrary(t)
	for _, name := range slices.Sorted(maps.Keys(sketches)) {
		t.Run(name, func(t *testing.T) {
			tally := map[string]int{}
			for i := range *draws {
				s := &sketch{Rand: rand.New(rand.NewPCG(*drawSeed+uint64(i), 7)), opset: 17}
				sketches[name](s)
				verdict, err := differ(s)
				tally[verdict]++
				if err != nil {
					t.Errorf("-draw-seed %d: opset %d%s\n%v", *drawSeed+uint64(i), s.opset, s.log, err)
				}
			}
			t.Log(tally)
		})
	}
}

// differ says what came of a model in both engines, and how they differ.
func differ(s *sketch) (verdict string, _ error) {
	c := &peer.Case{Name: "random", ONNX: s.bytes(), Inputs: s.inputs}
	for i, name := range s.outputs {
		c.Outputs = append(c.Outputs, peer.Tensor{Name: name, Elem: peer.Elem(s.elems[i])})
	}
	want, theirs := onnxruntime.Answer(c)
	model, err := onnx.Decode(c.ONNX, "")
	if err != nil {
		return "", err
	}
	result, ours := compile.Compile(model, compile.Options{})
	switch {
	case theirs != nil && ours != nil:
		return "refused by both", nil
	case theirs != nil:
		return "refused by ONNX Runtime", nil // it has limits that ONNX has not
	case ours != nil:
		return "refused", fmt.Errorf("only popefgen refuses it: %w", ours)
	}
	c.Outputs = nil
	if err := complete(c, result); err != nil {
		return "", err
	}
	for i, o := range c.Outputs {
		if !slices.Equal(o.Dims, want[i].Dims) {
			return "shape", fmt.Errorf("output %q has the shape %v, want %v", o.Name, o.Dims, want[i].Dims)
		}
	}
	own, err := popefgen.Engine{}.Open(c, 1)
	if err != nil {
		return "", err
	}
	defer own.Close()
	if err := own.Run(); err != nil {
		return "", err
	}
	got, err := own.Outputs()
	if err != nil {
		return "", err
	}
	for i, o := range c.Outputs {
		t := graph.TensorType{DType: onnx.ElemType(o.Elem).DType(), Shape: o.Dims}
		d, err := verify.Compare(t, got[i], want[i].Data, verify.Tolerance{Rel: 1e-3, Abs: 2e-4 + 1.001*s.step})
		if err != nil {
			return "", fmt.Errorf("output %q: %w", o.Name, err)
		}
		if d.Bad > 0 {
			return "differs", fmt.Errorf("output %q: %s", o.Name, d)
		}
	}
	return "equal", nil
}

// The draws that sketches share.

func (s *sketch) one(n int) int     { return s.IntN(n) }
func (s *sketch) coin() bool        { return s.IntN(2) == 0 }
func (s *sketch) rare() bool        { return s.IntN(4) == 0 }
func (s *sketch) normal() float64   { return s.NormFloat64() }
func (s *sketch) whole() float64    { return float64(s.IntN(41) - 20) }
func (s *sketch) positive() float64 { return 0.1 + 2*s.Float64() }

func pick[T any](s *sketch, v ...T) T { return v[s.IntN(len(v))] }

// dims draws a shape.
func (s *sketch) dims(rank, most int) []int {
	d := make([]int, rank)
	for i := range d {
		d[i] = 1 + s.IntN(most)
	}
	return d
}

func (s *sketch) list(n, least, most int) []int {
	d := make([]int, n)
	for i := range d {
		d[i] = least + s.IntN(most-least+1)
	}
	return d
}

// axis draws an axis of a rank, perhaps a negative one.
func (s *sketch) axis(rank int) int { return s.IntN(2*rank) - rank }

// axes draws different axes.
func (s *sketch) axes(rank int) []int {
	p := s.Perm(rank)[:1+s.IntN(rank)]
	for i := range p {
		if s.coin() {
			p[i] -= rank
		}
	}
	return p
}

// window gives strides, dilations and padding of a window to a, for operators with
// axes of so many dimensions.
func (s *sketch) window(a attrs, axes int, dilate bool) {
	if s.coin() {
		a["strides"] = s.list(axes, 1, 3)
	}
	if dilate && s.rare() {
		a["dilations"] = s.list(axes, 1, 2)
	}
	switch s.IntN(4) {
	case 0:
		a["auto_pad"] = pick(s, "SAME_UPPER", "SAME_LOWER", "VALID")
	case 1, 2:
		a["pads"] = s.list(2*axes, 0, 2)
	}
}

// poolPadding gives padding of a pool to a. ONNX Runtime's pools ignore dilations
// in SAME padding.
func (s *sketch) poolPadding(a attrs, axes int) {
	switch s.IntN(4) {
	case 0:
		if a["auto_pad"] = pick(s, "SAME_UPPER", "SAME_LOWER", "VALID"); a["auto_pad"] != "VALID" {
			delete(a, "dilations")
		}
	case 1, 2:
		a["pads"] = s.list(2*axes, 0, 1)
	}
}

func kernelOf(s *sketch, axes int) []int { return s.list(axes, 1, 3) }

const f32 = onnx.Float

var numbers = []onnx.ElemType{onnx.Float, onnx.Float, onnx.Double, onnx.Int32, onnx.Int64}

// sketches are the operators that are compared.
var sketches = map[string]func(*sketch){
	"Conv": func(s *sketch) {
		axes := 1 + s.IntN(3)
		group := pick(s, 1, 1, 2, 3)
		in := group * (1 + s.IntN(3))
		if s.rare() {
			group = in
		}
		out := group * (1 + s.IntN(3))
		a := attrs{"group": group}
		s.window(a, axes, true)
		k := kernelOf(s, axes)
		if s.coin() {
			a["kernel_shape"] = k
		}
		x := s.input(f32, append([]int{1 + s.IntN(2), in}, s.list(axes, 5, 9)...), s.normal)
		w := s.input(f32, append([]int{out, in / group}, k...), s.normal)
		ops := []string{x, w}
		if s.coin() {
			ops = append(ops, s.input(f32, []int{out}, s.normal))
		}
		s.output(s.node("Conv", 1, a, ops...)[0], f32)
	},
	"ConvTranspose": func(s *sketch) {
		axes := 1 + s.IntN(2)
		group := pick(s, 1, 1, 2)
		in := group * (1 + s.IntN(3))
		out := 1 + s.IntN(3)
		a := attrs{"group": group}
		stride := s.list(axes, 1, 3)
		a["strides"] = stride
		k := kernelOf(s, axes)
		x := s.list(axes, 3, 6)
		if s.rare() {
			a["dilations"] = s.list(axes, 1, 2)
		}
		switch s.IntN(5) {
		case 0:
			a["auto_pad"] = pick(s, "SAME_UPPER", "SAME_LOWER", "VALID")
			for i := range k { // else the result has strides times the operand's size by ONNX, fewer elements by ONNX Runtime
				k[i] = max(k[i], stride[i])
			}
		case 1, 2:
			a["pads"] = s.list(2*axes, 0, 1)
		case 3:
			shape := make([]int, axes)
			for i := range shape {
				shape[i] = max(1, x[i]*stride[i]+s.IntN(3)-1)
			}
			a["output_shape"] = shape
			if s.coin() {
				a["auto_pad"] = pick(s, "SAME_UPPER", "SAME_LOWER", "NOTSET")
			}
		}
		if s.rare() {
			p := make([]int, axes)
			for i := range p {
				p[i] = s.IntN(stride[i])
			}
			a["output_padding"] = p
		}
		ops := []string{s.input(f32, append([]int{1 + s.IntN(2), in}, x...), s.normal), s.input(f32, append([]int{in, out}, k...), s.normal)}
		if s.coin() {
			ops = append(ops, s.input(f32, []int{out * group}, s.normal))
		}
		s.output(s.node("ConvTranspose", 1, a, ops...)[0], f32)
	},
	"MaxPool": func(s *sketch) {
		axes := 1 + s.IntN(3)
		k := s.list(axes, 2, 3)
		a := attrs{"kernel_shape": k}
		if s.coin() {
			a["strides"] = s.list(axes, 1, 4)
		}
		if s.rare() {
			a["dilations"] = s.list(axes, 1, 2)
		}
		s.poolPadding(a, axes)
		if s.coin() {
			a["ceil_mode"] = 1
		}
		x := s.input(f32, append(s.dims(2, 3), s.list(axes, 6, 10)...), s.normal)
		if s.rare() {
			a["storage_order"] = s.IntN(2)
			out := s.node("MaxPool", 2, a, x)
			s.output(out[0], f32)
			s.output(out[1], onnx.Int64)
			return
		}
		s.output(s.node("MaxPool", 1, a, x)[0], f32)
	},
	"AveragePool": func(s *sketch) {
		s.opset = pick(s, 11, 19)
		axes := 1 + s.IntN(3)
		a := attrs{"kernel_shape": s.list(axes, 2, 3), "count_include_pad": s.IntN(2), "ceil_mode": s.IntN(2)}
		if s.coin() {
			a["strides"] = s.list(axes, 1, 4)
		}
		if s.opset == 19 && s.rare() {
			a["dilations"] = s.list(axes, 1, 2)
		}
		s.poolPadding(a, axes)
		s.output(s.node("AveragePool", 1, a, s.input(f32, append(s.dims(2, 3), s.list(axes, 6, 10)...), s.normal))[0], f32)
	},
	"LpPool": func(s *sketch) {
		axes := 1 + s.IntN(2)
		a := attrs{"kernel_shape": s.list(axes, 2, 3), "p": 1 + s.IntN(3)}
		s.window(a, axes, false)
		if p, ok := a["pads"].([]int); ok {
			for i := range p {
				p[i] = min(p[i], 1)
			}
		}
		s.output(s.node("LpPool", 1, a, s.input(f32, append(s.dims(2, 3), s.list(axes, 6, 10)...), s.normal))[0], f32)
	},
	"GlobalPools": func(s *sketch) {
		x := s.input(f32, append(s.dims(2, 3), s.dims(1+s.IntN(3), 6)...), s.normal)
		op := pick(s, "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
		a := attrs{}
		if op == "GlobalLpPool" {
			a["p"] = 1 + s.IntN(3)
		}
		s.output(s.node(op, 1, a, x)[0], f32)
	},
	"GridSampleCubic": func(s *sketch) {
		s.opset = pick(s, 16, 20)
		mode := "bicubic"
		if s.opset == 20 {
			mode = "cubic"
		}
		s.output(s.node("GridSample", 1, attrs{"mode": mode, "padding_mode": pick(s, "zeros", "border", "reflection"), "align_corners": s.IntN(2)}, s.input(f32, []int{2, 1, 2 + s.IntN(5), 2 + s.IntN(5)}, s.normal), s.input(f32, []int{2, 1 + s.IntN(4), 1 + s.IntN(4), 2}, func() float64 { return 1.5 * (2*s.Float64() - 1) }))[0], f32)
	},
	"Resize": func(s *sketch) {
		s.opset = pick(s, 11, 13, 18, 19)
		mode := pick(s, "nearest", "linear", "cubic")
		a := attrs{"mode": mode}
		transform := pick(s, "half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize")
		if s.opset == 19 && mode != "nearest" && s.rare() { // where it meets a tie, ONNX Runtime rounds in a way of its own
			transform = "half_pixel_symmetric"
		}
		a["coordinate_transformation_mode"] = transform
		if mode == "nearest" {
			a["nearest_mode"] = pick(s, "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
		}
		if mode == "cubic" {
			if s.coin() {
				a["cubic_coeff_a"] = pick(s, -0.5, -0.75)
			}
			a["exclude_outside"] = s.IntN(2)
		}
		if transform == "tf_crop_and_resize" {
			a["extrapolation_value"] = 10.0
		}
		if s.opset >= 18 && transform != "tf_crop_and_resize" && mode != "nearest" && s.rare() {
			a["antialias"] = 1
		}
		dims := []int{1 + s.IntN(2), 1 + s.IntN(2), 2 + s.IntN(6), 2 + s.IntN(6)}
		roi := ""
		if transform == "tf_crop_and_resize" {
			roi = s.floats(0, 0, 0.1+0.3*s.Float64(), 0.3*s.Float64(), 1, 1, 0.6+0.6*s.Float64(), 0.5+0.5*s.Float64())
		}
		x := s.input(f32, dims, s.normal)
		if roi == "" && s.opset == 11 {
			roi = s.floats()
		}
		if s.coin() {
			s.output(s.node("Resize", 1, a, x, roi, s.floats(1, 1, pick(s, 2, 0.5, 1.5, 0.6, 2.3, 3), pick(s, 2, 0.5, 1.5, 0.7, 1.9)))[0], f32)
			return
		}
		if s.opset >= 18 && s.rare() && transform != "tf_crop_and_resize" && a["antialias"] == nil {
			a["keep_aspect_ratio_policy"] = pick(s, "stretch", "not_larger", "not_smaller")
			a["axes"] = []int{2, 3}
			s.output(s.node("Resize", 1, a, x, roi, "", s.ints(1+s.IntN(12), 1+s.IntN(12)))[0], f32)
			return
		}
		// ONNX Runtime forgets the region to crop along an axis that keeps its size.
		h, w := 1+s.IntN(12), 1+s.IntN(12)
		for transform == "tf_crop_and_resize" && (h == dims[2] || w == dims[3]) {
			h, w = 1+s.IntN(12), 1+s.IntN(12)
		}
		s.output(s.node("Resize", 1, a, x, roi, "", s.ints(dims[0], dims[1], h, w))[0], f32)
	},
	"Upsample": func(s *sketch) {
		s.opset = 9
		x := s.input(f32, append(s.dims(2, 3), s.list(2, 1, 6)...), s.normal)
		s.output(s.node("Upsample", 1, attrs{"mode": pick(s, "nearest", "linear")}, x, s.floats(1, 1, pick(s, 1, 2, 1.5, 2.6), pick(s, 1, 2, 1.5, 3)))[0], f32)
	},
	"Pad": func(s *sketch) {
		rank := 1 + s.IntN(4)
		mode := pick(s, "constant", "reflect", "edge", "wrap")
		s.opset = pick(s, 11, 13, 18)
		if mode == "wrap" {
			s.opset = 19
		}
		dims := s.list(rank, 3, 6)
		pads := s.list(2*rank, 0, 2)
		if mode == "constant" && s.rare() {
			pads = s.list(2*rank, -1, 2)
		}
		ops := []string{s.input(f32, dims, s.normal), s.ints(pads...)}
		if mode == "constant" && s.coin() {
			ops = append(ops, s.scalar(f32, 2.5))
		}
		s.output(s.node("Pad", 1, attrs{"mode": mode}, ops...)[0], f32)
	},
	"Slice": func(s *sketch) {
		dims := s.list(1+s.IntN(4), 1, 7)
		axes := s.axes(len(dims))
		n := len(axes)
		steps := s.list(n, 1, 3)
		for i := range steps {
			if s.rare() {
				steps[i] = -steps[i]
			}
		}
		x := s.input(pick(s, numbers...), dims, s.whole)
		e := onnx.ElemType(s.inputs[0].Elem)
		s.output(s.node("Slice", 1, nil, x, s.ints(s.list(n, -9, 9)...), s.ints(s.list(n, -9, 9)...), s.ints(axes...), s.ints(steps...))[0], e)
	},
	"Gather": func(s *sketch) {
		dims := s.list(1+s.IntN(3), 1, 5)
		axis := s.axis(len(dims))
		d := dims[(axis+len(dims))%len(dims)]
		x := s.input(pick(s, numbers...), dims, s.whole)
		e := onnx.ElemType(s.inputs[0].Elem)
		i := s.input(pick(s, onnx.Int32, onnx.Int64), s.dims(1+s.IntN(2), 4), func() float64 { return float64(s.IntN(2*d) - d) })
		s.output(s.node("Gather", 1, attrs{"axis": axis}, x, i)[0], e)
	},
	"GatherElements": func(s *sketch) {
		dims := s.list(1+s.IntN(3), 1, 5)
		axis := s.axis(len(dims))
		d := dims[(axis+len(dims))%len(dims)]
		at := slices.Clone(dims)
		at[(axis+len(dims))%len(dims)] = 1 + s.IntN(6)
		x := s.input(f32, dims, s.normal)
		i := s.input(onnx.Int64, at, func() float64 { return float64(s.IntN(2*d) - d) })
		s.output(s.node("GatherElements", 1, attrs{"axis": axis}, x, i)[0], f32)
	},
	"GatherND": func(s *sketch) {
		dims := s.list(2+s.IntN(2), 2, 4)
		batch := s.IntN(2)
		k := 1 + s.IntN(len(dims)-batch)
		at := append(slices.Clone(dims[:batch]), append(s.dims(s.IntN(2), 3), k)...)
		least := slices.Min(dims)
		s.output(s.node("GatherND", 1, attrs{"batch_dims": batch}, s.input(f32, dims, s.normal), s.input(onnx.Int64, at, func() float64 { return float64(s.IntN(2*least) - least) }))[0], f32)
	},
	"ScatterElements": func(s *sketch) {
		s.opset = 18
		dims := s.list(1+s.IntN(3), 1, 5)
		axis := s.axis(len(dims))
		at := make([]int, len(dims))
		for i := range at {
			at[i] = 1 + s.IntN(dims[i])
		}
		reduction := pick(s, "add", "mul", "max", "min")
		d := dims[(axis+len(dims))%len(dims)]
		s.output(s.node("ScatterElements", 1, attrs{"axis": axis, "reduction": reduction}, s.input(f32, dims, s.normal), s.input(onnx.Int64, at, func() float64 { return float64(s.IntN(2*d) - d) }), s.input(f32, at, s.normal))[0], f32)
	},
	"ScatterND": func(s *sketch) {
		s.opset = 18
		dims := s.list(1+s.IntN(3), 2, 4)
		k := 1 + s.IntN(len(dims))
		n := 1 + s.IntN(3)
		least := slices.Min(dims)
		s.output(s.node("ScatterND", 1, attrs{"reduction": pick(s, "add", "mul", "max", "min")}, s.input(f32, dims, s.normal), s.input(onnx.Int64, []int{n, k}, func() float64 { return float64(s.IntN(2*least) - least) }), s.input(f32, append([]int{n}, dims[k:]...), s.normal))[0], f32)
	},
	"TopK": func(s *sketch) {
		dims := s.list(1+s.IntN(3), 1, 9)
		axis := s.axis(len(dims))
		d := dims[(axis+len(dims))%len(dims)]
		draw := pick(s, s.normal, func() float64 { return float64(s.IntN(4)) })
		out := s.node("TopK", 2, attrs{"axis": axis, "largest": s.IntN(2)}, s.input(pick(s, numbers...), dims, draw), s.ints(1+s.IntN(d)))
		s.output(out[0], onnx.ElemType(s.inputs[0].Elem))
		s.output(out[1], onnx.Int64)
	},
	"ArgMax": func(s *sketch) {
		dims := s.dims(1+s.IntN(4), 6)
		op := pick(s, "ArgMax", "ArgMin")
		s.output(s.node(op, 1, attrs{"axis": s.axis(len(dims)), "keepdims": s.IntN(2), "select_last_index": s.IntN(2)}, s.input(pick(s, f32, onnx.Int32), dims, func() float64 { return float64(s.IntN(4)) }))[0], onnx.Int64)
	},
	"Reduce": func(s *sketch) {
		dims := s.dims(1+s.IntN(4), 6)
		op := pick(s, "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")
		draw := s.normal
		if op == "ReduceLogSum" {
			draw = s.positive
		}
		a := attrs{"keepdims": s.IntN(2)}
		x := s.input(pick(s, f32, f32, onnx.Double), dims, draw)
		e := onnx.ElemType(s.inputs[0].Elem)
		ops := []string{x}
		if s.coin() {
			s.opset = 18
			if s.coin() {
				a["noop_with_empty_axes"] = s.IntN(2)
			}
			if s.coin() {
				ops = append(ops, s.ints(s.axes(len(dims))...))
			}
		} else if s.opset = 12; s.coin() {
			a["axes"] = s.axes(len(dims))
		}
		s.output(s.node(op, 1, a, ops...)[0], e)
	},
	"ReduceInt": func(s *sketch) {
		s.opset = 18
		dims := s.dims(1+s.IntN(4), 6)
		op := pick(s, "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceSumSquare")
		e := pick(s, onnx.Int32, onnx.Int64)
		if op == "ReduceProd" { // ONNX Runtime saturates where it overflows
			dims = s.dims(1+s.IntN(4), 2)
		}
		s.output(s.node(op, 1, attrs{"keepdims": s.IntN(2)}, s.input(e, dims, s.whole), s.ints(s.axes(len(dims))...))[0], e)
	},
	"CumSum": func(s *sketch) {
		dims := s.dims(1+s.IntN(3), 6)
		s.output(s.node("CumSum", 1, attrs{"exclusive": s.IntN(2), "reverse": s.IntN(2)}, s.input(f32, dims, s.normal), s.scalar(onnx.Int64, float64(s.axis(len(dims)))))[0], f32)
	},
	"Softmax": func(s *sketch) {
		s.opset = pick(s, 11, 13)
		dims := s.dims(1+s.IntN(4), 7)
		a := attrs{}
		if s.coin() {
			a["axis"] = s.axis(len(dims))
		} else if s.opset == 11 && len(dims) < 2 {
			a["axis"] = 0
		}
		s.output(s.node(pick(s, "Softmax", "LogSoftmax", "Hardmax"), 1, a, s.input(f32, dims, func() float64 { return 5 * s.normal() }))[0], f32)
	},
	"LayerNormalization": func(s *sketch) {
		dims := s.dims(1+s.IntN(4), 6)
		axis := s.axis(len(dims))
		at := (axis + len(dims)) % len(dims)
		ops := []string{s.input(f32, dims, s.normal), s.input(f32, dims[at:], s.normal)}
		if s.coin() {
			ops = append(ops, s.input(f32, dims[at:], s.normal))
		}
		s.output(s.node("LayerNormalization", 1, attrs{"axis": axis, "epsilon": pick(s, 1e-5, 0.1)}, ops...)[0], f32)
	},
	"InstanceNormalization": func(s *sketch) {
		c := 1 + s.IntN(4)
		dims := append([]int{1 + s.IntN(3), c}, s.dims(1+s.IntN(3), 6)...)
		s.output(s.node("InstanceNormalization", 1, attrs{"epsilon": pick(s, 1e-5, 0.1)}, s.input(f32, dims, s.normal), s.input(f32, []int{c}, s.normal), s.input(f32, []int{c}, s.normal))[0], f32)
	},
	"GroupNormalization": func(s *sketch) {
		s.opset = 21
		g, k := 1+s.IntN(3), 1+s.IntN(3)
		dims := append([]int{1 + s.IntN(3), g * k}, s.dims(1+s.IntN(2), 6)...)
		s.output(s.node("GroupNormalization", 1, attrs{"epsilon": pick(s, 1e-5, 0.1), "num_groups": g}, s.input(f32, dims, s.normal), s.input(f32, []int{g * k}, s.normal), s.input(f32, []int{g * k}, s.normal))[0], f32)
	},
	"BatchNormalization": func(s *sketch) {
		c := 1 + s.IntN(4)
		dims := append([]int{1 + s.IntN(3), c}, s.dims(s.IntN(4), 6)...)
		s.opset = pick(s, 9, 15)
		s.output(s.node("BatchNormalization", 1, attrs{"epsilon": pick(s, 1e-5, 0.1)}, s.input(f32, dims, s.normal), s.input(f32, []int{c}, s.normal), s.input(f32, []int{c}, s.normal), s.input(f32, []int{c}, s.normal), s.input(f32, []int{c}, s.positive))[0], f32)
	},
	"LRN": func(s *sketch) {
		s.output(s.node("LRN", 1, attrs{"size": pick(s, 1, 3, 5), "alpha": 0.3, "beta": 0.6, "bias": 1.5}, s.input(f32, []int{1 + s.IntN(2), 1 + s.IntN(7), 1 + s.IntN(4), 1 + s.IntN(4)}, s.normal))[0], f32)
	},
	"LpNormalization": func(s *sketch) {
		dims := s.dims(1+s.IntN(3), 6)
		s.output(s.node("LpNormalization", 1, attrs{"axis": s.axis(len(dims)), "p": 1 + s.IntN(2)}, s.input(f32, dims, s.normal))[0], f32)
	},
	"Unary": func(s *sketch) {
		op := pick(s, "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "HardSwish", "Log", "Neg", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh", "Mish", "Gelu", "Not", "IsNaN", "IsInf")
		e, draw := f32, func() float64 {
			return pick(s, s.normal(), s.normal()*10, s.normal()*100, 0, math.Copysign(0, -1), 0.5, -0.5, 1.5, 2.5, -2.5, 1, -1, 88, -104, math.Inf(1), math.Inf(-1), math.NaN(), 1e-40, 3e38)
		}
		if op == "Sin" || op == "Cos" || op == "Tan" {
			draw = func() float64 { return s.normal() * 10 }
		}
		s.opset = 20
		to := e
		switch op {
		case "Not":
			e, to = onnx.Bool, onnx.Bool
		case "IsNaN", "IsInf":
			to = onnx.Bool
		}
		a := attrs{}
		if op == "Gelu" {
			a["approximate"] = pick(s, "none", "tanh")
		}
		s.output(s.node(op, 1, a, s.input(e, s.dims(1+s.IntN(3), 30), draw))[0], to)
	},
	"Activation": func(s *sketch) {
		op := pick(s, "Elu", "Celu", "Selu", "LeakyRelu", "ThresholdedRelu", "HardSigmoid", "Shrink")
		a := attrs{}
		if s.coin() {
			switch op {
			case "HardSigmoid":
				a["alpha"], a["beta"] = 0.3, 0.4
			case "Selu":
				a["alpha"], a["gamma"] = 1.2, 0.9
			case "Shrink":
				a["lambd"], a["bias"] = 0.7, 0.2
			default:
				a["alpha"] = pick(s, 0.3, 2)
			}
		}
		s.output(s.node(op, 1, a, s.input(f32, s.dims(1+s.IntN(3), 30), s.normal))[0], f32)
	},
	"Binary": func(s *sketch) {
		op := pick(s, "Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Mean", "Sum", "PRelu")
		dims := s.dims(1+s.IntN(4), 5)
		b := slices.Clone(dims[s.IntN(len(dims)):])
		for i := range b {
			if s.rare() {
				b[i] = 1
			}
		}
		if op != "PRelu" && s.coin() && len(b) == len(dims) {
			for i := range dims {
				if s.rare() && b[i] > 1 {
					dims[i] = 1
				}
			}
		}
		draw := s.normal
		if op == "Pow" {
			draw = s.positive
		}
		x, y := s.input(f32, dims, draw), s.input(f32, b, draw)
		if op == "Max" || op == "Min" || op == "Add" || op == "Sub" {
			for _, t := range s.inputs { // NaNs as well
				binary.LittleEndian.PutUint32(t.Data, math.Float32bits(float32(pick(s, math.NaN(), math.Inf(1), 1))))
			}
		}
		s.output(s.node(op, 1, nil, x, y)[0], f32)
	},
	"BinaryInt": func(s *sketch) {
		op := pick(s, "Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "Pow")
		e := pick(s, onnx.Int32, onnx.Int64)
		a := attrs{}
		if op == "Mod" {
			e = pick(s, onnx.Int32, onnx.Int64, onnx.Int8, onnx.Uint8, onnx.Int16, onnx.Uint32)
			if s.rare() {
				a["fmod"] = 1
			}
		}
		draw := func() float64 {
			v := s.whole()
			if e == onnx.Uint8 || e == onnx.Uint32 {
				v = math.Abs(v)
			}
			return v
		}
		nonzero := func() float64 {
			for {
				if v := draw(); v != 0 {
					return v
				}
			}
		}
		second := nonzero
		if op == "Pow" {
			second = func() float64 { return float64(s.IntN(4)) }
		}
		dims := s.dims(1+s.IntN(2), 20)
		s.output(s.node(op, 1, a, s.input(e, dims, draw), s.input(e, dims, second))[0], e)
	},
	"ModFloat": func(s *sketch) {
		dims := s.dims(1, 40)
		s.output(s.node("Mod", 1, attrs{"fmod": 1}, s.input(f32, dims, func() float64 { return 9 * s.normal() }), s.input(f32, dims, s.normal))[0], f32)
	},
	"Compare": func(s *sketch) {
		op := pick(s, "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
		e := pick(s, f32, onnx.Int32, onnx.Int64, onnx.Double)
		dims := s.dims(1+s.IntN(2), 20)
		draw := func() float64 { return float64(s.IntN(3)) }
		s.output(s.node(op, 1, nil, s.input(e, dims, draw), s.input(e, dims[len(dims)-1:], draw))[0], onnx.Bool)
	},
	"Logic": func(s *sketch) {
		dims := s.dims(1+s.IntN(2), 20)
		draw := func() float64 { return float64(s.IntN(2)) }
		s.output(s.node(pick(s, "And", "Or", "Xor"), 1, nil, s.input(onnx.Bool, dims, draw), s.input(onnx.Bool, dims[len(dims)-1:], draw))[0], onnx.Bool)
	},
	"BitShift": func(s *sketch) {
		e := pick(s, onnx.Uint8, onnx.Uint32, onnx.Uint64)
		dims := s.dims(1, 20)
		s.output(s.node("BitShift", 1, attrs{"direction": pick(s, "LEFT", "RIGHT")}, s.input(e, dims, func() float64 { return float64(s.IntN(200)) }), s.input(e, dims, func() float64 { return float64(s.IntN(8)) }))[0], e)
	},
	"Clip": func(s *sketch) {
		e := pick(s, f32, onnx.Int32, onnx.Int64, onnx.Double)
		ops := []string{s.input(e, s.dims(2, 9), s.whole), "", ""}
		if s.coin() {
			ops[1] = s.scalar(e, s.whole())
		}
		if s.coin() {
			ops[2] = s.scalar(e, s.whole())
		}
		s.output(s.node("Clip", 1, nil, ops...)[0], e)
	},
	"Cast": func(s *sketch) {
		all := []onnx.ElemType{onnx.Float, onnx.Double, onnx.Float16, onnx.Int8, onnx.Uint8, onnx.Int16, onnx.Uint16, onnx.Int32, onnx.Uint32, onnx.Int64, onnx.Uint64, onnx.Bool}
		from, to := pick(s, all...), pick(s, all...)
		draw := func() float64 { return float64(s.IntN(100)) }
		if from == onnx.Float || from == onnx.Double || from == onnx.Float16 {
			draw = func() float64 { return pick(s, s.Float64()*100, float64(s.IntN(100))+0.5, 0) }
		}
		s.output(s.node("Cast", 1, attrs{"to": int(to)}, s.input(from, s.dims(1, 40), draw))[0], to)
	},
	"MatMul": func(s *sketch) {
		m, k, n := 1+s.IntN(7), 1+s.IntN(20), 1+s.IntN(20)
		batch := s.dims(s.IntN(3), 3)
		other := slices.Clone(batch[s.IntN(len(batch)+1):])
		for i := range other {
			if s.rare() {
				other[i] = 1
			}
		}
		a, b := append(batch, m, k), append(other, k, n)
		switch s.IntN(6) {
		case 0:
			a = []int{k}
		case 1:
			b = []int{k}
		}
		e := pick(s, f32, f32, onnx.Double, onnx.Int32)
		s.output(s.node("MatMul", 1, nil, s.input(e, a, s.whole), s.input(e, b, s.whole))[0], e)
	},
	"Gemm": func(s *sketch) {
		m, k, n := 1+s.IntN(7), 1+s.IntN(20), 1+s.IntN(20)
		at := attrs{"transA": s.IntN(2), "transB": s.IntN(2)}
		if s.coin() {
			at["alpha"] = 0.5
		}
		if s.coin() {
			at["beta"] = pick(s, 2, 0, 0.25)
		}
		a, b := []int{m, k}, []int{k, n}
		if at["transA"] == 1 {
			a = []int{k, m}
		}
		if at["transB"] == 1 {
			b = []int{n, k}
		}
		ops := []string{s.input(f32, a, s.normal), s.input(f32, b, s.normal)}
		if s.coin() {
			ops = append(ops, s.input(f32, pick(s, []int{m, n}, []int{n}, []int{1, n}, []int{m, 1}, []int{1}, []int{1, 1}), s.normal))
		}
		s.output(s.node("Gemm", 1, at, ops...)[0], f32)
	},
	"Einsum": func(s *sketch) {
		eq := pick(s, "ij,jk->ik", "bij,bjk->bik", "ij->ji", "ii->i", "ij->", "ij,ij->", "i,j->ij", "bhid,bhjd->bhij", "...ij,...jk->...ik", "abc,cd->abd", "ab,bc,cd->ad", "ij,kj->ik", "bij->bi", "ijk->kij", "ab,ab->a", "ij,jk")
		ins, _, _ := strings.Cut(eq, "->")
		size := map[rune]int{}
		var ops []string
		for _, term := range strings.Split(ins, ",") {
			var dims []int
			if rest, ok := strings.CutPrefix(term, "..."); ok {
				dims, term = append(dims, 2, 3), rest
			}
			for _, r := range term {
				if size[r] == 0 {
					size[r] = 1 + s.IntN(5)
				}
				dims = append(dims, size[r])
			}
			ops = append(ops, s.input(f32, dims, s.normal))
		}
		s.output(s.node("Einsum", 1, attrs{"equation": eq}, ops...)[0], f32)
	},
	"Expand": func(s *sketch) {
		dims := s.dims(1+s.IntN(3), 4)
		to := append(s.dims(s.IntN(2), 3), dims...)
		x := slices.Clone(dims)
		for i := range x {
			if s.coin() {
				x[i] = 1
			}
		}
		for i := range to {
			if s.rare() {
				to[i] = 1
			}
		}
		s.output(s.node("Expand", 1, nil, s.input(f32, x, s.normal), s.ints(to...))[0], f32)
	},
	"Tile": func(s *sketch) {
		dims := s.dims(1+s.IntN(4), 4)
		s.output(s.node("Tile", 1, nil, s.input(f32, dims, s.normal), s.ints(s.list(len(dims), 1, 3)...))[0], f32)
	},
	"Concat": func(s *sketch) {
		dims := s.dims(1+s.IntN(4), 4)
		axis := s.axis(len(dims))
		var ops []string
		for range 1 + s.IntN(4) {
			d := slices.Clone(dims)
			d[(axis+len(d))%len(d)] = 1 + s.IntN(5)
			ops = append(ops, s.input(f32, d, s.normal))
		}
		s.output(s.node("Concat", 1, attrs{"axis": axis}, ops...)[0], f32)
	},
	"Split": func(s *sketch) {
		dims := s.dims(1+s.IntN(3), 4)
		axis := s.axis(len(dims))
		at := (axis + len(dims)) % len(dims)
		n := 1 + s.IntN(3)
		a := attrs{"axis": axis}
		var ops []string
		if s.coin() {
			parts := s.list(n, 1, 4)
			dims[at] = 0
			for _, p := range parts {
				dims[at] += p
			}
			ops = []string{s.input(f32, dims, s.normal), s.ints(parts...)}
		} else if s.coin() {
			s.opset = 18
			a["num_outputs"] = n
			dims[at] = n + s.IntN(5)
			ops = []string{s.input(f32, dims, s.normal)}
		} else {
			dims[at] = n * (1 + s.IntN(3))
			ops = []string{s.input(f32, dims, s.normal)}
		}
		for _, o := range s.node("Split", n, a, ops...) {
			s.output(o, f32)
		}
	},
	"Transpose": func(s *sketch) {
		dims := s.dims(1+s.IntN(5), 6)
		a := attrs{}
		if s.IntN(5) > 0 {
			a["perm"] = s.Perm(len(dims))
		}
		e := pick(s, f32, onnx.Double, onnx.Uint8, onnx.Int64)
		s.output(s.node("Transpose", 1, a, s.input(e, dims, func() float64 { return float64(s.IntN(200)) }))[0], e)
	},
	"DepthToSpace": func(s *sketch) {
		b := 2 + s.IntN(2)
		if s.coin() {
			s.output(s.node("DepthToSpace", 1, attrs{"blocksize": b, "mode": pick(s, "DCR", "CRD")}, s.input(f32, []int{1 + s.IntN(2), b * b * (1 + s.IntN(3)), 1 + s.IntN(4), 1 + s.IntN(4)}, s.normal))[0], f32)
			return
		}
		s.output(s.node("SpaceToDepth", 1, attrs{"blocksize": b}, s.input(f32, []int{1 + s.IntN(2), 1 + s.IntN(3), b * (1 + s.IntN(4)), b * (1 + s.IntN(4))}, s.normal))[0], f32)
	},
	"RoiAlign": func(s *sketch) {
		s.opset = 16
		n := 1 + s.IntN(3)
		a := attrs{"mode": pick(s, "avg", "max"), "output_height": 1 + s.IntN(4), "output_width": 1 + s.IntN(4), "sampling_ratio": s.IntN(3), "spatial_scale": pick(s, 1, 0.5), "coordinate_transformation_mode": pick(s, "half_pixel", "output_half_pixel")}
		s.output(s.node("RoiAlign", 1, a, s.input(f32, []int{2, 1 + s.IntN(3), 8, 9}, s.normal), s.floatsOf([]int{n, 4}, func(i int) float64 {
			if i%4 < 2 {
				return 3 * s.Float64()
			}
			return 4 + 6*s.Float64()
		}), s.input(onnx.Int64, []int{n}, func() float64 { return float64(s.IntN(2)) }))[0], f32)
	},
	"GridSample": func(s *sketch) {
		s.opset = pick(s, 16, 20)
		mode := pick(s, "bilinear", "nearest", "bicubic")
		if s.opset == 20 {
			mode = pick(s, "linear", "nearest", "cubic")
		}
		s.output(s.node("GridSample", 1, attrs{"mode": mode, "padding_mode": pick(s, "zeros", "border", "reflection"), "align_corners": s.IntN(2)}, s.input(f32, []int{2, 1 + s.IntN(3), 2 + s.IntN(5), 2 + s.IntN(5)}, s.normal), s.input(f32, []int{2, 1 + s.IntN(4), 1 + s.IntN(4), 2}, func() float64 { return 1.5 * (2*s.Float64() - 1) }))[0], f32)
	},
	"ReverseSequence": func(s *sketch) {
		b := s.IntN(2)
		dims := append([]int{1 + s.IntN(4), 1 + s.IntN(4)}, s.dims(s.IntN(2), 3)...)
		s.output(s.node("ReverseSequence", 1, attrs{"batch_axis": b, "time_axis": 1 - b}, s.input(f32, dims, s.normal), s.input(onnx.Int64, []int{dims[b]}, func() float64 { return float64(1 + s.IntN(dims[1-b])) }))[0], f32)
	},
	"OneHot": func(s *sketch) {
		d := 2 + s.IntN(4)
		dims := s.dims(1+s.IntN(2), 4)
		s.output(s.node("OneHot", 1, attrs{"axis": s.axis(len(dims) + 1)}, s.input(pick(s, onnx.Int64, onnx.Int32), dims, func() float64 { return float64(s.IntN(2*d+2) - d - 1) }), s.ints(d), s.floats(0.5, 3))[0], f32)
	},
	"Trilu": func(s *sketch) {
		s.output(s.node("Trilu", 1, attrs{"upper": s.IntN(2)}, s.input(f32, s.dims(2+s.IntN(2), 6), s.normal), s.scalar(onnx.Int64, float64(s.IntN(9)-4)))[0], f32)
	},
	"EyeLike": func(s *sketch) {
		s.output(s.node("EyeLike", 1, attrs{"k": s.IntN(7) - 3, "dtype": int(f32)}, s.input(f32, s.dims(2, 6), s.normal))[0], f32)
	},
	"Where": func(s *sketch) {
		dims := s.dims(1+s.IntN(3), 5)
		part := func() []int {
			d := slices.Clone(dims[s.IntN(len(dims)):])
			for i := range d {
				if s.rare() {
					d[i] = 1
				}
			}
			return d
		}
		s.output(s.node("Where", 1, nil, s.input(onnx.Bool, part(), func() float64 { return float64(s.IntN(2)) }), s.input(f32, dims, s.normal), s.input(f32, part(), s.normal))[0], f32)
	},
	"Recurrent": func(s *sketch) {
		op := pick(s, "LSTM", "GRU", "RNN")
		gates := map[string]int{"LSTM": 4, "GRU": 3, "RNN": 1}[op]
		t, b, in, h := 1+s.IntN(5), 1+s.IntN(3), 1+s.IntN(6), 1+s.IntN(9)
		direction := pick(s, "forward", "reverse", "bidirectional")
		d := 1
		if direction == "bidirectional" {
			d = 2
		}
		a := attrs{"direction": direction, "hidden_size": h}
		if s.rare() {
			a["clip"] = 0.7
		}
		small := func() float64 { return 0.5 * s.normal() }
		ops := []string{s.input(f32, []int{t, b, in}, s.normal), s.input(f32, []int{d, gates * h, in}, small), s.input(f32, []int{d, gates * h, h}, small), "", "", ""}
		if s.coin() {
			ops[3] = s.input(f32, []int{d, 2 * gates * h}, small)
		}
		if s.coin() {
			ops[4] = s.input(onnx.Int32, []int{b}, func() float64 { return float64(1 + s.IntN(t)) })
		}
		if s.coin() {
			ops[5] = s.input(f32, []int{d, b, h}, small)
		}
		results := 2
		switch op {
		case "GRU":
			a["linear_before_reset"] = s.IntN(2)
		case "LSTM":
			results = 3
			ops = append(ops, "", "")
			if s.coin() {
				ops[6] = s.input(f32, []int{d, b, h}, small)
			}
			if s.coin() {
				ops[7] = s.input(f32, []int{d, 3 * h}, small)
			}
			if s.rare() {
				a["input_forget"] = s.IntN(2)
			}
		}
		if s.rare() {
			per := map[string]int{"LSTM": 3, "GRU": 2, "RNN": 1}[op]
			var acts []string
			for range d * per {
				acts = append(acts, pick(s, "Tanh", "Sigmoid", "Relu", "Softsign", "HardSigmoid", "Elu"))
			}
			a["activations"] = acts
		}
		for _, o := range s.node(op, results, a, ops...) {
			s.output(o, f32)
		}
	},
	"QuantizeLinear": func(s *sketch) {
		e := pick(s, onnx.Int8, onnx.Uint8)
		dims := s.dims(2+s.IntN(2), 6)
		axis := s.axis(len(dims))
		zero := func() float64 { return float64(s.IntN(20)) }
		scale, point := []int{}, []int{}
		a := attrs{}
		if s.coin() {
			a["axis"] = axis
			scale = []int{dims[(axis+len(dims))%len(dims)]}
			point = scale
		}
		w := s.constant(f32, scale, s.data(f32, volume(scale), func() float64 { return pick(s, 0.01, 0.1, 0.37) }))
		z := s.constant(e, point, s.data(e, volume(point), zero))
		q := s.node("QuantizeLinear", 1, a, s.input(f32, dims, func() float64 { return 5 * s.normal() }), w, z)[0]
		s.output(q, e)
		s.output(s.node("DequantizeLinear", 1, a, q, w, z)[0], f32)
	},
	"DynamicQuantizeLinear": func(s *sketch) {
		shift := pick(s, 0, 5, -5)
		out := s.node("DynamicQuantizeLinear", 3, nil, s.input(f32, s.dims(2, 6), func() float64 { return s.normal() + float64(shift) }))
		s.output(out[0], onnx.Uint8)
	},
	"QLinearConv": func(s *sketch) {
		e, we := pick(s, onnx.Int8, onnx.Uint8), onnx.Int8
		if e == onnx.Uint8 {
			we = pick(s, onnx.Int8, onnx.Uint8)
		}
		group := pick(s, 1, 1, 2)
		in, out := group*(1+s.IntN(3)), group*(1+s.IntN(3))
		a := attrs{"group": group}
		s.window(a, 2, true)
		k := kernelOf(s, 2)
		small := func() float64 { return float64(s.IntN(30)) }
		x := s.input(e, append([]int{1 + s.IntN(2), in}, s.list(2, 5, 9)...), func() float64 { return float64(s.IntN(100)) })
		w := s.constant(we, append([]int{out, in / group}, k...), s.data(we, out*in/group*volume(k), small))
		per := []int{}
		if s.coin() {
			per = []int{out}
		}
		ws := s.constant(f32, per, s.data(f32, volume(per), func() float64 { return pick(s, 0.01, 0.02) }))
		wz := s.constant(we, per, s.data(we, volume(per), func() float64 { return 0 }))
		ops := []string{x, s.scalar(f32, 0.02), s.scalar(e, float64(s.IntN(9))), w, ws, wz, s.scalar(f32, 0.1), s.scalar(e, float64(s.IntN(9)))}
		if s.coin() {
			ops = append(ops, s.constant(onnx.Int32, []int{out}, s.data(onnx.Int32, out, s.whole)))
		}
		s.output(s.node("QLinearConv", 1, a, ops...)[0], e)
	},
	"MatMulInteger": func(s *sketch) {
		m, k, n := 1+s.IntN(7), 1+s.IntN(20), 1+s.IntN(20)
		draw := func() float64 { return float64(s.IntN(100)) }
		b := pick(s, onnx.Int8, onnx.Uint8)
		ops := []string{s.input(onnx.Uint8, []int{m, k}, draw), s.input(b, []int{k, n}, draw)}
		if s.coin() {
			ops = append(ops, s.scalar(onnx.Uint8, 3))
			if s.coin() {
				ops = append(ops, pick(s, s.scalar(b, 5), s.constant(b, []int{n}, s.data(b, n, func() float64 { return float64(s.IntN(9)) }))))
			}
		}
		s.output(s.node("MatMulInteger", 1, nil, ops...)[0], onnx.Int32)
	},
	"QLinearMatMul": func(s *sketch) {
		m, k, n := 1+s.IntN(7), 1+s.IntN(20), 1+s.IntN(20)
		draw := func() float64 { return float64(s.IntN(100)) }
		e := pick(s, onnx.Int8, onnx.Uint8)
		s.output(s.node("QLinearMatMul", 1, nil, s.input(e, []int{m, k}, draw), s.scalar(f32, 0.02), s.scalar(e, 3), s.input(e, []int{k, n}, draw), s.scalar(f32, 0.03), s.scalar(e, 2), s.scalar(f32, 0.3), s.scalar(e, 7))[0], e)
	},
	"MaxRoiPool": func(s *sketch) {
		n := 1 + s.IntN(2)
		s.output(s.node("MaxRoiPool", 1, attrs{"pooled_shape": s.list(2, 1, 3), "spatial_scale": pick(s, 1, 0.5)}, s.input(f32, []int{2, 2, 7, 8}, s.normal), s.floatsOf([]int{n, 5}, func(i int) float64 {
			switch i % 5 {
			case 0:
				return float64(s.IntN(2))
			case 1, 2:
				return float64(s.IntN(3))
			}
			return float64(3 + s.IntN(4))
		}))[0], f32)
	},
	"Col2Im": func(s *sketch) {
		s.opset = 18
		h, w := 4+s.IntN(3), 4+s.IntN(3)
		k := s.list(2, 1, 3)
		stride := s.list(2, 1, 2)
		l := ((h-k[0])/stride[0] + 1) * ((w-k[1])/stride[1] + 1)
		s.output(s.node("Col2Im", 1, attrs{"strides": stride}, s.input(f32, []int{1, 2 * k[0] * k[1], l}, s.normal), s.ints(h, w), s.ints(k...))[0], f32)
	},
	"Squeeze": func(s *sketch) {
		dims := s.dims(1+s.IntN(4), 2)
		var ones []int
		for i, d := range dims {
			if d == 1 && s.coin() {
				ones = append(ones, i-len(dims)*s.IntN(2))
			}
		}
		x := s.input(f32, dims, s.normal)
		if len(ones) == 0 || s.rare() {
			s.output(s.node("Squeeze", 1, nil, x)[0], f32)
			return
		}
		s.output(s.node("Squeeze", 1, nil, x, s.ints(ones...))[0], f32)
	},
	"Flatten": func(s *sketch) {
		dims := s.dims(1+s.IntN(4), 4)
		s.output(s.node("Flatten", 1, attrs{"axis": s.IntN(2*len(dims)+1) - len(dims)}, s.input(f32, dims, s.normal))[0], f32)
	},
	"Reshape": func(s *sketch) {
		dims := s.dims(3, 4)
		to := pick(s, []int{-1}, []int{0, -1}, []int{0, 0, -1}, []int{-1, dims[2]}, []int{dims[0] * dims[1], 1, 0}, []int{1, -1, 1})
		s.output(s.node("Reshape", 1, nil, s.input(f32, dims, s.normal), s.ints(to...))[0], f32)
	},
	"Losses": func(s *sketch) {
		c := 2 + s.IntN(4)
		dims := append([]int{1 + s.IntN(3), c}, s.dims(s.IntN(3), 3)...)
		target := append([]int{dims[0]}, dims[2:]...)
		a := attrs{"reduction": pick(s, "none", "mean", "sum")}
		if s.rare() {
			a["ignore_index"] = s.IntN(c)
		}
		ops := []string{s.input(f32, dims, s.normal), s.input(onnx.Int64, target, func() float64 { return float64(s.IntN(c)) })}
		if s.coin() {
			ops = append(ops, s.input(f32, []int{c}, s.positive))
		}
		s.output(s.node(pick(s, "NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"), 1, a, ops...)[0], f32)
	},
	"MeanVarianceNormalization": func(s *sketch) {
		a := attrs{}
		if s.coin() {
			a["axes"] = s.Perm(4)[:1+s.IntN(3)]
		}
		s.output(s.node("MeanVarianceNormalization", 1, a, s.input(f32, s.list(4, 2, 5), s.normal))[0], f32)
	},
	"DFT": func(s *sketch) {
		s.opset = 20
		n := 2 + s.IntN(9)
		a := attrs{"onesided": s.IntN(2)}
		c := 1
		if a["onesided"] == 0 {
			c = 1 + s.IntN(2)
			a["inverse"] = s.IntN(2)
		}
		s.output(s.node("DFT", 1, a, s.input(f32, []int{1 + s.IntN(2), n, c}, s.normal), "", s.scalar(onnx.Int64, 1))[0], f32)
	},
	"Norms": func(s *sketch) { // layer and RMS norms as exporters spell them, or nearly
		dims := s.dims(2+s.IntN(2), 9)
		x := s.input(f32, dims, s.normal)
		axes := pick(s, []int{-1}, []int{-1}, []int{len(dims) - 1}, []int{-2, -1}, []int{-2})
		mean := func(v string) string { return s.node("ReduceMean", 1, attrs{"axes": axes, "keepdims": 1}, v)[0] }
		d := x
		if s.coin() {
			d = s.node("Sub", 1, nil, x, mean(x))[0]
		}
		square := s.node("Mul", 1, nil, d, pick(s, d, d, d, x))[0]
		if s.coin() {
			square = s.node("Pow", 1, nil, d, s.scalar(f32, pick[float64](s, 2, 2, 2, 4)))[0]
		}
		v := s.node("Add", 1, nil, mean(square), s.scalar(f32, pick[float64](s, 1e-5, 0.1)))[0]
		root := s.node("Sqrt", 1, nil, v)[0]
		y := ""
		if s.coin() {
			y = s.node("Div", 1, nil, d, root)[0]
		} else {
			y = s.node("Mul", 1, nil, pick(s, d, d, x), s.node("Reciprocal", 1, nil, root)[0])[0]
		}
		if s.coin() {
			y = s.node("Mul", 1, nil, y, s.input(f32, pick(s, dims[len(dims)-1:], dims, []int{1}), s.normal))[0]
		}
		if s.coin() {
			y = s.node("Add", 1, nil, y, s.input(f32, pick(s, dims[len(dims)-1:], dims, []int{1}), s.normal))[0]
		}
		s.opset = 13
		s.output(y, f32)
	},
	"Gates": func(s *sketch) { // GELU, SiLU and their like as exporters spell them, or nearly
		x := s.input(f32, s.dims(2, 30), s.normal)
		half, root, one := s.scalar(f32, pick[float64](s, 0.5, 0.5, 0.4)), s.scalar(f32, pick[float64](s, math.Sqrt2, math.Sqrt2, 1.5)), s.scalar(f32, pick[float64](s, 1, 1, 1, 2))
		var y string
		switch s.IntN(4) {
		case 0:
			e := s.node("Erf", 1, nil, s.node("Div", 1, nil, x, root)[0])[0]
			y = s.node("Mul", 1, nil, s.node("Mul", 1, nil, x, s.node("Add", 1, nil, e, one)[0])[0], half)[0]
		case 1:
			cube := s.node("Pow", 1, nil, x, s.scalar(f32, pick[float64](s, 3, 3, 2)))[0]
			in := s.node("Add", 1, nil, x, s.node("Mul", 1, nil, cube, s.scalar(f32, 0.044715))[0])[0]
			t := s.node("Tanh", 1, nil, s.node("Mul", 1, nil, in, s.scalar(f32, 0.7978846))[0])[0]
			y = s.node("Mul", 1, nil, s.node("Mul", 1, nil, half, x)[0], s.node("Add", 1, nil, t, one)[0])[0]
		case 2:
			y = s.node("Mul", 1, nil, pick(s, x, s.input(f32, []int{1}, s.normal)), s.node("Sigmoid", 1, nil, x)[0])[0]
		default:
			c := s.node("Clip", 1, nil, s.node("Add", 1, nil, x, s.scalar(f32, pick[float64](s, 3, 3, 2)))[0], s.scalar(f32, 0), s.scalar(f32, pick[float64](s, 6, 6, 5)))[0]
			y = s.node("Div", 1, nil, s.node("Mul", 1, nil, x, c)[0], s.scalar(f32, 6))[0]
		}
		s.output(y, f32)
	},
	"Networks": func(s *sketch) { // convolutions and what follows them
		c := pick(s, 1, 3, 4, 16, 17)
		size := s.list(2, 6, 14)
		x := s.input(f32, append([]int{1 + s.IntN(2), c}, size...), s.normal)
		for range 1 + s.IntN(4) {
			switch s.IntN(9) {
			case 0, 1, 2:
				group := pick(s, 1, 1, 1, c)
				out := group * pick(s, 1, 2, 5, 16)
				if out > 64 {
					out = c
				}
				k := pick(s, 1, 3, 3, 5)
				small := func() float64 { return 0.3 * s.normal() }
				ops := []string{x, s.constant(f32, []int{out, c / group, k, k}, s.data(f32, out*c/group*k*k, small))}
				if s.coin() {
					ops = append(ops, s.constant(f32, []int{out}, s.data(f32, out, s.normal)))
				}
				stride := 1 + s.IntN(2)
				x, c = s.node("Conv", 1, attrs{"group": group, "pads": []int{k / 2, k / 2, k / 2, k / 2}, "strides": []int{stride, stride}}, ops...)[0], out
			case 3:
				x = s.node(pick(s, "Relu", "LeakyRelu", "Sigmoid", "HardSwish", "Elu"), 1, nil, x)[0]
			case 4:
				per := func() string {
					d := pick(s, []int{c, 1, 1}, []int{1, c, 1, 1}, []int{1}, []int{1, 1, 1, 1})
					return s.constant(f32, d, s.data(f32, volume(d), s.normal))
				}
				x = s.node(pick(s, "Add", "Mul", "Sub", "Div", "PRelu"), 1, nil, x, per())[0]
			case 5:
				x = s.node("BatchNormalization", 1, nil, x, s.constant(f32, []int{c}, s.data(f32, c, s.normal)), s.constant(f32, []int{c}, s.data(f32, c, s.normal)), s.constant(f32, []int{c}, s.data(f32, c, s.normal)), s.constant(f32, []int{c}, s.data(f32, c, s.positive)))[0]
			case 6:
				x = s.node(pick(s, "MaxPool", "AveragePool"), 1, attrs{"kernel_shape": []int{3, 3}, "pads": []int{1, 1, 1, 1}, "strides": pick(s, []int{1, 1}, []int{2, 2})}, x)[0]
			case 7:
				x = s.node("Add", 1, nil, x, s.node(pick(s, "Relu", "Neg", "Identity"), 1, nil, x)[0])[0]
			default:
				x = s.node("Clip", 1, nil, x, s.scalar(f32, pick[float64](s, 0, -1)), s.scalar(f32, pick[float64](s, 6, 1)))[0]
			}
		}
		s.output(x, f32)
	},
	"Movements": func(s *sketch) { // chains of what moves elements, with arithmetic between
		dims := s.list(1+s.IntN(4), 1, 6)
		x := s.input(f32, dims, s.normal)
		for range 2 + s.IntN(6) {
			x, dims = s.move(x, dims)
		}
		s.output(x, f32)
	},
	"Products": func(s *sketch) { // matrix products with what exporters put around them
		m, k := 1+s.IntN(9), 1+s.IntN(20)
		batch := s.dims(s.IntN(3), 3)
		x, dims := s.input(f32, append(slices.Clone(batch), m, k), s.normal), append(batch, m, k)
		for range 1 + s.IntN(4) {
			last := dims[len(dims)-1]
			switch s.IntN(7) {
			case 0, 1:
				n := 1 + s.IntN(20)
				w := s.constant(f32, []int{last, n}, s.data(f32, last*n, func() float64 { return 0.3 * s.normal() }))
				if s.coin() {
					w = s.node("Transpose", 1, attrs{"perm": []int{1, 0}}, s.constant(f32, []int{n, last}, s.data(f32, last*n, func() float64 { return 0.3 * s.normal() })))[0]
				}
				x, dims = s.node("MatMul", 1, nil, x, w)[0], append(dims[:len(dims)-1:len(dims)-1], n)
			case 2:
				d := pick(s, []int{last}, []int{1, last}, []int{1}, dims[len(dims)-2:], []int{dims[len(dims)-2], 1})
				x = s.node(pick(s, "Add", "Mul", "Sub"), 1, nil, x, s.constant(f32, d, s.data(f32, volume(d), s.normal)))[0]
			case 3:
				x = s.node(pick(s, "Relu", "Tanh", "Sigmoid", "Neg"), 1, nil, x)[0]
			case 4:
				x = s.node("Softmax", 1, attrs{"axis": pick(s, -1, -2)}, x)[0]
			case 5:
				perm := make([]int, len(dims))
				for i := range perm {
					perm[i] = i
				}
				n := len(dims)
				perm[n-1], perm[n-2] = n-2, n-1
				t := s.node("Transpose", 1, attrs{"perm": perm}, x)[0]
				x, dims = s.node("MatMul", 1, nil, x, t)[0], append(dims[:n-1:n-1], dims[n-2])
			default:
				if len(dims) == 2 {
					n := 1 + s.IntN(9)
					a := attrs{"transB": s.IntN(2), "alpha": pick[float64](s, 1, 0.5), "beta": pick[float64](s, 1, 2)}
					w := []int{last, n}
					if a["transB"] == 1 {
						w = []int{n, last}
					}
					c := pick(s, []int{n}, []int{1, n}, []int{dims[0], 1})
					x = s.node("Gemm", 1, a, x, s.constant(f32, w, s.data(f32, n*last, s.normal)), s.constant(f32, c, s.data(f32, volume(c), s.normal)))[0]
					dims = []int{dims[0], n}
				}
			}
		}
		s.output(s.node("Identity", 1, nil, x)[0], f32)
	},
	"Reductions": func(s *sketch) { // what is reduced, and used beside what it was reduced from
		dims := s.dims(2+s.IntN(3), 7)
		x := s.input(f32, dims, s.normal)
		s.opset = 13
		for range 1 + s.IntN(3) {
			r := s.node(pick(s, "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2"), 1, attrs{"axes": s.axes(len(dims)), "keepdims": 1}, x)[0]
			switch s.IntN(4) {
			case 0:
				x = s.node("Sub", 1, nil, x, r)[0]
			case 1:
				x = s.node("Div", 1, nil, x, s.node("Add", 1, nil, s.node("Abs", 1, nil, r)[0], s.scalar(f32, 0.5))[0])[0]
			case 2:
				x = s.node("Mul", 1, nil, s.node("Sigmoid", 1, nil, r)[0], x)[0]
			default:
				e := s.node("Exp", 1, nil, s.node("Sub", 1, nil, x, r)[0])[0]
				x = s.node("Div", 1, nil, e, s.node("ReduceSum", 1, attrs{"keepdims": 1}, e, s.ints(s.axes(len(dims))...))[0])[0]
			}
		}
		s.output(x, f32)
	},
	"Quantised": func(s *sketch) { // networks between QuantizeLinear and DequantizeLinear
		c := pick(s, 1, 3, 4, 8, 16)
		dims := append([]int{1 + s.IntN(2), c}, s.list(2, 5, 11)...)
		e := pick(s, onnx.Int8, onnx.Uint8)
		step := pick(s, 0.05, 0.1)
		// A sum at the edge of a step may go either way: each layer adds one.
		requantise := func(x string) string {
			a, b := s.scalar(f32, step), s.scalar(e, pick[float64](s, 0, 3, 10))
			s.step = step
			return s.node("DequantizeLinear", 1, nil, s.node("QuantizeLinear", 1, nil, x, a, b)[0], a, b)[0]
		}
		x := requantise(s.input(f32, dims, s.normal))
		switch s.IntN(5) {
		case 0, 1, 2:
			group := pick(s, 1, 1, c)
			out := group * pick(s, 1, 2, 5)
			k := pick(s, 1, 3)
			w := s.constant(onnx.Int8, []int{out, c / group, k, k}, s.data(onnx.Int8, out*c/group*k*k, func() float64 { return float64(s.IntN(60) - 30) }))
			per := pick(s, []int{}, []int{out})
			scale := s.constant(f32, per, s.data(f32, volume(per), func() float64 { return pick(s, 0.01, 0.02) }))
			zero := s.constant(onnx.Int8, per, s.data(onnx.Int8, volume(per), func() float64 { return 0 }))
			ops := []string{x, s.node("DequantizeLinear", 1, attrs{"axis": 0}, w, scale, zero)[0]}
			if s.coin() {
				ops = append(ops, s.constant(f32, []int{out}, s.data(f32, out, s.normal)))
			}
			x = s.node("Conv", 1, attrs{"group": group, "pads": []int{k / 2, k / 2, k / 2, k / 2}, "strides": pick(s, []int{1, 1}, []int{2, 2})}, ops...)[0]
			if s.coin() {
				x = s.node(pick(s, "Relu", "Sigmoid"), 1, nil, x)[0]
			}
		case 3:
			x = s.node(pick(s, "Add", "Mul"), 1, nil, x, pick(s, x, requantise(s.input(f32, dims, s.normal))))[0]
		default:
			x = s.node(pick(s, "MaxPool", "AveragePool"), 1, attrs{"kernel_shape": []int{2, 2}, "strides": []int{2, 2}}, x)[0]
		}
		x = requantise(x)
		if s.coin() {
			x = s.node(pick(s, "MaxPool", "AveragePool"), 1, attrs{"kernel_shape": []int{2, 2}}, x)[0]
		}
		s.output(x, f32)
	},
	"If": func(s *sketch) {
		dims := s.dims(2, 5)
		x := s.input(f32, dims, s.normal)
		branch := func() *sketch {
			b := s.body()
			y := b.node(pick(s, "Relu", "Neg", "Identity"), 1, nil, x)[0]
			if s.coin() {
				y = b.node("Add", 1, nil, y, b.constant(f32, []int{1}, b.data(f32, 1, s.normal)))[0]
			}
			b.output(y, f32)
			return b
		}
		cond := ""
		if s.coin() {
			cond = s.scalar(onnx.Bool, float64(s.IntN(2)))
		} else {
			sum := s.node("ReduceSum", 1, attrs{"keepdims": 0}, x)[0]
			cond = s.node("Greater", 1, nil, sum, s.scalar(f32, 0))[0]
		}
		s.output(s.node("If", 1, attrs{"then_branch": branch(), "else_branch": branch()}, cond)[0], f32)
	},
	"Loop": func(s *sketch) {
		dims := s.dims(1+s.IntN(2), 5)
		x, v := s.input(f32, dims, s.normal), s.input(f32, dims, s.normal)
		most := s.IntN(5)
		b := s.body()
		i, c, p := b.param(onnx.Int64, []int{}), b.param(onnx.Bool, []int{}), b.param(f32, dims)
		cond := b.node("Identity", 1, nil, c)[0]
		if s.coin() {
			cond = b.node("Less", 1, nil, i, b.scalar(onnx.Int64, float64(s.IntN(4))))[0]
		}
		b.output(cond, onnx.Bool)
		f := b.node("Cast", 1, attrs{"to": int(f32)}, i)[0]
		next := b.node(pick(s, "Add", "Mul"), 1, nil, p, pick(s, x, f))[0]
		b.output(next, f32)
		b.output(b.node(pick(s, "Neg", "Identity"), 1, nil, pick(s, next, p))[0], f32)
		start := pick(s, "", s.scalar(onnx.Bool, 1))
		out := s.node("Loop", 2, attrs{"body": b}, s.scalar(onnx.Int64, float64(most)), start, v)
		s.output(out[0], f32)
		s.output(out[1], f32)
	},
	"Scan": func(s *sketch) {
		steps, dims := 1+s.IntN(4), s.dims(1+s.IntN(2), 4)
		state := s.input(f32, dims, s.normal)
		axis := s.IntN(len(dims) + 1)
		x := s.input(f32, slices.Insert(slices.Clone(dims), axis, steps), s.normal)
		b := s.body()
		p, e := b.param(f32, dims), b.param(f32, dims)
		next := b.node(pick(s, "Add", "Sub", "Mul"), 1, nil, p, e)[0]
		b.output(next, f32)
		b.output(b.node(pick(s, "Neg", "Identity"), 1, nil, pick(s, next, e))[0], f32)
		a := attrs{"body": b, "num_scan_inputs": 1, "scan_input_axes": []int{axis - s.IntN(2)*(len(dims)+1)}, "scan_input_directions": []int{s.IntN(2)},
			"scan_output_axes": []int{s.axis(len(dims) + 1)}, "scan_output_directions": []int{s.IntN(2)}}
		for _, o := range s.node("Scan", 2, a, state, x) {
			s.output(o, f32)
		}
	},
	"LogisticAttention": func(s *sketch) { // attention as exporters spell it
		b, h, t, u, d := 1+s.IntN(2), 1+s.IntN(3), 1+s.IntN(9), 1+s.IntN(9), 1+s.IntN(9)
		q, k, v := s.input(f32, []int{b, h, t, d}, s.normal), s.input(f32, []int{b, h, u, d}, s.normal), s.input(f32, []int{b, h, u, d}, s.normal)
		x := s.node("MatMul", 1, nil, q, s.node("Transpose", 1, attrs{"perm": []int{0, 1, 3, 2}}, k)[0])[0]
		x = s.node(pick(s, "Mul", "Div"), 1, nil, x, s.scalar(f32, s.positive()))[0]
		if s.coin() {
			x = s.node("Add", 1, nil, x, s.input(f32, pick(s, []int{t, u}, []int{b, 1, 1, u}, []int{u}, []int{b, h, t, u}, []int{1, h, t, 1}), s.normal))[0]
		}
		if s.coin() {
			seen := pick(s, 1, 3) // whole rows are hidden as well
			m := s.input(onnx.Bool, pick(s, []int{t, u}, []int{b, 1, 1, u}, []int{t, 1}), func() float64 { return float64(s.IntN(2) * s.IntN(seen+1)) })
			x = s.node("Where", 1, nil, m, x, s.scalar(f32, pick(s, -1e9, -1e4, -5, math.Inf(-1), -math.MaxFloat32)))[0]
			if s.coin() { // a second mask, which may hide the rest
				late := s.input(f32, []int{t, u}, func() float64 { return pick(s, 0, 0, -1e9, -math.MaxFloat32, math.Inf(-1)) })
				x = s.node("Add", 1, nil, x, late)[0]
			}
		}
		x = s.node("Softmax", 1, attrs{"axis": pick(s, -1, 3, 2)}, x)[0]
		x = s.node("MatMul", 1, nil, x, v)[0]
		if s.coin() {
			x = s.node("Transpose", 1, attrs{"perm": []int{0, 2, 1, 3}}, x)[0]
		}
		s.output(x, f32)
	},
}

// floatsOf adds an input of which each element is drawn by its place.
func (s *sketch) floatsOf(dims []int, draw func(i int) float64) string {
	i := -1
	return s.input(f32, dims, func() float64 { i++; return draw(i) })
}

// move adds an operator that moves the elements of x, and returns its result and
// shape.
func (s *sketch) move(x string, dims []int) (string, []int) {
	n := len(dims)
	switch s.IntN(11) {
	case 0, 1:
		perm := s.Perm(n)
		to := make([]int, n)
		for i, p := range perm {
			to[i] = dims[p]
		}
		return s.node("Transpose", 1, attrs{"perm": perm}, x)[0], to
	case 2:
		all := volume(dims)
		to := []int{all}
		for _, d := range []int{2, 3, 5} {
			if last := to[len(to)-1]; last%d == 0 && s.coin() {
				to = append(to[:len(to)-1], d, last/d)
			}
		}
		s.Shuffle(len(to), func(i, j int) { to[i], to[j] = to[j], to[i] })
		return s.node("Reshape", 1, nil, x, s.ints(to...))[0], to
	case 3:
		axis := s.IntN(n)
		d := dims[axis]
		start, step := s.IntN(d), pick(s, 1, 1, 2, -1)
		end := d
		if step < 0 {
			end = -d - 1
		}
		to := slices.Clone(dims)
		if to[axis] = (d - start + step - 1) / step; step < 0 {
			to[axis] = start + 1
		}
		return s.node("Slice", 1, nil, x, s.ints(start), s.ints(end), s.ints(axis), s.ints(step))[0], to
	case 4:
		axis := s.IntN(n)
		to := slices.Clone(dims)
		to[axis] *= 2
		return s.node("Concat", 1, attrs{"axis": axis}, x, pick(s, x, s.node("Neg", 1, nil, x)[0]))[0], to
	case 5:
		pads := s.list(2*n, 0, 1)
		to := slices.Clone(dims)
		for i := range to {
			to[i] += pads[i] + pads[n+i]
		}
		return s.node("Pad", 1, attrs{"mode": pick(s, "constant", "edge")}, x, s.ints(pads...))[0], to
	case 6:
		at := s.IntN(n + 1)
		return s.node("Unsqueeze", 1, nil, x, s.ints(at))[0], slices.Insert(slices.Clone(dims), at, 1)
	case 7:
		axis := s.IntN(n)
		pickAt := s.list(1+s.IntN(3), 0, dims[axis]-1)
		to := slices.Clone(dims)
		to[axis] = len(pickAt)
		return s.node("Gather", 1, attrs{"axis": axis}, x, s.ints(pickAt...))[0], to
	case 8:
		repeats := s.list(n, 1, 2)
		to := slices.Clone(dims)
		for i := range to {
			to[i] *= repeats[i]
		}
		return s.node("Tile", 1, nil, x, s.ints(repeats...))[0], to
	case 9:
		d := slices.Clone(dims[s.IntN(n):])
		for i := range d {
			if s.coin() {
				d[i] = 1
			}
		}
		return s.node(pick(s, "Add", "Mul", "Max"), 1, nil, x, s.constant(f32, d, s.data(f32, volume(d), s.normal)))[0], dims
	}
	return s.node(pick(s, "Relu", "Abs", "Identity"), 1, nil, x)[0], dims
}
