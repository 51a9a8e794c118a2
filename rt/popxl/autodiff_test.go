package popxl_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/ipu/num"
	"github.com/popefgen/popefgen/rt/popxl"
	"github.com/popefgen/popefgen/rt/popxl/ops"
)

// TestGradients: gradients of y = x·w and of its square, by hand; a model with gradients alone is one of inference.
func TestGradients(t *testing.T) {
	ir := popxl.New("gradients")
	x := popxl.NewInput[float32](ir, "x", 2, 2).Load()
	w := popxl.NewVariable(ir, "w", []float32{1, -1}, 2)
	y := ops.MatMul(x, w.Tensor())
	g := popxl.Gradients(ops.Sum(ops.Mul(y, y)), w.Tensor(), x)
	popxl.NewOutput("dw", popxl.GradOf(g, w.Tensor()))
	popxl.NewOutput("dx", popxl.GradOf(g, x))
	from := popxl.Autodiff([]popxl.Provided{popxl.Provide(y, popxl.Constant(ir, []float32{10, 100}, 2))}, []popxl.Operand{w.Tensor()})
	popxl.NewOutput("from", popxl.GradOf(from, w.Tensor()))
	// d(Σ dw²)/dw, through the gradient: dw = 2·xᵀ·x·w.
	twice := popxl.Gradients(ops.Sum(ops.Mul(popxl.GradOf(g, w.Tensor()), popxl.GradOf(g, w.Tensor()))), w.Tensor())
	popxl.NewOutput("twice", popxl.GradOf(twice, w.Tensor()))
	got := run(t, ir, map[string]any{"x": []float32{1, 2, 3, 5}})
	// y = [-1, -2], dy = 2y = [-2, -4]
	require.Equal(t, []float32{1*-2 + 3*-4, 2*-2 + 5*-4}, decode[float32](t, got["dw"]))
	require.Equal(t, []float32{-2, 2, -4, 4}, decode[float32](t, got["dx"]))
	require.Equal(t, []float32{10 + 300, 20 + 500}, decode[float32](t, got["from"]))
	// H = 2·xᵀx = [[20, 34], [34, 58]], dw = H·w = [-14, -24], and d|H·w|²/dw = 2·H·dw
	require.Equal(t, []float32{2 * (20*-14 + 34*-24), 2 * (34*-14 + 58*-24)}, decode[float32](t, got["twice"]))
}

