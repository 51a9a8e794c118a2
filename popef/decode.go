package popef

import (
	"errors"
	"fmt"

	capnp "capnproto.org/go/capnp/v3"

	"github.com/popefgen/popefgen/popef/internal/wire"
)

// decoder turns messages into values. It keeps the first error, and notes what
// a newer writer put into structs beyond what this package knows.
type decoder struct {
	err   error
	newer string // name of the first struct with unknown content
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

// text reads a Text field. The generated accessors return "" for a pointer to
// something else; that is an error here.
func (d *decoder) text(field string, has bool, get func() ([]byte, error)) string {
	b, err := get()
	if err == nil && b == nil && has {
		err = errors.New("not a text")
	}
	if err != nil {
		d.fail(fmt.Errorf("field %s: %w", field, wire.Plain(err)))
	}
	return string(b)
}

// list unwraps a list field.
func list[L any](d *decoder, field string, get func() (L, error)) L {
	l, err := get()
	if err != nil {
		d.fail(fmt.Errorf("field %s: %w", field, wire.Plain(err)))
		var none L
		return none
	}
	return l
}

func (d *decoder) indices(field string, get func() (capnp.UInt32List, error)) []uint32 {
	l := list(d, field, get)
	if l.Len() == 0 {
		return nil
	}
	v := make([]uint32, l.Len())
	for i := range v {
		v[i] = l.At(i)
	}
	return v
}

// extra notes whether s holds anything beyond the sections this package knows.
func (d *decoder) extra(name string, s capnp.Struct, dataBytes capnp.Size, pointers uint16) {
	if d.newer != "" || !s.IsValid() {
		return
	}
	size := s.Size()
	for off := dataBytes; off < size.DataSize; off += 8 {
		if s.Uint64(capnp.DataOffset(off)) != 0 {
			d.newer = name
			return
		}
	}
	for i := pointers; i < size.PointerCount; i++ {
		if s.HasPtr(i) {
			d.newer = name
			return
		}
	}
}

// header is a decoded BlobHeader.
type header struct {
	version string
	kind    BlobKind
	size    uint64
}

func (d *decoder) header(root capnp.Struct) header {
	m := wire.BlobHeader(root)
	d.extra("blob header", root, 16, 1)
	return header{
		version: d.text("version", m.HasVersion(), m.VersionBytes),
		kind:    BlobKind(m.Type()),
		size:    m.Size(),
	}
}

// info decodes the info message of a blob into b.
func (d *decoder) info(root capnp.Struct, b *Blob) {
	switch b.Kind {
	case ExecutableBlob:
		m := wire.PoplarExecutable(root)
		d.extra("executable", root, 8, 1)
		b.Name = d.text("name", m.HasName(), m.NameBytes)
		b.UncompressedSize = m.UncompressedSize()
	case MetadataBlob:
		b.Metadata = d.metadata(root)
		b.Executable = b.Metadata.Executable
	case TensorBlob:
		m := wire.TensorDataInfo(root)
		d.extra("tensor data", root, 0, 2)
		b.Name = d.text("name", m.HasName(), m.NameBytes)
		b.Info = d.tensorInfo(m.TensorInfo)
	case FeedBlob:
		m := wire.FeedDataInfo(root)
		d.extra("feed data", root, 8, 2)
		b.Name = d.text("name", m.HasName(), m.NameBytes)
		b.Info = d.tensorInfo(m.TensorInfo)
		b.NumTensors = m.NumTensors()
	case OpaqueBlob:
		m := wire.Opaque(root)
		d.extra("opaque", root, 0, 2)
		b.Name = d.text("name", m.HasName(), m.NameBytes)
		b.Executable = d.text("executable", m.HasExecutable(), m.ExecutableBytes)
	}
}

func (d *decoder) tensorInfo(get func() (wire.TensorInfo, error)) TensorInfo {
	m, err := get()
	if err != nil {
		d.fail(fmt.Errorf("field tensorInfo: %w", err))
		return TensorInfo{}
	}
	d.extra("tensor info", capnp.Struct(m), 8, 1)
	t := TensorInfo{DataType: DataType(m.DataType())}
	shape := list(d, "shape", m.Shape)
	if n := shape.Len(); n > MaxRank {
		d.fail(fmt.Errorf("field shape: %d dimensions, at most %d are supported", n, MaxRank))
	} else if n > 0 {
		t.Shape = make([]int64, n)
		for i := range t.Shape {
			t.Shape[i] = shape.At(i)
		}
	}
	if t.DataType.Valid() {
		_, err = t.SizeInBytes()
	} else {
		_, err = t.Elements()
	}
	if err != nil {
		d.fail(fmt.Errorf("field tensorInfo: %w", err))
	}
	return t
}

func (d *decoder) options(field string, get func() (wire.Option_List, error)) []Option {
	l := list(d, field, get)
	if l.Len() == 0 {
		return nil
	}
	v := make([]Option, l.Len())
	for i := range v {
		m := l.At(i)
		d.extra("option", capnp.Struct(m), 0, 2)
		v[i].Name = d.text(field, m.HasName(), m.NameBytes)
		v[i].Value = d.text(field, m.HasValue(), m.ValueBytes)
	}
	return v
}

func (d *decoder) metadata(root capnp.Struct) *Metadata {
	m := wire.Metadata(root)
	d.extra("metadata", root, 24, 7)
	v := &Metadata{
		ReplicationFactor: m.ReplicationFactor(),
		NumIPUs:           m.NumIpus(),
		SeedHandle:        d.text("seedHandle", m.HasSeedHandle(), m.SeedHandleBytes),
		Executable:        d.text("executable", m.HasExecutable(), m.ExecutableBytes),
		NumProcesses:      m.NumProcesses(),
		IPUVersion:        m.IpuVersion(),
		IsPOD:             m.IsPOD(),
		IsInference:       m.IsInference(),
		EngineOptions:     d.options("engineOptions", m.EngineOptions),
		DeviceOptions:     d.options("deviceOptions", m.DeviceOptions),
		DeviceIterations:  m.DeviceIterations(),
	}
	if l := list(d, "anchors", m.Anchors); l.Len() > 0 {
		v.Anchors = make([]Anchor, 0, min(l.Len(), 1024))
		for i := 0; i < l.Len() && d.err == nil; i++ {
			v.Anchors = append(v.Anchors, d.anchor(l.At(i)))
			if d.err != nil {
				d.err = fmt.Errorf("anchor %d %q: %w", i, shorten(v.Anchors[i].Name), d.err)
			}
		}
	}
	if f := list(d, "programFlow", m.ProgramFlow); f.IsValid() {
		d.extra("program flow", capnp.Struct(f), 0, 3)
		v.ProgramFlow = ProgramFlow{
			Load: d.indices("programFlow.load", f.Load),
			Main: d.indices("programFlow.main", f.Main),
			Save: d.indices("programFlow.save", f.Save),
		}
	}
	if l := list(d, "programsMap", m.ProgramsMap); l.Len() > 0 {
		v.Programs = make([]ProgramInfo, l.Len())
		for i := range v.Programs {
			p := l.At(i)
			d.extra("program", capnp.Struct(p), 8, 1)
			v.Programs[i] = ProgramInfo{Index: p.Index(), Name: d.text("programsMap", p.HasName(), p.NameBytes)}
		}
	}
	return v
}

func (d *decoder) anchor(m wire.Anchor) Anchor {
	d.extra("anchor", capnp.Struct(m), 8, 4)
	return Anchor{
		Name:         d.text("name", m.HasName(), m.NameBytes),
		Handle:       d.text("handle", m.HasHandle(), m.HandleBytes),
		Programs:     d.indices("programs", m.Programs),
		Info:         d.tensorInfo(m.TensorInfo),
		Type:         TensorType(m.Type()),
		PerReplica:   m.IsPerReplica(),
		RemoteBuffer: m.UseRemoteBuffers(),
		Repeats:      m.Repeats(),
	}
}

// oddities warns of values that only a newer writer would use.
func oddities(w *warnings, b *Blob, d *decoder) {
	if d.newer != "" {
		w.add(b.Location(), "the %s message has fields that are newer than this reader; they are ignored", d.newer)
	}
	if (b.Kind == TensorBlob || b.Kind == FeedBlob) && !b.Info.DataType.Valid() {
		w.add(b.Location(), "element type %v is unknown", b.Info.DataType)
	}
	if b.Metadata == nil {
		return
	}
	for i := range b.Metadata.Anchors {
		a := &b.Metadata.Anchors[i]
		if !a.Info.DataType.Valid() {
			w.add(b.Location(), "anchor %q: element type %v is unknown", shorten(a.Name), a.Info.DataType)
		}
		if !a.Type.Valid() {
			w.add(b.Location(), "anchor %q: anchor type %d is unknown", shorten(a.Name), uint16(a.Type))
		}
	}
}
