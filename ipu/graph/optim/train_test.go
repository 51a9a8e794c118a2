package optim_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/optim"
)

// turns is an input stream with a value for each micro-batch.
type turns struct {
	values [][]byte
	next   int
	err    error // of the fetch after the values
}

func (s *turns) Fetch(_ context.Context, buf []byte) error {
	if s.next == len(s.values) {
		if s.err != nil {
			return s.err
		}
		s.next = 0
	}
	copy(buf, s.values[s.next])
	s.next++
	return nil
}
func (*turns) Complete()             {}
func (*turns) Prefetch([]byte) bool  { return false }
func (*turns) InvalidatePrefetched() {}

// fed is a model whose loss and gradients are fed for every micro-batch: what is trained are the vectors a (3 elements), b/0 (2) and b/1 (2) of
// type t, which begin as 1. A gradient is what is fed times the gradient of the loss.
type fed struct {
	*trainer
	t     graph.DType
	train *optim.Trained
	in    map[string]*turns
	size  map[string]int
}

var fedWeights = []struct {
	name string
	n    int64
}{{"a", 3}, {"b/0", 2}, {"b/1", 2}}

func newFed(t *testing.T, typ graph.DType, change func(*optim.Training)) *fed {
	b := graph.NewBuilder("fed")
	x := &fed{t: typ, in: map[string]*turns{}, size: map[string]int{}}
	one := graph.TensorType{DType: graph.F32}
	loss, start := b.AddLocal("loss in", one), b.AddLocal("start", one)
	o := optim.NewTraining()
	sgd := optim.NewSGD()
	sgd.LearningRate = optim.Const(1)
	o.Optimizer, o.LossGradient = sgd, start
	var micro, in, out []graph.Step
	micro = append(micro, b.CopyIn("loss", loss))
	forward := b.BeginGraph("forward")
	l, err := b.Node(&graph.Unary{Fn: graph.Neg}, "loss", loss)
	require.NoError(t, err)
	o.Loss, o.Backward = l[0], b.BeginGraph("backward")
	x.in["loss"] = &turns{}
	x.size["loss"] = 1
	for _, w := range fedWeights {
		f := b.AddLocal("fed "+w.name, vector(w.n))
		micro = append(micro, b.CopyIn("g "+w.name, f))
		x.in["g "+w.name], x.size["g "+w.name] = &turns{}, int(w.n)
		g, err := b.Node(&graph.Binary{Fn: graph.Mul}, "g "+w.name, f, start)
		require.NoError(t, err)
		if typ != graph.F32 {
			g, err = b.Node(&graph.Cast{To: typ}, "g "+w.name, g[0])
			require.NoError(t, err)
		}
		p := b.AddPersistent(w.name, graph.TensorType{DType: typ, Shape: []int64{w.n}})
		o.Weights = append(o.Weights, optim.Weight{Name: w.name, Tensor: p, Gradient: g[0]})
		in, out = append(in, b.CopyIn(w.name+" in", p)), append(out, b.CopyOut(w.name, p))
	}
	change(&o)
	exe, err := b.Finish()
	require.NoError(t, err)
	x.train, err = optim.Train(exe, o)
	require.NoError(t, err)
	b = graph.Continue(exe)
	for _, s := range x.train.States {
		in, out = append(in, b.CopyIn(s.Name+" in", s.Tensor)), append(out, b.CopyOut(s.Name, s.Tensor))
	}
	var main, after []graph.Step
	for _, g := range x.train.Begin {
		main = append(main, b.Call(g))
	}
	micro = append(micro, b.Call(forward), b.Call(x.train.Start), b.Call(o.Backward))
	for name, id := range map[string]graph.TensorID{"skipped": x.train.Skipped, "loss scale": x.train.LossScale} {
		if id != graph.None {
			after = append(after, b.CopyOut(name, id))
		}
	}
	for i, n := range x.train.Norms {
		after = append(after, b.CopyOut(fmt.Sprint("norm ", i), n))
	}
	main = append(append(main, b.Repeat(o.MicroBatches, micro...), b.Call(x.train.Update)), after...)
	b.AddProgram(0, "load", in...)
	b.AddProgram(5, "main", main...)
	b.AddProgram(7, "save", out...)
	x.trainer = newTrainer(t, b, true)
	for name, s := range x.in {
		require.NoError(t, x.engine.Connect(name, s))
	}
	for _, w := range fedWeights {
		for i := range int(w.n) {
			put(typ, x.streams[w.name+" in"], i, 1)
		}
	}
	for _, s := range x.train.States {
		for i := range len(x.streams[s.Name+" in"]) / 4 {
			v := float64(s.Init)
			if s.Master != graph.None {
				v = 1
			}
			put(graph.F32, x.streams[s.Name+" in"], i, v)
		}
	}
	x.run(0)
	return x
}

