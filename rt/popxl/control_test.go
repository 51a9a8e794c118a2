package popxl_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/rt/popxl"
	"github.com/popefgen/popefgen/rt/popxl/ops"
)

// TestRepeat: loops by their definition, with tensors from outside, within each other, and with numbers of iterations of 0 and 1.
func TestRepeat(t *testing.T) {
	ir := popxl.New("repeat")
	x := popxl.NewInput[float32](ir, "x", 2).Load()
	w := popxl.NewVariable(ir, "w", []float32{1, 10}, 2)
	one := popxl.Constant(ir, []int32{1})
	add := func(x popxl.Tensor[float32]) popxl.Tensor[float32] { return ops.Add(x, w.Tensor()) }
	popxl.NewOutput("eight", ops.Repeat(8, x, add))
	popxl.NewOutput("one", ops.Repeat(1, x, add))
	popxl.NewOutput("none", ops.Repeat(0, x, add))
	popxl.NewOutput("nested", ops.Repeat(2, x, func(x popxl.Tensor[float32]) popxl.Tensor[float32] {
		return ops.Mul(ops.Repeat(3, x, add), ops.Repeat(1, x, add))
	}))
	a, n := ops.Repeat2(5, x, one, func(a popxl.Tensor[float32], n popxl.Tensor[int32]) (popxl.Tensor[float32], popxl.Tensor[int32]) {
		return ops.Add(a, ops.Cast[float32](n)), ops.Mul(n, popxl.Constant(ir, []int32{2}))
	})
	popxl.NewOutput("a", a)
	popxl.NewOutput("n", n)
	popxl.NewOutput("iterations", popxl.As[float32](popxl.Loop("mine", 4, func(i popxl.Tensor[int64], in []popxl.Operand) []popxl.Operand {
		return []popxl.Operand{ops.Add(popxl.As[float32](in[0]), ops.Cast[float32](i))}
	}, x)[0]))
	got := run(t, ir, map[string]any{"x": []float32{0.5, 2}})
	for name, want := range map[string][]float32{
		"eight": {8.5, 82}, "one": {1.5, 12}, "none": {0.5, 2},
		"nested": {(3.5*1.5 + 3) * (3.5*1.5 + 1), (32*12 + 30) * (32*12 + 10)},
		"a":      {31.5, 33}, "iterations": {6.5, 8},
	} {
		require.Equal(t, want, decode[float32](t, got[name]), name)
	}
	require.Equal(t, []int32{32}, decode[int32](t, got["n"]))
}

// TestConditional: each branch is computed where its condition asks for it, and only then.
func TestConditional(t *testing.T) {
	for _, positive := range []bool{true, false} {
		ir := popxl.New("conditional")
		c := popxl.NewInput[bool](ir, "c").Load()
		x := popxl.NewInput[float32](ir, "x", 2).Load()
		index := popxl.NewInput[int32](ir, "index", 1).Load()
		popxl.NewOutput("y", ops.Conditional(c,
			func() popxl.Tensor[float32] { return ops.Repeat(2, x, ops.Negate) },
			func() popxl.Tensor[float32] {
				return ops.Conditional(ops.LogicalNot(c), func() popxl.Tensor[float32] { return ops.Mul(x, x) }, func() popxl.Tensor[float32] { return x })
			}))
		popxl.NewOutput("through", ops.Conditional(c, func() popxl.Tensor[float32] { return x }, func() popxl.Tensor[float32] { return popxl.Constant(ir, []float32{7, 8}, 2) }))
		// An index out of range ends a run that computes it.
		popxl.NewOutput("lazy", ops.Conditional(c, func() popxl.Tensor[float32] { return popxl.Constant(ir, []float32{3}, 1) }, func() popxl.Tensor[float32] { return ops.Gather(x, index, 0) }))
		at := int32(1)
		want := map[string][]float32{"y": {9, 4}, "through": {7, 8}, "lazy": {-2}}
		if positive {
			at, want = 5, map[string][]float32{"y": {3, -2}, "through": {3, -2}, "lazy": {3}}
		}
		got := run(t, ir, map[string]any{"c": []bool{positive}, "x": []float32{3, -2}, "index": []int32{at}})
		for name, w := range want {
			require.Equal(t, w, decode[float32](t, got[name]), name)
		}
	}
}

