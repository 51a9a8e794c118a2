package window

import (
	"testing"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
)

// TestStubsHaveTests lists the functions in assembly that the tests of their
// kernels run, by differences from the plain Go path: tiles, which have arguments
// of their own.
func TestStubsHaveTests(t *testing.T) {
	kerneltest.StubsHaveTests(t, stubs, `
		bilinearPixels interpolate mostAlong mostAlong2 mostDown mostRows mostSlide mostSlide2 sumAlong sumAlong2 sumDown sumRows sumSlide
		sumSlide2`)
}

func TestStubs(t *testing.T) { kerneltest.Stubs(t, stubs) }

// stubs are the loops over elements by operation.
var stubs = map[string]kerneltest.Stub{
	"divideScaled": {Wide: divideScaledAVX512, Narrow: divideScaledAVX2, Low: 1, High: 9, Scalars: []float32{2}, Want: func(x []float64) float64 { return x[0] / (2 * x[1]) }},
}
