package main

import (
	"fmt"
	"strings"

	"github.com/popefgen/popefgen/bench/report"
	"github.com/popefgen/popefgen/bench/synth"
	"github.com/popefgen/popefgen/internal/measure"
)

// shaped is an operator of one operand and others that more adds, whose result
// has the dimensions of out.
func shaped(name string, dims, out []int64, more func(m *synth.Model) []string, attrs ...synth.Attr) operator {
	title := fmt.Sprintf("%s, %s", name, by(dims))
	if attrs != nil {
		var all []string
		for _, a := range attrs {
			all = append(all, fmt.Sprintf("%s %v", a.Name, a.Value))
		}
		title = fmt.Sprintf("%s (%s)", title, strings.Join(all, ", "))
	}
	return operator{name: title, build: func(m *synth.Model) {
		in := []string{m.Input("x", dims...)}
		if more != nil {
			in = append(in, more(m)...)
		}
		m.Output(m.Node(name, in, attrs...), out...)
	}}
}

// by writes dimensions down.
func by(dims []int64) string {
	var s []string
	for _, d := range dims {
		s = append(s, fmt.Sprint(d))
	}
	return strings.Join(s, "×")
}

// same is an operator whose result has its operand's dimensions.
func same(name string, dims []int64, attrs ...synth.Attr) operator {
	return shaped(name, dims, dims, nil, attrs...)
}

// chain is a model of several operators in a row.
func chain(name string, dims, out []int64, build func(m *synth.Model, x string) string) operator {
	return operator{name: fmt.Sprintf("%s, %s", name, by(dims)), build: func(m *synth.Model) { m.Output(build(m, m.Input("x", dims...)), out...) }}
}

// transpose permutes dims.
func transpose(dims, perm []int64) operator {
	out := make([]int64, len(dims))
	for i, p := range perm {
		out[i] = dims[p]
	}
	return shaped("Transpose", dims, out, nil, attr("perm", perm))
}

// cast converts to a type and back.
func cast(name string, to int64) operator {
	return chain("Cast to "+name+" and back", matrixDims, matrixDims, func(m *synth.Model, x string) string {
		return m.Node("Cast", []string{m.Node("Cast", []string{x}, attr("to", to))}, attr("to", int64(1)))
	})
}

var matrixDims, imageDims = []int64{64, 1024}, []int64{1, 64, 56, 56}

// ints and weights are further operands.
func ints(v ...int64) func(m *synth.Model) []string {
	return func(m *synth.Model) []string { return []string{m.Ints(v...)} }
}

func weights(dims ...int64) func(m *synth.Model) []string {
	return func(m *synth.Model) []string { return []string{m.Weights(1, dims...)} }
}

// rows128 is some indices of rows.
var rows128 = func() []int64 {
	v := make([]int64, 128)
	for i := range v {
		v[i] = int64(i * 7919 % 1000)
	}
	return v
}()

