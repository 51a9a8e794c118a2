package autodiff_test

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/graph"
)

// inside builds a graph that a node runs.
func (d *draw) inside(name string, params []graph.TensorID, build func() []graph.TensorID) graph.GraphID {
	around := d.b.CurrentGraph()
	g := d.b.BeginGraph(name)
	d.b.SetParams(g, params, build())
	d.b.SetGraph(around)
	return g
}

func (d *draw) unary(fn graph.UnaryFn, x graph.TensorID) graph.TensorID {
	return d.node1(&graph.Unary{Fn: fn}, x)
}

func (d *draw) binary(fn graph.BinaryFn, x, y graph.TensorID) graph.TensorID {
	return d.node1(&graph.Binary{Fn: fn}, x, y)
}

var controlCases = map[string]func(*draw){
	"If": func(d *draw) {
		shape := d.shape(2)
		x, y, z := d.x(shape, -2, 2), d.x(shape, -2, 2), d.x(shape, 0.5, 2)
		sum := d.binary(graph.Add, x, z)
		then := d.inside("then", nil, func() []graph.TensorID {
			p := d.binary(graph.Mul, sum, y)
			return []graph.TensorID{d.unary(graph.Sin, p), p}
		})
		otherwise := d.inside("else", nil, func() []graph.TensorID {
			return []graph.TensorID{x, d.binary(graph.Div, sum, z)}
		})
		d.give(&graph.If{Then: then, Else: otherwise}, d.bools([]int64{}))
	},
	"Loop": func(d *draw) {
		shape := d.shape(2)
		x, w, once := d.x(shape, -1, 1), d.x(shape, -1, 1), d.x(shape, -1, 1)
		count := d.size("count", 0, 4)
		rows := d.x(append([]int64{count + 1}, shape...), -1, 1)
		i, a, b, whole := d.b.AddLocal("i", graph.TensorType{DType: graph.I64}), d.b.AddLocal("a", f64(shape...)), d.b.AddLocal("b", f64(shape...)),
			d.b.AddLocal("whole", graph.TensorType{DType: graph.I64})
		body := d.inside("body", []graph.TensorID{i, a, b, whole}, func() []graph.TensorID {
			row := d.node1(&graph.Gather{}, rows, i)
			next := d.binary(graph.Add, d.binary(graph.Mul, d.unary(graph.Sin, a), w), row)
			other := d.binary(graph.Mul, b, d.unary(graph.Cos, next))
			collected := d.binary(graph.Mul, other, a)
			inner := d.binary(graph.Add, whole, i)
			results := []graph.TensorID{next, other, inner, collected}
			if d.yes("swap") {
				results[0], results[1] = other, a
			}
			return results
		})
		out := d.node(&graph.Loop{Body: body, Count: count}, graph.None, graph.None, x, once, d.i64s([]int64{}, 3))
		// Every input has to have some influence.
		d.results = append(d.results, out[0], out[1], out[3], d.binary(graph.Add, x, d.binary(graph.Mul, w, once)), d.unary(graph.Sin, rows))
	},
	"Loop/nested": func(d *draw) {
		shape := d.shape(1)
		x, w := d.x(shape, -1, 1), d.x(shape, -1, 1)
		i, a := d.b.AddLocal("i", graph.TensorType{DType: graph.I64}), d.b.AddLocal("a", f64(shape...))
		j, c := d.b.AddLocal("j", graph.TensorType{DType: graph.I64}), d.b.AddLocal("c", f64(shape...))
		cond := d.bools([]int64{})
		body := d.inside("outer", []graph.TensorID{i, a}, func() []graph.TensorID {
			scaled := d.binary(graph.Mul, a, w)
			inner := d.inside("inner", []graph.TensorID{j, c}, func() []graph.TensorID {
				then := d.inside("then", nil, func() []graph.TensorID { return []graph.TensorID{d.binary(graph.Mul, c, scaled)} })
				otherwise := d.inside("else", nil, func() []graph.TensorID { return []graph.TensorID{d.unary(graph.Sin, c)} })
				return d.node(&graph.If{Then: then, Else: otherwise}, cond)
			})
			return d.node(&graph.Loop{Body: inner, Count: 2}, graph.None, graph.None, d.unary(graph.Cos, scaled))
		})
		d.give(&graph.Loop{Body: body, Count: 2}, graph.None, graph.None, x)
	},
}

