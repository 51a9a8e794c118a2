package golden_test

import (
	"bytes"
	"context"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	training "github.com/popefgen/popefgen/golden/internal/training/want"
	infer "github.com/popefgen/popefgen/golden/internal/training_line/want"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/checkpoint"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// learner computes in Go what the model training does.
type learner struct {
	w, accl  [3]float32
	rate, mm float32
}

func newLearner() *learner { return &learner{w: [3]float32{0.5, -1, 2}, rate: 0.125, mm: 0.5} }

func dot(a, b [3]float32) (s float32) {
	for i := range a {
		s += a[i] * b[i]
	}
	return s
}

// step returns the losses of two batches and the norm after them.
func (l *learner) step(in *training.Inputs) (loss [2]float32, norm float32) {
	for k := range loss {
		d := dot(in.X[k].Data, l.w) + 0.25 - in.Target[k].Data
		loss[k] = d * d
		for i := range l.w {
			g := in.X[k].Data[i] * d
			a := l.accl[i] * l.mm
			l.accl[i] = a + g
			u := l.accl[i] * l.rate
			l.w[i] -= u
		}
	}
	return loss, dot(l.w, l.w)
}

// batches fills in the batches of a step: points of a line, small numbers that floats have exactly.
func batches(in *training.Inputs, step int) {
	for k := range in.X {
		for i := range in.X[k].Data {
			in.X[k].Data[i] = float32((step*7+k*3+i*5)%9-4) / 8
		}
		in.Target[k].Data = dot(in.X[k].Data, [3]float32{1, 2, 3}) + 0.25
	}
}

func train(t *testing.T, r *training.Runner, from, to int) {
	t.Helper()
	in, out := training.NewInputs(), training.NewOutputs()
	for step := from; step < to; step++ {
		batches(in, step)
		require.NoError(t, r.Step(context.Background(), in, out))
	}
}

func openTraining(t *testing.T, opts ...rt.RunnerOption) *training.Runner {
	t.Helper()
	r, err := training.Open(context.Background(), opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

func weights(t *testing.T, r *training.Runner) [3]float32 {
	t.Helper()
	w := training.NewWeights()
	require.NoError(t, r.Weights(context.Background(), w))
	return w.W.Data
}

func near(t *testing.T, want, got [3]float32) {
	t.Helper()
	for i := range want {
		require.InDelta(t, want[i], got[i], 1e-5)
	}
}

// TestTrainingSteps compares losses and weights with what Go computes, while values of the optimizer change.
func TestTrainingSteps(t *testing.T) {
	ctx, r, l := context.Background(), openTraining(t), newLearner()
	require.Equal(t, [2]float32{0.125, 0.5}, [2]float32{r.CurrentOptimizer().LearningRate, r.CurrentOptimizer().SgdMomentum})
	in, out, evaluated := training.NewInputs(), training.NewOutputs(), training.NewEvaluateOutputs()
	for step := range 40 {
		switch step {
		case 5: // a literal sets what it names
			require.NoError(t, r.SetOptimizer(ctx, training.Optimizer{LearningRate: 0.25}))
			l.rate = 0.25
		case 9: // zeros count in what the runner returned
			o := r.CurrentOptimizer()
			require.Equal(t, float32(0.25), o.LearningRate)
			o.SgdMomentum = 0
			require.NoError(t, r.SetOptimizer(ctx, o))
			l.mm = 0
		}
		batches(in, step)
		require.NoError(t, r.Evaluate(ctx, in, evaluated))
		require.NoError(t, r.Step(ctx, in, out))
		require.InDelta(t, out.Loss[0].Data, evaluated.Loss[0].Data, 0, "the first batch meets the weights that Evaluate does")
		loss, norm := l.step(in)
		require.InDeltaSlice(t, loss[:], []float32{out.Loss[0].Data, out.Loss[1].Data}, 1e-5)
		require.InDelta(t, norm, out.Norm.Data, 1e-4)
		near(t, l.w, weights(t, r))
	}
	require.Equal(t, uint64(40), r.Steps())
	far := func(w [3]float32) float32 {
		return dot([3]float32{w[0] - 1, w[1] - 2, w[2] - 3}, [3]float32{w[0] - 1, w[1] - 2, w[2] - 3})
	}
	require.Less(t, far(l.w), far(newLearner().w)/4, "it learns the line")
}

// TestTrainingOptimizerRefused: a value that is no number leaves all as it is.
func TestTrainingOptimizerRefused(t *testing.T) {
	r, l := openTraining(t), newLearner()
	err := r.SetOptimizer(context.Background(), training.Optimizer{LearningRate: float32(math.NaN()), SgdMomentum: 0.25})
	require.ErrorIs(t, err, rt.ErrNotFinite)
	require.ErrorContains(t, err, `optimizer "learningRate___default___FLOAT"`)
	require.Equal(t, float32(0.5), r.CurrentOptimizer().SgdMomentum)
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, r.SetOptimizer(canceled, training.Optimizer{LearningRate: 1}), context.Canceled)
	in := training.NewInputs()
	batches(in, 0)
	l.step(in)
	train(t, r, 0, 1)
	near(t, l.w, weights(t, r))
	err = r.UpdateWeights(context.Background(), rt.Weight{Anchor: "learningRate___default___FLOAT", Data: make([]byte, 4)})
	require.ErrorContains(t, err, "SetOptimizer sets it")
}

// TestTrainingResumed makes 20 steps, and 10 and 10 in another process: equal bits. Values of the optimizer that were set go along.
func TestTrainingResumed(t *testing.T) {
	const env = "POPEFGEN_TRAINING_RESUMED"
	set := training.Optimizer{LearningRate: 0.0625}
	if path := os.Getenv(env); path != "" { // the other process
		r := openTraining(t, rt.WithCheckpoint(path))
		require.Equal(t, uint64(10), r.Steps())
		require.Equal(t, float32(0.0625), r.CurrentOptimizer().LearningRate)
		train(t, r, 10, 20)
		require.NoError(t, r.Checkpoint(context.Background(), path))
		return
	}
	ctx, dir := context.Background(), t.TempDir()
	whole, part := openTraining(t), openTraining(t)
	require.NoError(t, whole.SetOptimizer(ctx, set))
	require.NoError(t, part.SetOptimizer(ctx, set))
	train(t, whole, 0, 20)
	train(t, part, 0, 10)
	want, got := filepath.Join(dir, "whole.ckpt"), filepath.Join(dir, "part.ckpt")
	require.NoError(t, whole.Checkpoint(ctx, want))
	require.NoError(t, part.Checkpoint(ctx, got))
	cmd := exec.Command(os.Args[0], "-test.run=^TestTrainingResumed$")
	cmd.Env = append(os.Environ(), env+"="+got)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	a, err := os.ReadFile(want)
	require.NoError(t, err)
	b, err := os.ReadFile(got)
	require.NoError(t, err)
	require.True(t, bytes.Equal(a, b), "the checkpoints differ")
	c, err := checkpoint.Read(got)
	require.NoError(t, err)
	require.Equal(t, training.ContractHash, c.Contract)
	require.Equal(t, uint64(20), c.Steps)
	require.Len(t, c.Tensors, 6)
	require.Equal(t, []byte{0, 0, 0x80, 0x3e}, c.Tensor("shift").Data, "no program saves it")
}

// TestTrainingClosedMeanwhile closes learners of a mapped file while they save: a checkpoint is whole, or the runner was closed.
func TestTrainingClosedMeanwhile(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	for i := range 20 {
		r, err := training.Open(ctx, rt.WithModelFile("training/want/line.popef"))
		require.NoError(t, err)
		path := filepath.Join(dir, "line.ckpt")
		saved := make(chan error, 1)
		go func() { saved <- r.Checkpoint(ctx, path) }()
		time.Sleep(time.Duration(i) * 100 * time.Microsecond)
		require.NoError(t, r.Close())
		if err := <-saved; err != nil {
			require.ErrorIs(t, err, rt.ErrClosed)
			continue
		}
		_, err = checkpoint.Read(path)
		require.NoError(t, err)
	}
}

// TestTrainingKeepsItsModel refuses a checkpoint in the place of the model that learns, by whatever name.
func TestTrainingKeepsItsModel(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	was, err := os.ReadFile("training/want/line.popef")
	require.NoError(t, err)
	path, link := filepath.Join(dir, "line.popef"), filepath.Join(dir, "link.popef")
	require.NoError(t, os.WriteFile(path, was, 0o666))
	require.NoError(t, os.Link(path, link))
	r, err := training.Open(ctx, rt.WithModelFile(path))
	require.NoError(t, err)
	for _, name := range []string{path, link, filepath.Join(dir, ".", "line.popef")} {
		require.ErrorContains(t, r.Checkpoint(ctx, name), "is the file of the model, which would be written over; choose another file")
	}
	is, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, bytes.Equal(was, is))
	require.NoError(t, r.Checkpoint(ctx, filepath.Join(dir, "line.ckpt")))
	require.NoError(t, r.Close())
}

// TestTrainingPoisoned lets a target that is no number into the weights: no checkpoint has them.
func TestTrainingPoisoned(t *testing.T) {
	ctx, path := context.Background(), filepath.Join(t.TempDir(), "line.ckpt")
	r := openTraining(t, rt.WithFiniteLoss())
	train(t, r, 0, 3)
	require.NoError(t, r.Checkpoint(ctx, path))
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	in, out := training.NewInputs(), training.NewOutputs()
	in.X[1].Data = [3]float32{0, 1, 0}
	in.Target[1].Data = float32(math.Inf(1))
	err = r.Step(ctx, in, out)
	require.ErrorIs(t, err, rt.ErrNotFinite)
	require.ErrorContains(t, err, `output "loss": not finite: transfer 2 of 2 is +Inf`)
	err = r.Checkpoint(ctx, path)
	require.ErrorIs(t, err, rt.ErrNotFinite)
	require.ErrorContains(t, err, `weight "w", F32 [3]: not finite: element [0] is NaN`)
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, bytes.Equal(good, after))
	silent := openTraining(t)
	require.NoError(t, silent.Step(ctx, in, out), "nobody asked")
	require.Equal(t, uint64(4), r.Steps())
}

