package cpu

import (
	"math"

	"github.com/popefgen/popefgen/ipu/graph"
)

func init() {
	nearMisses = append(nearMisses,
		nearMiss{pass: "activation", what: "gelu", build: missGelu, off: []string{"of others", "times others", "a third", "one and a tenth", "another width", "difference",
			"hyperbolic", "twice", "several", "half", "without one", "quotient"}},
		nearMiss{pass: "activation", what: "gelu by tanh", build: missGeluTanh, off: []string{"fourth power", "cube of others", "another coefficient", "another width", "a third",
			"difference", "times others", "square", "plus others", "half"}},
		nearMiss{pass: "activation", what: "swish", build: missSwish, off: []string{"of others", "times two", "squared", "sum", "quotient", "several", "hyperbolic", "plus"}},
		nearMiss{pass: "activation", what: "hard-swish", build: missHardSwish, off: []string{"of others", "plus two", "up to five", "from minus one", "a fifth", "no limit", "others limited",
			"fed limit", "another function", "another slope"}},
		nearMiss{pass: "activation", what: "hard-sigmoid", build: missHardSigmoid, off: []string{"plus two", "up to five", "from minus one", "a fifth", "no limit", "read twice", "reversed"}},
		nearMiss{pass: "activation", what: "mish", build: missMish, off: []string{"of others", "times two", "sum", "another function", "exponential"}},
	)
}

func missGelu(d *missDraw) []graph.TensorID {
	if d.is("half") {
		d.dtype = graph.F16
	}
	x, other := d.input(4, 4), d.input(4, 4)
	half, one, width := d.number(0.5), d.number(1), d.number(math.Sqrt2)
	inner, outer := x, x
	fn := graph.Erf
	switch {
	case d.is("of others"):
		inner = other
	case d.is("times others"):
		outer = other
	case d.is("a third"):
		half = d.number(1. / 3)
	case d.is("one and a tenth"):
		one = d.number(1.1)
	case d.is("another width"):
		width = d.number(1.5)
	case d.is("several"):
		half = d.constant([]float32{0.5, 0.5, 0.4, 0.5}, 4)
	case d.is("hyperbolic"):
		fn = graph.Tanh
	}
	e := d.unary(fn, d.node(&graph.Binary{Fn: graph.Div}, inner, width))
	switch {
	case d.is("difference"):
		e = d.node(&graph.Binary{Fn: graph.Sub}, one, e)
	case d.is("without one"):
	default:
		e = d.binary(graph.Add, e, one)
	}
	if d.is("quotient") {
		return []graph.TensorID{d.node(&graph.Binary{Fn: graph.Div}, d.binary(graph.Mul, x, half), d.binary(graph.Add, e, one))}
	}
	var y graph.TensorID
	switch d.rand.IntN(3) {
	case 0:
		y = d.binary(graph.Mul, d.binary(graph.Mul, outer, half), e)
	case 1:
		y = d.binary(graph.Mul, d.binary(graph.Mul, outer, e), half)
	default:
		y = d.binary(graph.Mul, d.binary(graph.Mul, half, e), outer)
	}
	if d.is("twice") {
		y = d.binary(graph.Mul, y, x)
	}
	return []graph.TensorID{y}
}

func missGeluTanh(d *missDraw) []graph.TensorID {
	if d.is("half") {
		d.dtype = graph.F16
	}
	x, other := d.input(4, 4), d.input(4, 4)
	c, width, half := d.number(0.044715), d.number(0.7978845608), d.number(0.5)
	of, plus, outer := x, x, x
	power := float32(3)
	switch {
	case d.is("fourth power"):
		power = 4
	case d.is("square"):
		power = 2
	case d.is("cube of others"):
		of = other
	case d.is("another coefficient"):
		c = d.number(0.05)
	case d.is("another width"):
		width = d.number(0.75)
	case d.is("a third"):
		half = d.number(1. / 3)
	case d.is("times others"):
		outer = other
	case d.is("plus others"):
		plus = other
	}
	cube := d.node(&graph.Binary{Fn: graph.Pow}, of, d.number(power))
	if power == 3 && d.yes("products") {
		cube = d.binary(graph.Mul, d.binary(graph.Mul, of, of), of)
	}
	s := d.binary(graph.Add, plus, d.binary(graph.Mul, cube, c))
	if power == 3 && d.off == "" && d.yes("factored") {
		q := d.binary(graph.Mul, d.binary(graph.Mul, of, of), c)
		s = d.binary(graph.Mul, plus, d.binary(graph.Add, d.number(1), q))
	}
	u := d.unary(graph.Tanh, d.binary(graph.Mul, s, width))
	if d.is("difference") {
		u = d.node(&graph.Binary{Fn: graph.Sub}, d.number(1), u)
	} else {
		u = d.binary(graph.Add, u, d.number(1))
	}
	return []graph.TensorID{d.binary(graph.Mul, d.binary(graph.Mul, outer, half), u)}
}

