// Package encoding reads and writes portable executables, the blobs that PopEF files carry them in.
package encoding

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"reflect"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/internal/wire"
)

// Magic is what an encoded executable begins with.
const Magic = ipu.PortableMagic

// Version is the newest version of the encoding that Decode reads. Encode writes it for
// executables of several sizes, whose graphs are much alike (see package wire), and version 1,
// which an older popefgen reads too, for others. A new operator or attribute changes no
// version: a file that uses one is refused by name where it is not known.
const Version = 2

// The versions of the encoding.
const (
	versionPlain   = 1
	versionCompact = 2
)

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
// In version 2, what stands between the header and the constants is packed, see package wire.
// What follows is of version 1.
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

// The sections of an encoded executable. Those from optionalSections on are left out where there
// is nothing in them.
var sectionNames = [...]string{"strs", "exec", "tens", "grph", "strm", "prog", "pass", "defs"}

const optionalSections = 6

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
	case reflect.TypeFor[graph.DType]():
		return attrDType
	case reflect.TypeFor[graph.GraphID]():
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
func Encode(w io.Writer, e *graph.Executable) error {
	if err := graph.Verify(e); err != nil {
		return fmt.Errorf("encode executable %q: %w", e.Name, err)
	}
	return encode(w, e, hasSizes(e))
}

// hasSizes reports whether more than one program computes what it gives to the host.
func hasSizes(e *graph.Executable) bool {
	mains := 0
	for i := range e.Programs {
		calls, gives := false, false
		graph.Walk(e.Programs[i].Steps, func(s *graph.Step) {
			calls, gives = calls || s.Kind == graph.Call, gives || s.Kind == graph.CopyOut
		})
		if calls && gives {
			mains++
		}
	}
	return mains > 1
}

// encode writes e, in version 2 if it is to be compact and a reader would take it.
func encode(w io.Writer, e *graph.Executable, compact bool) error {
	version, sections := uint32(versionPlain), []byte(nil)
	if compact {
		if sections = packed(sectionsOf(e, true)); sections != nil {
			version = versionCompact
		}
	}
	if sections == nil {
		sections = sectionsOf(e, false)
	}
	head := append(make([]byte, headerSize), sections...)
	copy(head, Magic)
	size := int64(len(head))
	for i := range e.Tensors {
		if t := &e.Tensors[i]; t.Const {
			size = align(size) + int64(len(t.Data))
		}
	}
	binary.LittleEndian.PutUint32(head[versionAt:], version)
	binary.LittleEndian.PutUint64(head[sizeAt:], uint64(size))
	binary.LittleEndian.PutUint64(head[sectionsAt:], uint64(len(sections)))
	binary.LittleEndian.PutUint32(head[checksumAt:], crc32.Checksum(head, castagnoli))
	return write(w, e, head)
}

// sections returns all sections, one after the other.
func sectionsOf(e *graph.Executable, compact bool) []byte {
	enc := encoder{wire.NewWriter(compact), e.Tensors}
	bodies := [][]byte{
		nil, // strs: known only when everything else is encoded
		enc.Section(func() { enc.Str(e.Name); enc.Str(e.Producer) }),
		enc.Section(func() { enc.tensors(e) }),
		enc.Section(func() { enc.graphs(e) }),
		enc.Section(func() { enc.streams(e) }),
		enc.Section(func() { enc.programs(e) }),
	}
	bodies = append(bodies, nil, nil)
	if len(e.Passes) > 0 {
		bodies[6] = enc.Section(func() { enc.passes(e) })
	}
	if e.Package != nil {
		bodies[7] = enc.Section(func() { enc.definitions(e) })
	}
	bodies[0] = enc.Section(enc.WriteStrings)

	var all []byte
	for i, body := range bodies {
		if i >= optionalSections && body == nil {
			continue
		}
		all = append(all, sectionNames[i]...)
		all = binary.LittleEndian.AppendUint64(all, uint64(len(body)))
		all = append(all, body...)
	}
	return all
}

// write writes header and sections, and constants behind them.
func write(w io.Writer, e *graph.Executable, head []byte) error {
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
	*wire.Writer
	given []graph.Tensor // the executable's
}

