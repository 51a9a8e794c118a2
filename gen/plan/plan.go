// Package plan decides everything about the Go package of a PopEF model, and says
// it in a [Plan]: names, types, sizes, documentation, as plain data. What other
// packages write is not its matter, but for the names that they declare, which
// [Build] is given as data too. The same model and options give the same plan on
// every machine.
package plan

import (
	"context"
	"slices"

	"github.com/popefgen/popefgen/popef/contract"
)

// DefaultQueueDepth is the queue depth where [Options.QueueDepth] is 0.
const DefaultQueueDepth = 4

// maxQueueDepth is the largest [Options.QueueDepth].
const maxQueueDepth = 1 << 12

// maxBytes is the size of the largest tensor, and of the largest array of all
// device iterations' tensors, that generated code can hold. It is what the
// user address space of a 64-bit machine leaves; Go's compiler refuses array
// types not far above. On 32-bit machines Go's own limit is 2³¹-1 bytes.
const maxBytes = 1 << 47

// Options says how a package is to be generated.
type Options struct {
	// Context, if it is not nil, ends Build when it is done.
	Context context.Context
	// Package is the package name. If empty, it is made from ModelBase.
	Package string
	// ModelBase is the base name of the model file, for names and messages.
	// If empty, it is the base name of the model's first file.
	ModelBase string
	// Embed is the base name of the copy of the model that lies beside the
	// code and is embedded into it. If empty, Open takes the model's path.
	Embed string
	// Renames maps anchors to the Go names that their tensors, or fields of Optimizer, get. A key is
	// an anchor's name or, where several tensors share it, a stream handle.
	Renames map[string]string
	// QueueDepth is how many submitted requests may be pending at a time, up
	// to 4096; DefaultQueueDepth if it is 0.
	QueueDepth int
	// BatchDim, if not nil, is the dimension of every run input and output
	// that counts samples: the package then has a type for one sample of each,
	// and RunSamples, which computes any number of them. It is refused if the portable
	// executable is not proven to keep samples apart; of others it is the caller's word.
	BatchDim *int
	// Pack, if not nil, gives the package RunPacked, which puts sequences of
	// different lengths into the rows of one run.
	Pack *PackOptions
	// State lists outputs that are inputs of the next request: each has one type
	// with its input, and the package has streams, which keep them.
	State []StatePair
	// StateFill maps what a stream fills, where a state grows, to the run input: "mask", "bias" or
	// "positions".
	StateFill map[string]string
	// NoQueues leaves out the type Queues and OpenQueues: the package then links
	// nothing of queues.
	NoQueues bool
	// Serve adds a file with Served, which gives the model to a server, and Client, which has a server compute.
	Serve bool
	// Tests adds a file with an example, benchmarks and allocation tests.
	Tests bool
}

// Plan holds every decision about a generated package. All slices are in an
// order that means something, so that two plans can be compared as they are.
type Plan struct {
	Package string   // package name
	Model   string   // base name of the model file
	Embed   string   // base name of the embedded copy; "" if Open takes a path
	Parts   []string // base names of the model's files, if there are several

	Contract     contract.Callers // what callers see of the model
	ContractText string           // its canonical form
	ContractHash string           // SHA-256 of that, of a family of what members share, 64 hex digits
	Pin          string           // name of the constant that pins the contract

	QueueDepth       int    // pending requests
	DeviceIterations int    // transfers of every run input and output per run that has no number of its own; at least 1
	BatchSize        int64  // samples in a transfer, of a family in one of the largest member; 0 if samples are not told apart
	Replicas         uint32 // replication factor that the model was compiled for

	Family *Family // nil for a model of one size

	Anchors []Anchor // every anchor that callers see as a tensor, in the order of the contract's fields
	Tensors []Tensor // every Go type of a tensor, in the order of their first anchors

	Inputs      []Field // of type Inputs
	Outputs     []Field // of type Outputs
	LoadInputs  []Field // of type LoadInputs; if empty, there is no such type
	SaveOutputs []Field // of type SaveOutputs; if empty, there is no such type

	// Branches are those of a fused model, else nil: Inputs and Outputs have the fields of all, each of
	// which is in the types of its branch.
	Branches []Branch

	Joined *Joined // memory in which inputs lie as the model moves them; nil if it moves each by itself

	Pack  *Pack   // how sequences share a run; nil if they do not
	State []State // what streams keep; if empty, there are none
	Flow  *Flow   // how streams of a model with several sizes run; nil elsewhere, and where each is a sample

	Training *Training // how the model trains; nil if it does not

	Serve *Serve // how the model is served; nil if it is not

	Queues   bool     // whether there is a type Queues
	ModelEnv string   // environment variable with the model's directory, for the tests
	Files    []string // base names of all files: Go files, contract.txt, the model
	Tests    bool     // whether a test file is among them
}

