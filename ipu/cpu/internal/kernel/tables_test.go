package kernel

import (
	"maps"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/nhwc"
	"github.com/popefgen/popefgen/ipu/graph"
)

// controls are the operators that run graphs and have no kernels.
var controls = []string{"If", "Loop"}

// needs reports for each of these operators whether this processor has a kernel for the examples that are drawn.
var needs = map[string]func() bool{
	"NHWCBinary": nhwc.Supported, "NHWCConcat": nhwc.HasLookup, "NHWCConv": nhwc.Supported, "NHWCLookup": nhwc.HasLookup, "NHWCMaxPool": nhwc.Supported,
}

// TestTablesAreDeclared binds kernels of every operator, of random shapes, and
// wants none to allocate more than [Tables] says: what is declared is counted
// before, and refused where it is too much.
func TestTablesAreDeclared(t *testing.T) {
	kinds := graph.Kinds()
	for _, family := range families {
		kinds = slices.AppendSeq(kinds, maps.Keys(family))
	}
	slices.Sort(kinds)
	for _, kind := range slices.Compact(kinds) {
		if slices.Contains(controls, kind) {
			continue
		}
		draw := drawn[kind]
		require.NotNil(t, draw, "operator %s has a kernel, but no example in this test", kind)
		t.Run(kind, func(t *testing.T) {
			bound := 0
			kerneltest.CheckPaths(t, func(t *rapid.T) {
				op, in := draw(sizes{t})
				require.Equal(t, kind, op.Kind())
				out, err := op.Infer(in)
				if err != nil {
					return
				}
				declared := Tables(op, in, out)
				if declared > 64<<20 {
					return
				}
				got := allocated(func() { _, err = New(op, in, out) })
				if err == nil {
					bound++
				}
				require.LessOrEqual(t, got, declared, "%v of %v", op, in)
			})
			if has := needs[kind]; bound == 0 && has != nil && !has() {
				t.Skip("this processor lacks the instructions that its kernel needs")
			}
			require.NotZero(t, bound, "no example has a kernel")
		})
	}
}

// allocated returns the bytes that f allocates.
func allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}
