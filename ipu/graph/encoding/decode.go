package encoding

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"reflect"
	"unsafe"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/internal/wire"
)

// ErrVersion is what Decode's error wraps for a file that a newer popefgen
// wrote: its format version, an operator or an attribute is not known here.
var ErrVersion = errors.New("portable executable is newer than this popefgen")

const upgrade = "use the popefgen that compiled the model, or a newer one"

// Decode reads and verifies an encoded executable. Constants use b's memory if
// b starts at a multiple of 64, so that b must stay unchanged for as long as
// they are in use; otherwise they are copied. Errors wrap [ErrInvalid] and
// where it fits [ErrVersion].
func Decode(b []byte) (*graph.Executable, error) {
	e, err := decode(b)
	if err != nil {
		return nil, fmt.Errorf("decode portable executable: %w: %w", graph.ErrInvalid, err)
	}
	if err := graph.Verify(e); err != nil {
		return nil, fmt.Errorf("decode portable executable %q: %w", e.Name, err)
	}
	return e, nil
}

func decode(b []byte) (*graph.Executable, error) {
	sections, err := checkHeader(b)
	if err != nil {
		return nil, err
	}
	e := new(graph.Executable)
	if binary.LittleEndian.Uint32(b[versionAt:]) == versionCompact {
		err = unpacked(e, b[headerSize:sections], len(b))
	} else {
		r := wire.NewReader(b[:sections])
		r.At = headerSize
		err = (&decoder{Reader: r}).sections(e)
	}
	if err != nil {
		return nil, err
	}
	return e, constants(e, b, sections)
}

// sections reads all sections, to the end.
func (d *decoder) sections(e *graph.Executable) error {
	all := d.B
	for i, read := range []func(*graph.Executable){d.stringTable, d.exec, d.tensors, d.graphs, d.streams, d.programs, d.passes, d.definitions} {
		name := sectionNames[i]
		if i >= optionalSections && !bytes.HasPrefix(all[d.At:], []byte(name)) && (d.At == len(all) || i < len(sectionNames)-1) {
			continue
		}
		if found := d.Bytes(len(name)); d.Err == nil && string(found) != name {
			return fmt.Errorf("section %d is %q, want %q", i, found, name)
		}
		size := d.U64()
		if d.Err == nil && size > uint64(len(all)-d.At) {
			d.Fail("it is %d bytes long, but %d are left", size, len(all)-d.At)
		}
		end := d.At + int(size)
		if d.Err == nil {
			d.B = all[:end]
			read(e)
		}
		if d.Err == nil && d.At != end {
			d.Fail("%d bytes are left at its end", end-d.At)
		}
		if d.Err != nil {
			return fmt.Errorf("section %q: %w", name, d.Err)
		}
		d.B = all
	}
	if d.At != len(all) {
		return fmt.Errorf("%d bytes are left after the last section", len(all)-d.At)
	}
	return nil
}

// checkHeader checks the header and the checksum and returns where the
// sections end.
func checkHeader(b []byte) (int, error) {
	if !bytes.HasPrefix(b, []byte(Magic)) {
		return 0, fmt.Errorf("it begins with %q, want %q", b[:min(len(b), len(Magic))], Magic)
	}
	if len(b) < headerSize {
		return 0, fmt.Errorf("it has %d bytes, want a header of %d", len(b), headerSize)
	}
	switch v := binary.LittleEndian.Uint32(b[versionAt:]); {
	case v > Version:
		return 0, fmt.Errorf("%w: its format version is %d, want at most %d; %s", ErrVersion, v, Version, upgrade)
	case v < versionPlain:
		return 0, fmt.Errorf("its format version is %d, want %d to %d", v, versionPlain, Version)
	}
	if size := binary.LittleEndian.Uint64(b[sizeAt:]); size != uint64(len(b)) {
		return 0, fmt.Errorf("it has %d bytes, but its header says %d: it is cut off or was joined with something", len(b), size)
	}
	sections := binary.LittleEndian.Uint64(b[sectionsAt:])
	if sections > uint64(len(b)-headerSize) {
		return 0, fmt.Errorf("its header says that sections take %d bytes, but %d follow", sections, len(b)-headerSize)
	}
	end := headerSize + int(sections)
	var zero [4]byte
	sum := crc32.Update(0, castagnoli, b[:checksumAt])
	sum = crc32.Update(sum, castagnoli, zero[:])
	sum = crc32.Update(sum, castagnoli, b[checksumAt+4:end])
	if want := binary.LittleEndian.Uint32(b[checksumAt:]); sum != want {
		return 0, fmt.Errorf("its checksum is %08x, but its header says %08x: it is damaged", sum, want)
	}
	return end, nil
}