// Published returns what callers see, with Go names.
func (p *Plan) Published() contract.Published {
	out := contract.Published{Callers: p.Contract, Samples: p.BatchSize > 0, SizeNames: p.sizeNames()}
	for _, a := range p.Anchors {
		out.GoNames = append(out.GoNames, a.GoName)
	}
	if p.Training != nil {
		for _, v := range p.Training.Optimizer {
			out.GoNames = append(out.GoNames, v.Name)
		}
	}
	return out
}

// Repeated reports whether a run makes several transfers of an input or output.
func (p *Plan) Repeated() bool {
	return p.DeviceIterations > 1 || p.Uneven()
}

// Uneven reports whether some inputs and outputs have another number of transfers than the others.
func (p *Plan) Uneven() bool {
	return slices.ContainsFunc(p.Contract.Fields, func(f contract.Field) bool { return f.Transfers > 0 })
}

// SideBySide reports whether samples are told apart, and those of every run
// input and output lie one after the other, as queues need them.
func (p *Plan) SideBySide() bool {
	for _, fields := range [][]Field{p.Inputs, p.Outputs} {
		for _, f := range fields {
			if p.Tensors[f.Tensor].Blocks != 1 {
				return false
			}
		}
	}
	return p.BatchSize > 0
}

// Anchor is one anchor that callers see and what becomes of it.
type Anchor struct {
	Name   string
	Handle string // stream handle if several anchors of the struct have the name, else ""
	Memory string // what tells it from the other run inputs and outputs: its name, or its stream handle
	Role   contract.Role
	// Transfers is how many transfers a run makes of a run input or output; 1 for every other anchor.
	Transfers int
	Info      string // such as "F32 [4 10]", with the number of repeats if there are several
	Bytes     int64  // of one transfer, with all repeats
	GoName    string // name of its tensor
}

// Tensor is one Go type of a tensor, with the constructor and the constant
// that belong to it.
type Tensor struct {
	Name      string // Go name of the type
	From      string // Go name of the constructor from a flat slice
	New       string // Go name of the constructor of one with open dimensions
	NameConst string // Go name of the constant that holds the anchor's name

	Anchor      string  // the anchor's name
	Shape       []int64 // array lengths, outermost first: the repeats if there are several, then the dimensions
	Elem        string  // Go type of an element, qualified: "float32", "rt.Float16"
	Elements    int64   // number of elements
	Bytes       int64   // size
	Sample      string  // Go name of the type of one sample; "" if there is none
	SampleShape []int64 // its array lengths
	Blocks      int64   // equal blocks that have a part of every sample

	// Of a tensor with open dimensions, a struct with their sizes and a slice: Shape, Elements and Bytes
	// are those of an element of the slice, which has all axes behind the last open one.
	Fields []SizeField // sizes
	Open   []OpenAxis  // the open axes, in order
	Lead   []Length    // of all axes up to the last open one

	Doc     string // documentation of the type
	FromDoc string // documentation of the constructor
}

// Field is one field of Inputs, Outputs, LoadInputs or SaveOutputs.
type Field struct {
	Name     string // Go name of the field; equals the tensor's
	Tensor   int    // index in Plan.Tensors
	Anchor   int    // index in Plan.Anchors
	Iterated bool   // holds Transfers tensors
	// Transfers is how many tensors an iterated field holds; Uneven says that it is another number than DeviceIterations.
	Transfers int
	Uneven    bool
	Doc       string // comment at the end of the line
}
