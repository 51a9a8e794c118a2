package onnx

import (
	"strings"

	"github.com/popefgen/popefgen/internal/printable"
)

// Hints say what to do about something that is not supported.
const (
	hintTraining = "export the model for inference"
	hintLoop     = "give the loop a trip count that is known when the model is compiled, with --bind if it is an input"
	hintFold     = "compute it where the model is exported, and put the result into the model"
	hintSeries   = "an executable has tensors only: export with Split and Concat in place of sequences, without optionals"
	hintText     = "an executable has no strings: turn text into numbers before the model"
	hintRandom   = "an executable gives the same outputs for the same inputs: make the random numbers an input of the model"
	hintComplex  = "make real and imaginary part a last dimension of 2, as DFT has it"
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
		return "operators of " + printable.Line(domain) + " are made when ONNX Runtime optimises a model: take the model as it was exported"
	case domain == "ai.onnx.ml":
		return "export trees and linear models as tensor operators, or keep this part outside of the model"
	case strings.HasSuffix(domain, ".training"):
		return hintTraining
	case domain != "" && domain != "ai.graphcore" && domain != "ai.onnx.preview":
		return "a custom operator can be lowered if the model defines it as a function"
	case has("Sequence", "Optional"):
		return hintSeries
	case has("String", "Regex"):
		return hintText
	case has("Random", "Bernoulli", "Multinomial"):
		return hintRandom
	case has("ImageDecoder"):
		return "decode images before the model"
	}
	return "docs/operators.md lists the operators that are supported"
}

// hint returns a hint for an element type that is not supported.
func (t ElemType) hint() string {
	switch t {
	case String:
		return hintText
	case Complex64, Complex128:
		return hintComplex
	case F8E4M3FN, F8E5M2, F8E8M0, F4E2M1:
		return hintFloat8
	}
	return ""
}
