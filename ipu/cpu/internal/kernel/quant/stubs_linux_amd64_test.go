package quant

import (
	"testing"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
)

// TestStubsHaveTests lists the functions in assembly that the tests of their
// kernels run, by differences from the plain Go path: tiles, which have arguments
// of their own.
func TestStubsHaveTests(t *testing.T) {
	kerneltest.StubsHaveTests(t, nil, `
		int8ColumnsBytes int8ColumnsFloats int8ColumnsInts int8Conv int8Even int8Interleave int8PlaneBytes int8PlaneFloats int8PlaneInts
		int8Product int8RowsBytes int8RowsFloats int8RowsInts int8Widen`)
}
