package optim_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/ipu/graph/pass"
)

// memory is a stream that moves one transfer, over and over.
type memory struct {
	b  []byte
	in bool
}

func (m memory) Fetch(_ context.Context, buf []byte) error {
	if m.in {
		copy(buf, m.b)
	} else {
		copy(m.b, buf)
	}
	return nil
}
func (memory) Complete()             {}
func (memory) Prefetch([]byte) bool  { return false }
func (memory) InvalidatePrefetched() {}

// floats is b as float32.
func floats(b []byte) []float32 { return unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), len(b)/4) }

// trainer is an engine with the memory of its streams by handle.
type trainer struct {
	t       testing.TB
	engine  ipu.Engine
	streams map[string][]byte
}

func newTrainer(t testing.TB, b *graph.Builder, optimize bool, options ...ipu.Option) *trainer {
	exe, err := b.Finish()
	require.NoError(t, err)
	if optimize {
		require.NoError(t, pass.Optimize(exe, pass.OptimizeOptions{}))
	}
	var file bytes.Buffer
	require.NoError(t, encoding.Encode(&file, exe))
	e, err := cpu.New(ipu.EngineConfig{Name: t.Name(), Executable: file.Bytes(), Options: options})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	x := &trainer{t, e, map[string][]byte{}}
	for _, s := range exe.Streams {
		x.streams[s.Handle] = make([]byte, (s.Type.Bytes()+7)/8*8)[:s.Type.Bytes()]
		require.NoError(t, e.Connect(s.Handle, memory{x.streams[s.Handle], s.Direction == graph.HostToDevice}))
	}
	backend, err := ipu.Lookup("cpu")
	require.NoError(t, err)
	devices, err := backend.Devices(context.Background())
	require.NoError(t, err)
	_, err = devices[0].Attach()
	require.NoError(t, err)
	require.NoError(t, e.Load(context.Background(), devices[0]))
	return x
}

func (x *trainer) run(program int) {
	x.t.Helper()
	require.NoError(x.t, x.engine.Run(context.Background(), program))
}

func vector(n int64) graph.TensorType { return graph.TensorType{DType: graph.F32, Shape: []int64{n}} }

// weightCase is a weight whose gradient is fed.
func weightCase(t testing.TB, o optim.Optimizer, n int64, s optim.Step) (*graph.Builder, *optim.Applied) {
	b := graph.NewBuilder("training")
	w, g := b.AddPersistent("w", vector(n)), b.AddLocal("g", vector(n))
	update := b.BeginGraph("update")
	a, err := optim.Apply(b, o, []optim.Weight{{Name: "w", Tensor: w, Gradient: g}}, s)
	require.NoError(t, err)
	var inputs []graph.Step
	for _, i := range a.Inputs {
		inputs = append(inputs, b.CopyIn(i.Name, i.Tensor))
	}
	b.AddProgram(0, "WeightsFromHost", b.CopyIn("w in", w))
	b.AddProgram(1, "OptimizerFromHost", inputs...)
	b.AddProgram(5, "Program", b.CopyIn("g", g), b.Call(update))
	b.AddProgram(7, "WeightsToHost", b.CopyOut("w", w))
	return b, a
}

// tenSteps trains as testdata/reference.py does, its gradients times scale, and returns the weight.
func tenSteps(t testing.TB, o optim.Optimizer, s optim.Step, scale float64, optimize bool, options ...ipu.Option) []float32 {
	b, a := weightCase(t, o, 7, s)
	x := newTrainer(t, b, optimize, options...)
	for i := range 7 {
		floats(x.streams["w in"])[i] = float32(math.Cos(2.3 * float64(i)))
	}
	for _, i := range a.Inputs {
		if m, ok := x.streams[i.Name]; ok {
			floats(m)[0] = i.Value
		}
	}
	x.run(0)
	x.run(1)
	for step := range 10 {
		for i := range 7 {
			floats(x.streams["g"])[i] = float32(scale * math.Sin(1.7*float64(i)+0.9*float64(step)) / (1 + float64(step)/4))
		}
		x.run(5)
	}
	x.run(7)
	return floats(x.streams["w"])
}

// adam, adaptive and sgd are optimizers with the numbers of testdata/reference.py.
func adam(change func(*optim.Adam)) optim.Optimizer {
	o := optim.NewAdam()
	o.LearningRate, o.Beta1, o.Beta2, o.Eps = optim.Const(0.02), optim.Const(0.8), optim.Const(0.95), optim.Const(1e-5)
	change(&o)
	return o
}

