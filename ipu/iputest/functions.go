package iputest

import (
	"encoding/binary"
	"fmt"
	"math"
)

// builtin are the functions that every system has.
var builtin = map[string]Function{
	"copy": copyBytes,
	"add":  elementwise(func(a, b float32) float32 { return a + b }),
	"mul":  elementwise(func(a, b float32) float32 { return a * b }),
}

func copyBytes(in, out [][]byte) error {
	if len(in) != 1 {
		return fmt.Errorf("copy: it has %d operands, want 1", len(in))
	}
	for _, o := range out {
		if len(o) != len(in[0]) {
			return fmt.Errorf("copy: a result has %d bytes and the operand %d", len(o), len(in[0]))
		}
		copy(o, in[0])
	}
	return nil
}

// elementwise makes a function of float32 elements. Operands that are shorter
// than the result repeat.
func elementwise(f func(a, b float32) float32) Function {
	return func(in, out [][]byte) error {
		if len(in) != 2 || len(out) != 1 || len(out[0])%4 != 0 {
			return fmt.Errorf("it has %d operands and %d results, want 2 and 1 of whole elements", len(in), len(out))
		}
		n := len(out[0]) / 4
		if n == 0 {
			return nil
		}
		for _, b := range in {
			if k := len(b) / 4; len(b)%4 != 0 || k == 0 || n%k != 0 {
				return fmt.Errorf("an operand has %d bytes, which do not divide the %d of the result", len(b), len(out[0]))
			}
		}
		at := func(b []byte, i int) float32 {
			return math.Float32frombits(binary.LittleEndian.Uint32(b[4*i%len(b):]))
		}
		for i := range n {
			binary.LittleEndian.PutUint32(out[0][4*i:], math.Float32bits(f(at(in[0], i), at(in[1], i))))
		}
		return nil
	}
}
