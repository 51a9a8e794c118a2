package kernel

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// eachPath runs fn on every path that the machine has.
func eachPath(t *testing.T, fn func(*testing.T)) {
	chosen := path
	defer func() { path = chosen }()
	for p := pathGo; p <= fastestPath(); p++ {
		t.Run(p.String(), func(t *testing.T) {
			path = p
			fn(t)
		})
	}
}

// draws returns how many of n random examples a test takes: fewer with -short,
// as rapid does.
func draws(n int) int {
	if testing.Short() {
		return n / 10
	}
	return n
}

// checkPaths is rapid.Check on every path that the machine has.
func checkPaths(t *testing.T, property func(*rapid.T)) {
	eachPath(t, func(t *testing.T) { rapid.Check(t, property) })
}

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
