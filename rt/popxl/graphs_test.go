package popxl_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/rt/popxl"
	"github.com/popefgen/popefgen/rt/popxl/ops"
)

type tensor = popxl.Tensor[float32]

// linear is a graph y = x·w + b.
type linear struct {
	*popxl.Graph
	x, w, b popxl.Param[float32]
	y       popxl.Result[float32]
}

func newLinear(ir *popxl.Ir) *linear {
	l := &linear{}
	l.Graph = popxl.NewGraph(ir, "linear", func(g *popxl.Graph) {
		l.x, l.w, l.b = popxl.NewParam[float32](g, "x", 2, 2), popxl.NewParam[float32](g, "w", 2, 2), popxl.NewParam[float32](g, "b", 2)
		l.y = popxl.NewResult(g, ops.Add(ops.MatMul(l.x.Tensor(), l.w.Tensor()), l.b.Tensor()))
	})
	return l
}

func (l *linear) of(x, w, b tensor) tensor { return l.y.Of(l.Call(l.x.Is(x), l.w.Is(w), l.b.Is(b))) }

// apply is the same in Go.
func apply(x, w, b []float32) []float32 {
	y := make([]float32, 4)
	for i := range y {
		r, c := i/2, i%2
		y[i] = x[2*r]*w[c] + x[2*r+1]*w[2+c] + b[c]
	}
	return y
}

// TestCalls: one graph, called with several arguments, in a loop, in a choice and in another graph.
func TestCalls(t *testing.T) {
	ir := popxl.New("calls")
	l := newLinear(ir)
	require.NoError(t, ir.Err())
	x, c := popxl.NewInput[float32](ir, "x", 2, 2), popxl.NewInput[bool](ir, "c")
	w, b := popxl.NewVariable(ir, "w", []float32{1, 2, 3, 4}, 2, 2), popxl.NewVariable(ir, "b", []float32{10, 20}, 2)
	v := popxl.Constant(ir, []float32{0, 1, 1, 0}, 2, 2)
	zero := popxl.Constant(ir, []float32{0, 0}, 2)
	one := l.Call(l.x.Is(x.Load()), l.w.Is(w.Tensor()), l.b.Is(b.Tensor()))
	require.Equal(t, []popxl.Operand{x.Load(), w.Tensor(), b.Tensor()}, one.Inputs())
	require.Equal(t, []popxl.Operand{l.y.Of(one)}, one.Outputs())
	require.Equal(t, l.Graph, one.Graph())
	require.Equal(t, int64(1), one.Count())
	popxl.NewOutput("one", l.y.Of(one))
	popxl.NewOutput("two", l.of(l.y.Of(one), v, zero))
	popxl.NewOutput("given", popxl.InCall(one, l.x.Tensor()))
	popxl.NewOutput("loop", ops.Repeat(3, x.Load(), func(x tensor) tensor { return l.of(x, w.Tensor(), zero) }))
	repeat := l.Repeat(3, l.x.From(x.Load(), l.y), l.w.Is(w.Tensor()), l.b.Is(zero))
	require.Equal(t, int64(3), repeat.Count())
	popxl.NewOutput("repeat", l.y.Of(repeat))
	popxl.NewOutput("same", l.y.Of(l.Repeat(2, l.x.Is(x.Load()), l.w.Is(w.Tensor()), l.b.Is(zero))))
	popxl.NewOutput("never", l.y.Of(l.Repeat(0, l.x.Is(x.Load()), l.w.Is(w.Tensor()), l.b.Is(zero))))

	var p popxl.Param[float32]
	var twice, sum popxl.Result[float32]
	outer := popxl.NewGraph(ir, "outer", func(g *popxl.Graph) {
		p = popxl.NewParam[float32](g, "p", 2, 2)
		y := l.of(l.of(p.Tensor(), v, zero), w.Tensor(), b.Tensor()) // w and b are those of the Ir
		twice = popxl.NewResult(g, y)
		// A loop and a choice, of which each call has a copy.
		y = ops.Repeat(2, y, func(y tensor) tensor { return ops.Add(y, p.Tensor()) })
		sum = popxl.NewResult(g, ops.Conditional(c.Load(), func() tensor { return ops.Negate(y) }, func() tensor { return y }))
	})
	call := outer.Call(p.Is(x.Load()))
	popxl.NewOutput("outer", twice.Of(call))
	popxl.NewOutput("sum", sum.Of(outer.Call(p.Is(sum.Of(call)))))
	choice := popxl.Choose(c.Load(),
		func() *popxl.CallInfo { return l.Call(l.x.Is(x.Load()), l.w.Is(v), l.b.Is(zero)) },
		func() *popxl.CallInfo { return l.Call(l.x.Is(x.Load()), l.w.Is(w.Tensor()), l.b.Is(b.Tensor())) })
	popxl.NewOutput("choice", l.y.Of(choice))

	got := run(t, ir, map[string]any{"x": []float32{1, 2, 3, 4}, "c": []bool{true}})
	in, ws, bs, vs, none := []float32{1, 2, 3, 4}, []float32{1, 2, 3, 4}, []float32{10, 20}, []float32{0, 1, 1, 0}, []float32{0, 0}
	powers := apply(apply(apply(in, ws, none), ws, none), ws, none)
	two := apply(apply(in, vs, none), ws, bs)
	wantSum := func(x []float32) []float32 {
		y := apply(apply(x, vs, none), ws, bs)
		for i := range y {
			y[i] = -(y[i] + 2*x[i])
		}
		return y
	}
	for name, want := range map[string][]float32{
		"one": apply(in, ws, bs), "two": apply(apply(in, ws, bs), vs, none), "given": in, "loop": powers, "repeat": powers, "same": apply(in, ws, none), "never": {0, 0, 0, 0},
		"outer": two, "sum": wantSum(wantSum(in)), "choice": apply(in, vs, none),
	} {
		require.Equal(t, want, decode[float32](t, got[name]), name)
	}
}

