package cpu

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu/internal/plan"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/ipu/graph/pass"
)

// learner is a program that feeds a gradient to Adam, with the learning rate from a stream, and gives the weight
// and all that Adam remembers.
func learner(t require.TestingT, n int64) *graph.Builder {
	b := graph.NewBuilder("learner")
	w, m, v := b.AddPersistent("w", f32(n)), b.AddPersistent("Accl1___w", f32(n)), b.AddPersistent("Accl2___w", f32(n))
	step, rate := b.AddPersistent("Step___w", f32()), b.AddPersistent("learningRate", f32())
	g := b.AddLocal("g", f32(n))
	update := b.BeginGraph("update")
	require.NoError(t, b.NodeTo(&graph.Update{Rule: graph.UpdateAdam, Values: []float64{0, 0, 1, 0.9, 0.999, 1e-6}}, "adam",
		[]graph.TensorID{w, m, v, step}, w, g, graph.None, graph.None, graph.None, m, v, step, rate))
	b.AddProgram(0, "weights", b.CopyIn("w in", w))
	b.AddProgram(1, "optimizer", b.CopyIn("rate", rate))
	b.AddProgram(5, "main", b.CopyIn("g", g), b.Call(update))
	b.AddProgram(7, "save", b.CopyOut("w", w), b.CopyOut("m", m), b.CopyOut("v", v), b.CopyOut("step", step))
	return b
}

// TestUpdateInPlace: weight and states are written where they lie, and results are the same bits with any number of
// threads and where they are not.
func TestUpdateInPlace(t *testing.T) {
	const n = 70_000
	var want [][]float32
	for _, o := range [][]ipu.Option{opt("threads", "1"), opt("threads", "2"), opt("threads", "2", "inplace", "off"), opt("threads", "1", "alias", "off")} {
		e := newLoaded(t, learner(t, n), o...)
		kinds := map[plan.StepKind]int{}
		for _, p := range e.plan.Programs {
			if p.Index != 5 {
				continue
			}
			for _, s := range p.Steps {
				kinds[s.Kind]++
			}
		}
		moves := 0
		if len(o) > 1 && o[1].Name == "inplace" {
			moves = 4
		}
		require.Equal(t, moves, kinds[plan.Move]+kinds[plan.Keep], "%v", o)
		w, g, rate := make([]float32, n), make([]float32, n), []float32{0.01}
		for i := range w {
			w[i], g[i] = float32(math.Sin(float64(i))), float32(math.Cos(float64(3*i)))
		}
		got := [][]float32{make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, 1)}
		connect(t, e, map[string]ipu.Stream{"w in": in(t, w), "rate": in(t, rate), "g": in(t, g),
			"w": out(t, got[0]), "m": out(t, got[1]), "v": out(t, got[2]), "step": out(t, got[3])})
		run(t, e, 0)
		for i := range 3 {
			rate[0] = 0.01 / float32(1+i) // a changed value counts from the next step on
			run(t, e, 1)
			run(t, e, 5)
		}
		require.Zero(t, testing.AllocsPerRun(5, func() { require.NoError(t, e.Run(context.Background(), 5)) }))
		run(t, e, 7)
		require.Equal(t, float32(9), got[3][0])
		if want == nil {
			want = got
		}
		require.Empty(t, cmp.Diff(want, got), "%v", o)
	}
}

