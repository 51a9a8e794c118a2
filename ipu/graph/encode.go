package graph

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"reflect"

	"github.com/popefgen/popefgen/ipu"
)

// Magic is what an encoded executable begins with.
const Magic = ipu.PortableMagic

// Version is the version of the encoding that Encode writes and the newest
// that Decode reads. A new operator or attribute does not change it: a file
// that uses one is refused by name where it is not known.
const Version = 1

// An encoded executable is, all numbers little-endian:
//
//	header      [headerSize]byte
//	sections    one of each in sectionNames, in that order (see there for one that may be missing):
//	            name [4]byte, length u64, contents
//	constants   their data in the order of the tensor table, each starting at
//	            the next multiple of constAlign from the file's start; bytes in
//	            between are zero
//
// The header is
//
//	 0  magic     [8]byte
//	 8  version   u32
//	12  checksum  u32, CRC-32C of the header with this field zero and of the sections
//	16  size      u64, of the whole file
//	24  sections  u64, bytes of all sections
//
// Counts are u32, references i32 (-1 for none), dimensions and attributes i64.
// Strings are u32 indices into the section "strs". An attribute is its field's
// name, an attrType and its value; attributes that are zero are left out.
const (
	headerSize = 32
	constAlign = 64

	versionAt  = 8
	checksumAt = 12
	sizeAt     = 16
	sectionsAt = 24
)

// The sections of an encoded executable. The last one is left out where there
// is nothing in it.
var sectionNames = [...]string{"strs", "exec", "tens", "grph", "strm", "prog", "pass"}

const (
	flagPersistent = 1 << iota
	flagConst
)

// attrType is an attribute's type in the encoding.
type attrType uint8

const (
	attrBool attrType = iota + 1
	attrInt
	attrFloat
	attrString
	attrInts
	attrFloats
	attrStrings
	attrDType
	attrGraph
)

var attrTypeNames = [...]string{"no type", "bool", "int64", "float64", "string", "[]int64", "[]float64", "[]string", "DType", "GraphID"}

