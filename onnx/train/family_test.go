package train_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/ipu/graph/autodiff"
	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/onnx/internal/onnxtest"
	"github.com/popefgen/popefgen/onnx/train"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/popef/family"
)

// kept returns all that a model has learnt, random numbers included, by the handles of the streams that load it.
func (l *learner) kept() map[string][]byte {
	out := map[string][]byte{}
	for _, p := range l.file.Metadata.ProgramFlow.Save {
		l.run(int(p))
		for _, a := range l.file.Metadata.Anchors {
			if a.Type == popef.Output && slices.Equal(a.Programs, []uint32{p}) {
				out["h2d_"+a.Name] = l.streams[a.Handle].all[0]
			}
		}
	}
	return out
}

// restore loads what a model has learnt.
func (l *learner) restore(kept map[string][]byte) {
	for handle, data := range kept {
		require.Contains(l.t, l.streams, handle)
		l.streams[handle].give = data
	}
	for _, p := range l.file.Metadata.ProgramFlow.Load {
		l.run(int(p))
	}
}

// step runs a program of a member with inputs, and returns what it gives. suffix is what the handles of its streams end in.
func (l *learner) step(program int, suffix string, inputs map[string][]byte) map[string][]byte {
	for name, data := range inputs {
		l.give(name+suffix, data)
	}
	l.run(program)
	out := map[string][]byte{}
	for _, a := range l.file.Metadata.Anchors {
		if a.Type == popef.Output && slices.Contains(a.Programs, uint32(program)) {
			require.Len(l.t, l.streams[a.Handle].all, 1, a.Name)
			out[a.Name] = l.streams[a.Handle].all[0]
		}
	}
	return out
}

// drawn draws inputs of a model.
func drawn(t testing.TB, r *train.Result, random *rand.Rand) map[string][]byte {
	out := map[string][]byte{}
	for _, in := range r.Inputs {
		v := make([]float32, in.Type.Elements())
		for i := range v {
			if in.Elem == onnx.Float {
				v[i] = random.Float32()
			} else {
				v[i] = float32(random.IntN(2)) // tokens, labels
			}
		}
		out[in.Name] = encoded(t, in.Type.DType, v)
	}
	return out
}

// mixed makes steps of different sizes, in a family and in models of one size each that hand over what they have learnt, and
// wants equal bits of all results and of all that is learnt. Half way the family is opened anew.
func mixed(t *testing.T, m *onnx.Model, o train.Options, members []compile.Sizes) {
	t.Helper()
	o.Members = members
	f, err := train.Compile(context.Background(), m, o)
	require.NoError(t, err)
	require.NotNil(t, f.Family)
	require.Len(t, f.Family.Members, len(members))
	threads := ipu.Option{Name: "threads", Value: "2"}
	all := newLearner(t, f, threads).start()
	require.True(t, contract.Of(all.file).Callers().Trains)
	var singles []*train.Result
	var programs []int
	for _, s := range members {
		own := o
		own.Members, own.Options = nil, s.On(o.Options)
		r, err := train.Compile(context.Background(), m, own)
		require.NoError(t, err)
		singles = append(singles, r)
		require.Equal(t, r.Trained, f.Trained)
		var shapes [][]int64
		for _, in := range r.Inputs {
			shapes = append(shapes, in.Type.Shape)
		}
		at := slices.IndexFunc(f.Family.Members, func(mem family.Member) bool {
			for i, shape := range shapes {
				x := f.Family.Tensors[i]
				for axis := range shape {
					if x.Axes[axis].Of(slices.IndexFunc(f.Family.Members, func(q family.Member) bool { return q.Program == mem.Program })) != shape[axis] {
						return false
					}
				}
			}
			return true
		})
		require.GreaterOrEqual(t, at, 0)
		programs = append(programs, int(f.Family.Members[at].Program))
	}
	random := rand.New(rand.NewPCG(7, 8))
	learnt := all.kept()
	for step := range 2 * len(members) {
		which := (step*2 + step/len(members)) % len(members)
		if step == len(members) {
			all = newLearner(t, f, threads).start()
			all.restore(learnt)
		}
		in := drawn(t, singles[which], random)
		single := newLearner(t, singles[which], threads).start()
		single.restore(learnt)
		suffix, evaluate := "", 9
		if p := programs[which]; p != 5 {
			suffix, evaluate = fmt.Sprint("#", p), p+1
		}
		require.Equal(t, single.step(9, "", in), all.step(evaluate, suffix, in), "evaluated, step %d", step)
		require.Equal(t, single.step(5, "", in), all.step(programs[which], suffix, in), "step %d", step)
		was := learnt
		learnt = all.kept()
		require.Equal(t, single.kept(), learnt, "learnt in step %d", step)
		require.NotEqual(t, was, learnt)
	}
}

