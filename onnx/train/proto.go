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
	nodeAttribute               = 5
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
	inTensor // an initialiser
)

// inner returns what a field of a message holds, if it leads to initialisers.
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

// visitTensors calls visit with every initialiser of a message and its offset from the beginning of the file.
func visitTensors(l level, message []byte, offset int64, visit func(tensor []byte, offset int64) error) error {
	if l == inTensor {
		return visit(message, offset)
	}
	return eachField(message, func(num protowire.Number, typ protowire.Type, from, at, end int) error {
		if to, ok := l.inner(num); ok && typ == protowire.BytesType {
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

// nameOf returns the name of an initialiser.
func nameOf(tensor []byte) (name string, err error) {
	err = eachField(tensor, func(num protowire.Number, typ protowire.Type, _, at, end int) error {
		if num == tensorName && typ == protowire.BytesType {
			name = string(tensor[at:end])
		}
		return nil
	})
	return name, err
}

// place is where the data of an initialiser lie in a file, little-endian and nothing else.
type place struct {
	at, bytes int64
}

// placeOf returns where in an initialiser its data lie, if there are so many bytes of them in one piece.
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

// rewritten returns a message in which the data of some initialisers are raw: those of which raw returns data. All else stays byte for
// byte, but for lengths of what these are in.
func rewritten(l level, message []byte, raw func(tensor []byte) ([]byte, error)) ([]byte, error) {
	if l == inTensor {
		data, err := raw(message)
		if data == nil || err != nil {
			return message, err
		}
		return withRaw(message, data)
	}
	var out []byte // from the first change on
	copied := 0    // of message
	err := eachField(message, func(num protowire.Number, typ protowire.Type, from, at, end int) error {
		to, ok := l.inner(num)
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

// withRaw returns an initialiser whose data are in raw_data, behind everything else.
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
