package popxl_test

import (
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/ipu/iputest"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
	"github.com/popefgen/popefgen/rt/popxl"
	"github.com/popefgen/popefgen/rt/popxl/ops"
)

// learner is a layer of 3×2 weights and a bias, which learns by the cross-entropy of a batch of four.
type learner struct {
	ir      *popxl.Ir
	x       popxl.Input[float32]
	y       popxl.Input[int32]
	w, b    popxl.Variable[float32]
	loss    popxl.Output[float32]
	skipped popxl.Output[int32]
}

var firstW, firstB = []float32{.5, -.25, 1, .125, -1, .75}, []float32{.1, -.2}

func newLearner(replicas int, iterations int64, how popxl.Training) *learner {
	l := &learner{ir: popxl.New("learner")}
	l.ir.SetReplicas(replicas)
	l.ir.SetIterations(iterations)
	l.x, l.y = popxl.NewInput[float32](l.ir, "x", 4, 3), popxl.NewInput[int32](l.ir, "y", 4)
	l.w, l.b = popxl.NewVariable(l.ir, "w", firstW, 3, 2), popxl.NewVariable(l.ir, "b", firstB, 2)
	loss := ops.SoftmaxCrossEntropy(ops.Add(ops.MatMul(l.x.Load(), l.w.Tensor()), l.b.Tensor()), l.y.Load())
	l.loss = popxl.NewOutput("loss", loss)
	if told := popxl.Minimize(loss, how, l.w, l.b); told.Skipped.Valid() {
		l.skipped = popxl.NewOutput("skipped", told.Skipped)
	}
	return l
}

// data draws what a run takes.
func (l *learner) data(r *rand.Rand) (xs []float32, ys []int32) {
	n := len(l.loss.Make())
	xs, ys = make([]float32, n*12), make([]int32, n*4)
	for i := range xs {
		xs[i] = r.Float32()*2 - 1
	}
	for i := range ys {
		ys[i] = r.Int32N(2)
	}
	return xs, ys
}

// learnt runs a learner on draws of a seed, and returns the losses and what the variables of all replicas are then.
func (l *learner) learnt(t *testing.T, s *popxl.Session, replicas int, seed uint64) (losses, w, b []float32) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 0))
	some := l.loss.Make()
	require.NoError(t, s.In(t.Context(), func() error {
		for range 3 {
			xs, ys := l.data(r)
			if err := s.Run(t.Context(), l.x.Feed(xs), l.y.Feed(ys), l.loss.Into(some)); err != nil {
				return err
			}
			losses = append(losses, some...)
		}
		return nil
	}))
	w, b = l.variables(t, s, replicas)
	return losses, w, b
}

func (l *learner) variables(t *testing.T, s *popxl.Session, replicas int) (w, b []float32) {
	t.Helper()
	w, b = make([]float32, 6*replicas), make([]float32, 2*replicas)
	require.NoError(t, s.Variables(t.Context(), l.w.Into(w), l.b.Into(b)))
	return w, b
}

// exported is learnt by the model that the learner is exported as.
func (l *learner) exported(t *testing.T, seed uint64) (losses, w, b []float32) {
	t.Helper()
	m, err := l.ir.Export(t.Context())
	require.NoError(t, err)
	model, err := m.Load(t.Context(), "learner")
	require.NoError(t, err)
	defer model.Close()
	s, err := modelrt.NewSession(t.Context(), model)
	require.NoError(t, err)
	defer s.Close()
	buffers := map[string]*modelrt.Buffer{}
	for _, info := range s.Streams() {
		n := len(l.loss.Make())
		switch info.Handle {
		case "h2d_x", "h2d_y", "anchor_d2h_loss", "anchor_d2h_skipped":
		default:
			if n = 1; info.Direction == ipu.HostToDevice {
				continue // the file has its data
			}
		}
		buffers[info.Handle], err = modelrt.NewBuffer(info, n)
		require.NoError(t, err)
		require.NoError(t, s.Connect(t.Context(), info.Handle, buffers[info.Handle]))
	}
	r := rand.New(rand.NewPCG(seed, 0))
	for range 3 {
		xs, ys := l.data(r)
		_, err := binary.Encode(buffers["h2d_x"].Bytes(), binary.LittleEndian, xs)
		require.NoError(t, err)
		_, err = binary.Encode(buffers["h2d_y"].Bytes(), binary.LittleEndian, ys)
		require.NoError(t, err)
		require.NoError(t, s.Run(t.Context()))
		losses = append(losses, decode[float32](t, buffers["anchor_d2h_loss"].Bytes())...)
	}
	require.NoError(t, s.Save(t.Context()))
	return losses, decode[float32](t, buffers["weight_d2h_w"].Bytes()), decode[float32](t, buffers["weight_d2h_b"].Bytes())
}

