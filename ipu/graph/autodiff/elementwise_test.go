package autodiff_test

import (
	"fmt"

	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/graph"
)

// unaryRanges are the functions with the numbers that they are tried with.
var unaryRanges = []struct {
	fn        graph.UnaryFn
	low, high float64
}{
	{graph.Abs, -2, 2}, {graph.Neg, -2, 2}, {graph.Reciprocal, 0.5, 2}, {graph.Reciprocal, -2, -0.5}, {graph.Sqrt, 0.25, 4}, {graph.Exp, -2, 2}, {graph.Log, 0.25, 4},
	{graph.Erf, -2, 2}, {graph.Sin, -4, 4}, {graph.Cos, -4, 4}, {graph.Tan, -1, 1}, {graph.Asin, -0.75, 0.75}, {graph.Acos, -0.75, 0.75}, {graph.Atan, -3, 3},
	{graph.Sinh, -2, 2}, {graph.Cosh, -2, 2}, {graph.Tanh, -2, 2}, {graph.Asinh, -3, 3}, {graph.Acosh, 1.5, 3}, {graph.Atanh, -0.75, 0.75}, {graph.Sigmoid, -4, 4},
	{graph.Relu, -2, 2}, {graph.LeakyRelu, -2, 2}, {graph.HardSigmoid, -4, 4}, {graph.Softplus, -4, 4}, {graph.Softsign, -3, 3}, {graph.Elu, -2, 2},
	{graph.Selu, -2, 2}, {graph.Celu, -2, 2}, {graph.ThresholdedRelu, -2, 2}, {graph.HardSwish, -4, 4}, {graph.Swish, -3, 3}, {graph.Mish, -3, 3},
	{graph.Gelu, -3, 3}, {graph.GeluTanh, -3, 3},
}

// unaryCase draws a unary function, that of an entry of unaryRanges.
func (d *draw) unaryCase(i int) {
	f := unaryRanges[i]
	// No limit that α and β make lies on a number that is drawn.
	o := &graph.Unary{Fn: f.fn, Alpha: d.numbers(1, 0.25, 1.5)[0] + 0x1p-9, Beta: d.numbers(1, 0.25, 1.5)[0]}
	if f.fn == graph.HardSigmoid {
		o.Alpha, o.Beta = 0.25, 0.375
	}
	d.give(o, d.x(d.shape(2), f.low, f.high))
}

var binaryFunctions = []graph.BinaryFn{graph.Add, graph.Sub, graph.Mul, graph.Div, graph.Pow, graph.PRelu}

func (d *draw) binaryCase(fn graph.BinaryFn) {
	shape := d.shape(3)
	low := -2.0
	switch fn {
	case graph.Div:
		low = 0.5
	case graph.Pow:
		low = 0.25
	}
	a, b := d.x(d.broadcast(shape), low, 2), d.x(shape, low, 2)
	if d.yes("turned") && fn != graph.PRelu {
		a, b = b, a
	}
	d.give(&graph.Binary{Fn: fn}, a, b)
}

var reductions = []graph.ReduceFn{graph.ReduceSum, graph.ReduceMean, graph.ReduceProd, graph.ReduceL1, graph.ReduceL2, graph.ReduceLogSum,
	graph.ReduceLogSumExp, graph.ReduceSumSquare}

func (d *draw) reduceCase(fn graph.ReduceFn) {
	low := -2.0
	if fn == graph.ReduceLogSum || fn == graph.ReduceL2 {
		low = 0.5
	}
	d.give(&graph.Reduce{Fn: fn, Axes: d.axes(3), KeepDims: d.yes("keep")}, d.x(d.shape(3), low, 2))
}

// functionCases has a case for every function of Unary, Binary and Reduce.
func functionCases() map[string]func(*draw) {
	all := map[string]func(*draw){}
	for i, f := range unaryRanges {
		all[fmt.Sprintf("Unary/%s %v to %v", f.fn, f.low, f.high)] = func(d *draw) { d.unaryCase(i) }
	}
	for _, fn := range binaryFunctions {
		all["Binary/"+string(fn)] = func(d *draw) { d.binaryCase(fn) }
	}
	for _, fn := range reductions {
		all["Reduce/"+string(fn)] = func(d *draw) { d.reduceCase(fn) }
	}
	return all
}