func (t attrType) String() string {
	if int(t) < len(attrTypeNames) {
		return attrTypeNames[t]
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// attrTypeOf returns the encoding's type of an attribute's Go type, 0 if it
// has none.
func attrTypeOf(t reflect.Type) attrType {
	switch t {
	case reflect.TypeFor[DType]():
		return attrDType
	case reflect.TypeFor[GraphID]():
		return attrGraph
	case reflect.TypeFor[[]int64]():
		return attrInts
	case reflect.TypeFor[[]float64]():
		return attrFloats
	case reflect.TypeFor[[]string]():
		return attrStrings
	}
	switch t.Kind() {
	case reflect.Bool:
		return attrBool
	case reflect.Int64:
		return attrInt
	case reflect.Float64:
		return attrFloat
	case reflect.String:
		return attrString
	}
	return 0
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encode verifies e and writes it to w. The same executable gives the same
// bytes. A reader that finds them at a multiple of 64 in memory uses constants
// in place.
func (e *Executable) Encode(w io.Writer) error {
	if err := Verify(e); err != nil {
		return fmt.Errorf("encode executable %q: %w", e.Name, err)
	}
	enc := encoder{strings: map[string]uint32{}}
	bodies := [][]byte{
		nil, // strs: known only when everything else is encoded
		enc.section(func() { enc.str(e.Name); enc.str(e.Producer) }),
		enc.section(func() { enc.tensors(e) }),
		enc.section(func() { enc.graphs(e) }),
		enc.section(func() { enc.streams(e) }),
		enc.section(func() { enc.programs(e) }),
	}
	if len(e.Passes) > 0 {
		bodies = append(bodies, enc.section(func() { enc.passes(e) }))
	}
	bodies[0] = enc.section(enc.stringTable)

	head := make([]byte, headerSize)
	copy(head, Magic)
	for i, body := range bodies {
		head = append(head, sectionNames[i]...)
		head = binary.LittleEndian.AppendUint64(head, uint64(len(body)))
		head = append(head, body...)
	}
	size := int64(len(head))
	for i := range e.Tensors {
		if t := &e.Tensors[i]; t.Const {
			size = align(size) + int64(len(t.Data))
		}
	}
	binary.LittleEndian.PutUint32(head[versionAt:], Version)
	binary.LittleEndian.PutUint64(head[sizeAt:], uint64(size))
	binary.LittleEndian.PutUint64(head[sectionsAt:], uint64(len(head)-headerSize))
	binary.LittleEndian.PutUint32(head[checksumAt:], crc32.Checksum(head, castagnoli))

	if _, err := w.Write(head); err != nil {
		return fmt.Errorf("encode executable %q: %w", e.Name, err)
	}
	at := int64(len(head))
	var zeros [constAlign]byte
	for i := range e.Tensors {
		t := &e.Tensors[i]
		if !t.Const {
			continue
		}
		for _, b := range [][]byte{zeros[:align(at)-at], t.Data} {
			if _, err := w.Write(b); err != nil {
				return fmt.Errorf("encode executable %q: tensor %d %q: %w", e.Name, i, t.Name, err)
			}
			at += int64(len(b))
		}
	}
	return nil
}

// align rounds an offset up to where a constant may start.
func align(at int64) int64 { return (at + constAlign - 1) &^ (constAlign - 1) }

// encoder builds one section after the other.
type encoder struct {
	b       []byte
	strings map[string]uint32
	order   []string
}

func (c *encoder) section(fill func()) []byte {
	c.b = nil
	fill()
	return c.b
}

func (c *encoder) u8(v uint8)      { c.b = append(c.b, v) }
func (c *encoder) u32(v uint32)    { c.b = binary.LittleEndian.AppendUint32(c.b, v) }
func (c *encoder) u64(v uint64)    { c.b = binary.LittleEndian.AppendUint64(c.b, v) }
func (c *encoder) count(n int)     { c.u32(uint32(n)) }
func (c *encoder) float(f float64) { c.u64(math.Float64bits(f)) }

func (c *encoder) str(s string) {
	id, ok := c.strings[s]
	if !ok {
		id = uint32(len(c.order))
		c.strings[s] = id
		c.order = append(c.order, s)
	}
	c.u32(id)
}

func (c *encoder) ints(v []int64) {
	c.count(len(v))
	for _, n := range v {
		c.u64(uint64(n))
	}
}

func (c *encoder) ids(v []TensorID) {
	c.count(len(v))
	for _, id := range v {
		c.u32(uint32(id))
	}
}

func (c *encoder) tensorType(t TensorType) {
	c.u8(uint8(t.DType))
	c.ints(t.Shape)
}

func (c *encoder) stringTable() {
	c.count(len(c.order))
	for _, s := range c.order {
		c.count(len(s))
		c.b = append(c.b, s...)
	}
}

func (c *encoder) tensors(e *Executable) {
	c.count(len(e.Tensors))
	for i := range e.Tensors {
		t := &e.Tensors[i]
		c.str(t.Name)
		flags := uint8(0)
		if t.Persistent {
			flags |= flagPersistent
		}
		if t.Const {
			flags |= flagConst
		}
		c.u8(flags)
		c.tensorType(t.Type)
	}
}

func (c *encoder) graphs(e *Executable) {
	c.count(len(e.Graphs))
	for i := range e.Graphs {
		g := &e.Graphs[i]
		c.str(g.Name)
		c.ids(g.Params)
		c.ids(g.Results)
		c.count(len(g.Nodes))
		for j := range g.Nodes {
			n := &g.Nodes[j]
			c.str(n.Op.Kind())
			c.str(n.Name)
			c.ids(n.Inputs)
			c.ids(n.Outputs)
			c.attributes(n.Op)
		}
	}
}

// zeroAttr reports whether an attribute has the value it has when it is left
// out. Other than reflect's IsZero it takes an empty list for zero and -0.0 for
// something else.
func zeroAttr(f reflect.Value) bool {
	switch f.Kind() {
	case reflect.Slice:
		return f.Len() == 0
	case reflect.Float64:
		return math.Float64bits(f.Float()) == 0
	}
	return f.IsZero()
}

func (c *encoder) attributes(op Op) {
	s := reflect.ValueOf(op).Elem()
	n := 0
	for i := range s.NumField() {
		if !zeroAttr(s.Field(i)) {
			n++
		}
	}
	c.count(n)
	for i := range s.NumField() {
		f := s.Field(i)
		if zeroAttr(f) {
			continue
		}
		t := attrTypeOf(f.Type())
		c.str(s.Type().Field(i).Name)
		c.u8(uint8(t))
		switch t {
		case attrBool:
			c.u8(1)
		case attrInt, attrGraph:
			c.u64(uint64(f.Int()))
		case attrFloat:
			c.float(f.Float())
		case attrString:
			c.str(f.String())
		case attrDType:
			c.u8(uint8(f.Uint()))
		case attrInts:
			c.ints(f.Interface().([]int64))
		case attrFloats:
			v := f.Interface().([]float64)
			c.count(len(v))
			for _, x := range v {
				c.float(x)
			}
		case attrStrings:
			v := f.Interface().([]string)
			c.count(len(v))
			for _, x := range v {
				c.str(x)
			}
		}
	}
}

func (c *encoder) streams(e *Executable) {
	c.count(len(e.Streams))
	for i := range e.Streams {
		s := &e.Streams[i]
		c.str(s.Handle)
		c.u8(uint8(s.Direction))
		c.tensorType(s.Type)
	}
}

func (c *encoder) programs(e *Executable) {
	c.count(len(e.Programs))
	for i := range e.Programs {
		p := &e.Programs[i]
		c.u64(uint64(p.Index))
		c.str(p.Name)
		c.steps(p.Steps)
	}
}

func (c *encoder) passes(e *Executable) {
	c.count(len(e.Passes))
	for _, p := range e.Passes {
		c.str(p.Name)
		c.u64(uint64(p.Before))
		c.u64(uint64(p.After))
		c.count(len(p.Rewrites))
		for _, w := range p.Rewrites {
			c.str(w.What)
			c.u64(uint64(w.Count))
		}
	}
}

func (c *encoder) steps(steps []Step) {
	c.count(len(steps))
	for i := range steps {
		s := &steps[i]
		c.u8(uint8(s.Kind))
		switch s.Kind {
		case CopyIn, CopyOut:
			c.u32(uint32(s.Stream))
			c.u32(uint32(s.Tensor))
		case Call:
			c.u32(uint32(s.Graph))
		case Repeat:
			c.u64(uint64(s.Count))
			c.steps(s.Body)
		}
	}
}
