package cpu

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

func init() {
	nearMisses = append(nearMisses,
		nearMiss{pass: "norm", what: "softmax", build: missSoftmax, off: []string{"two axes", "sum over another axis", "maximum over another axis",
			"sum of others", "maximum of others", "without axes of 1", "product", "2 to the power", "no difference", "limited maximum", "half", "sum of the difference"}},
		nearMiss{pass: "norm", what: "layer normalisations", build: missLayerNorm, off: []string{"fourth power", "square of the square", "cube",
			"divisor n-1", "ε outside", "mean over another axis", "variance over another axis", "first axis", "mean of others", "variance of others",
			"without root", "power -1", "two ε", "without axes of 1", "sum", "half", "absolute", "product"}},
		nearMiss{pass: "norm", what: "RMS normalisations", build: missRMSNorm, off: []string{"fourth power", "another axis", "first axis", "of others", "ε outside",
			"without root", "maximum", "two ε", "half"}},
		nearMiss{pass: "norm", what: "factors of normalisations", build: missScaledNorm, off: []string{"two factors", "factor after addend", "along another axis",
			"read twice", "larger", "quotient", "of itself"}, left: []string{"read twice"}},
		nearMiss{pass: "norm", what: "addends of layer normalisations", build: missShiftedNorm, off: []string{"two addends", "along another axis", "read twice",
			"fed", "larger", "RMS", "difference"}, left: []string{"read twice"}},
	)
}

const missWidth = 5

func missSoftmax(d *missDraw) []graph.TensorID {
	const n = missWidth
	if d.is("half") {
		d.dtype = graph.F16
	}
	x, other := d.input(2, n, n), d.input(2, n, n)
	axis := d.between(1, 2, "axis")
	across := 3 - axis
	axes, of := []int64{axis}, x
	if d.is("two axes") {
		axes = []int64{1, 2}
	}
	if d.is("maximum over another axis") {
		axes = []int64{across}
	}
	if d.is("maximum of others") {
		of = other
	}
	most := d.reduce(graph.ReduceMax, true, of, axes...)
	if d.is("limited maximum") {
		most = d.binary(graph.Max, most, d.number(1000))
	}
	shifted := d.binary(graph.Sub, x, most)
	if d.is("no difference") {
		shifted = d.binary(graph.Add, x, most)
	}
	var e graph.TensorID
	if d.is("2 to the power") {
		e = d.binary(graph.Pow, d.number(2), shifted)
	} else {
		e = d.unary(graph.Exp, shifted)
	}
	axes, of = []int64{axis}, e
	switch {
	case d.is("two axes"):
		axes = []int64{1, 2}
	case d.is("sum over another axis"):
		axes = []int64{across}
	case d.is("sum of others"):
		of = d.unary(graph.Exp, other)
	case d.is("sum of the difference"):
		of = shifted
	}
	var sum graph.TensorID
	if d.is("without axes of 1") { // what was summed over one axis goes along another
		sum = d.reduce(graph.ReduceSum, false, of, 1)
		sum = d.reshape(sum, 2, 1, n)
		if axis == 1 {
			sum = d.reshape(sum, 2, n, 1)
		}
	} else {
		sum = d.reduce(graph.ReduceSum, true, of, axes...)
	}
	if d.is("product") {
		return []graph.TensorID{d.binary(graph.Mul, e, sum)}
	}
	return []graph.TensorID{d.binary(graph.Div, e, sum)}
}

// normAxes returns the axes of a normalisation of [2,n,n].
func (d *missDraw) normAxes() []int64 {
	if d.yes("two axes") {
		return []int64{1, 2}
	}
	return []int64{2}
}

func missLayerNorm(d *missDraw) []graph.TensorID {
	const n = missWidth
	if d.is("half") {
		d.dtype = graph.F16
	}
	x, other := d.input(2, n, n), d.input(2, n, n)
	axes := d.normAxes()
	if d.is("first axis") || d.is("mean over another axis") || d.is("variance over another axis") || d.is("without axes of 1") {
		axes = []int64{2}
	}
	mean := func(x graph.TensorID, axes ...int64) graph.TensorID {
		return d.reduce(graph.ReduceMean, true, x, axes...)
	}
	over, of := axes, x
	if d.is("mean over another axis") || d.is("first axis") {
		over = []int64{1}
	}
	if d.is("mean of others") {
		of = other
	}
	middle := mean(of, over...)
	if d.is("without axes of 1") {
		middle = d.reshape(d.reduce(graph.ReduceMean, false, x, 2), 2, 1, n)
	}
	if d.is("sum") {
		middle = d.reduce(graph.ReduceSum, true, of, over...)
	}
	diff := d.binary(graph.Sub, x, middle)
	pow := func(x graph.TensorID, p float32) graph.TensorID {
		return d.node(&graph.Binary{Fn: graph.Pow}, x, d.number(p))
	}
	square := func(x graph.TensorID) graph.TensorID {
		if d.yes("power") {
			return pow(x, 2)
		}
		return d.binary(graph.Mul, x, x)
	}
	var q graph.TensorID
	switch {
	case d.is("fourth power"):
		q = pow(diff, 4)
	case d.is("cube"):
		q = d.unary(graph.Abs, pow(diff, 3))
	case d.is("square of the square"):
		q = square(square(diff))
	case d.is("variance of others"):
		q = square(other)
	case d.is("absolute"):
		q = d.unary(graph.Abs, diff)
	case d.is("product"):
		q = d.node(&graph.Binary{Fn: graph.Mul}, diff, other)
	default:
		q = square(diff)
	}
	over = axes
	if d.is("variance over another axis") || d.is("first axis") {
		over = []int64{1}
	}
	v := mean(q, over...)
	if d.is("divisor n-1") {
		v = d.binary(graph.Div, d.reduce(graph.ReduceSum, true, q, over...), d.number(float32(n*len(axes)-1)))
	}
	if d.is("two ε") {
		v = d.binary(graph.Add, v, d.constant([]float32{0.1, 0.9}, 2, 1, 1))
	} else if !d.is("ε outside") {
		v = d.binary(graph.Add, v, d.number(0.25))
	}
	s := v
	if !d.is("without root") {
		s = d.unary(graph.Sqrt, v)
	}
	if d.is("ε outside") {
		s = d.binary(graph.Add, s, d.number(0.25))
	}
	if d.is("power -1") {
		return []graph.TensorID{d.binary(graph.Mul, diff, pow(v, -1))}
	}
	if d.yes("inverse") {
		switch {
		case d.off != "":
			s = d.unary(graph.Reciprocal, s)
		case d.yes("reciprocal"):
			s = d.unary(graph.Reciprocal, s)
		case d.yes("power -1/2"):
			s = pow(v, -0.5)
		default:
			s = d.node(&graph.Binary{Fn: graph.Div}, d.number(1), s)
		}
		return []graph.TensorID{d.binary(graph.Mul, diff, s)}
	}
	return []graph.TensorID{d.binary(graph.Div, diff, s)}
}

