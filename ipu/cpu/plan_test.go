package cpu

import (
	"slices"
	"strings"
	"testing"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu/internal/plan"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
	"github.com/stretchr/testify/require"
)

// planned plans what b built.
func planned(t require.TestingT, b *graph.Builder) *plan.Plan {
	exe, err := encoding.Decode(executable(t, b))
	require.NoError(t, err)
	p, err := PlanOf(exe, 2)
	require.NoError(t, err)
	return p
}

// bufferOf returns the buffer of a program that holds a tensor.
func bufferOf(t require.TestingT, p *plan.Program, tensor graph.TensorID) *plan.Buffer {
	for i := range p.Buffers {
		if slices.Contains(p.Buffers[i].Tensors, tensor) {
			return &p.Buffers[i]
		}
	}
	require.FailNow(t, "the tensor has no buffer")
	return nil
}

func TestPlanSharesMemory(t *testing.T) {
	b := graph.NewBuilder("chain")
	x := b.AddLocal("x", f32(4, 4))
	g := b.BeginGraph("main")
	relu := node(t, b, &graph.Unary{Fn: graph.Relu}, "relu", x)
	flat := node(t, b, &graph.Reshape{Shape: []int64{16}}, "flat", relu)
	neg := node(t, b, &graph.Unary{Fn: graph.Neg}, "neg", flat)
	double := node(t, b, &graph.Binary{Fn: graph.Add}, "double", neg, neg)
	b.AddProgram(0, "main", b.CopyIn("x", x), b.Call(g), b.CopyOut("y", double))
	p := planned(t, b)
	g0 := &p.Programs[0]
	require.Equal(t, 0, bufferOf(t, g0, x).Input, "the input is read where the host holds it")
	require.Equal(t, []graph.TensorID{x}, bufferOf(t, g0, x).Tensors, "and so nothing overwrites it")
	require.Equal(t, []graph.TensorID{relu, flat, neg}, bufferOf(t, g0, relu).Tensors)
	require.Equal(t, []graph.TensorID{double}, bufferOf(t, g0, double).Tensors, "an operand that is read twice is not overwritten")
	require.Equal(t, 5, bufferOf(t, g0, double).Output, "the output is written where the host wants it")
	require.Equal(t, int64(128), p.ArenaBytes)
	require.Equal(t, plan.Share, g0.Steps[2].Kind)
}

func TestPlanIsPrintedAndDeterministic(t *testing.T) {
	want := planned(t, twoLayers(t))
	for range 3 {
		require.Equal(t, want, planned(t, twoLayers(t)))
	}
	text := want.String()
	for _, line := range []string{
		`plan "two layers": 2 threads, arena `, `persistent t1 "w1" f32[3,4], 48 B`, `program 1 "main": 6 steps`,
		`0 copy in "x" -> b0`, `compute Unary "relu" b1 -> b1`, `, or the memory that step 0 reads`, `, or the memory that step 5 fills`,
	} {
		require.Contains(t, text, line)
	}
	require.Equal(t, strings.Count(text, "\nprogram"), 3)
}

func TestMemoryReport(t *testing.T) {
	e := newLoaded(t, twoLayers(t))
	r := e.MemoryReport()
	require.Equal(t, e.Plan().ArenaBytes, r.ArenaBytes)
	require.Equal(t, int64(32), r.ConstantBytes)
	require.Equal(t, int64(128), r.PersistentBytes, "w1 and b1, a cache line each")
	for _, m := range r.Tensors {
		require.Equal(t, 1, m.Program)
		require.LessOrEqual(t, m.Offset+m.Bytes, r.ArenaBytes)
		require.LessOrEqual(t, m.First, m.Last)
	}
	require.NotEmpty(t, r.Tensors)
}

func TestOperandsPackedOnlyIfTheySeldomChange(t *testing.T) {
	build := func(streamed bool) *plan.Plan {
		b := graph.NewBuilder("mm")
		x, w := b.AddLocal("x", f32(16, 16)), b.AddPersistent("w", f32(256))
		g := b.BeginGraph("main")
		shaped := node(t, b, &graph.Reshape{Shape: []int64{16, 16}}, "shaped", w)
		y := node(t, b, &graph.MatMul{}, "mm", x, shaped)
		in := b.CopyIn("w", w)
		steps := []graph.Step{b.CopyIn("x", x), b.Call(g), b.CopyOut("y", y)}
		if streamed {
			steps = append([]graph.Step{in}, steps...)
		}
		b.AddProgram(0, "load", in)
		b.AddProgram(1, "main", steps...)
		return planned(t, b)
	}
	require.Len(t, build(false).Packed, 1, "through a reshape too")
	require.False(t, build(false).Persistent[0].Stored)
	require.Empty(t, build(true).Packed)
	require.True(t, build(true).Persistent[0].Borrowed)
}