// TestReferences: a graph changes the variables that it is given, one call after the other, and a loop what the iteration before has left.
func TestReferences(t *testing.T) {
	ir := popxl.New("references")
	x := popxl.NewInput[float32](ir, "x")
	a, b := popxl.NewVariable(ir, "a", []float32{1}), popxl.NewVariable(ir, "b", []float32{10})
	var to popxl.Ref[float32]
	var by popxl.Param[float32]
	var before, now popxl.Result[float32]
	g := popxl.NewGraph(ir, "accumulate", func(g *popxl.Graph) {
		to, by = popxl.NewRef[float32](g, "to"), popxl.NewParam[float32](g, "by")
		before = popxl.NewResult(g, to.Tensor())
		to.Assign(ops.Add(to.Tensor(), by.Tensor()))
		to.Assign(ops.Mul(to.Tensor(), popxl.Constant(ir, []float32{2})))
		now = popxl.NewResult(g, to.Tensor())
	})
	first := g.Call(to.Is(a), by.Is(x.Load()))
	y := popxl.NewOutput("y", now.Of(first))
	z := popxl.NewOutput("z", before.Of(g.Call(to.Is(a), by.Is(now.Of(first)))))
	loop := popxl.NewOutput("loop", now.Of(g.Repeat(3, to.Is(b), by.Is(x.Load()))))
	var p, q popxl.Ref[float32]
	c, d := popxl.NewVariable(ir, "c", []float32{5}), popxl.NewVariable(ir, "d", []float32{7})
	popxl.NewGraph(ir, "swap", func(g *popxl.Graph) {
		p, q = popxl.NewRef[float32](g, "p"), popxl.NewRef[float32](g, "q")
		was := p.Tensor()
		p.Assign(q.Tensor())
		q.Assign(was)
	}).Call(p.Is(c), q.Is(d))
	s := session(t, ir)
	cs, ds := []float32{0}, []float32{0}
	ys, zs, ls, as, bs := y.Make(), z.Make(), loop.Make(), []float32{0}, []float32{0}
	require.NoError(t, s.Run(t.Context(), x.Feed([]float32{3}), y.Into(ys), z.Into(zs), loop.Into(ls)))
	require.NoError(t, s.Variables(t.Context(), a.Into(as), b.Into(bs), c.Into(cs), d.Into(ds)))
	require.Equal(t, [][]float32{{7}, {5}}, [][]float32{cs, ds})
	require.Equal(t, [][]float32{{8}, {8}, {32}, {122}, {122}}, [][]float32{ys, zs, as, bs, ls}) // a: 1 → 8 → 32, b: 10 → 26 → 58 → 122
}

