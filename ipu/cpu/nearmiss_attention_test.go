package cpu

import (
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

func init() {
	nearMisses = append(nearMisses, nearMiss{pass: "attention", what: "attention", build: missAttention, off: []string{
		"factor of V", "factor of probabilities", "softmax over rows", "logarithm", "factor after bias", "factor after mask", "factor by column", "factor by row", "bias of a column",
		"larger bias", "bias of itself", "difference", "weak mask", "weak triangle", "other triangle", "triangle with holes", "shifted triangle", "all hidden", "all hidden by a triangle",
		"hidden by infinity", "probabilities read twice", "scores read twice", "probabilities transposed", "few rows", "keys backwards", "values backwards", "zero in place of numbers",
		"one in place of NaN", "heads mixed", "values of other heads", "half", "two triangles", "triangle of heads", "maximum", "rows merged", "bias across a reshape", "mask above the scores", "hidden twice", "hidden twice by a triangle"}})
}

func missAttention(d *missDraw) []graph.TensorID {
	if d.is("half") {
		d.dtype = graph.F16
	}
	heads, size := int64(2), d.between(2, 5, "size")
	rows := d.between(4, 6, "rows")
	if d.is("few rows") {
		rows = 3
	}
	cols := rows
	// Q, K and V lie side by side before they are divided into heads.
	all := d.reshape(d.input(rows, 3*heads*size), rows, 3, heads, size)
	var in [3]graph.TensorID
	for i := range in {
		x := d.reshape(d.part(all, 1, int64(i), 3), rows, heads, size)
		if d.is("heads mixed") && i == 1 {
			x = d.reshape(x, rows, size, heads)
			in[i] = d.transpose(x, 2, 0, 1)
			continue
		}
		in[i] = d.transpose(x, 1, 0, 2)
	}
	q, k, v := in[0], in[1], in[2]
	backwards := func(x graph.TensorID) graph.TensorID {
		return d.node(&graph.Slice{Start: []int64{0, rows - 1, 0}, Size: []int64{heads, rows, size}, Step: []int64{1, -1, 1}}, x)
	}
	switch {
	case d.is("keys backwards"):
		k = backwards(k)
	case d.is("values backwards"):
		v = backwards(v)
	case d.is("factor of V"):
		v = d.binary(graph.Mul, v, d.number(3))
	case d.is("factor by column"):
		q = d.binary(graph.Mul, q, d.param(size))
	case d.is("factor by row"):
		k = d.binary(graph.Mul, k, d.param(rows, 1))
	case d.is("values of other heads"):
		v = d.node(&graph.Slice{Start: []int64{1, 0, 0}, Size: []int64{heads, rows, size}, Step: []int64{-1, 1, 1}}, v)
	}
	if d.off == "" && d.yes("factor of Q") {
		q = d.binary(graph.Mul, q, d.number(0.7))
	}
	s := d.node(&graph.MatMul{}, q, d.transpose(k, 0, 2, 1))
	raw := s
	var out []graph.TensorID
	if d.yes("scaled") {
		s = d.node(&graph.Binary{Fn: graph.Div}, s, d.number(1.5))
	}
	n := int(rows * cols)
	triangle := func(hidden float32, hides func(i, j int) bool) graph.TensorID {
		t := make([]float32, n)
		for i := range int(rows) {
			for j := range int(cols) {
				if hides(i, j) {
					t[i*int(cols)+j] = hidden
				}
			}
		}
		return d.constant(t, rows, cols)
	}
	after := func(i, j int) bool { return j > i }
	mask := func() graph.TensorID { // some of each row are hidden
		m := make([]byte, n)
		for i := range m {
			if i%int(cols) != 1 && d.rand.IntN(2) == 0 {
				m[i] = 1
			}
		}
		return d.b.AddConst("mask", graph.TensorType{DType: graph.Bool, Shape: []int64{rows, cols}}, m)
	}
	hide := func(cond graph.TensorID, hidden float32) { s = d.node(&graph.Where{}, cond, d.number(hidden), s) }
	switch {
	case d.is("factor after bias"):
		s = d.binary(graph.Mul, d.binary(graph.Add, s, d.param(rows, cols)), d.number(2))
	case d.is("factor after mask"):
		hide(mask(), -1e9)
		s = d.binary(graph.Mul, s, d.number(1e-9))
	case d.is("bias of a column"):
		s = d.binary(graph.Add, s, d.param(rows, 1))
		s = d.binary(graph.Add, s, d.param(heads, 1, cols))
	case d.is("larger bias"):
		s = d.binary(graph.Add, s, d.input(3, 1, 1, cols))
		v = d.node(&graph.Expand{Shape: []int64{3, heads, rows, size}}, v)
	case d.is("bias of itself"):
		s = d.binary(graph.Add, s, raw)
	case d.is("difference"):
		s = d.node(&graph.Binary{Fn: graph.Sub}, d.param(rows, cols), s)
	case d.is("maximum"):
		s = d.binary(graph.Max, s, d.param(rows, cols))
	case d.is("weak mask"):
		hide(mask(), []float32{-1, 0, 7}[d.rand.IntN(3)])
	case d.is("weak triangle"):
		s = d.binary(graph.Add, s, triangle(-3, after))
	case d.is("other triangle"):
		s = d.binary(graph.Add, s, triangle(-1e9, func(i, j int) bool { return j < i }))
	case d.is("triangle with holes"):
		s = d.binary(graph.Add, s, triangle(-1e9, func(i, j int) bool { return j > i && (i != 1 || j != 3) }))
	case d.is("shifted triangle"):
		s = d.binary(graph.Add, s, triangle(-1e9, func(i, j int) bool { return j > i+1 }))
	case d.is("two triangles"):
		hidden := []float32{-1e9, float32(math.Inf(-1))}[d.rand.IntN(2)]
		for by := range 2 {
			s = d.binary(graph.Add, s, triangle(hidden, func(i, j int) bool { return j > i+by }))
		}
		if d.yes("the other way") {
			s = d.binary(graph.Add, raw, triangle(hidden, func(i, j int) bool { return j > i+1 }))
			s = d.binary(graph.Add, s, triangle(hidden, after))
		}
	case d.is("mask above the scores"):
		s = d.binary(graph.Add, s, d.fed([]float32{-1e5}, 1, 1))
		hide(mask(), -2e4)
	case d.is("one in place of NaN"):
		m := make([]byte, n)
		for j := range cols {
			m[cols+j] = 1
		}
		hide(d.b.AddConst("mask", graph.TensorType{DType: graph.Bool, Shape: []int64{rows, cols}}, m), float32(math.Inf(-1)))
	case d.is("triangle of heads"):
		t := make([]float32, 2*n)
		for i := range int(rows) {
			for j := i + 1; j < int(cols); j++ {
				t[i*int(cols)+j] = -1e9
			}
		}
		s = d.binary(graph.Add, s, d.constant(t, heads, rows, cols))
	case d.is("all hidden"), d.is("all hidden by a triangle"):
		// Rows of which nothing is shown are means, however large their scores
		// were.
		big := d.some(heads, rows, cols)
		for i := range big {
			big[i] *= 200
		}
		s = d.binary(graph.Add, s, d.fed(big, heads, rows, cols))
		m := slices.Repeat([]byte{0}, n)
		for j := range cols {
			m[cols+j] = 1
		}
		if d.is("all hidden by a triangle") {
			for i := range rows {
				for j := range cols {
					m[i*cols+j] = 0
					if j >= i {
						m[i*cols+j] = 1
					}
				}
			}
		}
		hide(d.b.AddConst("mask", graph.TensorType{DType: graph.Bool, Shape: []int64{rows, cols}}, m), []float32{-1e9, -math.MaxFloat32}[d.rand.IntN(2)])
	case d.is("hidden twice"), d.is("hidden twice by a triangle"):
		// Of a row that is hidden as a whole, what is hidden once counts.
		const hidden = -math.MaxFloat32 // of which no score changes a digit, in float64 neither
		late := make([]float32, n)
		for j := range cols {
			if d.rand.IntN(3) > 0 {
				late[cols+j], late[2*cols+j] = hidden, hidden
			}
		}
		late[cols], late[cols+1], late[2*cols], late[2*cols+1], late[2*cols+2] = hidden, hidden, hidden, hidden, hidden
		if d.is("hidden twice by a triangle") {
			s = d.binary(graph.Add, s, triangle(hidden, after))
		} else {
			hide(mask(), hidden)
		}
		s = d.binary(graph.Add, s, d.fed(late, rows, cols))
	case d.is("hidden by infinity"):
		hide(mask(), float32(math.Inf(-1)))
	case d.is("scores read twice"):
		out = append(out, s)
	case d.is("rows merged"):
		s = d.reshape(s, heads*rows, cols)
	case d.is("bias across a reshape"):
		s = d.binary(graph.Add, s, d.param(heads, 1, cols))
		s = d.reshape(s, 1, heads, rows, cols)
		s = d.binary(graph.Add, s, d.param(rows, cols))
		s = d.reshape(s, heads, rows, cols)
	case d.off == "":
		switch d.rand.IntN(5) {
		case 0:
			s = d.binary(graph.Add, s, d.param(rows, cols))
		case 1:
			s = d.binary(graph.Add, s, triangle(-1e9, after))
		case 2:
			hide(mask(), -1e9)
		case 3:
			s = d.binary(graph.Add, s, d.input(heads, 1, cols))
		}
	}
	rank := int64(d.b.Type(s).Rank())
	soft := &graph.Softmax{Axis: rank - 1}
	if d.is("softmax over rows") {
		soft.Axis = rank - 2
	}
	soft.Log = d.is("logarithm")
	p := d.node(soft, s)
	switch {
	case d.is("factor of probabilities"):
		p = d.binary(graph.Mul, p, d.number(2))
	case d.is("probabilities read twice"):
		out = append(out, p)
	case d.is("probabilities transposed"):
		p = d.transpose(p, 0, 2, 1)
	case d.is("zero in place of numbers"):
		p = d.node(&graph.Where{}, d.node(&graph.Binary{Fn: graph.Equal}, p, p), d.number(0), p)
	case d.is("one in place of NaN"):
		p = d.node(&graph.Where{}, d.unary(graph.Not, d.node(&graph.Binary{Fn: graph.Equal}, p, p)), d.number(1), p)
	case d.is("rows merged"):
		p = d.reshape(p, heads, rows, cols)
	}
	return append(out, d.node(&graph.MatMul{}, p, v))
}
