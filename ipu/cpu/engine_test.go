package cpu

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// twoLayers is relu(x·w1+b1)·w2 with w1 persistent (set by program 0) and w2 a
// constant: program 1 maps "x" [2,3] to "y" [2,2], program 2 delivers w1.
func twoLayers(t require.TestingT) *graph.Builder {
	b := graph.NewBuilder("two layers")
	x, y := b.AddLocal("x", f32(2, 3)), graph.TensorID(0)
	w1, b1 := b.AddPersistent("w1", f32(3, 4)), b.AddPersistent("b1", f32(4))
	w2 := b.AddConst("w2", f32(4, 2), bytesOf([]float32{1, 0, 0, 1, 1, 1, -1, 2}))
	g := b.BeginGraph("main")
	y = node(t, b, &graph.MatMul{}, "mm1", x, w1)
	y = node(t, b, &graph.Binary{Fn: graph.Add}, "add", y, b1)
	y = node(t, b, &graph.Unary{Fn: graph.Relu}, "relu", y)
	y = node(t, b, &graph.MatMul{}, "mm2", y, w2)
	b.AddProgram(0, "load", b.CopyIn("w1", w1), b.CopyIn("b1", b1))
	b.AddProgram(1, "main", b.CopyIn("x", x), b.Call(g), b.CopyOut("y", y))
	b.AddProgram(2, "save", b.CopyOut("w1_out", w1))
	return b
}

var (
	w1Values = []float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
	b1Values = []float32{-20, 0, 1, -1}
	xValues  = []float32{1, 0, -1, 2, 1, 1}
)

// twoLayersWant computes what program 1 of twoLayers gives.
func twoLayersWant(x, w1, b1 []float32) []float32 {
	w2 := []float32{1, 0, 0, 1, 1, 1, -1, 2}
	y := make([]float32, 4)
	for i := range 2 {
		for j := range 4 {
			h := b1[j]
			for k := range 3 {
				h += x[3*i+k] * w1[4*k+j]
			}
			for n := range 2 {
				y[2*i+n] += max(h, 0) * w2[2*j+n]
			}
		}
	}
	return y
}

// variants are the options under which results must not change.
var variants = map[string][]ipu.Option{
	"default":    nil,
	"one thread": opt("threads", "1"),
	"no inplace": opt("inplace", "off"),
	"no alias":   opt("alias", "off"),
	"no prepack": opt("prepack", "off"),
	"no layout":  opt("layout", "off"),
	"no tiling":  opt("tiling", "off"),
	"plain":      opt("threads", "1", "inplace", "off", "alias", "off", "prepack", "off", "layout", "off"),
}

func TestTwoLayers(t *testing.T) {
	for name, options := range variants {
		t.Run(name, func(t *testing.T) {
			e := newLoaded(t, twoLayers(t), options...)
			require.True(t, e.Inline())
			y, w1 := make([]float32, 4), make([]float32, 12)
			connect(t, e, map[string]ipu.Stream{
				"w1": in(t, w1Values), "b1": feeder{newHost(t, bytesOf(b1Values))},
				"x": in(t, xValues), "y": out(t, y), "w1_out": drain{newHost(t, bytesOf(w1))},
			})
			run(t, e, 1)
			require.Equal(t, []float32{0, 0, 0, 0}, y, "persistent tensors are zero until they are set")
			run(t, e, 0)
			run(t, e, 1)
			require.Equal(t, twoLayersWant(xValues, w1Values, b1Values), y)
			run(t, e, 2)
			require.Equal(t, w1Values, w1)

			load(t, e)
			run(t, e, 1)
			require.Equal(t, []float32{0, 0, 0, 0}, y, "loading again forgets persistent tensors")
		})
	}
}

