package cpu

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/graph"
)

// rowDraw draws a graph of tensors of rowElements elements, n of which are a row's each,
// with all operators, some along the rows and some beside them.
type rowDraw struct {
	*rapid.T
	b       *graph.Builder
	n, each int64
	careful bool // seldom mixes rows
	pool    []graph.TensorID
	rows    map[graph.TensorID]int // the axis of rows, where there is one
	loads   []graph.Step
	weights map[string][]float32
	depth   int
	asserts bool       // of all rows together, by which runs seldom fail
	rand    *rand.Rand // of weights and constants
}

const rowElements = 48

// rowsTogether are the operators that are not drawn: all rows make one list of places, or the bytes of
// a transfer, a weight or random numbers have no rows, training is of no use to those who send rows, and nothing is proven of what follows from one. AssertLabels is
// as Assert is.
var rowsTogether = []string{"AssertLabels", "AttentionGradient", "ConvWeightGradient", "Field", "Gradient", "NonMaxSuppression", "NonZero", "Random", "RecurrentGradient", "RoiAlignGradient", "Unique", "Update"}

// rowKinds are the operators that nodes of the draws are of. A test compares them with
// all there are.
var rowKinds = []string{
	"ArgMax", "Assert", "Attention", "AveragePool", "BatchNorm", "Binary", "BitCast", "Bitwise", "Cast", "Clip", "Col2Im", "Concat", "Conv",
	"ConvTranspose", "Cumulate", "DFT", "DeformConv", "Dequantize", "Det", "Expand", "GRU", "Gather", "GatherElements", "GatherND", "Gemm",
	"GridSample", "GroupNorm", "If", "IntegerConv", "IntegerMatMul", "LRN", "LSTM", "LayerNorm", "LinearAttention", "Loop", "LpPool", "MatMul",
	"MaxPool", "MaxRoiPool", "MaxUnpool", "Mod", "OneHot", "Pad", "Pointwise", "Quantize", "RMSNorm", "RNN", "Reduce", "Reshape", "Resize",
	"RoiAlign", "ScatterElements", "ScatterND", "Slice", "Softmax", "TfIdf", "TopK", "Transpose", "Unary", "ViewedAttention", "Where",
}

func (d *rowDraw) one(n int, label string) bool { return rapid.IntRange(0, n-1).Draw(d.T, label) == 0 }

// slip reports whether to do what mixes rows, most often.
func (d *rowDraw) slip() bool {
	if d.careful {
		return d.one(24, "slip")
	}
	return d.one(3, "slip")
}
func (d *rowDraw) int(lo, hi int64, label string) int64 {
	return rapid.Int64Range(lo, hi).Draw(d.T, label)
}
func (d *rowDraw) node(op graph.Op, in ...graph.TensorID) graph.TensorID {
	return node(d, d.b, op, op.Kind(), in...)
}

// factors draws a shape of so many axes with n elements.
func (d *rowDraw) factors(n int64, rank int) []int64 {
	s := slices.Repeat([]int64{1}, rank)
	for p := int64(2); n > 1; {
		if n%p != 0 {
			p++
			continue
		}
		n /= p
		s[rapid.IntRange(0, rank-1).Draw(d.T, "axis")] *= p
	}
	return s
}

// view returns x in a shape of so many axes, and its axis of rows, the first one
// most often.
func (d *rowDraw) view(x graph.TensorID, rank int) (graph.TensorID, int) {
	if d.slip() {
		x = d.node(&graph.Reshape{Shape: d.factors(rowElements, rank)}, x)
		delete(d.rows, x)
		return x, rapid.IntRange(0, rank-1).Draw(d.T, "taken for rows")
	}
	x = d.front(x)
	x = d.node(&graph.Reshape{Shape: append([]int64{d.n}, d.factors(d.each, rank-1)...)}, x)
	d.rows[x] = 0
	return x, 0
}

// exactly returns x with rows of the given shape.
func (d *rowDraw) exactly(x graph.TensorID, shape ...int64) graph.TensorID {
	x = d.front(x)
	x = d.node(&graph.Reshape{Shape: append([]int64{d.n}, shape...)}, x)
	d.rows[x] = 0
	return x
}

// front brings the rows to the first axis.
func (d *rowDraw) front(x graph.TensorID) graph.TensorID {
	axis, ok := d.rows[x]
	if !ok || axis == 0 {
		return x
	}
	perm := []int64{int64(axis)}
	for i := range d.b.Type(x).Shape {
		if i != axis {
			perm = append(perm, int64(i))
		}
	}
	x = d.node(&graph.Transpose{Perm: perm}, x)
	d.rows[x] = 0
	return x
}

