package popxl_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/rt/popxl"
	"github.com/popefgen/popefgen/rt/popxl/ops"
)

// TestAccumulation: a step by the gradients of three micro-batches, each of which loads two tensors in a loop, is the step that follows from their mean or sum; what comes before it is returned for each of them, the
// variable once. The gradient of Σ (w·x - y)² is Σ 2x·(w·x - y).
func TestAccumulation(t *testing.T) {
	xs, ys := []float32{1, 2, 3, -1, 0, 2}, []float32{1, 1, 2, 2, 3, 3}
	for _, sum := range []bool{false, true} {
		ir := popxl.New("accumulation")
		x, y := popxl.NewInput[float32](ir, "x"), popxl.NewInput[float32](ir, "y")
		w := popxl.NewVariable(ir, "w", []float32{0.5})
		each := popxl.DeclareOutput[float32](ir, "each")
		loss := ops.Repeat(2, ops.Init[float32](ir), func(total tensor) tensor {
			d := ops.Sub(ops.Mul(w.Tensor(), x.Next()), y.Next())
			each.Store(ops.Mul(d, d))
			return ops.Add(total, ops.Mul(d, d))
		})
		total := popxl.NewOutput("loss", loss)
		sgd := optim.NewSGD()
		sgd.LearningRate = optim.Const(0.125)
		popxl.Minimize(loss, popxl.Training{Optimizer: sgd, Accumulation: 3, Sum: sum}, w)
		now := popxl.NewOutput("now", w.Tensor())
		squared := popxl.DeclareOutput[float32](ir, "squared")
		squared.Store(ops.Mul(w.Tensor(), w.Tensor()))
		require.Empty(t, cmp.Diff([]popxl.Transfers{{"x", true, 6}, {"y", true, 6}, {"each", false, 6}, {"loss", false, 3}, {"now", false, 1}, {"squared", false, 1}}, ir.Transfers()))
		s := session(t, ir)
		losses, parts, ws, sq := total.Make(), each.Make(), now.Make(), squared.Make()
		v := float32(0.5)
		for range 2 {
			var gradient float32
			wantLosses, wantParts := make([]float32, 3), make([]float32, 6)
			for i := range xs {
				d := v*xs[i] - ys[i]
				wantParts[i], wantLosses[i/2], gradient = d*d, wantLosses[i/2]+d*d, gradient+2*xs[i]*d
			}
			if !sum {
				gradient /= 3
			}
			require.NoError(t, s.Evaluate(t.Context(), x.Feed(xs), y.Feed(ys), total.Into(losses), each.Into(parts)))
			require.InDeltaSlice(t, wantLosses, losses, 1e-5)
			v -= 0.125 * gradient
			require.NoError(t, s.Run(t.Context(), x.Feed(xs), y.Feed(ys), total.Into(losses), each.Into(parts), now.Into(ws), squared.Into(sq)))
			require.InDeltaSlice(t, wantLosses, losses, 1e-5)
			require.InDeltaSlice(t, wantParts, parts, 1e-5)
			require.InDeltaSlice(t, []float32{v}, ws, 1e-5)
			require.InDeltaSlice(t, []float32{v * v}, sq, 1e-5)
		}
	}
}

// TestMistakesOfAccumulation: steps of one Ir accumulate over as many micro-batches, and gradients that are given over one.
func TestMistakesOfAccumulation(t *testing.T) {
	ir := popxl.New("mistakes")
	x := popxl.NewInput[float32](ir, "x").Load()
	v, w := popxl.NewVariable(ir, "v", []float32{1}), popxl.NewVariable(ir, "w", []float32{1})
	sgd := optim.NewSGD()
	loss := ops.Mul(ops.Mul(v.Tensor(), w.Tensor()), x)
	popxl.Minimize(loss, popxl.Training{Optimizer: sgd, Accumulation: -1}, v)
	popxl.Minimize(loss, popxl.Training{Optimizer: sgd, Accumulation: 4}, v)
	popxl.Minimize(loss, popxl.Training{Optimizer: sgd, Accumulation: 2}, w)
	popxl.Optimize(sgd, w.By(x))
	all := errors(ir)
	require.Len(t, all, 3)
	require.ErrorContains(t, all[0], "popxl.Minimize: an accumulation over -1 micro-batches, want at least 1, and as many as other steps of the Ir, 1")
	require.ErrorContains(t, all[1], "popxl.Minimize: an accumulation over 2 micro-batches, want at least 1, and as many as other steps of the Ir, 4")
	require.ErrorContains(t, all[2], "popxl.Optimize: another step of the Ir adds gradients up over 4 micro-batches, which these are not: take Minimize")
}