// moves are operators that compute little of each element, or only move it.
var moves = []operator{
	shaped("Add", matrixDims, matrixDims, weights(64, 1024)),
	shaped("Mul", imageDims, imageDims, weights(1, 64, 1, 1)),
	shaped("Add", matrixDims, matrixDims, weights(1024)),
	shaped("Div", matrixDims, matrixDims, weights(64, 1)),
	same("Relu", imageDims), same("LeakyRelu", imageDims), same("HardSwish", imageDims), same("Sqrt", matrixDims), same("Log", matrixDims),
	same("Sin", matrixDims), same("Cos", matrixDims), same("Floor", matrixDims), same("Softplus", matrixDims),
	chain("Gelu of primitives", []int64{128, 768}, []int64{128, 768}, func(m *synth.Model, x string) string {
		e := m.Node("Erf", []string{m.Node("Mul", []string{x, m.Number(0.70710678)})})
		return m.Node("Mul", []string{m.Node("Mul", []string{x, m.Node("Add", []string{e, m.Number(1)})}), m.Number(0.5)})
	}),
	chain("Mul, Add, Relu, Mul, Add", imageDims, imageDims, func(m *synth.Model, x string) string {
		for i, op := range []string{"Mul", "Add", "Relu", "Mul", "Add"} {
			in := []string{x}
			if op != "Relu" {
				in = append(in, m.Weights(1, 1, imageDims[1]*int64(i%2)+int64(1-i%2), 1, 1))
			}
			x = m.Node(op, in)
		}
		return x
	}),
	chain("Pow 2", matrixDims, matrixDims, func(m *synth.Model, x string) string { return m.Node("Pow", []string{x, m.Number(2)}) }),
	chain("Abs, Pow 0.5", matrixDims, matrixDims, func(m *synth.Model, x string) string {
		return m.Node("Pow", []string{m.Node("Abs", []string{x}), m.Number(0.5)})
	}),
	chain("Abs, Pow 1.7", matrixDims, matrixDims, func(m *synth.Model, x string) string {
		return m.Node("Pow", []string{m.Node("Abs", []string{x}), m.Number(1.7)})
	}),
	chain("Greater, Where", matrixDims, matrixDims, func(m *synth.Model, x string) string {
		return m.Node("Where", []string{m.Node("Greater", []string{x, m.Number(0.1)}), x, m.Number(-1)})
	}),
	cast("float16", 10), cast("bfloat16", 16), cast("int32", 6), cast("int64", 7), cast("int8", 3), cast("bool", 9),
	shaped("ReduceMean", []int64{1, 256, 14, 14}, []int64{1, 256, 1, 1}, nil, attr("axes", []int64{2, 3})),
	shaped("ReduceMean", []int64{1, 196, 256}, []int64{1, 256}, nil, attr("axes", []int64{1}), attr("keepdims", int64(0))),
	shaped("ReduceMean", []int64{8, 128, 256}, []int64{8, 128}, nil, attr("axes", []int64{-1}), attr("keepdims", int64(0))),
	shaped("ReduceMean", []int64{4096, 8}, []int64{4096}, nil, attr("axes", []int64{-1}), attr("keepdims", int64(0))),
	shaped("ReduceMax", matrixDims, []int64{64}, nil, attr("axes", []int64{1}), attr("keepdims", int64(0))),
	shaped("ReduceMax", matrixDims, []int64{1024}, nil, attr("axes", []int64{0}), attr("keepdims", int64(0))),
	shaped("ReduceMax", []int64{8, 64, 128}, []int64{8, 128}, nil, attr("axes", []int64{1}), attr("keepdims", int64(0))),
	shaped("ReduceL2", matrixDims, []int64{64}, nil, attr("axes", []int64{1}), attr("keepdims", int64(0))),
	shaped("GlobalAveragePool", []int64{1, 512, 7, 7}, []int64{1, 512, 1, 1}, nil),
	chain("ArgMax", []int64{1, 21, 64, 64}, []int64{1, 1, 64, 64}, func(m *synth.Model, x string) string {
		return m.Node("Cast", []string{m.Node("ArgMax", []string{x}, attr("axis", int64(1)))}, attr("to", int64(1)))
	}),
	operator{name: "TopK 100 of 8400", build: func(m *synth.Model) {
		m.Output(m.Nodes("TopK", []string{m.Input("x", 1, 8400), m.Ints(100)}, 2)[0], 1, 100)
	}},
	same("Softmax", []int64{8, 21, 400}, attr("axis", int64(1))), same("LogSoftmax", matrixDims, attr("axis", int64(1))),
	transpose([]int64{512, 768}, []int64{1, 0}), transpose([]int64{1, 128, 12, 64}, []int64{0, 2, 1, 3}), transpose([]int64{1, 128, 12, 64}, []int64{0, 2, 3, 1}),
	transpose([]int64{1, 56, 56, 64}, []int64{0, 3, 1, 2}), transpose([]int64{1, 64, 56, 56}, []int64{0, 2, 3, 1}), transpose([]int64{1, 224, 224, 3}, []int64{0, 3, 1, 2}),
	transpose([]int64{1, 3, 224, 224}, []int64{0, 2, 3, 1}), transpose([]int64{1, 2, 58, 28, 28}, []int64{0, 2, 1, 3, 4}),
	shaped("Gather", []int64{1000, 256}, []int64{128, 256}, ints(rows128...)),
	shaped("Gather", []int64{64, 1000}, []int64{64, 128}, ints(rows128...), attr("axis", int64(1))),
	chain("Concat with itself", imageDims, []int64{1, 128, 56, 56}, func(m *synth.Model, x string) string {
		return m.Node("Concat", []string{m.Node("Neg", []string{x}), x}, attr("axis", int64(1)))
	}),
	chain("Concat with itself, last axis", []int64{512, 64}, []int64{512, 128}, func(m *synth.Model, x string) string {
		return m.Node("Concat", []string{x, x}, attr("axis", int64(1)))
	}),
	chain("Slice of every second", imageDims, []int64{1, 64, 28, 28}, func(m *synth.Model, x string) string {
		return m.Node("Slice", []string{x, m.Ints(0, 0), m.Ints(56, 56), m.Ints(2, 3), m.Ints(2, 2)})
	}),
	chain("Pad", imageDims, []int64{1, 64, 58, 58}, func(m *synth.Model, x string) string {
		return m.Node("Pad", []string{x, m.Ints(0, 0, 1, 1, 0, 0, 1, 1)})
	}),
	chain("Pad, reflect", imageDims, []int64{1, 64, 58, 58}, func(m *synth.Model, x string) string {
		return m.Node("Pad", []string{x, m.Ints(0, 0, 1, 1, 0, 0, 1, 1)}, attr("mode", "reflect"))
	}),
	resize("linear", 28, 56), resize("nearest", 28, 56), resize("cubic", 28, 56), resize("linear", 56, 40),
	chain("CumSum", matrixDims, matrixDims, func(m *synth.Model, x string) string { return m.Node("CumSum", []string{x, m.Ints(1)}) }),
	chain("Expand", []int64{64, 1, 56}, []int64{64, 56, 56}, func(m *synth.Model, x string) string {
		return m.Node("Expand", []string{x, m.Ints(64, 56, 56)})
	}),
	chain("Tile", []int64{1, 64, 256}, []int64{4, 64, 512}, func(m *synth.Model, x string) string {
		return m.Node("Tile", []string{x, m.Ints(4, 1, 2)})
	}),
	shaped("DepthToSpace", []int64{1, 64, 56, 56}, []int64{1, 16, 112, 112}, nil, attr("blocksize", int64(2))),
	shaped("SpaceToDepth", []int64{1, 16, 112, 112}, []int64{1, 64, 56, 56}, nil, attr("blocksize", int64(2))),
	operator{name: "InstanceNormalization, 1×64×56×56", build: func(m *synth.Model) {
		m.Output(m.Node("InstanceNormalization", []string{m.Input("x", imageDims...), m.Weights(1, 64), m.Weights(1, 64)}), imageDims...)
	}},
	shaped("MaxPool", imageDims, []int64{1, 64, 28, 28}, nil, attr("kernel_shape", []int64{2, 2}), attr("strides", []int64{2, 2})),
	shaped("MaxPool", imageDims, []int64{1, 64, 28, 28}, nil, attr("kernel_shape", []int64{3, 3}), attr("strides", []int64{2, 2}), attr("pads", []int64{1, 1, 1, 1})),
	shaped("AveragePool", imageDims, []int64{1, 64, 28, 28}, nil, attr("kernel_shape", []int64{2, 2}), attr("strides", []int64{2, 2})),
	shaped("AveragePool", []int64{1, 64, 28, 28}, []int64{1, 64, 28, 28}, nil, attr("kernel_shape", []int64{3, 3}), attr("pads", []int64{1, 1, 1, 1})),
	shaped("AveragePool", []int64{1, 64, 28, 28}, []int64{1, 64, 28, 28}, nil, attr("kernel_shape", []int64{3, 3}), attr("pads", []int64{1, 1, 1, 1}), attr("count_include_pad", int64(1))),
	shaped("MaxPool", []int64{1, 64, 14, 14}, []int64{1, 64, 7, 7}, nil, attr("kernel_shape", []int64{2, 2}), attr("strides", []int64{2, 2})),
	shaped("MaxPool", []int64{1, 256, 13, 13}, []int64{1, 256, 13, 13}, nil, attr("kernel_shape", []int64{5, 5}), attr("pads", []int64{2, 2, 2, 2})),
	shaped("MaxPool", []int64{1, 64, 1024}, []int64{1, 64, 512}, nil, attr("kernel_shape", []int64{2}), attr("strides", []int64{2})),
	shaped("MaxPool", []int64{1, 64, 54, 54}, []int64{1, 64, 18, 18}, nil, attr("kernel_shape", []int64{3, 3}), attr("strides", []int64{3, 3})),
	shaped("ReduceSum", []int64{1, 64, 56, 56}, []int64{1, 1, 56, 56}, ints(1)),
	shaped("ReduceMean", []int64{8, 64, 28, 28}, []int64{64}, nil, attr("axes", []int64{0, 2, 3}), attr("keepdims", int64(0))),
	shaped("ReduceMean", []int64{1, 3, 224, 224}, []int64{1, 3, 1, 1}, nil, attr("axes", []int64{2, 3})),
	chain("Clip", imageDims, imageDims, func(m *synth.Model, x string) string { return m.Node("Clip", []string{x, m.Number(0), m.Number(6)}) }),
	shaped("PRelu", imageDims, imageDims, weights(64, 1, 1)),
	shaped("Max", matrixDims, matrixDims, weights(64, 1024)),
	shaped("Add", []int64{64, 1}, []int64{64, 1024}, weights(1, 1024)),
	chain("Sub of a number", matrixDims, matrixDims, func(m *synth.Model, x string) string { return m.Node("Sub", []string{x, m.Number(0.5)}) }),
	same("Elu", matrixDims), same("Selu", matrixDims), same("Softsign", matrixDims), same("Round", matrixDims), same("Sign", matrixDims), same("Reciprocal", matrixDims),
	same("Asin", matrixDims), same("Atan", matrixDims), same("Sinh", matrixDims), same("Hardmax", matrixDims),
	same("LRN", imageDims, attr("size", int64(5))),
	chain("CumSum, first axis", matrixDims, matrixDims, func(m *synth.Model, x string) string { return m.Node("CumSum", []string{x, m.Ints(0)}) }),
	chain("Trilu", []int64{256, 256}, []int64{256, 256}, func(m *synth.Model, x string) string { return m.Node("Trilu", []string{x}) }),
	resize("nearest", 28, 112),
}

