package sizes_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/family"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/sizes"
)

// TestPadding has inputs of every type filled up with what was declared along a dimension that they have.
func TestPadding(t *testing.T) {
	for _, c := range []struct {
		typ   popef.DataType
		value string
		want  []byte
	}{
		{popef.F32, "-1e9", []byte{0x28, 0x6b, 0x6e, 0xce}},
		{popef.F16, "1", []byte{0x00, 0x3c}},
		{popef.F64, "1", []byte{0, 0, 0, 0, 0, 0, 0xf0, 0x3f}},
		{popef.S64, "-1", []byte{255, 255, 255, 255, 255, 255, 255, 255}},
		{popef.U8, "200", []byte{200}},
		{popef.S16, "258", []byte{2, 1}},
		{popef.Bool, "1", []byte{1}},
		{popef.F32, "0", nil},
		{popef.S32, "0", nil},
	} {
		in := &family.Tensor{Name: "x", Type: popef.Input, Elem: c.typ, Axes: []family.Axis{{Dim: 0, Mul: 1, Div: 1}, {Dim: 1, Mul: 1, Div: 1}}}
		f := &family.Family{Dims: []family.Dim{{Name: "seq", Pads: []family.Pad{{Input: "other", Value: "5"}, {Input: "x", Value: c.value}}},
			{Name: "batch", Rows: true, Pads: []family.Pad{{Input: "x", Value: "9"}}}}}
		got, err := sizes.Padding(f, in)
		require.NoError(t, err)
		require.Equal(t, c.want, got, "%v %s", c.typ, c.value)
		f.Dims[1].Rows = false
		_, err = sizes.Padding(f, in)
		require.ErrorIs(t, err, rt.ErrData, "two dimensions, two values")
	}
	in := &family.Tensor{Name: "x", Type: popef.Input, Elem: popef.U8, Axes: []family.Axis{{Dim: 0, Mul: 1, Div: 1}}}
	for _, bad := range []string{"256", "-1", "1.5", "", "one"} {
		_, err := sizes.Padding(&family.Family{Dims: []family.Dim{{Name: "seq", Pads: []family.Pad{{Input: "x", Value: bad}}}}}, in)
		require.ErrorIs(t, err, rt.ErrData, bad)
	}
}
