package train_test

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph/autodiff"
	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/internal/onnxtest"
	"github.com/popefgen/popefgen/onnx/train"
)

// networkCase is a network of real layers with numbers to feed it.
type networkCase struct {
	name   string
	result *train.Result
	fed    map[string][]byte
}

// networkCases are a CNN, an LSTM, a transformer, and an encoder whose layers are computed again on the way back, large enough for their operators to be
// shared among threads.
func networkCases(t testing.TB) []networkCase {
	models := filepath.Join(onnxtest.Data(t), "models")
	adam := optim.NewAdam()
	adam.LearningRate = optim.Changeable(1e-3)
	read := func(path string) *onnx.Model {
		m, err := onnx.ReadFile(path)
		require.NoError(t, err)
		return m
	}
	var out []networkCase
	for _, c := range []struct {
		name string
		m    *onnx.Model
		o    train.Options
	}{
		{"digits", read(digitsFolder + "digits.onnx"), train.Options{Options: onnx.Options{Batch: 64}}},
		{"lstm", read(filepath.Join(models, "bidi_lstm_bytes", "model.onnx")), train.Options{Options: onnx.Options{Batch: 4, Dims: map[string]int64{"length": 12}}}},
		{"bert", read(filepath.Join(models, "bert_mlm_small", "model.onnx")), train.Options{Options: onnx.Options{Batch: 2, Dims: map[string]int64{"tokens": 8}}, Loss: train.Loss{Output: "logits"}, Accumulation: 2}},
		{"encoder", encoder(2), train.Options{Recompute: autodiff.RecomputeStandard, Clips: []optim.Clip{{MaxNorm: 1}}}},
	} {
		c.o.Optimizer = adam
		if c.name == "encoder" {
			c.o.Loss = train.Loss{Kind: "mse"}
		}
		r, err := train.Compile(context.Background(), c.m, c.o)
		require.NoError(t, err, c.name)
		random := rand.New(rand.NewPCG(5, 6))
		fed := map[string][]byte{}
		for _, in := range r.Inputs {
			v := make([]float32, in.Type.Elements()*max(c.o.Accumulation, 1))
			for i := range v {
				if in.Elem == onnx.Float {
					v[i] = random.Float32()
				} else {
					v[i] = float32(random.IntN(2)) // tokens, labels, masks
				}
			}
			fed[in.Name] = encoded(t, in.Type.DType, v)
		}
		out = append(out, networkCase{c.name, r, fed})
	}
	return out
}

// open opens the network on some threads.
func (c *networkCase) open(t testing.TB, threads string) *learner {
	l := newLearner(t, c.result, ipu.Option{Name: "threads", Value: threads}).start()
	for name, data := range c.fed {
		l.give(name, data)
	}
	return l
}

// TestThreads trains with one thread and with more: losses, weights and states have the same bits.
func TestThreads(t *testing.T) {
	for _, c := range networkCases(t) {
		t.Run(c.name, func(t *testing.T) {
			var losses [][]byte
			var weights map[string][]byte
			for i, threads := range []string{"1", "2", "3"} {
				l := c.open(t, threads)
				var all [][]byte
				for range 3 {
					l.run(5)
					all = append(all, l.got("loss")...)
				}
				l.run(9)
				all = append(all, l.got("loss")...)
				learnt := l.weights()
				if i == 0 {
					losses, weights = all, learnt
					require.NotEqual(t, all[0], all[len(all)-1], "it learns")
					require.NotEmpty(t, learnt)
				}
				require.Equal(t, losses, all, "losses on %s threads", threads)
				require.Equal(t, weights, learnt, "weights and states on %s threads", threads)
			}
		})
	}
}

// silent is a host's end of a stream that keeps nothing.
type silent struct{ *end }

func (s silent) Fetch(_ context.Context, buf []byte) error {
	if s.give != nil {
		copy(buf, s.give)
	}
	return nil
}

// TestStepsAllocateNothing counts what the engine allocates for a step and for an evaluation of networks of real layers.
func TestStepsAllocateNothing(t *testing.T) {
	for _, c := range networkCases(t) {
		l := c.open(t, "2")
		for handle, e := range l.streams {
			require.NoError(t, l.engine.Connect(handle, silent{e}))
		}
		for _, program := range []int{5, 9} {
			run := func() { require.NoError(t, l.engine.Run(context.Background(), program)) }
			run()
			require.Zero(t, testing.AllocsPerRun(2, run), "%s, program %d", c.name, program)
		}
	}
}
