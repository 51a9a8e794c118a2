package train_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
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

// TestFamilyNetworks trains the networks of TestNetworks in three sizes at once.
func TestFamilyNetworks(t *testing.T) {
	for name, loss := range map[string]string{"batchnorm": "", "depthwise": "", "maxpool": "", "mlp": "", "residual": ""} {
		t.Run(name, func(t *testing.T) {
			m, err := onnx.ReadFile("testdata/networks/" + name + ".onnx")
			require.NoError(t, err)
			for i := range m.Graph.Inputs {
				m.Graph.Inputs[i].Dims[0] = onnx.Dim{Symbol: "batch"}
			}
			o := train.Options{Loss: train.Loss{Kind: loss}, Optimizer: optim.NewAdam()}
			if name == "batchnorm" {
				o.Training = &onnx.Training{BatchStatistics: true}
			}
			mixed(t, m, o, batches(2, 8, 3))
		})
	}
}