// TestAccumulateInPlace: an accumulator is read and written once for each micro-batch, where it lies, whatever is kept in it; weights have
// the same bits with any number of threads, where their gradients' norm is bounded too.
func TestAccumulateInPlace(t *testing.T) {
	const n, micro = 300_000, 4
	for _, running := range []bool{false, true} {
		b := graph.NewBuilder("accumulation")
		w, x, start := b.AddPersistent("w", f32(n)), b.AddLocal("x", f32(n)), b.AddLocal("start", f32(1))
		o := optim.NewTraining()
		o.Backward = b.BeginGraph("backward")
		g, err := b.Node(&graph.Softmax{}, "g", x)
		require.NoError(t, err)
		o.Optimizer, o.LossGradient, o.MicroBatches, o.Running = optim.NewSGD(), start, micro, running
		o.Clips = []optim.Clip{{MaxNorm: 1e-3}}
		o.Weights = []optim.Weight{{Name: "w", Tensor: w, Gradient: g[0]}}
		exe, err := b.Finish()
		require.NoError(t, err)
		trained, err := optim.Train(exe, o)
		require.NoError(t, err)
		b = graph.Continue(exe)
		b.AddProgram(5, "main", b.Call(trained.Begin[0]), b.Repeat(micro, b.CopyIn("x", x), b.Call(trained.Start), b.Call(o.Backward)), b.Call(trained.Update))
		b.AddProgram(7, "save", b.CopyOut("w", w))
		exe, err = b.Finish()
		require.NoError(t, err)
		require.NoError(t, pass.Optimize(exe, pass.OptimizeOptions{}))
		fed, want := make([]float32, n), []float32(nil)
		for i := range fed {
			fed[i] = float32(10 * math.Sin(float64(i)))
		}
		for _, threads := range []string{"1", "2"} {
			e := newLoaded(t, graph.Continue(exe), opt("threads", threads)...)
			var steps []string
			for _, s := range e.plan.Programs[0].Steps {
				for i, o := range s.Out {
					if o.Place == plan.InPersistent && exe.Tensors[o.Tensor].Name == "Accum___w" {
						steps = append(steps, fmt.Sprint(s.Kind, " ", len(s.In), " ", i))
						require.Contains(t, []string{"clear Accum___w", "accumulate w"}, s.Name)
					}
				}
				require.NotContains(t, []plan.StepKind{plan.Move, plan.Keep}, s.Kind, s.Name)
				require.False(t, s.Name == "accumulate w" && s.Out[0].Place != plan.InPersistent, "a pass of its own")
			}
			require.Len(t, steps, 2)
			got := make([]float32, n)
			connect(t, e, map[string]ipu.Stream{"x": in(t, fed), "w": out(t, got)})
			run(t, e, 5)
			run(t, e, 7)
			squares := 0.0
			for _, v := range got {
				squares += float64(v) * float64(v)
			}
			require.InEpsilon(t, 0.1*1e-3, math.Sqrt(squares), 1e-4)
			if want == nil {
				want = got
			}
			require.True(t, slices.Equal(want, got), "%s threads", threads)
			require.Zero(t, testing.AllocsPerRun(5, func() { require.NoError(t, e.Run(context.Background(), 5)) }))
		}
	}
}

// TestAssertLabels names the first label that is no class.
func TestAssertLabels(t *testing.T) {
	b := graph.NewBuilder("labels")
	labels := b.AddLocal("labels", graph.TensorType{DType: graph.I32, Shape: []int64{4}})
	g := b.BeginGraph("main")
	_, err := b.Node(&graph.AssertLabels{Classes: 10, Ignores: true, Ignore: -1}, "check", labels)
	require.NoError(t, err)
	b.AddProgram(5, "main", b.CopyIn("labels", labels), b.Call(g))
	e := newLoaded(t, b)
	fed := []int32{0, 9, -1, 3}
	connect(t, e, map[string]ipu.Stream{"labels": sink{bytesOf(fed)}})
	ctx := context.Background()
	require.NoError(t, e.Run(ctx, 5))
	var assertion *ipu.AssertionError
	for _, bad := range []int32{10, -2, math.MaxInt32} {
		fed[3] = bad
		require.ErrorAs(t, e.Run(ctx, 5), &assertion)
		require.Contains(t, assertion.Message, "label 3 is ")
	}
	require.Equal(t, "label 3 is 2147483647, want 0 to 9, or -1 for one that does not count: check the labels that are fed", assertion.Message)
	fed[3] = 9
	require.NoError(t, e.Run(ctx, 5))
}
