package build_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/build"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/onnx/popart"
	"github.com/popefgen/popefgen/rt/popxl"
	"github.com/popefgen/popefgen/rt/popxl/ops"
)

// network is what testdata/torch/make.py writes besides a network: an input, PyTorch's answer, and the weights under PyTorch's names.
type network struct {
	X, Y    []float32
	Shape   []int64
	Weights map[string][]float32
}

// weight adds a weight to a Builder's model.
func (n *network) weight(b *build.Builder, name string, dims ...int64) *build.Tensor {
	return b.Initializer(name, build.TensorOf(n.Weights[name], dims...))
}

// transposed returns a weight [rows, columns] as [columns, rows].
func (n *network) transposed(name string, rows, columns int) []float32 {
	w := n.Weights[name]
	t := make([]float32, 0, len(w))
	for c := range columns {
		for r := range rows {
			t = append(t, w[r*columns+c])
		}
	}
	return t
}

// gates returns rows of gates in ONNX's order: input, output, forget, cell, of PyTorch's: input, forget, cell, output.
func (n *network) gates(name string) []float32 {
	w := n.Weights[name]
	k := len(w) / 4
	return slices.Concat(w[:k], w[3*k:], w[k:2*k], w[2*k:3*k])
}

func (n *network) onnxMLP(b *build.Builder, x *build.Tensor) *build.Tensor {
	x = b.Relu(b.Gemm(x, n.weight(b, "fc1.weight", 16, 8), n.weight(b, "fc1.bias", 16), build.TransB(true)))
	return b.Softmax(b.Gemm(x, n.weight(b, "fc2.weight", 4, 16), n.weight(b, "fc2.bias", 4), build.TransB(true)))
}

func (n *network) onnxCNN(b *build.Builder, x *build.Tensor) *build.Tensor {
	x = b.Relu(b.Conv(x, n.weight(b, "conv.weight", 4, 1, 3, 3), n.weight(b, "conv.bias", 4), build.Pads(1, 1, 1, 1)))
	x, _ = b.MaxPool(x, []int64{2, 2}, build.Strides(2, 2))
	return b.Gemm(b.Flatten(x), n.weight(b, "fc.weight", 10, 64), n.weight(b, "fc.bias", 10), build.TransB(true))
}

func (n *network) onnxLSTM(b *build.Builder, x *build.Tensor) *build.Tensor {
	w := b.Initializer("w", build.TensorOf(n.gates("lstm.weight_ih_l0"), 1, 20, 3))
	r := b.Initializer("r", build.TensorOf(n.gates("lstm.weight_hh_l0"), 1, 20, 5))
	bias := b.Initializer("b", build.TensorOf(slices.Concat(n.gates("lstm.bias_ih_l0"), n.gates("lstm.bias_hh_l0")), 1, 40))
	y, _, _ := b.LSTM(x, w, r, bias, nil, nil, nil, nil, build.HiddenSize(5))
	y = b.Squeeze(y, build.Const(b, []int64{1}, 1))
	y = b.MatMul(y, b.Initializer("fc.weight", build.TensorOf(n.transposed("fc.weight", 2, 5), 5, 2)))
	return b.Add(n.weight(b, "fc.bias", 2), y)
}

func (n *network) onnxTransformer(b *build.Builder, x *build.Tensor) *build.Tensor {
	linear := func(name string, x *build.Tensor, out, in int) *build.Tensor {
		w := b.Initializer(name+".weight", build.TensorOf(n.transposed(name+".weight", out, in), int64(in), int64(out)))
		return b.Add(n.weight(b, name+".bias", int64(out)), b.MatMul(x, w))
	}
	norm := func(name string, x *build.Tensor) *build.Tensor {
		y, _, _ := b.LayerNormalization(x, n.weight(b, name+".weight", 8), n.weight(b, name+".bias", 8))
		return y
	}
	heads := func(x *build.Tensor, perm ...int64) *build.Tensor {
		return b.Transpose(b.Reshape(x, build.Const(b, []int64{2, 5, 2, 4}, 4)), build.Perm(perm...))
	}
	a := norm("norm1", x)
	q, k, v := heads(linear("q", a, 8, 8), 0, 2, 1, 3), heads(linear("k", a, 8, 8), 0, 2, 3, 1), heads(linear("v", a, 8, 8), 0, 2, 1, 3)
	scores := b.Softmax(b.Mul(b.MatMul(q, k), build.Const(b, []float32{0.5})))
	a = b.Reshape(b.Transpose(b.MatMul(scores, v), build.Perm(0, 2, 1, 3)), build.Const(b, []int64{2, 5, 8}, 3))
	x = b.Add(x, linear("o", a, 8, 8))
	return b.Add(x, linear("down", b.Relu(linear("up", norm("norm2", x), 16, 8)), 8, 16))
}

