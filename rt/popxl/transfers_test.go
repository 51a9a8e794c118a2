package popxl_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/popxl"
	"github.com/popefgen/popefgen/rt/popxl/ops"
)

// session makes a session of ir that is attached until the test ends.
func session(t *testing.T, ir *popxl.Ir) *popxl.Session {
	t.Helper()
	s, err := popxl.NewSession(t.Context(), ir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	_, err = s.Attach(t.Context())
	require.NoError(t, err)
	return s
}

// TestTransfersOfLoops: loads and stores in loops within each other, several in one iteration, before and behind them, come in the order in which a run meets them, and are counted.
func TestTransfersOfLoops(t *testing.T) {
	ir := popxl.New("loops")
	a, b := popxl.NewInput[float32](ir, "a"), popxl.NewInput[float32](ir, "b", 2)
	steps, sums := popxl.DeclareOutput[float32](ir, "steps"), popxl.DeclareOutput[float32](ir, "sums")
	x := a.Next() // tensor 0
	x = ops.Repeat(2, x, func(x popxl.Tensor[float32]) popxl.Tensor[float32] {
		x = ops.Add(x, a.Next()) // 1, 8
		x = ops.Repeat(3, x, func(x popxl.Tensor[float32]) popxl.Tensor[float32] {
			steps.Store(x)
			y := ops.Add(x, ops.Mul(a.Next(), a.Next())) // 2·3, 4·5, 6·7; 9·10, …
			steps.Store(ops.Negate(y))
			return y
		})
		sums.Store(x)
		return ops.Add(x, ops.Sum(b.Next()))
	})
	x = ops.Repeat(0, x, func(x popxl.Tensor[float32]) popxl.Tensor[float32] { steps.Store(x); return ops.Mul(x, a.Next()) })
	sums.Store(ops.Add(x, a.Next())) // 15
	last := popxl.NewOutput("last", x)
	ir.UnequalTransfers()
	ir.SetIterations(2)
	require.Empty(t, cmp.Diff([]popxl.Transfers{{"a", true, 16}, {"b", true, 2}, {"steps", false, 12}, {"sums", false, 3}, {"last", false, 1}}, ir.Transfers()))

	s := session(t, ir)
	in := make([]float32, 32)
	for i := range in {
		in[i] = float32(i)
	}
	bs := []float32{100, 1, 200, 2, 300, 3, 400, 4}
	var wantSteps, wantSums, wantLast []float32
	for run := range 2 {
		next := in[16*run:]
		take := func() float32 { v := next[0]; next = next[1:]; return v }
		x := take()
		for i := range 2 {
			x += take()
			for range 3 {
				wantSteps = append(wantSteps, x)
				x += take() * take()
				wantSteps = append(wantSteps, -x)
			}
			wantSums = append(wantSums, x)
			x += bs[4*run+2*i] + bs[4*run+2*i+1]
		}
		wantSums, wantLast = append(wantSums, x+take()), append(wantLast, x)
	}
	gotSteps, gotSums, gotLast := steps.Make(), sums.Make(), last.Make()
	for range 2 { // a run leaves nothing to the next one
		require.NoError(t, s.Run(t.Context(), a.Feed(in), b.Feed(bs), steps.Into(gotSteps), sums.Into(gotSums), last.Into(gotLast)))
		require.Equal(t, wantSteps, gotSteps)
		require.Equal(t, wantSums, gotSums)
		require.Equal(t, wantLast, gotLast)
	}
	require.Zero(t, testing.AllocsPerRun(20, func() { _ = s.Run(t.Context(), a.Feed(in), b.Feed(bs), steps.Into(gotSteps)) }))
}

// TestTransfersOfChoices: branches that load and store equally often take the next tensors, whichever is computed.
func TestTransfersOfChoices(t *testing.T) {
	ir := popxl.New("choices")
	c, a := popxl.NewInput[bool](ir, "c"), popxl.NewInput[float32](ir, "a")
	y := popxl.DeclareOutput[float32](ir, "y")
	x := ops.Repeat(3, ops.Init[float32](ir), func(x popxl.Tensor[float32]) popxl.Tensor[float32] {
		return ops.Conditional(c.Next(), func() popxl.Tensor[float32] {
			v := ops.Add(x, a.Next())
			y.Store(v)
			return v
		}, func() popxl.Tensor[float32] {
			y.Store(x)
			return ops.Sub(x, a.Next())
		})
	})
	last := popxl.NewOutput("last", x)
	s := session(t, ir)
	got, end := y.Make(), last.Make()
	require.NoError(t, s.Run(t.Context(), c.Feed([]bool{true, false, true}), a.Feed([]float32{1, 10, 100}), y.Into(got), last.Into(end)))
	require.Equal(t, []float32{1, 1, 91}, got)
	require.Equal(t, []float32{91}, end)

	ir = popxl.New("unlike")
	a, y = popxl.NewInput[float32](ir, "a"), popxl.DeclareOutput[float32](ir, "y")
	flag := popxl.NewInput[bool](ir, "c").Load()
	zero := ops.Init[float32](ir)
	ops.Conditional(flag, func() popxl.Tensor[float32] { return a.Next() }, func() popxl.Tensor[float32] { return zero })
	ops.Conditional(flag, func() popxl.Tensor[float32] { return zero }, func() popxl.Tensor[float32] { y.Store(zero); return zero })
	require.Len(t, errors(ir), 2)
	require.ErrorContains(t, errors(ir)[0], `one branch loads input "a" 1 times and the other 0 times: how often a run loads it must not depend on data; load it before the choice`)
	require.ErrorContains(t, errors(ir)[1], `one branch stores output "y" 0 times and the other 1 times`)
}

// TestUnequalTransfers: inputs of which a run loads 3 and 5 tensors are refused with a table, unless the Ir allows them; then each is fed as many as it loads, and fewer are an error.
func TestUnequalTransfers(t *testing.T) {
	build := func() (*popxl.Ir, popxl.Input[float32], popxl.Input[int32], popxl.Output[float32]) {
		ir := popxl.New("unequal")
		a, long := popxl.NewInput[float32](ir, "a", 2), popxl.NewInput[int32](ir, "longer name")
		x := ops.Repeat(3, ops.Init[float32](ir, 2), func(x popxl.Tensor[float32]) popxl.Tensor[float32] { return ops.Add(x, a.Next()) })
		x = ops.Repeat(5, x, func(x popxl.Tensor[float32]) popxl.Tensor[float32] { return ops.Add(x, ops.Cast[float32](long.Next())) })
		return ir, a, long, popxl.NewOutput("y", x)
	}
	ir, _, _, _ := build()
	_, err := ir.Export(t.Context())
	require.EqualError(t, err, `unequal: a run loads its inputs differently often:
  input        tensors of a run
  a            3
  longer name  5
load them in the same loops, or call Ir.UnequalTransfers to feed each as many tensors as it loads`)

	ir, a, long, y := build()
	ir.UnequalTransfers()
	s := session(t, ir)
	got := y.Make()
	run := func(n, m int) error {
		return s.Run(t.Context(), a.Feed(make([]float32, n)), long.Feed([]int32{1, 2, 3, 4, 5, 6}[:m]), y.Into(got))
	}
	require.NoError(t, run(6, 5))
	require.Equal(t, []float32{15, 15}, got)
	err = run(4, 5)
	require.ErrorIs(t, err, rt.ErrEndOfData)
	require.ErrorContains(t, err, `unequal: run: input "a": 2 tensors of shape [2], want the 3 that a run loads`)
	require.ErrorIs(t, run(6, 3), rt.ErrEndOfData)
	require.ErrorContains(t, run(5, 5), `input "a": 5 elements, want the 6 of shape [3,2]`)
	require.ErrorContains(t, run(6, 6), `input "longer name": 6 elements, want the 5 of shape [5]`)
}

// TestTransfersInTraining: a loop over batches that a run loads, with gradients through it; evaluation loads them, too. With w := w - ¼·∂/∂w Σ (w·x-y)² of two batches.
func TestTransfersInTraining(t *testing.T) {
	ir := popxl.New("training")
	x, y := popxl.NewInput[float32](ir, "x"), popxl.NewInput[float32](ir, "y")
	w := popxl.NewVariable(ir, "w", []float32{1})
	each := popxl.DeclareOutput[float32](ir, "each")
	loss := ops.Repeat(2, ops.Init[float32](ir), func(sum popxl.Tensor[float32]) popxl.Tensor[float32] {
		d := ops.Sub(ops.Mul(w.Tensor(), x.Next()), y.Next())
		l := ops.Mul(d, d)
		each.Store(l)
		return ops.Add(sum, l)
	})
	sum := popxl.NewOutput("sum", loss)
	sgd := optim.NewSGD()
	sgd.LearningRate = optim.Const(0.25)
	popxl.Minimize(loss, popxl.Training{Optimizer: sgd}, w)
	s := session(t, ir)
	got, all, v := sum.Make(), each.Make(), []float32{0}
	in := func() []popxl.Binding {
		return []popxl.Binding{x.Feed([]float32{1, 2}), y.Feed([]float32{3, 0}), sum.Into(got), each.Into(all)}
	}
	for _, want := range []float32{8, 9} { // the gradient is 2·(1·(w-3) + 2·2w) = 10w - 6
		require.NoError(t, s.Evaluate(t.Context(), in()...))
		require.Equal(t, []float32{want}, got)
		require.NoError(t, s.Run(t.Context(), in()...))
		require.Equal(t, []float32{want}, got)
		require.Equal(t, want, all[0]+all[1])
	}
	require.NoError(t, s.Variables(t.Context(), w.Into(v)))
	require.Equal(t, []float32{0 - 0.25*(0-6)}, v)
}

// TestMistakesOfTransfers: what does not fit is an error that says where, and what to do.
func TestMistakesOfTransfers(t *testing.T) {
	ir := popxl.New("mistakes")
	a, b := popxl.NewInput[float32](ir, "a", 2), popxl.NewInput[float32](ir, "b", 2)
	out := popxl.NewOutput("out", a.Load())
	stored := popxl.DeclareOutput[float32](ir, "stored", 2)
	b.Next()
	other := popxl.New("other")
	for _, tt := range []struct {
		call func()
		text string
	}{
		{func() { a.Next() }, `popxl.Input.Next: "a": Load and Next are both called`},
		{func() { b.Load() }, `popxl.Input.Load: "b": Load and Next are both called`},
		{func() { out.Store(a.Load()) }, `popxl.Output.Store: "out": it was made with NewOutput, which stores one tensor: make it with DeclareOutput`},
		{func() { stored.Store(ops.Sum(a.Load())) }, `popxl.Output.Store: "stored": the tensor has shape [], want [2], which was declared`},
		{func() { stored.Store(popxl.NewInput[float32](other, "x", 2).Load()) }, `popxl.Output.Store: "stored": the tensor is of another Ir`},
		{func() { stored.Store(popxl.Tensor[float32]{}) }, `popxl.Output.Store: "stored": operand 0 is the zero Tensor`},
		{func() { popxl.DeclareOutput[float32](ir, "stored", 2) }, `popxl.DeclareOutput: there is a stream or variable "stored" already`},
		{func() { popxl.DeclareOutput[float32](ir, "negative", -2) }, `popxl.DeclareOutput: "negative": dimension 0 of shape [-2] is negative`},
	} {
		before := len(errors(ir))
		tt.call()
		all := errors(ir)
		require.Len(t, all, before+1, tt.text)
		require.ErrorContains(t, all[before], "transfers_test.go:")
		require.ErrorContains(t, all[before], tt.text)
	}
	var none *popxl.Ir
	require.Nil(t, none.Transfers())
	none.UnequalTransfers()
	popxl.DeclareOutput[float32](none, "x").Store(a.Load())
	popxl.Input[float32]{}.Next()
	popxl.Output[float32]{}.Store(a.Load())

	for _, tt := range []struct {
		build func(ir *popxl.Ir)
		text  string
	}{
		{func(ir *popxl.Ir) { popxl.DeclareOutput[float32](ir, "y") }, `popxl.DeclareOutput: "y": nothing is stored in it: call Output.Store`},
		{func(ir *popxl.Ir) {
			x := popxl.NewInput[float32](ir, "x")
			zero := ops.Init[float32](ir)
			popxl.NewOutput("y", ops.Repeat(0, zero, func(popxl.Tensor[float32]) popxl.Tensor[float32] { return x.Next() }))
		}, `input "x": a run loads it 1 × 0 times, want 1 to 2147483648`},
		{func(ir *popxl.Ir) {
			x := popxl.NewInput[float32](ir, "x")
			zero := ops.Init[float32](ir)
			popxl.NewOutput("y", ops.Repeat(1<<20, zero, func(v popxl.Tensor[float32]) popxl.Tensor[float32] {
				return ops.Repeat(1<<39, v, func(v popxl.Tensor[float32]) popxl.Tensor[float32] {
					return ops.Repeat(1<<39, v, func(v popxl.Tensor[float32]) popxl.Tensor[float32] { return ops.Add(v, x.Next()) })
				})
			}))
		}, `input "x": a run loads it 1 × 9223372036854775807 times, want 1 to 2147483648`},
	} {
		ir := popxl.New("counts")
		tt.build(ir)
		require.NoError(t, ir.Err())
		_, err := ir.Export(t.Context())
		require.ErrorContains(t, err, tt.text)
	}
	ir = popxl.New("taken")
	x, y := popxl.NewInput[float32](ir, "x"), popxl.DeclareOutput[float32](ir, "y")
	y.Store(x.Next())
	_, err := ir.Export(t.Context())
	require.NoError(t, err)
	x.Next()
	y.Store(x.Load())
	ir.UnequalTransfers()
	require.Len(t, errors(ir), 3)
	for _, err := range errors(ir) {
		require.ErrorIs(t, err, popxl.ErrTaken)
	}
}
