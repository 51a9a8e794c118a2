package wire

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFormat(t *testing.T) {
	for _, c := range []struct {
		dims []int64
		want string
	}{
		{[]int64{3, 224, 224}, "FORMAT_NCHW"}, {[]int64{1, 8, 8}, "FORMAT_NCHW"}, {[]int64{224, 224, 3}, "FORMAT_NHWC"}, {[]int64{-1, -1, 1}, "FORMAT_NHWC"}, {[]int64{3, -1, -1}, "FORMAT_NCHW"},
		{[]int64{4, 8, 8}, "FORMAT_NONE"}, {[]int64{3, 224}, "FORMAT_NONE"}, {[]int64{1, 3, 224, 224}, "FORMAT_NONE"}, {nil, "FORMAT_NONE"},
	} {
		require.Equal(t, c.want, Format(c.dims), "%v", c.dims)
	}
}
