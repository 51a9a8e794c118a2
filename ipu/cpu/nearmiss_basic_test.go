package cpu

import (
	"fmt"
	"math"
	"slices"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/graph"
)

func init() {
	nearMisses = append(nearMisses,
		nearMiss{pass: "movement", what: "transposes merged", tolerance: -1, build: missTransposes, off: []string{"read twice", "another shape between", "reversed between"}},
		nearMiss{pass: "movement", what: "transposes of single elements made reshapes", tolerance: -1, build: missSingles, off: []string{"two that are not single"}},
		nearMiss{pass: "movement", what: "reshapes merged", tolerance: -1, build: missReshapes, off: []string{"transposed between", "read twice"}},
		nearMiss{pass: "movement", what: "casts merged", tolerance: -1, integers: true, build: missCasts, off: []string{"any types", "integers through floats", "too many digits", "signs"}},
		nearMiss{pass: "movement", what: "selections made slices", tolerance: -1, build: missGather, off: []string{"gap", "backwards", "repeated", "around the end", "fed indices"}},
		nearMiss{pass: "movement", what: "slices merged", tolerance: -1, build: missSlices, off: []string{"read twice", "nothing left", "transposed between"}},
		nearMiss{pass: "movement", what: "expansions left to the operator that follows", tolerance: -1, build: missExpand, off: []string{"gives the shape", "both", "read twice"}},

		nearMiss{pass: "identity", what: "operators that change nothing", tolerance: -1, build: missIdentity, off: []string{"transposed", "backwards", "moved", "another type",
			"two of them", "repeated", "before an update"}},
		nearMiss{pass: "common", what: "equal expressions", tolerance: -1, build: missCommon, off: []string{"another attribute", "operands the other way", "another axis", "other result", "state between", "another operand"}},
		nearMiss{pass: "common", what: "equal constants", tolerance: -1, build: missConstants, off: []string{"another type", "another shape", "sign of zero"}},

		nearMiss{pass: "strength", what: "squares made products", build: missPower, off: []string{"fourth", "root", "inverse", "base", "several", "larger", "fed", "half cube"}},
		nearMiss{pass: "strength", what: "divisions by powers of two made products", tolerance: -1, build: missDivision, off: []string{"three", "zero", "infinity", "reversed", "larger", "several",
			"half", "half three", "beyond half"}},
		nearMiss{pass: "strength", what: "maxima with zero made rectifiers", tolerance: -1, build: missMaximum, off: []string{"minimum", "one", "several", "larger", "negative zero", "integers", "fed"}},

		nearMiss{pass: "select", what: "selections of rows", build: missSelect, off: []string{"counting from one", "counting backwards", "less", "twice", "second operand", "fed weights", "several", "halves"}},
		nearMiss{pass: "load", what: "operators on weights", build: missLoad, off: []string{"state", "fed", "weight from the main program", "in a branch"}},
		nearMiss{pass: "load", what: "operators on constants", build: missLoad, off: []string{"state", "fed", "weight from the main program", "in a branch"}},
		nearMiss{pass: "pointwise", what: "loops", tolerance: 1e-6, build: missPointwise, off: []string{"read outside", "smaller between", "another type", "state between", "comparison", "all read outside"}, left: []string{"all read outside"}},
		nearMiss{pass: "dead-code", what: "", tolerance: -1, build: missDead, off: []string{"only the second result", "state", "in a branch"}},
	)
}

// state returns a persistent tensor that the load program sets and that update
// makes another, in the main program at this place.
func (d *missDraw) state(shape ...int64) (id graph.TensorID, update func()) {
	id = d.weight(shape...)
	return id, func() {
		require.NoError(d, d.b.NodeTo(&graph.Binary{Fn: graph.Add}, "update", []graph.TensorID{id}, id, d.number(1)))
	}
}

func (d *missDraw) perm(rank int) []int64 {
	all := []int64{0, 1, 2, 3}[:rank]
	return rapid.Permutation(all).Draw(d.T, "perm")
}