var elementwiseCases = map[string]func(*draw){
	"Unary": func(d *draw) {
		d.unaryCase(int(d.size("function", 0, int64(len(unaryRanges)-1))))
	},
	"Binary": func(d *draw) { d.binaryCase(rapid.SampledFrom(binaryFunctions).Draw(d.T, "function")) },
	"Binary/one operand twice": func(d *draw) {
		x := d.x(d.shape(2), 0.5, 2)
		d.give(&graph.Binary{Fn: rapid.SampledFrom([]graph.BinaryFn{graph.Add, graph.Mul, graph.Pow}).Draw(d.T, "function")}, x, x)
	},
	"Binary/extreme": func(d *draw) {
		both := d.apart([]int64{2, 6})
		part := func(at int64) graph.TensorID {
			return d.node1(&graph.Slice{Start: []int64{at, 0}, Size: []int64{1, 6}, Step: []int64{1, 1}}, both)
		}
		d.give(&graph.Binary{Fn: rapid.SampledFrom([]graph.BinaryFn{graph.Max, graph.Min}).Draw(d.T, "function")}, part(0), part(1))
	},
	"Binary/whole exponent": func(d *draw) {
		shape := d.shape(2)
		d.give(&graph.Binary{Fn: graph.Pow}, d.x(shape, -2, 2), d.indices(d.broadcast(shape), 0, 3))
	},
	"Mod": func(d *draw) {
		shape := d.shape(2)
		a, b := d.x(shape, 3.25, 3.75), d.x(d.broadcast(shape), 1.3125, 1.5)
		d.give(&graph.Mod{Truncated: d.yes("truncated")}, a, b)
	},
	"Clip": func(d *draw) {
		in := []graph.TensorID{d.x(d.shape(2), -2, 2), graph.None, graph.None}
		limit := func(v float64) graph.TensorID {
			return d.input(rapid.SampledFrom([][]int64{{}, {1}, {1, 1}}).Draw(d.T, "shape"), []float64{v})
		}
		kind := d.size("limits", 0, 3)
		if kind != 0 {
			in[1] = limit(rapid.SampledFrom([]float64{-0.71875, 0.78125}).Draw(d.T, "min") - 0x1p-7)
		}
		if kind != 1 {
			in[2] = limit(rapid.SampledFrom([]float64{-0.78125, 0.71875}).Draw(d.T, "max") - 0x1p-7)
		}
		d.give(&graph.Clip{}, in...)
	},
	"Where": func(d *draw) {
		shape := d.shape(3)
		d.give(&graph.Where{}, d.bools(d.broadcast(shape)), d.x(d.broadcast(shape), -2, 2), d.x(shape, -2, 2))
	},
	"Cast": func(d *draw) { d.give(&graph.Cast{To: graph.F64}, d.x(d.shape(2), -2, 2)) },
}

var reduceCases = map[string]func(*draw){
	"Reduce/extreme": func(d *draw) {
		fn := rapid.SampledFrom([]graph.ReduceFn{graph.ReduceMax, graph.ReduceMin}).Draw(d.T, "function")
		d.give(&graph.Reduce{Fn: fn, Axes: d.axes(3), KeepDims: d.yes("keep")}, d.apart(d.shape(3)))
	},
	"Reduce/product with zeros": func(d *draw) {
		v := d.numbers(12, -2, 2)
		for range d.size("zeros", 1, 3) {
			v[d.size("where", 0, 11)] = 0
		}
		d.give(&graph.Reduce{Fn: graph.ReduceProd, Axes: d.axes(3)}, d.input([]int64{2, 3, 2}, v))
	},
	"Softmax": func(d *draw) {
		d.give(&graph.Softmax{Axis: d.size("axis", 0, 2), Log: d.yes("log")}, d.x(d.shape(3), -2, 2))
	},
	"Cumulate": func(d *draw) {
		o := &graph.Cumulate{Fn: graph.CumulateSum, Axis: d.size("axis", 0, 2), Exclusive: d.yes("exclusive"), Reverse: d.yes("reverse")}
		if d.yes("products") {
			o.Fn = graph.CumulateProd
		}
		v := d.numbers(12, -2, 2)
		if d.yes("zero") {
			v[d.size("where", 0, 11)] = 0
		}
		d.give(o, d.input([]int64{2, 3, 2}, v))
	},
}

// axes draws some of so many axes.
func (d *draw) axes(rank int64) []int64 {
	var axes []int64
	for a := range rank {
		if d.yes("axis") {
			axes = append(axes, a)
		}
	}
	return axes
}

var matrixCases = map[string]func(*draw){
	"Gemm": func(d *draw) {
		m, k, n := d.size("m", 1, 3), d.size("k", 1, 3), d.size("n", 1, 3)
		o := &graph.Gemm{TransA: d.yes("A"), TransB: d.yes("B"), Alpha: d.numbers(1, -2, 2)[0], Beta: d.numbers(1, -2, 2)[0]}
		a, b := []int64{m, k}, []int64{k, n}
		if o.TransA {
			a = []int64{k, m}
		}
		if o.TransB {
			b = []int64{n, k}
		}
		in := []graph.TensorID{d.x(a, -2, 2), d.x(b, -2, 2)}
		if d.yes("C") {
			in = append(in, d.x(d.broadcast([]int64{m, n}), -2, 2))
		}
		d.give(o, in...)
	},
	"Det": func(d *draw) {
		n := d.size("rows", 1, 4)
		d.give(&graph.Det{}, d.x(append(d.shape(int(d.size("batch axes", 0, 2))), n, n), -2, 2))
	},
	"MatMul": func(d *draw) {
		m, k, n := d.size("m", 1, 3), d.size("k", 1, 3), d.size("n", 1, 3)
		lead := d.shape(2)
		a, b := append(d.broadcast(lead), m, k), append(d.broadcast(lead), k, n)
		if d.yes("row") {
			a = []int64{k}
		}
		if d.yes("column") {
			b = []int64{k}
		}
		d.give(&graph.MatMul{}, d.x(a, -2, 2), d.x(b, -2, 2))
	},
}
