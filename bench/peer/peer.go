// Package peer puts popefgen and the engines that people would take instead
// of it behind one interface, so that a benchmark can run the same model on the
// same inputs in all of them. It imports next to nothing: what a process costs
// that runs one engine is to be measured too.
package peer

import "errors"

// ErrNoAnswer is the error of a run that was given up. Whatever it left behind
// in the process stays there.
var ErrNoAnswer = errors.New("did not answer")

// Elem is an element type as ONNX's TensorProto.DataType numbers them.
type Elem int32

// The element types that an engine here asks for by name.
const (
	Float    Elem = 1
	Uint8    Elem = 2
	Int8     Elem = 3
	Uint16   Elem = 4
	Int16    Elem = 5
	Int32    Elem = 6
	Int64    Elem = 7
	Bool     Elem = 9
	Float16  Elem = 10
	Double   Elem = 11
	Uint32   Elem = 12
	Uint64   Elem = 13
	BFloat16 Elem = 16
)

// Tensor is one input or output of a case: row-major little-endian elements.
type Tensor struct {
	Name string
	Elem Elem
	Dims []int64
	Size int    // in bytes
	Data []byte `json:"-"` // Size bytes; inputs only
}

// Case is a model with the inputs it is run on.
type Case struct {
	Name    string
	ONNX    []byte   `json:"-"` // the model as the peers read it
	PopEF   []byte   `json:"-"` // the model as popefgen has compiled it for these inputs
	Inputs  []Tensor // all inputs of the ONNX model, in its order
	Outputs []Tensor // in the model's order, without data
}

// Engine opens cases.
type Engine interface {
	// Name is the name of the engine in tables.
	Name() string
	// Open makes the model ready to run with so many threads, at least 1.
	Open(c *Case, threads int) (Session, error)
}

// Session is a case that is ready to run. It belongs to one goroutine.
type Session interface {
	// Run computes the outputs once.
	Run() error
	// Outputs returns the bytes of every output of the last run, in order. They
	// are valid until the next run.
	Outputs() ([][]byte, error)
	// Close frees the session.
	Close() error
}