// TestRelease checks when the memory of a constant stream is released: once the
// weight is packed or was read for the last time, and never while requests use it
// in place.
func TestRelease(t *testing.T) {
	b := graph.NewBuilder("release")
	x := b.AddLocal("x", f32(16, 16))
	packed, scaled, shift := b.AddPersistent("packed", f32(16, 16)), b.AddPersistent("scaled", f32(16, 16)), b.AddPersistent("shift", f32(16))
	factor := b.AddPersistent("factor", f32(16, 16))
	prepare := b.BeginGraph("prepare")
	require.NoError(t, b.NodeTo(&graph.Binary{Fn: graph.Mul}, "scale", []graph.TensorID{scaled}, factor, factor))
	g := b.BeginGraph("main")
	y := node(t, b, &graph.MatMul{}, "first", x, packed)
	y = node(t, b, &graph.MatMul{}, "second", y, scaled)
	y = node(t, b, &graph.Binary{Fn: graph.Add}, "shift", y, shift)
	b.AddProgram(0, "load", b.CopyIn("packed", packed), b.CopyIn("factor", factor), b.CopyIn("shift", shift), b.Call(prepare))
	b.AddProgram(1, "main", b.CopyIn("x", x), b.Call(g), b.CopyOut("y", y))
	e := newLoaded(t, b)
	released := map[string]*int{}
	values := make([]float32, 256)
	for i := range 16 {
		values[17*i] = 2
	}
	for _, name := range []string{"packed", "factor", "shift"} {
		released[name] = new(int)
		v := values
		if name == "shift" {
			v = make([]float32, 16)
		}
		connect(t, e, map[string]ipu.Stream{name: releaser{constant{direct{newHost(t, bytesOf(v))}}, released[name]}})
	}
	xv, yv := make([]float32, 256), make([]float32, 256)
	xv[1], xv[255] = 1, 3
	connect(t, e, map[string]ipu.Stream{"x": in(t, xv), "y": out(t, yv)})
	for times := 1; times <= 2; times++ {
		run(t, e, 0)
		require.Equal(t, times, *released["packed"])
		require.Equal(t, times, *released["factor"])
		run(t, e, 1)
		require.Zero(t, *released["shift"])
		require.Equal(t, []float32{8, 24}, []float32{yv[1], yv[255]})
	}
}

func TestConstantStreamIsUsedInPlace(t *testing.T) {
	b := graph.NewBuilder("scale")
	x, w := b.AddLocal("x", f32(4)), b.AddPersistent("w", f32(4))
	g := b.BeginGraph("main")
	y := node(t, b, &graph.Binary{Fn: graph.Mul}, "mul", x, w)
	b.AddProgram(0, "load", b.CopyIn("w", w))
	b.AddProgram(1, "main", b.CopyIn("x", x), b.Call(g), b.CopyOut("y", y))
	e := newLoaded(t, b)
	wv, yv := []float32{1, 2, 3, 4}, make([]float32, 4)
	connect(t, e, map[string]ipu.Stream{
		"w": constant{direct{newHost(t, bytesOf(wv))}}, "x": in(t, []float32{1, 1, 1, 2}), "y": out(t, yv)})
	run(t, e, 0)
	run(t, e, 1)
	require.Equal(t, []float32{1, 2, 3, 8}, yv)
	require.Nil(t, e.persistent[w].memory.own, "no copy was made")

	require.NoError(t, e.Connect("w", in(t, []float32{5, 5, 5, 5})))
	clear(wv) // the old stream's memory is the host's again
	run(t, e, 1)
	require.Equal(t, []float32{1, 2, 3, 8}, yv, "the value outlives the stream that lent it")
	run(t, e, 0)
	run(t, e, 1)
	require.Equal(t, []float32{5, 5, 5, 10}, yv)
}

