package train_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/train"
)

// networkOptimizers are the optimizers of testdata/networks/networks.py, with its numbers.
func networkOptimizers() map[string]optim.Optimizer {
	sgd := func(change func(o *optim.SGD)) optim.Optimizer {
		o := optim.NewSGD()
		o.LearningRate = optim.Const(0.05)
		change(&o)
		return o
	}
	adam := func(change func(o *optim.Adam)) optim.Optimizer {
		o := optim.NewAdam()
		o.LearningRate, o.Beta1, o.Beta2, o.Eps = optim.Changeable(0.01), optim.Const(0.8), optim.Const(0.95), optim.Const(1e-3)
		change(&o)
		return o
	}
	adaptive := func(rule graph.UpdateRule, change func(o *optim.Adaptive)) optim.Optimizer {
		o := optim.NewAdaptive(rule)
		o.LearningRate, o.Alpha, o.Eps = optim.Changeable(0.01), optim.Const(0.9), optim.Const(1e-3)
		change(&o)
		return o
	}
	return map[string]optim.Optimizer{
		"sgd":       sgd(func(*optim.SGD) {}),
		"sgd decay": sgd(func(o *optim.SGD) { o.WeightDecay = optim.Const(0.05) }),
		"momentum":  sgd(func(o *optim.SGD) { o.Momentum = optim.Changeable(0.8) }),
		"dampened": sgd(func(o *optim.SGD) {
			o.Momentum, o.Dampening, o.WeightDecay, o.VelocityScaling = optim.Const(0.8), optim.Const(0.3), optim.Const(0.05), optim.Const(2)
		}),
		"nesterov": sgd(func(o *optim.SGD) {
			o.Momentum, o.WeightDecay, o.Nesterov = optim.Const(0.8), optim.Const(0.05), true
		}),
		"adam":    adam(func(*optim.Adam) {}),
		"adam l2": adam(func(o *optim.Adam) { o.WeightDecay, o.L2 = optim.Const(0.05), true }),
		"adamw":   adam(func(o *optim.Adam) { o.WeightDecay = optim.Const(0.05) }),
		"adamax":  adam(func(o *optim.Adam) { o.Rule = graph.UpdateAdaMax }),
		"lamb": adam(func(o *optim.Adam) {
			o.Rule, o.WeightDecay, o.MaxWeightNorm = graph.UpdateLamb, optim.Const(0.05), optim.Const(1.5)
		}),
		"adagrad": adaptive(graph.UpdateAdaGrad, func(*optim.Adaptive) {}),
		"rmsprop": adaptive(graph.UpdateRMSProp, func(*optim.Adaptive) {}),
		"rmsprop centred": adaptive(graph.UpdateCentredRMSProp, func(o *optim.Adaptive) {
			o.Momentum, o.WeightDecay, o.L2 = optim.Const(0.7), optim.Const(0.05), true
		}),
		"rmsprop tf": adaptive(graph.UpdateRMSProp, func(o *optim.Adaptive) { o.Momentum, o.TensorFlow = optim.Const(0.7), true }),
		"adadelta":   adaptive(graph.UpdateAdaDelta, func(o *optim.Adaptive) { o.LearningRate, o.Eps = optim.Const(0.5), optim.Const(1e-4) }),
	}
}

// floatReader reads float32 from a file one after the other.
type floatReader struct {
	t    testing.TB
	data []byte
}

func (r *floatReader) next(n int) []float32 {
	require.GreaterOrEqual(r.t, len(r.data), 4*n)
	f := floatsOf(r.data[:4*n])
	r.data = r.data[4*n:]
	return f
}

// encoded returns numbers as elements of a type.
func encoded(t testing.TB, typ graph.DType, f []float32) (b []byte) {
	for _, v := range f {
		switch typ {
		case graph.F32:
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		case graph.U8:
			b = append(b, uint8(v))
		case graph.I32:
			b = binary.LittleEndian.AppendUint32(b, uint32(int32(v)))
		case graph.I64:
			b = binary.LittleEndian.AppendUint64(b, uint64(int64(v)))
		default:
			require.Fail(t, typ.String())
		}
	}
	return b
}

// TestNetworks trains twelve networks with every optimizer for ten steps: losses, and the weights that are learnt, are PyTorch's within 1e-5.
func TestNetworks(t *testing.T) {
	const folder = "testdata/networks/"
	text, err := os.ReadFile(folder + "networks.json")
	require.NoError(t, err)
	var index struct {
		Optimizers []string
		Networks   []struct {
			Name, Loss string
			Weights    []string
		}
	}
	require.NoError(t, json.Unmarshal(text, &index))
	data, err := os.ReadFile(folder + "networks.f32")
	require.NoError(t, err)
	reference := &floatReader{t, data}
	optimizers := networkOptimizers()
	require.Len(t, index.Networks, 12)
	require.Len(t, optimizers, len(index.Optimizers))
	for _, n := range index.Networks {
		m, err := onnx.ReadFile(folder + n.Name + ".onnx")
		require.NoError(t, err)
		var fed [][]byte
		for i, name := range index.Optimizers {
			require.Contains(t, optimizers, name)
			o := train.Options{Loss: train.Loss{Kind: n.Loss}, Optimizer: optimizers[name]}
			if n.Name == "batchnorm" {
				o.Freeze = []string{"*running*"}
			}
			r, err := train.Compile(context.Background(), m, o)
			require.NoError(t, err, n.Name)
			require.ElementsMatch(t, n.Weights, r.Trained)
			require.Len(t, r.Inputs, 2)
			l := newLearner(t, r, ipu.Option{Name: "threads", Value: "1"}).start()
			for k, in := range r.Inputs {
				if i == 0 {
					fed = append(fed, encoded(t, in.Type.DType, reference.next(int(in.Type.Elements()))))
				}
				l.give(in.Name, fed[k])
			}
			near := func(what string, want, got []float32) {
				require.Len(t, got, len(want))
				for i, v := range want {
					require.InDelta(t, v, got[i], 1e-5*max(1, math.Abs(float64(v))), "%s, %s: %s %d", n.Name, name, what, i)
				}
			}
			var losses []float32
			for range 10 {
				l.run(5)
				losses = append(losses, floatsOf(l.got("loss")[0])...)
			}
			near("loss of step", reference.next(10), losses)
			learnt := l.weights()
			for _, w := range n.Weights {
				got := floatsOf(learnt[w])
				near(w, reference.next(len(got)), got)
			}
		}
	}
	require.Empty(t, reference.data)
}
