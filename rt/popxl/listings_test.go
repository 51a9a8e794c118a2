package popxl_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/popxl"
	"github.com/popefgen/popefgen/rt/popxl/ops"
)

// The listings of the chapter on sessions of PopXL's user guide, line by line.

// TestListingsOfRuns: 12.1 to 12.3, the sum of two tensors that are loaded, with outputs that a run makes and with those of the caller.
func TestListingsOfRuns(t *testing.T) {
	ir := popxl.New("tensor_addition")
	a, b := popxl.NewInput[float32](ir, "a", 1), popxl.NewInput[float32](ir, "b", 1)
	o := popxl.NewOutput("o", ops.Add(a.Load(), b.Load()))
	for _, s := range ir.Transfers() {
		require.Equal(t, int64(1), s.Count) // ir.num_host_transfers = 1
	}
	session, err := popxl.NewSession(t.Context(), ir)
	require.NoError(t, err)
	defer session.Close()
	outputs := o.Make()
	inputs := []popxl.Binding{a.Feed([]float32{2}), b.Feed([]float32{3})}
	require.ErrorIs(t, session.Run(t.Context(), append(inputs, o.Into(outputs))...), popxl.ErrDetached, "before attaching")
	require.NoError(t, session.In(t.Context(), func() error { return session.Run(t.Context(), append(inputs, o.Into(outputs))...) }))
	require.Equal(t, []float32{5}, outputs)
	larger := []float32{-1, -1, -1}
	require.NoError(t, session.In(t.Context(), func() error { return session.Run(t.Context(), append(inputs, o.Into(larger[1:2]))...) }))
	require.Equal(t, []float32{-1, 5, -1}, larger)
}

// TestListingsOfData: 12.4, the data of a variable and its change, and 12.5, when it is copied. A run adds b to a.
func TestListingsOfData(t *testing.T) {
	ir := popxl.New("tensor_get_write")
	a, b := popxl.NewVariable(ir, "a", []int32{3}), popxl.Constant(ir, []int32{1})
	a.Assign(ops.Add(a.Tensor(), b))
	out := popxl.NewOutput("o", a.Tensor())
	var toHost, fromHost, attached, detached int
	session, err := popxl.NewSession(t.Context(), ir, rt.WithObserver(func(e rt.Event) {
		switch e.Kind {
		case rt.EventLoaded:
			fromHost++
		case rt.EventSaved:
			toHost++
		case rt.EventBound:
			attached++
		case rt.EventUnbound:
			detached++
		}
	}))
	require.NoError(t, err)
	defer session.Close()
	attached, detached = 0, 0
	counts := func() []int { return []int{fromHost, toHost, attached, detached} }
	read := func() int32 {
		v := []int32{0}
		require.NoError(t, session.Variables(t.Context(), a.Into(v)))
		return v[0]
	}
	write := func(v int32) { require.NoError(t, session.SetVariables(t.Context(), a.Set([]int32{v}))) }
	outputs := out.Make()
	run := func() { require.NoError(t, session.Run(t.Context(), out.Into(outputs))) }

	write(5)
	require.Equal(t, []int{0, 0, 0, 0}, counts(), "detached: the host's copy is written")
	require.NoError(t, session.In(t.Context(), func() error {
		require.Equal(t, []int{1, 0, 1, 0}, counts(), "the scope begins")
		require.Equal(t, int32(5), read())
		require.Equal(t, []int{1, 0, 1, 0}, counts(), "no run has changed the device's")
		run()
		require.Equal(t, []int32{6}, outputs)
		require.Equal(t, []int{1, 0, 1, 0}, counts(), "a constant is never copied: its data is what the Go program has")
		require.Equal(t, int32(6), read())
		require.Equal(t, []int{1, 1, 1, 0}, counts(), "read after a run")
		write(8)
		require.Equal(t, []int{2, 1, 1, 0}, counts(), "written on the device, too")
		require.Equal(t, int32(8), read())
		require.Equal(t, []int{2, 1, 1, 0}, counts(), "what is written is on the host")
		run()
		return nil
	}))
	require.Equal(t, []int{2, 2, 1, 1}, counts(), "the scope ends")
	require.Equal(t, int32(9), read())
	require.Equal(t, []int{2, 2, 1, 1}, counts(), "detached: the host's copy is read")
}

// TestListingOfScopes: 12.6, scopes within each other.
func TestListingOfScopes(t *testing.T) {
	c := newCounted(t)
	require.NoError(t, c.In(t.Context(), func() error {
		require.True(t, c.Attached())
		require.NoError(t, c.In(t.Context(), func() error {
			require.True(t, c.Attached())
			return nil
		}))
		require.True(t, c.Attached())
		return nil
	}))
	require.False(t, c.Attached())
	require.Equal(t, []int{1, 0, 1, 1}, []int{c.down, c.up, c.bound, c.apart}, "no run has changed a variable: nothing is copied to the host")
}

// TestListingOfRepeat: 12.7, a loop of 8 iterations over a graph that loads and stores. The number of transfers follows from it; 7 tensors are refused, and 9.
func TestListingOfRepeat(t *testing.T) {
	const repeatCount = 8
	ir := popxl.New("repeat_graph_2")
	x, y := popxl.NewInput[float32](ir, "x_stream", 2, 2), popxl.DeclareOutput[float32](ir, "y_stream", 2, 2)
	w, b := popxl.NewVariable(ir, "W", []float32{1, 1, 1, 1}, 2, 2), popxl.NewVariable(ir, "b", []float32{1, 1}, 2)
	first := ops.Init[float32](ir, 2, 2)
	var in, weights, bias popxl.Param[float32]
	var out popxl.Result[float32]
	linear := popxl.NewGraph(ir, "Linear", func(g *popxl.Graph) {
		in = popxl.NewParam[float32](g, "x", 2, 2) // the listing's graph does not use it, but for its sizes
		x := x.Next()
		weights, bias = popxl.NewParam[float32](g, "W", 2, 2), popxl.NewParam[float32](g, "b", 2)
		v := ops.Add(ops.MatMul(x, weights.Tensor()), bias.Tensor())
		y.Store(v)
		out = popxl.NewResult(g, v)
	})
	o := popxl.NewOutput("o", out.Of(linear.Repeat(repeatCount, in.From(first, out), weights.Is(w.Tensor()), bias.Is(b.Tensor()))))
	require.Equal(t, []popxl.Transfers{{"x_stream", true, repeatCount}, {"y_stream", false, repeatCount}, {"o", false, 1}}, ir.Transfers())
	s := session(t, ir)
	data := make([]float32, 4*(repeatCount+1))
	for i := range data {
		data[i] = float32(i%7) / 4
	}
	outputs, last := y.Make(), o.Make()
	require.NoError(t, s.Run(t.Context(), x.Feed(data[:4*repeatCount]), y.Into(outputs), o.Into(last)))
	var want []float32
	for i := range repeatCount {
		want = append(want, apply(data[4*i:], []float32{1, 1, 1, 1}, []float32{1, 1})...)
	}
	require.Equal(t, want, outputs)
	require.Equal(t, want[4*(repeatCount-1):], last)
	err := s.Run(t.Context(), x.Feed(data[:4*(repeatCount-1)]), y.Into(outputs))
	require.ErrorIs(t, err, rt.ErrEndOfData)
	require.ErrorContains(t, err, `repeat_graph_2: run: input "x_stream": 7 tensors of shape [2,2], want the 8 that a run loads`)
	require.ErrorContains(t, s.Run(t.Context(), x.Feed(data), y.Into(outputs)), `input "x_stream": 36 elements, want the 32 of shape [8,2,2]`)
}