// TestReplicasLearn: several replicas learn what one learns from as many micro-batches, bit for bit since the gradients are added up in the same order, and all have the same weights; so does the model that they are exported as.
func TestReplicasLearn(t *testing.T) {
	scaling := optim.NewAutomaticScaling()
	scaling.Period, scaling.Edge, scaling.Threshold = 2, 1e-36, 0.7
	rate := optim.NewSGD()
	rate.LearningRate = optim.Changeable(0.25)
	sys := iputest.New(iputest.Config{Devices: make([]ipu.DeviceInfo, 4)})
	model := []modelrt.SessionOption{popxl.IPUModel}
	for name, tt := range map[string]struct {
		replicas int
		how      popxl.Training
		opts     []modelrt.SessionOption
	}{
		"mean":     {2, popxl.Training{Optimizer: rate}, model},
		"sum":      {3, popxl.Training{Optimizer: optim.NewSGD(), Sum: true}, model},
		"adam":     {4, popxl.Training{Optimizer: optim.NewAdam()}, append(model, rt.WithThreads(1))},
		"clipped":  {2, popxl.Training{Optimizer: optim.NewAdam(), Clips: []optim.Clip{{MaxNorm: 1e-3}}}, model},
		"scaled":   {2, popxl.Training{Optimizer: optim.NewAdam(), Scaling: &scaling}, model},
		"ignored":  {2, popxl.Training{Optimizer: optim.NewAdam(), NonFinite: optim.Ignored}, model},
		"hardware": {3, popxl.Training{Optimizer: optim.NewSGD()}, []modelrt.SessionOption{popxl.Hardware, rt.WithManager(sys.Manager()), rt.WithBackend(sys.Name())}},
	} {
		t.Run(name, func(t *testing.T) {
			how := tt.how
			how.Accumulation = int64(tt.replicas)
			alone := newLearner(1, 2, how)
			wantLosses, wantW, wantB := alone.learnt(t, session(t, alone.ir), 1, 7)
			require.NotEqual(t, firstW, wantW)

			l := newLearner(tt.replicas, 2, tt.how)
			s, err := popxl.NewSession(t.Context(), l.ir, tt.opts...)
			require.NoError(t, err)
			defer s.Close()
			losses, w, b := l.learnt(t, s, tt.replicas, 7)
			require.Equal(t, wantLosses, losses)
			require.Equal(t, slices.Repeat(wantW, tt.replicas), w)
			require.Equal(t, slices.Repeat(wantB, tt.replicas), b)

			losses, w, b = newLearner(tt.replicas, 2, tt.how).exported(t, 7)
			require.Equal(t, wantLosses, losses)
			require.Equal(t, wantW, w)
			require.Equal(t, wantB, b)
		})
	}
	require.Empty(t, sys.Violations())
}

// TestReplicasAccumulate: each of two replicas adds gradients up over two micro-batches, and what the run is fed lies as [iterations, micro-batches, replicas]. In this order the model that they are exported as adds them up, the session
// those of a replica first.
func TestReplicasAccumulate(t *testing.T) {
	how := popxl.Training{Optimizer: optim.NewAdam(), Accumulation: 2}
	l := newLearner(2, 3, how)
	s, err := popxl.NewSession(t.Context(), l.ir, popxl.IPUModel)
	require.NoError(t, err)
	defer s.Close()
	losses, w, b := l.learnt(t, s, 2, 9)
	require.Equal(t, w[:6], w[6:])
	require.Equal(t, b[:2], b[2:])
	how.Accumulation = 4
	alone := newLearner(1, 3, how)
	wantLosses, wantW, wantB := alone.learnt(t, session(t, alone.ir), 1, 9)
	require.InDeltaSlice(t, wantLosses, losses, 1e-5)
	require.InDeltaSlice(t, wantW, w[:6], 1e-5)
	require.InDeltaSlice(t, wantB, b[:2], 1e-5)
	how.Accumulation = 2
	losses, w, b = newLearner(2, 3, how).exported(t, 9)
	require.Equal(t, wantLosses, losses)
	require.Equal(t, wantW, w)
	require.Equal(t, wantB, b)
}

// TestReplicasChangeTogether: SetOptimizer is for all of them, Evaluate changes none, variables are read and set as ever, and a run allocates nothing.
func TestReplicasChangeTogether(t *testing.T) {
	ctx := t.Context()
	sgd := optim.NewSGD()
	sgd.LearningRate = optim.Changeable(0)
	l := newLearner(2, 1, popxl.Training{Optimizer: sgd})
	s, err := popxl.NewSession(ctx, l.ir, popxl.IPUModel, rt.WithThreads(1))
	require.NoError(t, err)
	defer s.Close()
	xs, ys := l.data(rand.New(rand.NewPCG(1, 1)))
	losses, evaluated := l.loss.Make(), l.loss.Make()
	require.NoError(t, s.In(ctx, func() error {
		feed, labels, into := l.x.Feed(xs), l.y.Feed(ys), l.loss.Into(losses)
		require.NoError(t, s.Run(ctx, feed, labels, into))
		w, _ := l.variables(t, s, 2)
		require.Equal(t, slices.Repeat(firstW, 2), w, "the rate is 0")
		sgd.LearningRate = optim.Changeable(1)
		require.NoError(t, s.SetOptimizer(ctx, sgd))
		require.NoError(t, s.Evaluate(ctx, feed, labels, l.loss.Into(evaluated)))
		require.Equal(t, losses, evaluated)
		require.NoError(t, s.Run(ctx, feed, labels, into))
		w, b := l.variables(t, s, 2)
		require.Equal(t, w[:6], w[6:])
		require.NotEqual(t, firstW, w[:6])
		require.NoError(t, s.SetVariables(ctx, l.w.Set(firstW), l.b.Set(firstB)))
		require.NoError(t, s.Run(ctx, feed, labels, into))
		again, _ := l.variables(t, s, 2)
		require.Equal(t, w, again)
		require.Equal(t, evaluated, losses)
		require.Equal(t, b[:2], b[2:])
		require.Zero(t, testing.AllocsPerRun(20, func() { _ = s.Run(ctx, feed, labels, into) }))
		return nil
	}))
}