func TestPackedConstantStreamIsNotKept(t *testing.T) {
	b := graph.NewBuilder("matmul")
	x, w := b.AddLocal("x", f32(8, 16)), b.AddPersistent("w", f32(16, 8))
	g := b.BeginGraph("main")
	y := node(t, b, &graph.MatMul{}, "mm", x, w)
	b.AddProgram(0, "load", b.CopyIn("w", w))
	b.AddProgram(1, "main", b.CopyIn("x", x), b.Call(g), b.CopyOut("y", y))
	e := newLoaded(t, b)
	if len(e.Plan().Packed) == 0 {
		t.Skip("the kernel does not pack this operand")
	}
	require.False(t, e.Plan().Persistent[0].Stored)
	wv, xv, yv := make([]float32, 128), make([]float32, 128), make([]float32, 64)
	for i := range wv {
		wv[i], xv[i] = float32(i%7), float32(i%5)
	}
	connect(t, e, map[string]ipu.Stream{
		"w": constant{direct{newHost(t, bytesOf(wv))}}, "x": in(t, xv), "y": out(t, yv)})
	want := make([]float32, 64)
	for i := range 64 {
		for k := range 16 {
			want[i] += xv[i/8*16+k] * wv[k*8+i%8]
		}
	}
	run(t, e, 0)
	clear(wv)
	run(t, e, 1)
	require.Equal(t, want, yv)
	require.Nil(t, e.persistent[w].memory.own)
}

func TestRepeatMovesStreamsEveryIteration(t *testing.T) {
	for name, options := range variants {
		t.Run(name, func(t *testing.T) {
			b := graph.NewBuilder("accumulate")
			x, sum := b.AddLocal("x", f32(2)), b.AddPersistent("sum", f32(2))
			g := b.BeginGraph("main")
			require.NoError(t, b.NodeTo(&graph.Binary{Fn: graph.Add}, "add", []graph.TensorID{sum}, sum, x))
			y := node(t, b, &graph.Unary{Fn: graph.Neg}, "neg", sum)
			b.AddProgram(3, "main", b.Repeat(2, b.Repeat(2, b.CopyIn("x", x), b.Call(g), b.CopyOut("y", y))))
			b.AddProgram(9, "save", b.CopyOut("sum", sum))
			e := newLoaded(t, b, options...)
			xs := newHost(t, bytesOf([]float32{1, 2}), bytesOf([]float32{3, 4}), bytesOf([]float32{5, 6}), bytesOf([]float32{7, 8}))
			ys := [][]float32{{0, 0}, {0, 0}, {0, 0}, {0, 0}}
			yh := newHost(t, bytesOf(ys[0]), bytesOf(ys[1]), bytesOf(ys[2]), bytesOf(ys[3]))
			sums := make([]float32, 2)
			connect(t, e, map[string]ipu.Stream{"x": direct{xs}, "y": direct{yh}, "sum": out(t, sums)})
			run(t, e, 3)
			require.Equal(t, [][]float32{{-1, -2}, {-4, -6}, {-9, -12}, {-16, -20}}, ys)
			require.Equal(t, 4, xs.completed)
			require.Equal(t, 4, yh.completed)
			run(t, e, 9)
			require.Equal(t, []float32{16, 20}, sums)
		})
	}
}

// TestStateThatReadsItself updates a state by a node whose kernel can't work in
// place: the result must wait until the old state has been read.
func TestStateThatReadsItself(t *testing.T) {
	for name, options := range variants {
		t.Run(name, func(t *testing.T) {
			b := graph.NewBuilder("rotate")
			s := b.AddPersistent("s", f32(2, 2))
			m := b.AddConst("m", f32(2, 2), bytesOf([]float32{0, 1, 1, 1})) // Fibonacci's matrix
			x := b.AddLocal("x", f32(2, 2))
			g := b.BeginGraph("step")
			require.NoError(t, b.NodeTo(&graph.MatMul{}, "mm", []graph.TensorID{s}, s, m))
			set := b.BeginGraph("set")
			require.NoError(t, b.NodeTo(&graph.Reshape{Shape: []int64{2, 2}}, "keep", []graph.TensorID{s}, x))
			b.AddProgram(0, "load", b.CopyIn("x", x), b.Call(set))
			b.AddProgram(1, "main", b.Repeat(10, b.Call(g)), b.CopyOut("y", s))
			e := newLoaded(t, b, options...)
			y := make([]float32, 4)
			connect(t, e, map[string]ipu.Stream{"x": in(t, []float32{1, 0, 0, 1}), "y": out(t, y)})
			run(t, e, 0)
			run(t, e, 1)
			require.Equal(t, []float32{34, 55, 55, 89}, y)
		})
	}
}

