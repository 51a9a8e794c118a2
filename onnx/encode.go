package onnx

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// ErrNotEncodable is wrapped by the errors of [Encode] and [EncodeTensor] about
// what this package reads in part only, such as strings, so that a file would lack it.
var ErrNotEncodable = errors.New("it can't be written")

// maxFile is the most bytes of a protobuf message.
const maxFile = math.MaxInt32

// Encode returns m as the bytes of an ONNX file. [Decode] of them gives m again,
// but for Path and Size; tensor data that lay in external files is in it, or, of element types that
// are not read, where it was. For models of 2 GiB and more see [WriteFiles].
func Encode(m *Model) ([]byte, error) { return (&encoder{}).model(m) }

// encoder writes models.
type encoder struct {
	// external returns where the data of an initialiser or another tensor of the main graph lies, if it is not in the model; nil if all is in it.
	external func(t *Tensor) (external, bool)
}

// external is a place in a file beside the model.
type external struct {
	file           string
	offset, length int64
}

func (e *encoder) model(m *Model) ([]byte, error) {
	if m == nil || m.Graph == nil {
		return nil, fmt.Errorf("%w: the model has no graph", ErrNotEncodable)
	}
	p := message{}.int(1, m.IRVersion).str(2, m.ProducerName).str(3, m.ProducerVersion)
	g, err := e.graph(m.Graph)
	if err != nil {
		return nil, err
	}
	p = p.bytes(7, g)
	for _, o := range m.Opsets {
		p = p.bytes(8, encodeOpset(o))
	}
	for _, f := range m.Functions {
		b, err := e.function(f)
		if err != nil {
			return nil, fmt.Errorf("function %q: %w", f.Name, err)
		}
		p = p.bytes(25, b)
	}
	p = append(p, m.Other...)
	if len(p) > maxFile {
		return nil, fmt.Errorf("%w: %d bytes are more than a protobuf message may have (%d)", ErrNotEncodable, len(p), maxFile)
	}
	return p, nil
}

// EncodeTensor returns t as a bare TensorProto, as ONNX's test data holds it.
func EncodeTensor(t *Tensor) ([]byte, error) {
	b, err := (&encoder{}).tensor(t)
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("%w: tensor %q: %d bytes are more than a protobuf message may have (%d)", ErrNotEncodable, t.Name, len(b), maxFile)
	}
	return b, err
}

// message is a protobuf message under construction. Strings and numbers that
// are empty are left out, as in proto3; those of lists are not.
type message []byte

func (p message) int(num protowire.Number, v int64) message {
	if v == 0 {
		return p
	}
	return protowire.AppendVarint(protowire.AppendTag(p, num, protowire.VarintType), uint64(v))
}

func (p message) float(num protowire.Number, v float32) message {
	return protowire.AppendFixed32(protowire.AppendTag(p, num, protowire.Fixed32Type), math.Float32bits(v))
}

func (p message) bytes(num protowire.Number, b []byte) message {
	return protowire.AppendBytes(protowire.AppendTag(p, num, protowire.BytesType), b)
}

func (p message) str(num protowire.Number, s string) message {
	if s == "" {
		return p
	}
	return p.bytes(num, []byte(s))
}

func (p message) strs(num protowire.Number, list []string) message {
	for _, s := range list {
		p = p.bytes(num, []byte(s))
	}
	return p
}

func (p message) ints(num protowire.Number, list []int64) message {
	if len(list) == 0 {
		return p
	}
	var b []byte
	for _, v := range list {
		b = protowire.AppendVarint(b, uint64(v))
	}
	return p.bytes(num, b)
}

func encodeOpset(o Opset) message { return message{}.str(1, o.Domain).int(2, o.Version) }

func (e *encoder) function(f *Function) (message, error) {
	p := message{}.str(1, f.Name).strs(4, f.Inputs).strs(5, f.Outputs).strs(6, f.Attributes)
	for _, n := range f.Nodes {
		b, err := e.node(n)
		if err != nil {
			return nil, err
		}
		p = p.bytes(7, b)
	}
	for _, o := range f.Opsets {
		p = p.bytes(9, encodeOpset(o))
	}
	p = p.str(10, f.Domain)
	for _, a := range f.Defaults {
		b, err := e.attribute(a)
		if err != nil {
			return nil, err
		}
		p = p.bytes(11, b)
	}
	return append(p.str(13, f.Overload), f.Other...), nil
}

func (e *encoder) graph(g *Graph) (message, error) {
	p := message{}
	for _, n := range g.Nodes {
		b, err := e.node(n)
		if err != nil {
			return nil, err
		}
		p = p.bytes(1, b)
	}
	p = p.str(2, g.Name)
	for _, t := range g.Initializers {
		b, err := e.tensor(t)
		if err != nil {
			return nil, fmt.Errorf("initializer %w", err)
		}
		p = p.bytes(5, b)
	}
	for _, list := range []struct {
		num    protowire.Number
		values []ValueInfo
	}{{11, g.Inputs}, {12, g.Outputs}, {13, g.Values}} {
		for _, v := range list.values {
			b, err := encodeValue(v)
			if err != nil {
				return nil, err
			}
			p = p.bytes(list.num, b)
		}
	}
	return append(p, g.Other...), nil
}

