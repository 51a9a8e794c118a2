package genrt

import (
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
)

// Spec is what generated code knows of its model.
type Spec struct {
	Package    string       // name of the generated package, for messages
	Contract   string       // the canonical text of what callers see, see [contract.Callers]
	Iterations int          // transfers of every run input and output in one run that has no number of its own, at least 1
	QueueDepth int          // places for submitted requests, at least 1
	Batch      int          // samples in one transfer of every run input and output; 0 if they are not told apart
	Anchors    []AnchorSpec // those that memory is bound to
	Pack       *PackSpec    // of a package with RunPacked
	Branches   []string     // of a fused model: what its branches are called in the file
	Trains     bool         // the package has Step and Checkpoint
	Flow       *FlowSpec    // of a package of several sizes with streams that are no samples
}

// AnchorSpec is what generated code knows of one anchor.
type AnchorSpec struct {
	Name   string // name in the model
	Handle string // stream handle where several anchors of the role have this name; no matter elsewhere
	GoName string // name of its Go type and fields
	Role   Role
	Bytes  int // size of one transfer
	Blocks int // of a run input or output with samples: equal blocks of a transfer that have a part of every sample
	// Transfers is how many transfers a run makes of a run input or output that has a number of its own; else 0.
	Transfers int
	Evaluated bool // of a run output: Evaluate returns it too

	// Of a run input or output with open dimensions Bytes is the size of an element of its slice: all axes
	// behind the last open one are in that.
	Open []OpenAxis // its open axes, in order
}

// OpenAxis is an axis of a tensor whose size is no part of its Go type.
type OpenAxis struct {
	Axis int
	Name string // of the field that has the size; axes of one name share it
}

// Source says where a model comes from: bytes, which must not change until
// Close, or a file.
type Source struct {
	Name  string // names Bytes in messages
	Bytes []byte
	Path  string // used if Bytes is nil
	// Model is the model itself, if it was read already; no option can name another one then. Who opens it takes it over, and
	// closes it, also if that fails.
	Model *popef.Model
}

// Binding is the stream of generated code, an [*Input] or [*Output], of an
// anchor.
type Binding struct {
	Anchor int // index in [Spec.Anchors]
	Stream ipu.Stream
}

// transfers returns how many transfers of an anchor one run makes.
func (spec *Spec) transfers(a *AnchorSpec) int {
	switch {
	case a.Role != RunInput && a.Role != RunOutput:
		return 1
	case a.Transfers > 0:
		return a.Transfers
	}
	return spec.Iterations
}

// inputs returns the number of run inputs.
func (spec *Spec) inputs() int {
	n := 0
	for _, a := range spec.Anchors {
		if a.Role == RunInput {
			n++
		}
	}
	return n
}

// Role says what an anchor is to a program, see package contract.
type Role = contract.Role

// The roles of anchors that generated code binds memory to.
const (
	RunInput   = contract.RunInput
	RunOutput  = contract.RunOutput
	LoadInput  = contract.LoadInput
	SaveOutput = contract.SaveOutput
	Optimizer  = contract.Optimizer
)