// constants points every constant at its data, in place if b is aligned.
func constants(e *graph.Executable, b []byte, sections int) error {
	size := int64(sections)
	for i := range e.Tensors {
		t := &e.Tensors[i]
		if !t.Const {
			continue
		}
		if err := t.Type.Check(); err != nil {
			return fmt.Errorf("tensor %d %q: %w", i, t.Name, err)
		}
		at := align(size)
		n := t.Type.Bytes()
		if at > int64(len(b)) || n > int64(len(b))-at {
			return fmt.Errorf("tensor %d %q: its data takes %d bytes from offset %d, but there are %d", i, t.Name, n, at, len(b))
		}
		size = at + n
	}
	if size != int64(len(b)) {
		return fmt.Errorf("constants end at offset %d, but there are %d bytes", size, len(b))
	}
	first := align(int64(sections))
	if first >= size {
		first = size
	}
	data := b[first:]
	if uintptr(unsafe.Pointer(unsafe.SliceData(b)))%constAlign != 0 {
		data = alignedCopy(data)
	}
	at := int64(0)
	for i := range e.Tensors {
		t := &e.Tensors[i]
		if !t.Const {
			continue
		}
		n := t.Type.Bytes()
		at = align(at)
		if n == 0 {
			// An empty constant at the end may lie behind the data's end.
			t.Data = []byte{}
			continue
		}
		t.Data = data[at : at+n : at+n]
		at += n
	}
	return nil
}

// alignedCopy copies b to memory that starts at a multiple of constAlign.
func alignedCopy(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	buf := make([]byte, len(b)+constAlign-1)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(buf))) % constAlign
	buf = buf[skip:][:len(b)]
	copy(buf, b)
	return buf
}

// packed returns sections of version 2 as they stand in a file, or nil if a reader would not
// take them, since they become too much.
func packed(sections []byte) []byte {
	b := wire.Pack(sections)
	if b == nil || unpacked(new(graph.Executable), b, headerSize+len(b)) != nil {
		return nil
	}
	return b
}

// unpacked reads packed sections of a file of so many bytes.
func unpacked(e *graph.Executable, packed []byte, file int) error {
	r, err := wire.Unpack(packed, file)
	if err != nil {
		return err
	}
	return (&decoder{Reader: r}).sections(e)
}

// decoder reads one section after the other.
type decoder struct {
	*wire.Reader
	depth int // of Repeat bodies
}

func (d *decoder) id() graph.TensorID            { return graph.TensorID(d.Tensor()) }
func (d *decoder) ids() []graph.TensorID         { return wire.List(d.Reader, 4, d.id) }
func (d *decoder) ints() []int64                 { return wire.List(d.Reader, 8, d.Int) }
func (d *decoder) floats() []float64             { return wire.List(d.Reader, 8, d.Float) }
func (d *decoder) strs() []string                { return wire.List(d.Reader, 4, d.Str) }
func (d *decoder) exec(e *graph.Executable)      { e.Name, e.Producer = d.Str(), d.Str() }
func (d *decoder) stringTable(*graph.Executable) { d.ReadStrings() }

func (d *decoder) tensorType() graph.TensorType {
	return graph.TensorType{DType: graph.DType(d.U8()), Shape: d.ints()}
}

func (d *decoder) tensors(e *graph.Executable) {
	e.Tensors = wire.List(d.Reader, 10, func() graph.Tensor {
		t := graph.Tensor{Name: d.Name()}
		flags := d.U8()
		if flags&^(flagPersistent|flagConst) != 0 {
			d.Fail("tensor %q has the flags %#x, which are not known", t.Name, flags)
		}
		t.Persistent, t.Const = flags&flagPersistent != 0, flags&flagConst != 0
		t.Type = d.tensorType()
		return t
	})
}

func (d *decoder) graphs(e *graph.Executable) {
	e.Graphs = wire.List(d.Reader, 16, func() graph.Graph {
		d.Restart()
		return graph.Graph{Name: d.Str(), Params: d.ids(), Results: d.ids(), Nodes: wire.List(d.Reader, 20, d.node)}
	})
}