// TestGradientsOfControl: gradients go back through loops and choices; y = x·w⁴ if c, else 5·w.
func TestGradientsOfControl(t *testing.T) {
	ir := popxl.New("control")
	c, x := popxl.NewInput[bool](ir, "c"), popxl.NewInput[float32](ir, "x")
	w := popxl.NewVariable(ir, "w", []float32{2})
	y := ops.Conditional(c.Load(), func() popxl.Tensor[float32] {
		return ops.Repeat(4, x.Load(), func(v popxl.Tensor[float32]) popxl.Tensor[float32] { return ops.Mul(v, w.Tensor()) })
	}, func() popxl.Tensor[float32] { return ops.Mul(w.Tensor(), popxl.Constant(ir, []float32{5})) })
	dw := popxl.NewOutput("dw", popxl.GradOf(popxl.Gradients(y, w.Tensor()), w.Tensor()))
	sgd := optim.NewSGD()
	sgd.LearningRate = optim.Const(0.125)
	popxl.Minimize(y, popxl.Training{Optimizer: sgd}, w)
	s, err := popxl.NewSession(t.Context(), ir)
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.In(t.Context(), func() error {
		got := dw.Make()
		require.NoError(t, s.Run(t.Context(), c.Feed([]bool{true}), x.Feed([]float32{3}), dw.Into(got)))
		require.Equal(t, []float32{3 * 4 * 8}, got)
		require.Equal(t, float32(2-0.125*96), value(t, s, w))
		require.NoError(t, s.Run(t.Context(), c.Feed([]bool{false}), x.Feed([]float32{3}), dw.Into(got)))
		require.Equal(t, []float32{5}, got)
		return nil
	}))
}

