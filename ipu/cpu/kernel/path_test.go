package kernel

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestChoosePath(t *testing.T) {
	for _, c := range []struct {
		want             string
		fastest, expects vectorPath
	}{
		{"", pathAVX512, pathAVX512},
		{"avx512", pathAVX512, pathAVX512},
		{"avx2", pathAVX512, pathAVX2},
		{"go", pathAVX512, pathGo},
		{"avx512", pathAVX2, pathAVX2},
		{"avx2", pathGo, pathGo},
		{"sse", pathAVX2, pathAVX2},
	} {
		require.Equal(t, c.expects, choosePath(c.want, c.fastest), "%+v", c)
	}
}