// TestTrainingHandedOver gives what was learnt to an inference package, by a file and without one.
func TestTrainingHandedOver(t *testing.T) {
	ctx, path := context.Background(), filepath.Join(t.TempDir(), "line.ckpt")
	r := openTraining(t)
	train(t, r, 0, 7)
	require.NoError(t, r.Checkpoint(ctx, path))
	w := training.NewWeights()
	require.NoError(t, r.Weights(ctx, w))
	x := infer.X{Data: [3]float32{3, -1, 2}}
	ask := func(l *infer.Runner) float32 {
		out := infer.NewOutputs()
		require.NoError(t, l.Run(ctx, &infer.Inputs{X: &x}, out))
		return out.Y.Data
	}
	byFile, err := infer.Open(ctx, rt.WithCheckpoint(path), rt.WithReplicas(2))
	require.NoError(t, err)
	defer byFile.Close()
	require.Equal(t, dot(x.Data, w.W.Data), ask(byFile))
	byHand, err := infer.Open(ctx)
	require.NoError(t, err)
	defer byHand.Close()
	require.Equal(t, float32(4), ask(byHand))
	require.NoError(t, byHand.UpdateWeights(ctx, w.All()...))
	require.Equal(t, dot(x.Data, w.W.Data), ask(byHand))
	q, err := infer.OpenQueues(ctx, modelrt.QueueConfig{}, rt.WithCheckpoint(path))
	require.NoError(t, err)
	ran := make(chan error, 1)
	go func() { ran <- q.Run(ctx) }()
	out := infer.NewOutputs()
	ticket, err := q.Enqueue(ctx, &infer.Inputs{X: &x}, out)
	require.NoError(t, err)
	require.NoError(t, ticket.Wait(ctx))
	require.NoError(t, q.Close())
	require.NoError(t, <-ran)
	require.Equal(t, dot(x.Data, w.W.Data), out.Y.Data)
	wrong := w.All()
	wrong[0].Info.Shape = []int64{1, 3}
	err = byHand.UpdateWeights(ctx, wrong...)
	require.ErrorIs(t, err, rt.ErrData)
	require.ErrorContains(t, err, `anchor "w": data does not fit: it is F32 [3], and what was given is F32 [1 3]`)
	err = openTraining(t).UpdateWeights(ctx, w.All()...)
	require.ErrorIs(t, err, rt.ErrStateful, "a learner takes all that was learnt, or nothing")
	require.ErrorContains(t, err, "Accl___w")
}

