package gradient

import (
	"fmt"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
	"github.com/popefgen/popefgen/ipu/graph"
)

// Kernels is the binder of gradients.
var Kernels = map[string]tensor.Binder{"Gradient": vec.Widened(bind)}

func bind(op graph.Op, in, _ []graph.TensorType) (tensor.Kernel, error) {
	switch in[0].DType {
	case graph.F32:
		return bindOf[float32](op.(*graph.Gradient), in)
	case graph.F64:
		return bindOf[float64](op.(*graph.Gradient), in)
	}
	return nil, fmt.Errorf("no kernel for %v", in[0])
}

func bindOf[T tensor.Float](o *graph.Gradient, in []graph.TensorType) (tensor.Kernel, error) {
	switch o.Of {
	case "MaxPool", "AveragePool":
		return newPool[T](o, in), nil
	case "LayerNorm", "RMSNorm":
		return newRowNorm[T](o, in[1].Shape), nil
	case "GroupNorm":
		return newGroupNorm[T](o, in[1].Shape), nil
	case "Softmax":
		return newSoftmax[T](o, in[1].Shape), nil
	}
	return nil, fmt.Errorf("no kernel for the gradient of %s", o.Of)
}
