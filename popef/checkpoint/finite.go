package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
)

// Finite returns an error that wraps [ErrNotFinite] and names the first element that is infinite or no number, of a
// weight or a state, or that is no number, of a value of the optimizer. Elements of F16, F32 and F64 are looked at, and those of U16 where [Tensor] says that they
// are bfloat16.
func (c *Checkpoint) Finite() error {
	for i := range c.Tensors {
		if err := c.Tensors[i].Finite(); err != nil {
			return err
		}
	}
	return nil
}

// Finite is [Checkpoint.Finite] of one tensor.
func (t *Tensor) Finite() error {
	switch t.Role {
	case contract.LoadData, contract.State, contract.Optimizer:
	default:
		return nil // bits of random numbers
	}
	size := t.Info.DataType.Size()
	special := exponents[t.Info.DataType]
	if t.BFloat16 && t.Info.DataType == popef.U16 {
		special = func(b []byte) bool { return b[1]&0x7f == 0x7f && b[0]&0x80 != 0 }
	}
	if special == nil {
		return nil
	}
	for i := 0; (i+1)*size <= len(t.Data); i++ {
		b := t.Data[i*size:][:size]
		if !special(b) {
			continue
		}
		v := value(t.Info.DataType, b)
		if t.Role == contract.Optimizer && !math.IsNaN(v) {
			continue // a bound that never holds, for instance
		}
		if len(t.Given) == len(t.Data) && string(t.Given[i*size:][:size]) == string(b) {
			continue
		}
		return fmt.Errorf("%s, %v: %w: element %v is %v; go back to the checkpoint before, with a lower learning rate or gradients that are clipped",
			t.what(), t.Info, ErrNotFinite, index(t.Info.Shape, i), v)
	}
	return nil
}

// exponents report whether all bits of an element's exponent are set, by type.
var exponents = map[popef.DataType]func(b []byte) bool{
	popef.F16: func(b []byte) bool { return b[1]&0x7c == 0x7c },
	popef.F32: func(b []byte) bool { return b[3]&0x7f == 0x7f && b[2]&0x80 != 0 },
	popef.F64: func(b []byte) bool { return b[7]&0x7f == 0x7f && b[6]&0xf0 == 0xf0 },
}

// value returns an element that is not finite, as a number for people; U16 is bfloat16.
func value(t popef.DataType, b []byte) float64 {
	switch t {
	case popef.F64:
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	case popef.F32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	bits := binary.LittleEndian.Uint16(b)
	if t == popef.U16 {
		return float64(math.Float32frombits(uint32(bits) << 16))
	}
	if bits&0x3ff != 0 {
		return math.NaN()
	}
	return math.Inf(1 - 2*int(bits>>15))
}

// index returns the indices of element i of a tensor.
func index(shape []int64, i int) []int64 {
	out := make([]int64, len(shape))
	for k := len(shape) - 1; k >= 0; k-- {
		out[k], i = int64(i)%shape[k], int(int64(i)/shape[k])
	}
	return out
}
