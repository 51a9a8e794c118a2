package train_test

import (
	"context"
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph/autodiff"
	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/internal/onnxtest"
	"github.com/popefgen/popefgen/onnx/train"
)

// dropping is y = Dropout(x·w), whose loss is the sum of y: the gradient of w is x·mask/(1-ratio), and a step of SGD with learning
// rate 1/8 subtracts an eighth of it.
func dropping(opset int64, more ...string) *onnx.Model {
	attrs := []*onnx.Attribute{onnxtest.AFloat("ratio", 0.25)}
	if opset >= 12 {
		attrs = nil
	}
	const n = 4096
	ones := make([]float64, n)
	for i := range ones {
		ones[i] = 1
	}
	g := &onnx.Graph{
		Inputs: []onnx.ValueInfo{onnxtest.Info("x", onnx.Float, n)}, Outputs: onnxtest.Outputs("loss", "y"),
		Initializers: []*onnx.Tensor{onnxtest.Named(onnxtest.F32s(onnxtest.Dims(n), ones...), "w"), onnxtest.Named(onnxtest.F32s(nil, 0.25), "ratio"), onnxtest.Named(onnxtest.Bools(nil, 1), "yes")},
		Nodes: []*onnx.Node{
			onnxtest.Node("Mul", onnxtest.Names("x", "w"), onnxtest.Names("p")),
			onnxtest.Node("Dropout", append(onnxtest.Names("p"), more...), onnxtest.Names("y"), attrs...),
			onnxtest.Node("ReduceSum", onnxtest.Names("y"), onnxtest.Names("loss"), onnxtest.AInt("keepdims", 0)),
		},
	}
	return onnxtest.Model(opset, g)
}

// TestDropout trains a model of a Dropout: the gradient has the mask of the forward pass, whatever is computed again; micro-batches and runs
// have masks of their own, the same on any number of threads, and evaluation has none.
func TestDropout(t *testing.T) {
	x := make([]float32, 4096)
	for i := range x {
		x[i] = float32(i%7+1) / 8
	}
	for name, m := range map[string]*onnx.Model{"before 12": dropping(11), "left out": dropping(13, "ratio"), "in training mode": dropping(13, "ratio", "yes")} {
		t.Run(name, func(t *testing.T) {
			var bits [][][]byte
			for _, recompute := range []autodiff.Recompute{autodiff.RecomputeNone, autodiff.RecomputeStandard, autodiff.RecomputeAll} {
				for _, threads := range []string{"1", "2"} {
					sgd := optim.NewSGD()
					sgd.LearningRate = optim.Const(0.125)
					r, err := train.Compile(context.Background(), m, train.Options{
						Options: onnx.Options{Training: &onnx.Training{Dropout: true}}, Loss: train.Loss{Kind: "output", Output: "loss"}, Optimizer: sgd, Accumulation: 2, SumGradients: true, Recompute: recompute,
					})
					require.NoError(t, err)
					require.Equal(t, []uint32{0, 1, 2, 4}, r.Metadata.ProgramFlow.Load)
					l := newLearner(t, r, ipu.Option{Name: "threads", Value: threads}).start()
					l.give("x", bytesOf(x))
					l.run(9)
					require.Equal(t, l.got("y")[0], l.got("y")[1])
					require.Equal(t, x, floatsOf(l.got("y")[0]), "evaluation keeps all")
					w := slices.Repeat([]float32{1}, len(x))
					var all [][]byte
					for range 2 {
						l.run(5)
						masks := [][]float32{floatsOf(l.got("y")[0]), floatsOf(l.got("y")[1])}
						all = append(all, l.got("y")...)
						l.run(7)
						learnt := floatsOf(l.streams["weight_d2h_w"].all[0])
						kept := 0
						for i := range x {
							want := w[i]
							for _, y := range masks {
								if y[i] != 0 {
									want -= x[i] / 0.75 / 8
									kept++
									require.InEpsilon(t, x[i]*w[i]/0.75, y[i], 1e-6)
								}
							}
							require.InDelta(t, want, learnt[i], 1e-5, "weight %d", i)
						}
						w = learnt
						n := float64(2 * len(x))
						require.InDelta(t, 0.75*n, kept, 4*math.Sqrt(n*0.75*0.25))
					}
					for i := range all {
						for k := range i {
							require.NotEqual(t, dropped(all[i]), dropped(all[k]), "masks of micro-batches %d and %d", i, k)
						}
					}
					bits = append(bits, all)
					l.run(6)
					require.Equal(t, uint64(4), binary.LittleEndian.Uint64(l.streams["d2h_rngStateTensor"].all[0]), "the state counts micro-batches")
				}
			}
			for _, b := range bits[1:] {
				require.Equal(t, bits[0], b)
			}
		})
	}
}

