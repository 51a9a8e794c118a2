package num

import "math"

// Float8E4M3 is Graphcore's f8143, which is ONNX's FLOAT8E4M3FNUZ: 1 sign, 4
// exponent (bias 8) and 3 fraction bits, with subnormals, one NaN (0x80), one
// zero and no infinities. The greatest value is 240.
type Float8E4M3 uint8

// Float8E5M2 is Graphcore's f8152, which is ONNX's FLOAT8E5M2FNUZ: 1 sign, 5
// exponent (bias 16) and 2 fraction bits, with subnormals, one NaN (0x80), one
// zero and no infinities. The greatest value is 57344.
type Float8E5M2 uint8

// nan8 is the only NaN of both 8-bit formats; it is where -0 would be.
const nan8 = 0x80

// Float8E4M3From rounds f to 8 bits. What is too great for the format,
// infinities too, becomes the greatest value of its sign.
func Float8E4M3From(f float32) Float8E4M3 { return Float8E4M3(float8(f, 3, 8)) }

// Float8E5M2From rounds f to 8 bits. What is too great for the format,
// infinities too, becomes the greatest value of its sign.
func Float8E5M2From(f float32) Float8E5M2 { return Float8E5M2(float8(f, 2, 16)) }

// Float8E4M3From64 rounds f to 8 bits, once, like [Float8E4M3From].
func Float8E4M3From64(f float64) Float8E4M3 { return Float8E4M3From(odd(f)) }

// Float8E5M2From64 rounds f to 8 bits, once, like [Float8E5M2From].
func Float8E5M2From64(f float64) Float8E5M2 { return Float8E5M2From(odd(f)) }

// float8 rounds f to a format with the given fraction bits and bias.
func float8(f float32, fraction, bias uint32) uint8 {
	b := math.Float32bits(f)
	sign := uint8(b >> 24 & 0x80)
	b &^= signBit32
	if b > infinity {
		return nan8
	}
	drop := 23 - fraction
	var r uint32
	if rebias := (127 - bias) << 23; b >= rebias+1<<23 {
		b += 1<<(drop-1) - 1 + b>>drop&1
		r = min((b-rebias)>>drop, 0x7f)
	} else {
		// Subnormals are multiples of 2^(1-bias-fraction); a float32 at magic
		// has that spacing, so the addition rounds f to them.
		magic := (127 + 23 + 1 - bias - fraction) << 23
		r = math.Float32bits(math.Float32frombits(b)+math.Float32frombits(magic)) - magic
	}
	if r == 0 {
		return 0
	}
	return sign | uint8(r)
}

// values8 lists the values of all patterns of an 8-bit format.
func values8(fraction, bias int) (t [256]float32) {
	for i := range t {
		exponent, digits := i&0x7f>>fraction, i&(1<<fraction-1)
		if exponent == 0 {
			exponent = 1
		} else {
			digits |= 1 << fraction
		}
		v := math.Ldexp(float64(digits), exponent-bias-fraction)
		if i&0x80 != 0 {
			v = -v
		}
		t[i] = float32(v)
	}
	t[nan8] = float32(math.NaN())
	return t
}

var (
	valuesE4M3 = values8(3, 8)
	valuesE5M2 = values8(2, 16)
)

// Float32 returns h's value, which float32 holds exactly.
func (h Float8E4M3) Float32() float32 { return valuesE4M3[h] }

// Float32 returns h's value, which float32 holds exactly.
func (h Float8E5M2) Float32() float32 { return valuesE5M2[h] }

// DecodeFloat8E4M3 sets dst[i] to the value of src[i]. dst must be at least as
// long as src.
func DecodeFloat8E4M3(dst []float32, src []Float8E4M3) {
	dst = dst[:len(src)]
	for i, h := range src {
		dst[i] = valuesE4M3[h]
	}
}

// DecodeFloat8E5M2 sets dst[i] to the value of src[i]. dst must be at least as
// long as src.
func DecodeFloat8E5M2(dst []float32, src []Float8E5M2) {
	dst = dst[:len(src)]
	for i, h := range src {
		dst[i] = valuesE5M2[h]
	}
}

// EncodeFloat8E4M3 sets dst[i] to src[i], rounded like [Float8E4M3From]. dst
// must be at least as long as src.
func EncodeFloat8E4M3(dst []Float8E4M3, src []float32) {
	dst = dst[:len(src)]
	for i, f := range src {
		dst[i] = Float8E4M3From(f)
	}
}

// EncodeFloat8E5M2 sets dst[i] to src[i], rounded like [Float8E5M2From]. dst
// must be at least as long as src.
func EncodeFloat8E5M2(dst []Float8E5M2, src []float32) {
	dst = dst[:len(src)]
	for i, f := range src {
		dst[i] = Float8E5M2From(f)
	}
}