// TestGradientMistakes: what can't be differentiated says so where it was asked for.
func TestGradientMistakes(t *testing.T) {
	ir, other := popxl.New("wrong"), popxl.New("other")
	x := popxl.NewInput[float32](ir, "x", 2).Load()
	n := popxl.NewInput[int32](ir, "n", 2).Load()
	w := popxl.NewVariable(ir, "w", []float32{1, 2}, 2)
	unused := popxl.NewVariable(ir, "unused", []float32{1, 2}, 2)
	foreign := popxl.NewVariable(other, "w", []float32{1, 2}, 2)
	loss := ops.Sum(ops.Mul(x, w.Tensor()))
	adam := popxl.Training{Optimizer: optim.NewAdam()}
	scaled := optim.NewSGD()
	scaled.LossScaling = optim.Const(2)
	var none *popxl.Tensor[float32]
	for _, tt := range []struct {
		do   func()
		want string
	}{
		{func() { popxl.Gradients(loss, unused.Tensor()) }, "unused"},
		{func() { popxl.Gradients(loss) }, "no tensor's gradient is required"},
		{func() { popxl.Gradients(loss, n) }, `is i32[2], want elements of type f16`},
		{func() { popxl.Gradients(loss, foreign.Tensor()) }, "of another Ir"},
		{func() { popxl.Gradients(loss, none) }, "zero Tensor"},
		{func() { popxl.Gradients(loss, nil) }, "is nil"},
		{func() { popxl.Autodiff(nil, []popxl.Operand{x}) }, "no tensor's gradient is provided"},
		{func() { popxl.Autodiff([]popxl.Provided{{}}, []popxl.Operand{x}) }, "make it with Provide or ProvideOnes"},
		{func() { popxl.Autodiff([]popxl.Provided{popxl.Provide(loss, x)}, []popxl.Operand{x}) }, "a provided gradient is f32[2], want f32[]"},
		{func() { popxl.GradOf(popxl.Gradients(loss, x), w.Tensor()) }, "this gradient was not required"},
		{func() { popxl.GradOf(nil, w.Tensor()) }, "make them with Autodiff"},
		{func() { popxl.Minimize(loss, popxl.Training{}, w) }, "there is no optimizer"},
		{func() { popxl.Minimize(loss, adam) }, "there is no variable to train"},
		{func() { popxl.Minimize(loss, adam, nil) }, "a variable is nil"},
		{func() { popxl.Minimize(loss, adam, unused) }, "unused"},
		{func() { popxl.Minimize(loss, adam, w, w) }, `"w" is listed twice`},
		{func() { popxl.Minimize(loss, adam, foreign) }, "of another Ir"},
		{func() { popxl.Minimize(loss, popxl.Training{Optimizer: optim.NewAdam(), NonFinite: "maybe"}, w) }, `is to be "maybe"`},
		{func() { popxl.Optimize(nil, w.By(x)) }, "there is no optimizer"},
		{func() { popxl.Optimize(scaled, w.By(x)) }, "the optimizer scales the loss"},
		{func() { popxl.Optimize(optim.NewSGD(), w.By(loss)) }, "want it of the variable's shape"},
		{func() { popxl.Optimize(optim.NewSGD(), foreign.By(x)) }, "of another Ir"},
		{func() { popxl.Optimize(optim.NewSGD(), popxl.Update{}, w.By(x)) }, "a variable is nil"},
		{func() { popxl.Loss("mine", optim.Loss{}, x, x, optim.NewLossOptions()) }, "panic"},
		{func() { ops.SoftmaxCrossEntropy(x, n) }, "labels are i32[2], want i32[]"},
	} {
		before := len(errors(ir))
		tt.do()
		require.Len(t, errors(ir), before+1, tt.want)
		require.ErrorContains(t, errors(ir)[before], tt.want)
		require.ErrorContains(t, errors(ir)[before], "autodiff_test.go:")
	}
	// What follows from a failed call, and what has no Ir, adds nothing.
	before := len(errors(ir))
	failed := ops.MatMul(ops.Reshape(loss, 1, 1), ops.Reshape(x, 2, 1))
	popxl.GradOf(popxl.Gradients(failed, x), x)
	popxl.Minimize(failed, adam, w)
	popxl.Optimize(optim.NewSGD(), w.By(failed))
	ops.MSELoss(failed, failed)
	popxl.Optimize(optim.NewSGD())
	popxl.Minimize(popxl.Tensor[float32]{}, adam, w)
	popxl.Gradients(popxl.Tensor[float32]{})
	ops.NLLLoss(popxl.Tensor[float32]{}, popxl.Tensor[int32]{})
	require.Len(t, errors(ir), before+1)
}

