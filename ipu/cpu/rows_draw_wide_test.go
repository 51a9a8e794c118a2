package cpu

import (
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/graph"
)

// image returns x as [n, channels, height, width] or, seldom, with other first axes.
func (d *rowDraw) image(x graph.TensorID) (graph.TensorID, []int64, int) {
	v, rows := d.view(x, 4)
	return v, d.b.Type(v).Shape, rows
}

func twice(n int64) []int64 { return []int64{n, n} }

// window draws operators of images.
func (d *rowDraw) window(kind string, x graph.TensorID) (graph.TensorID, int) {
	switch kind {
	case "Conv", "IntegerConv", "ConvTranspose", "DeformConv", "AveragePool", "MaxPool", "LpPool", "LRN", "GroupNorm", "BatchNorm", "Resize",
		"GridSample", "RoiAlign", "MaxRoiPool", "MaxUnpool", "Col2Im", "Det":
	default:
		return graph.None, 0
	}
	v, s, rows := d.image(x)
	c := s[1]
	group := int64(1)
	if d.one(3, "groups") {
		group = c
	}
	k := d.int(1, 3, "kernel")
	pad := k / 2
	m := 2 * group
	conv := graph.Conv{Strides: twice(1), Dilations: twice(1), PadsBegin: twice(pad), PadsEnd: twice(pad), Group: group}
	switch kind {
	case "Conv":
		return d.node(&conv, v, d.weight(m, c/group, k, k), d.weight(m)), rows
	case "IntegerConv":
		o := &graph.IntegerConv{Strides: twice(1), Dilations: twice(1), PadsBegin: twice(pad), PadsEnd: twice(pad), Group: group, To: graph.F32}
		w := d.node(&graph.Cast{To: graph.I8}, d.weight(m, c/group, k, k))
		return d.node(o, d.node(&graph.Quantize{To: graph.U8, Precision: graph.F32}, v, d.scale()), w, graph.None, graph.None, graph.None, d.weight(m)), rows
	case "ConvTranspose":
		o := &graph.ConvTranspose{Strides: twice(1), Dilations: twice(1), PadsBegin: twice(pad), Output: s[2:], Group: group}
		return d.node(o, v, d.weight(c, 2, k, k)), rows
	case "DeformConv":
		o := &graph.DeformConv{Strides: twice(1), Dilations: twice(1), PadsBegin: twice(pad), PadsEnd: twice(pad), Group: 1, OffsetGroup: 1}
		if k%2 == 0 {
			return d.window("Conv", x)
		}
		offset := d.node(&graph.Expand{Shape: []int64{s[0], 2 * k * k, s[2], s[3]}}, d.node(&graph.Reduce{Fn: graph.ReduceMean, Axes: []int64{1}, KeepDims: true}, v))
		return d.node(o, v, d.weight(2, c, k, k), offset), rows
	case "AveragePool":
		return d.node(&graph.AveragePool{Kernel: twice(k), Strides: twice(1), Dilations: twice(1), PadsBegin: twice(pad), PadsEnd: twice(pad)}, v), rows
	case "LpPool":
		return d.node(&graph.LpPool{Kernel: twice(k), Strides: twice(1), Dilations: twice(1), PadsBegin: twice(pad), PadsEnd: twice(pad), P: 2}, v), rows
	case "MaxPool", "MaxUnpool":
		o := &graph.MaxPool{Kernel: twice(k), Strides: twice(1), Dilations: twice(1), PadsBegin: twice(pad), PadsEnd: twice(pad)}
		out, err := d.b.Node(o, kind, v)
		require.NoError(d, err)
		if kind == "MaxPool" {
			return out[d.int(0, 1, "result")], rows
		}
		return d.node(&graph.MaxUnpool{Shape: s}, out[0], out[1]), rows
	case "LRN":
		return d.node(&graph.LRN{Size: k, Alpha: 0.1, Beta: 0.5, Bias: 1}, v), rows
	case "GroupNorm":
		return d.node(&graph.GroupNorm{Groups: group, Epsilon: 1e-3}, v, d.weight(c), d.weight(c)), rows
	case "BatchNorm":
		return d.node(&graph.BatchNorm{Epsilon: 1}, v, d.weight(c), d.weight(c), d.weight(c), d.weight(c)), rows
	case "Resize":
		o := &graph.Resize{Mode: rapid.SampledFrom([]graph.ResizeMode{graph.ResizeNearest, graph.ResizeLinear}).Draw(d.T, "mode"), Coordinates: graph.HalfPixel,
			Rounding: graph.RoundFloor, Sizes: append([]int64{}, s...), Scales: []float64{1, 1, 1, 1}}
		a := d.axis(v, rows)
		o.Sizes[a], o.Scales[a] = 2*s[a], 2
		return d.node(o, v), rows
	case "GridSample":
		if rowElements/s[0]%2 != 0 {
			return d.window("Conv", x)
		}
		grid := d.node(&graph.Reshape{Shape: []int64{s[0], 1, rowElements / s[0] / 2, 2}}, v)
		return d.node(&graph.GridSample{Mode: graph.ResizeLinear, Padding: graph.SampleBorder}, v, grid), rows
	case "RoiAlign", "MaxRoiPool":
		r := d.exactly(x, d.each)
		rois := d.node(&graph.Slice{Start: []int64{0, 0}, Size: []int64{d.n, 4}, Step: []int64{1, 1}}, r)
		images := d.node(&graph.Slice{Start: []int64{0, 4}, Size: []int64{d.n, 1}, Step: []int64{1, 1}}, r)
		features := v
		if d.one(2, "features") {
			features, s = d.weight(1, 2, 3, 3), []int64{1}
		}
		images = d.node(&graph.Reshape{Shape: []int64{d.n}}, d.indices(images, s[0]))
		if kind == "RoiAlign" {
			return d.node(&graph.RoiAlign{Mode: graph.RoiAverage, Height: 2, Width: 2, SamplingRatio: 1, SpatialScale: 1}, features, rois, images), 0
		}
		images = d.node(&graph.Cast{To: graph.F32}, d.node(&graph.Reshape{Shape: []int64{d.n, 1}}, images))
		return d.node(&graph.MaxRoiPool{Height: 2, Width: 2, SpatialScale: 1}, features, d.node(&graph.Concat{Axis: 1}, images, rois)), 0
	case "Col2Im":
		if d.each/4%2 != 0 {
			return d.window("Conv", x)
		}
		v = d.exactly(x, d.each/4, 4)
		return d.node(&graph.Col2Im{Image: []int64{1, 5}, Block: []int64{1, 2}, Strides: twice(1), Dilations: twice(1), PadsBegin: twice(0), PadsEnd: twice(0)}, v), 0
	}
	v = d.exactly(x, d.each/4, 2, 2)
	return d.node(&graph.Det{}, v), 0
}