// TestTrainingCheckpointsRefused opens checkpoints that are damaged, or another model's.
func TestTrainingCheckpointsRefused(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	path := filepath.Join(dir, "line.ckpt")
	r := openTraining(t)
	require.NoError(t, r.Checkpoint(ctx, path))
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	other, err := checkpoint.Read(path)
	require.NoError(t, err)
	write := func(name string, b []byte) string {
		at := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(at, b, 0o666))
		return at
	}
	bad := bytes.Clone(whole)
	bad[bytes.Index(bad, []byte{0, 0, 0x80, 0xbf})+2] ^= 1 // of -1, an element of w
	wide := filepath.Join(dir, "wide.ckpt")
	w := other.Tensor("w")
	w.Info.Shape, w.Data = []int64{4}, make([]byte, 16)
	require.NoError(t, other.Write(wide))
	less := filepath.Join(dir, "less.ckpt")
	other.Tensors = other.Tensors[:0]
	require.NoError(t, other.Write(less))
	for _, c := range []struct {
		name, path string
		kind       error
		says       string
	}{
		{"cut", write("cut.ckpt", whole[:len(whole)-100]), checkpoint.ErrTruncated, "cut.ckpt"},
		{"changed", write("changed.ckpt", bad), checkpoint.ErrDigest, "changed.ckpt"},
		{"another shape", wide, checkpoint.ErrContract, `weight "w" is F32 [4] in the checkpoint and F32 [3] in the model`},
		{"missing", less, checkpoint.ErrMissing, `weight "w", F32 [3], is not in the checkpoint`},
		{"no file", filepath.Join(dir, "none.ckpt"), os.ErrNotExist, "none.ckpt"},
	} {
		for _, open := range []func() error{
			func() error { _, err := training.Open(ctx, rt.WithCheckpoint(c.path)); return err },
			func() error { _, err := infer.Open(ctx, rt.WithCheckpoint(c.path)); return err },
		} {
			err := open()
			require.ErrorIs(t, err, c.kind, c.name)
			require.ErrorContains(t, err, c.says, c.name)
			require.ErrorContains(t, err, "line.popef: open: WithCheckpoint", c.name)
		}
	}
	_, err = training.Open(ctx, rt.WithCheckpoint(""))
	require.ErrorIs(t, err, rt.ErrOption)
}

