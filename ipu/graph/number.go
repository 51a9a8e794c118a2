package graph

import (
	"encoding/binary"
	"math"

	"github.com/popefgen/popefgen/ipu/num"
)

// Number returns the element of type t at the beginning of b, row-major and little-endian as in
// [Tensor.Data], as a float64, rounded if it has more bits; NaN for types that are none.
func Number(t DType, b []byte) float64 {
	le := binary.LittleEndian
	switch t {
	case Bool, U8, U4, U2:
		return float64(b[0])
	case I8, I4, I2:
		return float64(int8(b[0]))
	case I16:
		return float64(int16(le.Uint16(b)))
	case U16:
		return float64(le.Uint16(b))
	case I32:
		return float64(int32(le.Uint32(b)))
	case U32:
		return float64(le.Uint32(b))
	case I64:
		return float64(int64(le.Uint64(b)))
	case U64:
		return float64(le.Uint64(b))
	case F16:
		return float64(num.Float16(le.Uint16(b)).Float32())
	case BF16:
		return float64(num.BFloat16(le.Uint16(b)).Float32())
	case F32:
		return float64(math.Float32frombits(le.Uint32(b)))
	case F64:
		return math.Float64frombits(le.Uint64(b))
	case F8E4M3:
		return float64(num.Float8E4M3(b[0]).Float32())
	case F8E5M2:
		return float64(num.Float8E5M2(b[0]).Float32())
	}
	return math.NaN()
}
