package lower

import (
	"strings"

	"github.com/popefgen/popefgen/onnx"
)

// Hints say what to do about something that is not supported.
const (
	hintTraining = "export the model for inference"
	hintLoop     = "give the loop a trip count that is known when the model is compiled, with --bind if it is an input"
	HintFold     = "compute it where the model is exported, and put the result into the model"
	hintSeries   = "an executable has tensors only: export with Split and Concat in place of sequences, without optionals"
	HintText     = "an executable has no strings: turn text into numbers before the model"
	hintComplex  = "make real and imaginary part a last dimension of 2, as DFT takes it"
	hintFloat8   = "the types of 8 bits that are supported are float8e4m3fnuz and float8e5m2fnuz, without infinities"
)

// hintFor returns a hint for an operator that is not in the table.
func hintFor(domain, op string) string {
	has := func(parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(op, p) {
				return true
			}
		}
		return false
	}
	switch {
	case strings.HasPrefix(domain, "com.microsoft"), strings.HasPrefix(domain, "com.ms."):
		return hintMicrosoft(op)
	case domain == "ai.onnx.ml":
		return "export trees and linear models as tensor operators, or keep this part outside of the model"
	case strings.HasSuffix(domain, ".training"):
		return hintTraining
	case domain != "" && domain != "ai.graphcore" && domain != "ai.onnx.preview":
		return "a custom operator can be lowered if the model defines it as a function"
	case has("Sequence", "Optional"):
		return hintSeries
	case has("String", "Regex"):
		return HintText
	case has("ImageDecoder"):
		return "decode images before the model"
	}
	return "docs/operators.md lists the operators that are supported"
}

// hintMicrosoft returns a hint for an operator of ONNX Runtime's own: what made it
// decides what to do.
func hintMicrosoft(op string) string {
	const own = "this is an operator of ONNX Runtime's own, none of which is supported: "
	switch {
	case strings.HasPrefix(op, "Fused"), strings.HasPrefix(op, "Nhwc"), strings.HasSuffix(op, "LayerNormalization"), strings.HasSuffix(op, "Gelu"):
		return own + "its graph optimisation made this one; export without it (in Optimum, without -O or ORTOptimizer; or save with GraphOptimizationLevel ORT_DISABLE_ALL), popefgen fuses by itself"
	case strings.HasPrefix(op, "QLinear"), strings.HasPrefix(op, "DynamicQuantize"), strings.HasPrefix(op, "MatMulInteger"), strings.HasPrefix(op, "QGemm"), strings.HasPrefix(op, "QAttention"):
		return own + "its quantiser made this one; quantise in the format QDQ (QuantFormat.QDQ), without optimising the model first"
	case strings.HasSuffix(op, "NBits"), strings.HasSuffix(op, "BnbQuant4"), strings.HasPrefix(op, "MatMulBnb"):
		return own + "weights of 4 bits are packed in this one; export the model with weights of float16 or float32, or quantised to 8 bits as QDQ"
	case strings.Contains(op, "Attention"), op == "RotaryEmbedding":
		return own + "a builder of language models made this one; export the model from its framework with the operators of ONNX (torch.onnx.export), whose attention popefgen finds and fuses"
	case strings.Contains(op, "Search"), strings.Contains(op, "Sampling"):
		return own + "this one runs a whole generation loop; export one step of the model and write the loop in the program"
	}
	return own + "export the model from its framework (torch.onnx.export, tf2onnx) rather than through ONNX Runtime's tools"
}

// HintOf returns a hint for an element type that is not supported.
func HintOf(t onnx.ElemType) string {
	switch t {
	case onnx.String:
		return HintText
	case onnx.Complex64, onnx.Complex128:
		return hintComplex
	case onnx.F8E4M3FN, onnx.F8E5M2, onnx.F8E8M0, onnx.F4E2M1:
		return hintFloat8
	}
	return ""
}