// feed sets the loss and the gradients of micro-batches.
func (x *fed) feed(loss func(micro int) float64, g func(name string, i, micro int) float64, micro int) {
	for name, s := range x.in {
		s.values, s.next = nil, 0
		for m := range micro {
			b := make([]byte, 4*x.size[name])
			for i := range x.size[name] {
				if name == "loss" {
					put(graph.F32, b, i, loss(m))
				} else {
					put(graph.F32, b, i, g(name[2:], i, m))
				}
			}
			s.values = append(s.values, b)
		}
	}
}

// got returns the values of all that is saved.
func (x *fed) got() map[string][]float64 {
	x.run(7)
	all := map[string][]float64{}
	for _, w := range fedWeights {
		all[w.name] = numbers(x.t, x.streams[w.name])
	}
	for _, s := range x.train.States {
		all[s.Name] = numbers(graph.F32, x.streams[s.Name])
	}
	return all
}

func none(int) float64 { return 0.5 }

// wave is a gradient with other numbers for each weight, element and micro-batch.
func wave(name string, i, micro int) float64 {
	return math.Sin(float64(len(name)) + 2*float64(i) + 3*float64(micro))
}

// TestAccumulation: a weight moves by the sum, or the mean, of the gradients of an update's micro-batches, once more in the second update; a run that ended in the
// middle of a batch leaves nothing.
func TestAccumulation(t *testing.T) {
	for _, c := range []struct {
		micro        int64
		sum, running bool
	}{{1, false, false}, {1, true, false}, {3, true, false}, {3, false, false}, {3, false, true}, {1, false, true}} {
		for _, typ := range []graph.DType{graph.F64, graph.F32, graph.F16, graph.BF16} {
			x := newFed(t, typ, func(o *optim.Training) { o.MicroBatches, o.Sum, o.Running = c.micro, c.sum, c.running })
			require.Equal(t, c.micro > 1, len(x.train.Begin) == 1)
			x.feed(none, wave, int(c.micro))
			within := map[graph.DType]float64{graph.F64: 1e-6, graph.F32: 1e-6, graph.F16: 2e-3, graph.BF16: 2e-2}[typ]
			for update := range 3 {
				if update == 1 && c.micro > 1 { // the second of three micro-batches does not come
					x.feed(none, wave, int(c.micro)-1)
					x.in["g b/1"].err = errors.New("there are no more")
					require.ErrorContains(t, x.engine.Run(context.Background(), 5), "there are no more")
					x.in["g b/1"].err = nil
					x.feed(none, wave, int(c.micro))
				}
				x.run(5)
				got := x.got()
				for _, w := range fedWeights {
					for i := range int(w.n) {
						want := 0.0
						for m := range int(c.micro) {
							want += wave(w.name, i, m)
						}
						if !c.sum {
							want /= float64(c.micro)
						}
						require.InDelta(t, 1-float64(update+1)*want, got[w.name][i], within*(1+float64(update)), "%v %s: %s[%d] after update %d", c, typ, w.name, i, update)
					}
				}
			}
		}
	}
}

