package main

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/popefgen/popefgen/onnx"
)

// elementwiseSketches are operators on single elements.
var elementwiseSketches = map[string]func(*sketch){
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
}
