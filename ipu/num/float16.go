package num

import "math"

// Float16 is IEEE 754 binary16: 1 sign, 5 exponent (bias 15) and 10 fraction
// bits, with subnormals, infinities and NaNs.
type Float16 uint16

// Float16From rounds f to half precision. Numbers from 65520 up become
// infinite. A NaN stays a quiet NaN with the upper bits of its payload.
func Float16From(f float32) Float16 {
	b := math.Float32bits(f)
	sign := Float16(b >> 16 & 0x8000)
	b &^= signBit32
	switch {
	case b-0x38800000 < 0x477ff000-0x38800000: // 2^-14 ≤ |f| < 65520
		b += 0xfff + b>>13&1
		return sign | Float16((b-0x38000000)>>13)
	case b < 0x38800000:
		// A float32 around 0.5 has the spacing of subnormals, 2^-24, so this
		// addition rounds f to them.
		return sign | Float16(math.Float32bits(math.Float32frombits(b)+0.5)-0x3f000000)
	case b <= infinity:
		return sign | 0x7c00
	default:
		return sign | 0x7e00 | Float16(b>>13&0x1ff)
	}
}

// Float16From64 rounds f to half precision, once.
func Float16From64(f float64) Float16 { return Float16From(odd(f)) }

// Float32 returns h's value, which float32 holds exactly.
func (h Float16) Float32() float32 {
	// The exponent and fraction bits moved into place mean h's value times
	// 2^(15-127), subnormals included.
	b := math.Float32bits(math.Float32frombits(uint32(h&0x7fff)<<13) * 0x1p112)
	if h&0x7c00 == 0x7c00 {
		b |= infinity
	}
	return math.Float32frombits(uint32(h&0x8000)<<16 | b)
}

// DecodeFloat16 sets dst[i] to the value of src[i]. dst must be at least as
// long as src.
func DecodeFloat16(dst []float32, src []Float16) {
	dst = dst[:len(src)]
	for i, h := range src {
		dst[i] = h.Float32()
	}
}

// EncodeFloat16 sets dst[i] to src[i], rounded. dst must be at least as long
// as src.
func EncodeFloat16(dst []Float16, src []float32) {
	dst = dst[:len(src)]
	for i, f := range src {
		dst[i] = Float16From(f)
	}
}
