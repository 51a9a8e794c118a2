package graph

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"reflect"
	"unsafe"
)

// ErrVersion is what Decode's error wraps for a file that a newer popefgen
// wrote: its format version, an operator or an attribute is not known here.
var ErrVersion = errors.New("portable executable is newer than this popefgen")

const upgrade = "use the popefgen that compiled the model, or a newer one"

// Decode reads and verifies an encoded executable. Constants use b's memory if
// b starts at a multiple of 64, so that b must stay unchanged for as long as
// they are in use; otherwise they are copied. Errors wrap [ErrInvalid] and
// where it fits [ErrVersion].
func Decode(b []byte) (*Executable, error) {
	e, err := decode(b)
	if err != nil {
		return nil, fmt.Errorf("decode portable executable: %w: %w", ErrInvalid, err)
	}
	if err := Verify(e); err != nil {
		return nil, fmt.Errorf("decode portable executable %q: %w", e.Name, err)
	}
	return e, nil
}

func decode(b []byte) (*Executable, error) {
	sections, err := checkHeader(b)
	if err != nil {
		return nil, err
	}
	e := new(Executable)
	d := &decoder{b: b[:sections], at: headerSize}
	for i, read := range []func(*Executable){d.stringTable, d.exec, d.tensors, d.graphs, d.streams, d.programs, d.passes} {
		name := sectionNames[i]
		if i == len(sectionNames)-1 && d.at == sections {
			break
		}
		if found := d.bytes(len(name)); d.err == nil && string(found) != name {
			return nil, fmt.Errorf("section %d is %q, want %q", i, found, name)
		}
		size := d.u64()
		if d.err == nil && size > uint64(sections-d.at) {
			d.fail("it is %d bytes long, but %d are left", size, sections-d.at)
		}
		end := d.at + int(size)
		if d.err == nil {
			d.b = b[:end]
			read(e)
		}
		if d.err == nil && d.at != end {
			d.fail("%d bytes are left at its end", end-d.at)
		}
		if d.err != nil {
			return nil, fmt.Errorf("section %q: %w", name, d.err)
		}
		d.b = b[:sections]
	}
	if d.at != sections {
		return nil, fmt.Errorf("%d bytes are left after the last section", sections-d.at)
	}
	return e, constants(e, b, sections)
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
	if v := binary.LittleEndian.Uint32(b[versionAt:]); v != Version {
		if v > Version {
			return 0, fmt.Errorf("%w: its format version is %d, want at most %d; %s", ErrVersion, v, Version, upgrade)
		}
		return 0, fmt.Errorf("its format version is %d, want %d", v, Version)
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
func constants(e *Executable, b []byte, sections int) error {
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

// decoder reads from b at at. After the first failure every read gives zero.
type decoder struct {
	b       []byte
	at      int
	err     error
	strings []string
	depth   int // of Repeat bodies
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("at offset %d: "+format, append([]any{d.at}, args...)...)
	}
}

func (d *decoder) bytes(n int) []byte {
	if d.err != nil {
		return nil
	}
	if n > len(d.b)-d.at {
		d.fail("%d bytes are wanted, but %d are left", n, len(d.b)-d.at)
		return nil
	}
	b := d.b[d.at : d.at+n]
	d.at += n
	return b
}

func (d *decoder) u8() uint8 {
	if b := d.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if b := d.bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if b := d.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// count reads how many entries follow. Each takes at least size bytes, so that
// no more memory is set aside than the bytes left can fill.
func (d *decoder) count(size int) int {
	n := d.u32()
	if d.err == nil && uint64(n)*uint64(size) > uint64(len(d.b)-d.at) {
		d.fail("%d entries of at least %d bytes are announced, but %d bytes are left", n, size, len(d.b)-d.at)
	}
	if d.err != nil {
		return 0
	}
	return int(n)
}

// list reads a count and that many entries of at least size bytes each; it is
// nil for none. It grows with what is read: lists nest, and each could announce
// all of the bytes left.
func list[T any](d *decoder, size int, read func() T) []T {
	n := d.count(size)
	if n == 0 {
		return nil
	}
	v := make([]T, 0, min(n, 1024))
	for range n {
		if x := read(); d.err == nil {
			v = append(v, x)
		} else {
			return nil
		}
	}
	return v
}

func (d *decoder) float() float64     { return math.Float64frombits(d.u64()) }
func (d *decoder) int() int64         { return int64(d.u64()) }
func (d *decoder) id() TensorID       { return TensorID(d.u32()) }
func (d *decoder) ids() []TensorID    { return list(d, 4, d.id) }
func (d *decoder) ints() []int64      { return list(d, 8, d.int) }
func (d *decoder) floats() []float64  { return list(d, 8, d.float) }
func (d *decoder) strs() []string     { return list(d, 4, d.str) }
func (d *decoder) exec(e *Executable) { e.Name, e.Producer = d.str(), d.str() }

func (d *decoder) str() string {
	id := d.u32()
	if d.err == nil && int64(id) >= int64(len(d.strings)) {
		d.fail("string %d does not exist, there are %d", id, len(d.strings))
	}
	if d.err != nil {
		return ""
	}
	return d.strings[id]
}

func (d *decoder) stringTable(*Executable) {
	d.strings = list(d, 4, func() string { return string(d.bytes(d.count(1))) })
}

func (d *decoder) tensorType() TensorType {
	return TensorType{DType(d.u8()), d.ints()}
}

func (d *decoder) tensors(e *Executable) {
	e.Tensors = list(d, 10, func() Tensor {
		t := Tensor{Name: d.str()}
		flags := d.u8()
		if flags&^(flagPersistent|flagConst) != 0 {
			d.fail("tensor %q has the flags %#x, which are not known", t.Name, flags)
		}
		t.Persistent, t.Const = flags&flagPersistent != 0, flags&flagConst != 0
		t.Type = d.tensorType()
		return t
	})
}

func (d *decoder) graphs(e *Executable) {
	e.Graphs = list(d, 16, func() Graph {
		return Graph{Name: d.str(), Params: d.ids(), Results: d.ids(), Nodes: list(d, 20, d.node)}
	})
}

func (d *decoder) node() Node {
	kind, name := d.str(), d.str()
	n := Node{Name: name, Inputs: d.ids(), Outputs: d.ids()}
	if d.err != nil {
		return n
	}
	if n.Op = NewOp(kind); n.Op == nil {
		d.err = fmt.Errorf("at offset %d: %w: node %q has the operator %q, which is not known; %s", d.at, ErrVersion, name, kind, upgrade)
		return n
	}
	d.attributes(n.Op, name)
	return n
}

func (d *decoder) attributes(op Op, node string) {
	s := reflect.ValueOf(op).Elem()
	for range d.count(6) {
		name := d.str()
		t := attrType(d.u8())
		if d.err != nil {
			return
		}
		f := s.FieldByName(name)
		if !f.IsValid() {
			d.err = fmt.Errorf("at offset %d: %w: operator %s of node %q has the attribute %q, which is not known; %s",
				d.at, ErrVersion, op.Kind(), node, name, upgrade)
			return
		}
		if want := attrTypeOf(f.Type()); t != want {
			d.fail("attribute %s of operator %s of node %q is of type %v, want %v", name, op.Kind(), node, t, want)
			return
		}
		if !zeroAttr(f) {
			d.fail("attribute %s of operator %s of node %q is given twice", name, op.Kind(), node)
			return
		}
		switch t {
		case attrBool:
			f.SetBool(d.u8() != 0)
		case attrInt:
			f.SetInt(d.int())
		case attrGraph:
			id := d.int()
			if id != int64(GraphID(id)) {
				d.fail("attribute %s of operator %s of node %q is graph %d, which does not exist", name, op.Kind(), node, id)
				return
			}
			f.SetInt(id)
		case attrFloat:
			f.SetFloat(d.float())
		case attrString:
			f.SetString(d.str())
		case attrDType:
			f.SetUint(uint64(d.u8()))
		case attrInts:
			f.Set(reflect.ValueOf(d.ints()))
		case attrFloats:
			f.Set(reflect.ValueOf(d.floats()))
		case attrStrings:
			f.Set(reflect.ValueOf(d.strs()))
		}
	}
}

func (d *decoder) streams(e *Executable) {
	e.Streams = list(d, 10, func() Stream {
		return Stream{Handle: d.str(), Direction: Direction(d.u8()), Type: d.tensorType()}
	})
}

func (d *decoder) programs(e *Executable) {
	e.Programs = list(d, 16, func() Program {
		index := d.int()
		if index < 0 || index > math.MaxInt32 {
			d.fail("a program has the index %d, want 0 to %d", index, math.MaxInt32)
		}
		return Program{Index: int(index), Name: d.str(), Steps: list(d, 5, d.step)}
	})
}

func (d *decoder) passes(e *Executable) {
	e.Passes = list(d, 24, func() PassReport {
		return PassReport{Name: d.str(), Before: d.int(), After: d.int(), Rewrites: list(d, 12, func() Rewrite {
			return Rewrite{What: d.str(), Count: d.int()}
		})}
	})
}

func (d *decoder) step() Step {
	s := Step{Kind: StepKind(d.u8())}
	switch s.Kind {
	case CopyIn, CopyOut:
		s.Stream, s.Tensor = StreamID(d.u32()), d.id()
	case Call:
		s.Graph = GraphID(d.u32())
	case Repeat:
		s.Count = d.int()
		if d.depth++; d.depth > MaxNesting {
			d.fail("Repeat steps are nested deeper than %d", MaxNesting)
		}
		s.Body = list(d, 5, d.step)
		d.depth--
	default:
		d.fail("a step has the kind %d, which does not exist", s.Kind)
	}
	return s
}
