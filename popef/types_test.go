package popef_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/popef"
)

func TestDataTypes(t *testing.T) {
	want := []struct {
		name string
		size int
	}{
		{"Bool", 1}, {"F8", 1}, {"F16", 2}, {"F32", 4}, {"F64", 8}, {"S8", 1}, {"U8", 1}, {"S16", 2}, {"U16", 2},
		{"S32", 4}, {"U32", 4}, {"S64", 8}, {"U64", 8}, {"F8143", 1}, {"F8152", 1},
	}
	for i, w := range want {
		d := popef.DataType(i)
		require.True(t, d.Valid())
		require.Equal(t, w.name, d.String())
		require.Equal(t, w.size, d.Size())
	}
	require.EqualValues(t, 14, popef.F8152)
	for _, d := range []popef.DataType{15, math.MaxUint16} {
		require.False(t, d.Valid())
		require.Zero(t, d.Size())
	}
	require.Equal(t, "DataType(15)", popef.DataType(15).String())
	require.Equal(t, []string{"unknown", "input", "output", "TensorType(3)"},
		[]string{popef.Unknown.String(), popef.Input.String(), popef.Output.String(), popef.TensorType(3).String()})
	require.Equal(t, []bool{true, true, false, false},
		[]bool{popef.Unknown.TakesData(), popef.Input.TakesData(), popef.Output.TakesData(), popef.TensorType(3).TakesData()})
	require.Equal(t, "BlobKind(5)", popef.BlobKind(5).String())
	require.Equal(t, "Codec(9)", popef.Codec(9).String())
}

func TestTensorInfo(t *testing.T) {
	const no = -1
	cases := []struct {
		shape           []int64
		dt              popef.DataType
		elements, bytes int64
		text            string
	}{
		{nil, popef.F32, 1, 4, "F32 []"},
		{[]int64{}, popef.U8, 1, 1, "U8 []"},
		{[]int64{1}, popef.U8, 1, 1, "U8 [1]"},
		{[]int64{4, 10}, popef.F32, 40, 160, "F32 [4 10]"},
		{[]int64{4, 0, 10}, popef.F64, 0, 0, "F64 [4 0 10]"},
		{[]int64{math.MaxInt64, 0}, popef.F64, 0, 0, "F64 [9223372036854775807 0]"},
		{[]int64{math.MaxInt64}, popef.U8, math.MaxInt64, math.MaxInt64, "U8 [9223372036854775807]"},
		{[]int64{math.MaxInt64}, popef.F16, math.MaxInt64, no, "F16 [9223372036854775807]"},
		{[]int64{1 << 32, 1 << 31}, popef.U8, no, no, "U8 [4294967296 2147483648]"},
		{[]int64{0, -1}, popef.U8, no, no, "U8 [0 -1]"},
		{[]int64{2}, 77, 2, no, "DataType(77) [2]"},
		{slices.Repeat([]int64{1}, 64), popef.S16, 1, 2, ""},
		{slices.Repeat([]int64{1}, 65), popef.S16, no, no, ""},
	}
	for _, c := range cases {
		i := popef.TensorInfo{Shape: c.shape, DataType: c.dt}
		n, err := i.Elements()
		require.Equal(t, c.elements == no, err != nil, "%v", i)
		if err == nil {
			require.Equal(t, c.elements, n, "%v", i)
		}
		n, err = i.SizeInBytes()
		require.Equal(t, c.bytes == no, err != nil, "%v", i)
		if err == nil {
			require.Equal(t, c.bytes, n, "%v", i)
		}
		if c.text != "" {
			require.Equal(t, c.text, i.String())
		}
	}
	require.False(t, popef.TensorInfo{}.Equal(popef.TensorInfo{Shape: []int64{1}}))
	require.True(t, popef.TensorInfo{}.Equal(popef.TensorInfo{Shape: []int64{}}))
	require.False(t, popef.TensorInfo{Shape: []int64{2, 3}}.Equal(popef.TensorInfo{Shape: []int64{3, 2}}))
}
