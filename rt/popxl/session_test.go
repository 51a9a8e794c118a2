package popxl_test

import (
	"context"
	stderrors "errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/popxl"
	"github.com/popefgen/popefgen/rt/popxl/ops"
)

// counted is a model that adds its input to a variable and returns the sum, with the numbers of copies of variables.
type counted struct {
	*popxl.Session
	x            popxl.Input[int32]
	y            popxl.Output[int32]
	sum, fixed   popxl.Variable[int32]
	down, up     int // copies of variables to the device and to the host
	bound, apart int // how often it was attached and detached
}

func newCounted(t *testing.T) *counted {
	t.Helper()
	ir := popxl.New("counted")
	c := &counted{x: popxl.NewInput[int32](ir, "x", 2), sum: popxl.NewVariable(ir, "sum", []int32{100, 200}, 2), fixed: popxl.NewVariable(ir, "fixed", []int32{1})}
	next := ops.Add(ops.Add(c.sum.Tensor(), c.x.Load()), c.fixed.Tensor())
	c.sum.Assign(next)
	c.y = popxl.NewOutput("y", next)
	var err error
	c.Session, err = popxl.NewSession(t.Context(), ir, rt.WithObserver(func(e rt.Event) {
		switch e.Kind {
		case rt.EventLoaded:
			c.down++
		case rt.EventSaved:
			c.up++
		case rt.EventBound:
			c.bound++
		case rt.EventUnbound:
			c.apart++
		}
	}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	c.bound, c.apart = 0, 0
	return c
}

// run adds 1 and 2.
func (c *counted) run(t *testing.T) []int32 {
	t.Helper()
	y := c.y.Make()
	require.NoError(t, c.Run(t.Context(), c.x.Feed([]int32{1, 2}), c.y.Into(y)))
	return y
}

func (c *counted) value(t *testing.T) []int32 {
	t.Helper()
	v := make([]int32, 2)
	require.NoError(t, c.Variables(t.Context(), c.sum.Into(v)))
	return v
}

// moved returns how often variables went to the device and to the host since the last time.
func (c *counted) moved() [2]int {
	m := [2]int{c.down, c.up}
	c.down, c.up = 0, 0
	return m
}

// TestLazyTransfers goes through reads and writes of a session as PopXL's document lists them, and counts what moves.
func TestLazyTransfers(t *testing.T) {
	c := newCounted(t)
	require.Equal(t, []int32{100, 200}, c.value(t))
	require.NoError(t, c.SetVariables(t.Context(), c.sum.Set([]int32{10, 20})))
	require.Equal(t, [2]int{}, c.moved(), "written and read while it is detached")
	scope, err := c.Attach(t.Context())
	require.NoError(t, err)
	require.Equal(t, [2]int{1, 0}, c.moved(), "attached")
	require.Equal(t, []int32{10, 20}, c.value(t))
	require.Equal(t, [2]int{}, c.moved(), "read before a run")
	require.Equal(t, []int32{12, 23}, c.run(t))
	require.Equal(t, []int32{14, 26}, c.run(t))
	require.Equal(t, [2]int{}, c.moved(), "runs")
	require.Equal(t, []int32{14, 26}, c.value(t))
	require.Equal(t, []int32{14, 26}, c.value(t))
	require.NoError(t, c.WeightsToHost(t.Context()))
	require.Equal(t, [2]int{0, 1}, c.moved(), "read after a run, twice")
	require.NoError(t, c.SetVariables(t.Context(), c.fixed.Set([]int32{0}), c.sum.Set([]int32{0, 0})))
	require.Equal(t, [2]int{1, 0}, c.moved(), "two written at once")
	require.Equal(t, []int32{1, 2}, c.run(t))
	require.NoError(t, c.SetVariables(t.Context(), c.fixed.Set([]int32{7})))
	require.Equal(t, [2]int{1, 1}, c.moved(), "one written after a run: what the run changed is kept")
	require.Equal(t, []int32{9, 11}, c.run(t))
	require.NoError(t, c.WeightsFromHost(t.Context()))
	require.Equal(t, []int32{9, 11}, c.run(t), "what the run before changed was lost")
	c.moved()
	require.NoError(t, scope.Close())
	require.NoError(t, scope.Close())
	require.Equal(t, [2]int{0, 1}, c.moved(), "detached after a run")
	require.Equal(t, []int32{9, 11}, c.value(t))
	require.Equal(t, [2]int{}, c.moved(), "read while it is detached")
}

// TestNestedScopes: the scope that attached the session detaches it.
func TestNestedScopes(t *testing.T) {
	c := newCounted(t)
	outer, err := c.Attach(t.Context())
	require.NoError(t, err)
	require.NoError(t, c.In(t.Context(), func() error {
		require.True(t, c.Attached())
		c.run(t)
		return nil
	}))
	require.True(t, c.Attached())
	require.Equal(t, [2]int{1, 0}, c.moved())
	require.NoError(t, outer.Close())
	require.False(t, c.Attached())
	require.Equal(t, [2]int{0, 1}, c.moved())
	require.Equal(t, []int{1, 1}, []int{c.bound, c.apart})
}

// TestScopesThatKeep: after an error, a panic, and where the caller says so, the host's copies stay as they were, and the session is detached.
func TestScopesThatKeep(t *testing.T) {
	c := newCounted(t)
	broken := stderrors.New("broken")
	require.ErrorIs(t, c.In(t.Context(), func() error { c.run(t); return broken }), broken)
	require.Panics(t, func() { _ = c.In(t.Context(), func() error { c.run(t); panic("broken") }) })
	require.NoError(t, c.In(t.Context(), func() error { c.run(t); return nil }, popxl.KeepHostWeights()))
	require.False(t, c.Attached())
	require.Equal(t, [2]int{3, 0}, c.moved())
	require.Equal(t, []int32{100, 200}, c.value(t))
	require.NoError(t, c.In(t.Context(), func() error { c.run(t); return nil }))
	require.Equal(t, []int32{102, 203}, c.value(t))
}

// TestSessionErrors: what does not fit is an error that says so, and changes nothing.
func TestSessionErrors(t *testing.T) {
	c, other := newCounted(t), newCounted(t)
	ctx := t.Context()
	two, three := []int32{1, 2}, []int32{1, 2, 3}
	require.ErrorIs(t, c.Run(ctx, c.x.Feed(two)), popxl.ErrDetached)
	require.ErrorIs(t, c.WeightsToHost(ctx), popxl.ErrDetached)
	require.ErrorIs(t, c.WeightsFromHost(ctx), popxl.ErrDetached)
	scope, err := c.Attach(ctx)
	require.NoError(t, err)
	for _, tt := range []struct {
		err  error
		want string
	}{
		{c.Run(ctx), `counted: run: nothing is fed to input "x": give Input.Feed of each`},
		{c.Run(ctx, c.x.Feed(three)), `counted: run: input "x": 3 elements, want the 2 of shape [2]`},
		{c.Run(ctx, c.x.Feed(two), c.y.Into(three)), `counted: run: output "y": 3 elements, want the 2 of shape [2]`},
		{c.Run(ctx, c.x.Feed(two), c.x.Feed(two)), `counted: run: input "x" is given twice`},
		{c.Run(ctx, other.x.Feed(two)), `counted: run: input "x" is of another Ir than the session`},
		{c.Run(ctx, c.x.Feed(two), c.sum.Set(two)), `counted: run: variable "sum": it is given to a call that takes inputs and outputs`},
		{c.Run(ctx, popxl.Binding{}), `counted: run: "": the call that should have added it failed, or it is the zero value`},
		{c.SetVariables(ctx, c.fixed.Set([]int32{5}), c.sum.Set(three)), `counted: set variables: variable "sum": 3 elements, want the 2 of shape [2]`},
		{c.SetVariables(ctx, c.sum.Into(two)), `counted: set variables: variable "sum": it is given to a call that takes values to set: Variable.Set`},
		{c.Variables(ctx, c.sum.Set(two)), `counted: read variables: variable "sum": it is given to a call that takes slices to write to: Variable.Into`},
	} {
		require.EqualError(t, tt.err, tt.want)
	}
	require.Equal(t, []int32{102, 203}, c.run(t), "nothing has run or changed")
	require.NoError(t, c.Close())
	require.ErrorIs(t, c.Run(ctx, c.x.Feed(two)), popxl.ErrDetached)
	require.NoError(t, scope.Close())
}

// TestIterations: a run computes the graph several times, and moves as many tensors over each stream.
func TestIterations(t *testing.T) {
	ir := popxl.New("iterations")
	ir.SetIterations(3)
	x := popxl.NewInput[float32](ir, "x", 2)
	sum := popxl.NewVariable(ir, "sum", []float32{0, 0}, 2)
	sum.Assign(ops.Add(sum.Tensor(), x.Load()))
	y, z := popxl.NewOutput("y", sum.Tensor()), popxl.NewOutput("z", ops.Negate(x.Load()))
	s, err := popxl.NewSession(t.Context(), ir)
	require.NoError(t, err)
	defer s.Close()
	sums, negated := y.Make(), z.Make()
	require.NoError(t, s.In(t.Context(), func() error {
		return s.Run(t.Context(), z.Into(negated), x.Feed([]float32{1, 2, 10, 20, 100, 200}), y.Into(sums))
	}))
	require.Equal(t, []float32{1, 2, 11, 22, 111, 222}, sums)
	require.Equal(t, []float32{-1, -2, -10, -20, -100, -200}, negated)
	ir = popxl.New("none")
	ir.SetIterations(0)
	require.ErrorContains(t, ir.Err(), "popxl.Ir.SetIterations: 0 iterations, want at least 1")
}

// TestIntoLargerSlices: a run writes the part of a slice that it is given, and reads a part.
func TestIntoLargerSlices(t *testing.T) {
	c := newCounted(t)
	in, out := []int32{7, 1, 2, 7}, []int32{7, 7, 7, 7, 7}
	require.NoError(t, c.In(t.Context(), func() error { return c.Run(t.Context(), c.x.Feed(in[1:3]), c.y.Into(out[2:4])) }))
	require.Equal(t, []int32{7, 7, 102, 203, 7}, out)
	require.Equal(t, []int32{7, 1, 2, 7}, in)
}

// TestEvaluate: what comes before changes is computed without them, as often as a run would.
func TestEvaluate(t *testing.T) {
	for _, changes := range []bool{true, false} {
		ir := popxl.New("evaluate")
		ir.SetIterations(2)
		x := popxl.NewInput[float32](ir, "x")
		w := popxl.NewVariable(ir, "w", []float32{3})
		y := popxl.NewOutput("y", ops.Mul(x.Load(), w.Tensor()))
		if changes {
			w.Assign(x.Load())
		}
		z := popxl.NewOutput("z", ops.Negate(w.Tensor()))
		end := popxl.NewOutput("end", w.Tensor())
		s, err := popxl.NewSession(t.Context(), ir)
		require.NoError(t, err)
		in, a, b, c := []float32{5, 7}, y.Make(), z.Make(), end.Make()
		require.ErrorIs(t, s.Evaluate(t.Context(), x.Feed(in)), popxl.ErrDetached)
		require.NoError(t, s.In(t.Context(), func() error {
			require.NoError(t, s.Evaluate(t.Context(), x.Feed(in), y.Into(a)))
			require.Equal(t, []float32{15, 21}, a)
			err := s.Evaluate(t.Context(), x.Feed(in), z.Into(b))
			if changes {
				require.EqualError(t, err, `evaluate: evaluate: output "z" depends on a gradient or a variable that has changed: Run computes it`)
				require.ErrorContains(t, s.Evaluate(t.Context(), x.Feed(in), end.Into(c)), `output "end"`)
			} else {
				require.NoError(t, err)
				require.Equal(t, []float32{-3, -3}, b)
			}
			require.ErrorContains(t, s.Evaluate(t.Context()), `evaluate: nothing is fed to input "x"`)
			require.Equal(t, float32(3), value(t, s, w))
			return s.Run(t.Context(), x.Feed(in), y.Into(a), z.Into(b), end.Into(c))
		}))
		if changes {
			require.Equal(t, [][]float32{{15, 35}, {-5, -7}, {5, 7}}, [][]float32{a, b, c})
		} else {
			require.Equal(t, [][]float32{{15, 21}, {-3, -3}, {3, 3}}, [][]float32{a, b, c})
		}
		require.NoError(t, s.Close())
	}
}

// TestAssign: what is read before and behind an assignment, and what does not fit.
func TestAssign(t *testing.T) {
	ir := popxl.New("assign")
	x := popxl.NewInput[float32](ir, "x", 2)
	v := popxl.NewVariable(ir, "v", []float32{1, 2}, 2)
	before := ops.Mul(v.Tensor(), x.Load())
	v.Assign(x.Load())
	behind := ops.Mul(v.Tensor(), x.Load())
	v.Assign(ops.Add(v.Tensor(), v.Tensor()))
	a, b, end := popxl.NewOutput("before", before), popxl.NewOutput("behind", behind), popxl.NewOutput("end", v.Tensor())
	s, err := popxl.NewSession(t.Context(), ir)
	require.NoError(t, err)
	defer s.Close()
	got := [][]float32{a.Make(), b.Make(), end.Make()}
	require.NoError(t, s.In(t.Context(), func() error {
		return s.Run(t.Context(), x.Feed([]float32{3, 4}), a.Into(got[0]), b.Into(got[1]), end.Into(got[2]))
	}))
	require.Equal(t, [][]float32{{3, 8}, {9, 16}, {6, 8}}, got)
	v.Assign(x.Load())
	require.ErrorIs(t, ir.Err(), popxl.ErrTaken)

	ir = popxl.New("wrong")
	v = popxl.NewVariable(ir, "v", []float32{1, 2}, 2)
	v.Assign(popxl.Constant(ir, []float32{1}, 1))
	v.Assign(popxl.Tensor[float32]{})
	popxl.Variable[float32]{}.Assign(popxl.Tensor[float32]{})
	require.ErrorContains(t, ir.Err(), `variable "v" has shape [2] and the value [1], want the same`)
	require.Len(t, errors(ir), 2)
}

// TestRunAllocatesNothing: a run moves and computes without allocating.
func TestRunAllocatesNothing(t *testing.T) {
	c := newCounted(t)
	ctx, x, y := context.Background(), []int32{1, 2}, c.y.Make()
	require.NoError(t, c.In(ctx, func() error {
		require.Zero(t, testing.AllocsPerRun(100, func() { _ = c.Run(ctx, c.x.Feed(x), c.y.Into(y)) }))
		return nil
	}))
	require.Equal(t, []int32{100 + 2*101, 200 + 3*101}, y)
}

// TestSessionsAndPackages: a session's answers are those of modelrt over the exported model, bit for bit.
func TestSessionsAndPackages(t *testing.T) {
	in := []float32{0.1, -2, 3, 0.5, 7, -0.25}
	build := func() (*popxl.Ir, popxl.Input[float32], popxl.Output[float32]) {
		ir := popxl.New("net")
		x := popxl.NewInput[float32](ir, "x", 2, 3)
		w := popxl.NewVariable(ir, "w", []float32{1, 2, 3, 4, 5, 6}, 3, 2)
		return ir, x, popxl.NewOutput("y", ops.Softmax(ops.Gelu(ops.MatMul(x.Load(), w.Tensor())), 1))
	}
	ir, _, _ := build()
	want := decode[float32](t, run(t, ir, map[string]any{"x": in})["y"])
	ir, x, y := build()
	s, err := popxl.NewSession(t.Context(), ir)
	require.NoError(t, err)
	defer s.Close()
	got := y.Make()
	require.NoError(t, s.In(t.Context(), func() error { return s.Run(t.Context(), x.Feed(in), y.Into(got)) }))
	require.True(t, slices.Equal(want, got), "%v %v", want, got)
}

// TestSharedMemory: a run may write its results over what it is fed, but not two of them to one place; of zero elements there is no memory.
func TestSharedMemory(t *testing.T) {
	const n = 1000
	ir := popxl.New("shared")
	x, none := popxl.NewInput[float32](ir, "x", n), popxl.NewInput[float32](ir, "none", 0)
	y, z := popxl.NewOutput("y", ops.Negate(x.Load())), popxl.NewOutput("z", ops.Slice(x.Load(), 0, -1, -n-1, -1))
	empty := popxl.NewOutput("empty", ops.Negate(none.Load()))
	s := session(t, ir)
	v, want, back, wantBack := make([]float32, n+1), make([]float32, n), make([]float32, n), make([]float32, n)
	for i := range n {
		v[i], want[i], wantBack[n-1-i] = float32(i+1), -float32(i+1), float32(i+1)
	}
	require.NoError(t, s.Run(t.Context(), x.Feed(v[:n]), y.Into(v[1:]), z.Into(back), none.Feed(nil), empty.Into(nil)))
	require.Equal(t, want, v[1:])
	require.Equal(t, wantBack, back)
	require.ErrorContains(t, s.Run(t.Context(), x.Feed(back), none.Feed(nil), y.Into(v[:n]), z.Into(v[1:])), `shared: run: outputs "y" and "z" are given the same memory, want some for each`)
	require.NoError(t, s.Run(t.Context(), x.Feed(v[1:]), none.Feed(nil), z.Into(back)))
	require.Equal(t, float32(-1), back[n-1])
}