// fit makes a result of float32 with as many elements as all have.
func (d *rowDraw) fit(x graph.TensorID, axis int) graph.TensorID {
	if d.b.Type(x).DType != graph.F32 {
		x = d.node(&graph.Cast{To: graph.F32}, x)
	}
	t := d.b.Type(x)
	if t.Elements() == rowElements {
		if axis < len(t.Shape) && t.Shape[axis] == d.n {
			d.rows[x] = axis
		}
		return x
	}
	first, each := int64(1), int64(rowElements)
	if axis < len(t.Shape) && t.Shape[axis] == d.n && t.Elements() > 0 {
		d.rows[x] = axis
		x, first, each = d.front(x), d.n, d.each
	}
	have := t.Elements() / first
	x = d.node(&graph.Reshape{Shape: []int64{first, have}}, x)
	switch {
	case have > each:
		start := d.int(0, have-each, "start")
		x = d.node(&graph.Slice{Start: []int64{0, start}, Size: []int64{first, each}, Step: []int64{1, 1}}, x)
	case have < each:
		x = d.node(&graph.Pad{Before: []int64{0, 0}, After: []int64{0, each - have}, Mode: graph.PadConstant}, x)
	}
	x = d.node(&graph.Reshape{Shape: []int64{d.n, d.each}}, x)
	d.rows[x] = 0
	return x
}

// axis draws an axis, seldom that of the rows.
func (d *rowDraw) axis(x graph.TensorID, rows int) int64 {
	rank := d.b.Type(x).Rank()
	if rank == 1 || d.slip() {
		return d.int(0, int64(rank-1), "axis")
	}
	a := d.int(0, int64(rank-2), "axis")
	if a >= int64(rows) {
		a++
	}
	return a
}

// weight returns a weight, or a constant.
func (d *rowDraw) weight(shape ...int64) graph.TensorID {
	v := make([]float32, f32(shape...).Elements())
	same := d.one(3, "same")
	for i := range v {
		if v[i] = 0.5; !same {
			v[i] = float32(d.rand.IntN(17)-8) / 4
		}
	}
	if d.one(2, "constant") {
		return d.b.AddConst("c", f32(shape...), bytesOf(v))
	}
	w := d.b.AddPersistent("w", f32(shape...))
	name := string(rune('a' + len(d.weights)))
	d.weights[name] = v
	d.loads = append(d.loads, d.b.CopyIn(name, w))
	return w
}

// ints is a constant of integers within lo and hi, none of its own for each row most
// often.
func (d *rowDraw) ints(t graph.DType, lo, hi int64, shape ...int64) graph.TensorID {
	n := graph.TensorType{DType: t, Shape: shape}.Elements()
	var data []byte
	for range n {
		v := lo + d.rand.Int64N(hi-lo+1)
		if t == graph.I64 {
			data = binary.LittleEndian.AppendUint64(data, uint64(v))
		} else {
			data = binary.LittleEndian.AppendUint32(data, uint32(v))
		}
	}
	return d.b.AddConst("i", graph.TensorType{DType: t, Shape: shape}, data)
}

// indices makes indices below n of x: within bounds most often.
func (d *rowDraw) indices(x graph.TensorID, n int64) graph.TensorID {
	lo, hi := float32(-n), float32(n-1)
	if d.one(2, "positive") {
		lo = 0
	}
	if d.one(4, "too far") {
		lo -= 2
	}
	x = d.node(&graph.Clip{}, x, d.b.AddConst("lo", f32(), bytesOf([]float32{lo})), d.b.AddConst("hi", f32(), bytesOf([]float32{hi})))
	rows, ok := d.rows[x]
	x = d.node(&graph.Cast{To: graph.I64}, x)
	if d.one(2, "bounded again") {
		x = d.node(&graph.Clip{}, x, d.ints(graph.I64, 0, 0), d.ints(graph.I64, n-1, n-1))
	}
	if ok {
		d.rows[x] = rows
	}
	return x
}

// graph draws some nodes of the current graph.
func (d *rowDraw) nodes(most int) {
	for range rapid.IntRange(1, most).Draw(d.T, "nodes") {
		d.add(rapid.SampledFrom(rowKinds).Draw(d.T, "kind"))
	}
}

