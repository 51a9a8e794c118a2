package popxl_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/ipu/num"
	"github.com/popefgen/popefgen/rt/popxl"
	"github.com/popefgen/popefgen/rt/popxl/ops"
)

// TestDebugging: taps and prints show what loops, graphs and steps compute, in sessions alone.
func TestDebugging(t *testing.T) {
	build := func() (*popxl.Ir, popxl.Input[float32], []popxl.Output[float32]) {
		ir := popxl.New("debugging")
		x := popxl.NewInput[float32](ir, "x", 2)
		w := popxl.NewVariable(ir, "w", []float32{1, 2}, 2)
		var tap popxl.Output[float32]
		g := popxl.NewGraph(ir, "doubled", func(g *popxl.Graph) {
			tap = popxl.Tap("doubled", ops.Mul(w.Tensor(), popxl.Constant(ir, []float32{2})))
		})
		g.Call()
		y := ops.Repeat(2, x.Load(), func(v tensor) tensor { return ops.PrintTensor(ops.Mul(v, w.Tensor()), "y") })
		g.Call()
		loss := ops.Sum(y)
		out := popxl.NewOutput("loss", loss)
		sgd := optim.NewSGD()
		sgd.LearningRate = optim.Const(0.5)
		popxl.Minimize(loss, popxl.Training{Optimizer: sgd}, w)
		ops.PrintTensor(w.Tensor(), "w")
		ops.PrintTensor(ops.Greater(w.Tensor(), y), "less")
		return ir, x, []popxl.Output[float32]{out, tap}
	}
	ir, x, outs := build()
	s := session(t, ir)
	var screen bytes.Buffer
	s.PrintTo(&screen)
	loss, tapped := outs[0].Make(), outs[1].Make()
	require.NoError(t, s.Evaluate(t.Context(), x.Feed([]float32{3, 1}), outs[1].Into(tapped)))
	require.Equal(t, []float32{2, 4, 2, 4}, tapped)
	require.Equal(t, "y: f32[2] [3 2]\ny: f32[2] [3 4]\n", screen.String())
	screen.Reset()
	require.NoError(t, s.Run(t.Context(), x.Feed([]float32{3, 1}), outs[0].Into(loss)))
	require.Equal(t, []float32{7}, loss)
	require.Equal(t, "y: f32[2] [3 2]\ny: f32[2] [3 4]\nw: f32[2] [-2 0]\nless: bool[2] [false false]\n", screen.String()) // w - ½·2·x·w
	s.PrintTo(nil)
	require.NoError(t, s.Run(t.Context(), x.Feed([]float32{3, 1})))

	ir, _, _ = build()
	m, err := ir.Export(t.Context())
	require.NoError(t, err)
	for _, a := range m.Metadata.Anchors {
		require.False(t, strings.HasPrefix(a.Name, "print") || a.Name == "doubled", a.Name)
	}
}

// TestPrinted: numbers of every kind, and the middle of large tensors left out.
func TestPrinted(t *testing.T) {
	ir := popxl.New("printed")
	ops.PrintTensor(popxl.Constant(ir, []int64{-1 << 62, 7}, 1, 2), "whole")
	ops.PrintTensor(popxl.Constant(ir, []uint64{1<<64 - 1}), "large")
	ops.PrintTensor(popxl.Constant(ir, []num.Float16{num.Float16From(0.1)}), "half")
	ops.PrintTensor(popxl.Constant(ir, []float64{0.1}), "double")
	ops.PrintTensor(popxl.Constant(ir, []int32{}, 0, 3), "none")
	ops.PrintTensor(popxl.Constant(ir, []bool{true}), "truth")
	ops.PrintTensor(popxl.Constant(ir, make([]int8, 2002), 2, 1001), "wide")
	s := session(t, ir)
	var screen bytes.Buffer
	s.PrintTo(&screen)
	require.NoError(t, s.Run(t.Context()))
	require.Equal(t, `whole: i64[1,2] [[-4611686018427387904 7]]
large: u64[] 18446744073709551615
half: f16[] 0.099975586
double: f64[] 0.1
none: i32[0,3] []
truth: bool[] true
wide: i8[2,1001] [[0 0 0 … 0 0 0] [0 0 0 … 0 0 0]]
`, screen.String())
}

// TestMistakesOfDebugging: a tap that nothing computes is a mistake of a session, with its line.
func TestMistakesOfDebugging(t *testing.T) {
	ir := popxl.New("never")
	x := popxl.NewInput[float32](ir, "x").Load()
	popxl.NewGraph(ir, "g", func(*popxl.Graph) { popxl.Tap("tap", x) })
	popxl.Tap("tap", x)
	popxl.Tap("zero", tensor{})
	ops.PrintTensor(ops.MatMul(x, x), "failed")
	ops.PrintTensor(tensor{}, "zero")
	all := errors(ir)
	require.Len(t, all, 2)
	require.ErrorContains(t, all[0], `popxl.Tap: there is a stream or variable "tap" already`)
	require.ErrorContains(t, all[1], "ops.MatMul: ")

	ir = popxl.New("never")
	popxl.NewGraph(ir, "g", func(*popxl.Graph) { ops.PrintTensor(ops.Init[float32](ir), "lost") })
	popxl.NewOutput("y", popxl.NewInput[float32](ir, "x").Load())
	_, err := popxl.NewSession(t.Context(), ir)
	require.ErrorContains(t, err, `ops.PrintTensor: "print 0: lost": nothing computes it: it is in a loop of no iterations, or in a graph that is not called`)
	require.ErrorContains(t, err, "debug_test.go:")
}