// TestTrainingReplicasRefused: replicas of a learner would learn apart, and inputs that are not there are named.
func TestTrainingReplicasRefused(t *testing.T) {
	ctx := context.Background()
	_, err := training.Open(ctx, rt.WithReplicas(2))
	require.ErrorIs(t, err, rt.ErrStateful)
	require.ErrorContains(t, err, `WithReplicas`)
	require.ErrorContains(t, err, `2 replicas would drift apart; open one, or compile the model with --replicas`)
	r := openTraining(t)
	in, out := training.NewInputs(), training.NewOutputs()
	in.Target = nil
	require.ErrorContains(t, r.Step(ctx, in, out), "Inputs.Target")
	require.ErrorContains(t, r.Evaluate(ctx, in, training.NewEvaluateOutputs()), "Inputs.Target")
	require.Zero(t, r.Steps())
}

// TestTrainingTooFewBatches feeds the programs of a learner directly: a step that finds one batch of two ends with an error that names the stream, and
// takes none twice.
func TestTrainingTooFewBatches(t *testing.T) {
	ctx := context.Background()
	m, err := popef.Load("training/want/line.popef")
	require.NoError(t, err)
	defer m.Close()
	s, err := modelrt.NewSession(ctx, m)
	require.NoError(t, err)
	defer s.Close()
	for _, st := range s.Streams() {
		if st.Programs[0] == 5 || st.Direction == ipu.DeviceToHost {
			transfers := 2
			if st.Handle == "h2d_target" {
				transfers = 1
			}
			b, err := modelrt.NewBuffer(st, transfers)
			require.NoError(t, err)
			require.NoError(t, s.Connect(ctx, st.Handle, b))
		}
	}
	err = s.Run(ctx)
	require.ErrorIs(t, err, rt.ErrEndOfData)
	require.ErrorContains(t, err, "target")
}

// TestTrainingLearnersApart lets two learners train at the same time, while many goroutines evaluate on both and on an inference package that gets the weights of one again and
// again: each learner ends with what it learns alone.
func TestTrainingLearnersApart(t *testing.T) {
	ctx := context.Background()
	alone := openTraining(t)
	require.NoError(t, alone.SetOptimizer(ctx, training.Optimizer{LearningRate: 0.03125}))
	train(t, alone, 0, 60)
	one, two := openTraining(t), openTraining(t)
	require.NoError(t, two.SetOptimizer(ctx, training.Optimizer{LearningRate: 0.03125}))
	classifier, err := infer.Open(ctx)
	require.NoError(t, err)
	defer classifier.Close()
	var learners, readers sync.WaitGroup
	var stop atomic.Bool
	for _, r := range []*training.Runner{one, two} {
		learners.Go(func() {
			in, out := training.NewInputs(), training.NewOutputs()
			for step := range 60 {
				batches(in, step)
				if err := r.Step(ctx, in, out); err != nil {
					t.Error(err)
				}
				w := training.NewWeights()
				if r == one && step%10 == 0 {
					if err := r.Weights(ctx, w); err != nil {
						t.Error(err)
					}
					if err := classifier.UpdateWeights(ctx, w.All()...); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	for i := range 64 {
		readers.Go(func() {
			in, out := training.NewInputs(), training.NewEvaluateOutputs()
			batches(in, i)
			y := infer.NewOutputs()
			for !stop.Load() {
				var err error
				switch i % 3 {
				case 0:
					err = one.Evaluate(ctx, in, out)
				case 1:
					err = two.Evaluate(ctx, in, out)
				default:
					err = classifier.Run(ctx, &infer.Inputs{X: &infer.X{Data: in.X[0].Data}}, y)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	learners.Wait()
	stop.Store(true)
	readers.Wait()
	require.Equal(t, weights(t, alone), weights(t, two))
	require.NotEqual(t, weights(t, one), weights(t, two))
	fresh := openTraining(t)
	train(t, fresh, 0, 60)
	require.Equal(t, weights(t, fresh), weights(t, one))
}