// recurrent draws the operands of a recurrent operator.
func (d *draw) recurrent(direction string, batchFirst bool, gates, hidden int64, lstm bool) []graph.TensorID {
	steps, batch, input := d.size("steps", 1, 3), d.size("batch", 1, 2), d.size("input", 1, 2)
	dirs := int64(1)
	if direction == "bidirectional" {
		dirs = 2
	}
	x, state := []int64{steps, batch, input}, []int64{dirs, batch, hidden}
	if batchFirst {
		x, state = []int64{batch, steps, input}, []int64{batch, dirs, hidden}
	}
	in := []graph.TensorID{d.x(x, -1, 1), d.x([]int64{dirs, gates * hidden, input}, -1, 1), d.x([]int64{dirs, gates * hidden, hidden}, -1, 1)}
	optional := func(shape []int64) {
		t := graph.None
		if d.yes("operand") {
			t = d.x(shape, -1, 1)
		}
		in = append(in, t)
	}
	optional([]int64{dirs, 2 * gates * hidden})
	lens := graph.None
	if d.yes("lengths") {
		var data []byte
		for b := range batch {
			n := d.size("length", 0, steps)
			if b == 0 {
				n = steps
			}
			data = binary.LittleEndian.AppendUint32(data, uint32(n))
		}
		lens = d.fixed(graph.TensorType{DType: graph.I32, Shape: []int64{batch}}, data)
	}
	in = append(in, lens)
	optional(state)
	if lstm {
		optional(state)
		optional([]int64{dirs, 3 * hidden})
	}
	return in
}

func (d *draw) direction() (string, int) {
	direction := rapid.SampledFrom([]string{"forward", "reverse", "bidirectional"}).Draw(d.T, "direction")
	if direction == "bidirectional" {
		return direction, 2
	}
	return direction, 1
}

// activations draws the functions of cells: ONNX's usual ones, or others that are smooth.
func (d *draw) activations(functions, dirs int) (names []string, alpha, beta []float64) {
	usual := d.yes("usual")
	for i := range functions * dirs {
		name := rapid.SampledFrom([]string{"Tanh", "Sigmoid", "Affine", "ScaledTanh", "Softplus"}).Draw(d.T, "activation")
		if usual && functions > 1 && i%functions == 0 {
			name = "Sigmoid"
		} else if usual {
			name = "Tanh"
		}
		names = append(names, name)
		alpha, beta = append(alpha, 0.75), append(beta, 0.5)
	}
	return names, alpha, beta
}

// attentionGradient draws the gradient of an attention.
func (d *draw) attentionGradient() {
	kv := d.size("heads of K", 1, 2)
	o := &graph.AttentionGradient{KVHeads: kv, Heads: kv * d.size("shared", 1, 2), Scale: 0.75, Causal: d.yes("causal"), Scores: graph.ScoresRaw}
	if d.yes("softcap") {
		o.Softcap = 1.5
	}
	batch, rows, cols, size, width := d.size("batch", 1, 2), d.size("rows", 1, 2), d.size("columns", 1, 3), d.size("size", 1, 2), d.size("width", 1, 2)
	in := []graph.TensorID{d.x([]int64{batch, o.Heads, rows, size}, -1, 1), d.x([]int64{batch, kv, cols, size}, -1, 1), d.x([]int64{batch, kv, cols, width}, -1, 1), graph.None, graph.None}
	if d.yes("bias") {
		in[3] = d.x(d.broadcast([]int64{batch, o.Heads, rows, cols}), -1, 1)
	}
	d.give(o, append(in, d.x([]int64{batch, o.Heads, rows, width}, -1, 1))...)
}