func missTransposes(d *missDraw) []graph.TensorID {
	x := d.input(3, 3, 3, 3)
	y := d.transpose(x, d.perm(4)...)
	var out []graph.TensorID
	switch {
	case d.is("read twice"):
		out = append(out, y)
	case d.is("another shape between"):
		y = d.reshape(y, 9, 1, 3, 3)
	case d.is("reversed between"):
		y = d.node(&graph.Slice{Start: []int64{2, 0, 0, 0}, Size: []int64{3, 3, 3, 3}, Step: []int64{-1, 1, 1, 1}}, y)
	}
	return append(out, d.unary(graph.Neg, d.transpose(y, d.perm(4)...)))
}

func missSingles(d *missDraw) []graph.TensorID {
	shape := []int64{1, 3, 1, 4}
	perm := [][]int64{{1, 0, 3, 2}, {0, 2, 1, 3}, {1, 2, 0, 3}, {1, 3, 0, 2}}[d.rand.IntN(4)]
	if d.is("two that are not single") {
		shape = []int64{1, 3, 1, 3}
		perm = [][]int64{{0, 3, 2, 1}, {3, 0, 1, 2}, {2, 3, 0, 1}}[d.rand.IntN(3)]
	}
	return []graph.TensorID{d.unary(graph.Neg, d.transpose(d.unary(graph.Abs, d.input(shape...)), perm...))}
}

func missReshapes(d *missDraw) []graph.TensorID {
	x := d.unary(graph.Neg, d.input(4, 4, 3))
	y := d.reshape(x, 3, 16)
	var out []graph.TensorID
	if d.is("transposed between") {
		y = d.transpose(y, 1, 0)
	}
	if d.is("read twice") {
		out = append(out, y)
	}
	return append(out, d.unary(graph.Abs, d.reshape(y, 8, 6)))
}

var missTypes = []graph.DType{graph.Bool, graph.I8, graph.U8, graph.I16, graph.U16, graph.I32, graph.U32, graph.I64, graph.U64, graph.F16, graph.BF16, graph.F32, graph.F64}

// missCasts casts from one type through a second one to a third.
func missCasts(d *missDraw) []graph.TensorID {
	exact := []float32{0, 1, 2, 3, 100, 127, 128, 200, 255, 256, 1000, 4097, 32767, 32768, 65535, 65536, 70001, 16777215, 2147483520}
	v := slices.Clone(exact)
	for _, x := range exact {
		v = append(v, -x)
	}
	any := func(label string) graph.DType { return rapid.SampledFrom(missTypes).Draw(d.T, label) }
	from, by := graph.U8, graph.I32
	if d.is("any types") {
		from, by = any("from"), any("by")
	}
	to := any("to")
	one := func(of ...[3]graph.DType) { all := of[d.rand.IntN(len(of))]; from, by, to = all[0], all[1], all[2] }
	switch {
	case d.is("integers through floats"): // which limit what does not fit, and do not wrap it
		one([3]graph.DType{graph.U32, graph.F64, graph.I32}, [3]graph.DType{graph.I32, graph.F64, graph.I8}, [3]graph.DType{graph.U16, graph.F32, graph.I8})
	case d.is("too many digits"):
		one([3]graph.DType{graph.I32, graph.F32, graph.I32}, [3]graph.DType{graph.F32, graph.F16, graph.F32}, [3]graph.DType{graph.F16, graph.BF16, graph.F32},
			[3]graph.DType{graph.I64, graph.F64, graph.I64}, [3]graph.DType{graph.I64, graph.I32, graph.I64})
	case d.is("signs"):
		one([3]graph.DType{graph.I8, graph.U16, graph.I32}, [3]graph.DType{graph.U8, graph.I8, graph.I32}, [3]graph.DType{graph.U16, graph.I16, graph.I32},
			[3]graph.DType{graph.I32, graph.U32, graph.I64})
	}
	x := d.fed(v, int64(len(v)))
	for _, t := range []graph.DType{from, by, to} {
		x = d.node(&graph.Cast{To: t}, x)
	}
	return []graph.TensorID{x}
}

