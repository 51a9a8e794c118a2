package recurrent

import (
	"fmt"
	"math"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
	"github.com/popefgen/popefgen/ipu/graph"
)

// activation is a function that a recurrent operator applies to a slice in
// place.
type activation[T tensor.Float] func(x []T)

// usualActivations reports whether all cells have ONNX's default activations,
// which come in groups of n.
func usualActivations(names []string, n int) bool {
	for i, name := range names {
		want := "Tanh"
		if n > 1 && i%n == 0 {
			want = "Sigmoid" // of the gates
		}
		if name != want {
			return false
		}
	}
	return true
}

// newActivation returns ONNX's activation of the given name.
func newActivation[T tensor.Float](name string, alpha, beta float64) (activation[T], error) {
	if f := fastActivation(name); f != nil {
		if f, ok := any(f).(activation[T]); ok {
			return f, nil
		}
	}
	f, err := scalarActivation(name, alpha, beta)
	if err != nil {
		return nil, err
	}
	return func(x []T) {
		for i, v := range x {
			x[i] = T(f(float64(v)))
		}
	}, nil
}

// fastActivation returns the activations that nearly all models use, for
// float32.
func fastActivation(name string) activation[float32] {
	fn := map[string]graph.UnaryFn{"Sigmoid": graph.Sigmoid, "Tanh": graph.Tanh, "Softplus": graph.Softplus, "Relu": graph.Relu}[name]
	if fn == "" {
		return nil
	}
	f := vec.UnaryF32(&graph.Unary{Fn: fn})
	return func(x []float32) { f(x, x) }
}

// scalarActivation returns an activation as a function of one number.
func scalarActivation(name string, alpha, beta float64) (func(x float64) float64, error) {
	switch name {
	case "Sigmoid":
		return vec.Sigmoid64, nil
	case "Tanh":
		return math.Tanh, nil
	case "Softplus":
		return vec.Softplus64, nil
	case "Relu":
		return func(x float64) float64 { return max(x, 0) }, nil
	case "Affine":
		return func(x float64) float64 { return float64(alpha*x) + beta }, nil
	case "LeakyRelu":
		return func(x float64) float64 {
			if x < 0 {
				return alpha * x
			}
			return x
		}, nil
	case "ThresholdedRelu":
		return func(x float64) float64 {
			if x < alpha {
				return 0
			}
			return x
		}, nil
	case "ScaledTanh":
		return func(x float64) float64 { return alpha * math.Tanh(beta*x) }, nil
	case "HardSigmoid":
		return func(x float64) float64 { return min(max(float64(alpha*x)+beta, 0), 1) }, nil
	case "Elu":
		return func(x float64) float64 {
			if x < 0 {
				return alpha * math.Expm1(x)
			}
			return x
		}, nil
	case "Softsign":
		return func(x float64) float64 { return x / (1 + math.Abs(x)) }, nil
	}
	return nil, fmt.Errorf("activation %q has no CPU kernel", name)
}