// TestReshapedStateKeepsItsOldValue reads an old state, reshaped, after the
// state was replaced.
func TestReshapedStateKeepsItsOldValue(t *testing.T) {
	for name, options := range variants {
		t.Run(name, func(t *testing.T) {
			b := graph.NewBuilder("delay")
			s, x := b.AddPersistent("s", f32(2, 1)), b.AddLocal("x", f32(2, 1))
			g := b.BeginGraph("main")
			old := node(t, b, &graph.Reshape{Shape: []int64{2}}, "old", s)
			require.NoError(t, b.NodeTo(&graph.Unary{Fn: graph.Neg}, "neg", []graph.TensorID{s}, x))
			y := node(t, b, &graph.Unary{Fn: graph.Abs}, "abs", old)
			b.AddProgram(0, "main", b.CopyIn("x", x), b.Call(g), b.CopyOut("y", y))
			e := newLoaded(t, b, options...)
			y1 := make([]float32, 2)
			connect(t, e, map[string]ipu.Stream{"x": in(t, []float32{1, 2}), "y": out(t, y1)})
			run(t, e, 0)
			require.Equal(t, []float32{0, 0}, y1)
			run(t, e, 0)
			require.Equal(t, []float32{1, 2}, y1)
		})
	}
}

func TestOutputOverlapsInput(t *testing.T) {
	b := graph.NewBuilder("swap")
	x := b.AddLocal("x", f32(4))
	g := b.BeginGraph("main")
	n := node(t, b, &graph.Unary{Fn: graph.Neg}, "neg", x)
	r := node(t, b, &graph.Slice{Start: []int64{3}, Size: []int64{4}, Step: []int64{-1}}, "reverse", x)
	b.AddProgram(0, "main", b.CopyIn("x", x), b.Call(g), b.CopyOut("n", n), b.CopyOut("r", r))
	e := newLoaded(t, b)
	require.Equal(t, 0, e.Plan().Programs[0].Buffers[0].Input, "the input is used in place")
	mem := []float32{1, 2, 3, 4, 0, 0}
	rv := make([]float32, 4)
	connect(t, e, map[string]ipu.Stream{"x": in(t, mem[:4]), "n": out(t, mem[2:]), "r": out(t, rv)})
	run(t, e, 0)
	require.Equal(t, []float32{4, 3, 2, 1}, rv, "the input was not overwritten before it was read")
	require.Equal(t, []float32{1, 2, -1, -2, -3, -4}, mem)
}

func TestMisalignedAndMissingMemory(t *testing.T) {
	b := graph.NewBuilder("neg")
	x := b.AddLocal("x", f32(3))
	g := b.BeginGraph("main")
	y := node(t, b, &graph.Unary{Fn: graph.Neg}, "neg", x)
	b.AddProgram(0, "main", b.CopyIn("x", x), b.Call(g), b.CopyOut("y", y))
	e := newLoaded(t, b)
	xm, ym := make([]byte, 13), make([]byte, 13)
	copy(xm[1:], bytesOf([]float32{1, 2, 3}))
	connect(t, e, map[string]ipu.Stream{"x": direct{newHost(t, xm[1:])}, "y": direct{newHost(t, ym[1:])}})
	run(t, e, 0)
	require.Equal(t, []float32{-1, -2, -3}, floats(ym[1:]))

	// A transfer without memory is fetched, and the next may have memory again.
	xs, ys := &sometimes{memory: []float32{4, 5, 6}}, &sometimes{memory: make([]float32, 3)}
	connect(t, e, map[string]ipu.Stream{"x": xs, "y": ys})
	for i := range 4 {
		clear(ys.memory)
		xs.none, ys.none = i%2 == 0, i/2 == 0
		run(t, e, 0)
		require.Equal(t, []float32{-4, -5, -6}, ys.memory)
	}
}

