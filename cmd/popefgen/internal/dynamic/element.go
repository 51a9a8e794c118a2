package dynamic

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"

	"github.com/popefgen/popefgen/ipu/num"
	"github.com/popefgen/popefgen/popef"
)

// elementText shows one element, which begins at b.
func elementText(t popef.DataType, b []byte) string {
	le := binary.LittleEndian
	f32 := func(v float32) string { return strconv.FormatFloat(float64(v), 'g', 6, 32) }
	switch t {
	case popef.Bool:
		return strconv.FormatBool(b[0] != 0)
	case popef.F8:
		return fmt.Sprintf("%#02x", b[0])
	case popef.F8143:
		return f32(num.Float8E4M3(b[0]).Float32())
	case popef.F8152:
		return f32(num.Float8E5M2(b[0]).Float32())
	case popef.F16:
		return f32(num.Float16(le.Uint16(b)).Float32())
	case popef.F32:
		return f32(math.Float32frombits(le.Uint32(b)))
	case popef.F64:
		return strconv.FormatFloat(math.Float64frombits(le.Uint64(b)), 'g', 10, 64)
	case popef.S8:
		return strconv.Itoa(int(int8(b[0])))
	case popef.U8:
		return strconv.Itoa(int(b[0]))
	case popef.S16:
		return strconv.Itoa(int(int16(le.Uint16(b))))
	case popef.U16:
		return strconv.Itoa(int(le.Uint16(b)))
	case popef.S32:
		return strconv.Itoa(int(int32(le.Uint32(b))))
	case popef.U32:
		return strconv.FormatUint(uint64(le.Uint32(b)), 10)
	case popef.S64:
		return strconv.FormatInt(int64(le.Uint64(b)), 10)
	}
	return strconv.FormatUint(le.Uint64(b), 10)
}

// FillRandom fills data with random elements: floats are standard normal,
// integers 0 or 1 (which every index and mask can be), bools either.
func FillRandom(t popef.DataType, data []byte, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 0))
	le := binary.LittleEndian
	size := t.Size()
	for ; len(data) >= size; data = data[size:] {
		switch t {
		case popef.F32:
			le.PutUint32(data, math.Float32bits(float32(rng.NormFloat64())))
		case popef.F64:
			le.PutUint64(data, math.Float64bits(rng.NormFloat64()))
		case popef.F16:
			le.PutUint16(data, uint16(num.Float16From(float32(rng.NormFloat64()))))
		case popef.F8143:
			data[0] = byte(num.Float8E4M3From(float32(rng.NormFloat64())))
		case popef.F8152:
			data[0] = byte(num.Float8E5M2From(float32(rng.NormFloat64())))
		default:
			clear(data[:size])
			data[0] = byte(rng.IntN(2))
		}
	}
}
