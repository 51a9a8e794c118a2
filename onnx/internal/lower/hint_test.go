package lower

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHints wants of the hint for every kind of operator that is refused what
// can be done about it.
func TestHints(t *testing.T) {
	for _, c := range []struct{ domain, op, want string }{
		{"com.microsoft", "FusedConv", "export without it .* popefgen fuses by itself"},
		{"com.microsoft", "FusedMatMul", "export without it"},
		{"com.microsoft", "SkipLayerNormalization", "export without it"},
		{"com.microsoft", "BiasGelu", "export without it"},
		{"com.microsoft.nchwc", "Conv", "export the model from its framework"},
		{"com.microsoft", "QLinearAdd", "QuantFormat.QDQ"},
		{"com.microsoft", "DynamicQuantizeMatMul", "QuantFormat.QDQ"},
		{"com.microsoft", "MatMulIntegerToFloat", "QuantFormat.QDQ"},
		{"com.microsoft", "MatMulNBits", "quantised to 8 bits"},
		{"com.microsoft", "GroupQueryAttention", "with the operators of ONNX"},
		{"com.microsoft", "MultiHeadAttention", "with the operators of ONNX"},
		{"com.microsoft", "RotaryEmbedding", "with the operators of ONNX"},
		{"com.microsoft", "BeamSearch", "write the loop in the program"},
		{"com.microsoft", "Sampling", "write the loop in the program"},
		{"com.microsoft", "Inverse", "rather than through ONNX Runtime's tools"},
		{"com.ms.internal.nhwc", "Conv", "rather than through ONNX Runtime's tools"},
		{"ai.onnx.ml", "TreeEnsembleRegressor", "export trees .* as tensor operators"},
		{"ai.onnx.preview.training", "GraphCall", "for inference"},
		{"com.example", "FancyNorm", "defines it as a function"},
		{"", "SequenceAt", "Split and Concat"},
		{"", "OptionalGetElement", "without optionals"},
		{"", "StringSplit", "turn text into numbers"},
		{"", "RegexFullMatch", "turn text into numbers"},
		{"", "ImageDecoder", "decode images before"},
		{"", "Nonsense", "docs/operators.md"},
	} {
		hint := hintFor(c.domain, c.op)
		require.Regexp(t, regexp.MustCompile(c.want), hint, "%s.%s", c.domain, c.op)
		require.NotContains(t, hint, "take the model as it was exported", "nobody can who has another model only")
		require.NotContains(t, hint, "bind")
	}
}
