package main

import "github.com/popefgen/popefgen/onnx"

// byteSketches are quantised operators and networks.
var byteSketches = map[string]func(*sketch){
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
}
