package onnxtest

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Message is a protobuf message under construction: each method returns it with one
// field more.
type Message []byte

// Int adds an integer.
func (m Message) Int(num protowire.Number, v int64) Message {
	return protowire.AppendVarint(protowire.AppendTag(m, num, protowire.VarintType), uint64(v))
}

// Bytes adds bytes, or a message.
func (m Message) Bytes(num protowire.Number, b []byte) Message {
	return protowire.AppendBytes(protowire.AppendTag(m, num, protowire.BytesType), b)
}

// Str adds a string.
func (m Message) Str(num protowire.Number, s string) Message { return m.Bytes(num, []byte(s)) }

// Packed adds a list of integers.
func (m Message) Packed(num protowire.Number, vs ...int64) Message {
	var b []byte
	for _, v := range vs {
		b = protowire.AppendVarint(b, uint64(v))
	}
	return m.Bytes(num, b)
}

// Float adds a float32.
func (m Message) Float(num protowire.Number, v float32) Message {
	return protowire.AppendFixed32(protowire.AppendTag(m, num, protowire.Fixed32Type), math.Float32bits(v))
}

// Example returns a small model with most kinds of field.
func Example() []byte {
	attr := Message{}.Str(1, "axis").Int(3, -1).Int(20, 2)
	old := Message{}.Str(1, "alpha").Float(2, 0.5) // no type field, as before IR 2
	node := Message{}.Str(1, "x").Str(1, "w").Str(2, "y").Str(3, "n0").Str(4, "Foo").Bytes(5, attr).Bytes(5, old).Str(7, "ai.onnx")
	w := Message{}.Packed(1, 2).Int(2, 1).Str(8, "w").Bytes(9, []byte{0, 0, 128, 63, 0, 0, 0, 64})
	dim := func(v int64) Message { return Message{}.Bytes(1, Message{}.Int(1, v)) }
	shape := append(Message{}.Bytes(1, Message{}.Str(2, "N")), dim(3)...)
	input := Message{}.Str(1, "x").Bytes(2, Message{}.Bytes(1, Message{}.Int(1, 1).Bytes(2, shape)))
	output := Message{}.Str(1, "y").Bytes(2, Message{}.Bytes(4, nil))
	g := Message{}.Bytes(1, node).Str(2, "g").Bytes(5, w).Bytes(11, input).Bytes(12, output)
	return Message{}.Int(1, 8).Str(2, "test").Bytes(7, g).Bytes(8, Message{}.Int(2, 13)).Bytes(8, Message{}.Str(1, "com.x").Int(2, 1))
}
