// Package op has ONNX's operators, a file for each family: what operands and attributes
// each has in which version of its operator set, and how it is lowered to operators of the
// portable executable. [Table] lists them; docs/operators.md is made from it.
package op

import "github.com/popefgen/popefgen/onnx/internal/lower"

// newestOpset is the newest operator set of ONNX's own domain that the table
// of operators knows.
const newestOpset = 28

// table lists the families of operators. Nothing changes it.
var table = lower.Table{Newest: newestOpset, Counted: honours, Operators: merge(
	lower.ControlOps(),
	elementwiseOps,
	activationOps,
	attentionOps,
	signalOps,
	rmsNormOps,
	lossOps,
	shapeOps,
	movementOps,
	matrixOps,
	convOps,
	normOps,
	groupNormOps,
	convTransposeOps,
	resizeOps,
	sampleOps,
	lpOps,
	graphcoreOps,
	reduceOps,
	recurrentOps,
	indexOps,
	selectOps,
	bitsOps,
	fillOps,
	quantOps,
	qlinearOps,
	einsumOps,
	countedOps,
	constantOps,
	randomOps,
	trainingOps,
)}

func merge(control map[string]lower.Definition, families ...map[string]definition) map[string]*lower.Definition {
	all := make(map[string]*lower.Definition)
	for name, d := range control {
		all[name] = &d
	}
	for _, f := range families {
		for name, d := range f {
			all[name] = &d.Definition
		}
	}
	return all
}

// Table returns all operators that can be lowered.
func Table() lower.Table { return table }