// TestControlMistakes: what functions of loops and choices must not do, and what does not fit.
func TestControlMistakes(t *testing.T) {
	ir, other := popxl.New("wrong"), popxl.New("other")
	x, c := popxl.NewInput[float32](ir, "x", 2).Load(), popxl.NewInput[bool](ir, "c").Load()
	n := popxl.NewInput[int64](ir, "n", 2).Load()
	w := popxl.NewVariable(ir, "w", []float32{1, 2}, 2)
	foreign := popxl.NewInput[float32](other, "x", 2).Load()
	same := func(x popxl.Tensor[float32]) popxl.Tensor[float32] { return x }
	within := func(do func(popxl.Tensor[float32])) func() {
		return func() { ops.Repeat(2, x, func(x popxl.Tensor[float32]) popxl.Tensor[float32] { do(x); return x }) }
	}
	var leaked popxl.Tensor[float32]
	within(func(x popxl.Tensor[float32]) { leaked = ops.Relu(x) })()
	adam := popxl.Training{Optimizer: optim.NewAdam()}
	for _, tt := range []struct {
		do   func()
		want string
	}{
		{func() { ops.Repeat(-1, x, same) }, "ops.Repeat: -1 iterations, want at least 0"},
		{func() { ops.Repeat(2, x, nil) }, "ops.Repeat: the function is nil"},
		{func() { ops.Repeat(2, x, func(x popxl.Tensor[float32]) popxl.Tensor[float32] { return ops.Sum(x) }) }, "carried value 0 is f32[2] as operand, f32[2] as parameter and f32[] as result"},
		{func() {
			ops.Repeat(2, x, func(popxl.Tensor[float32]) popxl.Tensor[float32] { return popxl.Tensor[float32]{} })
		}, "what the function returns: operand 0 is the zero Tensor"},
		{func() { ops.Repeat(2, x, func(popxl.Tensor[float32]) popxl.Tensor[float32] { return foreign }) }, "tensors of another Ir, or none"},
		{func() {
			popxl.Loop("mine", 2, func(popxl.Tensor[int64], []popxl.Operand) []popxl.Operand { return nil }, x)
		}, "mine: the function returns 0 values, want the 1 that are carried"},
		{func() {
			popxl.Loop("mine", 2, func(popxl.Tensor[int64], []popxl.Operand) []popxl.Operand { return []popxl.Operand{nil} }, x)
		}, "mine: the function returns"},
		{func() { popxl.Loop("mine", 2, nil, x, nil) }, "mine: the function is nil"},
		{func() {
			popxl.Loop("mine", 2, func(popxl.Tensor[int64], []popxl.Operand) []popxl.Operand { return nil }, x, nil)
		}, "mine: operand 1 is nil"},
		{func() { popxl.Loop("mine", 2, nil, x, foreign) }, "operand 1 is of another Ir"},
		{func() { ops.Conditional(c, nil, func() popxl.Tensor[float32] { return x }) }, "ops.Conditional: a function is nil"},
		{func() {
			ops.Conditional(ops.Equal(x, x), func() popxl.Tensor[float32] { return x }, func() popxl.Tensor[float32] { return x })
		}, "cond is bool[2]"},
		{func() {
			ops.Conditional(c, func() popxl.Tensor[float32] { return x }, func() popxl.Tensor[float32] { return ops.Sum(x) })
		}, "result 0 of graph Then is f32[2] and that of graph Else f32[]"},
		{func() {
			popxl.If("mine", c, func() []popxl.Operand { return nil }, func() []popxl.Operand { return []popxl.Operand{x} })
		}, "graph Then has 0 results"},
		{func() { popxl.As[float32](n) }, "popxl.As: the tensor is i64[2], want elements of type f32"},
		{func() { ops.Relu(leaked) }, "operand 0 belongs to the function of a loop, a choice or a graph"},
		{func() { popxl.NewOutput("leaked", leaked) }, "operand 0 belongs to the function of a loop, a choice or a graph"},
		{within(func(x popxl.Tensor[float32]) { popxl.NewOutput("within", x) }), "popxl.NewOutput: it is called within the function of a loop, a choice or a graph"},
		{within(w.Assign), "popxl.Variable.Assign: it is called within"},
		{within(func(x popxl.Tensor[float32]) { popxl.Gradients(x, x) }), "popxl.Gradients: it is called within"},
		{within(func(x popxl.Tensor[float32]) { popxl.Minimize(x, adam, w) }), "popxl.Minimize: it is called within"},
		{within(func(x popxl.Tensor[float32]) { popxl.Optimize(adam.Optimizer, w.By(x)) }), "popxl.Optimize: it is called within"},
	} {
		before := len(errors(ir))
		tt.do()
		require.Len(t, errors(ir), before+1, tt.want)
		require.ErrorContains(t, errors(ir)[before], tt.want)
		require.ErrorContains(t, errors(ir)[before], "control_test.go:")
	}
	before := len(errors(ir))
	within(func(popxl.Tensor[float32]) {
		_, err := ir.Export(t.Context())
		require.ErrorContains(t, err, "within the function of a loop")
	})()
	require.Panics(t, within(func(popxl.Tensor[float32]) { panic("mine") }))
	require.True(t, ops.Relu(x).Valid(), "after a panic nodes go where they went before")
	failed := popxl.Apply[float32]("mine", &graph.Unary{Fn: "none"}, x)
	require.Len(t, errors(ir), before+1)
	require.False(t, ops.Repeat(2, failed, same).Valid())
	require.False(t, ops.Repeat(2, x, func(popxl.Tensor[float32]) popxl.Tensor[float32] { return failed }).Valid())
	require.False(t, ops.Conditional(c, func() popxl.Tensor[float32] { return failed }, func() popxl.Tensor[float32] { return x }).Valid())
	require.False(t, ops.Conditional(popxl.Tensor[bool]{}, func() popxl.Tensor[float32] { return failed }, nil).Valid())
	require.False(t, popxl.As[int32](failed).Valid())
	require.False(t, popxl.As[int32](nil).Valid())
	require.Len(t, errors(ir), before+1)
}
