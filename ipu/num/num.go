// Package num holds the floating-point formats that models use and Go lacks:
// IEEE 754 half precision, bfloat16 and Graphcore's two 8-bit formats.
// All conversions from wider types round once, to nearest, ties to even.
package num

import "math"

const (
	signBit32 = 1 << 31
	infinity  = 0x7f800000 // bits of float32 infinity; greater ones are NaN
)

// odd narrows f to float32 and, if that is inexact, makes the last bit 1 by
// rounding towards the odd neighbour. Rounding the result again, to a format
// with at least two bits less, gives what rounding f once would have given.
func odd(f float64) float32 {
	r := float32(f)
	if float64(r) == f || r != r {
		return r
	}
	b := math.Float32bits(r)
	if math.Abs(float64(r)) > math.Abs(f) {
		b--
	}
	return math.Float32frombits(b | 1)
}
