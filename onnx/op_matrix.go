package onnx

import "github.com/popefgen/popefgen/ipu/graph"

// matrixOps are the matrix products.
var matrixOps = map[string]definition{
	"MatMul": takes("A:T=wide B:T").since(1, matMul),
	"Gemm":   takes("A:T=wide B:T C:T").since(1, gemm, "alpha=1.0 beta=1.0 broadcast=0 transA=0 transB=0"),
}

func matMul(c *call) []*value { return one(c.emit(&graph.MatMul{}, c.in(0), c.in(1))) }

// gemm lowers every version: before 7 attribute broadcast allowed what the
// shape of C asks for anyway, before 11 C had to be there.
func gemm(c *call) []*value {
	op := &graph.Gemm{
		TransA: c.bool("transA"), TransB: c.bool("transB"),
		Alpha: c.float("alpha"), Beta: c.float("beta"),
	}
	return one(c.emit(op, c.in(0), c.in(1), c.opt(2)))
}
