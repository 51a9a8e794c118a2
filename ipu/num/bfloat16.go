package num

import "math"

// BFloat16 is the upper half of a float32: 1 sign, 8 exponent (bias 127) and
// 7 fraction bits, with subnormals, infinities and NaNs.
type BFloat16 uint16

// BFloat16From rounds f to bfloat16. Numbers beyond the greatest finite one
// by half a unit or more become infinite; a NaN stays a quiet NaN.
func BFloat16From(f float32) BFloat16 {
	b := math.Float32bits(f)
	if b&^signBit32 > infinity {
		return BFloat16(b>>16 | 0x40)
	}
	return BFloat16((b + 0x7fff + b>>16&1) >> 16)
}

// BFloat16From64 rounds f to bfloat16, once.
func BFloat16From64(f float64) BFloat16 { return BFloat16From(odd(f)) }

// Float32 returns h's value, which float32 holds exactly.
func (h BFloat16) Float32() float32 { return math.Float32frombits(uint32(h) << 16) }

// DecodeBFloat16 sets dst[i] to the value of src[i]. dst must be at least as
// long as src.
func DecodeBFloat16(dst []float32, src []BFloat16) {
	dst = dst[:len(src)]
	for i, h := range src {
		dst[i] = h.Float32()
	}
}

// EncodeBFloat16 sets dst[i] to src[i], rounded. dst must be at least as long
// as src.
func EncodeBFloat16(dst []BFloat16, src []float32) {
	dst = dst[:len(src)]
	for i, f := range src {
		dst[i] = BFloat16From(f)
	}
}
