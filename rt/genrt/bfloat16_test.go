package genrt_test

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/train"
	"github.com/popefgen/popefgen/popef/checkpoint"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
)

// halfLearner is what a generated package of a learner of bfloat16 has: loss = x·w, of two numbers. w is an initializer or the value of a Constant node.
type halfLearner struct {
	core *genrt.Core
	spec *genrt.Spec
	x    genrt.Input[[1][2]uint16]
	loss genrt.Output[[1]uint16]
	w    genrt.Output[[2]uint16]
	full genrt.Output[[2]float32] // the master copy of w
}

func openHalfLearner(t *testing.T, rate float32, constant bool, opts ...rt.RunnerOption) *halfLearner {
	t.Helper()
	w := &onnx.Tensor{Name: "w", Elem: onnx.BFloat16, Dims: []int64{2, 1}, Data: []byte{0x80, 0x3f, 0, 0xc0}}
	dims := func(n ...int64) (out []onnx.Dim) {
		for _, d := range n {
			out = append(out, onnx.Dim{Known: true, Value: d})
		}
		return out
	}
	m := &onnx.Model{IRVersion: 8, Opsets: []onnx.Opset{{Version: 13}}, Graph: &onnx.Graph{
		Name: "half", Initializers: []*onnx.Tensor{w},
		Inputs: []onnx.ValueInfo{{Name: "x", Elem: onnx.BFloat16, HasShape: true, Dims: dims(1, 2)}},
		Nodes: []*onnx.Node{
			{OpType: "MatMul", Inputs: []string{"x", "w"}, Outputs: []string{"xw"}},
			{OpType: "ReduceMean", Inputs: []string{"xw"}, Outputs: []string{"loss"}, Attributes: []*onnx.Attribute{{Name: "keepdims", Type: onnx.AttrInt}}},
		},
		Outputs: []onnx.ValueInfo{{Name: "loss", Elem: onnx.BFloat16}},
	}}
	if constant {
		m.Graph.Initializers = nil
		value := &onnx.Attribute{Name: "value", Type: onnx.AttrTensor, Tensor: w}
		m.Graph.Nodes = append([]*onnx.Node{{OpType: "Constant", Outputs: []string{"w"}, Attributes: []*onnx.Attribute{value}}}, m.Graph.Nodes...)
	}
	sgd := optim.NewSGD()
	sgd.LearningRate = optim.Const(rate)
	compiled, err := train.Compile(context.Background(), m, train.Options{Loss: train.Loss{Kind: "output"}, Optimizer: sgd, NonFinite: optim.Ignored})
	require.NoError(t, err)
	model, err := compiled.Load(context.Background(), "half.popef")
	require.NoError(t, err)
	l := &halfLearner{core: new(genrt.Core), spec: &genrt.Spec{
		Package: "half", Contract: contract.Of(model).Callers().Text(), Iterations: 1, QueueDepth: 1, Trains: true,
		Anchors: []genrt.AnchorSpec{
			{Name: "x", GoName: "X", Role: genrt.RunInput, Bytes: 4},
			{Name: "loss", GoName: "Loss", Role: genrt.RunOutput, Bytes: 2, Evaluated: true},
			{Name: "w", GoName: "W", Role: genrt.SaveOutput, Bytes: 4},
			{Name: "Master___w", GoName: "MasterW", Role: genrt.SaveOutput, Bytes: 8},
		},
	}}
	bindings := func() []genrt.Binding {
		return []genrt.Binding{{Anchor: 0, Stream: &l.x}, {Anchor: 1, Stream: &l.loss}, {Anchor: 2, Stream: &l.w}, {Anchor: 3, Stream: &l.full}}
	}
	require.NoError(t, l.core.Open(context.Background(), l.spec, genrt.Source{Model: model}, bindings, func(int, int) {}, opts...))
	t.Cleanup(func() { require.NoError(t, l.core.Close()) })
	return l
}

// step makes a step and returns the loss.
func (l *halfLearner) step(x ...uint16) (loss float32, err error) {
	replica, err := l.core.Begin(context.Background(), rt.LeastBusy)
	if err != nil {
		return 0, err
	}
	in, out := [1][2]uint16{{x[0], x[1]}}, [1]uint16{}
	l.x.Bind(&in)
	l.loss.Bind(&out)
	err = l.core.Step(context.Background(), replica)
	return math.Float32frombits(uint32(out[0]) << 16), err
}

// TestBFloat16NotFinite learns with a rate that leads to infinity: no checkpoint holds it. Losses of bfloat16 are looked at,
// too.
func TestBFloat16NotFinite(t *testing.T) {
	ctx, path := context.Background(), filepath.Join(t.TempDir(), "half.ckpt")
	l := openHalfLearner(t, 3e38, false, rt.WithFiniteLoss())
	loss, err := l.step(0, 0)
	require.NoError(t, err)
	require.Zero(t, loss)
	require.NoError(t, l.core.Checkpoint(ctx, l.spec, path))
	good, err := os.ReadFile(path)
	require.NoError(t, err)

	_, err = l.step(0x4080, 0x4000) // 4 and 2, which are the gradients
	require.NoError(t, err, "the loss is of the weights before")
	err = l.core.Checkpoint(ctx, l.spec, path)
	require.ErrorIs(t, err, rt.ErrNotFinite)
	require.ErrorContains(t, err, `weight "w", U16 [2 1]: not finite: element [0 0] is -Inf`)
	left, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, good, left)
	_, err = l.step(0x3f80, 0x3f80)
	require.ErrorIs(t, err, rt.ErrNotFinite)
	require.ErrorContains(t, err, `output "loss": not finite: transfer 1 of 1 is -Inf`)

	of, err := checkpoint.Read(path)
	require.NoError(t, err)
	w := of.Tensor("w")
	require.True(t, w.BFloat16)
	require.False(t, of.Tensor("Master___w").BFloat16)
	w.Data = []byte{0xc0, 0x7f, 0, 0}
	require.ErrorContains(t, of.Write(path), `element [0 0] is NaN`)
}

// TestConstantsOfCheckpoints has learnt the value of a Constant node: the checkpoint says so, since an inference model has no weight for it.
func TestConstantsOfCheckpoints(t *testing.T) {
	for _, constant := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "half.ckpt")
		l := openHalfLearner(t, 0.5, constant)
		require.NoError(t, l.core.Checkpoint(context.Background(), l.spec, path))
		of, err := checkpoint.Read(path)
		require.NoError(t, err)
		require.Equal(t, constant, of.Tensor("w").Constant)
		require.False(t, of.Tensor("Master___w").Constant)
		openHalfLearner(t, 0.5, constant, rt.WithCheckpoint(path))
	}
}
