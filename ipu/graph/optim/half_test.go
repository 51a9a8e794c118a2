package optim_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/autodiff"
	"github.com/popefgen/popefgen/ipu/graph/optim"
)

// regression learns y = x·w of 16 samples and 4 features in a type: w begins as 0 and is to become (1, -2, 0.5, 4). The loss is multiplied by size, and the learning rate
// divided by it. It returns the losses of 40 steps, as parts of the first, and the weights.
func regression(t *testing.T, typ graph.DType, size float64, change func(*optim.Training)) (losses, w []float64) {
	const n, in, steps = 16, 4, 40
	b := graph.NewBuilder("regression")
	of := func(shape ...int64) graph.TensorType { return graph.TensorType{DType: typ, Shape: shape} }
	x, y, p := b.AddLocal("x", of(n, in)), b.AddLocal("y", of(n, 1)), b.AddPersistent("w", of(in, 1))
	forward := b.BeginGraph("forward")
	scores, err := b.Node(&graph.MatMul{}, "scores", x, p)
	require.NoError(t, err)
	mse, err := optim.FindLoss("mse")
	require.NoError(t, err)
	loss, err := mse.Add(b, "loss", scores[0], y, optim.NewLossOptions())
	require.NoError(t, err)
	factor := make([]byte, 4)
	put(graph.F32, factor, 0, size)
	out, err := b.Node(&graph.Binary{Fn: graph.Mul}, "loss", loss, b.AddConst("size", graph.TensorType{DType: graph.F32}, factor))
	require.NoError(t, err)
	loss = out[0]
	exe, err := b.Finish()
	require.NoError(t, err)
	info, err := autodiff.Backward(exe, forward, autodiff.Options{Provided: []graph.TensorID{loss}, Required: []graph.TensorID{p}})
	require.NoError(t, err)
	o := optim.NewTraining()
	o.Weights = []optim.Weight{{Name: "w", Tensor: p, Gradient: info.Outputs[0].Tensor}}
	o.Loss, o.LossGradient, o.Backward = loss, info.Inputs[0].Tensor, info.Graph
	sgd := optim.NewSGD()
	sgd.LearningRate = optim.Const(float32(0.3 / size))
	o.Optimizer = sgd
	change(&o)
	trained, err := optim.Train(exe, o)
	require.NoError(t, err)
	b = graph.Continue(exe)
	var load []graph.Step
	for _, s := range trained.States {
		load = append(load, b.CopyIn(s.Name, s.Tensor))
	}
	b.AddProgram(0, "load", load...)
	b.AddProgram(5, "main", b.CopyIn("x", x), b.CopyIn("y", y), b.Call(forward), b.Call(trained.Start), b.Call(info.Graph), b.Call(trained.Update), b.CopyOut("loss", loss))
	b.AddProgram(7, "save", b.CopyOut("w", p))
	m := newTrainer(t, b, true)
	for _, s := range trained.States {
		for i := range len(m.streams[s.Name]) / 4 {
			put(graph.F32, m.streams[s.Name], i, float64(s.Init))
		}
	}
	for i := range n {
		to := 0.0
		for k, v := range []float64{1, -2, 0.5, 4} {
			at := math.Sin(float64(7*i + 3*k))
			put(typ, m.streams["x"], in*i+k, at)
			to += v * at
		}
		put(typ, m.streams["y"], i, to)
	}
	m.run(0)
	for range steps {
		m.run(5)
		losses = append(losses, float64(floats(m.streams["loss"])[0]))
	}
	for i := range losses {
		losses[steps-1-i] /= losses[0]
	}
	m.run(7)
	return losses, numbers(typ, m.streams["w"])
}

// TestHalfLearns: half precision with master copies learns what float32 does. Without these, a step that is smaller than what a weight is rounded to is lost; with gradients that
// float16 has no numbers for, it learns nothing unless the loss is scaled, and automatic scaling finds how much.
func TestHalfLearns(t *testing.T) {
	usual := func(*optim.Training) {}
	slow := func(o *optim.Training) {
		adam := optim.NewAdam()
		adam.LearningRate, adam.Eps = optim.Const(1e-4), optim.Const(1e-12)
		o.Optimizer = adam
	}
	want, w := regression(t, graph.F32, 1, usual)
	require.Less(t, want[39], 0.1)
	for _, typ := range []graph.DType{graph.F16, graph.BF16} {
		within := map[graph.DType]float64{graph.F16: 5e-3, graph.BF16: 4e-2}[typ]
		got, half := regression(t, typ, 1, usual)
		for i := range want {
			require.InDelta(t, want[i], got[i], within, "%s, step %d", typ, i)
		}
		for i := range w {
			require.InDelta(t, w[i], half[i], 8*within, "%s", typ)
		}
	}
	// Forty steps of 1e-4 from 0 do not get far: bfloat16 holds them, until the next is less than half of its last bit.
	_, w = regression(t, graph.F32, 1, slow)
	_, with := regression(t, graph.BF16, 1, slow)
	_, without := regression(t, graph.BF16, 1, func(o *optim.Training) { slow(o); o.NoMaster = true })
	for i := range w {
		require.InEpsilon(t, w[i], with[i], 0.005)
		require.Greater(t, math.Abs(without[i]/w[i]-1), 0.01)
	}
	// 2^-25 is nothing in float16, and most elements of these gradients are less.
	const tiny = 0x1p-26
	lost, _ := regression(t, graph.F16, tiny, usual)
	require.Greater(t, lost[39], 0.9)
	scaled := func(scale float32, automatic bool) func(o *optim.Training) {
		return func(o *optim.Training) {
			sgd := o.Optimizer.(optim.SGD)
			sgd.LossScaling = optim.Const(scale)
			o.Optimizer = sgd
			if automatic {
				a := optim.NewAutomaticScaling()
				o.Scaling = &a
			}
		}
	}
	for _, automatic := range []bool{false, true} {
		got, _ := regression(t, graph.F16, tiny, scaled(0x1p22, automatic))
		for i := range want {
			require.InDelta(t, want[i], got[i], 5e-3, "step %d", i)
		}
	}
	// Doubled every step, it takes some until gradients come through.
	got, _ := regression(t, graph.F16, tiny, scaled(1, true))
	require.Greater(t, got[3], 0.9)
	require.Less(t, got[39], want[30])
}
