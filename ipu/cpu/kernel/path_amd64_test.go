package kernel

import (
	"os"
	"regexp"
	"strconv"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// TestAssemblyOffsets compares what the writer of the assembly believes of
// the structs that it is given with what they are.
func TestAssemblyOffsets(t *testing.T) {
	var g gemmArgs
	var p tap
	text, err := os.ReadFile("internal/asm/gemm.go")
	require.NoError(t, err)
	got := map[string]uintptr{}
	for _, m := range regexp.MustCompile(`(?m)^\t(\w+) += (\d+)$`).FindAllStringSubmatch(string(text), -1) {
		n, err := strconv.Atoi(m[2])
		require.NoError(t, err)
		got[m[1]] = uintptr(n)
	}
	require.Equal(t, map[string]uintptr{
		"gemmA": unsafe.Offsetof(g.a), "gemmB": unsafe.Offsetof(g.b), "gemmC": unsafe.Offsetof(g.c), "gemmD": unsafe.Offsetof(g.d),
		"gemmRows": unsafe.Offsetof(g.rows), "gemmK": unsafe.Offsetof(g.k),
		"gemmARow": unsafe.Offsetof(g.aRow), "gemmAStep": unsafe.Offsetof(g.aStep), "gemmBStep": unsafe.Offsetof(g.bStep),
		"gemmCRow": unsafe.Offsetof(g.cRow), "gemmDRow": unsafe.Offsetof(g.dRow), "gemmASkip": unsafe.Offsetof(g.aSkip),
		"gemmTaps": unsafe.Offsetof(g.taps), "gemmNTaps": unsafe.Offsetof(g.nTaps),
		"gemmAlpha": unsafe.Offsetof(g.alpha), "gemmMask": unsafe.Offsetof(g.mask),
		"gemmColumn": unsafe.Offsetof(g.column), "gemmLanes": unsafe.Offsetof(g.lanes),
		"tapOffset": unsafe.Offsetof(p.offset), "tapMask": unsafe.Offsetof(p.mask), "tapLanes": unsafe.Offsetof(p.lanes),
		"tapSize": unsafe.Sizeof(p),
	}, got)
}