func adaptive(rule graph.UpdateRule, change func(*optim.Adaptive)) optim.Optimizer {
	o := optim.NewAdaptive(rule)
	o.LearningRate, o.Alpha, o.Eps = optim.Const(0.02), optim.Const(0.9), optim.Const(1e-5)
	change(&o)
	return o
}

func sgd(change func(*optim.SGD)) optim.Optimizer {
	o := optim.NewSGD()
	change(&o)
	return o
}

var cases = map[string]optim.Optimizer{
	"sgd":       optim.NewSGD(),
	"sgd decay": sgd(func(o *optim.SGD) { o.WeightDecay = optim.Const(0.05) }),
	"momentum": sgd(func(o *optim.SGD) {
		o.WeightDecay, o.Momentum, o.VelocityScaling = optim.Const(0.05), optim.Const(0.9), optim.Const(4)
	}),
	"nesterov": sgd(func(o *optim.SGD) {
		o.WeightDecay, o.Momentum, o.VelocityScaling, o.Nesterov = optim.Const(0.05), optim.Const(0.9), optim.Const(4), true
	}),
	"adam":            adam(func(*optim.Adam) {}),
	"adam l2":         adam(func(o *optim.Adam) { o.WeightDecay, o.L2 = optim.Const(0.05), true }),
	"adamw":           adam(func(o *optim.Adam) { o.WeightDecay = optim.Const(0.05) }),
	"adagrad":         adaptive(graph.UpdateAdaGrad, func(*optim.Adaptive) {}),
	"rmsprop":         adaptive("", func(*optim.Adaptive) {}),
	"centred rmsprop": adaptive(graph.UpdateCentredRMSProp, func(*optim.Adaptive) {}),
	"rmsprop momentum l2": adaptive("", func(o *optim.Adaptive) {
		o.Momentum, o.WeightDecay, o.L2 = optim.Const(0.7), optim.Const(0.05), true
	}),
	"adadelta": adaptive(graph.UpdateAdaDelta, func(o *optim.Adaptive) { o.LearningRate = optim.Const(0.5) }),
}

// changeable returns o with all numbers changeable, and with loss scaling of 8.
func changeable(o optim.Optimizer, constant bool) optim.Optimizer {
	make := func(all ...*optim.Values) {
		for _, v := range all {
			v.Default.Const = constant
		}
	}
	switch o := o.(type) {
	case optim.SGD:
		o.LossScaling.Default.V = 8
		make(&o.LearningRate, &o.WeightDecay, &o.Momentum, &o.Dampening, &o.VelocityScaling, &o.LossScaling)
		return o
	case optim.Adam:
		o.LossScaling.Default.V = 8
		make(&o.LearningRate, &o.WeightDecay, &o.Beta1, &o.Beta2, &o.Eps, &o.LossScaling)
		return o
	case optim.Adaptive:
		o.LossScaling.Default.V = 8
		make(&o.LearningRate, &o.WeightDecay, &o.Alpha, &o.Eps, &o.LossScaling)
		return o
	}
	panic(fmt.Sprintf("%T", o))
}

// TestTorch compares ten steps with PyTorch's, also with scaled gradients of which the mean is wanted, and constant with
// changeable numbers to the bit, with passes and without, on one thread and two.
func TestTorch(t *testing.T) {
	text, err := os.ReadFile("testdata/torch.json")
	require.NoError(t, err)
	var want map[string][]float64
	require.NoError(t, json.Unmarshal(text, &want))
	require.Len(t, cases, len(want))
	near := func(t *testing.T, want []float64, got []float32) {
		t.Helper()
		for i, v := range want {
			require.InDelta(t, v, got[i], 1e-5*max(1, math.Abs(v)), "element %d", i)
		}
	}
	for name, o := range cases {
		t.Run(name, func(t *testing.T) {
			near(t, want[name], tenSteps(t, o, optim.NewStep(), 1, false))
			mean := optim.NewStep()
			mean.Divisor = 4
			fixed := tenSteps(t, changeable(o, true), mean, 32, true, ipu.Option{Name: "threads", Value: "1"})
			near(t, want[name], fixed)
			fed := tenSteps(t, changeable(o, false), mean, 32, true, ipu.Option{Name: "threads", Value: "2"})
			if s, ok := o.(optim.SGD); !ok || s.Momentum.Default.V != 0 { // without momentum SGD has another formula where that may change
				require.Empty(t, cmp.Diff(fixed, fed))
			}
			near(t, want[name], fed)
		})
	}
}

