package main

import (
	"fmt"
	"math"

	"github.com/popefgen/popefgen/bench/peer"
	"github.com/popefgen/popefgen/bench/peer/popefgen"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/onnx/verify"
)

// sizeSketches are operators whose data decides how much they give, and what comes behind them.
var sizeSketches = map[string]func(*sketch){
	"NonMaxSuppression": func(s *sketch) {
		s.output(s.suppression(), onnx.Int64)
	},
	"NonMaxSuppression and Gather": func(s *sketch) {
		boxes := s.IntN(12) + 1
		picked := s.suppressionOf(1, 1+s.IntN(2), boxes)
		at := s.node("Squeeze", 1, nil, s.node("Slice", 1, nil, picked, s.ints(2), s.ints(3), s.ints(1))[0], s.ints(1))[0]
		found := s.node("Gather", 1, attrs{"axis": 0}, s.input(f32, []int{boxes, 3}, s.normal), at)[0]
		s.output(found, f32)
		s.output(s.node("Shape", 1, nil, found)[0], onnx.Int64)
	},
	"NonZero": func(s *sketch) {
		s.output(s.node("NonZero", 1, nil, s.input(pick(s, onnx.Float, onnx.Bool, onnx.Int32, onnx.Int64), s.dims(1+s.IntN(3), 5), s.sparse()))[0], onnx.Int64)
	},
	"Compress": func(s *sketch) {
		dims := s.dims(1+s.IntN(3), 5)
		a, n := attrs{}, volume(dims)
		if s.coin() {
			axis := s.axis(len(dims))
			a["axis"], n = axis, dims[(axis+len(dims))%len(dims)]
		}
		x := s.input(pick(s, numbers...), dims, s.whole)
		e := onnx.ElemType(s.inputs[0].Elem)
		s.output(s.node("Compress", 1, a, x, s.input(onnx.Bool, []int{1 + s.IntN(n)}, s.sparse()))[0], e)
	},
	"Unique": func(s *sketch) {
		dims := s.dims(1+s.IntN(2), 5)
		a := attrs{"sorted": s.IntN(2)}
		if s.coin() {
			a["axis"] = s.axis(len(dims))
		}
		x := s.input(pick(s, f32, onnx.Int64), dims, func() float64 { return float64(s.IntN(3)) })
		e := onnx.ElemType(s.inputs[0].Elem)
		for i, out := range s.node("Unique", 4, a, x) {
			s.output(out, e)
			if i == 0 {
				e = onnx.Int64
			}
		}
	},
	"TopK of data": func(s *sketch) {
		d := 1 + s.IntN(9)
		out := s.node("TopK", 2, attrs{"largest": s.IntN(2)}, s.input(f32, []int{1 + s.IntN(3), d}, s.normal), s.input(onnx.Int64, []int{1}, func() float64 { return float64(s.IntN(d + 1)) }))
		s.output(out[0], f32)
		s.output(out[1], onnx.Int64)
	},
	"Slice of data": func(s *sketch) {
		dims := s.dims(2, 6)
		place := func() float64 { return float64(s.IntN(15) - 7) }
		s.output(s.node("Slice", 1, nil, s.input(f32, dims, s.normal), s.input(onnx.Int64, []int{1}, place), s.input(onnx.Int64, []int{1}, place), s.ints(s.IntN(2)), s.ints(pick(s, 1, 1, 2, -1, -2)))[0], f32)
	},
	"behind NonZero": func(s *sketch) {
		// Rows of y that are picked, perhaps none, and what mixes them.
		n := 1 + s.IntN(6)
		at := s.node("Squeeze", 1, nil, s.node("NonZero", 1, nil, s.input(onnx.Bool, []int{n}, s.sparse()))[0], s.ints(0))[0]
		y := s.node("Gather", 1, attrs{"axis": 0}, s.input(f32, []int{n, 4}, s.normal), at)[0]
		rest := s.constant(f32, []int{1, 4}, s.data(f32, 4, s.normal))
		some := s.node("Concat", 1, attrs{"axis": 0}, rest, y)[0] // never empty
		switch s.IntN(10) {
		case 0:
			s.output(s.node("ReduceSum", 1, attrs{"keepdims": s.IntN(2)}, y, s.ints(s.IntN(2)))[0], f32)
		case 1:
			op, axis := pick(s, "ReduceMax", "ReduceMin", "ReduceMean", "ReduceL2", "ReduceLogSumExp"), s.IntN(2)
			if s.opset = 18; axis == 1 {
				some = y
			}
			s.output(s.node(op, 1, attrs{"keepdims": s.IntN(2)}, some, s.ints(axis))[0], f32)
		case 2:
			axis := s.IntN(2)
			if axis == 1 {
				some = y
			}
			s.output(s.node(pick(s, "ArgMax", "ArgMin"), 1, attrs{"axis": axis, "keepdims": s.IntN(2)}, some)[0], onnx.Int64)
		case 3:
			s.output(s.node("Softmax", 1, attrs{"axis": s.IntN(2)}, some)[0], f32)
		case 4:
			s.output(s.node("MatMul", 1, nil, y, s.input(f32, []int{4, 3}, s.normal))[0], f32)
		case 5:
			s.output(s.node("MatMul", 1, nil, s.node("Transpose", 1, attrs{"perm": []int{1, 0}}, y)[0], y)[0], f32)
		case 6:
			s.output(s.node("CumSum", 1, attrs{"reverse": s.IntN(2), "exclusive": s.IntN(2)}, y, s.scalar(onnx.Int64, float64(s.IntN(2))))[0], f32)
		case 7:
			s.output(s.node("Reshape", 1, nil, y, s.ints(pick(s, [][]int{{-1}, {-1, 2}, {-1, 2, 2}, {0, 2, 2}}...)...))[0], f32)
		case 8:
			s.output(s.node("Concat", 1, attrs{"axis": 0}, y, rest, y)[0], f32)
		case 9:
			s.output(s.node("ScatterElements", 1, attrs{"axis": 0}, s.input(f32, []int{n}, s.normal), at, s.node("Squeeze", 1, nil, s.node("Slice", 1, nil, y, s.ints(0), s.ints(1), s.ints(1))[0], s.ints(1))[0])[0], f32)
		}
	},
}

