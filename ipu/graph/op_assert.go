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

// HasEffect reports whether a node does more than to compute its results, so
// that it matters even where nobody reads those: it checks something, or runs
// graphs, which may write persistent tensors.
func HasEffect(op Op) bool {
	_, ok := op.(*Assert)
	return ok || len(Subgraphs(op)) > 0
}
