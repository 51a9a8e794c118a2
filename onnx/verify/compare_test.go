package verify

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph"
)

func f32(vs ...float32) []byte {
	var b []byte
	for _, v := range vs {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

func TestCompare(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	tol := Tolerance{Rel: 1e-3, Abs: 1e-7}
	for _, c := range []struct {
		name      string
		dtype     graph.DType
		got, want []byte
		text      string
	}{
		{"equal", graph.F32, f32(1, 2, nan, inf), f32(1, 2, nan, inf), "worst error 0"},
		{"within", graph.F32, f32(1.0005, 2), f32(1, 2), "worst error 0.0005"},
		{"beyond", graph.F32, f32(1.002, 2.003, 3, 4), f32(1, 2, 3, 4), "2 of 4 elements differ, worst at [0 1]: got 2.003000020980835, want 2"},
		{"zero needs the absolute part", graph.F32, f32(1e-6, 0), f32(0, 0), "1 of 2 elements differ, worst at [0 0]: got 9.999999974752427e-07, want 0"},
		{"one NaN", graph.F32, f32(nan, 0), f32(0, 0), "1 of 2 elements differ, worst at [0 0]: got NaN, want 0"},
		{"infinities of either sign", graph.F32, f32(inf, 0), f32(-inf, 0), "1 of 2 elements differ, worst at [0 0]: got +Inf, want -Inf"},
		{"finite for infinite", graph.F32, f32(3e38, 0), f32(inf, 0), "1 of 2 elements differ, worst at [0 0]: got 3.0000000054977558e+38, want +Inf"},
		{"integers are exact", graph.I16, []byte{0xff, 0xff, 5, 0}, []byte{0xfe, 0xff, 5, 0}, "1 of 2 elements differ, worst at [0 0]: got -1, want -2"},
		{"large integers", graph.I64, binary.LittleEndian.AppendUint64(make([]byte, 8), 1<<60+1), binary.LittleEndian.AppendUint64(make([]byte, 8), 1<<60),
			"1 of 2 elements differ, worst at [0 1]: got 1.152921504606847e+18, want 1.152921504606847e+18"},
		{"half", graph.F16, []byte{0, 0x3c, 0, 0}, []byte{0, 0x3c, 0, 0x80}, "worst error 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := int64(len(c.got) / c.dtype.Size())
			shape := []int64{1, n}
			if n == 4 {
				shape = []int64{2, 2}
			}
			d, err := Compare(graph.TensorType{DType: c.dtype, Shape: shape}, c.got, c.want, tol)
			require.NoError(t, err)
			require.Equal(t, c.text, d.String())
		})
	}
	_, err := Compare(graph.TensorType{DType: graph.F32, Shape: []int64{3}}, f32(1), f32(1), tol)
	require.ErrorContains(t, err, "found 4 and 4 bytes, want 12")
}
