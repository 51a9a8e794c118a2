package onnx

import (
	"regexp"
	"strings"
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
		{"ai.onnx.preview.training", "Adam", "for inference"},
		{"com.example", "FancyNorm", "defines it as a function"},
		{"", "SequenceAt", "Split and Concat"},
		{"", "OptionalGetElement", "without optionals"},
		{"", "StringSplit", "turn text into numbers"},
		{"", "RegexFullMatch", "turn text into numbers"},
		{"", "RandomNormal", "an input of the model"},
		{"", "Bernoulli", "an input of the model"},
		{"", "Multinomial", "an input of the model"},
		{"", "ImageDecoder", "decode images before"},
		{"", "Nonsense", "docs/operators.md"},
	} {
		hint := hintFor(c.domain, c.op)
		require.Regexp(t, regexp.MustCompile(c.want), hint, "%s.%s", c.domain, c.op)
		require.NotContains(t, hint, "take the model as it was exported", "nobody can who has another model only")
		require.NotContains(t, hint, "bind")
	}
}

// TestSizedByData refuses results whose size depends on what requests bring, and
// does not ask for a value that nobody can give.
func TestSizedByData(t *testing.T) {
	type operand struct {
		name string
		typ  ElemType
		dims []int64
	}
	x := operand{"x", Float, dims(1, 6, 4)}
	for op, c := range map[string]struct {
		nodes []*Node
		want  string
	}{
		"NonZero":           {[]*Node{node("Relu", names("x"), names("r")), node("NonZero", names("r"), names("y"))}, "operand 0"},
		"Unique":            {[]*Node{node("Relu", names("x"), names("r")), node("Unique", names("r"), names("y"))}, "operand 0"},
		"Compress":          {[]*Node{node("Relu", names("x"), names("r")), node("Cast", names("r"), names("m"), &Attribute{Name: "to", Type: AttrInt, Int: int64(Bool)}), node("Compress", names("x", "m"), names("y"))}, "operand 1"},
		"NonMaxSuppression": {[]*Node{node("Relu", names("x"), names("b")), node("Transpose", names("b"), names("s"), &Attribute{Name: "perm", Type: AttrInts, Ints: []int64{0, 2, 1}}), node("NonMaxSuppression", names("b", "s"), names("y"))}, "operand 0"},
	} {
		m := &Model{IRVersion: 8, Opsets: []Opset{{"", 17}}, Graph: &Graph{Name: "g", Nodes: c.nodes,
			Inputs:  []ValueInfo{{Name: x.name, Elem: x.typ, HasShape: true, Dims: []Dim{{Known: true, Value: 1}, {Known: true, Value: 6}, {Known: true, Value: 4}}}},
			Outputs: []ValueInfo{{Name: "y"}}}}
		_, err := Lower(m, Options{})
		var need *NeedValueError
		require.ErrorAs(t, err, &need, op)
		require.Equal(t, []string{"x"}, need.Inputs(), "who has the value of a data set may still bind it")
		require.Contains(t, err.Error(), "the size of its result depends on the elements of "+c.want, op)
		require.Contains(t, err.Error(), "end the model before this node", op)
		require.NotContains(t, err.Error(), "bind a value", op)
		require.Equal(t, 1, strings.Count(err.Error(), "hint:"), err)
	}
}
