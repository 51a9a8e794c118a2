package outputs

import (
	"encoding/binary"
	"math"
	"strconv"

	"github.com/popefgen/popefgen/ipu/num"
	"github.com/popefgen/popefgen/popef"
)

// value returns the element that begins at b, rounded if it has more bits
// than a float64.
func value(t popef.DataType, b []byte) float64 {
	le := binary.LittleEndian
	switch t {
	case popef.F64:
		return math.Float64frombits(le.Uint64(b))
	case popef.F32:
		return float64(math.Float32frombits(le.Uint32(b)))
	case popef.F16:
		return float64(num.Float16(le.Uint16(b)).Float32())
	case popef.F8143:
		return float64(num.Float8E4M3(b[0]).Float32())
	case popef.F8152:
		return float64(num.Float8E5M2(b[0]).Float32())
	case popef.S64:
		return float64(int64(le.Uint64(b)))
	case popef.S32:
		return float64(int32(le.Uint32(b)))
	case popef.S16:
		return float64(int16(le.Uint16(b)))
	case popef.S8:
		return float64(int8(b[0]))
	case popef.U64:
		return float64(le.Uint64(b))
	case popef.U32:
		return float64(le.Uint32(b))
	case popef.U16:
		return float64(le.Uint16(b))
	}
	return float64(b[0])
}

// IsFloat reports whether elements of the type are floating point, with an
// encoding that is known.
func IsFloat(t popef.DataType) bool { _, ok := precisions[t]; return ok }

// order returns a number that grows by one from each value of a floating-point
// type to the next, so that differences count units in the last place.
func order(t popef.DataType, b []byte) int64 {
	var bits uint64
	for i := t.Size() - 1; i >= 0; i-- {
		bits = bits<<8 | uint64(b[i])
	}
	sign := uint64(1) << (8*t.Size() - 1)
	if bits&sign != 0 {
		return -int64(bits &^ sign)
	}
	return int64(bits)
}

// ulps returns how many units in the last place lie between two elements.
func ulps(t popef.DataType, a, b []byte) uint64 {
	x, y := order(t, a), order(t, b)
	if x < y {
		x, y = y, x
	}
	return uint64(x) - uint64(y)
}

// text shows an element with all digits that tell it apart.
func text(t popef.DataType, b []byte) string {
	switch t {
	case popef.F64:
		return strconv.FormatFloat(value(t, b), 'g', -1, 64)
	case popef.U64:
		return strconv.FormatUint(binary.LittleEndian.Uint64(b), 10)
	case popef.S64:
		return strconv.FormatInt(int64(binary.LittleEndian.Uint64(b)), 10)
	}
	return strconv.FormatFloat(value(t, b), 'g', -1, 32)
}
