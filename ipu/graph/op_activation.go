package graph

// More unary functions: activations of neural networks. α and β are
// [Unary.Alpha] and [Unary.Beta].
const (
	Selu            UnaryFn = "selu"             // β·(x<0 ? α·(exp(x)-1) : x)
	Celu            UnaryFn = "celu"             // x<0 ? α·(exp(x/α)-1) : x
	ThresholdedRelu UnaryFn = "thresholded_relu" // x>α ? x : 0
	HardSwish       UnaryFn = "hard_swish"       // x·max(0, min(1, x/6+½))
	Swish           UnaryFn = "swish"            // x·sigmoid(α·x)
	Mish            UnaryFn = "mish"             // x·tanh(softplus(x))
	Gelu            UnaryFn = "gelu"             // x·½·(1+erf(x/√2))
	GeluTanh        UnaryFn = "gelu_tanh"        // x·½·(1+tanh(√(2/π)·(x+0.044715·x³)))
)

// PRelu is the binary function x<0 ? slope·x : x, slope being the second
// operand.
const PRelu BinaryFn = "prelu"