var recurrentCases = map[string]func(*draw){
	"LSTM": func(d *draw) {
		o := &graph.LSTM{Hidden: d.size("hidden", 1, 2), InputForget: d.yes("input forget"), BatchFirst: d.yes("batch first")}
		var dirs int
		o.Direction, dirs = d.direction()
		o.Activations, o.ActAlpha, o.ActBeta = d.activations(3, dirs)
		d.give(o, d.recurrent(o.Direction, o.BatchFirst, 4, o.Hidden, true)...)
	},
	"GRU": func(d *draw) {
		o := &graph.GRU{Hidden: d.size("hidden", 1, 2), LinearBeforeReset: d.yes("linear"), BatchFirst: d.yes("batch first")}
		var dirs int
		o.Direction, dirs = d.direction()
		o.Activations, o.ActAlpha, o.ActBeta = d.activations(2, dirs)
		d.give(o, d.recurrent(o.Direction, o.BatchFirst, 3, o.Hidden, false)...)
	},
	"RNN": func(d *draw) {
		o := &graph.RNN{Hidden: d.size("hidden", 1, 2), BatchFirst: d.yes("batch first")}
		var dirs int
		o.Direction, dirs = d.direction()
		o.Activations, o.ActAlpha, o.ActBeta = d.activations(1, dirs)
		d.give(o, d.recurrent(o.Direction, o.BatchFirst, 1, o.Hidden, false)...)
	},
	"AttentionGradient": (*draw).attentionGradient,
	"RecurrentGradient": func(d *draw) {
		o := &graph.RecurrentGradient{Cell: rapid.SampledFrom([]string{"lstm", "gru", "linear gru", "rnn"}).Draw(d.T, "cell"), Hidden: d.size("hidden", 1, 2), BatchFirst: d.yes("batch first")}
		gates := map[string]int64{"lstm": 4, "gru": 3, "linear gru": 3, "rnn": 1}[o.Cell]
		o.Direction, _ = d.direction()
		in := d.recurrent(o.Direction, o.BatchFirst, gates, o.Hidden, false)
		lstm := o.Cell == "lstm"
		if lstm {
			in = append(in, graph.None)
		}
		out := d.node(o.Forward(), in...)
		if lstm && d.yes("initial c") {
			in[6] = d.x(d.b.Type(out[2]).Shape, -1, 1)
			out = d.node(o.Forward(), in...)
		}
		in = append(in[:6:6], append(in[6:], graph.None)[0], out[0], d.x(d.b.Type(out[0]).Shape, -1, 1))
		for i, t := range out[1:] {
			if d.yes("gradient of a state") {
				in = append(append(in, slices.Repeat([]graph.TensorID{graph.None}, 9+i-len(in))...), d.x(d.b.Type(t).Shape, -1, 1))
			}
		}
		d.give(o, in...)
	},
	// Kinks lie where these numbers are not.
	"LSTM/kinks": func(d *draw) {
		o := &graph.LSTM{Hidden: 2, Direction: "forward", Clip: 0.6, Activations: []string{"HardSigmoid", "Softsign", "LeakyRelu"}, ActAlpha: []float64{0.3, 0.7, 0.2}, ActBeta: []float64{0.4, 0, 0}}
		at := 0.0
		fixed := func(shape ...int64) graph.TensorID {
			v := make([]float64, f64(shape...).Elements())
			for i := range v {
				at++
				v[i] = math.Round(math.Sin(at*1.7)*64)/64 + 0x1p-10
			}
			return d.input(shape, v)
		}
		d.give(o, fixed(3, 2, 2), fixed(1, 8, 2), fixed(1, 8, 2), fixed(1, 16))
	},
	"Attention": func(d *draw) {
		kv := d.size("heads of K", 1, 2)
		o := &graph.Attention{KVHeads: kv, Heads: kv * d.size("shared", 1, 2), Scale: 0.75, Past: d.size("past", 0, 1), Causal: d.yes("causal")}
		if d.yes("softcap") {
			o.Softcap = 1.5
		}
		o.Scores = rapid.SampledFrom([]graph.ScoresMode{graph.ScoresRaw, graph.ScoresCapped, graph.ScoresProbabilities}).Draw(d.T, "scores")
		batch, rows, cols, size, width := d.size("batch", 1, 2), d.size("rows", 1, 2), d.size("columns", 1, 3), d.size("size", 1, 2), d.size("width", 1, 2)
		flat := d.yes("flat")
		operand := func(heads, n, size int64) graph.TensorID {
			if flat {
				return d.x([]int64{batch, n, heads * size}, -1, 1)
			}
			return d.x([]int64{batch, heads, n, size}, -1, 1)
		}
		in := []graph.TensorID{operand(o.Heads, rows, size), operand(kv, cols, size), operand(kv, cols, width), graph.None, graph.None}
		scores := []int64{batch, o.Heads, rows, cols}
		switch d.size("bias", 0, 2) {
		case 0:
			in[3] = d.x(d.broadcast(scores), -1, 1)
		case 1:
			in[3] = d.bools(d.broadcast(scores))
		default:
			if !o.Causal && d.yes("biased scores") {
				o.Scores = graph.ScoresBiased
			}
		}
		if o.Scores != graph.ScoresBiased && d.yes("lengths") {
			in[4] = d.indices([]int64{batch}, 1, cols)
		}
		out := d.node(o, in...)
		d.results = append(d.results, out[0])
		if d.yes("scores as result") {
			d.results = append(d.results, out[1])
		}
		require.NotEmpty(d, d.results)
	},
}
