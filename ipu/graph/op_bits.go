package graph

import (
	"fmt"
	"slices"
)

// BitwiseFn names a function of the bits of two integers.
type BitwiseFn string

// The functions of Bitwise. A shift by as many bits as the type has, or more,
// leaves nothing.
const (
	BitAnd     BitwiseFn = "and"
	BitOr      BitwiseFn = "or"
	BitXor     BitwiseFn = "xor"
	ShiftLeft  BitwiseFn = "shift_left"  // unsigned integers only
	ShiftRight BitwiseFn = "shift_right" // unsigned integers only
)

// Bitwise applies Fn to pairs of integers, with numpy broadcasting.
type Bitwise struct{ Fn BitwiseFn }

// Mod is the remainder of a division, with numpy broadcasting. It has the sign
// of the divisor, or of the dividend if Truncated. An integer modulo 0 is 0.
type Mod struct{ Truncated bool }

// BitCast reinterprets the bits of every element as an element of another type that
// is equally wide. Bool and the integers of less than 8 bits are left out:
// their bytes hold more than the elements.
type BitCast struct{ To DType }

var (
	integers         = typeSet{"an integer of 8 bits or more", []DType{I8, U8, I16, U16, I32, U32, I64, U64}}
	unsignedIntegers = typeSet{"an unsigned integer of 8 bits or more", []DType{U8, U16, U32, U64}}
	wholeBytes       = typeSet{"an integer or a float of 8 bits or more", append([]DType{F8E4M3, F8E5M2}, numeric.types...)}
)

// Kind returns "Bitwise".
func (*Bitwise) Kind() string { return "Bitwise" }

// Infer implements [Op].
func (o *Bitwise) Infer(in []TensorType) ([]TensorType, error) {
	types := integers
	switch o.Fn {
	case BitAnd, BitOr, BitXor:
	case ShiftLeft, ShiftRight:
		types = unsignedIntegers
	default:
		return nil, fmt.Errorf("there is no bitwise function %q", string(o.Fn))
	}
	return inferPairs(in, types)
}

// inferPairs infers an operator on pairs of elements of the given types.
func inferPairs(in []TensorType, types typeSet) ([]TensorType, error) {
	in, err := operands(in, "a", "b")
	if err != nil {
		return nil, err
	}
	if err := firstError(types.want("a", in[0]), sameType("b", in[1], in[0])); err != nil {
		return nil, err
	}
	shape, err := Broadcast(in[0].Shape, in[1].Shape)
	if err != nil {
		return nil, err
	}
	return results(TensorType{in[0].DType, shape})
}

// Kind returns "Mod".
func (*Mod) Kind() string { return "Mod" }

// Infer implements [Op].
func (o *Mod) Infer(in []TensorType) ([]TensorType, error) { return inferPairs(in, numeric) }

// Kind returns "BitCast".
func (*BitCast) Kind() string { return "BitCast" }

// Infer implements [Op].
func (o *BitCast) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x")
	if err != nil {
		return nil, err
	}
	if err := wholeBytes.want("x", in[0]); err != nil {
		return nil, err
	}
	if !slices.Contains(wholeBytes.types, o.To) || o.To.Size() != in[0].DType.Size() {
		return nil, fmt.Errorf("attribute To is %v, want a type of %d bytes that is %s, as x is %v", o.To, in[0].DType.Size(), wholeBytes.words, in[0])
	}
	return results(TensorType{o.To, in[0].Shape})
}