type floats = popxl.Tensor[float32]

// variable adds a weight to an Ir.
func variable(ir *popxl.Ir, name string, data []float32, shape ...int64) floats {
	return popxl.NewVariable(ir, name, data, shape...).Tensor()
}

func (n *network) linear(ir *popxl.Ir, name string, x floats, out, in int) floats {
	w := variable(ir, name+".weight", n.transposed(name+".weight", out, in), int64(in), int64(out))
	return ops.Add(ops.MatMul(x, w), variable(ir, name+".bias", n.Weights[name+".bias"], int64(out)))
}

func (n *network) popxlMLP(ir *popxl.Ir, x floats) floats {
	return ops.Softmax(n.linear(ir, "fc2", ops.Relu(n.linear(ir, "fc1", x, 16, 8)), 4, 16), 1)
}

func (n *network) popxlCNN(ir *popxl.Ir, x floats) floats {
	w := variable(ir, "conv.weight", n.Weights["conv.weight"], 4, 1, 3, 3)
	x = ops.Conv(x, w, 1, ops.Window{Begin: []int64{1, 1}, End: []int64{1, 1}})
	x = ops.Relu(ops.Add(x, variable(ir, "conv.bias", n.Weights["conv.bias"], 4, 1, 1)))
	x = ops.MaxPool(x, []int64{2, 2}, ops.Window{Strides: []int64{2, 2}})
	return n.linear(ir, "fc", ops.Reshape(x, 2, 64), 10, 64)
}

func (n *network) popxlLSTM(ir *popxl.Ir, x floats) floats {
	bias := n.gates("lstm.bias_ih_l0")
	for i, v := range n.gates("lstm.bias_hh_l0") {
		bias[i] += v
	}
	h, _ := ops.LSTM(x, variable(ir, "w", n.gates("lstm.weight_ih_l0"), 20, 3), variable(ir, "r", n.gates("lstm.weight_hh_l0"), 20, 5), variable(ir, "b", bias, 20), ops.LSTMState[float32]{})
	return n.linear(ir, "fc", h, 2, 5)
}

func (n *network) popxlTransformer(ir *popxl.Ir, x floats) floats {
	norm := func(name string, x floats) floats {
		return ops.LayerNorm(x, variable(ir, name+".weight", n.Weights[name+".weight"], 8), variable(ir, name+".bias", n.Weights[name+".bias"], 8), 1e-5)
	}
	heads := func(x floats, perm ...int64) floats { return ops.Transpose(ops.Reshape(x, 2, 5, 2, 4), perm...) }
	a := norm("norm1", x)
	q, k, v := heads(n.linear(ir, "q", a, 8, 8), 0, 2, 1, 3), heads(n.linear(ir, "k", a, 8, 8), 0, 2, 3, 1), heads(n.linear(ir, "v", a, 8, 8), 0, 2, 1, 3)
	scores := ops.Softmax(ops.Mul(ops.MatMul(q, k), popxl.Constant(ir, []float32{0.5})), 3)
	a = ops.Reshape(ops.Transpose(ops.MatMul(scores, v), 0, 2, 1, 3), 2, 5, 8)
	x = ops.Add(x, n.linear(ir, "o", a, 8, 8))
	return ops.Add(x, n.linear(ir, "down", ops.Relu(n.linear(ir, "up", norm("norm2", x), 16, 8)), 8, 16))
}

