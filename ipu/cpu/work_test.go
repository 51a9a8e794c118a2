package cpu

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
)

// TestWorkOption refuses programs that would run for years, and what an option
// does not allow.
func TestWorkOption(t *testing.T) {
	build := func(counts ...int64) []byte {
		m := newModel("m")
		x := m.b.AddLocal("x", f32(4))
		g := m.b.BeginGraph("main")
		y := node(t, m.b, &graph.Unary{Fn: graph.Neg}, "neg", x)
		step := m.b.Call(g)
		for _, n := range counts {
			step = m.b.Repeat(n, step)
		}
		m.b.AddProgram(1, "main", m.b.CopyIn("x", x), step, m.b.CopyOut("y", y))
		return executable(t, m.b)
	}
	_, err := New(ipu.EngineConfig{Executable: build(1<<30, 1<<30)})
	require.ErrorIs(t, err, ipu.ErrApplication)
	require.ErrorContains(t, err, `program 1 "main" takes more than 9e18 operations, more than the limit of 1e+15`)
	exe := build(1000)
	_, err = New(ipu.EngineConfig{Executable: exe})
	require.NoError(t, err)
	_, err = New(ipu.EngineConfig{Executable: exe, Options: opt("work", "1000")})
	require.ErrorContains(t, err, "more than the limit of 1e+03; if the file is to be trusted, raise the limit")
	_, err = New(ipu.EngineConfig{Executable: exe, Options: opt("work", "none")})
	require.ErrorIs(t, err, ipu.ErrInvalidOption)
}
