package kernel

import (
	"encoding/binary"
	"math"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/num"
)

func bindCast(op graph.Op, in, out []graph.TensorType) (Kernel, error) {
	from, to := in[0].DType, op.(*graph.Cast).To
	if !from.Valid() || !to.Valid() {
		return nil, noKernel("cast to "+to.String(), from)
	}
	// castBlock's own buffers bound what it converts at a time.
	fn := func(dst, a, _, _, _ []byte) {
		for len(a) > 0 {
			n := min(len(a)/from.Size(), blockLen)
			castBlock(dst[:n*to.Size()], to, a[:n*from.Size()], from)
			a, dst = a[n*from.Size():], dst[n*to.Size():]
		}
	}
	return newElementwise(out[0], in, 2, 0, fn)
}

// castBlock converts up to blockLen elements; dst may be src's memory if the
// types are equally big.
//
// Integers wrap. Floats are truncated toward zero and wrap too; what does not
// fit 64 bits, and NaN, gives what x86's conversion gives: the smallest
// number of I64 and I32 and 0 in the low bits of the others. For I32, what
// does not fit 32 bits counts as not fitting. Rounding is to nearest even,
// once.
func castBlock(dst []byte, to graph.DType, src []byte, from graph.DType) {
	if from == to {
		copy(dst, src)
		return
	}
	switch from {
	case graph.Bool:
		if zerosAndOnes(src) {
			castTo(dst, to, src)
			return
		}
		// A true may be any byte but 0.
		var buf [blockLen]uint8
		for i, v := range src {
			buf[i] = fromBool(v != 0)
		}
		castTo(dst, to, buf[:len(src)])
	case graph.U8, graph.U4, graph.U2:
		castTo(dst, to, src)
	case graph.I8, graph.I4, graph.I2:
		castTo(dst, to, view[int8](src))
	case graph.I16:
		castTo(dst, to, view[int16](src))
	case graph.U16:
		castTo(dst, to, view[uint16](src))
	case graph.I32:
		castTo(dst, to, view[int32](src))
	case graph.U32:
		castTo(dst, to, view[uint32](src))
	case graph.I64:
		castTo(dst, to, view[int64](src))
	case graph.U64:
		castTo(dst, to, view[uint64](src))
	case graph.F32:
		castTo(dst, to, f32s(src))
	case graph.F64:
		castTo(dst, to, f64s(src))
	case graph.F16, graph.BF16:
		if to == graph.F32 {
			decodeHalf(from, f32s(dst), src)
			return
		}
		var buf [blockLen]float32
		x := buf[:len(src)/from.Size()]
		decodeHalf(from, x, src)
		castTo(dst, to, x)
	default:
		var buf [blockLen]float32
		x := buf[:len(src)/from.Size()]
		switch from {
		case graph.F8E4M3:
			num.DecodeFloat8E4M3(x, view[num.Float8E4M3](src))
		case graph.F8E5M2:
			num.DecodeFloat8E5M2(x, view[num.Float8E5M2](src))
		}
		castTo(dst, to, x)
	}
}

// zerosAndOnes reports whether all bytes are 0 or 1.
func zerosAndOnes(x []uint8) bool {
	others := uint64(0)
	for ; len(x) >= 8; x = x[8:] {
		others |= binary.LittleEndian.Uint64(x)
	}
	for _, v := range x {
		others |= uint64(v)
	}
	return others&0xfefefefefefefefe == 0
}

// castTo converts elements of a type that Go computes with.
func castTo[T number](dst []byte, to graph.DType, src []T) {
	done := vectorCast(dst, to, src)
	dst, src = dst[done*to.Size():], src[done:]
	switch to {
	case graph.Bool:
		dst = dst[:len(src)]
		for i, v := range src {
			dst[i] = fromBool(v != 0)
		}
	case graph.I8:
		castInt(view[int8](dst), src)
	case graph.U8:
		castInt(dst, src)
	case graph.I16:
		castInt(view[int16](dst), src)
	case graph.U16:
		castInt(view[uint16](dst), src)
	case graph.I32:
		castInt(view[int32](dst), src)
	case graph.U32:
		castInt(view[uint32](dst), src)
	case graph.I64:
		castInt(view[int64](dst), src)
	case graph.U64:
		castInt(view[uint64](dst), src)
	case graph.I4:
		castInt(view[int8](dst), src)
		wrapSigned(view[int8](dst), 4)
	case graph.I2:
		castInt(view[int8](dst), src)
		wrapSigned(view[int8](dst), 6)
	case graph.U4:
		castInt(dst, src)
		wrapUnsigned(dst, 0xf)
	case graph.U2:
		castInt(dst, src)
		wrapUnsigned(dst, 3)
	case graph.F32:
		if !vectorWiden(f32s(dst), src) {
			castFloat(f32s(dst), src)
		}
	case graph.F64:
		castFloat(f64s(dst), src)
	case graph.F16, graph.BF16, graph.F8E4M3, graph.F8E5M2:
		if x, ok := any(src).([]float32); ok {
			castSmallFloat(dst, to, x)
			return
		}
		if exactInFloat32[T]() {
			var buf [blockLen]float32
			castFloat(buf[:len(src)], src)
			castSmallFloat(dst, to, buf[:len(src)])
			return
		}
		castSmallFloat64(dst, to, src)
	}
}