func missGather(d *missDraw) []graph.TensorID {
	x := d.unary(graph.Neg, d.input(6, 6))
	axis := d.between(0, 1, "axis")
	var at []int64
	switch {
	case d.is("gap"):
		at = []int64{1, 2, 4}
	case d.is("backwards"):
		at = []int64{3, 2, 1}
	case d.is("repeated"):
		at = []int64{2, 2, 3}
	case d.is("around the end"):
		at = []int64{-2, -1, 0}
	case d.yes("from the end"):
		at = []int64{-3, -2, -1}
	default:
		at = []int64{2, 3, 4, 5}
	}
	typ := graph.TensorType{DType: graph.I64, Shape: []int64{int64(len(at))}}
	if d.is("fed indices") {
		v := make([]float32, len(at))
		for i := range at {
			v[i] = float32(at[i])
		}
		return []graph.TensorID{d.node(&graph.Gather{Axis: axis}, x, d.node(&graph.Cast{To: graph.I64}, d.fed(v, int64(len(v)))))}
	}
	if d.off == "" && d.yes("scalar") {
		at, typ.Shape = at[:1], nil
	}
	idx := d.b.AddConst("indices", typ, bytesOf(at))
	if d.yes("int32") {
		small := make([]int32, len(at))
		for i := range at {
			small[i] = int32(at[i])
		}
		idx = d.b.AddConst("indices", graph.TensorType{DType: graph.I32, Shape: typ.Shape}, bytesOf(small))
	}
	return []graph.TensorID{d.unary(graph.Abs, d.node(&graph.Gather{Axis: axis}, x, idx))}
}

// cut takes a random part of x.
func (d *missDraw) cut(x graph.TensorID) graph.TensorID {
	op := &graph.Slice{}
	for _, n := range d.b.Type(x).Shape {
		step := []int64{1, 2, -1, -2}[d.rand.IntN(4)]
		start := int64(d.rand.IntN(int(n)))
		most := (n-1-start)/max(step, 1) + 1
		if step < 0 {
			most = start/-step + 1
		}
		op.Start, op.Size, op.Step = append(op.Start, start), append(op.Size, 1+int64(d.rand.IntN(int(most)))), append(op.Step, step)
	}
	return d.node(op, x)
}

func missSlices(d *missDraw) []graph.TensorID {
	y := d.cut(d.unary(graph.Neg, d.input(9, 9)))
	var out []graph.TensorID
	switch {
	case d.is("read twice"):
		out = append(out, y)
	case d.is("transposed between"):
		y = d.transpose(y, 1, 0)
	case d.is("nothing left"):
		shape := d.b.Type(y).Shape
		y = d.node(&graph.Slice{Start: []int64{shape[0], 0}, Size: []int64{0, shape[1]}, Step: []int64{1, 1}}, y)
		return []graph.TensorID{d.node(&graph.Concat{Axis: 0}, y, d.input(2, shape[1]))}
	}
	return append(out, d.unary(graph.Abs, d.cut(y)))
}

func missExpand(d *missDraw) []graph.TensorID {
	x, y := d.input(3, 1, 4), d.input(2, 1, 3, 4)
	full := []int64{2, 3, 3, 4}
	if d.is("gives the shape") {
		y = d.input(1, 4)
	}
	e := d.node(&graph.Expand{Shape: full}, x)
	if !d.is("both") && !d.is("gives the shape") {
		e = d.node(&graph.Expand{Shape: []int64{3, 3, 4}}, x)
	}
	var out []graph.TensorID
	if d.is("both") {
		y = d.node(&graph.Expand{Shape: full}, d.input(1, 4))
	}
	if d.is("read twice") {
		out = append(out, e)
	}
	if d.yes("where") {
		return append(out, d.node(&graph.Where{}, d.node(&graph.Binary{Fn: graph.Less}, e, y), e, y))
	}
	return append(out, d.node(&graph.Binary{Fn: graph.Sub}, e, y))
}