// batches are members of these batch sizes.
func batches(all ...int64) (out []compile.Sizes) {
	for _, n := range all {
		out = append(out, compile.Sizes{Batch: n})
	}
	return out
}

// TestFamilyNetworks trains the networks of TestNetworks whose dimensions can be open in three sizes at once: of a batch, and of what is no batch.
func TestFamilyNetworks(t *testing.T) {
	for _, c := range []struct {
		name, loss string
		axis       int // of the input, that is open
		change     func(o *train.Options)
	}{
		{name: "mlp", change: func(o *train.Options) { o.Recompute, o.Freeze = autodiff.RecomputeStandard, []string{"0.*"} }},
		{name: "maxpool", change: func(o *train.Options) { o.AutomaticScaling = true }},
		{name: "batchnorm", loss: "mse", change: func(o *train.Options) { o.Training = &onnx.Training{BatchStatistics: true} }},
		{name: "depthwise", change: func(o *train.Options) { o.Clips = []optim.Clip{{MaxNorm: 0.5}} }},
		{name: "residual", change: func(o *train.Options) { o.Returns = map[string]train.Return{"loss": {Type: export.Final}} }},
		{name: "gru", loss: "mse"},
		{name: "embedding", axis: 1},
		{name: "lstm", loss: "mse"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := onnx.ReadFile("testdata/networks/" + c.name + ".onnx")
			require.NoError(t, err)
			m.Graph.Inputs[0].Dims[c.axis] = onnx.Dim{Symbol: "n"}
			o := train.Options{Loss: train.Loss{Kind: c.loss}, Optimizer: optim.NewAdam()}
			if c.change != nil {
				c.change(&o)
			}
			mixed(t, m, o, []compile.Sizes{{Dims: map[string]int64{"n": 2}}, {Dims: map[string]int64{"n": 7}}, {Dims: map[string]int64{"n": 3}}})
		})
	}
}

// droppingOut is y = Dropout(x·w)·v.
func droppingOut() *onnx.Model {
	return onnxtest.Model(13, &onnx.Graph{
		Initializers: []*onnx.Tensor{onnxtest.Named(ramp(-0.5, 0.2, 3, 8), "w"), onnxtest.Named(ramp(0.4, -0.15, 8, 2), "v"), onnxtest.Named(onnxtest.F32s(nil, 0.5), "ratio")},
		Inputs:       []onnx.ValueInfo{onnxtest.Info("x", onnx.Float, "batch", "seq", 3)},
		Nodes: []*onnx.Node{
			onnxtest.Node("MatMul", onnxtest.Names("x", "w"), onnxtest.Names("h")),
			onnxtest.Node("Dropout", onnxtest.Names("h", "ratio"), onnxtest.Names("d")),
			onnxtest.Node("MatMul", onnxtest.Names("d", "v"), onnxtest.Names("y")),
		},
		Outputs: onnxtest.Outputs("y"),
	})
}

