package main

import "github.com/popefgen/popefgen/onnx"

// reduceSketches are reductions, norms and what is made of them.
var reduceSketches = map[string]func(*sketch){
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
	"MeanVarianceNormalization": func(s *sketch) {
		a := attrs{}
		if s.coin() {
			a["axes"] = s.Perm(4)[:1+s.IntN(3)]
		}
		s.output(s.node("MeanVarianceNormalization", 1, a, s.input(f32, s.list(4, 2, 5), s.normal))[0], f32)
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
}