// product draws products, attention and recurrent operators.
func (d *rowDraw) product(kind string, x graph.TensorID) (graph.TensorID, int) {
	tokens := func() graph.TensorID { return d.exactly(d.pick(), d.each/4, 4) }
	steps := d.each / 4
	switch kind {
	case "MatMul", "IntegerMatMul":
		v, rows := d.view(x, rapid.IntRange(2, 3).Draw(d.T, "rank"))
		s := d.b.Type(v).Shape
		w := d.weight(s[len(s)-1], 3)
		if kind == "IntegerMatMul" {
			q := d.node(&graph.Quantize{To: graph.U8, Precision: graph.F32}, v, d.scale())
			return d.node(&graph.IntegerMatMul{To: graph.F32}, q, d.node(&graph.Cast{To: graph.I8}, w), graph.None, graph.None, graph.None, d.weight(3)), rows
		}
		switch rapid.IntRange(0, 2).Draw(d.T, "product") {
		case 0:
			perm := straightAxes(len(s))
			perm[len(s)-1], perm[len(s)-2] = perm[len(s)-2], perm[len(s)-1]
			return d.node(&graph.MatMul{}, v, d.node(&graph.Transpose{Perm: perm}, v)), rows
		case 1:
			return d.node(&graph.MatMul{}, d.weight(2, s[len(s)-2]), v), rows
		}
		return d.node(&graph.MatMul{}, v, w), rows
	case "Gemm":
		v, rows := d.view(x, 2)
		s := d.b.Type(v).Shape
		if d.slip() {
			return d.node(&graph.Gemm{TransA: true, Alpha: 1, Beta: 1}, v, d.weight(s[0], 3), d.weight(3)), 1
		}
		if d.one(2, "other way") {
			return d.node(&graph.Gemm{TransB: true, Alpha: 1, Beta: 1}, d.weight(3, s[1]), v), 1
		}
		return d.node(&graph.Gemm{Alpha: 1, Beta: 1}, v, d.weight(s[1], 3), d.weight(1, 3)), rows
	case "LayerNorm":
		v, rows := d.view(x, 3)
		s := d.b.Type(v).Shape
		a := d.int(1, 2, "axis")
		if d.slip() {
			a = 0
		}
		return d.node(&graph.LayerNorm{Axis: a, Epsilon: 1e-3}, v, d.weight(s[2]), d.weight(s[2])), rows
	case "RMSNorm":
		v, rows := d.view(x, 3)
		return d.node(&graph.RMSNorm{Axis: 2, Epsilon: 1e-3}, v, d.weight(d.b.Type(v).Shape[2])), rows
	case "Attention":
		o := &graph.Attention{Heads: 2, KVHeads: 2, Scale: 0.5, Causal: d.one(2, "causal"), Scores: graph.ScoresRaw}
		v := tokens()
		if d.one(3, "heads of rows") { // the rows are heads, or a sequence
			q := d.node(&graph.Reshape{Shape: []int64{1, d.n, steps, 4}}, v)
			o.Heads, o.KVHeads = d.n, d.n
			return d.node(o, q, q, q), 1
		}
		bias := graph.None
		if d.one(2, "bias") {
			bias = d.node(&graph.Reshape{Shape: []int64{d.n, 1, 1, steps}}, d.node(&graph.Slice{Start: []int64{0, 0, 0}, Size: []int64{d.n, steps, 1}, Step: []int64{1, 1, 1}}, v))
		}
		return d.node(o, v, tokens(), tokens(), bias), 0
	case "LinearAttention":
		v := tokens()
		return d.node(&graph.LinearAttention{Heads: 2, KVHeads: 2, Scale: 1}, v, v, tokens()), 0
	case "ViewedAttention": // the primitives that a pass makes it of
		h := d.node(&graph.Reshape{Shape: []int64{d.n, steps, 2, 2}}, tokens())
		q := d.node(&graph.Transpose{Perm: []int64{0, 2, 1, 3}}, h)
		k := d.node(&graph.Transpose{Perm: []int64{0, 2, 3, 1}}, h)
		if d.slip() { // heads of all rows together
			q = d.node(&graph.Reshape{Shape: []int64{1, 2, d.n * steps, 2}}, q)
			k = d.node(&graph.Reshape{Shape: []int64{1, 2, 2, d.n * steps}}, k)
		}
		p := d.node(&graph.MatMul{}, q, k)
		p = d.node(&graph.Binary{Fn: graph.Mul}, p, d.b.AddConst("scale", f32(), bytesOf([]float32{0.5})))
		p = d.node(&graph.Softmax{Axis: 3}, p)
		y := d.node(&graph.Transpose{Perm: []int64{0, 2, 1, 3}}, d.node(&graph.MatMul{}, p, q))
		return y, 0
	case "LSTM", "GRU", "RNN":
		v := tokens()
		first := d.one(2, "batch first")
		rows := 0
		if !first && !d.slip() {
			v, rows = d.node(&graph.Transpose{Perm: []int64{1, 0, 2}}, v), 2
		} else if !first {
			rows = 3
		}
		switch kind {
		case "LSTM":
			o := &graph.LSTM{Hidden: 2, Direction: "forward", Activations: []string{"Sigmoid", "Tanh", "Tanh"}, ActAlpha: make([]float64, 3), ActBeta: make([]float64, 3), BatchFirst: first}
			return d.node(o, v, d.weight(1, 8, 4), d.weight(1, 8, 2)), rows
		case "GRU":
			o := &graph.GRU{Hidden: 2, Direction: "reverse", Activations: []string{"Sigmoid", "Tanh"}, ActAlpha: make([]float64, 2), ActBeta: make([]float64, 2), BatchFirst: first}
			return d.node(o, v, d.weight(1, 6, 4), d.weight(1, 6, 2)), rows
		}
		o := &graph.RNN{Hidden: 2, Direction: "forward", Activations: []string{"Tanh"}, ActAlpha: make([]float64, 1), ActBeta: make([]float64, 1), BatchFirst: first}
		return d.node(o, v, d.weight(1, 2, 4), d.weight(1, 2, 2)), rows
	}
	return graph.None, 0
}