// TestClipping: the norm is that of a group's gradients, of their mean and without loss scaling, and no longer than is asked for.
func TestClipping(t *testing.T) {
	for _, c := range []struct {
		clips []optim.Clip
		group map[string]int
	}{
		{[]optim.Clip{{MaxNorm: 0.5}}, map[string]int{"a": 0, "b/0": 0, "b/1": 0}},
		{[]optim.Clip{{MaxNorm: 100}}, map[string]int{"a": 0, "b/0": 0, "b/1": 0}},
		{[]optim.Clip{{Pattern: "b/*", MaxNorm: 0.25}}, map[string]int{"b/0": 0, "b/1": 0}},
		{[]optim.Clip{{Pattern: "b/1", MaxNorm: 0.25}, {MaxNorm: 0.125}}, map[string]int{"a": 1, "b/0": 1, "b/1": 0}},
	} {
		for _, micro := range []int64{1, 3} {
			for _, scale := range []float32{1, 8} {
				for _, how := range []optim.NonFinite{optim.Refused, optim.Ignored} {
					x := newFed(t, graph.F32, func(o *optim.Training) {
						sgd := o.Optimizer.(optim.SGD)
						sgd.LossScaling = optim.Const(scale)
						o.MicroBatches, o.Clips, o.Optimizer, o.NonFinite = micro, c.clips, sgd, how
					})
					x.feed(none, wave, int(micro))
					mean, squares := map[string][]float64{}, make([]float64, len(c.clips))
					for _, w := range fedWeights {
						for i := range int(w.n) {
							g := 0.0
							for m := range int(micro) {
								g += wave(w.name, i, m) / float64(micro)
							}
							mean[w.name] = append(mean[w.name], g)
							if at, ok := c.group[w.name]; ok {
								squares[at] += g * g
							}
						}
					}
					x.run(5)
					for i, s := range squares {
						require.InEpsilon(t, math.Sqrt(s), floats(x.streams[fmt.Sprint("norm ", i)])[0], 1e-6)
					}
					got := x.got()
					for _, w := range fedWeights {
						by := 1.0
						if at, ok := c.group[w.name]; ok {
							by = min(1, c.clips[at].MaxNorm/math.Sqrt(squares[at]))
						}
						for i, g := range mean[w.name] {
							require.InDelta(t, 1-g*by, got[w.name][i], 1e-6, "%v, %d micro-batches: %s[%d]", c.clips, micro, w.name, i)
						}
					}
				}
			}
		}
	}
}

// TestNonFinite has losses and gradients that are no numbers in one of the micro-batches: the run ends with an error or the step is skipped and told, and nothing
// has changed but what clears itself; or, if nobody looks, weights are no numbers either.
func TestNonFinite(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, how := range []optim.NonFinite{"", optim.Skipped, optim.Ignored} {
		for _, micro := range []int64{1, 3} {
			for _, bad := range []struct {
				loss, g float64
			}{{nan, 1}, {inf, 1}, {-inf, 1}, {0, nan}, {0, inf}} {
				x := newFed(t, graph.F32, func(o *optim.Training) { o.MicroBatches, o.NonFinite = micro, how })
				fed := func(v float64, micro int) float64 {
					if micro == 0 {
						return v
					}
					return 1
				}
				good := func() {
					x.feed(none, wave, int(micro))
					x.run(5)
				}
				good()
				before := x.got()
				x.feed(func(m int) float64 { return fed(bad.loss, m) }, func(_ string, i, m int) float64 { return fed(bad.g, m) }, int(micro))
				err := x.engine.Run(context.Background(), 5)
				after := x.got()
				switch how {
				case "":
					var assertion *ipu.AssertionError
					require.ErrorAs(t, err, &assertion)
					require.Contains(t, assertion.Message, "the loss or a gradient is infinite or no number")
					require.Empty(t, cmp.Diff(before, after))
				case optim.Skipped:
					require.NoError(t, err)
					require.Equal(t, []float64{1}, numbers(graph.I32, x.streams["skipped"]))
					require.Empty(t, cmp.Diff(before, after))
					good()
					require.Equal(t, []float64{0}, numbers(graph.I32, x.streams["skipped"]))
					require.NotEqual(t, before["a"], x.got()["a"])
				default:
					require.NoError(t, err)
					require.NotEqual(t, before["a"], after["a"])
				}
			}
		}
	}
}