// add adds a node of that kind, with what brings its operands and results into shape.
func (d *rowDraw) add(kind string) {
	x := d.pick()
	for _, family := range []func(string, graph.TensorID) (graph.TensorID, int){d.element, d.moved, d.window, d.product, d.wide} {
		if y, axis := family(kind, x); y != graph.None {
			d.pool = append(d.pool, d.fit(y, axis))
			return
		}
	}
}

func (d *rowDraw) pick() graph.TensorID {
	if d.one(3, "latest") {
		return rapid.SampledFrom(d.pool).Draw(d.T, "operand")
	}
	return d.pool[len(d.pool)-1]
}

// second returns another operand of x's shape, or one that is stretched to it.
func (d *rowDraw) second(x graph.TensorID, rows int) graph.TensorID {
	s := d.b.Type(x).Shape
	switch rapid.IntRange(0, 2).Draw(d.T, "second") {
	case 0:
		y := d.front(d.pick())
		if rows == 0 {
			return d.node(&graph.Reshape{Shape: s}, y)
		}
	case 1:
		w := slices.Clone(s)
		for i := range w {
			if i == rows && !d.slip() || d.one(2, "stretched") {
				w[i] = 1
			}
		}
		return d.weight(w...)
	}
	return x
}

// element draws operators of single elements.
func (d *rowDraw) element(kind string, x graph.TensorID) (graph.TensorID, int) {
	v, rows := d.view(x, rapid.IntRange(2, 4).Draw(d.T, "rank"))
	integer := func() graph.TensorID { return d.node(&graph.Cast{To: graph.I32}, v) }
	switch kind {
	case "Unary":
		fn := rapid.SampledFrom([]graph.UnaryFn{graph.Neg, graph.Relu, graph.Exp, graph.Tanh, graph.Sigmoid, graph.Gelu}).Draw(d.T, "fn")
		return d.node(&graph.Unary{Fn: fn}, v), rows
	case "Binary":
		fn := rapid.SampledFrom([]graph.BinaryFn{graph.Add, graph.Sub, graph.Mul, graph.Max, graph.Less}).Draw(d.T, "fn")
		return d.node(&graph.Binary{Fn: fn}, v, d.second(v, rows)), rows
	case "Pointwise":
		op := &graph.Pointwise{Fns: []string{"mul", "relu", "add"}, Args: []int64{0, 1, 2, 0, 3}, Alpha: make([]float64, 3), Beta: make([]float64, 3)}
		return d.node(op, v, d.second(v, rows)), rows
	case "Where":
		return d.node(&graph.Where{}, d.node(&graph.Binary{Fn: graph.Less}, v, d.second(v, rows)), v, d.second(v, rows)), rows
	case "Clip":
		return d.node(&graph.Clip{}, v, d.weight(), graph.None), rows
	case "Cast":
		return d.node(&graph.Cast{To: graph.I8}, v), rows
	case "BitCast":
		return d.node(&graph.BitCast{To: graph.I32}, v), rows
	case "Bitwise":
		return d.node(&graph.Bitwise{Fn: graph.BitXor}, integer(), integer()), rows
	case "Mod":
		return d.node(&graph.Mod{}, integer(), d.ints(graph.I32, 1, 3)), rows
	case "Quantize":
		return d.node(&graph.Quantize{To: graph.I8, Precision: graph.F32}, v, d.scale()), rows
	case "Dequantize":
		a := d.axis(v, rows)
		return d.node(&graph.Dequantize{To: graph.F32, Axis: a}, d.node(&graph.Cast{To: graph.I8}, v), d.weight(d.b.Type(v).Shape[a])), rows
	}
	return graph.None, 0
}

func (d *rowDraw) scale() graph.TensorID {
	return d.b.AddConst("scale", f32(), bytesOf([]float32{0.125}))
}

