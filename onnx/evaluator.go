package onnx

import "github.com/popefgen/popefgen/ipu/graph"

// Evaluator computes operators on known values while one model is lowered: constant
// folding, by which chains of shape arithmetic become sizes. It decides how much it
// computes: what it leaves to the executable is computed there, and only where a shape
// depends on it the lowering is refused. cpu.Folder is one.
type Evaluator interface {
	// Hold says that the model holds n more bytes of constants: what is computed may be some
	// times as much.
	Hold(n int64)
	// Fold returns the types and elements of all results of op: in are the types of its
	// operands, of which a left-out one has the zero type, and data their elements, row-major
	// and little-endian. The error wraps [graph.ErrNotFolded] where op is better left to
	// the executable; any other ends the lowering.
	Fold(op graph.Op, in []graph.TensorType, data [][]byte) (types []graph.TensorType, results [][]byte, err error)
	// Make returns an error if a constant of n bytes, which is about to be made element by
	// element, is too much.
	Make(n int64) error
}
