package op

import (
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx/internal/lower"
)

// matrixOps are the matrix products.
var matrixOps = map[string]definition{
	"MatMul": takes("A:T=wide B:T").since(1, matMul),
	"Gemm":   takes("A:T=wide B:T C:T").since(1, gemm, "alpha=1.0 beta=1.0 broadcast=0 transA=0 transB=0"),
}

func matMul(c *call) []*lower.Value { return lower.One(c.Emit(&graph.MatMul{}, c.In(0), c.In(1))) }

// gemm lowers every version: before 7 attribute broadcast allowed what the
// shape of C asks for anyway, before 11 C had to be there.
func gemm(c *call) []*lower.Value {
	op := &graph.Gemm{
		TransA: c.Bool("transA"), TransB: c.Bool("transB"),
		Alpha: c.Float("alpha"), Beta: c.Float("beta"),
	}
	return lower.One(c.Emit(op, c.In(0), c.In(1), c.Opt(2)))
}