// step is y = w·x with the squared error of one label, and w's optimizer.
func step(t *testing.T, o optim.Optimizer) (*popxl.Session, func(x, label float32) (loss float32), popxl.Variable[float32]) {
	t.Helper()
	ir := popxl.New("step")
	x, label := popxl.NewInput[float32](ir, "x"), popxl.NewInput[float32](ir, "label")
	w := popxl.NewVariable(ir, "w", []float32{2})
	loss := ops.MSELoss(ops.Mul(w.Tensor(), x.Load()), label.Load())
	out := popxl.NewOutput("loss", loss)
	popxl.Minimize(loss, popxl.Training{Optimizer: o}, w)
	s, err := popxl.NewSession(t.Context(), ir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	_, err = s.Attach(t.Context())
	require.NoError(t, err)
	return s, func(xv, label1 float32) float32 {
		l := out.Make()
		require.NoError(t, s.Run(t.Context(), x.Feed([]float32{xv}), label.Feed([]float32{label1}), out.Into(l)))
		return l[0]
	}, w
}

func value(t *testing.T, s *popxl.Session, v popxl.Variable[float32]) float32 {
	t.Helper()
	got := []float32{0}
	require.NoError(t, s.Variables(t.Context(), v.Into(got)))
	return got[0]
}

// TestStepsOfOptimizers: two steps, by hand; the learning rate changes between them, and states stay.
func TestStepsOfOptimizers(t *testing.T) {
	sgd := optim.NewSGD()
	sgd.LearningRate, sgd.Momentum = optim.Changeable(0.25), optim.Const(0.5)
	s, run, w := step(t, sgd)
	require.Equal(t, float32(25), run(3, 1)) // (2·3-1)², gradient 2·5·3 = 30, velocity 30
	require.Equal(t, float32(2-0.25*30), value(t, s, w))
	sgd.LearningRate = optim.Changeable(0.125)
	require.NoError(t, s.SetOptimizer(t.Context(), sgd))
	require.Equal(t, float32(2-0.25*30), value(t, s, w))
	require.Equal(t, float32(5.5*5.5), run(1, 0)) // gradient 2·(-5.5) = -11, velocity 0.5·30-11 = 4
	require.Equal(t, float32(-5.5-0.125*4), value(t, s, w))
	require.NoError(t, s.SetVariables(t.Context(), w.Set([]float32{1})))
	require.Equal(t, float32(1), run(1, 0)) // gradient 2, velocity 0.5·4+2 = 4: setting a variable has not cleared it
	require.Equal(t, float32(1-0.125*4), value(t, s, w))

	sgd.Momentum = optim.Const(0.75)
	require.ErrorContains(t, s.SetOptimizer(t.Context(), sgd), "step: set optimizer: not a valid replacement: momentum of weight \"w\" is 0.75, but it is a constant of the executable, 0.5")
	require.ErrorContains(t, s.SetOptimizer(t.Context(), nil), "want one, and one to take its place")

	adam := optim.NewAdam()
	adam.LearningRate, adam.Eps = optim.Const(0.5), optim.Const(0)
	s, run, w = step(t, adam)
	run(3, 1) // the first step of Adam is the learning rate against the gradient's sign
	require.InDelta(t, 1.5, value(t, s, w), 1e-6)
}

// TestNonFinite: a step with a gradient that is infinite ends the run, or is skipped and says so; both change nothing.
func TestNonFinite(t *testing.T) {
	for _, how := range []optim.NonFinite{optim.Refused, optim.Skipped} {
		ir := popxl.New("infinite")
		x := popxl.NewInput[float32](ir, "x")
		v := popxl.NewVariable(ir, "v", []float32{3})
		sgd := optim.NewSGD()
		sgd.LearningRate = optim.Const(1)
		told := popxl.Minimize(ops.Mul(v.Tensor(), x.Load()), popxl.Training{
			Optimizer: sgd, NonFinite: how, Clips: []optim.Clip{{Pattern: "*", MaxNorm: 2}},
		}, v)
		require.Equal(t, how == optim.Skipped, told.Skipped.Valid())
		norm := popxl.NewOutput("norm", told.Norms[0])
		s, err := popxl.NewSession(t.Context(), ir)
		require.NoError(t, err)
		_, err = s.Attach(t.Context())
		require.NoError(t, err)
		n := norm.Make()
		require.NoError(t, s.Run(t.Context(), x.Feed([]float32{-8}), norm.Into(n)))
		require.Equal(t, []float32{8}, n)
		require.InDelta(t, 5, value(t, s, v), 1e-5, "the gradient of -8 is bounded by 2")
		before := value(t, s, v)
		err = s.Run(t.Context(), x.Feed([]float32{float32(math.Inf(1))}))
		if how == optim.Refused {
			var assertion *ipu.AssertionError
			require.ErrorAs(t, err, &assertion)
		} else {
			require.NoError(t, err)
		}
		require.Equal(t, before, value(t, s, v))
		require.NoError(t, s.Close())
	}
}

// TestHalfPrecision: a variable of half precision has a master copy, so that small steps add up.
func TestHalfPrecision(t *testing.T) {
	ir := popxl.New("half")
	v := popxl.NewVariable(ir, "v", []num.Float16{num.Float16From(1)})
	popxl.NewOutput("value", v.Tensor())
	sgd := optim.NewSGD()
	sgd.LearningRate = optim.Const(1.0 / 4096)
	popxl.Minimize(v.Tensor(), popxl.Training{Optimizer: sgd}, v)
	ir.SetIterations(1024)
	s, err := popxl.NewSession(t.Context(), ir)
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.In(t.Context(), func() error { return s.Run(t.Context()) }))
	got := make([]num.Float16, 1)
	require.NoError(t, s.Variables(t.Context(), v.Into(got)))
	require.Equal(t, float32(0.75), got[0].Float32(), "each step is half of what float16 tells apart below 1")
}