func (e *encoder) node(n *Node) (message, error) {
	p := message{}.strs(1, n.Inputs).strs(2, n.Outputs).str(3, n.Name).str(4, n.OpType)
	for _, a := range n.Attributes {
		b, err := e.attribute(a)
		if err != nil {
			return nil, fmt.Errorf("node %q (%s): %w", n.Name, n.OpType, err)
		}
		p = p.bytes(5, b)
	}
	return append(p.str(7, n.Domain).str(8, n.Overload), n.Other...), nil
}

func (e *encoder) attribute(a *Attribute) (message, error) {
	p := message{}.str(1, a.Name)
	fail := func(err error) (message, error) { return nil, fmt.Errorf("attribute %q: %w", a.Name, err) }
	tensors, graphs := a.Tensors, a.Graphs
	tensorField, graphField := protowire.Number(10), protowire.Number(11)
	switch {
	case a.Ref != "":
		return append(p.int(20, int64(a.Type)).str(21, a.Ref), a.Other...), nil
	case a.Type == AttrTensor:
		tensors, tensorField = []*Tensor{a.Tensor}, 5
	case a.Type == AttrGraph:
		graphs, graphField = []*Graph{a.Graph}, 6
	}
	switch a.Type {
	case AttrFloat:
		p = p.float(2, a.Float)
	case AttrInt:
		p = protowire.AppendVarint(protowire.AppendTag(p, 3, protowire.VarintType), uint64(a.Int))
	case AttrString:
		p = p.bytes(4, a.String)
	case AttrTensor, AttrTensors:
		for _, t := range tensors {
			b, err := e.tensor(t)
			if err != nil {
				return fail(err)
			}
			p = p.bytes(tensorField, b)
		}
	case AttrGraph, AttrGraphs:
		for _, g := range graphs {
			b, err := e.graph(g)
			if err != nil {
				return fail(err)
			}
			p = p.bytes(graphField, b)
		}
	case AttrFloats:
		for _, f := range a.Floats {
			p = p.float(7, f)
		}
	case AttrInts:
		p = p.ints(8, a.Ints)
	case AttrStrings:
		for _, s := range a.Strings {
			p = p.bytes(9, s)
		}
	default:
		if !has(a.Other, func(num protowire.Number) bool { return num != 13 }) { // 13: documentation
			return fail(fmt.Errorf("%w: it is of type %d, which is not read", ErrNotEncodable, a.Type))
		}
	}
	return append(p.int(20, int64(a.Type)), a.Other...), nil
}

// has reports whether fields that are kept as they are have one of some numbers.
func has(fields []byte, number func(protowire.Number) bool) bool {
	for len(fields) > 0 {
		num, _, n := protowire.ConsumeField(fields)
		if n < 0 {
			return false
		}
		if number(num) {
			return true
		}
		fields = fields[n:]
	}
	return false
}

// tensor packs elements of less than a byte as files have them.
func (e *encoder) tensor(t *Tensor) (message, error) {
	n, err := t.elements()
	if err != nil {
		return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	head := message{}.ints(1, t.Dims).int(2, int64(t.Elem)).str(8, t.Name)
	dt := t.Elem.DType()
	if !dt.Valid() {
		if has(t.Other, isData) {
			return append(head, t.Other...), nil
		}
		return nil, fmt.Errorf("tensor %q: %w: its elements are %s, which are not read", t.Name, ErrNotEncodable, t.Elem)
	}
	if want := n * int64(dt.Size()); int64(len(t.Data)) != want {
		return nil, fmt.Errorf("tensor %q (%s %v): %w: found %d bytes of data, want %d", t.Name, t.Elem, t.Dims, ErrNotEncodable, len(t.Data), want)
	}
	if e.external != nil {
		if at, ok := e.external(t); ok {
			for _, entry := range [][2]string{{"location", at.file}, {"offset", strconv.FormatInt(at.offset, 10)}, {"length", strconv.FormatInt(at.length, 10)}} {
				head = head.bytes(13, message{}.str(1, entry[0]).str(2, entry[1]))
			}
			return append(head.int(14, 1), t.Other...), nil
		}
	}
	return append(head.bytes(9, packed(t)), t.Other...), nil
}

// packed returns the data of a tensor as files have it: elements of less than a byte side by side.
func packed(t *Tensor) []byte {
	per := elementsPerByte(t.Elem)
	if per == 1 {
		return t.Data
	}
	bits := 8 / per
	data := make([]byte, (len(t.Data)+per-1)/per)
	for i, b := range t.Data {
		data[i/per] |= b & (1<<bits - 1) << (i % per * bits)
	}
	return data
}

func encodeValue(v ValueInfo) (message, error) {
	if v.NotDense != "" && has(v.Other, func(num protowire.Number) bool { return num == 2 }) {
		return append(message{}.str(1, v.Name), v.Other...), nil
	}
	if v.NotDense != "" {
		return nil, fmt.Errorf("%w: value %q is of type %s, whose elements are not read", ErrNotEncodable, v.Name, v.NotDense)
	}
	p := message{}.str(1, v.Name)
	if v.Elem == Undefined && !v.HasShape && v.Meaning == nil {
		return append(p, v.Other...), nil
	}
	tensor := message{}.int(1, int64(v.Elem))
	if v.HasShape {
		shape := message{}
		for _, d := range v.Dims {
			dim := message{}.str(2, d.Symbol)
			if d.Known {
				dim = protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(d.Value))
			}
			shape = shape.bytes(1, dim.str(3, d.Denotation))
		}
		tensor = tensor.bytes(2, shape)
	}
	return append(p.bytes(2, append(message{}.bytes(1, tensor), v.Meaning...)), v.Other...), nil
}