func missIdentity(d *missDraw) []graph.TensorID {
	x := d.unary(graph.Neg, d.input(3, 3))
	none, ones, full := []int64{0, 0}, []int64{1, 1}, []int64{3, 3}
	var op graph.Op
	in := []graph.TensorID{x}
	switch k := d.rand.IntN(7); {
	case d.is("transposed"):
		op = &graph.Transpose{Perm: []int64{1, 0}}
	case d.is("backwards"):
		op = &graph.Slice{Start: []int64{2, 0}, Size: full, Step: []int64{-1, 1}}
	case d.is("moved"):
		op, in = &graph.Pad{Before: []int64{1, 0}, After: []int64{-1, 0}, Mode: graph.PadConstant}, []graph.TensorID{x, d.number(7)}
	case d.is("another type"):
		return []graph.TensorID{d.node(&graph.Cast{To: graph.F32}, d.node(&graph.Cast{To: graph.I8}, x))}
	case d.is("two of them"):
		return []graph.TensorID{d.node(&graph.Concat{Axis: 0}, x, x)}
	case d.is("repeated"):
		return []graph.TensorID{d.node(&graph.Expand{Shape: []int64{2, 3, 3}}, x)}
	case d.is("before an update"):
		s, update := d.state(3, 3)
		y := d.node(&graph.Reshape{Shape: full}, s)
		update()
		return []graph.TensorID{d.binary(graph.Mul, y, x), s}
	case k == 0:
		op = &graph.Transpose{Perm: []int64{0, 1}}
	case k == 1:
		op = &graph.Slice{Start: none, Size: full, Step: ones}
	case k == 2:
		op = &graph.Pad{Before: none, After: none, Mode: graph.PadConstant}
	case k == 3:
		op = &graph.Cast{To: graph.F32}
	case k == 4:
		op = &graph.Concat{Axis: 1}
	case k == 5:
		op = &graph.Expand{Shape: full}
	default:
		op = &graph.Reshape{Shape: full}
	}
	return []graph.TensorID{d.unary(graph.Abs, d.node(op, in...)), x}
}

func missCommon(d *missDraw) []graph.TensorID {
	x, y := d.input(4, 4), d.input(4, 4)
	a, b := graph.Op(&graph.Binary{Fn: graph.Sub}), graph.Op(&graph.Binary{Fn: graph.Sub})
	inA, inB := []graph.TensorID{x, y}, []graph.TensorID{x, y}
	switch {
	case d.is("another attribute"):
		a, b = &graph.Unary{Fn: graph.LeakyRelu, Alpha: 0.25}, &graph.Unary{Fn: graph.LeakyRelu, Alpha: 0.2500001}
		inA, inB = inA[:1], inB[:1]
	case d.is("operands the other way"):
		inB = []graph.TensorID{y, x}
	case d.is("another operand"):
		inB = []graph.TensorID{x, x}
	case d.is("another axis"):
		a, b = &graph.Softmax{Axis: 0}, &graph.Softmax{Axis: 1}
		inA, inB = inA[:1], inB[:1]
	case d.is("other result"):
		op := &graph.TopK{Axis: 1, K: 2}
		types, err := op.Infer([]graph.TensorType{d.b.Type(x)})
		require.NoError(d, err)
		values := d.node(op, x)
		at := d.b.AddLocal("at", types[1])
		require.NoError(d, d.b.NodeTo(op, "topk", []graph.TensorID{graph.None, at}, x))
		return []graph.TensorID{values, at}
	case d.is("state between"):
		s, update := d.state(4, 4)
		first := d.node(a, s, y)
		update()
		return []graph.TensorID{first, d.node(b, s, y)}
	}
	return []graph.TensorID{d.unary(graph.Neg, d.node(a, inA...)), d.unary(graph.Abs, d.node(b, inB...))}
}