// TestNetworkLearns: a network with a hidden layer tells points within a ring from those outside, which none without one can; steps with gradients that were
// computed apart and given to Optimize are the same.
func TestNetworkLearns(t *testing.T) {
	const batch, hidden = 64, 16
	train := func(apart bool) (losses []float32, right int) {
		r := rand.New(rand.NewPCG(1, 2))
		random := func(n int, by float32) []float32 {
			v := make([]float32, n)
			for i := range v {
				v[i] = by * float32(r.NormFloat64())
			}
			return v
		}
		ir := popxl.New("ring")
		x, label := popxl.NewInput[float32](ir, "x", batch, 2), popxl.NewInput[int32](ir, "label", batch)
		w1, b1 := popxl.NewVariable(ir, "w1", random(2*hidden, 1), 2, hidden), popxl.NewVariable(ir, "b1", random(hidden, 0.1), hidden)
		w2, b2 := popxl.NewVariable(ir, "w2", random(hidden*2, 0.3), hidden, 2), popxl.NewVariable(ir, "b2", make([]float32, 2), 2)
		h := ops.Tanh(ops.Add(ops.MatMul(x.Load(), w1.Tensor()), b1.Tensor()))
		scores := ops.Add(ops.MatMul(h, w2.Tensor()), b2.Tensor())
		loss := ops.SoftmaxCrossEntropy(scores, label.Load())
		lossOut, class := popxl.NewOutput("loss", loss), popxl.NewOutput("class", ops.Argmax(scores, 1))
		adam := optim.NewAdam()
		adam.LearningRate = optim.Const(0.02)
		if apart {
			g := popxl.Gradients(loss, w1.Tensor(), b1.Tensor(), w2.Tensor(), b2.Tensor())
			popxl.Optimize(adam, w1.By(popxl.GradOf(g, w1.Tensor())), b1.By(popxl.GradOf(g, b1.Tensor())), w2.By(popxl.GradOf(g, w2.Tensor())), b2.By(popxl.GradOf(g, b2.Tensor())))
		} else {
			popxl.Minimize(loss, popxl.Training{Optimizer: adam}, w1, b1, w2, b2)
		}
		s, err := popxl.NewSession(t.Context(), ir)
		require.NoError(t, err)
		defer s.Close()
		points, labels, l, classes := make([]float32, 2*batch), make([]int32, batch), lossOut.Make(), class.Make()
		draw := func() {
			for i := range labels {
				a, b := 4*r.Float32()-2, 4*r.Float32()-2
				points[2*i], points[2*i+1], labels[i] = a, b, 0
				if a*a+b*b < 2 {
					labels[i] = 1
				}
			}
		}
		require.NoError(t, s.In(t.Context(), func() error {
			for range 300 {
				draw()
				require.NoError(t, s.Run(t.Context(), x.Feed(points), label.Feed(labels), lossOut.Into(l)))
				losses = append(losses, l[0])
			}
			for range 4 { // points that it has not seen: a step learns them behind its answer
				draw()
				require.NoError(t, s.Run(t.Context(), x.Feed(points), label.Feed(labels), class.Into(classes)))
				for i := range labels {
					if int32(classes[i]) == labels[i] {
						right++
					}
				}
			}
			return nil
		}))
		return losses, right
	}
	losses, right := train(false)
	mean := func(v []float32) (m float32) {
		for _, x := range v {
			m += x / float32(len(v))
		}
		return m
	}
	require.Greater(t, mean(losses[:20]), float32(0.5))
	require.Less(t, mean(losses[280:]), float32(0.2))
	require.GreaterOrEqual(t, right, 240, "of 256")
	apart, _ := train(true)
	require.Equal(t, losses, apart)
}