// sparse draws what is mostly zero, all of it, or nothing of it.
func (s *sketch) sparse() func() float64 {
	most := pick(s, 0.0, 0.3, 0.7, 1)
	return func() float64 {
		if s.Float64() < most {
			return 1 + float64(s.IntN(3))
		}
		return 0
	}
}

// suppression picks among random boxes.
func (s *sketch) suppression() string {
	return s.suppressionOf(1+s.IntN(2), 1+s.IntN(3), 1+s.IntN(20))
}

func (s *sketch) suppressionOf(batch, classes, boxes int) string {
	centred := s.IntN(2)
	// Corners on a grid: boxes that are equal, turned round, or have no area are among them.
	corner := func() float64 { return float64(s.IntN(7)) }
	b := s.input(f32, []int{batch, boxes, 4}, corner)
	// Scores that are equal, and some that are none.
	strange := s.rare()
	scores := s.input(f32, []int{batch, classes, boxes}, func() float64 {
		if strange && s.rare() {
			return math.NaN()
		}
		return float64(s.IntN(12)) / 10
	})
	in := []string{b, scores, s.ints(pick(s, 0, 1, 3, 100))}
	if s.coin() {
		in[2] = s.input(onnx.Int64, []int{1}, func() float64 { return float64(s.IntN(8)) })
	}
	in = append(in, s.floats(pick(s, 0, 0.3, 0.5, 1)))
	if strange || s.coin() {
		in = append(in, s.floats(pick(s, -1, 0.25, 0.55, 2)))
	}
	return s.node("NonMaxSuppression", 1, attrs{"center_point_box": centred}, in...)[0]
}

// differSizes is differ for a model of which data decides sizes.
func differSizes(c *peer.Case, r *compile.Result, want []peer.Tensor) (verdict string, err error) {
	if c.PopEF, err = r.Bytes(); err != nil {
		return "", err
	}
	c.Outputs = want
	own, err := popefgen.OpenSequence(c.PopEF, []peer.Case{*c}, 1)
	if err != nil {
		return "", err
	}
	defer own.Close()
	if err := own.Run(); err != nil {
		return "fails", fmt.Errorf("only popefgen ends the request: %w", err)
	}
	got, err := own.Outputs()
	if err != nil {
		return "", err
	}
	for i, w := range want {
		if len(got[i]) != len(w.Data) {
			return "size", fmt.Errorf("output %q has %d bytes, want the %d of %v", w.Name, len(got[i]), len(w.Data), w.Dims)
		}
		d, err := verify.Compare(graph.TensorType{DType: onnx.ElemType(w.Elem).DType(), Shape: w.Dims}, got[i], w.Data, verify.Tolerance{Rel: 1e-3, Abs: 2e-4})
		if err != nil {
			return "", fmt.Errorf("output %q: %w", w.Name, err)
		}
		if d.Bad > 0 {
			return "differs", fmt.Errorf("output %q: %s", w.Name, d)
		}
	}
	return "equal, counted", nil
}