func (c *encoder) id(t graph.TensorID) {
	c.Tensor(int32(t), t >= 0 && (c.given[t].Const || c.given[t].Persistent))
}

func (c *encoder) ids(v []graph.TensorID) {
	c.Count(len(v))
	for _, id := range v {
		c.id(id)
	}
}

func (c *encoder) tensorType(t graph.TensorType) {
	c.U8(uint8(t.DType))
	c.Ints(t.Shape)
}

func (c *encoder) tensors(e *graph.Executable) {
	c.Count(len(e.Tensors))
	for i := range e.Tensors {
		t := &e.Tensors[i]
		c.Name(t.Name)
		flags := uint8(0)
		if t.Persistent {
			flags |= flagPersistent
		}
		if t.Const {
			flags |= flagConst
		}
		c.U8(flags)
		c.tensorType(t.Type)
	}
}

func (c *encoder) graphs(e *graph.Executable) {
	c.Count(len(e.Graphs))
	for i := range e.Graphs {
		g := &e.Graphs[i]
		c.Restart()
		c.Str(g.Name)
		c.ids(g.Params)
		c.ids(g.Results)
		c.Count(len(g.Nodes))
		for j := range g.Nodes {
			n := &g.Nodes[j]
			c.Str(n.Op.Kind())
			c.Name(n.Name)
			c.ids(n.Inputs)
			c.ids(n.Outputs)
			c.attributes(n.Op)
		}
	}
}

func (c *encoder) attributes(op graph.Op) {
	s := reflect.ValueOf(op).Elem()
	n := 0
	for i := range s.NumField() {
		if !graph.ZeroAttribute(s.Field(i)) {
			n++
		}
	}
	c.Count(n)
	for i := range s.NumField() {
		f := s.Field(i)
		if graph.ZeroAttribute(f) {
			continue
		}
		t := attrTypeOf(f.Type())
		c.Str(s.Type().Field(i).Name)
		c.U8(uint8(t))
		switch t {
		case attrBool:
			c.U8(1)
		case attrInt, attrGraph:
			c.Int(f.Int())
		case attrFloat:
			c.Float(f.Float())
		case attrString:
			c.Str(f.String())
		case attrDType:
			c.U8(uint8(f.Uint()))
		case attrInts:
			c.Ints(f.Interface().([]int64))
		case attrFloats:
			v := f.Interface().([]float64)
			c.Count(len(v))
			for _, x := range v {
				c.Float(x)
			}
		case attrStrings:
			v := f.Interface().([]string)
			c.Count(len(v))
			for _, x := range v {
				c.Str(x)
			}
		}
	}
}

func (c *encoder) streams(e *graph.Executable) {
	c.Count(len(e.Streams))
	for i := range e.Streams {
		s := &e.Streams[i]
		c.Str(s.Handle)
		c.U8(uint8(s.Direction))
		c.tensorType(s.Type)
	}
}

func (c *encoder) programs(e *graph.Executable) {
	c.Count(len(e.Programs))
	for i := range e.Programs {
		p := &e.Programs[i]
		c.Int(int64(p.Index))
		c.Str(p.Name)
		c.steps(p.Steps)
	}
}

func (c *encoder) passes(e *graph.Executable) {
	c.Count(len(e.Passes))
	for _, p := range e.Passes {
		c.Str(p.Name)
		c.Int(int64(p.Before))
		c.Int(int64(p.After))
		c.Count(len(p.Rewrites))
		for _, w := range p.Rewrites {
			c.Str(w.What)
			c.Int(int64(w.Count))
		}
	}
}

func (c *encoder) definitions(e *graph.Executable) {
	c.Int(e.Package.Revision)
	c.Count(len(e.Package.Operators))
	for _, d := range e.Package.Operators {
		c.Str(d.Kind)
		c.Str(d.Hash)
	}
}

func (c *encoder) steps(steps []graph.Step) {
	c.Count(len(steps))
	for i := range steps {
		s := &steps[i]
		c.U8(uint8(s.Kind))
		switch s.Kind {
		case graph.CopyIn, graph.CopyOut:
			c.U32(uint32(s.Stream))
			c.id(s.Tensor)
		case graph.Call:
			c.U32(uint32(s.Graph))
		case graph.Repeat:
			c.Int(s.Count)
			c.steps(s.Body)
		}
	}
}
