package kernel

import (
	"testing"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

func TestMain(m *testing.M) { kerneltest.Main(m) }

// newKernel binds op to its operand and result types.
func newKernel(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	return New(op, in, out)
}

// runPacked is kerneltest.Run, and fails if packing the operands that the kernel
// wants packed changes the results.
func runPacked(t kerneltest.Fataler, op graph.Op, in []graph.TensorType, data [][]byte) ([]graph.TensorType, [][]byte) {
	t.Helper()
	return kerneltest.RunPacked(t, newKernel, op, in, data)
}

// benchmark measures op on one thread.
func benchmark(b *testing.B, name string, op graph.Op, in ...graph.TensorType) {
	b.Helper()
	kerneltest.Benchmark(b, newKernel, name, op, in...)
}
