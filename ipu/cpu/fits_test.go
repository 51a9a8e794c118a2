package cpu

import (
	"context"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
)

// TestMemoryOption refuses an executable at the first thing that does not fit: a
// result, the tables of a kernel, all together. The message names the node, the
// need and the limit.
func TestMemoryOption(t *testing.T) {
	exe := executable(t, twoLayers(t))
	_, err := New(ipu.EngineConfig{Name: "m", Executable: exe, Options: opt("memory", "10")})
	require.ErrorIs(t, err, ipu.ErrMemory)
	require.ErrorIs(t, err, budget.ErrExceeded)
	require.ErrorContains(t, err, `node 0 "mm1" of graph "main": out of memory: operator MatMul: result 0 of type f32[2,4]: it needs 32 B, more than the limit of 10 B; if the file is to be trusted`)

	_, err = New(ipu.EngineConfig{Name: "m", Executable: exe, Options: opt("memory", "1KiB")})
	require.ErrorIs(t, err, ipu.ErrMemory)
	require.ErrorContains(t, err, "operator MatMul: the tables of its kernel: it needs")

	m := newModel("m") // a few kernels, and more memory than they have tables
	x := m.b.AddLocal("x", graph.TensorType{DType: graph.F32, Shape: []int64{1 << 20}})
	g := m.b.BeginGraph("main")
	y := node(t, m.b, &graph.Unary{Fn: graph.Exp}, "exp", x)
	m.b.AddProgram(1, "main", m.b.CopyIn("x", x), m.b.Call(g), m.b.CopyOut("y", y))
	exe = executable(t, m.b)
	e, err := New(ipu.EngineConfig{Name: "m", Executable: exe, Options: opt("memory", "1MiB")})
	require.ErrorIs(t, err, ipu.ErrMemory, "a result of 4 MiB")
	require.Nil(t, e)
	e, err = New(ipu.EngineConfig{Name: "m", Executable: exe, Options: opt("memory", "4MiB")})
	require.NoError(t, err)
	d, err := (backend{}).Devices(context.Background())
	require.NoError(t, err)
	_, err = d[0].Attach()
	require.NoError(t, err)
	err = e.Load(context.Background(), d[0])
	require.ErrorIs(t, err, ipu.ErrMemory)
	require.ErrorContains(t, err, "for tables of kernels; most of all 4 MiB of tensor")
	require.ErrorContains(t, err, "more than the limit of 4 MiB")
	require.NoError(t, e.Close())

	_, err = New(ipu.EngineConfig{Name: "m", Executable: exe, Options: opt("memory", "12 parsecs")})
	require.ErrorIs(t, err, ipu.ErrInvalidOption)
}

// TestTablesOfLeftOutResults makes an engine of a pooling of which only the indices
// are wanted.
func TestTablesOfLeftOutResults(t *testing.T) {
	m := newModel("m")
	x := m.b.AddLocal("x", f32(1, 1, 4, 4))
	g := m.b.BeginGraph("main")
	two := []int64{2, 2}
	index := m.b.AddLocal("index", graph.TensorType{DType: graph.I64, Shape: []int64{1, 1, 2, 2}})
	pool := &graph.MaxPool{Kernel: two, Strides: two, Dilations: []int64{1, 1}, PadsBegin: []int64{0, 0}, PadsEnd: []int64{0, 0}}
	require.NoError(t, m.b.NodeTo(pool, "pool", []graph.TensorID{graph.None, index}, x))
	m.b.AddProgram(1, "main", m.b.CopyIn("x", x), m.b.Call(g), m.b.CopyOut("y", index))
	_, err := New(ipu.EngineConfig{Name: "m", Executable: executable(t, m.b)})
	require.NoError(t, err)
}

// TestTablesAreRefused makes engines of operators whose kernels would have tables
// of gigabytes for a result of a few bytes, or whose result is enormous: they are
// refused before anything of the kind is allocated.
func TestTablesAreRefused(t *testing.T) {
	const huge = 1 << 32
	one := []int64{1}
	for name, c := range map[string]struct {
		op graph.Op
		x  []int64
	}{
		"resize": {&graph.Resize{Mode: graph.ResizeNearest, Coordinates: graph.HalfPixel, Rounding: graph.RoundPreferFloor, Sizes: []int64{huge}, Scales: []float64{huge}}, one},
		"filter": {&graph.Resize{Mode: graph.ResizeLinear, Coordinates: graph.HalfPixel, Antialias: true, Sizes: []int64{1 << 16}, Scales: []float64{1. / 16}}, []int64{1 << 20}},
		"pad":    {&graph.Pad{Before: []int64{huge}, After: []int64{0}, Mode: graph.PadWrap}, one},
		"pool": {&graph.AveragePool{Kernel: []int64{huge}, Strides: []int64{huge}, Dilations: one, PadsBegin: []int64{huge}, PadsEnd: []int64{huge}},
			[]int64{1, 1, 8}},
		"dft":    {&graph.DFT{Axis: 1, Length: 1<<24 - 3, OneSided: false}, []int64{1, 4, 2}},
		"expand": {&graph.Expand{Shape: []int64{huge}}, one},
	} {
		t.Run(name, func(t *testing.T) {
			m := newModel("m")
			x := m.b.AddLocal("x", graph.TensorType{DType: graph.F32, Shape: c.x})
			g := m.b.BeginGraph("main")
			y := node(t, m.b, c.op, "big", x)
			m.b.AddProgram(1, "main", m.b.CopyIn("x", x), m.b.Call(g), m.b.CopyOut("y", y))
			exe := executable(t, m.b)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := New(ipu.EngineConfig{Name: "m", Executable: exe, Options: opt("memory", "64MiB")})
			runtime.ReadMemStats(&after)
			require.ErrorIs(t, err, ipu.ErrMemory)
			require.ErrorContains(t, err, `"big"`)
			require.ErrorContains(t, err, "more than the limit of 64 MiB; ")
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20))
		})
	}
}
