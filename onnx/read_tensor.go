package onnx

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/popefgen/popefgen/ipu/graph"
)

// ReadTensor reads a bare TensorProto, as ONNX's test data holds it, from the
// file at path.
func ReadTensor(path string) (*Tensor, error) {
	// A pipe in somebody's data set would be waited for.
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file (%v)", path, st.Mode())
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	t, err := DecodeTensor(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// reason is an error of the file system without the file, which is said already.
func reason(err error) error {
	if e := (*fs.PathError)(nil); errors.As(err, &e) {
		return e.Err
	}
	return err
}

// DecodeTensor reads a bare TensorProto. The result may share memory with b.
func DecodeTensor(b []byte) (*Tensor, error) {
	r := newReader(context.Background(), len(b))
	t, err := r.tensor(view{b, 0})
	if err != nil {
		return nil, err
	}
	if t.Elem == Undefined {
		return nil, fmt.Errorf("%w: the tensor has no element type (want a TensorProto)", ErrFormat)
	}
	return t, nil
}

// Type returns the tensor's type and shape in the executable's terms.
func (t *Tensor) Type() graph.TensorType {
	return graph.TensorType{DType: t.Elem.DType(), Shape: t.Dims}
}

// protoTensor collects the fields of a TensorProto before they make sense.
type protoTensor struct {
	Tensor
	raw      []byte
	hasRaw   bool
	floats   []float32
	ints     []int64 // int32_data and int64_data
	doubles  []float64
	uints    []uint64
	strings  int
	external map[string]string
	location int64
}

// typedFields says which repeated field a type uses when not raw_data.
func (p *protoTensor) typedLen() (int64, string) {
	switch p.Elem {
	case Float, Complex64:
		return int64(len(p.floats)), "float_data"
	case Double, Complex128:
		return int64(len(p.doubles)), "double_data"
	case Uint32, Uint64:
		return int64(len(p.uints)), "uint64_data"
	case Int64:
		return int64(len(p.ints)), "int64_data"
	case String:
		return int64(p.strings), "string_data"
	}
	return int64(len(p.ints)), "int32_data"
}

func (r *reader) tensor(v view) (*Tensor, error) {
	var p protoTensor
	err := r.fields(v, "tensor", func(f field) (err error) {
		switch f.num {
		case 1:
			p.Dims, err = repeated(r, f, protowire.VarintType, p.Dims, asInt64)
		case 2:
			var e int64
			e, err = f.int()
			p.Elem = ElemType(e)
		case 3:
			return f.errorf("tensors in segments are not supported")
		case 4:
			p.floats, err = repeated(r, f, protowire.Fixed32Type, p.floats, asFloat32)
		case 5, 7:
			p.ints, err = repeated(r, f, protowire.VarintType, p.ints, asInt64)
		case 6:
			p.strings++
		case 8:
			p.Name, err = f.str()
		case 9:
			p.hasRaw = true
			p.raw, err = f.bytes()
		case 10:
			p.doubles, err = repeated(r, f, protowire.Fixed64Type, p.doubles, asFloat64)
		case 11:
			p.uints, err = repeated(r, f, protowire.VarintType, p.uints, asUint64)
		case 13:
			_, err = sub(f, func(v view) (struct{}, error) { return struct{}{}, r.externalEntry(v, &p) })
		case 14:
			p.location, err = f.int()
		default:
			err = r.keep(&p.Other, f)
		}
		return err
	})
	if err == nil && !p.Elem.DType().Valid() {
		err = r.fields(v, "tensor", func(f field) error {
			if isData(f.num) {
				return r.keep(&p.Other, f)
			}
			return nil
		})
	}
	if err != nil {
		return nil, err
	}
	if err := r.decodeData(&p); err != nil {
		return nil, fmt.Errorf("tensor %q (%s %v) at offset %#x: %w", p.Name, p.Elem, p.Dims, v.off, err)
	}
	return &p.Tensor, nil
}

// isData reports whether a field of a TensorProto has data, or says where there is some.
func isData(num protowire.Number) bool {
	return num >= 4 && num <= 7 || num >= 9 && num <= 11 || num == 13 || num == 14
}

func (r *reader) externalEntry(v view, p *protoTensor) error {
	var key, value string
	err := r.fields(v, "external data entry", func(f field) (err error) {
		switch f.num {
		case 1:
			key, err = f.str()
		case 2:
			value, err = f.str()
		}
		return err
	})
	if p.external == nil {
		p.external = map[string]string{}
	}
	p.external[key] = value
	return err
}

// elements returns the number of elements, checked for negative dimensions
// and overflow.
func (t *Tensor) elements() (int64, error) {
	n := int64(1)
	zero := false
	for _, d := range t.Dims {
		if d < 0 {
			return 0, fmt.Errorf("%w: dimension %d is negative", ErrFormat, d)
		}
		if d == 0 {
			zero = true
			continue
		}
		if n > math.MaxInt64/16/d {
			return 0, fmt.Errorf("%w: the shape has more elements than 64 bits count", ErrFormat)
		}
		n *= d
	}
	if zero {
		return 0, nil
	}
	return n, nil
}

func (r *reader) decodeData(p *protoTensor) error {
	n, err := p.elements()
	if err != nil {
		return err
	}
	dt := p.Elem.DType()
	if dt == graph.Invalid {
		return nil // reported where the tensor is used, with the operator's name
	}
	perByte := int64(elementsPerByte(p.Elem))
	want := (n*int64(dt.Size()) + perByte - 1) / perByte
	if p.location == 1 {
		if p.raw, err = r.externalData(p, want); err != nil {
			return err
		}
		p.hasRaw = true
	}
	if p.hasRaw {
		if int64(len(p.raw)) != want {
			return fmt.Errorf("%w: found %d bytes of data, want %d", ErrFormat, len(p.raw), want)
		}
		if perByte == 1 {
			p.Data = p.raw
			return nil
		}
		if err := r.memory.Take(n, "its elements, one a byte"); err != nil {
			return err
		}
		p.Data = unpack(p.Elem, p.raw, n)
		return nil
	}
	have, name := p.typedLen()
	want = (n + perByte - 1) / perByte
	if have != want {
		return fmt.Errorf("%w: found %d numbers in %s, want %d", ErrFormat, have, name, want)
	}
	p.Data = p.encodeTyped(dt, n)
	return nil
}

func elementsPerByte(e ElemType) int {
	switch e {
	case Int4, Uint4:
		return 2
	case Int2, Uint2:
		return 4
	}
	return 1
}

// unpack spreads sub-byte elements, lowest bits first, to one byte each.
func unpack(e ElemType, packed []byte, n int64) []byte {
	per := elementsPerByte(e)
	bits := 8 / per
	out := make([]byte, n)
	for i := range out {
		v := packed[i/per] >> (i % per * bits) & (1<<bits - 1)
		if (e == Int4 || e == Int2) && v>>(bits-1) != 0 {
			v |= 0xff << bits
		}
		out[i] = v
	}
	return out
}

// encodeTyped lays the numbers of a typed field out as data.
func (p *protoTensor) encodeTyped(dt graph.DType, n int64) []byte {
	if per := elementsPerByte(p.Elem); per > 1 {
		packed := make([]byte, len(p.ints))
		for i, v := range p.ints {
			packed[i] = byte(v)
		}
		return unpack(p.Elem, packed, n)
	}
	le := binary.LittleEndian
	out := make([]byte, 0, n*int64(dt.Size()))
	for _, v := range p.floats {
		out = le.AppendUint32(out, math.Float32bits(v))
	}
	for _, v := range p.doubles {
		out = le.AppendUint64(out, math.Float64bits(v))
	}
	append1 := func(u uint64) {
		switch dt.Size() {
		case 1:
			out = append(out, byte(u))
		case 2:
			out = le.AppendUint16(out, uint16(u))
		case 4:
			out = le.AppendUint32(out, uint32(u))
		default:
			out = le.AppendUint64(out, u)
		}
	}
	if len(p.floats)+len(p.doubles) > 0 {
		return out
	}
	for _, v := range p.ints {
		append1(uint64(v))
	}
	for _, v := range p.uints {
		append1(v)
	}
	return out
}

// externalData reads a tensor's data, want bytes, from a file in the model's
// directory.
func (r *reader) externalData(p *protoTensor, want int64) ([]byte, error) {
	loc := p.external["location"]
	if loc == "" {
		return nil, fmt.Errorf("%w: external data without a location", ErrFormat)
	}
	if r.dir == "" {
		return nil, fmt.Errorf("the data lies in the external file %q, and the model has no directory to look in", loc)
	}
	if r.root == nil {
		root, err := os.OpenRoot(r.dir)
		if err != nil {
			return nil, fmt.Errorf("external data: %w", err)
		}
		r.root = root
	}
	// To open a pipe or a device may wait for ever, so look first.
	if st, err := r.root.Stat(loc); err == nil && !st.Mode().IsRegular() {
		return nil, fmt.Errorf("external data file %q is not a regular file (%v)", loc, st.Mode().Type())
	}
	f, err := r.root.Open(loc)
	if err != nil {
		return nil, fmt.Errorf("external data file %q (it must lie in the model's directory): %w", loc, reason(err))
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("external data file %q: %w", loc, err)
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("external data file %q is not a regular file", loc)
	}
	off, length := int64(0), st.Size()
	if s := p.external["offset"]; s != "" {
		if off, err = strconv.ParseInt(s, 10, 64); err != nil {
			return nil, fmt.Errorf("%w: external data offset %q is not a number", ErrFormat, s)
		}
		length -= off
	}
	if s := p.external["length"]; s != "" {
		if length, err = strconv.ParseInt(s, 10, 64); err != nil {
			return nil, fmt.Errorf("%w: external data length %q is not a number", ErrFormat, s)
		}
	}
	if off < 0 || length < 0 || off > st.Size() || length > st.Size()-off {
		return nil, fmt.Errorf("%w: external data file %q has %d bytes, the model wants %d at offset %d; is the file complete?", ErrFormat, loc, st.Size(), length, off)
	}
	if length != want {
		return nil, fmt.Errorf("%w: external data file %q gives %d bytes, want %d", ErrFormat, loc, length, want)
	}
	at := region{filepath.Clean(loc), off, length}
	if b, ok := r.regions[at]; ok {
		return b, nil
	}
	if err := r.memory.Take(length, "external data of file %q", loc); err != nil {
		return nil, err
	}
	b := make([]byte, length)
	if _, err := io.ReadFull(io.NewSectionReader(f, off, length), b); err != nil {
		return nil, fmt.Errorf("external data file %q: %w", loc, err)
	}
	r.regions[at] = b
	return b, nil
}
