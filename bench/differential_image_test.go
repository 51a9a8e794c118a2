package main

import "math"

// imageSketches are operators that sample images.
var imageSketches = map[string]func(*sketch){
	"GridSampleCubic": func(s *sketch) {
		s.opset = pick(s, 16, 20)
		mode := "bicubic"
		if s.opset == 20 {
			mode = "cubic"
		}
		s.output(s.node("GridSample", 1, attrs{"mode": mode, "padding_mode": pick(s, "zeros", "border", "reflection"), "align_corners": s.IntN(2)}, s.input(f32, []int{2, 1, 2 + s.IntN(5), 2 + s.IntN(5)}, s.normal), s.input(f32, []int{2, 1 + s.IntN(4), 1 + s.IntN(4), 2}, func() float64 { return 1.5 * (2*s.Float64() - 1) }))[0], f32)
	},
	"GridSample": func(s *sketch) {
		s.opset = pick(s, 16, 20)
		mode := pick(s, "bilinear", "nearest", "bicubic")
		if s.opset == 20 {
			mode = pick(s, "linear", "nearest", "cubic")
		}
		s.output(s.node("GridSample", 1, attrs{"mode": mode, "padding_mode": pick(s, "zeros", "border", "reflection"), "align_corners": s.IntN(2)}, s.input(f32, []int{2, 1 + s.IntN(3), 2 + s.IntN(5), 2 + s.IntN(5)}, s.normal), s.input(f32, []int{2, 1 + s.IntN(4), 1 + s.IntN(4), 2}, func() float64 { return 1.5 * (2*s.Float64() - 1) }))[0], f32)
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
		if s.opset >= 18 && s.rare() && transform != "tf_crop_and_resize" {
			policy := pick(s, "stretch", "not_larger", "not_smaller")
			a["keep_aspect_ratio_policy"], a["axes"] = policy, []int{2, 3}
			h, w := 1+s.IntN(12), 1+s.IntN(12)
			for a["antialias"] != nil && keepsSize(policy, dims[2:], []int{h, w}) {
				h, w = 1+s.IntN(12), 1+s.IntN(12)
			}
			s.output(s.node("Resize", 1, a, x, roi, "", s.ints(h, w))[0], f32)
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
	"DepthToSpace": func(s *sketch) {
		b := 2 + s.IntN(2)
		if s.coin() {
			s.output(s.node("DepthToSpace", 1, attrs{"blocksize": b, "mode": pick(s, "DCR", "CRD")}, s.input(f32, []int{1 + s.IntN(2), b * b * (1 + s.IntN(3)), 1 + s.IntN(4), 1 + s.IntN(4)}, s.normal))[0], f32)
			return
		}
		s.output(s.node("SpaceToDepth", 1, attrs{"blocksize": b}, s.input(f32, []int{1 + s.IntN(2), 1 + s.IntN(3), b * (1 + s.IntN(4)), b * (1 + s.IntN(4))}, s.normal))[0], f32)
	},
}

// keepsSize reports whether a Resize of an image of some sizes to others, with a
// scale for both that is below 1, leaves one of them as it is. ONNX's reference
// filters along that axis where it is to be free of aliases, as its text says;
// ONNX Runtime copies.
func keepsSize(policy string, from, to []int) bool {
	h, w := float64(to[0])/float64(from[0]), float64(to[1])/float64(from[1])
	scale := min(h, w)
	switch policy {
	case "stretch":
		return false
	case "not_smaller":
		scale = max(h, w)
	}
	same := func(n int) bool { return int(math.Floor(scale*float64(n)+0.5)) == n }
	return scale < 1 && (same(from[0]) || same(from[1]))
}
