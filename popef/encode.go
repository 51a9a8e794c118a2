package popef

import (
	"encoding/binary"
	"fmt"

	capnp "capnproto.org/go/capnp/v3"

	"github.com/popefgen/popefgen/popef/internal/wire"
)

// Offsets of the fields that are patched once a payload has been written, from
// the start of their message: 8 bytes of segment table, 8 of root pointer.
const (
	sizeFieldOffset             = 8 + 8 + 8 // BlobHeader.size, the second data word
	uncompressedSizeFieldOffset = 8 + 8     // PoplarExecutable.uncompressedSize, the first
)

// encoder builds one message of a single segment. It keeps the first error;
// the setters fail only when a message outgrows a segment (4 GiB).
type encoder struct {
	seg *capnp.Segment
	err error
}

func newEncoder() *encoder {
	_, seg, err := capnp.NewMessage(capnp.SingleSegment(nil))
	return &encoder{seg: seg, err: err}
}

func (e *encoder) keep(err error) {
	if e.err == nil {
		e.err = err
	}
}

// made unwraps what a constructor returned.
func made[T any](v T, err error) func(*encoder) T {
	return func(e *encoder) T {
		e.keep(err)
		return v
	}
}

// text sets a text field; an empty text stays a null pointer.
func (e *encoder) text(set func(string) error, s string) {
	if s != "" && e.err == nil {
		e.keep(set(s))
	}
}

func (e *encoder) indices(make func(int32) (capnp.UInt32List, error), v []uint32) {
	if len(v) == 0 || e.err != nil {
		return
	}
	l, err := make(int32(len(v)))
	if e.keep(err); e.err != nil {
		return
	}
	for i, x := range v {
		l.Set(i, x)
	}
}

func (e *encoder) tensorInfo(make func() (wire.TensorInfo, error), t TensorInfo) {
	if e.err != nil {
		return
	}
	m, err := make()
	if e.keep(err); e.err != nil {
		return
	}
	m.SetDataType(wire.DataType(t.DataType))
	if len(t.Shape) == 0 {
		return
	}
	l, err := m.NewShape(int32(len(t.Shape)))
	if e.keep(err); e.err != nil {
		return
	}
	for i, d := range t.Shape {
		l.Set(i, d)
	}
}

// encodeHeader returns the header message of a blob.
func encodeHeader(version string, kind BlobKind, size uint64) ([]byte, error) {
	e := newEncoder()
	if e.err != nil {
		return nil, e.err
	}
	m := made(wire.NewRootBlobHeader(e.seg))(e)
	m.SetType(wire.BlobType(kind))
	m.SetSize(size)
	e.text(m.SetVersion, version)
	return wire.Frame(e.seg.Data(), 0), e.err
}

// encodeInfo returns the segment of the info message of a blob.
func encodeInfo(b *Blob) ([]byte, error) {
	e := newEncoder()
	if e.err != nil {
		return nil, e.err
	}
	switch b.Kind {
	case ExecutableBlob:
		m := made(wire.NewRootPoplarExecutable(e.seg))(e)
		m.SetUncompressedSize(b.UncompressedSize)
		e.text(m.SetName, b.Name)
	case MetadataBlob:
		e.metadata(b.Metadata)
	case TensorBlob:
		m := made(wire.NewRootTensorDataInfo(e.seg))(e)
		e.text(m.SetName, b.Name)
		e.tensorInfo(m.NewTensorInfo, b.Info)
	case FeedBlob:
		m := made(wire.NewRootFeedDataInfo(e.seg))(e)
		m.SetNumTensors(b.NumTensors)
		e.text(m.SetName, b.Name)
		e.tensorInfo(m.NewTensorInfo, b.Info)
	case OpaqueBlob:
		m := made(wire.NewRootOpaque(e.seg))(e)
		e.text(m.SetName, b.Name)
		e.text(m.SetExecutable, b.Executable)
	}
	return e.seg.Data(), e.err
}

func (e *encoder) options(make func(int32) (wire.Option_List, error), v []Option) {
	if len(v) == 0 || e.err != nil {
		return
	}
	l, err := make(int32(len(v)))
	if e.keep(err); e.err != nil {
		return
	}
	for i, o := range v {
		m := l.At(i)
		e.text(m.SetName, o.Name)
		e.text(m.SetValue, o.Value)
	}
}

func (e *encoder) metadata(v *Metadata) {
	m := made(wire.NewRootMetadata(e.seg))(e)
	if e.err != nil {
		return
	}
	m.SetReplicationFactor(v.ReplicationFactor)
	m.SetNumIpus(v.NumIPUs)
	m.SetNumProcesses(v.NumProcesses)
	m.SetIpuVersion(v.IPUVersion)
	m.SetIsPOD(v.IsPOD)
	m.SetIsInference(v.IsInference)
	m.SetDeviceIterations(v.DeviceIterations)
	e.text(m.SetSeedHandle, v.SeedHandle)
	e.anchors(m, v.Anchors)
	e.text(m.SetExecutable, v.Executable)
	e.options(m.NewEngineOptions, v.EngineOptions)
	e.options(m.NewDeviceOptions, v.DeviceOptions)
	if e.err != nil {
		return
	}
	flow, err := m.NewProgramFlow()
	if e.keep(err); e.err != nil {
		return
	}
	e.indices(flow.NewLoad, v.ProgramFlow.Load)
	e.indices(flow.NewMain, v.ProgramFlow.Main)
	e.indices(flow.NewSave, v.ProgramFlow.Save)
	e.programs(m, v.Programs)
}

func (e *encoder) anchors(m wire.Metadata, v []Anchor) {
	if len(v) == 0 || e.err != nil {
		return
	}
	l, err := m.NewAnchors(int32(len(v)))
	if e.keep(err); e.err != nil {
		return
	}
	for i := range v {
		a, w := &v[i], l.At(i)
		w.SetType(wire.TensorType(a.Type))
		w.SetIsPerReplica(a.PerReplica)
		w.SetUseRemoteBuffers(a.RemoteBuffer)
		w.SetRepeats(a.Repeats)
		e.text(w.SetName, a.Name)
		e.indices(w.NewPrograms, a.Programs)
		e.text(w.SetHandle, a.Handle)
		e.tensorInfo(w.NewTensorInfo, a.Info)
	}
}

func (e *encoder) programs(m wire.Metadata, v []ProgramInfo) {
	if len(v) == 0 || e.err != nil {
		return
	}
	l, err := m.NewProgramsMap(int32(len(v)))
	if e.keep(err); e.err != nil {
		return
	}
	for i, p := range v {
		w := l.At(i)
		w.SetIndex(p.Index)
		e.text(w.SetName, p.Name)
	}
}

// checkInfo refuses a tensor that a reader would refuse.
func checkInfo(t TensorInfo) error {
	if !t.DataType.Valid() {
		return fmt.Errorf("element type %v is unknown", t.DataType)
	}
	_, err := t.SizeInBytes()
	return err
}

// checkMetadata refuses metadata that a reader would refuse.
func checkMetadata(m *Metadata) error {
	for i := range m.Anchors {
		a := &m.Anchors[i]
		if err := checkInfo(a.Info); err != nil {
			return fmt.Errorf("anchor %d %q: %w", i, shorten(a.Name), err)
		}
		if !a.Type.Valid() {
			return fmt.Errorf("anchor %d %q: anchor type %v is unknown", i, shorten(a.Name), a.Type)
		}
	}
	return nil
}

// le64 returns the bytes of a UInt64 field.
func le64(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }
