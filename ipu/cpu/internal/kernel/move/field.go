package move

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// field copies a run of bytes, where a plan can't look at them where they lie.
type field struct{ at, size int64 }

func bindField(op graph.Op, _, out []graph.TensorType) (tensor.Kernel, error) {
	return field{op.(*graph.Field).Offset, out[0].Bytes()}, nil
}

// Scratch implements Kernel.
func (field) Scratch() int { return 0 }

// Run implements Kernel.
func (f field) Run(_ tensor.Pool, in, out [][]byte, _ []byte) error {
	copy(out[0], in[0][f.at:][:f.size])
	return nil
}