// sometimes is a direct stream whose transfers don't always have memory.
type sometimes struct {
	memory []float32
	none   bool
}

func (s *sometimes) Fetch(ctx context.Context, buf []byte) error {
	if s.memory[0] != 0 {
		copy(buf, bytesOf(s.memory))
	} else {
		copy(bytesOf(s.memory), buf)
	}
	return nil
}
func (s *sometimes) Prefetch([]byte) bool  { return false }
func (s *sometimes) Complete()             {}
func (s *sometimes) InvalidatePrefetched() {}
func (s *sometimes) Memory(ctx context.Context) ([]byte, error) {
	if s.none {
		return nil, nil
	}
	return bytesOf(s.memory), nil
}

func TestErrorsOfUse(t *testing.T) {
	ctx := context.Background()
	e, err := New(ipu.EngineConfig{Name: "m", Executable: executable(t, twoLayers(t))})
	require.NoError(t, err)
	require.ErrorIs(t, e.Run(ctx, 1), ipu.ErrNotLoaded)
	require.ErrorIs(t, e.Stop(), ipu.ErrNotLoaded)
	d := &device{}
	require.ErrorIs(t, e.Load(ctx, d), ipu.ErrNotAttached)
	require.ErrorIs(t, e.Load(ctx, nil), ipu.ErrWrongBackend)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	d.Attach()
	require.ErrorIs(t, e.Load(ended, d), context.Canceled)
	require.NoError(t, e.Load(ctx, d))
	require.ErrorIs(t, e.Run(ctx, 7), ipu.ErrUnknownProgram)
	err = e.Connect("z", nil)
	require.ErrorIs(t, err, ipu.ErrUnknownStream)
	require.ErrorContains(t, err, `"x", "y"`)
	require.NoError(t, e.Connect("x", in(t, xValues)))
	err = e.Run(ctx, 1)
	require.ErrorIs(t, err, ipu.ErrUnconnected)
	require.ErrorContains(t, err, `not connected: "y"`)
	require.NoError(t, e.Connect("y", out(t, make([]float32, 4))))
	require.ErrorIs(t, e.Run(ended, 1), context.Canceled)
	require.NoError(t, e.Run(ctx, 1), "a run that was cancelled can be repeated")

	require.NoError(t, e.Connect("x", in(t, xValues[:5])))
	err = e.Run(ctx, 1)
	require.ErrorIs(t, err, ipu.ErrCallback)
	require.ErrorContains(t, err, "20 bytes, want 24")
	boom := errors.New("boom")
	for handle, s := range map[string]ipu.Stream{
		"x": feeder{&host{t: t, items: [][]byte{bytesOf(xValues)}, err: boom}},
		"y": direct{&host{t: t, items: [][]byte{make([]byte, 16)}, err: boom}},
	} {
		connect(t, e, map[string]ipu.Stream{"x": in(t, xValues), "y": out(t, make([]float32, 4))})
		require.NoError(t, e.Connect(handle, s))
		err = e.Run(ctx, 1)
		require.ErrorIs(t, err, ipu.ErrCallback)
		require.ErrorIs(t, err, boom)
		require.ErrorContains(t, err, `stream "`+handle+`"`)
	}

	require.NoError(t, e.Stop())
	require.NoError(t, e.Stop())
	require.ErrorIs(t, e.Run(ctx, 1), ipu.ErrStopped)
	require.NoError(t, e.Load(ctx, d))
	require.NoError(t, e.Close())
	require.NoError(t, e.Close())
	require.ErrorIs(t, e.Run(ctx, 1), ipu.ErrClosed)
	require.ErrorIs(t, e.Load(ctx, d), ipu.ErrClosed)
	require.ErrorIs(t, e.Connect("x", nil), ipu.ErrClosed)
	require.ErrorIs(t, e.Stop(), ipu.ErrClosed)
}

