package train_test

import (
	"bytes"
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/ipu/graph/autodiff"
	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/internal/onnxtest"
	"github.com/popefgen/popefgen/onnx/train"
)

func ramp(from, step float64, shape ...int64) *onnx.Tensor {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	v := make([]float64, n)
	for i := range v {
		v[i] = from + step*float64(i%7)
	}
	return onnxtest.F32s(shape, v...)
}

// mlp is a network of two layers with a Softmax behind, a second output that is of a weight of its own, and one of integers.
func mlp() *onnx.Model {
	return onnxtest.Model(13, &onnx.Graph{
		Name: "mlp",
		Initializers: []*onnx.Tensor{
			onnxtest.Named(ramp(-0.5, 0.2, 3, 4), "w1"), onnxtest.Named(ramp(0, 0.1, 4), "b1"),
			onnxtest.Named(ramp(0.4, -0.15, 2, 4), "w2"), onnxtest.Named(ramp(0, 0, 2), "b2"),
			onnxtest.Named(ramp(1, 0.1, 2), "scale"),
		},
		Inputs: []onnx.ValueInfo{onnxtest.Info("x", onnx.Float, "batch", 3)},
		Nodes: []*onnx.Node{
			onnxtest.Node("MatMul", onnxtest.Names("x", "w1"), onnxtest.Names("m")),
			onnxtest.Node("Add", onnxtest.Names("m", "b1"), onnxtest.Names("a")),
			onnxtest.Node("Tanh", onnxtest.Names("a"), onnxtest.Names("h")),
			onnxtest.Node("Transpose", onnxtest.Names("w2"), onnxtest.Names("w2t"), onnxtest.AInts("perm", 1, 0)),
			onnxtest.Node("Gemm", onnxtest.Names("h", "w2t", "b2"), onnxtest.Names("scores")),
			onnxtest.Node("Softmax", onnxtest.Names("scores"), onnxtest.Names("p"), onnxtest.AInt("axis", -1)),
			onnxtest.Node("Mul", onnxtest.Names("scores", "scale"), onnxtest.Names("scaled")),
			onnxtest.Node("ArgMax", onnxtest.Names("p"), onnxtest.Names("class"), onnxtest.AInt("axis", 1)),
			onnxtest.Node("ReduceMean", onnxtest.Names("scaled"), onnxtest.Names("mean"), onnxtest.AInt("keepdims", 0)),
		},
		Outputs: onnxtest.Outputs("p", "scaled", "class", "mean"),
	})
}

// ofP is the options of the mlp for its output p.
func ofP(batch int64) train.Options {
	sgd := optim.NewSGD()
	sgd.LearningRate = optim.Changeable(0.5)
	return train.Options{Options: onnx.Options{Batch: batch}, Loss: train.Loss{Output: "p"}, Optimizer: sgd, Freeze: []string{"scale"}}
}

func compiled(t testing.TB, m *onnx.Model, o train.Options) *train.Result {
	t.Helper()
	r, err := train.Compile(context.Background(), m, o)
	require.NoError(t, err)
	return r
}

// samples makes inputs of the mlp and their labels.
func samples(n int) (x, labels []byte) {
	random := rand.New(rand.NewPCG(3, 4))
	for range n {
		v := []float32{float32(random.NormFloat64()), float32(random.NormFloat64()), float32(random.NormFloat64())}
		label := byte(0)
		if v[0]+v[1]*v[2] > 0 {
			label = 1
		}
		x, labels = append(x, bytesOf(v)...), append(labels, label, 0, 0, 0)
	}
	return x, labels
}

// stepped returns the weights of the mlp after steps of all samples.
func stepped(t testing.TB, o train.Options, steps int) map[string][]byte {
	l := newLearner(t, compiled(t, mlp(), o)).start()
	x, labels := samples(8)
	l.give("x", x)
	l.give("labels", labels)
	for range steps {
		l.run(5)
	}
	return l.weights()
}

// near wants weights that differ by rounding alone.
func near(t testing.TB, want, got map[string][]byte) {
	t.Helper()
	for _, name := range []string{"w1", "b1", "w2", "b2", "scale"} {
		a, b := floatsOf(want[name]), floatsOf(got[name])
		require.Len(t, b, len(a))
		for i := range a {
			require.InDelta(t, a[i], b[i], 1e-6, name)
		}
	}
}