func missConstants(d *missDraw) []graph.TensorID {
	x := d.input(2, 2)
	zeros := []float32{0, 0, 0, 0}
	a := d.constant(zeros, 2, 2)
	switch {
	case d.is("another type"):
		b := d.b.AddConst("integers", graph.TensorType{DType: graph.I32, Shape: []int64{2, 2}}, bytesOf([]int32{0, 0, 0, 0}))
		return []graph.TensorID{d.binary(graph.Add, x, a), d.binary(graph.Add, d.node(&graph.Cast{To: graph.I32}, x), b)}
	case d.is("another shape"):
		b := d.constant(zeros, 4, 1)
		return []graph.TensorID{d.binary(graph.Add, x, a), d.binary(graph.Add, d.reshape(x, 2, 1, 2), d.reshape(b, 2, 2, 1))}
	case d.is("sign of zero"):
		minus := float32(math.Copysign(0, -1))
		b := d.constant([]float32{minus, minus, minus, minus}, 2, 2)
		return []graph.TensorID{d.node(&graph.Binary{Fn: graph.Div}, x, a), d.node(&graph.Binary{Fn: graph.Div}, x, b)}
	}
	return []graph.TensorID{d.binary(graph.Add, x, a), d.node(&graph.Binary{Fn: graph.Div}, x, d.constant(zeros, 2, 2))}
}

func missPower(d *missDraw) []graph.TensorID {
	if d.is("half cube") {
		d.dtype = graph.F16
	}
	x := d.input(4, 4)
	p := float32(2)
	switch {
	case d.is("fourth"):
		p = 4
	case d.is("root"):
		p = 0.5
	case d.is("inverse"):
		p = -2
	case d.is("half cube"):
		p = 3
	case d.is("base"):
		return []graph.TensorID{d.node(&graph.Binary{Fn: graph.Pow}, d.number(2), x)}
	case d.is("several"):
		return []graph.TensorID{d.node(&graph.Binary{Fn: graph.Pow}, x, d.constant([]float32{2, 2, 3, 2}, 4))}
	case d.is("larger"):
		return []graph.TensorID{d.node(&graph.Binary{Fn: graph.Pow}, x, d.constant([]float32{2, 2}, 2, 1, 1))}
	case d.is("fed"):
		return []graph.TensorID{d.node(&graph.Binary{Fn: graph.Pow}, x, d.fed([]float32{3}))}
	}
	if d.off == "" {
		cube := d.node(&graph.Binary{Fn: graph.Pow}, x, d.number(3))
		return []graph.TensorID{cube, d.node(&graph.Binary{Fn: graph.Pow}, x, d.number(2))}
	}
	return []graph.TensorID{d.node(&graph.Binary{Fn: graph.Pow}, x, d.number(p))}
}

func missDivision(d *missDraw) []graph.TensorID {
	if d.is("half") || d.is("half three") || d.is("beyond half") {
		d.dtype = graph.F16
	}
	v := d.some(4, 4)
	if d.is("beyond half") { // what is near 0 there is not after the division
		for i := range v {
			v[i] *= 0x1p-18
		}
	}
	x := d.fed(v, 4, 4)
	by := d.number([]float32{2, -4, 0.5, 1, 1024}[d.rand.IntN(5)])
	switch {
	case d.is("three"), d.is("half three"):
		by = d.number(3)
	case d.is("zero"):
		by = d.number([]float32{0, float32(math.Copysign(0, -1))}[d.rand.IntN(2)])
	case d.is("infinity"):
		by = d.number(float32(math.Inf(1)))
	case d.is("beyond half"):
		by = d.number([]float32{0x1p-15, 0x1p15, 0x1p-24}[d.rand.IntN(3)])
	case d.is("reversed"):
		return []graph.TensorID{d.node(&graph.Binary{Fn: graph.Div}, by, x)}
	case d.is("larger"):
		by = d.constant([]float32{2, 2}, 2, 1, 1)
	case d.is("several"):
		by = d.constant([]float32{2, 2, 4, 2}, 4)
	}
	return []graph.TensorID{d.node(&graph.Binary{Fn: graph.Div}, x, by)}
}

