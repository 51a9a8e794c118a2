package onnx

import "context"

// Lower fixes the model's dimensions and lowers its graph. Values that do not
// depend on inputs are computed here and now. The error is a [*DimError], an
// [*UnsupportedError] or a [*NeedValueError] where the model is well-formed
// and either the caller or this package has to give something more; any other
// error says what is wrong with the model, node by node.
func Lower(m *Model, o Options) (*Lowered, error) {
	return LowerContext(context.Background(), m, o)
}

// LowerContext is [Lower] until ctx is done, whose error it returns then.
func LowerContext(ctx context.Context, m *Model, o Options) (*Lowered, error) {
	return lowerWith(ctx, m, o, table)
}

// Operators returns every operator that can be lowered, sorted by domain and
// name.
func Operators() []Operator { return table.Describe() }