func TestStopAndBusyDuringRun(t *testing.T) {
	e := newLoaded(t, twoLayers(t))
	ctx := context.Background()
	h := newHost(t, bytesOf(xValues))
	connect(t, e, map[string]ipu.Stream{"x": feeder{h}, "y": out(t, make([]float32, 4))})
	h.onFetch = func() {
		require.ErrorIs(t, e.Run(ctx, 1), ipu.ErrBusy)
		require.ErrorIs(t, e.Connect("x", nil), ipu.ErrBusy)
		require.ErrorIs(t, e.Close(), ipu.ErrBusy)
		stopped := make(chan error)
		go func() { stopped <- e.Stop() }()
		require.NoError(t, <-stopped)
	}
	require.ErrorIs(t, e.Run(ctx, 1), ipu.ErrStopped)
	require.ErrorIs(t, e.Run(ctx, 1), ipu.ErrStopped)
	h.onFetch = nil
	load(t, e)
	run(t, e, 1)
}

// TestEndlessLoop ends a run that would last for years.
func TestEndlessLoop(t *testing.T) {
	b := graph.NewBuilder("endless")
	s := b.AddPersistent("s", f32(4))
	g := b.BeginGraph("main")
	require.NoError(t, b.NodeTo(&graph.Unary{Fn: graph.Neg}, "neg", []graph.TensorID{s}, s))
	b.AddProgram(0, "main", b.Repeat(1<<62, b.Call(g)))
	b.AddProgram(1, "empty", b.Repeat(1<<62))
	e := newLoaded(t, b, opt("work", "9223372036854775807")...)
	for program := range 2 {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
		require.ErrorIs(t, e.Run(ctx, program), context.DeadlineExceeded)
		cancel()
	}
	time.AfterFunc(5*time.Millisecond, func() { e.Stop() })
	require.ErrorIs(t, e.Run(context.Background(), 0), ipu.ErrStopped)
}

func TestCancelDuringRun(t *testing.T) {
	e := newLoaded(t, twoLayers(t))
	ctx, cancel := context.WithCancel(context.Background())
	h := newHost(t, bytesOf(xValues))
	h.onFetch = cancel
	connect(t, e, map[string]ipu.Stream{"x": feeder{h}, "y": out(t, make([]float32, 4))})
	require.ErrorIs(t, e.Run(ctx, 1), context.Canceled)
	run(t, e, 1)
}

// FuzzNew plans and loads what may be a portable executable.
func FuzzNew(f *testing.F) {
	f.Add(executable(f, twoLayers(f)))
	for _, build := range models {
		f.Add(executable(f, build(f).b))
	}
	f.Fuzz(func(t *testing.T, exe []byte) {
		e, err := New(ipu.EngineConfig{Executable: exe, Options: opt("memory", "1000000", "threads", "2")})
		if err != nil {
			return
		}
		d := &device{}
		d.Attach()
		if e.Load(context.Background(), d) == nil {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			defer cancel()
			for _, s := range e.Streams() {
				require.NoError(t, e.Connect(s.Handle, fetchOnly{}))
			}
			for _, p := range e.Programs() {
				e.Run(ctx, p.Index) //nolint:errcheck // any error is fine, a panic is not
			}
		}
		require.NoError(t, e.Close())
	})
}

