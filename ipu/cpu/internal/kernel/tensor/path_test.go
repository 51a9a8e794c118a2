package tensor

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestChoosePath(t *testing.T) {
	for _, c := range []struct {
		want             string
		fastest, expects VectorPath
	}{
		{"", PathAVX512, PathAVX512},
		{"avx512", PathAVX512, PathAVX512},
		{"avx2", PathAVX512, PathAVX2},
		{"go", PathAVX512, PathGo},
		{"avx512", PathAVX2, PathAVX2},
		{"avx2", PathGo, PathGo},
		{"sse", PathAVX2, PathAVX2},
	} {
		require.Equal(t, c.expects, choosePath(c.want, c.fastest), "%+v", c)
	}
}