// TestBatchesAndMicroBatches wants one update whatever the batch is cut into.
func TestBatchesAndMicroBatches(t *testing.T) {
	whole := stepped(t, ofP(8), 2)
	first := stepped(t, ofP(8), 0)
	require.NotEqual(t, first["w1"], whole["w1"])
	require.NotEqual(t, first["w2"], whole["w2"], "behind a Transpose that is not computed beforehand")
	require.Equal(t, first["scale"], whole["scale"], "frozen")

	o := ofP(2)
	o.Accumulation, o.Replicas = 2, 2
	near(t, whole, stepped(t, o, 2))
	o.SumGradients = true
	sgd := optim.NewSGD()
	sgd.LearningRate = optim.Const(0.125)
	o.Optimizer = sgd
	near(t, whole, stepped(t, o, 2))
	o = ofP(8)
	o.Iterations = 2
	near(t, whole, stepped(t, o, 1))
	for _, r := range []autodiff.Recompute{autodiff.RecomputeNorms, autodiff.RecomputeStandard, autodiff.RecomputeAll} {
		o = ofP(8)
		o.Recompute = r
		require.Equal(t, whole, stepped(t, o, 2), r)
	}
}

// TestEvaluate runs the program that evaluates: it gives loss and outputs, and changes nothing.
func TestEvaluate(t *testing.T) {
	l := newLearner(t, compiled(t, mlp(), ofP(8))).start()
	x, labels := samples(8)
	l.give("x", x)
	l.give("labels", labels)
	before := l.weights()
	l.run(9)
	loss, p := l.loss(), l.got("p")[0]
	require.Equal(t, before, l.weights())
	sum := 0.0
	for i, v := range floatsOf(p) {
		if i%2 == int(labels[4*(i/2)]) {
			sum -= math.Log(float64(v)) / 8
		}
	}
	require.InDelta(t, sum, loss, 1e-6, "the mean of -log p at the label, of the scores before the Softmax")
	l.run(5)
	require.InDelta(t, loss, l.loss(), 1e-6, "that of the step is before the update")
	for range 300 {
		l.run(5)
	}
	l.run(9)
	require.Less(t, l.loss(), loss/2)
}

func TestReturns(t *testing.T) {
	o := ofP(4)
	o.Iterations = 4
	o.Returns = map[string]train.Return{"p": {None: true}, "scaled": {Type: export.Final}, "class": {Type: export.EveryN, N: 2}, "loss": {Type: export.Sum}}
	r := compiled(t, mlp(), o)
	var names []string
	for _, p := range r.Outputs {
		names = append(names, p.Name)
	}
	require.Equal(t, []string{"loss", "scaled", "class", "mean"}, names)
	l := newLearner(t, r).start()
	x, labels := samples(8)
	l.give("x", x)
	l.give("labels", labels)
	l.run(5)
	for name, n := range map[string]int{"loss": 1, "scaled": 1, "class": 2, "mean": 4} {
		require.Len(t, l.got(name), n, name)
	}
}

// TestOutputIsLoss makes an output of the model small.
func TestOutputIsLoss(t *testing.T) {
	o := ofP(8)
	o.Loss, o.Freeze = train.Loss{Kind: "output", Output: "mean"}, nil
	r := compiled(t, mlp(), o)
	require.Equal(t, "mean", r.Loss)
	require.Len(t, r.Inputs, 1)
	l := newLearner(t, r).start()
	x, _ := samples(8)
	l.give("x", x)
	l.run(5)
	first := floatsOf(l.got("mean")[0])[0]
	l.run(5)
	require.Less(t, floatsOf(l.got("mean")[0])[0], first)
}

// TestInit draws initial weights by what reads them, and the same for the same seed.
func TestInit(t *testing.T) {
	seed := uint64(7)
	o := ofP(8)
	o.Init = &seed
	first := stepped(t, o, 0)
	require.Equal(t, first, stepped(t, o, 0))
	own := stepped(t, ofP(8), 0)
	require.Equal(t, own["scale"], first["scale"], "frozen")
	for name, bound := range map[string]float64{"w1": 1 / math.Sqrt(3), "w2": 0.5, "b1": 0, "b2": 0} {
		most := 0.0
		for _, v := range floatsOf(first[name]) {
			most = max(most, math.Abs(float64(v)))
		}
		require.LessOrEqual(t, most, bound, name)
		require.GreaterOrEqual(t, most, bound/2, name)
	}
	other := uint64(8)
	o.Init = &other
	require.NotEqual(t, first["w1"], stepped(t, o, 0)["w1"])
}

