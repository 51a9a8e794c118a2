package attention

import (
	"testing"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
)

// TestStubsHaveTests lists the functions in assembly that the tests of their
// kernels run, by differences from the plain Go path: tiles, which have arguments
// of their own.
func TestStubsHaveTests(t *testing.T) {
	kerneltest.StubsHaveTests(t, nil, `
		softmaxColumns`)
}
