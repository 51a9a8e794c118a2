package popef

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// DataType is the type of a tensor's elements, with the numbers of the format.
type DataType uint16

// The element types. F8 is the format's first 8-bit type, whose encoding it
// does not say; F8143 has 4 exponent and 3 mantissa bits, F8152 has 5 and 2.
const (
	Bool DataType = iota
	F8
	F16
	F32
	F64
	S8
	U8
	S16
	U16
	S32
	U32
	S64
	U64
	F8143
	F8152
)

var dataTypes = [...]struct {
	name string
	size int
}{
	Bool: {"Bool", 1}, F8: {"F8", 1}, F16: {"F16", 2}, F32: {"F32", 4}, F64: {"F64", 8},
	S8: {"S8", 1}, U8: {"U8", 1}, S16: {"S16", 2}, U16: {"U16", 2}, S32: {"S32", 4},
	U32: {"U32", 4}, S64: {"S64", 8}, U64: {"U64", 8}, F8143: {"F8143", 1}, F8152: {"F8152", 1},
}

// Valid reports whether the type is one this package knows. A file written by
// a newer library may carry others.
func (d DataType) Valid() bool { return int(d) < len(dataTypes) }

// String returns the name, such as "F32", or "DataType(99)".
func (d DataType) String() string {
	if !d.Valid() {
		return "DataType(" + strconv.Itoa(int(d)) + ")"
	}
	return dataTypes[d].name
}

// Size returns the bytes of one element, 0 for a type that is not [DataType.Valid].
func (d DataType) Size() int {
	if !d.Valid() {
		return 0
	}
	return dataTypes[d].size
}

// MaxRank is the largest number of dimensions that is read or written.
const MaxRank = 64

// TensorInfo is a tensor's shape and element type. Data is row-major and
// little-endian. An empty shape is a scalar, of one element.
type TensorInfo struct {
	Shape    []int64
	DataType DataType
}

// Elements returns the product of the dimensions: 1 for a scalar, 0 if any
// dimension is 0. A negative dimension, more than [MaxRank] dimensions or a
// product beyond int64 is an error.
func (t TensorInfo) Elements() (int64, error) {
	if len(t.Shape) > MaxRank {
		return 0, fmt.Errorf("shape has %d dimensions, at most %d are supported", len(t.Shape), MaxRank)
	}
	empty := false
	for i, d := range t.Shape {
		if d < 0 {
			return 0, fmt.Errorf("shape %v: dimension %d is negative", t.Shape, i)
		}
		empty = empty || d == 0
	}
	if empty {
		return 0, nil
	}
	n := int64(1)
	for _, d := range t.Shape {
		if n > math.MaxInt64/d {
			return 0, fmt.Errorf("shape %v: the number of elements exceeds 64 bits", t.Shape)
		}
		n *= d
	}
	return n, nil
}

// SizeInBytes returns the bytes of the tensor's data. It fails where Elements
// does, and for an element type that is not [DataType.Valid].
func (t TensorInfo) SizeInBytes() (int64, error) {
	n, err := t.Elements()
	if err != nil {
		return 0, err
	}
	size := int64(t.DataType.Size())
	if size == 0 {
		return 0, fmt.Errorf("element type %v is unknown, so is its size", t.DataType)
	}
	if n > math.MaxInt64/size {
		return 0, fmt.Errorf("shape %v: the number of bytes exceeds 64 bits", t.Shape)
	}
	return n * size, nil
}

// Equal reports whether both have the same element type and exactly the same
// shape; a scalar and [1] differ.
func (t TensorInfo) Equal(u TensorInfo) bool {
	if t.DataType != u.DataType || len(t.Shape) != len(u.Shape) {
		return false
	}
	for i, d := range t.Shape {
		if u.Shape[i] != d {
			return false
		}
	}
	return true
}

// String returns the element type and the shape, such as "F32 [4 10]"; a
// scalar is "F32 []".
func (t TensorInfo) String() string {
	var b strings.Builder
	b.WriteString(t.DataType.String())
	b.WriteString(" [")
	for i, d := range t.Shape {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(strconv.FormatInt(d, 10))
	}
	b.WriteByte(']')
	return b.String()
}

