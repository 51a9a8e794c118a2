package compile

import (
	"context"

	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/internal/lower"
	"github.com/popefgen/popefgen/onnx/internal/op"
)

// Lower fixes the model's dimensions and lowers its graph to the operators of the
// portable executable. Values that do not depend on inputs are computed here and now. The
// error is a [*onnx.DimError], an [*onnx.UnsupportedError] or a [*onnx.NeedValueError]
// where the model is well-formed and either the caller or the table of operators has to
// give something more; any other error says what is wrong with the model, node by node.
func Lower(m *onnx.Model, o onnx.Options) (*onnx.Lowered, error) {
	return LowerContext(context.Background(), m, o)
}

// LowerContext is [Lower] until ctx is done, whose error it returns then.
func LowerContext(ctx context.Context, m *onnx.Model, o onnx.Options) (*onnx.Lowered, error) {
	if o.NewEvaluator == nil {
		o.NewEvaluator = NewEvaluator
	}
	return lower.Lower(ctx, m, o, op.Table())
}

// NewEvaluator returns the evaluator of models whose options name none: the CPU engine's
// kernels, with the bounds of [cpu.Folder].
func NewEvaluator(ctx context.Context, memory int64) onnx.Evaluator {
	return cpu.NewFolder(ctx, memory)
}

// Operators returns every operator that can be lowered, sorted by domain and name.
func Operators() []onnx.Operator { return op.Table().Describe() }

// TypeSets returns the sets of element types that operands are described with, as in
// [onnx.Form]: the ONNX types in each, by the set's name. Sets of one type are left out.
func TypeSets() map[string]string { return lower.TypeSets() }