// TestHalf trains weights of half precision with master copies.
func TestHalf(t *testing.T) {
	m := mlp()
	for i, w := range m.Graph.Initializers {
		half := onnxtest.Tensor(onnx.Float16, w.Dims, func() (v []float64) {
			for _, f := range floatsOf(w.Data) {
				v = append(v, float64(f))
			}
			return v
		}()...)
		half.Name = w.Name
		m.Graph.Initializers[i] = half
	}
	m.Graph.Inputs[0].Elem = onnx.Float16
	o := ofP(8)
	o.AutomaticScaling, o.Accumulation = true, 2
	r := compiled(t, m, o)
	require.Contains(t, portNames(r), "skipped")
	l := newLearner(t, r).start()
	before := l.weights()
	require.Contains(t, before, "Master___w1")
	x := make([]byte, 2*3*8)
	_, labels := samples(8)
	for i := range x {
		if i%2 == 1 {
			x[i] = []byte{0x3c, 0xb8, 0x40}[i/2%3] // 1, -0.5, 2
		}
	}
	l.give("x", x)
	l.give("labels", labels)
	l.run(5)
	require.False(t, bytes.Equal(before["w1"], l.weights()["w1"]))
}

func portNames(r *train.Result) (names []string) {
	for _, p := range r.Outputs {
		names = append(names, p.Name)
	}
	return names
}

// TestCyclesAndBounds has graphs that never end, and gradients that would take more memory than there is: each is an error at once.
func TestCyclesAndBounds(t *testing.T) {
	names, node := onnxtest.Names, onnxtest.Node
	for _, c := range []struct {
		name   string
		change func(m *onnx.Model, o *train.Options)
		kind   error
		want   string
	}{
		{"cycle", func(m *onnx.Model, _ *train.Options) { m.Graph.Nodes[0].Inputs[0] = "h" }, nil, `the graph has a cycle`},
		{"cycle of moves", func(m *onnx.Model, _ *train.Options) {
			m.Graph.Nodes = append(m.Graph.Nodes, node("Identity", names("one"), names("two")), node("Identity", names("two"), names("one")))
			m.Graph.Nodes[1].Inputs[1] = "one"
		}, nil, `the graph has a cycle`},
		{"function that calls itself", func(m *onnx.Model, _ *train.Options) {
			m.Opsets = append(m.Opsets, onnx.Opset{Domain: "own", Version: 1})
			again := node("Again", names("v"), names("w"))
			again.Domain = "own"
			m.Functions = []*onnx.Function{{Name: "Again", Domain: "own", Inputs: names("v"), Outputs: names("w"), Nodes: []*onnx.Node{again}, Opsets: m.Opsets}}
			m.Graph.Nodes[2] = &onnx.Node{OpType: "Again", Domain: "own", Inputs: names("a"), Outputs: names("h")}
		}, nil, `function Again calls itself`},
		{"graph in itself", func(m *onnx.Model, _ *train.Options) {
			m.Graph.Initializers = append(m.Graph.Initializers, &onnx.Tensor{Name: "yes", Elem: onnx.Bool, Data: []byte{1}})
			branch := &onnx.Graph{Name: "branch", Outputs: onnxtest.Outputs("inner")}
			branch.Nodes = []*onnx.Node{node("If", names("yes"), names("inner"), onnxtest.AGraph("then_branch", branch), onnxtest.AGraph("else_branch", branch))}
			m.Graph.Nodes[2] = node("If", names("yes"), names("h"), onnxtest.AGraph("then_branch", branch), onnxtest.AGraph("else_branch", branch))
		}, onnx.ErrDepth, "nested too deeply"},
		{"2^42 bytes", func(m *onnx.Model, o *train.Options) { o.Batch = 1 << 35 }, autodiff.ErrTooBig, "all tensors need"},
		{"replicas", func(_ *onnx.Model, o *train.Options) { o.Replicas = 1 << 40 }, train.ErrOptions, "an update adds up gradients of 1099511627776 micro-batches, want 1 to 2^24"},
		{"replicas of micro-batches", func(_ *onnx.Model, o *train.Options) { o.Replicas, o.Accumulation = 1<<32, 1<<32 }, train.ErrOptions, "want 1 to 2^24"},
		{"batches", func(_ *onnx.Model, o *train.Options) { o.Iterations = 1 << 40 }, train.ErrOptions, "batches per step 1099511627776: want 1 to 2147483648"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, o := mlp(), ofP(8)
			c.change(m, &o)
			start := time.Now()
			_, err := train.Compile(context.Background(), m, o)
			require.ErrorContains(t, err, c.want)
			if c.kind != nil {
				require.ErrorIs(t, err, c.kind)
			}
			require.Less(t, time.Since(start), 10*time.Second)
		})
	}
}