func missMaximum(d *missDraw) []graph.TensorID {
	v := d.some(4, 4)
	v[3], v[5] = float32(math.NaN()), float32(math.Copysign(0, -1))
	x, fn, with := d.fed(v, 4, 4), graph.Max, d.number(0)
	switch {
	case d.is("minimum"):
		fn = graph.Min
	case d.is("one"):
		with = d.number(1)
	case d.is("several"):
		with = d.constant([]float32{0, 0, 1, 0}, 4)
	case d.is("larger"):
		with = d.constant([]float32{0, 0}, 2, 1, 1)
	case d.is("negative zero"):
		with = d.number(float32(math.Copysign(0, -1)))
	case d.is("integers"):
		x = d.node(&graph.Cast{To: graph.I32}, d.input(4, 4))
		with = d.b.AddConst("zero", graph.TensorType{DType: graph.I32}, bytesOf([]int32{0}))
	case d.is("fed"):
		with = d.fed([]float32{0.5})
	}
	return []graph.TensorID{d.binary(fn, x, with)}
}

func missSelect(d *missDraw) []graph.TensorID {
	const rows, width = 5, 3
	v := []float32{0, 4, 9, -2, 5, -1}
	if d.is("halves") {
		v = []float32{0, 4, 2, 1, 0, 3}
	}
	count := []int64{0, 1, 2, 3, 4}
	switch {
	case d.is("counting from one"):
		count = []int64{1, 2, 3, 4, 5}
	case d.is("counting backwards"):
		count = []int64{4, 3, 2, 1, 0}
	}
	x := d.node(&graph.Cast{To: graph.I64}, d.fed(v, 2, 3, 1))
	axis := []int64{rows}
	if d.yes("whole rank") {
		axis = []int64{1, 1, rows}
	}
	steps := d.b.AddConst("count", graph.TensorType{DType: graph.I64, Shape: axis}, bytesOf(count))
	if d.is("several") { // one index for each place
		x = d.node(&graph.Cast{To: graph.I64}, d.fed([]float32{0, 1, 5, 3, 0, 0, 7, 2, 3, 4}, 1, 2, rows))
	}
	fn := graph.Equal
	if d.is("less") {
		fn = graph.Less
	}
	a, b := x, steps
	if fn == graph.Equal && d.yes("the other way") {
		a, b = b, a
	}
	hot := d.node(&graph.Cast{To: graph.F32}, d.node(&graph.Binary{Fn: fn}, a, b))
	if d.is("twice") {
		hot = d.binary(graph.Mul, hot, d.number(2))
	}
	if d.is("halves") {
		hot = d.node(&graph.Cast{To: graph.F32}, d.node(&graph.Cast{To: graph.I8}, d.binary(graph.Mul, hot, d.number(0.5))))
	}
	w := d.fedWhere(d.is("fed weights"))
	if d.is("second operand") {
		return []graph.TensorID{d.node(&graph.MatMul{}, w(width, 3), hot)}
	}
	return []graph.TensorID{d.node(&graph.MatMul{}, hot, w(rows, width))}
}

// missLoad is an operator on a weight, and one on a constant.
func missLoad(d *missDraw) []graph.TensorID {
	x := d.input(4, 4)
	w, k := d.weight(4, 4), d.constant(d.some(4, 4), 4, 4)
	out := []graph.TensorID{d.binary(graph.Mul, x, d.unary(graph.Exp, w)), d.binary(graph.Mul, x, d.unary(graph.Exp, k))}
	switch {
	case d.is("state"):
		s, update := d.state(4, 4)
		before := d.unary(graph.Exp, s)
		update()
		out = append(out, d.binary(graph.Mul, x, before), d.binary(graph.Mul, x, d.unary(graph.Exp, s)))
	case d.is("fed"):
		out = append(out, d.binary(graph.Mul, x, d.unary(graph.Exp, d.binary(graph.Add, w, d.input(4)))))
	case d.is("weight from the main program"):
		name := fmt.Sprintf("x%d", d.n+1)
		d.n++
		s := d.b.AddPersistent(name, f32(4, 4))
		d.data[name] = d.some(4, 4)
		d.feeds = append(d.feeds, d.b.CopyIn(name, s))
		out = append(out, d.binary(graph.Mul, x, d.unary(graph.Exp, s)))
	case d.is("in a branch"):
		out = append(out, d.branch(x, func(then bool) graph.TensorID {
			y := d.unary(graph.Exp, w)
			if then {
				y = d.unary(graph.Neg, y)
			}
			return d.binary(graph.Mul, x, y)
		}))
	}
	return out
}

