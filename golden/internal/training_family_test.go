package golden_test

import (
	"context"
	"math"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	sized "github.com/popefgen/popefgen/golden/internal/training_family/want"
	infer "github.com/popefgen/popefgen/golden/internal/training_line/want"
	"github.com/popefgen/popefgen/rt"
)

func openSized(t *testing.T, opts ...rt.RunnerOption) *sized.Runner {
	t.Helper()
	r, err := sized.Open(context.Background(), opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

// sizedBatch fills in the batch of a step, of a size that takes turns: points of a line.
func sizedBatch(in *sized.Inputs, step int) {
	n := sized.Sizes()[step%2].Batch()
	in.X.Resize(n)
	in.Target.Resize(n)
	for k := range n {
		x := in.X.At(k)
		for i := range x {
			x[i] = float32((step*7+k*3+i*5)%9-4) / 8
		}
		*in.Target.At(k) = dot(*x, [3]float32{1, 2, 3})
	}
}

// sized makes a step of a batch, and returns its loss, and the outputs before and after it.
func (l *learner) sized(in *sized.Inputs) (loss float32, before, after []float32) {
	var g [3]float32
	for k := range in.X.Batch {
		y := dot(*in.X.At(k), l.w)
		before = append(before, y)
		d := y - *in.Target.At(k)
		loss += d * d
		for i := range g {
			g[i] += d * in.X.At(k)[i]
		}
	}
	for i := range l.w {
		l.accl[i] = l.accl[i]*l.mm + g[i]
		l.w[i] -= l.accl[i] * l.rate
	}
	for k := range in.X.Batch {
		after = append(after, dot(*in.X.At(k), l.w))
	}
	return loss, before, after
}

// TestTrainingSizes makes steps of two sizes in turns, with one request and one set of outputs for all: one weight learns of both. Values of the
// optimizer hold for both, and what was learnt goes to the inference package.
func TestTrainingSizes(t *testing.T) {
	ctx, r, l := context.Background(), openSized(t), newLearner()
	in, out, evaluated := sized.NewInputs(2), sized.NewOutputs(), sized.NewEvaluateOutputs()
	for step := range 40 {
		if step == 5 {
			require.NoError(t, r.SetOptimizer(ctx, sized.Optimizer{LearningRate: 0.0625}))
			l.rate = 0.0625
		}
		sizedBatch(in, step)
		require.NoError(t, r.Evaluate(ctx, in, evaluated))
		switch step % 3 {
		case 0:
			ticket, err := r.Submit(ctx, in, out)
			require.NoError(t, err)
			require.NoError(t, ticket.Wait(ctx))
		default:
			require.NoError(t, r.Step(ctx, in, out))
		}
		require.Equal(t, in.X.Batch, out.After.Batch)
		require.Equal(t, evaluated.Loss.Data, out.Loss.Data)
		require.Equal(t, evaluated.Y.Flat(), out.Y.Flat())
		loss, before, after := l.sized(in)
		require.InDelta(t, loss, out.Loss.Data, 1e-5)
		require.InDeltaSlice(t, before, out.Y.Flat(), 1e-5)
		require.InDeltaSlice(t, after, out.After.Flat(), 1e-5)
	}
	require.Equal(t, uint64(40), r.Steps())
	w := sized.NewWeights()
	require.NoError(t, r.Weights(ctx, w))
	near(t, l.w, w.W.Data)
	line, err := infer.Open(ctx)
	require.NoError(t, err)
	closing(t, line)
	require.NoError(t, line.UpdateWeights(ctx, w.All()...))
	at, y := infer.NewInputs(), infer.NewOutputs()
	at.X.Data = [3]float32{1, 0, 1}
	require.NoError(t, line.Run(ctx, at, y))
	require.InDelta(t, w.W.Data[0]+w.W.Data[2], y.Y.Data, 1e-6)
}

// TestTrainingSizesResumed goes on from a checkpoint between steps of different sizes: equal bits.
func TestTrainingSizesResumed(t *testing.T) {
	ctx, path := context.Background(), filepath.Join(t.TempDir(), "sized.ckpt")
	steps := func(r *sized.Runner, from, to int) [2][3]float32 {
		in, out, saved := sized.NewInputs(2), sized.NewOutputs(), sized.NewSaveOutputs()
		for step := from; step < to; step++ {
			sizedBatch(in, step)
			require.NoError(t, r.Step(ctx, in, out))
		}
		require.NoError(t, r.Save(ctx, saved))
		return [2][3]float32{saved.W.Data, saved.AcclW.Data}
	}
	whole, first := openSized(t), openSized(t)
	want := steps(whole, 0, 11)
	steps(first, 0, 5)
	require.NoError(t, first.SetOptimizer(ctx, first.CurrentOptimizer()))
	require.NoError(t, first.Checkpoint(ctx, path))
	second := openSized(t, rt.WithCheckpoint(path))
	require.Equal(t, uint64(5), second.Steps())
	require.Equal(t, want, steps(second, 5, 11))
}

// TestTrainingSizesRefused: a step of another size changes nothing, and neither does what is not finite.
func TestTrainingSizesRefused(t *testing.T) {
	ctx, r := context.Background(), openSized(t, rt.WithFiniteLoss())
	for _, n := range []int{1, 3, 5} {
		in := sized.NewInputs(n)
		err := r.Step(ctx, in, sized.NewOutputs())
		require.ErrorIs(t, err, rt.ErrSize)
		if n == 3 {
			require.ErrorContains(t, err, `dimension "batch" has the sizes 2 and 4, and a step would learn of what it is filled up with: give one of these`)
		}
		require.ErrorIs(t, r.Evaluate(ctx, in, sized.NewEvaluateOutputs()), rt.ErrSize)
		_, err = r.Submit(ctx, in, sized.NewOutputs())
		require.ErrorIs(t, err, rt.ErrSize)
	}
	in := sized.NewInputs(4)
	in.Target.Resize(2)
	require.ErrorContains(t, r.Step(ctx, in, sized.NewOutputs()), "both are the dimension")
	require.Equal(t, uint64(0), r.Steps())
	for _, n := range []int{4, 2} {
		in = sized.NewInputs(n)
		*in.Target.At(n - 1) = float32(math.Inf(1))
		require.ErrorIs(t, r.Step(ctx, in, sized.NewOutputs()), rt.ErrNotFinite, n)
	}
}

// TestTrainingSizesAtOnce evaluates in one size while steps are made in the other.
func TestTrainingSizesAtOnce(t *testing.T) {
	ctx, r := context.Background(), openSized(t)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			in, out, evaluated := sized.NewInputs(2), sized.NewOutputs(), sized.NewEvaluateOutputs()
			for step := range 20 {
				sizedBatch(in, i+step)
				err := r.Evaluate(ctx, in, evaluated)
				if i == 0 {
					err = r.Step(ctx, in, out)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	require.Equal(t, uint64(20), r.Steps())
}
