// Package export makes PopEF models of portable executables: it lays programs out over the graphs of
// one, gives every stream an anchor, and writes executable, metadata and data as one file, in the way
// in which PopART exports its models. What a graph computes and where it comes from is not its business.
package export

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
	"github.com/popefgen/popefgen/popef"
)

// The programs that every model has, with PopART's indices.
const (
	LoadProgram = 0 // "WeightsFromHost": copies every weight in
	MainProgram = 5 // "Program": copies the inputs in, computes, copies the outputs out
)

// Model is a model before it is a file.
type Model struct {
	Executable *graph.Executable
	// Metadata describes the streams of the executable as anchors. [Model.Encode] fills in the name of the executable.
	Metadata popef.Metadata
	Data     []Data // of anchors, in the order of the file
	// Joined says which of the metadata's anchors are joined in streams of the executable; nil if each
	// has its own. What is written to a file is [popef.JoinInputs] of both.
	Joined []popef.JoinedInput
	Blobs  []Blob // behind everything else

	encoded []byte
}

// Data is what a file carries for an anchor: the value of a weight, a state or an optimizer's value.
type Data struct {
	Name string // of the anchor
	Info popef.TensorInfo
	Data []byte // row-major, little-endian
}

// Blob is an opaque blob that belongs to the executable.
type Blob struct {
	Name string
	Data []byte
}

// Encode encodes the executable and names it after the result. It has to be called before the model is
// written, and again after changes of the executable.
func (m *Model) Encode() error {
	var b bytes.Buffer
	if err := encoding.Encode(&b, m.Executable); err != nil {
		return fmt.Errorf("encoding executable %q: %w", m.Executable.Name, err)
	}
	m.encoded = b.Bytes()
	// PopART names an executable by a hash, in decimal.
	sum := sha256.Sum256(m.encoded)
	m.Metadata.Executable = strconv.FormatUint(binary.BigEndian.Uint64(sum[:]), 10)
	return nil
}

// RecordPackage makes the executable say by which definitions of operators it was compiled ([graph.Package]), and encodes it: engines refuse it where these are others, unless
// they are told not to look ([ipu.EngineConfig.DisableHashCheck]). An older popefgen can't read it.
func (m *Model) RecordPackage() error {
	m.Executable.Package = graph.PackageOf(m.Executable)
	return m.Encode()
}

var dataTypes = map[graph.DType]popef.DataType{
	graph.Bool: popef.Bool, graph.I8: popef.S8, graph.U8: popef.U8, graph.I16: popef.S16, graph.U16: popef.U16,
	graph.I32: popef.S32, graph.U32: popef.U32, graph.I64: popef.S64, graph.U64: popef.U64,
	graph.F16: popef.F16, graph.F32: popef.F32, graph.F64: popef.F64,
	graph.F8E4M3: popef.F8143, graph.F8E5M2: popef.F8152,
	// PopEF knows neither bfloat16 nor types of less than a byte.
	graph.BF16: popef.U16, graph.I4: popef.S8, graph.I2: popef.S8, graph.U4: popef.U8, graph.U2: popef.U8,
}

// DataType returns the PopEF type in which elements of type t cross the
// boundary: bfloat16 as the U16 of its bits, int4 and int2 as S8, uint4 and
// uint2 as U8, one element a byte, all others as themselves.
func DataType(t graph.DType) (popef.DataType, bool) {
	d, ok := dataTypes[t]
	return d, ok
}

// Info returns the PopEF form of a tensor's type and shape; see [DataType].
func Info(t graph.TensorType) (popef.TensorInfo, error) {
	d, ok := DataType(t.DType)
	if !ok {
		return popef.TensorInfo{}, fmt.Errorf("element type %s has no PopEF form", t.DType)
	}
	return popef.TensorInfo{DataType: d, Shape: t.Shape}, nil
}
