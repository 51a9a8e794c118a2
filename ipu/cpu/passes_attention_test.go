package cpu

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
)

// attentionDraw draws attention in the forms that exporters write.
type attentionDraw struct {
	*netDraw
	batch, heads, rows, size int64
	hides                    bool // by a finite number
}

func (d *attentionDraw) reshape(x graph.TensorID, shape ...int64) graph.TensorID {
	return d.node(&graph.Reshape{Shape: shape}, x)
}

func (d *attentionDraw) transpose(x graph.TensorID, perm ...int64) graph.TensorID {
	return d.node(&graph.Transpose{Perm: perm}, x)
}

// part takes the i-th of n equal parts of an axis.
func (d *attentionDraw) part(x graph.TensorID, axis int, i, n int64) graph.TensorID {
	op := &graph.Slice{}
	for k, size := range d.b.Type(x).Shape {
		start := int64(0)
		if k == axis {
			size /= n
			start = i * size
		}
		op.Start, op.Size, op.Step = append(op.Start, start), append(op.Size, size), append(op.Step, 1)
	}
	return d.node(op, x)
}

// operands divides [batch, rows, 4] into Q, K and V, each [batch, heads, rows,
// size], or [batch·heads, rows, size].
func (d *attentionDraw) operands(x graph.TensorID) (in [3]graph.TensorID) {
	b, h, t, s := d.batch, d.heads, d.rows, d.size
	form := rapid.SampledFrom([]string{"joined", "interleaved", "split", "separate", "sequence first", "flat"}).Draw(d.T, "form")
	if form == "sequence first" || form == "flat" {
		x = d.transpose(x, 1, 0, 2)
	}
	if form == "separate" {
		for i := range in {
			in[i] = d.transpose(d.reshape(d.node(&graph.MatMul{}, x, d.param(false, 4, h*s)), b, t, h, s), 0, 2, 1, 3)
		}
		return in
	}
	x = d.node(&graph.MatMul{}, x, d.param(false, 4, 3*h*s))
	switch form {
	case "joined":
		x = d.transpose(d.reshape(x, b, t, 3, h, s), 2, 0, 3, 1, 4)
	case "interleaved":
		x = d.transpose(d.reshape(x, b, t, h, 3, s), 3, 0, 2, 1, 4)
	}
	for i := range in {
		switch form {
		case "joined", "interleaved":
			in[i] = d.reshape(d.part(x, 0, int64(i), 3), b, h, t, s)
		case "split":
			in[i] = d.transpose(d.reshape(d.part(x, 2, int64(i), 3), b, t, h, s), 0, 2, 1, 3)
		case "sequence first":
			in[i] = d.transpose(d.reshape(d.part(x, 2, int64(i), 3), t, b*h, s), 1, 0, 2)
		case "flat":
			in[i] = d.transpose(d.reshape(d.part(x, 2, int64(i), 3), t, b, h, s), 1, 2, 0, 3)
		}
	}
	return in
}

// mask adds to scores, or replaces some. No row is hidden as a whole.
func (d *attentionDraw) mask(scores graph.TensorID) graph.TensorID {
	hidden := rapid.SampledFrom([]float32{-1e9, -math.MaxFloat32, float32(math.Inf(-1))}).Draw(d.T, "hidden")
	n := int(d.rows)
	triangle := make([]bool, n*n)
	for i := range n {
		for j := range n {
			triangle[i*n+j] = j <= i
		}
	}
	some := func() graph.TensorID {
		v := make([]byte, n*n)
		for i := range v {
			if i%n == 0 || i%3 == 1 || d.yes("shown") {
				v[i] = 1
			}
		}
		return d.b.AddConst("some", graph.TensorType{DType: graph.Bool, Shape: []int64{int64(n), int64(n)}}, v)
	}
	mask := rapid.SampledFrom([]string{"none", "row", "rows", "heads", "two", "causal", "causal where", "where", "where not"}).Draw(d.T, "mask")
	d.hides = slices.Contains([]string{"causal", "causal where", "where", "where not"}, mask) && !math.IsInf(float64(hidden), 0)
	switch mask {
	case "row":
		return d.binary(graph.Add, scores, d.param(false, 1, 1, int64(n)))
	case "rows":
		return d.binary(graph.Add, scores, d.param(false, int64(n), int64(n)))
	case "heads":
		return d.binary(graph.Add, scores, d.param(false, append(append([]int64{}, d.b.Type(scores).Shape[:d.b.Type(scores).Rank()-2]...), int64(n), int64(n))...))
	case "two":
		return d.binary(graph.Add, d.binary(graph.Add, scores, d.param(false, int64(n))), d.param(false, int64(n), int64(n)))
	case "causal":
		v := make([]float32, n*n)
		for i, shown := range triangle {
			if !shown {
				v[i] = hidden
			}
		}
		return d.binary(graph.Add, scores, d.b.AddConst("causal", f32(1, int64(n), int64(n)), bytesOf(v)))
	case "causal where":
		v := make([]byte, n*n)
		for i, shown := range triangle {
			if shown {
				v[i] = 1
			}
		}
		cond := d.b.AddConst("causal", graph.TensorType{DType: graph.Bool, Shape: []int64{1, int64(n), int64(n)}}, v)
		return d.node(&graph.Where{}, cond, scores, d.number(hidden))
	case "where":
		return d.node(&graph.Where{}, some(), scores, d.number(hidden))
	case "where not":
		return d.node(&graph.Where{}, d.unary(graph.Not, some()), d.number(hidden), scores)
	}
	return scores
}

