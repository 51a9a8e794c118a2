package onnx

import "github.com/popefgen/popefgen/ipu/graph"

// matrixOps are the matrix products.
var matrixOps = map[string][]since{
	"MatMul": {{1, matMul}},
	"Gemm":   {{1, gemm}},
}

func matMul(c *call) []*value { return one(c.emit(&graph.MatMul{}, c.in(0), c.in(1))) }

// gemm lowers every version: before 7 attribute broadcast allowed what the
// shape of C asks for anyway, before 11 C had to be there.
func gemm(c *call) []*value {
	c.ignore("broadcast")
	op := &graph.Gemm{
		TransA: c.bool("transA", false), TransB: c.bool("transB", false),
		Alpha: c.float("alpha", 1), Beta: c.float("beta", 1),
	}
	return one(c.emit(op, c.in(0), c.in(1), c.opt(2)))
}