// TestAutomaticScaling follows the loss scaling of gradients of half precision through steps in which they overflow and in which they do not.
func TestAutomaticScaling(t *testing.T) {
	for _, c := range []struct {
		period, micro int64
		edge          float64
		typ           graph.DType
		largest       float64
	}{{1, 1, 0.125, graph.F16, 65504}, {3, 1, 0.125, graph.F16, 65504}, {2, 2, 0.5, graph.F16, 65504}, {1, 1, 0.125, graph.BF16, 3.3895e38}} {
		x := newFed(t, c.typ, func(o *optim.Training) {
			a := optim.NewAutomaticScaling()
			a.Period, a.Edge = c.period, c.edge
			sgd := o.Optimizer.(optim.SGD)
			sgd.LossScaling = optim.Const(1024)
			o.Scaling, o.MicroBatches, o.Optimizer = &a, c.micro, sgd
		})
		scale, steps, over := 1024.0, int64(0), false
		for step := range 24 {
			top := map[bool]float64{true: 16, false: 1e-3}[step >= 12]
			if c.typ == graph.BF16 {
				top *= 1e34
			}
			before := x.got()
			x.feed(none, func(_ string, i, m int) float64 { return top * math.Pow(0.5, float64(i+m)) }, int(c.micro))
			x.run(5)
			require.Equal(t, []float64{scale}, numbers(graph.F32, x.streams["loss scale"]), "%v, step %d", c, step)
			skipped := top*scale > c.largest*1.0002 || top*scale*math.Sqrt(3.8125) > math.MaxFloat32 // the norm of all gradients of a micro-batch
			require.Equal(t, skipped, numbers(graph.I32, x.streams["skipped"])[0] == 1, "%v, step %d", c, step)
			after := x.got()
			if skipped {
				require.Equal(t, before["a"], after["a"])
			} else if c.typ == graph.F16 {
				mean := 0.0
				for m := range c.micro {
					mean += top * math.Pow(0.5, float64(m)) / float64(c.micro)
				}
				require.InEpsilon(t, mean, before["Master___a"][0]-after["Master___a"][0], 1e-2, "%v, step %d", c, step)
			}
			over = over || top*scale > c.edge*c.largest
			if steps++; skipped || steps == c.period {
				if over {
					scale /= 2
				} else {
					scale = min(2*scale, 1024*(1<<24))
				}
				steps, over = 0, false
			}
		}
	}
}

// TestScalingIsBounded: gradients that are 0 do not raise the loss scaling for ever, nor do endless overflows end it.
func TestScalingIsBounded(t *testing.T) {
	for _, g := range []float64{0, math.Inf(1)} {
		x := newFed(t, graph.F16, func(o *optim.Training) {
			a := optim.NewAutomaticScaling()
			o.Scaling = &a
		})
		x.feed(none, func(string, int, int) float64 { return g }, 1)
		for range 30 {
			x.run(5)
		}
		want := float64(1 << 24)
		if g != 0 {
			want = 1 / want
		}
		require.Equal(t, []float64{want}, numbers(graph.F32, x.streams["loss scale"]))
		require.Equal(t, []float64{1, 1, 1}, x.got()["a"])
	}
}

