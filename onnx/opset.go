package onnx

// newestOpset is the newest operator set of ONNX's own domain that the table
// of operators knows.
const newestOpset = 28

// lowerFunc lowers one node and returns its results; the list is as long as
// the operator has results, with nil for those that [call.wants] does not ask
// for.
type lowerFunc func(c *call) []*value

// operators holds, by name, with the domain in front where it is not ONNX's
// own, every operator that can be lowered. Versions
// that changed nothing that matters here (more element types, wording) are
// not listed.
var operators = merge(
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
	controlOps,
)

func merge(families ...map[string]definition) map[string]*definition {
	all := make(map[string]*definition)
	for _, f := range families {
		for name, d := range f {
			all[name] = &d
		}
	}
	return all
}

// one is the result list of an operator with one result.
func one(v *value) []*value { return []*value{v} }
