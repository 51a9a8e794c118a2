// Package net builds, with PopART's Builder in Go, a network that reads handwritten digits, and makes sessions in which it learns.
package net

import (
	"context"
	"math"
	"math/rand/v2"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/build"
	"github.com/popefgen/popefgen/onnx/popart"
)

// The sizes of a step: Batches batches of Batch scans, which is once through the 1,438 scans that are learnt from, but for the last 30.
const (
	Batch   = 64
	Batches = 22
)

const hidden = 48

// Model returns the network with random initial weights as an ONNX model: two linear layers over the 64 grey levels of a scan.
func Model(ctx context.Context, seed uint64) ([]byte, error) {
	random := rand.New(rand.NewPCG(seed, 0))
	weights := func(in, out int64) *onnx.Tensor {
		w, bound := make([]float32, in*out), math.Sqrt(6/float64(in+out))
		for i := range w {
			w[i] = float32(bound * (2*random.Float64() - 1))
		}
		return build.TensorOf(w, in, out)
	}
	b := build.New(build.Opset(17))
	linear := func(name string, x *build.Tensor, in, out int64) (y *build.Tensor) {
		b.Scope(name, func() {
			w := b.Initializer("w", weights(in, out))
			bias := b.Initializer("b", build.TensorOf(make([]float32, out), out))
			y = b.Gemm(x, w, bias)
		})
		return y
	}
	x := b.Flatten(b.Input("image", onnx.Float, Batch, 1, 8, 8))
	x = b.Relu(linear("hidden", x, 64, hidden))
	b.Output("probabilities", b.Softmax(linear("scores", x, hidden, 10)))
	return b.Bytes(ctx)
}

// Optimizer returns Adam with a learning rate that a session may change.
func Optimizer(learningRate float32) popart.Optimizer {
	return popart.Adam{LearningRate: popart.Var(learningRate)}
}

// NewSession returns a session in which a model of [Model] learns, on the CPU: a step is Batches batches and returns the loss of each, and the probabilities of the last.
func NewSession(ctx context.Context, model []byte, o *popart.Options) (*popart.TrainingSession, error) {
	flow := popart.DataFlow{BatchesPerStep: Batches, Anchors: popart.Anchors{"loss": popart.All, "probabilities": popart.Final}}
	loss := popart.Nll{Output: "probabilities", Label: "labels"}
	return popart.NewTrainingSession(ctx, popart.Bytes(model), flow, loss, Optimizer(0.004), popart.CPU(), nil, o)
}
