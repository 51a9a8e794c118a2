package onnx

// newestOpset is the newest operator set of ONNX's own domain that the table
// of operators knows.
const newestOpset = 28

// table lists the families of operators.
var table = Table{Newest: newestOpset, Operators: merge(
	controlOps(),
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
	knownOps,
	constantOps,
)}

func merge(control map[string]Definition, families ...map[string]definition) map[string]*Definition {
	all := make(map[string]*Definition)
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