// wide draws operators that run graphs, and what is left.
func (d *rowDraw) wide(kind string, x graph.TensorID) (graph.TensorID, int) {
	switch kind {
	case "TfIdf":
		v, rows := d.view(x, 2)
		o := &graph.TfIdf{MinGram: 1, MaxGram: 1, Counts: []int64{0}, Columns: []int64{0, 1}, Pool: []int64{0, 1}}
		return d.node(o, d.node(&graph.Cast{To: graph.I32}, v)), rows
	case "DFT":
		v := d.exactly(x, d.each/2, 2)
		if d.slip() {
			return d.node(&graph.DFT{Axis: 0, Length: d.n}, v), 0
		}
		return d.node(&graph.DFT{Axis: 1, Length: d.each / 2}, v), 0
	case "Assert":
		ok, all := d.condition(x)
		d.asserts = d.asserts || all
		require.NoError(d, d.b.NodeTo(&graph.Assert{Want: true, Message: "assumed"}, "Assert", nil, ok))
		return x, d.rows[x]
	case "If", "Loop":
		if d.depth == 2 {
			return x, d.rows[x]
		}
		v := d.exactly(x, d.each)
		if kind == "If" {
			op := &graph.If{Then: d.inner("then", nil), Else: d.inner("else", nil)}
			c, _ := d.condition(v)
			return d.node(op, c), 0
		}
		op := &graph.Loop{Count: d.int(0, 3, "count")}
		in := []graph.TensorID{graph.None, graph.None, v}
		if d.one(3, "conditional") {
			in[1], _ = d.condition(x)
		}
		op.Body = d.inner("body", []graph.TensorID{d.b.AddLocal("i", graph.TensorType{DType: graph.I64}), d.b.AddLocal("carried", f32(d.n, d.each))})
		return d.node(op, in...), 0
	}
	return graph.None, 0
}

