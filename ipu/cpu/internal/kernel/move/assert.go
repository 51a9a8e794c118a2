package move

import (
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// assertion fails unless its operand is what it wants.
type assertion struct {
	want byte
	err  *ipu.AssertionError
}

func bindAssert(op graph.Op, _, _ []graph.TensorType) (tensor.Kernel, error) {
	o := op.(*graph.Assert)
	k := &assertion{err: &ipu.AssertionError{Message: o.Message}}
	if o.Want {
		k.want = 1
	}
	return k, nil
}

// Scratch returns 0.
func (*assertion) Scratch() int { return 0 }

// Run implements [Kernel].
func (k *assertion) Run(_ tensor.Pool, in, _ [][]byte, _ []byte) error {
	if (in[0][0] != 0) != (k.want != 0) {
		return k.err
	}
	return nil
}