// resize makes planes of another size.
func resize(mode string, from, to int64) operator {
	return chain(fmt.Sprintf("Resize to %d×%d, %s", to, to, mode), []int64{1, 64, from, from}, []int64{1, 64, to, to}, func(m *synth.Model, x string) string {
		return m.Node("Resize", []string{x, "", "", m.Ints(1, 64, to, to)}, attr("mode", mode))
	})
}

// moveResult is what was measured of a simple operator on one thread.
type moveResult struct {
	operator
	runs []outcome
}

// measureMoves lets the engines run the simple operators with one thread.
func measureMoves(cfg measure.Config, engines []entrant, only string) ([]*moveResult, error) {
	var out []*moveResult
	for _, o := range moves {
		if !strings.Contains(o.name, only) {
			continue
		}
		c, err := synthetic(o.name, o.build)
		if err != nil {
			return nil, err
		}
		r := &moveResult{operator: o}
		if r.runs, err = contest(cfg, c, rounding, 1, engines); err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

func moveTable(results []*moveResult) string {
	t := report.NewTable("operator", "popefgen", "ONNX Runtime", "ratio")
	for _, r := range results {
		a, b := r.runs[ours].Median(), r.runs[ort].Median()
		t.Row(r.name, report.Time(a), report.Time(b), report.Ratio(a/b))
	}
	return t.String()
}