// TestNetworks: a network of every kind, built with the Builder and with popxl, and exported by PyTorch, gives PyTorch's numbers. The Builder's model and PyTorch's are the same executable after all passes, and give the same bits; popxl's has the same operators in the same order.
func TestNetworks(t *testing.T) {
	for name, kind := range map[string]struct {
		onnx  func(*network, *build.Builder, *build.Tensor) *build.Tensor
		popxl func(*network, *popxl.Ir, floats) floats
	}{
		"mlp": {(*network).onnxMLP, (*network).popxlMLP}, "cnn": {(*network).onnxCNN, (*network).popxlCNN},
		"lstm": {(*network).onnxLSTM, (*network).popxlLSTM}, "transformer": {(*network).onnxTransformer, (*network).popxlTransformer},
	} {
		t.Run(name, func(t *testing.T) {
			var n network
			text, err := os.ReadFile(filepath.Join("testdata", "torch", name+".json"))
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(text, &n))

			b := build.New(build.Opset(17))
			var dims []any
			for _, d := range n.Shape {
				dims = append(dims, d)
			}
			b.Output("y", kind.onnx(&n, b, b.Input("x", onnx.Float, dims...)))
			built := model(t, b)
			exported, err := onnx.ReadFile(filepath.Join("testdata", "torch", name+".onnx"))
			require.NoError(t, err)
			want := answer(t, exported, n.X)
			require.InDeltaSlice(t, n.Y, want, 1e-5)
			require.Equal(t, want, answer(t, built, n.X))
			require.Equal(t, operators(t, exported), operators(t, built))

			ir := popxl.New(name)
			x := popxl.NewInput[float32](ir, "x", n.Shape...)
			y := popxl.NewOutput("y", kind.popxl(&n, ir, x.Load()))
			s, err := popxl.NewSession(ctx, ir)
			require.NoError(t, err)
			defer s.Close()
			got := y.Make()
			require.NoError(t, s.In(ctx, func() error { return s.Run(ctx, x.Feed(n.X), y.Into(got)) }))
			require.InDeltaSlice(t, n.Y, got, 1e-5)

			ir = popxl.New(name)
			popxl.NewOutput("y", kind.popxl(&n, ir, popxl.NewInput[float32](ir, "x", n.Shape...).Load()))
			own, err := ir.Export(ctx)
			require.NoError(t, err)
			r, err := compile.Compile(built, compile.Options{})
			require.NoError(t, err)
			require.Equal(t, kinds(r.Executable), kinds(own.Executable))
		})
	}
}

// answer returns what an ONNX model gives.
func answer(t *testing.T, m *onnx.Model, x []float32) []float32 {
	t.Helper()
	s, err := popart.NewInferenceSession(ctx, popart.ONNX(m), popart.DataFlow{BatchesPerStep: 1, Anchors: popart.Anchors{"y": popart.All}}, popart.CPU(), nil, nil)
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.PrepareDevice(ctx))
	out := s.InitAnchorArrays()
	require.NoError(t, s.Run(ctx, popart.Arrays(map[string]popart.Array{"x": popart.Of(x)}, out)))
	return popart.In[float32](out["y"])
}

// kinds returns the operators of a request, in order. Reshapes do not count: variables keep the shapes that a network in Go gives them, where ONNX's weights are reshaped when they are compiled.
func kinds(e *graph.Executable) (list []string) {
	for _, n := range e.Graphs[0].Nodes {
		if kind := fmt.Sprintf("%T", n.Op); kind != "*graph.Reshape" {
			list = append(list, kind)
		}
	}
	return list
}

// operators returns what the nodes of a compiled model are, with the types of their results.
func operators(t *testing.T, m *onnx.Model) (list []string) {
	t.Helper()
	r, err := compile.Compile(m, compile.Options{})
	require.NoError(t, err)
	for _, g := range r.Executable.Graphs {
		for _, n := range g.Nodes {
			text := fmt.Sprintf("%T %+v", n.Op, n.Op)
			for _, out := range n.Outputs {
				if out != graph.None {
					text += fmt.Sprint(" ", r.Executable.Tensors[out].Type)
				}
			}
			list = append(list, text)
		}
	}
	return list
}