// TestTrainRefused has what can't be trained so; the executable stays as it is.
func TestTrainRefused(t *testing.T) {
	for _, c := range []struct {
		change func(*optim.Training)
		want   string
	}{
		{func(o *optim.Training) { o.MicroBatches = 0 }, "gradients of 0 micro-batches, want 1 to 2^24"},
		{func(o *optim.Training) { o.NonFinite = "panic" }, `is to be "panic", want error, skip or ignore`},
		{func(o *optim.Training) { o.Sum, o.Running = true, true }, "want one of them"},
		{func(o *optim.Training) { o.Clips = []optim.Clip{{MaxNorm: 0}} }, "the largest norm is 0, want a finite number"},
		{func(o *optim.Training) { o.Clips = []optim.Clip{{Pattern: "c", MaxNorm: 1}} }, `clipping of weights "c": no weight has such a name`},
		{func(o *optim.Training) { o.Clips = []optim.Clip{{Pattern: "[", MaxNorm: 1}} }, "is malformed"},
		{func(o *optim.Training) { o.Scaling = &optim.AutomaticScaling{Edge: 1, Period: 1} }, "the edge is 1, want more than 0"},
		{func(o *optim.Training) { o.Scaling = &optim.AutomaticScaling{Edge: 0.5} }, "the period is 0 steps"},
		{func(o *optim.Training) { o.Scaling = &optim.AutomaticScaling{Edge: 0.5, Period: 1, Threshold: -1} }, "the threshold is -1"},
		{func(o *optim.Training) {
			a := optim.NewAutomaticScaling()
			o.Scaling, o.NonFinite = &a, optim.Refused
		}, `is to be "error", want skip`},
		{func(o *optim.Training) { o.Weights = nil }, "there is no weight to train"},
		{func(o *optim.Training) { o.Backward = 9 }, "graph 9 is to compute the gradients, and the executable has 1"},
		{func(o *optim.Training) { o.LossGradient = graph.None }, "the gradient of the loss is tensor -1"},
		{func(o *optim.Training) { o.Weights[0].Gradient = graph.None }, `weight "w": its gradient is tensor -1`},
	} {
		b := graph.NewBuilder("refused")
		w, start := b.AddPersistent("w", vector(2)), b.AddLocal("start", vector(2))
		o := optim.NewTraining()
		o.Backward = b.BeginGraph("backward")
		g, err := b.Node(&graph.Binary{Fn: graph.Mul}, "g", start, w)
		require.NoError(t, err)
		o.Optimizer, o.LossGradient, o.Weights = optim.NewAdam(), start, []optim.Weight{{Name: "w", Tensor: w, Gradient: g[0]}}
		c.change(&o)
		exe, err := b.Finish()
		require.NoError(t, err)
		tensors, nodes := len(exe.Tensors), len(exe.Graphs[0].Nodes)
		_, err = optim.Train(exe, o)
		require.ErrorContains(t, err, c.want)
		require.Equal(t, []int{tensors, 1, nodes}, []int{len(exe.Tensors), len(exe.Graphs), len(exe.Graphs[0].Nodes)})
	}
}

// TestApart: what replicas add up are the gradients, the elements over the edge of automatic scaling and the losses, each cleared before a batch; nothing that keeps its value from one step to the next is among it.
func TestApart(t *testing.T) {
	train := func(change func(*optim.Training)) (*graph.Executable, *optim.Trained, error) {
		b := graph.NewBuilder("apart")
		w, loss, start := b.AddPersistent("w", vector(2)), b.AddLocal("loss", vector(1)), b.AddLocal("start", vector(2))
		o := optim.NewTraining()
		o.Backward = b.BeginGraph("backward")
		g, err := b.Node(&graph.Binary{Fn: graph.Mul}, "g", start, w)
		require.NoError(t, err)
		scaling := optim.NewAutomaticScaling()
		o.Optimizer, o.Loss, o.LossGradient, o.Weights, o.Scaling = optim.NewAdam(), loss, start, []optim.Weight{{Name: "w", Tensor: w, Gradient: g[0]}}, &scaling
		o.MicroBatches, o.Apart = 2, true
		change(&o)
		exe, err := b.Finish()
		require.NoError(t, err)
		done, err := optim.Train(exe, o)
		return exe, done, err
	}
	exe, done, err := train(func(*optim.Training) {})
	require.NoError(t, err)
	var names []string
	for _, id := range done.Sums {
		names = append(names, exe.Tensors[id].Name)
		require.True(t, slices.ContainsFunc(exe.Graphs[done.Begin[0]].Nodes, func(n graph.Node) bool { return n.Outputs[0] == id }), "it is not cleared")
		require.False(t, slices.ContainsFunc(done.States, func(s optim.State) bool { return s.Tensor == id }), "it is a state")
	}
	require.Equal(t, []string{"Accum___w", "elements over the edge", "losses of the batch"}, names)

	_, done, err = train(func(o *optim.Training) { o.Apart = false })
	require.NoError(t, err)
	require.Nil(t, done.Sums)
	_, _, err = train(func(o *optim.Training) { o.MicroBatches = 1 })
	require.ErrorContains(t, err, "replicas compute parts of 1 micro-batches, and a running mean is false: want 2 at least")
	_, _, err = train(func(o *optim.Training) { o.Running = true })
	require.ErrorContains(t, err, "a running mean is true")
}
