package main

import (
	"slices"

	"github.com/popefgen/popefgen/onnx"
)

// controlSketches are operators with graphs of their own.
var controlSketches = map[string]func(*sketch){
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
}