// TestPassesOnAttention compares attention before and after the passes, which
// are to find it in every form.
func TestPassesOnAttention(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := func(lo, hi int64, name string) int64 { return rapid.Int64Range(lo, hi).Draw(t, name) }
		d := &attentionDraw{&netDraw{T: t, model: newModel("attention")}, n(1, 2, "batch"), n(1, 3, "heads"), n(4, 40, "rows"), n(1, 20, "size"), false}
		x := d.b.AddLocal("x", f32(d.batch, d.rows, 4))
		g := d.b.BeginGraph("main")
		in := d.operands(x)
		q, k, v := in[0], in[1], in[2]
		scale := rapid.SampledFrom([]string{"none", "Q", "both", "product", "quotient"}).Draw(t, "scale")
		if scale == "Q" || scale == "both" {
			q = d.binary(graph.Mul, q, d.number(0.7))
		}
		if scale == "both" {
			k = d.binary(graph.Div, k, d.number(1.5))
		}
		rank := d.b.Type(k).Rank()
		perm := []int64{0, 1, 3, 2}
		if rank == 3 {
			perm = []int64{0, 2, 1}
		}
		s := d.node(&graph.MatMul{}, q, d.transpose(k, perm...))
		switch scale {
		case "product":
			s = d.binary(graph.Mul, s, d.number(0.7))
		case "quotient":
			s = d.binary(graph.Div, s, d.number(3))
		}
		windows := d.yes("windows")
		if windows {
			s = d.binary(graph.Add, s, d.param(false, d.rows, d.rows))
			shape := d.b.Type(s).Shape
			s = d.reshape(s, append([]int64{1, 1}, shape...)...)
			window := slices.Clone(shape)
			for i := 1; i < rank-2; i++ {
				window[i] = 1
			}
			s = d.binary(graph.Add, s, d.param(false, window...))
			s = d.reshape(s, shape...)
		}
		s = d.mask(s)
		p := d.node(&graph.Softmax{Axis: int64(rank - 1)}, s)
		if d.yes("without NaN") {
			p = d.node(&graph.Where{}, d.unary(graph.Not, d.node(&graph.Binary{Fn: graph.Equal}, p, p)), d.number(0), p)
		}
		y := d.node(&graph.MatMul{}, p, v)
		if d.yes("merged") {
			if rank == 3 {
				y = d.reshape(y, d.batch, d.heads, d.rows, d.size)
			}
			if d.yes("sequence first") {
				y = d.transpose(y, 2, 0, 1, 3)
			} else {
				y = d.transpose(y, 0, 2, 1, 3)
			}
		}
		y = d.reshape(y, d.b.Type(y).Elements())
		d.finish(x, y, g)
		exe := executable(t, d.b)

		all, err := encoding.Decode(optimized(t, exe, nil))
		require.NoError(t, err)
		kinds := map[string]int{}
		for _, n := range all.Graphs[0].Nodes {
			kinds[n.Op.Kind()]++
		}
		if !d.hides || !windows { // else what is added besides may hide scores as well
			require.Equal(t, 1, kinds["ViewedAttention"], "%v", kinds)
			require.Zero(t, kinds["Softmax"]+kinds["Slice"], "%v", kinds)
		}

		plain, err := encoding.Decode(exe)
		require.NoError(t, err)
		reference := newInterpreter(plain)
		_, want := d.start(t, reference)
		run(t, reference, 1)
		for name, disabled := range someWays(t) {
			e, err := New(ipu.EngineConfig{Name: name, Executable: optimized(t, exe, disabled), Options: opt("threads", "2")})
			require.NoError(t, err)
			load(t, e)
			_, got := d.start(t, e)
			run(t, e, 1)
			require.InDeltaSlice(t, want, got, 1e-4, name)
			require.NoError(t, e.Close())
		}
	})
}
