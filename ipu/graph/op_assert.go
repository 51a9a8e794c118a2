package graph

import "fmt"

// Assert ends the program with an [github.com/popefgen/popefgen/ipu.AssertionError]
// unless its operand is as it was assumed to be when the executable was made.
// Operand: cond, one Bool. There are no results.
//
// It is computed for this effect alone: wherever its graph runs it runs, after
// the nodes before it and before those behind it. No pass removes it.
type Assert struct {
	Want    bool   // what cond must be
	Message string // what was assumed, and what to do where that does not hold
}

// maxMessage bounds the text of an Assert.
const maxMessage = 1 << 12

// Kind returns "Assert".
func (*Assert) Kind() string { return "Assert" }

// Infer implements [Op].
func (o *Assert) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "cond")
	if err != nil {
		return nil, err
	}
	if n := len(o.Message); n == 0 || n > maxMessage {
		return nil, fmt.Errorf("attribute Message has %d bytes, want 1 to %d", n, maxMessage)
	}
	return nil, firstError(bools.want("cond", in[0]), wantOne("cond", in[0]))
}

// AssertLabels ends the program with an [github.com/popefgen/popefgen/ipu.AssertionError] that names the place and the
// value of the first label that is no class. Operand: labels, I32, I64, F32 or F64 of any shape. There are no results. A label is a class
// if it is from 0 to Classes-1, or, if Ignores, equal to Ignore; one of F32 or F64 may lie between classes. Like [Assert] it is computed for this effect alone.
type AssertLabels struct {
	Classes int64
	Ignores bool
	Ignore  int64
}

// Kind returns "AssertLabels".
func (*AssertLabels) Kind() string { return "AssertLabels" }

// Infer implements [Op].
func (o *AssertLabels) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "labels")
	if err != nil {
		return nil, err
	}
	if o.Classes < 1 || o.Classes >= MaxTensorBytes {
		return nil, fmt.Errorf("attribute Classes is %d, want at least 1 and less than 2^40", o.Classes)
	}
	if !o.Ignores && o.Ignore != 0 {
		return nil, fmt.Errorf("attribute Ignore is %d, want 0 as no label is ignored", o.Ignore)
	}
	if in[0].DType == F32 || in[0].DType == F64 {
		if o.Ignores {
			return nil, fmt.Errorf("attribute Ignores is true, want false for labels of %v", in[0])
		}
		return nil, nil
	}
	return nil, typeSet{"i32, i64, f32 or f64", indices.types}.want("labels", in[0])
}

// HasEffect reports whether a node does more than to compute its results, so
// that it matters even where nobody reads those: it checks something, or runs
// graphs, which may write persistent tensors.
func HasEffect(op Op) bool {
	switch op.(type) {
	case *Assert, *AssertLabels:
		return true
	}
	return len(Subgraphs(op)) > 0
}