// exactInFloat32 reports whether float32 holds every T.
func exactInFloat32[T number]() bool {
	switch any(T(0)).(type) {
	case int8, uint8, int16, uint16, float32:
		return true
	}
	return false
}

func castFloat[D float, S number](dst []D, src []S) {
	dst = dst[:len(src)]
	for i, v := range src {
		dst[i] = D(v)
	}
}

func castSmallFloat(dst []byte, to graph.DType, src []float32) {
	switch to {
	case graph.F8E4M3:
		num.EncodeFloat8E4M3(view[num.Float8E4M3](dst), src)
	case graph.F8E5M2:
		num.EncodeFloat8E5M2(view[num.Float8E5M2](dst), src)
	default:
		encodeHalf(to, dst, src)
	}
}

// castSmallFloat64 rounds numbers that float32 may not hold.
func castSmallFloat64[T number](dst []byte, to graph.DType, src []T) {
	switch to {
	case graph.F16:
		d := view[num.Float16](dst)[:len(src)]
		for i, v := range src {
			d[i] = num.Float16From64(oddFloat64(v))
		}
	case graph.BF16:
		d := view[num.BFloat16](dst)[:len(src)]
		for i, v := range src {
			d[i] = num.BFloat16From64(oddFloat64(v))
		}
	case graph.F8E4M3:
		d := view[num.Float8E4M3](dst)[:len(src)]
		for i, v := range src {
			d[i] = num.Float8E4M3From64(oddFloat64(v))
		}
	case graph.F8E5M2:
		d := view[num.Float8E5M2](dst)[:len(src)]
		for i, v := range src {
			d[i] = num.Float8E5M2From64(oddFloat64(v))
		}
	}
}

// oddFloat64 converts v so that rounding the result to a narrow type is like
// rounding v: of an integer too long for a float64 the lost bits leave a
// trace in the last one that is kept.
func oddFloat64[T number](v T) float64 {
	const lost = 1<<11 - 1
	switch n := any(v).(type) {
	case int64:
		if n < -1<<53 || n > 1<<53 {
			n = n&^lost | (n&lost+lost)&^lost
		}
		return float64(n)
	case uint64:
		if n > 1<<53 {
			n = n&^lost | (n&lost+lost)&^lost
		}
		return float64(n)
	}
	return float64(v)
}

// castInt converts to an integer type, wrapping.
func castInt[D integer, S number](dst []D, src []S) {
	dst = dst[:len(src)]
	var s any = S(0)
	switch s.(type) {
	case float32, float64:
		var d any = D(0)
		switch d.(type) {
		case int32:
			for i, v := range src {
				if f := float64(v); f > -1<<31-1 && f < 1<<31 {
					dst[i] = D(int32(f))
				} else {
					low := int64(math.MinInt32)
					dst[i] = D(low)
				}
			}
		case uint64:
			for i, v := range src {
				if f := float64(v); f >= 1<<63 && f < 1<<64 {
					dst[i] = D(uint64(f))
				} else {
					dst[i] = D(truncate(f))
				}
			}
		default:
			for i, v := range src {
				dst[i] = D(truncate(float64(v)))
			}
		}
	default:
		for i, v := range src {
			dst[i] = D(v)
		}
	}
}

// truncate drops the fraction of f; what an int64 can't hold, and NaN, gives
// the smallest one, on every machine.
func truncate(f float64) int64 {
	if f >= -1<<63 && f < 1<<63 {
		return int64(f)
	}
	return math.MinInt64
}

// wrapSigned keeps the low bits of every element but the shift highest, with
// their sign.
func wrapSigned(x []int8, shift uint) {
	for i, v := range x {
		x[i] = v << shift >> shift
	}
}

func wrapUnsigned(x []uint8, mask uint8) {
	for i, v := range x {
		x[i] = v & mask
	}
}

// roundHalf rounds x to a half-precision type.
func roundHalf(t graph.DType, x []float32) {
	var buf [blockLen]uint16
	h := rawBytes(buf[:len(x)])
	encodeHalf(t, h, x)
	decodeHalf(t, x, h)
}

// quantReciprocal returns what is nearest to 1/scale, if with it and multiplications
// alone quotients can be had that are rounded once: neither overflow nor
// vanish, nor have the one fraction for which that is not so.
func quantReciprocal(scale float32) (by float32, ok bool) {
	const least, most = 1e-20, 1e20
	const fraction = 1<<23 - 1
	return 1 / scale, scale >= least && scale <= most && math.Float32bits(scale)&fraction != fraction
}
