package main

import "github.com/popefgen/popefgen/onnx"

// windowSketches are operators on windows of images.
var windowSketches = map[string]func(*sketch){
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
	"Col2Im": func(s *sketch) {
		s.opset = 18
		h, w := 4+s.IntN(3), 4+s.IntN(3)
		k := s.list(2, 1, 3)
		stride := s.list(2, 1, 2)
		l := ((h-k[0])/stride[0] + 1) * ((w-k[1])/stride[1] + 1)
		s.output(s.node("Col2Im", 1, attrs{"strides": stride}, s.input(f32, []int{1, 2 * k[0] * k[1], l}, s.normal), s.ints(h, w), s.ints(k...))[0], f32)
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
}
