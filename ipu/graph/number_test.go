package graph

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNumber(t *testing.T) {
	for _, c := range []struct {
		t    DType
		data []byte
		want float64
	}{
		{Bool, []byte{1}, 1}, {U8, []byte{200}, 200}, {U4, []byte{15}, 15}, {U2, []byte{3}, 3},
		{I8, []byte{0x80}, -128}, {I4, []byte{0xf8}, -8}, {I2, []byte{0xfe}, -2},
		{I16, []byte{0xff, 0x7f}, math.MaxInt16}, {I16, []byte{0, 0x80}, math.MinInt16}, {U16, []byte{0, 0x80}, 1 << 15},
		{I32, []byte{0, 0, 0, 0x80}, math.MinInt32}, {U32, []byte{0, 0, 0, 0x80}, 1 << 31},
		{I64, []byte{0, 0, 0, 0, 0, 0, 0, 0x80}, math.MinInt64}, {U64, []byte{0, 0, 0, 0, 0, 0, 0, 0x80}, 1 << 63},
		{F16, []byte{0, 0xc1}, -2.5}, {BF16, []byte{0x20, 0xc0}, -2.5},
		{F32, []byte{0, 0, 0x20, 0xc0}, -2.5}, {F64, []byte{0, 0, 0, 0, 0, 0, 4, 0xc0}, -2.5},
		{F8E4M3, []byte{0x4a}, 2.5}, {F8E5M2, []byte{0x45}, 2.5},
	} {
		require.Equal(t, c.want, Number(c.t, append(c.data, 0x55)), "%v", c.t)
	}
	require.True(t, math.IsNaN(Number(Invalid, nil)))
}