// TensorType is the way in which an anchor moves its tensor.
type TensorType uint16

// The kinds of anchor. A weight that lives in remote memory, or whose
// streaming was switched off, is Unknown.
const (
	Unknown TensorType = iota
	Input              // host to device
	Output             // device to host
)

// Valid reports whether the type is one this package knows.
func (t TensorType) Valid() bool { return t <= Output }

// String returns "unknown", "input" or "output", or "TensorType(7)".
func (t TensorType) String() string {
	switch t {
	case Unknown:
		return "unknown"
	case Input:
		return "input"
	case Output:
		return "output"
	}
	return "TensorType(" + strconv.Itoa(int(t)) + ")"
}

// TakesData reports whether an anchor of this type can be given data by a
// file. Frameworks repeat the name of a weight on the output anchor that saves
// it; data of that name belongs to the input anchor alone.
func (t TensorType) TakesData() bool { return t == Input || t == Unknown }

// Anchor is one tensor that an executable exchanges with the host.
type Anchor struct {
	Name         string     // names the tensor; joins it to tensor and feed data; neither unique nor always set
	Handle       string     // names the engine's stream; unique; empty if the anchor has none
	Programs     []uint32   // indices of the programs that move it; empty = not recorded
	Info         TensorInfo // shape and element type of one transfer
	Type         TensorType // direction
	PerReplica   bool       // every replica has a value of its own
	RemoteBuffer bool       // lives in memory outside the device that the device can reach
	Repeats      uint32     // equal blocks in the remote buffer; 0 means 1
}

// Option is one engine or device option.
type Option struct{ Name, Value string }

// ProgramFlow lists the indices of the programs to run, in order: once after
// loading, for every step, and once at the end.
type ProgramFlow struct{ Load, Main, Save []uint32 }

// ProgramInfo names one program.
type ProgramInfo struct {
	Index uint32
	Name  string
}

// Metadata describes a compiled model: what it needs and what it exchanges
// with the host.
type Metadata struct {
	ReplicationFactor uint32        // replicas in the executable
	NumIPUs           uint32        // IPUs of the device, over all replicas
	SeedHandle        string        // stream handle of the random seed; empty if there is none
	Anchors           []Anchor      // in the order of the file
	Executable        string        // name of the executable it belongs to
	NumProcesses      uint32        // host processes
	IPUVersion        uint32        // 1, 2 or 21
	IsPOD             bool          // compiled for a Pod system
	IsInference       bool          // compiled for inference
	EngineOptions     []Option      // options of the engine
	DeviceOptions     []Option      // options of the device
	ProgramFlow       ProgramFlow   // what to run when
	Programs          []ProgramInfo // names of programs, in no particular order
	DeviceIterations  uint32        // loop count of the main program; 0 = not recorded
}

// BlobKind is what a blob holds, with the numbers of the format.
type BlobKind uint16

// The kinds of blob. A newer file may hold others; those are listed and
// otherwise left alone.
const (
	ExecutableBlob BlobKind = iota // a compiled program
	MetadataBlob                   // a [Metadata]
	TensorBlob                     // the data of one tensor
	FeedBlob                       // the data of several tensors, fed one a step
	OpaqueBlob                     // whatever a framework attached to an executable
)

// Valid reports whether the kind is one this package knows.
func (k BlobKind) Valid() bool { return k <= OpaqueBlob }

// String returns "executable", "metadata", "tensor data", "feed data" or
// "opaque", or "BlobKind(9)".
func (k BlobKind) String() string {
	switch k {
	case ExecutableBlob:
		return "executable"
	case MetadataBlob:
		return "metadata"
	case TensorBlob:
		return "tensor data"
	case FeedBlob:
		return "feed data"
	case OpaqueBlob:
		return "opaque"
	}
	return "BlobKind(" + strconv.Itoa(int(k)) + ")"
}