// branch is an If on x's first element being positive.
func (d *missDraw) branch(x graph.TensorID, arm func(then bool) graph.TensorID) graph.TensorID {
	around := d.b.CurrentGraph()
	flat := d.reshape(x, d.b.Type(x).Elements())
	first := d.node(&graph.Slice{Start: []int64{0}, Size: []int64{1}, Step: []int64{1}}, flat)
	cond := d.node(&graph.Binary{Fn: graph.Greater}, first, d.number(0))
	op := &graph.If{}
	var typ graph.TensorType
	for i, id := range []*graph.GraphID{&op.Then, &op.Else} {
		*id = d.b.BeginGraph(fmt.Sprint("arm", i))
		y := arm(i == 0)
		typ = d.b.Type(y)
		d.b.SetParams(*id, nil, []graph.TensorID{y})
	}
	d.b.SetGraph(around)
	y := d.b.AddLocal("if", typ)
	require.NoError(d, d.b.NodeTo(op, "if", []graph.TensorID{y}, cond))
	return y
}

func missPointwise(d *missDraw) []graph.TensorID {
	x, y := d.input(3, 4), d.input(4)
	a := d.binary(graph.Mul, x, y)
	var out []graph.TensorID
	switch {
	case d.is("read outside"):
		out = append(out, d.transpose(a, 1, 0))
	case d.is("smaller between"):
		a = d.binary(graph.Add, a, d.unary(graph.Exp, d.binary(graph.Mul, y, y)))
	case d.is("another type"):
		a = d.node(&graph.Cast{To: graph.F32}, d.unary(graph.Neg, d.node(&graph.Cast{To: graph.I32}, d.binary(graph.Mul, a, d.number(4)))))
	case d.is("state between"):
		s, update := d.state(3, 4)
		a = d.binary(graph.Mul, a, s)
		update()
		a = d.binary(graph.Add, a, s)
		out = append(out, s)
	case d.is("comparison"):
		a = d.node(&graph.Where{}, d.node(&graph.Binary{Fn: graph.Less}, a, x), x, a)
	}
	if d.is("all read outside") {
		b := d.unary(graph.Tanh, a)
		return []graph.TensorID{d.transpose(a, 1, 0), d.transpose(b, 1, 0), d.unary(graph.Exp, b)}
	}
	b := d.unary(graph.Tanh, a)
	c := d.node(&graph.Binary{Fn: graph.Sub}, d.node(&graph.Clip{}, b, d.number(-0.5), graph.None), d.binary(graph.Mul, b, x))
	return append(out, c)
}

func missDead(d *missDraw) []graph.TensorID {
	x := d.input(4, 4)
	d.unary(graph.Neg, x)
	out := []graph.TensorID{d.unary(graph.Abs, x)}
	switch {
	case d.is("only the second result"):
		op := &graph.TopK{Axis: 1, K: 2}
		types, err := op.Infer([]graph.TensorType{d.b.Type(x)})
		require.NoError(d, err)
		values, at := d.b.AddLocal("values", types[0]), d.b.AddLocal("at", types[1])
		require.NoError(d, d.b.NodeTo(op, "topk", []graph.TensorID{values, at}, x))
		out = append(out, at)
	case d.is("state"):
		s, update := d.state(4, 4)
		out = append(out, d.binary(graph.Mul, x, s))
		update()
	case d.is("in a branch"):
		outside := d.unary(graph.Exp, x)
		out = append(out, d.branch(x, func(then bool) graph.TensorID {
			if then {
				return d.unary(graph.Neg, outside)
			}
			return d.unary(graph.Abs, outside)
		}))
	}
	return out
}
