package cpu

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
)

// endless is a loop that adds x to what it carries for as long as x is not 0.
func endless(t *testing.T) *Engine {
	b := graph.NewBuilder("endless")
	x := b.AddLocal("x", f32(2))
	zero := b.AddConst("zero", f32(), bytesOf([]float32{0}))
	body := b.BeginGraph("body")
	i, a := b.AddLocal("i", graph.TensorType{DType: graph.I64}), b.AddLocal("a", f32(2))
	sum := node(t, b, &graph.Reduce{Fn: graph.ReduceMax, Axes: []int64{0}}, "max", x)
	more := node(t, b, &graph.Binary{Fn: graph.Greater}, "more", sum, zero)
	b.SetParams(body, []graph.TensorID{i, a}, []graph.TensorID{more, node(t, b, &graph.Binary{Fn: graph.Add}, "add", a, x)})
	main := b.BeginGraph("main")
	y := node(t, b, &graph.Loop{Body: body, Count: -1, While: true}, "loop", graph.None, graph.None, x)
	b.AddProgram(0, "main", b.CopyIn("x", x), b.Call(main), b.CopyOut("y", y))
	return newLoaded(t, b)
}

func TestLoopEndsWithContext(t *testing.T) {
	e := endless(t)
	y := make([]float32, 2)
	connect(t, e, map[string]ipu.Stream{"x": in(t, []float32{0, -1}), "y": out(t, y)})
	run(t, e, 0)
	require.Equal(t, []float32{0, -2}, y)

	connect(t, e, map[string]ipu.Stream{"x": in(t, []float32{1, 1}), "y": out(t, y)})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- e.Run(ctx, 0) }()
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}

// A run of a program with branches and loops allocates nothing.
func TestControlAllocatesNothing(t *testing.T) {
	e := endless(t)
	connect(t, e, map[string]ipu.Stream{"x": in(t, []float32{0, -1}), "y": out(t, make([]float32, 2))})
	ctx := context.Background()
	require.Zero(t, testing.AllocsPerRun(10, func() { require.NoError(t, e.Run(ctx, 0)) }))
}

func TestControlInThePlan(t *testing.T) {
	text := endless(t).Plan().String()
	for _, want := range []string{"begin Loop", "repeat Loop \"loop\"", "compute Binary \"add\"", "end Loop \"loop\""} {
		require.True(t, strings.Contains(text, want), "%q in\n%s", want, text)
	}
}

// TestNestedGraphsAreBounded nests graphs that are used twice each: written
// out, they would be endless.
func TestNestedGraphsAreBounded(t *testing.T) {
	b := graph.NewBuilder("nested")
	x, cond := b.AddLocal("x", f32(1)), b.AddLocal("cond", graph.TensorType{DType: graph.Bool})
	g := b.BeginGraph("innermost")
	b.SetParams(g, nil, []graph.TensorID{node(t, b, &graph.Unary{Fn: graph.Neg}, "neg", x)})
	for range 20 {
		next := b.BeginGraph("branch")
		b.SetParams(next, nil, []graph.TensorID{node(t, b, &graph.If{Then: g, Else: g}, "if", cond)})
		g = next
	}
	main := b.BeginGraph("main")
	y := node(t, b, &graph.If{Then: g, Else: g}, "if", cond)
	b.AddProgram(0, "main", b.CopyIn("x", x), b.CopyIn("cond", cond), b.Call(main), b.CopyOut("y", y))
	_, err := New(ipu.EngineConfig{Name: "nested", Executable: executable(t, b)})
	require.ErrorContains(t, err, "have more than 131072 steps")
}