// TestStreamsOfGraphs: every call of a graph loads the next tensor and stores one, in a loop and in a graph that calls it, too.
func TestStreamsOfGraphs(t *testing.T) {
	ir := popxl.New("streams")
	x, y := popxl.NewInput[float32](ir, "x"), popxl.DeclareOutput[float32](ir, "y")
	scale := popxl.NewVariable(ir, "scale", []float32{10})
	g := popxl.NewGraph(ir, "pair", func(*popxl.Graph) {
		a, b := x.Next(), x.Next()
		y.Store(ops.Sub(ops.Mul(a, scale.Tensor()), b))
	})
	outer := popxl.NewGraph(ir, "outer", func(*popxl.Graph) {
		g.Call()
		y.Store(x.Next())
		g.Repeat(2)
	})
	g.Call()
	outer.Repeat(2)
	g.Call()
	require.Empty(t, cmp.Diff([]popxl.Transfers{{"x", true, 2 + 2*7 + 2}, {"y", false, 1 + 2*4 + 1}}, ir.Transfers()))
	s := session(t, ir)
	in := make([]float32, 18)
	for i := range in {
		in[i] = float32(i * i)
	}
	pair := func(i int) float32 { return 10*in[i] - in[i+1] }
	got := y.Make()
	require.NoError(t, s.Run(t.Context(), x.Feed(in), y.Into(got)))
	require.Equal(t, []float32{pair(0), pair(2), in[4], pair(5), pair(7), pair(9), in[11], pair(12), pair(14), pair(16)}, got)
}

// TestGradientGraphs: one gradient graph serves all calls, and agrees with the gradients of the whole.
func TestGradientGraphs(t *testing.T) {
	ir := popxl.New("gradients")
	x := popxl.NewInput[float32](ir, "x", 2, 2)
	l := newLinear(ir)
	w := popxl.NewVariable(ir, "w", []float32{1, 2, 3, 4}, 2, 2)
	b := popxl.Constant(ir, []float32{10, 20}, 2)
	grad := l.Autodiff(popxl.GradOptions{})
	require.Equal(t, []popxl.Connection{{popxl.FwdGrad, "linear/ops.Add"}, {popxl.Fwd, "linear/x"}, {popxl.Fwd, "linear/w"}}, grad.Inputs())
	require.Equal(t, []popxl.Connection{{popxl.FwdGrad, "linear/x"}, {popxl.FwdGrad, "linear/w"}, {popxl.FwdGrad, "linear/b"}}, grad.Outputs())
	require.Equal(t, "FwdGrad", grad.Outputs()[0].Kind.String())
	one := l.Call(l.x.Is(x.Load()), l.w.Is(w.Tensor()), l.b.Is(b))
	two := l.Call(l.x.Is(ops.Sin(l.y.Of(one))), l.w.Is(w.Tensor()), l.b.Is(b))
	loss := ops.Sum(ops.Mul(l.y.Of(two), l.y.Of(two)))
	popxl.NewOutput("loss", loss)

	// Back through the second call, the sine and the first call, by hand.
	d := popxl.GradOf(popxl.Gradients(loss, l.y.Of(two)), l.y.Of(two))
	second := grad.Call(two, l.y.Gradient(d))
	first := grad.Call(one, l.y.Gradient(ops.Mul(popxl.GradientOf(second, l.x), ops.Cos(l.y.Of(one)))))
	popxl.NewOutput("dx", popxl.GradientOf(first, l.x))
	popxl.NewOutput("dw", ops.Add(popxl.GradientOf(first, l.w), popxl.GradientOf(second, l.w)))
	popxl.NewOutput("db", popxl.GradientOf(second, l.b))
	whole := popxl.Gradients(loss, x.Load(), w.Tensor())
	popxl.NewOutput("whole dx", popxl.GradOf(whole, x.Load()))
	popxl.NewOutput("whole dw", popxl.GradOf(whole, w.Tensor()))
	got := run(t, ir, map[string]any{"x": []float32{0.1, -0.2, 0.3, 0.4}})
	for _, name := range []string{"dx", "dw"} {
		want := decode[float32](t, got["whole "+name])
		require.NotZero(t, want[0])
		require.InDeltaSlice(t, want, decode[float32](t, got[name]), 1e-3, name)
	}
}