// condition returns one bool: of a weight, or seldom of all rows.
func (d *rowDraw) condition(x graph.TensorID) (c graph.TensorID, all bool) {
	y := d.weight(1)
	if all = d.slip(); all {
		y = d.node(&graph.Reduce{Fn: graph.ReduceMax, Axes: []int64{0}}, d.node(&graph.Reshape{Shape: []int64{rowElements}}, x))
		y = d.node(&graph.Reshape{Shape: []int64{1}}, y)
	}
	return d.node(&graph.Binary{Fn: graph.Less}, y, d.b.AddConst("most", f32(1), bytesOf([]float32{d.limit()}))), all
}

func (d *rowDraw) limit() float32 { return float32(d.int(0, 100, "limit")) }

// inner draws a graph that a node runs, which gives one tensor.
func (d *rowDraw) inner(name string, params []graph.TensorID) graph.GraphID {
	around, pool := d.b.CurrentGraph(), d.pool
	defer func() { d.b.SetGraph(around); d.pool, d.depth = pool, d.depth-1 }()
	d.depth++
	g := d.b.BeginGraph(name)
	d.pool = append([]graph.TensorID{}, pool...)
	if len(params) > 1 {
		d.rows[params[1]] = 0
		d.pool = append(d.pool, params[1])
	}
	d.nodes(2)
	d.b.SetParams(g, params, []graph.TensorID{d.exactly(d.pool[len(d.pool)-1], d.each)})
	return g
}
