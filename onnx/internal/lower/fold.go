package lower

import (
	"fmt"

	"github.com/popefgen/popefgen/ipu/graph"
)

// Fold is constant folding: it has op computed on known operands, whose results are of the given
// types. The error wraps [graph.ErrNotFolded] if it is better left to the executable.
func (c *Call) Fold(op graph.Op, want []graph.TensorType, in ...*Value) ([][]byte, error) {
	types := make([]graph.TensorType, len(in))
	data := make([][]byte, len(in))
	for i, v := range in {
		if v != nil {
			types[i], data[i] = v.Type, v.Data
		}
	}
	_, results, err := c.l.evaluator.Fold(op, types, data)
	if err != nil {
		return nil, err
	}
	// Somebody else's code computes them.
	if len(results) != len(want) {
		return nil, fmt.Errorf("the evaluator gave %d results of %s, want %d", len(results), op.Kind(), len(want))
	}
	for i, t := range want {
		if got := int64(len(results[i])); got != t.Bytes() {
			return nil, fmt.Errorf("the evaluator gave %d bytes for result %d of %s, want %d (%v)", got, i, op.Kind(), t.Bytes(), t)
		}
	}
	return results, nil
}

// Makes counts a constant of n bytes that the call is about to make.
func (c *Call) Makes(n int64) {
	if err := c.l.evaluator.Make(n); err != nil {
		c.Fail("%w", err)
	}
}
