package main

import (
	"slices"

	"github.com/popefgen/popefgen/onnx"
)

// indexSketches are operators that read or write by index, and those that give indices.
var indexSketches = map[string]func(*sketch){
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
	"OneHot": func(s *sketch) {
		d := 2 + s.IntN(4)
		dims := s.dims(1+s.IntN(2), 4)
		s.output(s.node("OneHot", 1, attrs{"axis": s.axis(len(dims) + 1)}, s.input(pick(s, onnx.Int64, onnx.Int32), dims, func() float64 { return float64(s.IntN(2*d+2) - d - 1) }), s.ints(d), s.floats(0.5, 3))[0], f32)
	},
}
