package optim_test

import (
	"context"
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/autodiff"
	"github.com/popefgen/popefgen/ipu/graph/optim"
)

// classifier is the network of TestLearns in float64, with the gradient (p - onehot)·weight of its loss written out.
type classifier struct {
	x       []float32
	labels  []int
	weights []float64
	mean    bool
	w, m, v [4][3]float64
	t       float64
}

// step returns the loss before a step of Adam.
func (c *classifier) step() (loss float64) {
	var g [4][3]float64
	total := 1.0
	if c.mean {
		total = 0
		for _, l := range c.labels {
			total += c.weights[l]
		}
	}
	for i, l := range c.labels {
		var p [3]float64
		sum := 0.0
		for j := range p {
			for k := range 4 {
				p[j] += float64(c.x[4*i+k]) * c.w[k][j]
			}
			p[j] = math.Exp(p[j])
			sum += p[j]
		}
		loss -= c.weights[l] * math.Log(p[l]/sum) / total
		for j := range p {
			d := p[j] / sum
			if j == l {
				d--
			}
			for k := range 4 {
				g[k][j] += float64(c.x[4*i+k]) * d * c.weights[l] / total
			}
		}
	}
	c.t++
	for k := range 4 {
		for j := range 3 {
			c.m[k][j] = 0.9*c.m[k][j] + 0.1*g[k][j]
			c.v[k][j] = 0.999*c.v[k][j] + 0.001*g[k][j]*g[k][j]
			c.w[k][j] -= 0.1 * c.m[k][j] / (1 - math.Pow(0.9, c.t)) / (math.Sqrt(c.v[k][j]/(1-math.Pow(0.999, c.t))) + 1e-6)
		}
	}
	return loss
}

// TestLearns trains a linear classifier: forward graph, loss, the backward graph that autodiff appends, and Adam. Losses
// are those of the network in float64, and a label that is no class is named and changes nothing.
func TestLearns(t *testing.T) {
	const n, in, classes = 6, 4, 3
	matrix := func(a, b int64) graph.TensorType { return graph.TensorType{DType: graph.F32, Shape: []int64{a, b}} }
	for _, r := range []optim.Reduction{optim.Mean, optim.Sum} {
		b := graph.NewBuilder("classifier")
		x, w, weights := b.AddLocal("x", matrix(n, in)), b.AddPersistent("w", matrix(in, classes)), b.AddPersistent("weights", vector(classes))
		labels := b.AddLocal("labels", graph.TensorType{DType: graph.I32, Shape: []int64{n}})
		forward := b.BeginGraph("forward")
		scores, err := b.Node(&graph.MatMul{}, "scores", x, w)
		require.NoError(t, err)
		l, err := optim.FindLoss("softmax-cross-entropy")
		require.NoError(t, err)
		options := optim.NewLossOptions()
		options.Reduction, options.Weights = r, weights
		loss, err := l.Add(b, "loss", scores[0], labels, options)
		require.NoError(t, err)
		exe, err := b.Finish()
		require.NoError(t, err)
		info, err := autodiff.Backward(exe, forward, autodiff.Options{Provided: []graph.TensorID{loss}, Required: []graph.TensorID{w}})
		require.NoError(t, err)
		b = graph.Continue(exe)
		update := b.BeginGraph("update")
		o := optim.NewAdam()
		a, err := optim.Apply(b, o, []optim.Weight{{Name: "w", Tensor: w, Gradient: info.Outputs[0].Tensor}}, optim.NewStep())
		require.NoError(t, err)
		require.Empty(t, a.Inputs)
		start := b.BeginGraph("start")
		require.NoError(t, b.NodeTo(&graph.Expand{}, "start", []graph.TensorID{info.Inputs[0].Tensor}, a.LossScale))
		b.AddProgram(0, "load", b.CopyIn("w in", w), b.CopyIn("weights", weights))
		b.AddProgram(5, "main", b.CopyIn("x", x), b.CopyIn("labels", labels), b.Call(forward), b.Call(start), b.Call(info.Graph), b.Call(update), b.CopyOut("loss", loss))
		b.AddProgram(7, "save", b.CopyOut("w", w))
		m := newTrainer(t, b, true)
		for i := range n {
			for k := range in {
				floats(m.streams["x"])[i*in+k] = float32(math.Sin(float64(3*i + k)))
			}
			binary.LittleEndian.PutUint32(m.streams["labels"][4*i:], uint32(i%classes))
		}
		copy(floats(m.streams["weights"]), []float32{1, 0.5, 2})
		m.run(0)
		ref := classifier{x: floats(m.streams["x"]), labels: []int{0, 1, 2, 0, 1, 2}, weights: []float64{1, 0.5, 2}, mean: r == optim.Mean}
		for step := range 10 {
			m.run(5)
			require.InDelta(t, ref.step(), floats(m.streams["loss"])[0], 1e-5, "%s, step %d", r, step)
		}
		m.run(7)
		before := append([]float32(nil), floats(m.streams["w"])...)
		binary.LittleEndian.PutUint32(m.streams["labels"][8:], classes)
		err = m.engine.Run(context.Background(), 5)
		var assertion *ipu.AssertionError
		require.ErrorAs(t, err, &assertion)
		require.Contains(t, assertion.Message, "label 2 is 3, want 0 to 2")
		m.run(7)
		require.Equal(t, before, floats(m.streams["w"]))
	}
}
