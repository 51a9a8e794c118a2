package lower

import (
	"errors"

	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/graph"
)

// Fold is constant folding: it computes op on known operands. The results are nil, without
// an error, if it is better left to the executable.
func (c *Call) Fold(op graph.Op, in ...*Value) ([]graph.TensorType, [][]byte, error) {
	types := make([]graph.TensorType, len(in))
	data := make([][]byte, len(in))
	for i, v := range in {
		if v != nil {
			types[i], data[i] = v.Type, v.Data
		}
	}
	out, results, err := c.l.folder.Fold(op, types, data)
	if errors.Is(err, cpu.ErrNotFolded) {
		return nil, nil, nil
	}
	return out, results, err
}

// Makes counts a constant of n bytes that the call is about to make.
func (c *Call) Makes(n int64) {
	if err := c.l.folder.Make(n); err != nil {
		c.Fail("%w", err)
	}
}