// TestFamilyRandom draws random numbers in two open dimensions: all members count their steps together, as one model of one size does.
func TestFamilyRandom(t *testing.T) {
	var members []compile.Sizes
	for _, s := range [][2]int64{{1, 4}, {3, 4}, {3, 2}} {
		members = append(members, compile.Sizes{Dims: map[string]int64{"batch": s[0], "seq": s[1]}})
	}
	o := train.Options{Options: onnx.Options{Training: &onnx.Training{Dropout: true}, Seed: 5}, Loss: train.Loss{Kind: "mse"}, Optimizer: ofP(1).Optimizer}
	mixed(t, droppingOut(), o, members)
	o.Members = members
	r := compiled(t, droppingOut(), o)
	require.Equal(t, []uint32{0, 1, 2, 4}, r.Metadata.ProgramFlow.Load)
	require.Equal(t, []uint32{5, 10, 12}, r.Metadata.ProgramFlow.Main)
	m, err := r.Load(context.Background(), "sizes")
	require.NoError(t, err)
	c := contract.Of(m)
	require.NoError(t, c.Refused)
	require.Equal(t, []uint32{9, 11, 13}, c.Evaluates)
	require.Equal(t, uint32(9), c.Evaluate)
	require.Contains(t, c.Callers().Text(), "input \"labels\" F32 [batch seq 2]\n")
	again := compiled(t, droppingOut(), o)
	a, err := r.Bytes()
	require.NoError(t, err)
	b, err := again.Bytes()
	require.NoError(t, err)
	require.Equal(t, a, b, "the same file, whichever member is compiled first")
}

// TestFamilyRefused: what several sizes can't do is refused, with what to do.
func TestFamilyRefused(t *testing.T) {
	o := ofP(0)
	for _, c := range []struct {
		change func(o *train.Options)
		model  *onnx.Model
		want   string
	}{
		{func(o *train.Options) { o.Iterations = 2 }, mlp(), "2 batches a step, and several sizes: a step of a model of several sizes is one batch of one size; leave out --iterations, or give one size"},
		{func(o *train.Options) { o.Accumulation = 2 }, mlp(), "leave out --accumulate"},
		{func(o *train.Options) { o.Replicas = 2 }, mlp(), "leave out --replicas"},
		{func(o *train.Options) { o.Members = batches(4, 4) }, mlp(), "two members have the same sizes"},
		{func(o *train.Options) { o.Freeze = []string{"nothing"} }, mlp(), "no weight matches"},
		{func(o *train.Options) { o.Loss.Output, o.Freeze = "", nil }, bySize(), `"small", F32 [3 2], of the member batch=2 is "large", F32 [3 2], in the member batch=4: members share what they learn; compile these sizes as models of their own`},
	} {
		own := o
		own.Members = batches(2, 4)
		c.change(&own)
		_, err := train.Compile(context.Background(), c.model, own)
		require.ErrorContains(t, err, c.want)
	}
	one := o
	one.Members = batches(4)
	want := ofP(4)
	a, err := compiled(t, mlp(), one).Bytes()
	require.NoError(t, err)
	b, err := compiled(t, mlp(), want).Bytes()
	require.NoError(t, err)
	require.Equal(t, b, a, "one member is a model of one size")
}

// bySize has weights for a batch of less than 3, and others for larger ones.
func bySize() *onnx.Model {
	branch := func(of string) *onnx.Graph {
		return &onnx.Graph{Name: of, Nodes: []*onnx.Node{onnxtest.Node("MatMul", onnxtest.Names("x", of), onnxtest.Names("y"+of))}, Outputs: onnxtest.Outputs("y" + of)}
	}
	return onnxtest.Model(13, &onnx.Graph{
		Initializers: []*onnx.Tensor{onnxtest.Named(ramp(-0.5, 0.2, 3, 2), "small"), onnxtest.Named(ramp(0.5, 0.2, 3, 2), "large"), onnxtest.Named(onnxtest.I64s(onnxtest.Dims(), 3), "three"), onnxtest.Named(onnxtest.I64s(onnxtest.Dims(), 0), "zero")},
		Inputs:       []onnx.ValueInfo{onnxtest.Info("x", onnx.Float, "batch", 3)},
		Nodes: []*onnx.Node{
			onnxtest.Node("Shape", onnxtest.Names("x"), onnxtest.Names("shape")),
			onnxtest.Node("Gather", onnxtest.Names("shape", "zero"), onnxtest.Names("n")),
			onnxtest.Node("Less", onnxtest.Names("n", "three"), onnxtest.Names("few")),
			onnxtest.Node("If", onnxtest.Names("few"), onnxtest.Names("y"), onnxtest.AGraph("then_branch", branch("small")), onnxtest.AGraph("else_branch", branch("large"))),
		},
		Outputs: onnxtest.Outputs("y"),
	})
}
