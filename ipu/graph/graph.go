// Package graph is the portable executable: what stands in a PopEF executable
// blob when a model is to run without a Poplar compiler. It owns the tensors,
// operators, programs and streams of such an executable, its encoding, its
// verification and its shape inference. How a kernel computes an operator is
// not its business.
//
// An executable holds one table of tensors. A tensor is a constant (its data
// lies in the executable), persistent (it keeps its value between programs: a
// weight, a state) or local (it lives from the step that defines it to its
// last use within one run of a program). Graphs are lists of nodes in
// execution order; programs are sequences of stream copies and graph calls.
// All shapes are static.
package graph

import (
	"fmt"

	"github.com/popefgen/popefgen/internal/budget"
)

// DType is the type of a tensor's elements.
type DType uint8

// The element types; their numbers are part of the encoding. I4, U4, I2 and U2 are kept one element a byte,
// sign- or zero-extended; Bool is one byte, 0 or 1.
const (
	Invalid DType = iota
	Bool
	I8
	U8
	I16
	U16
	I32
	U32
	I64
	U64
	F16
	BF16
	F32
	F64
	I4
	U4
	I2
	U2
	F8E4M3 // Graphcore's f8143: bias 8, no infinities, NaN is 0x80
	F8E5M2 // Graphcore's f8152: bias 16, no infinities, NaN is 0x80
	numDTypes
)

var dtypeNames = [numDTypes]string{"invalid", "bool", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64",
	"f16", "bf16", "f32", "f64", "i4", "u4", "i2", "u2", "f8e4m3", "f8e5m2"}

var dtypeSizes = [numDTypes]int{0, 1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1, 1, 1, 1, 1, 1}

// String returns the type's short name, such as "f32".
func (t DType) String() string {
	if t < numDTypes {
		return dtypeNames[t]
	}
	return fmt.Sprintf("dtype(%d)", uint8(t))
}

// Size returns the bytes one element takes in memory, 0 for an invalid type.
func (t DType) Size() int {
	if t < numDTypes {
		return dtypeSizes[t]
	}
	return 0
}

// Valid reports whether t is one of the types above.
func (t DType) Valid() bool { return t > Invalid && t < numDTypes }

// IsFloat reports whether t is a floating-point type.
func (t DType) IsFloat() bool {
	switch t {
	case F16, BF16, F32, F64, F8E4M3, F8E5M2:
		return true
	}
	return false
}

// IsSigned reports whether t is a signed integer type.
func (t DType) IsSigned() bool {
	switch t {
	case I2, I4, I8, I16, I32, I64:
		return true
	}
	return false
}

// IsUnsigned reports whether t is an unsigned integer type; Bool is not.
func (t DType) IsUnsigned() bool {
	switch t {
	case U2, U4, U8, U16, U32, U64:
		return true
	}
	return false
}

// IsInteger reports whether t is an integer type; Bool is not.
func (t DType) IsInteger() bool { return t.IsSigned() || t.IsUnsigned() }

// TensorType is an element type with a static shape; an empty shape is a
// scalar of one element, a zero dimension makes a tensor without elements.
type TensorType struct {
	DType DType
	Shape []int64
}

// TensorID is an index into [Executable.Tensors].
type TensorID int32

// None marks an operand or result that is left out.
const None TensorID = -1

// GraphID is an index into [Executable.Graphs].
type GraphID int32

// StreamID is an index into [Executable.Streams].
type StreamID int32

// Tensor is one entry of the tensor table.
type Tensor struct {
	Name       string // for people; need not be unique
	Type       TensorType
	Persistent bool   // keeps its value between programs
	Data       []byte // a constant's value, row-major, little-endian; nil if not a constant
	Const      bool   // true for a constant, also one without elements
}

// Node is one application of an operator. Inputs may be [None] where the
// operator allows it, results too where nobody wants them.
type Node struct {
	Op      Op
	Name    string // the source node's name, for messages
	Inputs  []TensorID
	Outputs []TensorID
}

// Graph is a list of nodes in execution order. A graph called by a program
// has no parameters: it reads what earlier steps and nodes of the program
// wrote. A graph used by an operator (a branch, a loop body) lists the
// tensors that the operator writes before it runs and reads after. Any graph
// may read constants, persistent tensors and tensors that are already
// defined where it is used.
type Graph struct {
	Name    string
	Params  []TensorID
	Results []TensorID
	Nodes   []Node
}

// Direction is the way in which a stream moves data.
type Direction uint8

const (
	HostToDevice Direction = iota // an input
	DeviceToHost                  // an output
)

// String returns "host-to-device" or "device-to-host".
func (d Direction) String() string {
	switch d {
	case HostToDevice:
		return "host-to-device"
	case DeviceToHost:
		return "device-to-host"
	}
	return fmt.Sprintf("direction(%d)", uint8(d))
}

// Stream is a named transfer between host and device.
type Stream struct {
	Handle    string // unique and not empty
	Direction Direction
	Type      TensorType // of one transfer
}

// StepKind is the kind of a [Step].
type StepKind uint8

const (
	CopyIn  StepKind = iota + 1 // stream to tensor
	CopyOut                     // tensor to stream
	Call                        // run a graph
	Repeat                      // run Body Count times
)

// String returns the kind's name in this package, such as "CopyIn".
func (k StepKind) String() string {
	switch k {
	case CopyIn:
		return "CopyIn"
	case CopyOut:
		return "CopyOut"
	case Call:
		return "Call"
	case Repeat:
		return "Repeat"
	}
	return fmt.Sprintf("step(%d)", uint8(k))
}

// Step is one step of a program.
type Step struct {
	Kind   StepKind
	Stream StreamID // CopyIn, CopyOut
	Tensor TensorID // CopyIn, CopyOut; its type equals the stream's
	Graph  GraphID  // Call
	Count  int64    // Repeat; at least 1
	Body   []Step   // Repeat
}

// Walk calls visit for every step, those in loops included.
func Walk(steps []Step, visit func(*Step)) {
	for i := range steps {
		visit(&steps[i])
		Walk(steps[i].Body, visit)
	}
}

// Transfers returns how often steps copy each stream, loops multiplied. Numbers beyond int64 are its largest.
func Transfers(steps []Step) map[StreamID]int64 {
	all := map[StreamID]int64{}
	addTransfers(steps, 1, all)
	return all
}

func addTransfers(steps []Step, times int64, to map[StreamID]int64) {
	for i := range steps {
		switch s := &steps[i]; s.Kind {
		case CopyIn, CopyOut:
			to[s.Stream] = budget.Add(to[s.Stream], times)
		case Repeat:
			addTransfers(s.Body, budget.Mul(times, s.Count), to)
		}
	}
}

// Program is a sequence of steps that the host runs by index.
type Program struct {
	Index int // unique, not necessarily dense: PopART's are 0 to 9
	Name  string
	Steps []Step
}

// Executable is a whole portable executable.
type Executable struct {
	Name     string
	Producer string // what made it, such as "popefgen compile"; no versions or dates
	Tensors  []Tensor
	Graphs   []Graph
	Streams  []Stream
	Programs []Program    // ascending by Index
	Passes   []PassReport // what [Optimize] did, if it ran
	Package  *Package     // by which definitions of operators it was compiled; nil if that was not recorded
}