func TestPanicsAreErrors(t *testing.T) {
	e := newLoaded(t, twoLayers(t))
	ctx := context.Background()
	h := newHost(t, bytesOf(xValues))
	h.onFetch = func() { panic("no data today") }
	connect(t, e, map[string]ipu.Stream{"x": feeder{h}, "y": out(t, make([]float32, 4))})
	err := e.Run(ctx, 1)
	require.ErrorIs(t, err, ipu.ErrCallback)
	var p *ipu.PanicError
	require.ErrorAs(t, err, &p)
	require.Equal(t, "no data today", p.Value)
	require.Contains(t, string(p.Stack), "TestPanicsAreErrors")

	h.onFetch, h.open = nil, false
	e.programs[1].code[1].in = nil // the kernel of "mm1" finds no operands
	err = e.Run(ctx, 1)
	require.ErrorIs(t, err, ipu.ErrApplication)
	require.ErrorContains(t, err, `node "mm1" (MatMul)`)
}

func TestKernelErrorNamesTheNode(t *testing.T) {
	b := graph.NewBuilder("gather")
	x, i := b.AddLocal("x", f32(4)), b.AddLocal("i", graph.TensorType{DType: graph.I32})
	g := b.BeginGraph("main")
	y := node(t, b, &graph.Gather{}, "pick", x, i)
	b.AddProgram(0, "main", b.CopyIn("x", x), b.CopyIn("i", i), b.Call(g), b.CopyOut("y", y))
	e := newLoaded(t, b)
	idx, y1 := []int32{9}, make([]float32, 1)
	connect(t, e, map[string]ipu.Stream{"x": in(t, []float32{1, 2, 3, 4}), "i": feeder{newHost(t, bytesOf(idx))}, "y": sink{bytesOf(y1)}})
	err := e.Run(context.Background(), 0)
	require.ErrorIs(t, err, ipu.ErrApplication)
	require.ErrorContains(t, err, `node "pick" (Gather)`)
	idx[0] = -1
	require.NoError(t, e.Connect("x", in(t, []float32{1, 2, 3, 4})))
	run(t, e, 0)
	require.Equal(t, []float32{4}, y1)
}

// sink is an output that checks nothing.
type sink struct{ memory []byte }

func (s sink) Fetch(ctx context.Context, buf []byte) error { copy(s.memory, buf); return nil }
func (s sink) Prefetch([]byte) bool                        { return false }
func (s sink) Complete()                                   {}
func (s sink) InvalidatePrefetched()                       {}
func (s sink) Memory(ctx context.Context) ([]byte, error)  { return s.memory, nil }

func TestBackend(t *testing.T) {
	b, err := ipu.Lookup("cpu")
	require.NoError(t, err)
	require.Equal(t, "cpu", b.Name())
	devices, err := b.Devices(context.Background())
	require.NoError(t, err)
	require.Len(t, devices, 1)
	info := devices[0].Info()
	require.Equal(t, "cpu", info.Kind)
	require.Equal(t, 1, info.NumIPUs)
	require.Contains(t, info.Description, "processors")
	for range 2 {
		ok, err := devices[0].Attach()
		require.NoError(t, err)
		require.True(t, ok)
	}
	require.NoError(t, devices[0].Detach())

	require.NoError(t, b.Accepts(ipu.FormatPortable))
	err = b.Accepts(ipu.FormatPoplar)
	require.ErrorIs(t, err, ipu.ErrWrongBackend)
	require.ErrorContains(t, err, "-tags poplar")
	require.ErrorIs(t, b.Accepts(ipu.FormatUnknown), ipu.ErrWrongBackend)
	for name, c := range map[string]ipu.EngineConfig{
		"-tags poplar":        {Executable: []byte("GC_EXE_3")},
		"format is unknown":   {Executable: []byte("ELF")},
		"invalid portable":    {Executable: []byte(ipu.PortableMagic + " and nothing else")},
		`threads="0": want a`: {Executable: executable(t, twoLayers(t)), Options: opt("threads", "0")},
		"alias, costs, inplace, labels, layout, memory, nhwc, prepack, streamCallbacks.maxLookahead, threads, tiling, work": {Executable: executable(t, twoLayers(t)), Options: opt("speed", "high")},
		`want "on" or "off"`: {Executable: executable(t, twoLayers(t)), Options: opt("inplace", "maybe")},
	} {
		_, err := b.NewEngine(c)
		require.ErrorContains(t, err, name)
		if len(c.Options) > 0 {
			require.ErrorIs(t, err, ipu.ErrInvalidOption)
		}
	}

	require.Equal(t, len(knownOptions), len(Options()))
}

