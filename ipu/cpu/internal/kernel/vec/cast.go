package vec

import (
	"encoding/binary"
	"math"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/num"
)

func bindCast(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	from, to := in[0].DType, op.(*graph.Cast).To
	if !from.Valid() || !to.Valid() {
		return nil, tensor.NoKernel("cast to "+to.String(), from)
	}
	// castBlock's own buffers bound what it converts at a time.
	fn := func(dst, a, _, _, _ []byte) {
		for len(a) > 0 {
			n := min(len(a)/from.Size(), BlockLen)
			CastBlock(dst[:n*to.Size()], to, a[:n*from.Size()], from)
			a, dst = a[n*from.Size():], dst[n*to.Size():]
		}
	}
	return newElementwise(out[0], in, 2, 0, fn)
}

// CastBlock converts up to blockLen elements; dst may be src's memory if the
// types are equally big.
//
// Integers wrap. Floats are truncated toward zero and wrap too; what does not
// fit 64 bits, and NaN, gives what x86's conversion gives: the smallest
// number of I64 and I32 and 0 in the low bits of the others. For I32, what
// does not fit 32 bits counts as not fitting. Rounding is to nearest even,
// once.
func CastBlock(dst []byte, to graph.DType, src []byte, from graph.DType) {
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
		var buf [BlockLen]uint8
		for i, v := range src {
			buf[i] = FromBool(v != 0)
		}
		castTo(dst, to, buf[:len(src)])
	case graph.U8, graph.U4, graph.U2:
		castTo(dst, to, src)
	case graph.I8, graph.I4, graph.I2:
		castTo(dst, to, tensor.View[int8](src))
	case graph.I16:
		castTo(dst, to, tensor.View[int16](src))
	case graph.U16:
		castTo(dst, to, tensor.View[uint16](src))
	case graph.I32:
		castTo(dst, to, tensor.View[int32](src))
	case graph.U32:
		castTo(dst, to, tensor.View[uint32](src))
	case graph.I64:
		castTo(dst, to, tensor.View[int64](src))
	case graph.U64:
		castTo(dst, to, tensor.View[uint64](src))
	case graph.F32:
		castTo(dst, to, tensor.F32s(src))
	case graph.F64:
		castTo(dst, to, tensor.F64s(src))
	case graph.F16, graph.BF16:
		if to == graph.F32 {
			DecodeHalf(from, tensor.F32s(dst), src)
			return
		}
		var buf [BlockLen]float32
		x := buf[:len(src)/from.Size()]
		DecodeHalf(from, x, src)
		castTo(dst, to, x)
	default:
		var buf [BlockLen]float32
		x := buf[:len(src)/from.Size()]
		switch from {
		case graph.F8E4M3:
			num.DecodeFloat8E4M3(x, tensor.View[num.Float8E4M3](src))
		case graph.F8E5M2:
			num.DecodeFloat8E5M2(x, tensor.View[num.Float8E5M2](src))
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
func castTo[T tensor.Number](dst []byte, to graph.DType, src []T) {
	done := vectorCast(dst, to, src)
	dst, src = dst[done*to.Size():], src[done:]
	switch to {
	case graph.Bool:
		dst = dst[:len(src)]
		for i, v := range src {
			dst[i] = FromBool(v != 0)
		}
	case graph.I8:
		castInt(tensor.View[int8](dst), src)
	case graph.U8:
		castInt(dst, src)
	case graph.I16:
		castInt(tensor.View[int16](dst), src)
	case graph.U16:
		castInt(tensor.View[uint16](dst), src)
	case graph.I32:
		castInt(tensor.View[int32](dst), src)
	case graph.U32:
		castInt(tensor.View[uint32](dst), src)
	case graph.I64:
		castInt(tensor.View[int64](dst), src)
	case graph.U64:
		castInt(tensor.View[uint64](dst), src)
	case graph.I4:
		castInt(tensor.View[int8](dst), src)
		wrapSigned(tensor.View[int8](dst), 4)
	case graph.I2:
		castInt(tensor.View[int8](dst), src)
		wrapSigned(tensor.View[int8](dst), 6)
	case graph.U4:
		castInt(dst, src)
		wrapUnsigned(dst, 0xf)
	case graph.U2:
		castInt(dst, src)
		wrapUnsigned(dst, 3)
	case graph.F32:
		if !vectorWiden(tensor.F32s(dst), src) {
			castFloat(tensor.F32s(dst), src)
		}
	case graph.F64:
		castFloat(tensor.F64s(dst), src)
	case graph.F16, graph.BF16, graph.F8E4M3, graph.F8E5M2:
		if x, ok := any(src).([]float32); ok {
			castSmallFloat(dst, to, x)
			return
		}
		if exactInFloat32[T]() {
			var buf [BlockLen]float32
			castFloat(buf[:len(src)], src)
			castSmallFloat(dst, to, buf[:len(src)])
			return
		}
		castSmallFloat64(dst, to, src)
	}
}

// exactInFloat32 reports whether float32 holds every T.
func exactInFloat32[T tensor.Number]() bool {
	switch any(T(0)).(type) {
	case int8, uint8, int16, uint16, float32:
		return true
	}
	return false
}

func castFloat[D tensor.Float, S tensor.Number](dst []D, src []S) {
	dst = dst[:len(src)]
	for i, v := range src {
		dst[i] = D(v)
	}
}

func castSmallFloat(dst []byte, to graph.DType, src []float32) {
	switch to {
	case graph.F8E4M3:
		num.EncodeFloat8E4M3(tensor.View[num.Float8E4M3](dst), src)
	case graph.F8E5M2:
		num.EncodeFloat8E5M2(tensor.View[num.Float8E5M2](dst), src)
	default:
		EncodeHalf(to, dst, src)
	}
}

// castSmallFloat64 rounds numbers that float32 may not hold.
func castSmallFloat64[T tensor.Number](dst []byte, to graph.DType, src []T) {
	switch to {
	case graph.F16:
		d := tensor.View[num.Float16](dst)[:len(src)]
		for i, v := range src {
			d[i] = num.Float16From64(oddFloat64(v))
		}
	case graph.BF16:
		d := tensor.View[num.BFloat16](dst)[:len(src)]
		for i, v := range src {
			d[i] = num.BFloat16From64(oddFloat64(v))
		}
	case graph.F8E4M3:
		d := tensor.View[num.Float8E4M3](dst)[:len(src)]
		for i, v := range src {
			d[i] = num.Float8E4M3From64(oddFloat64(v))
		}
	case graph.F8E5M2:
		d := tensor.View[num.Float8E5M2](dst)[:len(src)]
		for i, v := range src {
			d[i] = num.Float8E5M2From64(oddFloat64(v))
		}
	}
}

// oddFloat64 converts v so that rounding the result to a narrow type is like
// rounding v: of an integer too long for a float64 the lost bits leave a
// trace in the last one that is kept.
func oddFloat64[T tensor.Number](v T) float64 {
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
func castInt[D tensor.Integer, S tensor.Number](dst []D, src []S) {
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

// RoundHalf rounds x to a half-precision type.
func RoundHalf(t graph.DType, x []float32) {
	var buf [BlockLen]uint16
	h := tensor.RawBytes(buf[:len(x)])
	EncodeHalf(t, h, x)
	DecodeHalf(t, x, h)
}

// quantReciprocal returns what is nearest to 1/scale, if with it and multiplications
// alone quotients can be had that are rounded once: neither overflow nor
// vanish, nor have the one fraction for which that is not so.
func quantReciprocal(scale float32) (by float32, ok bool) {
	const least, most = 1e-20, 1e20
	const fraction = 1<<23 - 1
	return 1 / scale, scale >= least && scale <= most && math.Float32bits(scale)&fraction != fraction
}
