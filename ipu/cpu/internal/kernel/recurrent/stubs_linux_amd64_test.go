package recurrent

import (
	"math"
	"testing"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
)

// elsewhere are the operations that the tests of their kernels run, by differences
// from the plain Go path.
const elsewhere = `
	gates gruLinearCell lstmCell`

func TestStubsHaveTests(t *testing.T) { kerneltest.StubsHaveTests(t, stubs, elsewhere) }

func TestStubs(t *testing.T) { kerneltest.Stubs(t, stubs) }

func plainSigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// stubs are the loops over elements by operation.
var stubs = map[string]kerneltest.Stub{
	"gated": {Wide: gatedAVX512, Narrow: gatedAVX2, Low: -3, High: 3, Want: func(x []float64) float64 { return plainSigmoid(x[0]) * x[1] }},
	"gruCell": {Wide: gruCellAVX512, Narrow: gruCellAVX2, Low: -3, High: 3, Want: func(x []float64) float64 {
		z := plainSigmoid(x[0])
		return (1-z)*math.Tanh(x[1]) + z*x[2]
	}},
}