// dropped says which elements are 0.
func dropped(b []byte) []bool {
	var out []bool
	for _, v := range floatsOf(b) {
		out = append(out, v == 0)
	}
	return out
}

// TestRunningStatistics trains a BatchNormalization with the statistics of batches: the running ones follow them after each micro-batch,
// and evaluation takes these; without the option they stay as they are.
func TestRunningStatistics(t *testing.T) {
	vector := func(name string, v ...float64) *onnx.Tensor {
		return onnxtest.Named(onnxtest.F32s(onnxtest.Dims(2), v...), name)
	}
	m := onnxtest.Model(15, &onnx.Graph{
		Inputs: []onnx.ValueInfo{onnxtest.Info("x", onnx.Float, 4, 2)}, Outputs: onnxtest.Outputs("loss", "y"),
		Initializers: []*onnx.Tensor{vector("scale", 1, 2), vector("bias", 0, 1), vector("mean", 0.5, -1), vector("var", 2, 3)},
		Nodes: []*onnx.Node{
			onnxtest.Node("BatchNormalization", onnxtest.Names("x", "scale", "bias", "mean", "var"), onnxtest.Names("y"), onnxtest.AFloat("momentum", 0.75), onnxtest.AFloat("epsilon", 0.125)),
			onnxtest.Node("ReduceSumSquare", onnxtest.Names("y"), onnxtest.Names("loss"), onnxtest.AInt("keepdims", 0)),
		},
	})
	x := []float32{1, 2, 3, -2, 0, 5, 4, 1}
	for _, learns := range []bool{false, true} {
		sgd := optim.NewSGD()
		sgd.LearningRate = optim.Const(0)
		r, err := train.Compile(context.Background(), m, train.Options{
			Options: onnx.Options{Training: &onnx.Training{BatchStatistics: learns}}, Loss: train.Loss{Kind: "output", Output: "loss"}, Optimizer: sgd,
		})
		require.NoError(t, err)
		require.Equal(t, []string{"scale", "bias"}, r.Trained)
		l := newLearner(t, r).start()
		l.give("x", bytesOf(x))
		mean, variance := []float64{0.5, -1}, []float64{2, 3}
		check := func(program int, mean, variance []float64) {
			l.run(program)
			for i, y := range floatsOf(l.got("y")[0]) {
				c := i % 2
				want := (float64(x[i])-mean[c])/math.Sqrt(variance[c]+0.125)*[]float64{1, 2}[c] + []float64{0, 1}[c]
				require.InDelta(t, want, y, 1e-5, "program %d, element %d", program, i)
			}
		}
		for range 3 {
			check(9, mean, variance)
			if !learns {
				check(5, mean, variance)
				continue
			}
			check(5, []float64{2, 1.5}, []float64{2.5, 6.25})
			for c := range 2 {
				mean[c] = 0.75*mean[c] + 0.25*[]float64{2, 1.5}[c]
				variance[c] = 0.75*variance[c] + 0.25*[]float64{2.5, 6.25}[c]
			}
		}
		l.give("x", bytesOf([]float32{1, 2, float32(math.Inf(1)), -2, 0, 5, 4, 1})) // no statistics of the first channel
		require.ErrorContains(t, l.try(5), "the loss or a gradient is infinite or no number")
		if learns {
			mean[1], variance[1] = 0.75*mean[1]+0.25*1.5, 0.75*variance[1]+0.25*6.25
		}
		l.run(7)
		for c := range 2 {
			require.InDelta(t, mean[c], floatsOf(l.streams["weight_d2h_mean"].all[0])[c], 1e-5)
			require.InDelta(t, variance[c], floatsOf(l.streams["weight_d2h_var"].all[0])[c], 1e-5)
		}
	}
}