func missRMSNorm(d *missDraw) []graph.TensorID {
	const n = missWidth
	if d.is("half") {
		d.dtype = graph.F16
	}
	x, of := d.input(2, n, n), graph.None
	if of = x; d.is("of others") {
		of = d.input(2, n, n)
	}
	axes := d.normAxes()
	if d.is("another axis") || d.is("first axis") {
		axes = []int64{1}
	}
	q := d.binary(graph.Mul, of, of)
	if d.is("fourth power") {
		q = d.binary(graph.Mul, q, q)
	}
	fn := graph.ReduceMean
	if d.is("maximum") {
		fn = graph.ReduceMax
	}
	v := d.reduce(fn, true, q, axes...)
	if d.is("first axis") {
		v = d.reduce(fn, true, q, 0, 1)
	}
	switch {
	case d.is("two ε"):
		v = d.binary(graph.Add, v, d.constant([]float32{0.1, 0.9}, 2, 1, 1))
	case !d.is("ε outside"):
		v = d.binary(graph.Add, v, d.number(0.25))
	}
	if !d.is("without root") {
		v = d.unary(graph.Sqrt, v)
	}
	if d.is("ε outside") {
		v = d.binary(graph.Add, v, d.number(0.25))
	}
	return []graph.TensorID{d.binary(graph.Div, x, v)}
}

// normalised returns a layer or RMS normalisation of x over its last axis, as
// one operator or as primitives.
func (d *missDraw) normalised(x graph.TensorID, rms bool) graph.TensorID {
	typ := d.b.Type(x)
	axis := int64(typ.Rank() - 1)
	ones := d.constant(slices.Repeat([]float32{1}, int(typ.Shape[axis])), typ.Shape[axis])
	if d.yes("one operator") {
		if rms {
			return d.node(&graph.RMSNorm{Axis: axis, Epsilon: 0.25}, x, ones)
		}
		return d.node(&graph.LayerNorm{Axis: axis, Epsilon: 0.25}, x, ones)
	}
	if !rms {
		x = d.binary(graph.Sub, x, d.reduce(graph.ReduceMean, true, x, axis))
	}
	v := d.binary(graph.Add, d.reduce(graph.ReduceMean, true, d.binary(graph.Mul, x, x), axis), d.number(0.25))
	return d.binary(graph.Div, x, d.unary(graph.Sqrt, v))
}

func missScaledNorm(d *missDraw) []graph.TensorID {
	const n = missWidth
	y := d.normalised(d.input(2, n, n), d.yes("RMS") && !d.is("factor after addend"))
	s := d.param(n)
	if d.yes("fed") {
		s = d.input(n)
	}
	out := []graph.TensorID{}
	switch {
	case d.is("two factors"):
		y = d.binary(graph.Mul, y, d.param(n))
	case d.is("factor after addend"):
		y = d.binary(graph.Add, y, d.param(n))
	case d.is("along another axis"):
		s = d.param(n, 1)
	case d.is("read twice"):
		out = append(out, y)
	case d.is("larger"):
		s = d.param(3, 1, 1, n)
	case d.is("quotient"):
		return []graph.TensorID{d.node(&graph.Binary{Fn: graph.Div}, y, d.positive(n))}
	case d.is("of itself"):
		s = y
	}
	return append(out, d.binary(graph.Mul, y, s))
}

func missShiftedNorm(d *missDraw) []graph.TensorID {
	const n = missWidth
	y := d.normalised(d.input(2, n, n), d.is("RMS"))
	if d.yes("factor") {
		y = d.binary(graph.Mul, y, d.param(n))
	}
	b := d.param(n)
	out := []graph.TensorID{}
	switch {
	case d.is("two addends"):
		y = d.binary(graph.Add, y, d.param(n))
	case d.is("along another axis"):
		b = d.param(n, 1)
	case d.is("read twice"):
		out = append(out, y)
	case d.is("fed"):
		b = d.input(n)
	case d.is("larger"):
		b = d.param(3, 1, 1, n)
	case d.is("difference"):
		return []graph.TensorID{d.node(&graph.Binary{Fn: graph.Sub}, d.param(n), y)}
	}
	return append(out, d.binary(graph.Add, y, b))
}