// TestRefuses lists what can't be trained, and what is said of it.
func TestRefuses(t *testing.T) {
	quantised := func(*train.Options) *onnx.Model {
		m := mlp()
		for _, w := range m.Graph.Initializers {
			w.Elem, w.Data = onnx.Int8, make([]byte, len(w.Data)/4)
		}
		m.Graph.Inputs[0].Elem = onnx.Int8
		m.Graph.Nodes = []*onnx.Node{onnxtest.Node("MatMulInteger", onnxtest.Names("x", "w1"), onnxtest.Names("y"))}
		m.Graph.Outputs = onnxtest.Outputs("y")
		return m
	}
	for _, c := range []struct {
		name   string
		change func(o *train.Options) *onnx.Model
		want   string
	}{
		{"which output", func(o *train.Options) *onnx.Model { o.Loss.Output = ""; return nil }, `loss "cross-entropy": which output? say one of "p", "scaled", "mean", as in cross-entropy=p`},
		{"no such output", func(o *train.Options) *onnx.Model { o.Loss.Output = "scald"; return nil }, `the model has no such output; did you mean "scaled"?`},
		{"integers", func(o *train.Options) *onnx.Model { o.Loss.Output = "class"; return nil }, `loss "cross-entropy" of output "class": it is i64[8,1], want floats`},
		{"no such loss", func(o *train.Options) *onnx.Model { o.Loss.Kind = "mae"; return nil }, `loss "mae": there is no such loss, want one of cross-entropy, bce, output`},
		{"no scalar", func(o *train.Options) *onnx.Model { o.Loss = train.Loss{Kind: "output", Output: "scaled"}; return nil }, `loss of output "scaled": it is f32[8,2], want one element: have the model average it (ReduceMean)`},
		{"no reduction", func(o *train.Options) *onnx.Model { o.Loss.Reduction = "none"; return nil }, `reduction "none" gives no scalar, want mean or sum`},
		{"labels' name", func(o *train.Options) *onnx.Model { o.Loss.Labels = "x"; return nil }, `labels "x": the model has an input or a weight of this name`},
		{"all frozen", func(o *train.Options) *onnx.Model { o.Freeze = []string{"*"}; return nil }, `all 5 weights are frozen, want one at least that is not`},
		{"freeze what is not there", func(o *train.Options) *onnx.Model { o.Freeze = []string{"w3"}; return nil }, `freeze "w3": no weight matches; did you mean "w1"?`},
		{"bad pattern", func(o *train.Options) *onnx.Model { o.Freeze = []string{"["}; return nil }, `freeze "[": it is no pattern of path.Match`},
		{"no influence", func(o *train.Options) *onnx.Model { o.Freeze = nil; return nil }, `"scale": the loss "loss" does not depend on it: freeze what is not to be learnt (--freeze scale)`},
		{"setting of no weight", func(o *train.Options) *onnx.Model {
			o.Optimizer, _ = optim.Parse("sgd,weight-decay@bias*=0")
			return nil
		}, `optimizer: weight-decay of weights "bias*": no weight matches`},
		{"setting of a frozen weight", func(o *train.Options) *onnx.Model {
			o.Optimizer, _ = optim.Parse("sgd,lr@scale=0.1")
			return nil
		}, `optimizer: learning-rate of weights "scale": no weight matches`},
		{"clip of no weight", func(o *train.Options) *onnx.Model { o.Clips = []optim.Clip{{Pattern: "v*", MaxNorm: 1}}; return nil }, `clipping of weights "v*"`},
		{"return of nothing", func(o *train.Options) *onnx.Model {
			o.Returns = map[string]train.Return{"q": {}}
			return nil
		}, `return type of output "q": there is no such output; did you mean "p"?`},
		{"period", func(o *train.Options) *onnx.Model {
			o.Iterations, o.Returns = 4, map[string]train.Return{"loss": {Type: export.EveryN, N: 3}}
			return nil
		}, `N = 3, which does not divide the 4 batches per step: want N to be one of 1, 2, 4`},
		{"weights that nothing reads", func(o *train.Options) *onnx.Model {
			o.Freeze = nil
			m := mlp()
			m.Graph.Nodes = []*onnx.Node{onnxtest.Node("Relu", onnxtest.Names("x"), onnxtest.Names("y"))}
			m.Graph.Outputs = onnxtest.Outputs("y")
			return m
		}, `found initializers that nothing reads, or that nodes need when the model is compiled; have an output depend on one`},
		{"integer model", quantised, `has no weight that can be trained: floats of nodes that the outputs depend on, found initializers of type int8; train the model before it is quantised`},
		{"without a gradient", func(o *train.Options) *onnx.Model {
			o.Loss.Output, o.Freeze = "scaled", nil
			m := mlp()
			m.Graph.Nodes[6] = onnxtest.Node("Mul", onnxtest.Names("rounded", "scale"), onnxtest.Names("scaled"))
			m.Graph.Nodes = append(m.Graph.Nodes, onnxtest.Node("Cast", onnxtest.Names("scores"), onnxtest.Names("whole"), onnxtest.AInt("to", 7)),
				onnxtest.Node("Cast", onnxtest.Names("whole"), onnxtest.Names("rounded"), onnxtest.AInt("to", 1)))
			return m
		}, `the loss "loss" depends on them through operators without a gradient alone: freeze what is not to be learnt`},
		{"known and trained", func(o *train.Options) *onnx.Model {
			m := mlp()
			m.Graph.Nodes = append(m.Graph.Nodes, onnxtest.Node("Resize", onnxtest.Names("p", "", "b2"), onnxtest.Names("resized"), onnxtest.AStr("mode", "nearest")))
			m.Graph.Initializers[3] = onnxtest.Named(onnxtest.F32s(onnxtest.Dims(2), 1, 2), "b2")
			m.Graph.Outputs = append(m.Graph.Outputs, onnxtest.Outputs("resized")...)
			return m
		}, `weight "b2": it is trained, and its value also decides how a node is compiled, which stays as it is: freeze it (--freeze b2)`},
		{"blocked", func(*train.Options) *onnx.Model {
			m := mlp()
			m.Opsets[0].Version = 16
			m.Graph.Initializers = append(m.Graph.Initializers, &onnx.Tensor{Name: "byte", Elem: onnx.Int8, Data: []byte{3}})
			m.Graph.Nodes[2] = onnxtest.Node("ReduceMax", onnxtest.Names("a"), onnxtest.Names("most"), onnxtest.AInt("keepdims", 0))
			m.Graph.Nodes = slices.Insert(m.Graph.Nodes, 3,
				onnxtest.Node("DequantizeLinear", onnxtest.Names("byte", "most"), onnxtest.Names("number")),
				onnxtest.Node("Add", onnxtest.Names("a", "number"), onnxtest.Names("h")))
			return m
		}, `freeze the weights before these nodes`},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := ofP(8)
			m := c.change(&o)
			if m == nil {
				m = mlp()
			}
			if c.name == "integer model" {
				o.Freeze = nil
			}
			_, err := train.Compile(context.Background(), m, o)
			require.ErrorContains(t, err, c.want)
			if c.name != "blocked" {
				require.ErrorIs(t, err, train.ErrOptions)
			}
		})
	}
	_, err := train.Compile(context.Background(), nil, train.Options{})
	require.Error(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = train.Compile(ctx, mlp(), ofP(8))
	require.ErrorIs(t, err, context.Canceled)
}