// moved draws operators that move elements.
func (d *rowDraw) moved(kind string, x graph.TensorID) (graph.TensorID, int) {
	v, rows := d.view(x, rapid.IntRange(2, 4).Draw(d.T, "rank"))
	s := d.b.Type(v).Shape
	rank := len(s)
	a := d.axis(v, rows)
	zeros := func() []int64 { return make([]int64, rank) }
	switch kind {
	case "Reshape":
		return d.node(&graph.Reshape{Shape: d.factors(rowElements, rank)}, v), rank
	case "Transpose":
		perm := rapid.Permutation(straightAxes(rank)).Draw(d.T, "perm")
		return d.node(&graph.Transpose{Perm: perm}, v), slices.Index(perm, int64(rows))
	case "Concat":
		return d.node(&graph.Concat{Axis: a}, v, d.node(&graph.Expand{Shape: s}, d.second(v, rows))), rows
	case "Slice":
		o := &graph.Slice{Start: zeros(), Size: slices.Clone(s), Step: slices.Repeat([]int64{1}, rank)}
		if d.one(2, "reverse") {
			o.Start[a], o.Step[a] = s[a]-1, -1
		} else {
			o.Size[a] = d.int(1, s[a], "size")
			o.Start[a] = d.int(0, s[a]-o.Size[a], "start")
		}
		return d.node(o, v), rows
	case "Pad":
		o := &graph.Pad{Before: zeros(), After: zeros(), Mode: rapid.SampledFrom([]graph.PadMode{graph.PadConstant, graph.PadEdge, graph.PadWrap}).Draw(d.T, "mode")}
		o.Before[a], o.After[a] = d.int(0, 2, "before"), d.int(-s[a]+1, 2, "after")
		return d.node(o, v), rows
	case "Expand":
		return d.node(&graph.Expand{Shape: append([]int64{2}, s...)}, v), rows + 1
	case "Gather":
		if d.one(2, "table") {
			return d.node(&graph.Gather{}, d.weight(5, 2), d.indices(v, 5)), rows
		}
		y := d.node(&graph.Gather{Axis: a}, v, d.ints(graph.I64, 0, s[a]-1, 2))
		return y, rows
	case "GatherElements":
		if d.one(2, "own") {
			return d.node(&graph.GatherElements{Axis: a}, v, d.indices(v, s[a])), rows
		}
		return d.node(&graph.GatherElements{Axis: a}, v, d.ints(graph.I64, 0, s[a]-1, s...)), rows
	case "GatherND":
		v = d.exactly(x, d.each, 1)
		if d.one(2, "batch") {
			w := d.exactly(x, d.each)
			return d.node(&graph.GatherND{BatchDims: 1}, w, d.indices(v, d.each)), 0
		}
		return d.node(&graph.GatherND{}, d.weight(5, 2), d.indices(v, 5)), 0
	case "ScatterElements":
		fn := rapid.SampledFrom([]graph.ScatterFn{graph.ScatterNone, graph.ScatterAdd}).Draw(d.T, "fn")
		i := d.ints(graph.I64, 0, s[a]-1, s...)
		if d.one(2, "own") {
			i = d.indices(v, s[a])
		}
		return d.node(&graph.ScatterElements{Axis: a, Fn: fn}, v, i, d.node(&graph.Expand{Shape: s}, d.second(v, rows))), rows
	case "ScatterND":
		v = d.front(v)
		if d.one(2, "columns") {
			if r, ok := d.rows[v]; ok && r == 0 {
				w := d.exactly(v, d.each)
				w = d.node(&graph.Transpose{Perm: []int64{1, 0}}, w)
				return d.node(&graph.ScatterND{Fn: graph.ScatterNone}, w, d.ints(graph.I64, 0, d.each-1, 2, 1), d.weight(2, d.n)), 1
			}
		}
		s = d.b.Type(v).Shape
		return d.node(&graph.ScatterND{Fn: graph.ScatterNone}, v, d.ints(graph.I64, 0, s[0]-1, 2, 1), d.weight(append([]int64{2}, s[1:]...)...)), 0
	case "OneHot":
		i := d.node(&graph.Cast{To: graph.I64}, v)
		return d.node(&graph.OneHot{Axis: int64(rank), Depth: 3}, i, d.weight(2)), rows
	case "Cumulate":
		return d.node(&graph.Cumulate{Fn: graph.CumulateSum, Axis: a, Reverse: d.one(2, "reverse")}, v), rows
	case "Softmax":
		return d.node(&graph.Softmax{Axis: a}, v), rows
	case "ArgMax":
		return d.node(&graph.ArgMax{Axis: a, KeepDims: true}, v), rows
	case "TopK":
		out, err := d.b.Node(&graph.TopK{Axis: a, K: d.int(1, s[a], "k")}, kind, v)
		require.NoError(d, err)
		return out[rapid.IntRange(0, 1).Draw(d.T, "result")], rows
	case "Reduce":
		fn := rapid.SampledFrom([]graph.ReduceFn{graph.ReduceSum, graph.ReduceMax, graph.ReduceMean}).Draw(d.T, "fn")
		return d.node(&graph.Reduce{Fn: fn, Axes: []int64{a}, KeepDims: true}, v), rows
	}
	return graph.None, 0
}

func straightAxes(rank int) []int64 {
	axes := make([]int64, rank)
	for i := range axes {
		axes[i] = int64(i)
	}
	return axes
}
