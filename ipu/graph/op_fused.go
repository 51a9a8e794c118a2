package graph

import (
	"fmt"
	"slices"
)

// Pointwise computes a small program of elementwise functions of operands of
// one type, F32 or half precision, that broadcast to one shape. Instruction i applies Fns[i], the name of a
// [UnaryFn], of a [BinaryFn] that compares nothing, or [PointwiseClip], with
// Alpha[i] and Beta[i], to as many values as it takes, which Args lists for
// one instruction after the other: value k is operand k, value operands+k the
// result of instruction k. The result is that of the last instruction. Every
// instruction rounds as its operator alone would: to half precision, if the
// operands are of that.
type Pointwise struct {
	Fns         []string
	Args        []int64
	Alpha, Beta []float64
}

// PointwiseClip limits its first argument: the second is the least value, the
// third the greatest; -1 stands for none.
const PointwiseClip = "clip"

// The most operands and instructions of a [Pointwise].
const (
	MaxPointwiseOperands     = 12
	MaxPointwiseInstructions = 32
)

// PointwiseArity returns how many arguments a function of [Pointwise] takes, 0
// if there is no such function.
func PointwiseArity(fn string) int {
	if fn == PointwiseClip {
		return 3
	}
	if t, ok := unaryTypes[UnaryFn(fn)]; ok && slices.Contains(t.types, F32) {
		return 1
	}
	if t, ok := binaryTypes[BinaryFn(fn)]; ok && slices.Contains(t.types, F32) && !BinaryFn(fn).Compares() {
		return 2
	}
	return 0
}

// Kind returns "Pointwise".
func (*Pointwise) Kind() string { return "Pointwise" }

// Infer implements [Op].
func (o *Pointwise) Infer(in []TensorType) ([]TensorType, error) {
	if len(in) == 0 || len(in) > MaxPointwiseOperands {
		return nil, fmt.Errorf("%d operands, want 1 to %d", len(in), MaxPointwiseOperands)
	}
	shapes := make([][]int64, len(in))
	for i, t := range in {
		if !PointwiseType(t.DType) || t.DType != in[0].DType {
			return nil, fmt.Errorf("operand %d is %v, want elements of one type in all operands, f32, f16 or bf16", i, t)
		}
		if err := t.Check(); err != nil {
			return nil, fmt.Errorf("operand %d: %w", i, err)
		}
		shapes[i] = t.Shape
	}
	if n := len(o.Fns); n == 0 || n > MaxPointwiseInstructions || len(o.Alpha) != n || len(o.Beta) != n {
		return nil, fmt.Errorf("%d functions with %d and %d numbers in Alpha and Beta, want 1 to %d of each", n, len(o.Alpha), len(o.Beta), MaxPointwiseInstructions)
	}
	at := 0
	for i, fn := range o.Fns {
		n := PointwiseArity(fn)
		if n == 0 {
			return nil, fmt.Errorf("instruction %d: there is no function %q of f32", i, fn)
		}
		for k := range n {
			if at == len(o.Args) {
				return nil, fmt.Errorf("instruction %d (%s): attribute Args has %d numbers, want more", i, fn, len(o.Args))
			}
			least := int64(0)
			if fn == PointwiseClip && k > 0 {
				least = -1
			}
			if a := o.Args[at]; a < least || a >= int64(len(in)+i) {
				return nil, fmt.Errorf("instruction %d (%s): argument %d is value %d, want %d to %d", i, fn, k, a, least, len(in)+i-1)
			}
			at++
		}
	}
	if at != len(o.Args) {
		return nil, fmt.Errorf("attribute Args has %d numbers, want %d", len(o.Args), at)
	}
	shape, err := Broadcast(shapes...)
	if err != nil {
		return nil, err
	}
	return results(TensorType{in[0].DType, shape})
}

// PointwiseType reports whether a [Pointwise] takes elements of a type.
func PointwiseType(d DType) bool { return d == F32 || d == F16 || d == BF16 }
