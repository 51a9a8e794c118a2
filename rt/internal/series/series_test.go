package series

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/num"
)

// TestOf writes -2, 1, 4 (2, 5, 8 without a sign) behind an element that stays as it is.
func TestOf(t *testing.T) {
	signed, unsigned := []int{-2, 1, 4}, []int{2, 5, 8}
	le := binary.LittleEndian
	for _, c := range []struct {
		name string
		size int
		want []int
		read func(b []byte) float64
	}{
		{"bool", 1, []int{1, 1, 1}, func(b []byte) float64 { return float64(b[0]) }},
		{"int8", 1, signed, func(b []byte) float64 { return float64(int8(b[0])) }},
		{"int16", 2, signed, func(b []byte) float64 { return float64(int16(le.Uint16(b))) }},
		{"int32", 4, signed, func(b []byte) float64 { return float64(int32(le.Uint32(b))) }},
		{"int64", 8, signed, func(b []byte) float64 { return float64(int64(le.Uint64(b))) }},
		{"uint8", 1, unsigned, func(b []byte) float64 { return float64(b[0]) }},
		{"uint16", 2, unsigned, func(b []byte) float64 { return float64(le.Uint16(b)) }},
		{"uint32", 4, unsigned, func(b []byte) float64 { return float64(le.Uint32(b)) }},
		{"uint64", 8, unsigned, func(b []byte) float64 { return float64(le.Uint64(b)) }},
		{"float32", 4, signed, func(b []byte) float64 { return float64(math.Float32frombits(le.Uint32(b))) }},
		{"float64", 8, signed, func(b []byte) float64 { return math.Float64frombits(le.Uint64(b)) }},
		{"rt.Float16", 2, signed, func(b []byte) float64 { return float64(num.Float16(le.Uint16(b)).Float32()) }},
	} {
		write, size := Of(c.name)
		require.Equal(t, c.size, size, c.name)
		first := c.want[0]
		if c.name == "bool" {
			first = 7 // which no bool is
		}
		mem := make([]byte, 5*size)
		write(mem, 1, 3, first, 3)
		require.Equal(t, make([]byte, size), mem[:size], c.name)
		require.Equal(t, make([]byte, size), mem[4*size:], c.name)
		for i, want := range c.want {
			require.EqualValues(t, want, c.read(mem[(i+1)*size:]), "%s %d", c.name, i)
		}
	}
	write, size := Of("string")
	require.Nil(t, write)
	require.Zero(t, size)
}

// TestLowest: half precision has this number, and what is next below is infinite.
func TestLowest(t *testing.T) {
	lowest := num.Float16From(Lowest)
	require.EqualValues(t, Lowest, lowest.Float32())
	require.True(t, math.IsInf(float64(num.Float16(uint16(lowest)+1).Float32()), -1))
}