func TestStreamsAndPrograms(t *testing.T) {
	e := newLoaded(t, twoLayers(t))
	require.Equal(t, []ipu.ProgramInfo{{Index: 0, Name: "load"}, {Index: 1, Name: "main"}, {Index: 2, Name: "save"}}, e.Programs())
	streams := map[string]ipu.StreamInfo{}
	for _, s := range e.Streams() {
		streams[s.Handle] = s
	}
	require.Equal(t, ipu.StreamInfo{Handle: "x", Direction: ipu.HostToDevice, Bytes: 24, Type: "f32", Shape: []int64{2, 3}, Programs: []int{1}, Transfers: []int64{1}}, streams["x"])
	require.Equal(t, ipu.DeviceToHost, streams["y"].Direction)
}

func TestProfile(t *testing.T) {
	e := newLoaded(t, twoLayers(t))
	connect(t, e, map[string]ipu.Stream{"x": in(t, xValues), "y": out(t, make([]float32, 4))})
	run(t, e, 1)
	require.Empty(t, e.Profile())
	e.EnableProfile(true)
	run(t, e, 1)
	run(t, e, 1)
	var names []string
	for _, n := range e.Profile() {
		require.Equal(t, 1, n.Program)
		require.GreaterOrEqual(t, n.Calls, int64(2))
		names = append(names, n.Name)
	}
	require.Equal(t, "x mm1 add relu mm2 y", strings.Join(names, " "))
	e.EnableProfile(false)
	require.Empty(t, e.Profile())
}

func TestRunAllocatesNothing(t *testing.T) {
	for _, threads := range []string{"1", "2"} {
		t.Run(threads+" threads", func(t *testing.T) {
			b := graph.NewBuilder("wide")
			x := b.AddLocal("x", f32(64, 256))
			w := b.AddConst("w", f32(256, 256), make([]byte, 4*256*256))
			s := b.AddPersistent("s", f32(64, 256))
			g := b.BeginGraph("main")
			y := node(t, b, &graph.MatMul{}, "mm", x, w)
			y = node(t, b, &graph.Unary{Fn: graph.Tanh}, "tanh", y)
			require.NoError(t, b.NodeTo(&graph.Binary{Fn: graph.Add}, "add", []graph.TensorID{s}, s, y))
			y = node(t, b, &graph.Reduce{Fn: graph.ReduceMax, Axes: []int64{0}, KeepDims: true}, "max", s)
			b.AddProgram(0, "main", b.Repeat(2, b.CopyIn("x", x), b.CopyIn("x2", x), b.Call(g), b.CopyOut("y", y), b.CopyOut("y2", y)))
			e := newLoaded(t, b, opt("threads", threads)...)
			xv, yv := make([]byte, 4*64*256), make([]byte, 4*256)
			connect(t, e, map[string]ipu.Stream{"x": sink{xv}, "x2": fetchOnly{xv}, "y": sink{yv}, "y2": fetchOnly{yv}})
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			require.Zero(t, testing.AllocsPerRun(20, func() {
				if err := e.Run(ctx, 0); err != nil {
					t.Fatal(err)
				}
			}))
		})
	}
}

// fetchOnly is a stream without memory.
type fetchOnly struct{ memory []byte }

func (s fetchOnly) Fetch(context.Context, []byte) error { return nil }
func (s fetchOnly) Prefetch([]byte) bool                { return false }
func (s fetchOnly) Complete()                           {}
func (s fetchOnly) InvalidatePrefetched()               {}