// TestScalars has the names that PopART gives what the host feeds, and values for single weights.
func TestScalars(t *testing.T) {
	o := optim.NewSGD()
	o.LearningRate, o.LossScaling = optim.Changeable(0.5).With("bias*", optim.Value{V: 0.25}), optim.Changeable(2)
	got, err := optim.Scalars(o, []string{"w", "bias.1", "v"}, 4)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff([]optim.Scalar{
		{Name: "lossScaling___default___FLOAT", Value: 2},
		{Name: "scaledLearningRate0___default___FLOAT", Value: 0.0625}, {Name: "scaledLearningRate0___specific___bias.1", Value: 0.03125},
		{Name: "weightDecayScaleFactor0___default___FLOAT", Value: 1}, {Name: "weightDecayScaleFactor0___specific___bias.1", Value: 1},
	}, got))
	a := optim.NewAdam()
	a.Beta1 = optim.Changeable(0.5)
	_, applied := weightCase(t, a, 3, optim.NewStep())
	var names []string
	for _, s := range applied.States {
		names = append(names, s.Name)
	}
	require.Empty(t, cmp.Diff([]string{"Accl1___w", "Accl2___w", "Step___w"}, names))
	require.Len(t, applied.Inputs, 1)
	require.Empty(t, cmp.Diff(optim.Scalar{Name: "adamBeta1___default___FLOAT", Value: 0.5}, applied.Inputs[0].Scalar))
}

// TestRefused has what is no optimizer, and what can't take the place of one.
func TestRefused(t *testing.T) {
	old := optim.NewAdam()
	old.LearningRate = optim.Changeable(0.1)
	ok := old
	ok.LearningRate = optim.Changeable(0.2)
	require.NoError(t, optim.Replaces(ok, old, []string{"w"}))
	change := func(f func(*optim.Adam)) optim.Optimizer { o := old; f(&o); return o }
	for _, c := range []struct {
		o    optim.Optimizer
		want string
	}{
		{optim.NewSGD(), "not a valid replacement: the optimizer is SGD, want Adam"},
		{change(func(o *optim.Adam) { o.L2 = true }), "the optimizer is Adam with L2 weight decay, want Adam"},
		{change(func(o *optim.Adam) { o.LearningRate = optim.Const(0.1) }), `learning rate of weight "w" is constant, want changeable`},
		{change(func(o *optim.Adam) { o.Beta2 = optim.Const(0.5) }), `beta2 of weight "w" is 0.5, but it is a constant of the executable, 0.999`},
		{change(func(o *optim.Adam) { o.LearningRate = ok.LearningRate.With("w", optim.Value{V: 1}) }), `whether weight "w" has a learning rate of its own`},
		{change(func(o *optim.Adam) { o.Beta1 = optim.Const(1) }), "beta1 is 1, want 0 or more and less than 1"},
		{change(func(o *optim.Adam) { o.LearningRate = optim.Changeable(float32(math.Inf(1))) }), "learning rate is +Inf, want 0 or more"},
		{change(func(o *optim.Adam) { o.Eps = o.Eps.With("[", optim.Value{}) }), `pattern "[" is malformed`},
	} {
		require.ErrorContains(t, optim.Replaces(c.o, old, []string{"w"}), c.want)
	}
	b := graph.NewBuilder("refused")
	w, local := b.AddPersistent("w", vector(3)), b.AddLocal("g", vector(3))
	b.BeginGraph("update")
	for _, c := range []struct {
		weights []optim.Weight
		divisor int64
		want    string
	}{
		{nil, 1, "there is no weight to train"},
		{[]optim.Weight{{Name: "w", Tensor: w, Gradient: local}, {Name: "w", Tensor: w, Gradient: local}}, 1, `two weights have the name "w"`},
		{[]optim.Weight{{Name: "g", Tensor: local, Gradient: local}}, 1, `weight "g": tensor 1 "g" is not persistent`},
		{[]optim.Weight{{Name: "w", Tensor: w, Gradient: local}}, 0, "gradients are to be divided by 0, want at least 1"},
	} {
		s := optim.NewStep()
		s.Divisor = c.divisor
		_, err := optim.Apply(b, optim.NewAdam(), c.weights, s)
		require.ErrorContains(t, err, c.want)
	}
	dampened := optim.NewSGD()
	dampened.Nesterov, dampened.Dampening = true, optim.Const(1)
	_, err := optim.Scalars(dampened, []string{"w"}, 1)
	require.ErrorContains(t, err, "its dampening must not be 1")
}
