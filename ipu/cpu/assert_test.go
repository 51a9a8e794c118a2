package cpu

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
)

// checked is a convolution of x behind a check that x's greatest element is
// over a limit, with nothing that reads what the check reads besides.
func checked(t require.TestingT, want bool) *model {
	m := newModel("checked")
	x := m.b.AddLocal("x", f32(1, 2, 3, 3))
	w := m.weight("w", 1, 2, 2, 1, 1)
	limit := m.b.AddConst("limit", f32(), bytesOf([]float32{10}))
	g := m.b.BeginGraph("main")
	ones, none := []int64{1, 1}, []int64{0, 0}
	y := node(t, m.b, &graph.Conv{Strides: ones, Dilations: ones, PadsBegin: none, PadsEnd: none, Group: 1}, "conv", x, w)
	most := node(t, m.b, &graph.Reduce{Fn: graph.ReduceMax, Axes: []int64{0, 1, 2, 3}}, "max", x)
	over := node(t, m.b, &graph.Binary{Fn: graph.Greater}, "over", most, limit)
	_, err := m.b.Node(&graph.Assert{Want: want, Message: "x is small: feed larger numbers"}, "check", over)
	require.NoError(t, err)
	m.finish(x, node(t, m.b, &graph.Unary{Fn: graph.Relu}, "relu", y), g)
	return m
}

// TestAssert checks what a program assumes of its values, whatever passes and
// layouts do, and goes on afterwards.
func TestAssert(t *testing.T) {
	ctx := context.Background()
	for _, want := range []bool{true, false} {
		m := checked(t, want)
		exe := executable(t, m.b)
		for name, disabled := range passWays() {
			for _, o := range [][]ipu.Option{nil, opt("layout", "off"), opt("threads", "1")} {
				e, err := New(ipu.EngineConfig{Name: name, Executable: optimized(t, exe, disabled), Options: o})
				require.NoError(t, err)
				load(t, e)
				x, y := m.start(t, e)
				prepared, err := e.Prepare(1)
				require.NoError(t, err)
				for _, run := range []func() error{func() error { return e.Run(ctx, 1) }, func() error { return prepared.Run(ctx) }} {
					for _, over := range []bool{true, false, true} {
						x[3] = -1
						if over {
							x[3] = 50
						}
						y[0] = -1
						err := run()
						if over == want {
							require.NoError(t, err, name)
							require.NotEqual(t, float32(-1), y[0])
							continue
						}
						var assertion *ipu.AssertionError
						require.ErrorAs(t, err, &assertion, name)
						require.Equal(t, "x is small: feed larger numbers", assertion.Message)
						require.ErrorContains(t, err, `node "check": x is small`)
						var device *ipu.Error
						require.False(t, errors.As(err, &device), "it is no failure of the device")
					}
				}
				require.NoError(t, e.Close())
			}
		}
	}
}

// A check in a graph that runs only sometimes is made only then, and a passed
// check allocates nothing.
func TestAssertInBranch(t *testing.T) {
	b := graph.NewBuilder("branch")
	flag := graph.TensorType{DType: graph.Bool}
	cond, ok := b.AddLocal("cond", flag), b.AddLocal("ok", flag)
	x := b.AddLocal("x", f32(1))
	then := b.BeginGraph("then")
	_, err := b.Node(&graph.Assert{Want: true, Message: "not ok"}, "check", ok)
	require.NoError(t, err)
	b.SetParams(then, nil, []graph.TensorID{node(t, b, &graph.Unary{Fn: graph.Neg}, "neg", x)})
	otherwise := b.BeginGraph("else")
	b.SetParams(otherwise, nil, []graph.TensorID{node(t, b, &graph.Unary{Fn: graph.Abs}, "abs", x)})
	main := b.BeginGraph("main")
	y := node(t, b, &graph.If{Then: then, Else: otherwise}, "if", cond)
	b.AddProgram(0, "main", b.CopyIn("cond", cond), b.CopyIn("ok", ok), b.CopyIn("x", x), b.Call(main), b.CopyOut("y", y))
	e := newLoaded(t, b)
	flags, result := make([][]byte, 2), make([]float32, 1)
	for i := range flags {
		flags[i] = make([]byte, 1)
	}
	connect(t, e, map[string]ipu.Stream{"cond": sink{flags[0]}, "ok": sink{flags[1]}, "x": sink{bytesOf([]float32{-3})}, "y": sink{bytesOf(result)}})
	run(t, e, 0)
	require.Equal(t, float32(3), result[0])
	flags[0][0] = 1
	var assertion *ipu.AssertionError
	require.ErrorAs(t, e.Run(context.Background(), 0), &assertion)
	flags[1][0] = 1
	ctx := context.Background()
	require.Zero(t, testing.AllocsPerRun(10, func() { require.NoError(t, e.Run(ctx, 0)) }))
	require.Equal(t, float32(3), result[0])
}