func missSwish(d *missDraw) []graph.TensorID {
	x, other := d.input(4, 4), d.input(4, 4)
	of := x
	if d.is("of others") {
		of = other
	}
	if d.yes("β") {
		of = d.binary(graph.Mul, of, d.number(1.702))
	}
	switch {
	case d.is("several"):
		of = d.binary(graph.Mul, of, d.constant([]float32{1, 2, 1, 1}, 4))
	case d.is("plus"):
		of = d.binary(graph.Add, of, d.number(0.25))
	}
	fn := graph.Sigmoid
	if d.is("hyperbolic") {
		fn = graph.Tanh
	}
	s := d.unary(fn, of)
	switch {
	case d.is("times two"):
		s = d.binary(graph.Mul, s, d.number(2))
	case d.is("squared"):
		s = d.binary(graph.Mul, s, x)
	case d.is("sum"):
		return []graph.TensorID{d.binary(graph.Add, x, s)}
	case d.is("quotient"):
		return []graph.TensorID{d.node(&graph.Binary{Fn: graph.Div}, x, s)}
	}
	return []graph.TensorID{d.binary(graph.Mul, x, s)}
}

// sixfold is six times a hard sigmoid of x, with what the steps change.
func (d *missDraw) sixfold(x graph.TensorID) graph.TensorID {
	three, low, high := d.number(3), d.number(0), d.number(6)
	switch {
	case d.is("plus two"):
		three = d.number(2)
	case d.is("up to five"):
		high = d.number(5)
	case d.is("from minus one"):
		low = d.number(-1)
	case d.is("no limit"):
		if low = graph.None; d.yes("above") {
			low, high = d.number(0), graph.None
		}
	}
	return d.node(&graph.Clip{}, d.binary(graph.Add, x, three), low, high)
}

// wide is an input with numbers from -8 to 8, beyond the limits of hard
// functions.
func (d *missDraw) wide() graph.TensorID {
	v := d.some(4, 4)
	for i := range v {
		v[i] *= 4
	}
	return d.fed(v, 4, 4)
}

func missHardSwish(d *missDraw) []graph.TensorID {
	x, other := d.wide(), d.wide()
	of := x
	if d.is("of others") {
		of = other
	}
	var c graph.TensorID
	switch {
	case d.is("others limited"):
		c = d.sixfold(other)
	case d.is("fed limit"):
		c = d.node(&graph.Clip{}, d.binary(graph.Add, x, d.number(3)), d.number(0), d.fed([]float32{5}))
	case d.is("another slope"):
		c = d.node(&graph.Unary{Fn: graph.HardSigmoid, Alpha: 0.2, Beta: 0.5}, x)
		return []graph.TensorID{d.binary(graph.Mul, x, c)}
	case d.is("another function"):
		c = d.node(&graph.Unary{Fn: graph.HardSigmoid, Alpha: 1. / 6, Beta: 0.4}, x)
		return []graph.TensorID{d.binary(graph.Mul, x, c)}
	case d.off == "" && d.yes("hard sigmoid"):
		return []graph.TensorID{d.binary(graph.Mul, x, d.node(&graph.Unary{Fn: graph.HardSigmoid, Alpha: 1. / 6, Beta: 0.5}, x))}
	default:
		c = d.sixfold(x)
	}
	by := d.number(6)
	if d.is("a fifth") {
		by = d.number(5)
	}
	if d.yes("late") {
		return []graph.TensorID{d.node(&graph.Binary{Fn: graph.Div}, d.binary(graph.Mul, of, c), by)}
	}
	return []graph.TensorID{d.binary(graph.Mul, of, d.node(&graph.Binary{Fn: graph.Div}, c, by))}
}

func missHardSigmoid(d *missDraw) []graph.TensorID {
	c := d.sixfold(d.wide())
	var out []graph.TensorID
	by := d.number(6)
	switch {
	case d.is("a fifth"):
		by = d.number(5)
	case d.is("read twice"):
		out = append(out, c)
	case d.is("reversed"):
		return []graph.TensorID{d.node(&graph.Binary{Fn: graph.Div}, by, d.binary(graph.Add, c, d.number(1)))}
	}
	return append(out, d.node(&graph.Binary{Fn: graph.Div}, c, by))
}

func missMish(d *missDraw) []graph.TensorID {
	x, other := d.wide(), d.wide()
	of, fn := x, graph.Softplus
	switch {
	case d.is("of others"):
		of = other
	case d.is("another function"):
		fn = graph.Softsign
	case d.is("exponential"):
		fn = graph.Exp
	}
	u := d.unary(graph.Tanh, d.unary(fn, of))
	if d.is("times two") {
		u = d.binary(graph.Mul, u, d.number(2))
	}
	if d.is("sum") {
		return []graph.TensorID{d.binary(graph.Add, x, u)}
	}
	return []graph.TensorID{d.binary(graph.Mul, x, u)}
}
