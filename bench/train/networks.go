package main

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"github.com/popefgen/popefgen/bench/synth"
	"github.com/popefgen/popefgen/onnx"
)

// batch is how many samples a step of the networks takes.
const batch = 64

// network is an ONNX model that learns classes, with a batch of made data. learn.py has the same networks by name, and
// takes their weights in the order of the model's initializers.
type network struct {
	name    string
	title   string
	batch   int64
	classes int64
	build   func(m *synth.Model) (scores string)
}

// networks are those that step times are compared on.
var networks = []network{
	{"digits", "digits CNN 16-32, 8×8", batch, 10, func(m *synth.Model) string {
		x := m.Input("x", batch, 1, 8, 8)
		x = pooled(m, relu(m, conv(m, relu(m, conv(m, x, 1, 16)), 16, 32)))
		return dense(m, relu(m, dense(m, flat(m, x), 512, 64)), 64, 10)
	}},
	{"cnn", "CNN 32-64, 28×28", batch, 10, func(m *synth.Model) string {
		x := m.Input("x", batch, 1, 28, 28)
		x = pooled(m, relu(m, conv(m, x, 1, 32)))
		x = pooled(m, relu(m, conv(m, x, 32, 64)))
		return dense(m, relu(m, dense(m, flat(m, x), 3136, 128)), 128, 10)
	}},
	{"mlp", "MLP 784-512-256-10", batch, 10, func(m *synth.Model) string {
		x := m.Input("x", batch, 784)
		x = relu(m, dense(m, relu(m, dense(m, x, 784, 512)), 512, 256))
		return dense(m, x, 256, 10)
	}},
	{"lstm", "LSTM 28→128, 28 steps", batch, 10, func(m *synth.Model) string {
		x := m.Input("x", 28, batch, 28)
		const h = 128
		operands := []string{x, m.Weights(0.05, 1, 4*h, 28), m.Weights(0.05, 1, 4*h, h), m.Weights(0.05, 1, 8*h)}
		last := m.Nodes("LSTM", operands, 2, synth.Attr{Name: "hidden_size", Value: int64(h)})[1]
		return dense(m, m.Node("Reshape", []string{last, m.Ints(batch, h)}), h, 10)
	}},
	{"transformer", "transformer, 2 layers of 128, 28 tokens", batch, 10, transformer(batch, 2, 128)},
}

func conv(m *synth.Model, x string, from, to int64) string {
	operands := []string{x, m.Weights(1/math.Sqrt(float64(9*from)), to, from, 3, 3), m.Weights(0.1, to)}
	return m.Node("Conv", operands, synth.Attr{Name: "pads", Value: []int64{1, 1, 1, 1}}, synth.Attr{Name: "kernel_shape", Value: []int64{3, 3}}, synth.Attr{Name: "strides", Value: []int64{1, 1}})
}

func pooled(m *synth.Model, x string) string {
	return m.Node("MaxPool", []string{x}, synth.Attr{Name: "kernel_shape", Value: []int64{2, 2}}, synth.Attr{Name: "strides", Value: []int64{2, 2}})
}

func relu(m *synth.Model, x string) string { return m.Node("Relu", []string{x}) }
func flat(m *synth.Model, x string) string { return m.Node("Flatten", []string{x}) }

func dense(m *synth.Model, x string, from, to int64) string {
	operands := []string{x, m.Weights(1/math.Sqrt(float64(from)), to, from), m.Weights(0.1, to)}
	return m.Node("Gemm", operands, synth.Attr{Name: "transB", Value: int64(1)})
}

// linear is dense on the last of three axes.
func linear(m *synth.Model, x string, from, to int64) string {
	product := m.Node("MatMul", []string{x, m.Weights(1/math.Sqrt(float64(from)), from, to)})
	return m.Node("Add", []string{product, m.Weights(0.1, to)})
}

// transformer builds encoder layers as torch's nn.TransformerEncoderLayer has them (norms behind, no dropout, four heads) over
// 28 tokens, and a classifier of the mean of their results.
func transformer(n int64, layers int, d int64) func(m *synth.Model) string {
	const tokens, heads = 28, 4
	return func(m *synth.Model) string {
		x := linear(m, m.Input("x", n, tokens, 28), 28, d)
		x = m.Node("Add", []string{x, m.Weights(0.1, tokens, d)})
		norm := func(x string) string {
			return m.Node("LayerNormalization", []string{x, m.Weights(0.3, d), m.Weights(0.1, d)}, synth.Attr{Name: "axis", Value: int64(-1)})
		}
		perm := func(x string, p ...int64) string {
			return m.Node("Transpose", []string{x}, synth.Attr{Name: "perm", Value: p})
		}
		for range layers {
			parts := m.Nodes("Split", []string{linear(m, x, d, 3*d), m.Ints(d, d, d)}, 3, synth.Attr{Name: "axis", Value: int64(2)})
			head := func(i int, p ...int64) string {
				return perm(m.Node("Reshape", []string{parts[i], m.Ints(n, tokens, heads, d/heads)}), p...)
			}
			scores := m.Node("MatMul", []string{head(0, 0, 2, 1, 3), head(1, 0, 2, 3, 1)})
			scores = m.Node("Mul", []string{scores, m.Number(float32(1 / math.Sqrt(float64(d/heads))))})
			y := m.Node("MatMul", []string{m.Node("Softmax", []string{scores}, synth.Attr{Name: "axis", Value: int64(-1)}), head(2, 0, 2, 1, 3)})
			y = m.Node("Reshape", []string{perm(y, 0, 2, 1, 3), m.Ints(n, tokens, d)})
			x = norm(m.Node("Add", []string{x, linear(m, y, d, d)}))
			x = norm(m.Node("Add", []string{x, linear(m, relu(m, linear(m, x, d, 4*d)), 4*d, d)}))
		}
		mean := m.Node("ReduceMean", []string{x}, synth.Attr{Name: "axes", Value: []int64{1}}, synth.Attr{Name: "keepdims", Value: int64(0)})
		return dense(m, mean, d, 10)
	}
}

// bytes returns the network as an ONNX file.
func (n *network) bytes() []byte {
	m := synth.New(17)
	m.Output(n.build(m), n.batch, n.classes)
	return m.Bytes()
}

// model returns the network as ONNX.
func (n *network) model() (*onnx.Model, error) { return onnx.Decode(n.bytes(), "") }

// data returns a batch of inputs, normally distributed, and labels.
func (n *network) data(m *onnx.Model) (x, labels []byte) {
	r := rand.New(rand.NewPCG(3, 4))
	elements := int64(1)
	for _, d := range m.Graph.Inputs[0].Dims {
		elements *= d.Value
	}
	for range elements {
		x = binary.LittleEndian.AppendUint32(x, math.Float32bits(float32(r.NormFloat64())))
	}
	for range n.batch {
		labels = binary.LittleEndian.AppendUint32(labels, uint32(r.Int64N(n.classes)))
	}
	return x, labels
}

// weights returns the model's weights in their order, and how many there are.
func weights(m *onnx.Model) (all []byte, n int) {
	for _, w := range m.Graph.Initializers {
		if w.Elem == onnx.Float && len(w.Dims) > 0 {
			all, n = append(all, w.Data...), n+len(w.Data)/4
		}
	}
	return all, n
}
