package kernel

import (
	"testing"

	"github.com/popefgen/popefgen/ipu/graph"
)

func TestMain(m *testing.M) { runTests(m) }

// newKernel binds op to its operand and result types.
func newKernel(op graph.Op, in, out []graph.TensorType) (Kernel, error) {
	return bindFrom(families, op, in, out)
}

// run computes op in one thread, in several, and in place where that is
// allowed, and fails if the results differ.
func run(t fataler, op graph.Op, in []graph.TensorType, data [][]byte) ([]graph.TensorType, [][]byte) {
	t.Helper()
	return runWith(t, newKernel, op, in, data)
}

// runPacked is run, and fails if packing the operands that the kernel wants
// packed changes the results.
func runPacked(t fataler, op graph.Op, in []graph.TensorType, data [][]byte) ([]graph.TensorType, [][]byte) {
	t.Helper()
	return runPackedWith(t, newKernel, op, in, data)
}

// benchmark measures op on one thread.
func benchmark(b *testing.B, name string, op graph.Op, in ...graph.TensorType) {
	b.Helper()
	benchmarkWith(b, newKernel, name, op, in...)
}