// TestMistakesOfGraphs: what does not fit is an error with the caller's line.
func TestMistakesOfGraphs(t *testing.T) {
	ir, other := popxl.New("mistakes"), popxl.New("other")
	x := popxl.NewInput[float32](ir, "x", 2, 2).Load()
	foreign := popxl.NewInput[float32](other, "x", 2, 2).Load()
	l, second := newLinear(ir), newLinear(ir)
	b := popxl.Constant(ir, []float32{1, 2}, 2)
	v := popxl.NewVariable(ir, "v", []float32{1, 2}, 2)
	fine := l.Call(l.x.Is(x), l.w.Is(x), l.b.Is(b))
	grad := l.Autodiff(popxl.GradOptions{Required: []popxl.AnyParam{l.x}})
	var to popxl.Ref[float32]
	change := popxl.NewGraph(ir, "change", func(g *popxl.Graph) {
		to = popxl.NewRef[float32](g, "to", 2)
		to.Assign(ops.Negate(to.Tensor()))
	})
	require.NoError(t, ir.Err())
	cond := popxl.Constant(ir, []bool{true})
	for _, tt := range []struct {
		call func()
		text string
	}{
		{func() { l.Call(l.x.Is(x), l.w.Is(x)) }, `popxl.Graph.Call: graph "linear": parameter "b" is not given`},
		{func() { l.Call(l.x.Is(x), l.x.Is(x)) }, `popxl.Graph.Call: graph "linear": parameter "x" is given twice`},
		{func() { l.Call(second.x.Is(x)) }, `popxl.Graph.Call: graph "linear": argument 0 is for a parameter, or from a result, of another graph`},
		{func() { l.Call(l.x.Is(x), l.w.Is(b), l.b.Is(b)) }, `popxl.Graph.Call: graph "linear": parameter "w" is f32[2], want f32[2,2]`},
		{func() { l.Call(l.x.Is(foreign), l.w.Is(foreign), l.b.Is(tensor{})) }, `popxl.Graph.Call: graph "linear": operand 2 is the zero Tensor`},
		{func() { l.Call(l.x.Is(foreign), l.w.Is(x), l.b.Is(b)) }, `popxl.Graph.Call: graph "linear": operand 1 is of another Ir`},
		{func() { l.Call(l.x.From(x, l.y), l.w.Is(x), l.b.Is(b)) }, `popxl.Graph.Call: graph "linear": parameter "x" comes from a result, which Graph.Repeat alone has`},
		{func() { l.Repeat(2, l.x.From(x, second.y), l.w.Is(x), l.b.Is(b)) }, `popxl.Graph.Repeat: graph "linear": argument 0 is for a parameter, or from a result, of another graph`},
		{func() { l.Repeat(2, l.x.From(x, l.y), l.w.From(x, l.y), l.b.Is(b)) }, `popxl.Graph.Repeat: graph "linear": parameter "w" comes from a result from which another one comes, too`},
		{func() { l.Repeat(-1, l.x.From(x, l.y), l.w.Is(x), l.b.Is(b)) }, `popxl.Graph.Repeat: -1 iterations, want at least 0`},
		{func() { second.y.Of(fine) }, `popxl.Result.Of: the result is of another graph than the call`},
		{func() { popxl.InCall(fine, x) }, `popxl.InCall: the tensor is not one of the graph that is called`},
		{func() { ops.Negate(l.x.Tensor()) }, `ops.Negate: operand 0 belongs to the function of a loop, a choice or a graph`},
		{func() { popxl.NewParam[float32](l.Graph, "late") }, `popxl.NewParam: "late": the graph has been built`},
		{func() { popxl.NewGraph(ir, "none", nil) }, `popxl.NewGraph: "none": the function is nil`},
		{func() {
			popxl.NewGraph(ir, "twice", func(g *popxl.Graph) { popxl.NewParam[float32](g, "p"); popxl.NewParam[float32](g, "p") })
		}, `popxl.NewParam: graph "twice" has a parameter "p" already`},
		{func() { popxl.NewGraph(ir, "itself", func(g *popxl.Graph) { g.Call() }) }, `popxl.Graph.Call: graph "itself": the graph is still being built`},
		{func() {
			popxl.NewGraph(ir, "inner", func(*popxl.Graph) { popxl.NewGraph(ir, "own", func(*popxl.Graph) {}) })
		}, `popxl.NewGraph: "own": it is called within the function of a loop, a choice or a graph`},
		{func() { popxl.NewGraph(ir, "assigns", func(*popxl.Graph) { v.Assign(b) }) }, `popxl.Variable.Assign: it is called within the function`},
		{func() {
			popxl.NewGraph(ir, "shape", func(g *popxl.Graph) { popxl.NewRef[float32](g, "r").Assign(b) })
		}, `popxl.Ref.Assign: "r": the value has shape [2], want that of the reference, []`},
		{func() { to.Assign(b) }, `popxl.Ref.Assign: "to": the graph has been built`},
		{func() { popxl.NewGraph(ir, "foreign", func(g *popxl.Graph) { popxl.NewResult(g, foreign) }) }, `popxl.NewResult: the tensor is of another Ir`},
		{func() {
			ops.Repeat(2, b, func(b tensor) tensor { change.Call(to.Is(v)); return b })
		}, `popxl.Variable.Assign: it is called within the function`},
		{func() { l.Autodiff(popxl.GradOptions{Required: []popxl.AnyParam{second.x}}) }, `popxl.Graph.Autodiff: graph "linear": a required parameter is of another graph, or none`},
		{func() { l.Autodiff(popxl.GradOptions{Provided: []popxl.AnyResult{nil}}) }, `popxl.Graph.Autodiff: graph "linear": a provided result is of another graph, or none`},
		{func() { change.Autodiff(popxl.GradOptions{}) }, `popxl.Graph.Autodiff: graph "change": differentiate graph "change": no tensor's gradient is provided`},
		{func() { grad.Call(fine) }, `popxl.GradGraph.Call: graph "linear": the gradient of result 0 is not given`},
		{func() { grad.Call(fine, l.y.Gradient(b)) }, `popxl.GradGraph.Call: graph "linear": the gradient of result 0 is f32[2], want f32[2,2]`},
		{func() { grad.Call(fine, l.y.Gradient(x), l.y.Gradient(x)) }, `popxl.GradGraph.Call: graph "linear": a gradient is given twice, or of a result that is not provided`},
		{func() { grad.Call(second.Call(second.x.Is(x), second.w.Is(x), second.b.Is(b)), l.y.Gradient(x)) }, `the call is not one of this graph, made with Graph.Call`},
		{func() {
			ops.Conditional(cond, func() tensor { return popxl.GradientOf(grad.Call(fine, l.y.Gradient(x)), l.x) }, func() tensor { return x })
		}, `popxl.GradGraph.Call: graph "linear": the graph is called in another function than the gradient graph`},
		{func() { popxl.GradientOf(grad.Call(fine, l.y.Gradient(x)), l.w) }, `popxl.GradientOf: this gradient was not required`},
	} {
		before := len(errors(ir))
		tt.call()
		all := errors(ir)
		require.Len(t, all, before+1, "%s: %v", tt.text, all[before:])
		require.ErrorContains(t, all[before], tt.text)
		require.ErrorContains(t, all[before], "graphs_test.go:")
	}

	// What follows from a call that failed, or from nothing, adds nothing and does not panic.
	before := len(errors(ir))
	popxl.NewGraph(ir, "good", func(g *popxl.Graph) { popxl.NewResult(g, ops.MatMul(b, x)) })
	require.Len(t, errors(ir), before)
	bad := popxl.NewGraph(ir, "bad", func(g *popxl.Graph) { popxl.NewResult(g, ops.MatMul(x, ops.Sum(x))) })
	require.Len(t, errors(ir), before+1)
	bad.Call()
	bad.Repeat(3)
	bad.Autodiff(popxl.GradOptions{}).Call(bad.Call())
	failed := popxl.Failed[float32](ir)
	call := l.Call(l.x.Is(failed), l.w.Is(x), l.b.Is(b))
	require.False(t, l.y.Of(call).Valid())
	require.Nil(t, call.Outputs())
	l.Repeat(1, l.x.From(failed, l.y), l.w.Is(x), l.b.Is(b))
	grad.Call(call, l.y.Gradient(x))
	popxl.GradientOf(grad.Call(fine, l.y.Gradient(failed)), l.x)
	popxl.Choose(cond, func() *popxl.CallInfo { return call }, func() *popxl.CallInfo { return nil })
	popxl.InCall(call, x)
	require.Len(t, errors(ir), before+1)
	var none *popxl.Graph
	var info *popxl.CallInfo
	require.Empty(t, none.Name())
	none.Call()
	none.Repeat(1)
	none.Autodiff(popxl.GradOptions{}).Call(nil)
	popxl.GradientOf[float32](nil, nil)
	popxl.NewParam[float32](none, "x").Is(x)
	popxl.NewRef[float32](none, "x").Assign(x)
	popxl.NewResult(none, x).Of(nil)
	popxl.Choose(popxl.Tensor[bool]{}, nil, nil)
	require.Nil(t, info.Graph())
	require.Zero(t, info.Count())
	require.Nil(t, info.Inputs())
	require.Nil(t, (*popxl.GradGraph)(nil).Inputs())
	popxl.InCall(info, x)
	popxl.NewGraph(nil, "none", func(*popxl.Graph) {})
	l.Call(popxl.Argument{}, popxl.Param[float32]{}.Is(x), popxl.Ref[float32]{}.Is(v))
	require.Len(t, errors(ir), before+2)

	taken := popxl.New("taken")
	g := newLinear(taken)
	in := popxl.NewInput[float32](taken, "x", 2, 2).Load()
	two := popxl.Constant(taken, []float32{1, 2}, 2)
	c := g.Call(g.x.Is(in), g.w.Is(in), g.b.Is(two))
	dg := g.Autodiff(popxl.GradOptions{})
	popxl.NewOutput("y", g.y.Of(c))
	_, err := taken.Export(t.Context())
	require.NoError(t, err)
	g.Call(g.x.Is(in), g.w.Is(in), g.b.Is(two))
	g.Repeat(1, g.x.Is(in), g.w.Is(in), g.b.Is(two))
	g.Autodiff(popxl.GradOptions{})
	dg.Call(c, g.y.Gradient(in))
	popxl.NewGraph(taken, "late", func(*popxl.Graph) {})
	require.Len(t, errors(taken), 5)
	for _, err := range errors(taken) {
		require.ErrorIs(t, err, popxl.ErrTaken)
	}
}
