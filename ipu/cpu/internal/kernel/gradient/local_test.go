package gradient

import (
	"testing"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

func TestMain(m *testing.M) { kerneltest.Main(m) }

// newKernel binds op to its operand and result types.
func newKernel(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	return kerneltest.BindFrom([]map[string]tensor.Binder{Kernels}, op, in, out)
}

// run computes op in one thread, in several, and in place where that is
// allowed, and fails if the results differ.
func run(t kerneltest.Fataler, op graph.Op, in []graph.TensorType, data [][]byte) ([]graph.TensorType, [][]byte) {
	t.Helper()
	return kerneltest.Run(t, newKernel, op, in, data)
}
