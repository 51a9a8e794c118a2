package oip

import "fmt"

// DataType is the type of a tensor's elements, by the names of the Open Inference Protocol.
type DataType uint8

// The data types. BYTES, which is the protocol's type of strings, is known by name so that errors can say
// that no model takes it.
const (
	Bool DataType = iota + 1
	Uint8
	Uint16
	Uint32
	Uint64
	Int8
	Int16
	Int32
	Int64
	FP16
	BF16
	FP32
	FP64
	Bytes
)

var dataTypes = [...]struct {
	name string
	size int
}{
	Bool: {"BOOL", 1}, Uint8: {"UINT8", 1}, Uint16: {"UINT16", 2}, Uint32: {"UINT32", 4}, Uint64: {"UINT64", 8},
	Int8: {"INT8", 1}, Int16: {"INT16", 2}, Int32: {"INT32", 4}, Int64: {"INT64", 8},
	FP16: {"FP16", 2}, BF16: {"BF16", 2}, FP32: {"FP32", 4}, FP64: {"FP64", 8}, Bytes: {"BYTES", 0},
}

// String returns the protocol's name of the type, such as FP32.
func (t DataType) String() string {
	if t == 0 || int(t) >= len(dataTypes) {
		return fmt.Sprintf("DataType(%d)", uint8(t))
	}
	return dataTypes[t].name
}

// Size returns the bytes of one element, 0 for BYTES and types that do not exist.
func (t DataType) Size() int {
	if int(t) >= len(dataTypes) {
		return 0
	}
	return dataTypes[t].size
}

// ParseDataType returns the type of that name, 0 if there is none. It does not allocate.
func ParseDataType[S string | []byte](name S) DataType {
	for t := Bool; t <= Bytes; t++ {
		if dataTypes[t].name == string(name) {
			return t
		}
	}
	return 0
}
