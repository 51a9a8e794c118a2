package train

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/popefgen/popefgen/onnx"
)

// Numbers of fields in ONNX's schema.
const (
	modelGraph                  = 7
	graphNode                   = 1
	graphInitializer            = 5
	nodeOutput, nodeOperator    = 2, 4
	nodeAttribute               = 5
	attributeTensor             = 5
	attributeGraph              = 6
	attributeGraphs             = 11
	tensorFloats, tensorRaw     = 4, 9
	tensorName, tensorDoubles   = 8, 10
	tensorExternal, tensorPlace = 13, 14
)

// level is what kind of message bytes are.
type level uint8

const (
	inModel level = iota
	inGraph
	inNode
	inAttribute
	inConstant      // a Constant node
	inConstantValue // an attribute of one
	inTensor        // an initialiser, or the value of a Constant node
)

// spot is what kind of message bytes are, and the name of the value that it says, if it is known.
type spot struct {
	level
	name string
}

// enter completes the spot with what the message itself says.
func (s spot) enter(message []byte) (spot, error) {
	switch s.level {
	case inTensor:
		if s.name != "" {
			return s, nil
		}
		name, err := textOf(message, tensorName)
		return spot{inTensor, name}, err
	case inNode:
		if op, err := textOf(message, nodeOperator); op != "Constant" || err != nil {
			return s, err
		}
		name, err := textOf(message, nodeOutput)
		return spot{inConstant, name}, err
	}
	return s, nil
}

// inner returns what a field of a message holds, if it leads to initialisers or constants.
func (s spot) inner(field protowire.Number) (spot, bool) {
	l := s.level
	switch {
	case l == inConstant && field == nodeAttribute:
		return spot{inConstantValue, s.name}, true
	case l == inConstantValue && field == attributeTensor:
		return spot{inTensor, s.name}, s.name != ""
	}
	to, ok := l.inner(field)
	return spot{level: to}, ok
}

// inner returns what a field of a message holds, if it leads to tensors.
func (l level) inner(field protowire.Number) (level, bool) {
	switch {
	case l == inModel && field == modelGraph, l == inAttribute && (field == attributeGraph || field == attributeGraphs):
		return inGraph, true
	case l == inGraph && field == graphNode:
		return inNode, true
	case l == inGraph && field == graphInitializer:
		return inTensor, true
	case l == inNode && field == nodeAttribute:
		return inAttribute, true
	}
	return 0, false
}

// visitTensors calls visit with the name of every initialiser and constant of a message, with itself, and with its offset from the beginning of the file.
func visitTensors(s spot, message []byte, offset int64, visit func(name string, tensor []byte, offset int64) error) error {
	s, err := s.enter(message)
	if err != nil {
		return err
	}
	if s.level == inTensor {
		return visit(s.name, message, offset)
	}
	return eachField(message, func(num protowire.Number, typ protowire.Type, from, at, end int) error {
		if to, ok := s.inner(num); ok && typ == protowire.BytesType {
			return visitTensors(to, message[at:end], offset+int64(at), visit)
		}
		return nil
	})
}

// eachField calls visit with every field of a message: where its tag begins, where its value does, behind the length if it has one,
// and where it ends.
func eachField(message []byte, visit func(num protowire.Number, typ protowire.Type, from, at, end int) error) error {
	for from := 0; from < len(message); {
		num, typ, tag := protowire.ConsumeTag(message[from:])
		if tag < 0 {
			return fmt.Errorf("%w: %w", onnx.ErrFormat, protowire.ParseError(tag))
		}
		size := protowire.ConsumeFieldValue(num, typ, message[from+tag:])
		if size < 0 {
			return fmt.Errorf("%w: %w", onnx.ErrFormat, protowire.ParseError(size))
		}
		at, end := from+tag, from+tag+size
		if typ == protowire.BytesType {
			_, n := protowire.ConsumeVarint(message[at:])
			at += n
		}
		if err := visit(num, typ, from, at, end); err != nil {
			return err
		}
		from = end
	}
	return nil
}

// textOf returns what a field of a message says.
func textOf(message []byte, field protowire.Number) (text string, err error) {
	err = eachField(message, func(num protowire.Number, typ protowire.Type, _, at, end int) error {
		if num == field && typ == protowire.BytesType {
			text = string(message[at:end])
		}
		return nil
	})
	return text, err
}

// place is where the data of a tensor lie in a file, little-endian and nothing else.
type place struct {
	at, bytes int64
}

// placeOf returns where in a tensor its data lie, if there are so many bytes of them in one piece.
func placeOf(tensor []byte, bytes int64) (p place, ok bool) {
	pieces, external := 0, false
	err := eachField(tensor, func(num protowire.Number, typ protowire.Type, _, at, end int) error {
		switch num {
		case tensorFloats, tensorRaw, tensorDoubles:
			pieces++
			if typ == protowire.BytesType {
				p = place{int64(at), int64(end - at)}
			}
		case tensorExternal, tensorPlace:
			external = true
		}
		return nil
	})
	return p, err == nil && pieces == 1 && p.bytes == bytes && !external
}

// rewritten returns a message in which the data of some initialisers and constants are raw: those of which raw returns data. All else stays byte
// for byte, but for lengths of what these are in.
func rewritten(s spot, message []byte, raw func(name string, tensor []byte) ([]byte, error)) ([]byte, error) {
	s, err := s.enter(message)
	if err != nil {
		return nil, err
	}
	if s.level == inTensor {
		data, err := raw(s.name, message)
		if data == nil || err != nil {
			return message, err
		}
		return withRaw(message, data)
	}
	var out []byte // from the first change on
	copied := 0    // of message
	err = eachField(message, func(num protowire.Number, typ protowire.Type, from, at, end int) error {
		to, ok := s.inner(num)
		if !ok || typ != protowire.BytesType {
			return nil
		}
		changed, err := rewritten(to, message[at:end], raw)
		if err != nil || len(changed) == end-at && (end == at || &changed[0] == &message[at]) {
			return err
		}
		out = append(out, message[copied:from]...)
		out = protowire.AppendBytes(protowire.AppendTag(out, num, typ), changed)
		copied = end
		return nil
	})
	if err != nil || copied == 0 {
		return message, err
	}
	return append(out, message[copied:]...), nil
}

// withRaw returns a tensor whose data are in raw_data, behind everything else.
func withRaw(tensor, data []byte) ([]byte, error) {
	var out []byte
	err := eachField(tensor, func(num protowire.Number, _ protowire.Type, from, _, end int) error {
		switch num {
		case tensorFloats, tensorRaw, tensorDoubles, tensorExternal, tensorPlace, 5: // 5: int32_data, where half precision may be
		default:
			out = append(out, tensor[from:end]...)
		}
		return nil
	})
	return protowire.AppendBytes(protowire.AppendTag(out, tensorRaw, protowire.BytesType), data), err
}