// TestReplicasFailTogether: where the loss of one replica is not finite, or one replica fails or is interrupted, no replica changes its weights, the error is of the one that failed, and the next run is as any other.
func TestReplicasFailTogether(t *testing.T) {
	for _, nonFinite := range []optim.NonFinite{optim.Refused, optim.Skipped} {
		l := newLearner(3, 1, popxl.Training{Optimizer: optim.NewAdam(), NonFinite: nonFinite})
		s, err := popxl.NewSession(t.Context(), l.ir, popxl.IPUModel)
		require.NoError(t, err)
		defer s.Close()
		_, err = s.Attach(t.Context())
		require.NoError(t, err)
		same := func() {
			t.Helper()
			w, b := l.variables(t, s, 3)
			require.Equal(t, slices.Repeat(firstW, 3), w)
			require.Equal(t, slices.Repeat(firstB, 3), b)
		}
		good, labels := l.data(rand.New(rand.NewPCG(1, 1)))
		bad, wrong := slices.Clone(good), slices.Clone(labels)
		bad[12] = float32(math.NaN())
		wrong[4] = 2

		err = s.Run(t.Context(), l.x.Feed(bad), l.y.Feed(labels))
		if nonFinite == optim.Refused {
			require.ErrorContains(t, err, "learner")
			require.ErrorContains(t, err, "infinite or no number, so no weight was changed")
			for range 1000 {
				// All replicas fail of the same norm, in any order.
				require.ErrorContains(t, err, "replica 0: ")
				err = s.Run(t.Context(), l.x.Feed(bad), l.y.Feed(labels))
			}
		} else {
			require.NoError(t, err)
			skipped := l.skipped.Make()
			require.NoError(t, s.Run(t.Context(), l.x.Feed(bad), l.y.Feed(labels), l.skipped.Into(skipped)))
			require.Equal(t, []int32{1, 1, 1}, skipped)
		}
		same()
		err = s.Run(t.Context(), l.x.Feed(good), l.y.Feed(wrong))
		require.ErrorContains(t, err, "replica 1: ")
		require.ErrorContains(t, err, "label")
		same()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, s.Run(ctx, l.x.Feed(good), l.y.Feed(labels)), context.Canceled)
		same()
		require.NoError(t, s.Run(t.Context(), l.x.Feed(good), l.y.Feed(labels)))
		w, _ := l.variables(t, s, 3)
		require.NotEqual(t, firstW, w[:6])
		require.Equal(t, slices.Repeat(w[:6], 3), w)
	}
}

// TestReplicasEndTogether: a session that is closed in the middle of a run ends all replicas, those too that wait for another one.
func TestReplicasEndTogether(t *testing.T) {
	ir := popxl.New("long")
	ir.SetReplicas(2)
	in := popxl.NewInput[float32](ir, "x")
	v := popxl.NewVariable(ir, "v", []float32{1})
	loss := ops.Repeat(1<<12, ops.Mul(v.Tensor(), in.Load()), func(y tensor) tensor { return ops.Mul(y, in.Load()) })
	popxl.NewOutput("loss", loss)
	popxl.Minimize(loss, popxl.Training{Optimizer: optim.NewSGD(), NonFinite: optim.Ignored}, v)
	s, err := popxl.NewSession(t.Context(), ir, popxl.IPUModel)
	require.NoError(t, err)
	_, err = s.Attach(t.Context())
	require.NoError(t, err)
	ended := make(chan error)
	go func() {
		for {
			if err := s.Run(context.Background(), in.Feed([]float32{1, 1})); err != nil {
				ended <- err
				return
			}
		}
	}()
	time.Sleep(20 * time.Millisecond)
	require.NoError(t, s.Close())
	require.Error(t, <-ended)
}

// TestMistakesOfReplicas: the number of replicas is known before the first step.
func TestMistakesOfReplicas(t *testing.T) {
	l := newLearner(2, 1, popxl.Training{Optimizer: optim.NewSGD()})
	l.ir.SetReplicas(3)
	all := errors(l.ir)
	require.Len(t, all, 1)
	require.ErrorContains(t, all[0], "popxl.Ir.SetReplicas: the Ir has an optimizer or a collective already, which depends on the number of replicas: call it before")
}