func (d *decoder) node() graph.Node {
	kind, name := d.Str(), d.Name()
	n := graph.Node{Name: name, Inputs: d.ids(), Outputs: d.ids()}
	if d.Err != nil {
		return n
	}
	if n.Op = graph.NewOp(kind); n.Op == nil {
		d.Err = fmt.Errorf("at offset %d: %w: node %q has the operator %q, which is not known; %s", d.At, ErrVersion, name, kind, upgrade)
		return n
	}
	d.Holds(int64(reflect.TypeOf(n.Op).Elem().Size()))
	d.attributes(n.Op, name)
	return n
}

func (d *decoder) attributes(op graph.Op, node string) {
	s := reflect.ValueOf(op).Elem()
	for range d.Count(6) {
		name := d.Str()
		t := attrType(d.U8())
		if d.Err != nil {
			return
		}
		f := s.FieldByName(name)
		if !f.IsValid() {
			d.Err = fmt.Errorf("at offset %d: %w: operator %s of node %q has the attribute %q, which is not known; %s",
				d.At, ErrVersion, op.Kind(), node, name, upgrade)
			return
		}
		if want := attrTypeOf(f.Type()); t != want {
			d.Fail("attribute %s of operator %s of node %q is of type %v, want %v", name, op.Kind(), node, t, want)
			return
		}
		if !graph.ZeroAttribute(f) {
			d.Fail("attribute %s of operator %s of node %q is given twice", name, op.Kind(), node)
			return
		}
		switch t {
		case attrBool:
			f.SetBool(d.U8() != 0)
		case attrInt:
			f.SetInt(d.Int())
		case attrGraph:
			id := d.Int()
			if id != int64(graph.GraphID(id)) {
				d.Fail("attribute %s of operator %s of node %q is graph %d, which does not exist", name, op.Kind(), node, id)
				return
			}
			f.SetInt(id)
		case attrFloat:
			f.SetFloat(d.Float())
		case attrString:
			f.SetString(d.Str())
		case attrDType:
			f.SetUint(uint64(d.U8()))
		case attrInts:
			f.Set(reflect.ValueOf(d.ints()))
		case attrFloats:
			f.Set(reflect.ValueOf(d.floats()))
		case attrStrings:
			f.Set(reflect.ValueOf(d.strs()))
		}
	}
}

func (d *decoder) streams(e *graph.Executable) {
	e.Streams = wire.List(d.Reader, 10, func() graph.Stream {
		return graph.Stream{Handle: d.Str(), Direction: graph.Direction(d.U8()), Type: d.tensorType()}
	})
}

func (d *decoder) programs(e *graph.Executable) {
	e.Programs = wire.List(d.Reader, 16, func() graph.Program {
		index := d.Int()
		if index < 0 || index > math.MaxInt32 {
			d.Fail("a program has the index %d, want 0 to %d", index, math.MaxInt32)
		}
		return graph.Program{Index: int(index), Name: d.Str(), Steps: wire.List(d.Reader, 5, d.step)}
	})
}

func (d *decoder) passes(e *graph.Executable) {
	e.Passes = wire.List(d.Reader, 24, func() graph.PassReport {
		return graph.PassReport{Name: d.Str(), Before: d.Int(), After: d.Int(), Rewrites: wire.List(d.Reader, 12, func() graph.Rewrite {
			return graph.Rewrite{What: d.Str(), Count: d.Int()}
		})}
	})
}

func (d *decoder) definitions(e *graph.Executable) {
	e.Package = &graph.Package{Revision: d.Int(), Operators: wire.List(d.Reader, 8, func() graph.Definition { return graph.Definition{Kind: d.Str(), Hash: d.Str()} })}
}

func (d *decoder) step() graph.Step {
	s := graph.Step{Kind: graph.StepKind(d.U8())}
	switch s.Kind {
	case graph.CopyIn, graph.CopyOut:
		s.Stream, s.Tensor = graph.StreamID(d.U32()), d.id()
	case graph.Call:
		s.Graph = graph.GraphID(d.U32())
	case graph.Repeat:
		s.Count = d.Int()
		if d.depth++; d.depth > graph.MaxNesting {
			d.Fail("Repeat steps are nested deeper than %d", graph.MaxNesting)
		}
		s.Body = wire.List(d.Reader, 5, d.step)
		d.depth--
	default:
		d.Fail("a step has the kind %d, which does not exist", s.Kind)
	}
	return s
}