func TestResultWaitsForOperandsReadTwice(t *testing.T) {
	b := graph.NewBuilder("double")
	s := b.AddPersistent("s", f32(4))
	g := b.BeginGraph("main")
	require.NoError(t, b.NodeTo(&graph.Binary{Fn: graph.Add}, "add", []graph.TensorID{s}, s, s))
	b.AddProgram(0, "main", b.Call(g))
	p := planned(t, b)
	require.Equal(t, []plan.StepKind{plan.Compute, plan.Move}, []plan.StepKind{p.Programs[0].Steps[0].Kind, p.Programs[0].Steps[1].Kind})
}

func TestHugeProgramsAreRefused(t *testing.T) {
	b := graph.NewBuilder("huge")
	x := b.AddLocal("x", f32(1))
	g := b.BeginGraph("main")
	for range 1000 {
		node(t, b, &graph.Unary{Fn: graph.Neg}, "neg", x)
	}
	steps := []graph.Step{b.CopyIn("x", x)}
	for range 200 {
		steps = append(steps, b.Call(g))
	}
	b.AddProgram(0, "main", steps...)
	_, err := New(ipu.EngineConfig{Executable: executable(t, b)})
	require.ErrorContains(t, err, "more than 131072 steps")
}

// Operands of a Concat are computed where the result lies, which may be the
// host's memory, and slices of whole rows are looked at where they lie.
func TestPlanMovesNothing(t *testing.T) {
	b := graph.NewBuilder("branches")
	x := b.AddLocal("x", f32(4, 4))
	g := b.BeginGraph("main")
	upper := node(t, b, &graph.Slice{Start: []int64{0, 0}, Size: []int64{2, 4}, Step: []int64{1, 1}}, "upper", x)
	lower := node(t, b, &graph.Slice{Start: []int64{2, 0}, Size: []int64{2, 4}, Step: []int64{1, 1}}, "lower", x)
	relu := node(t, b, &graph.Unary{Fn: graph.Relu}, "relu", upper)
	neg := node(t, b, &graph.Unary{Fn: graph.Neg}, "neg", lower)
	flat := node(t, b, &graph.Reshape{Shape: []int64{1, 8}}, "flat", neg)
	rows := node(t, b, &graph.Reshape{Shape: []int64{1, 8}}, "rows", relu)
	both := node(t, b, &graph.Concat{}, "both", rows, flat)
	abs := node(t, b, &graph.Unary{Fn: graph.Abs}, "abs", lower)
	all := node(t, b, &graph.Concat{Axis: 1}, "all", node(t, b, &graph.Reshape{Shape: []int64{1, 16}}, "one", both), node(t, b, &graph.Reshape{Shape: []int64{1, 8}}, "two", abs))
	b.AddProgram(0, "main", b.CopyIn("x", x), b.Call(g), b.CopyOut("y", all))
	p := planned(t, b)
	g0 := &p.Programs[0]
	for _, s := range g0.Steps {
		if s.Op == "Slice" || s.Op == "Concat" || s.Op == "Reshape" {
			require.Equal(t, plan.Share, s.Kind, "%s\n%v", s.Name, p)
		}
	}
	y := bufferOf(t, g0, all)
	require.GreaterOrEqual(t, y.Output, 0)
	for tensor, at := range map[graph.TensorID]int64{relu: 0, neg: 32, both: 0, abs: 64} {
		u := bufferOf(t, g0, tensor)
		require.True(t, u.Part)
		require.Equal(t, y.Offset+at, u.Offset)
	}
	require.Equal(t, 0, bufferOf(t, g0, x).Input)
	require.True(t, bufferOf(t, g0, lower).Part)
	require.Equal(t, int64(64+128), p.ArenaBytes)

	e := newLoaded(t, b)
	in, out := wave(16, 1), make([]float32, 24)
	connect(t, e, map[string]ipu.Stream{"x": sink{bytesOf(in)}, "y": sink{bytesOf(out)}})
	run(t, e, 0)
	for i, v := range out {
		want := []float32{max(in[i%8], 0), -in[8+i%8], max(in[8+i%8], -in[8+i%8])}[i/8]
		require.Equal(t, want, v)
	}
}
