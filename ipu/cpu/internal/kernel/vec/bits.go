package vec

import (
	"math"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

func bindBitwise(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	fn := op.(*graph.Bitwise).Fn
	var f compute
	switch in[0].DType {
	case graph.I8, graph.U8:
		f = bitwise[uint8](fn)
	case graph.I16, graph.U16:
		f = bitwise[uint16](fn)
	case graph.I32, graph.U32:
		f = bitwise[uint32](fn)
	case graph.I64, graph.U64:
		f = bitwise[uint64](fn)
	}
	if f == nil {
		return nil, tensor.NoKernel(fn, in[0].DType)
	}
	return newElementwise(out[0], in, 1, 0, f)
}

func bitwise[E tensor.Unsigned](fn graph.BitwiseFn) compute {
	switch fn {
	case graph.BitAnd:
		return binaryOf(func(dst, a, b []E) {
			for i := range dst {
				dst[i] = a[i] & b[i]
			}
		})
	case graph.BitOr:
		return binaryOf(func(dst, a, b []E) {
			for i := range dst {
				dst[i] = a[i] | b[i]
			}
		})
	case graph.BitXor:
		return binaryOf(func(dst, a, b []E) {
			for i := range dst {
				dst[i] = a[i] ^ b[i]
			}
		})
	case graph.ShiftLeft:
		return binaryOf(func(dst, a, b []E) {
			for i := range dst {
				dst[i] = a[i] << b[i]
			}
		})
	case graph.ShiftRight:
		return binaryOf(func(dst, a, b []E) {
			for i := range dst {
				dst[i] = a[i] >> b[i]
			}
		})
	}
	return nil
}

func bindMod(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	truncated := op.(*graph.Mod).Truncated
	t := in[0].DType
	table := tensor.Typed[compute]{
		I8: modInts[int8](truncated), U8: modInts[uint8](truncated), I16: modInts[int16](truncated), U16: modInts[uint16](truncated),
		I32: modInts[int32](truncated), U32: modInts[uint32](truncated), I64: modInts[int64](truncated), U64: modInts[uint64](truncated),
		F32: modFloats[float32](truncated), F64: modFloats[float64](truncated),
	}
	f, ok := table.Of(t)
	tmp, cost := 0, 8
	if t.IsFloat() {
		cost = 40
	}
	if t == graph.F16 || t == graph.BF16 {
		tmp = 2 * BlockLen * 4
		wide := modFloat[float32](truncated)
		f = func(dst, a, b, _, tmp []byte) {
			x := widenBlock(t, tmp, 0, a)
			wide(x, x, widenBlock(t, tmp, 1, b))
			EncodeHalf(t, dst, x)
		}
	} else if !ok {
		return nil, tensor.NoKernel("remainder", t)
	}
	return newElementwise(out[0], in, cost, tmp, f)
}

func modInts[T tensor.Integer](truncated bool) compute {
	return binaryOf(func(dst, a, b []T) {
		for i := range dst {
			var r T
			if d := b[i]; d != 0 {
				r = a[i] % d
				if !truncated && r != 0 && (r < 0) != (d < 0) {
					r += d
				}
			}
			dst[i] = r
		}
	})
}

func modFloats[T tensor.Float](truncated bool) compute { return binaryOf(modFloat[T](truncated)) }

func modFloat[T tensor.Float](truncated bool) func(dst, a, b []T) {
	return func(dst, a, b []T) {
		for i := range dst {
			d := float64(b[i])
			r := math.Mod(float64(a[i]), d)
			switch {
			case truncated:
			case r == 0:
				r = math.Copysign(0, d)
			case (r < 0) != (d < 0):
				r += d
			}
			dst[i] = T(r)
		}
	}
}

func bindBitCast(_ graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	return newElementwise(out[0], in, 1, 0, func(dst, a, _, _, _ []byte) { copy(dst, a) })
}
