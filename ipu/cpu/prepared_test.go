package cpu

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/internal/measure"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// windowed is a stream over a window. Without memory it fails, or panics.
type windowed struct {
	at    ipu.Window
	err   error
	value any // to panic with
}

func newWindowed(block []byte, transfers int) *windowed {
	return &windowed{at: ipu.Window{Block: block, Size: len(block) / transfers, Count: transfers}}
}

func (w *windowed) Fetch(context.Context, []byte) error {
	if w.value != nil {
		panic(w.value)
	}
	return w.err
}
func (w *windowed) Prefetch([]byte) bool                       { return false }
func (w *windowed) InvalidatePrefetched()                      {}
func (w *windowed) Memory(ctx context.Context) ([]byte, error) { return w.at.Next(), nil }
func (w *windowed) Window() *ipu.Window                        { return &w.at }
func (w *windowed) Complete()                                  { w.at.Complete() }

// copying is a program that writes x to y and z, and a constant to k.
func copying(t *testing.T) *Engine {
	b := graph.NewBuilder("copying")
	x, k := b.AddLocal("x", f32(3)), b.AddConst("k", f32(2), bytesOf([]float32{7, 8}))
	b.AddProgram(0, "main", b.CopyIn("x", x), b.CopyOut("y", x), b.CopyOut("z", x), b.CopyOut("k", k))
	return newLoaded(t, b)
}

// TestWindows runs a program that only copies, over windows and over other
// streams in their places.
func TestWindows(t *testing.T) {
	e := copying(t)
	ctx := context.Background()
	p, err := e.Prepare(0)
	require.NoError(t, err)
	const runs = 3
	x := newWindowed(bytesOf([]float32{1, 2, 3, 4, 5, 6, 7, 8, 9}), runs)
	aside := make([]byte, 4*3*runs+1)
	y, z := newWindowed(make([]byte, 4*3*runs), runs), newWindowed(aside[1:], runs) // z lies askew
	k := newWindowed(make([]byte, 4*2*runs), runs)
	connect(t, e, map[string]ipu.Stream{"x": x, "y": y, "z": z, "k": k})
	all := []*windowed{x, y, z, k}
	rewind := func() {
		for _, w := range all {
			w.at.Done = 0
		}
	}
	for range 2 {
		clear(y.at.Block)
		clear(aside)
		rewind()
		for range runs {
			require.NoError(t, p.Run(ctx))
		}
		require.Equal(t, floats(x.at.Block), floats(y.at.Block))
		require.Equal(t, floats(x.at.Block), floats(z.at.Block))
		require.Equal(t, []float32{7, 8, 7, 8, 7, 8}, floats(k.at.Block))
		for _, w := range all {
			require.Equal(t, runs, w.at.Done)
		}
		x.at.Block = bytesOf([]float32{-1, -2, -3, -4, -5, -6, -7, -8, -9}) // the host's memory may change
	}
	rewind()
	require.Zero(t, testing.AllocsPerRun(20, func() {
		rewind()
		if err := p.Run(ctx); err != nil {
			t.Fatal(err)
		}
	}))

	// Without memory the stream is asked, and may do whatever it likes.
	boom := errors.New("boom")
	for _, w := range all {
		rewind()
		block := w.at.Block
		w.at.Block = nil
		w.err = boom
		err = p.Run(ctx)
		require.ErrorIs(t, err, ipu.ErrCallback)
		require.ErrorIs(t, err, boom)
		w.value = boom
		err = p.Run(ctx)
		require.ErrorIs(t, err, ipu.ErrCallback)
		var panicked *ipu.PanicError
		require.ErrorAs(t, err, &panicked)
		require.Equal(t, boom, panicked.Value)
		require.NotEmpty(t, panicked.Stack)
		w.err, w.value = nil, nil
		require.NoError(t, p.Run(ctx))
		w.at.Block = block
		rewind()
		require.NoError(t, p.Run(ctx))
	}
	rewind()

	// Another kind of stream takes a window's place, and gives it back.
	other := make([]float32, 3)
	require.NoError(t, e.Connect("y", out(t, other)))
	require.NoError(t, p.Run(ctx))
	require.Equal(t, floats(x.at.Block[:12]), other)
	wrong := newWindowed(make([]byte, 8), 1)
	require.NoError(t, e.Connect("y", wrong))
	require.ErrorContains(t, p.Run(ctx), "8 bytes, want 12")
	require.NoError(t, e.Connect("y", y))
	rewind()
	require.NoError(t, p.Run(ctx))

	e.EnableProfile(true)
	rewind()
	require.NoError(t, p.Run(ctx))
	require.Len(t, e.Profile(), 4)
	require.NoError(t, e.Connect("y", nil))
	require.ErrorIs(t, p.Run(ctx), ipu.ErrUnconnected)
	require.NoError(t, e.Connect("y", y))
	require.NoError(t, e.Stop())
	require.ErrorIs(t, p.Run(ctx), ipu.ErrStopped)
	load(t, e)
	rewind()
	require.NoError(t, p.Run(ctx))
	require.NoError(t, e.Close())
	require.ErrorIs(t, p.Run(ctx), ipu.ErrClosed)
}

func TestPrepareErrors(t *testing.T) {
	e, err := New(ipu.EngineConfig{Name: "m", Executable: executable(t, twoLayers(t))})
	require.NoError(t, err)
	defer e.Close()
	none, err := e.Prepare(9)
	require.ErrorIs(t, err, ipu.ErrUnknownProgram)
	require.True(t, none == nil)
	p, err := e.Prepare(1)
	require.NoError(t, err)
	require.ErrorIs(t, p.Run(context.Background()), ipu.ErrNotLoaded)
}

// TestWindowsMemoryChanges runs a program that only copies over windows of one
// transfer. The input is read where it lies, so other memory must be seen.
func TestWindowsMemoryChanges(t *testing.T) {
	e := copying(t)
	ctx := context.Background()
	p, err := e.Prepare(0)
	require.NoError(t, err)
	x, y := newWindowed(nil, 1), newWindowed(nil, 1)
	z, k := newWindowed(make([]byte, 12), 1), newWindowed(make([]byte, 8), 1)
	x.at.Size, y.at.Size = 12, 12
	connect(t, e, map[string]ipu.Stream{"x": x, "y": y, "z": z, "k": k})
	for i := range 4 {
		want := []float32{float32(i), 2, 3}
		x.at.Block, y.at.Block = bytesOf(want), make([]byte, 12)
		for _, w := range []*windowed{x, y, z, k} {
			w.at.Done = 0
		}
		require.NoError(t, p.Run(ctx))
		require.Equal(t, want, floats(y.at.Block))
		require.Equal(t, want, floats(z.at.Block))
		require.Equal(t, []float32{7, 8}, floats(k.at.Block))
		for _, w := range []*windowed{x, y, z, k} {
			require.Equal(t, 1, w.at.Done)
		}
	}
}

// BenchmarkOneOperator measures the path of a run that computes next to nothing,
// with and without what Prepare and windows save, and the operator's kernel by
// itself.
func BenchmarkOneOperator(b *testing.B) {
	g := graph.NewBuilder("neg")
	x := g.AddLocal("x", f32(10))
	main := g.BeginGraph("main")
	y, err := g.Node(&graph.Unary{Fn: graph.Neg}, "y", x)
	require.NoError(b, err)
	g.AddProgram(0, "main", g.CopyIn("x", x), g.Call(main), g.CopyOut("y", y[0]))
	e := newLoaded(b, g)
	p, err := e.Prepare(0)
	require.NoError(b, err)
	ctx := context.Background()
	in, out := newWindowed(make([]byte, 40), 1), newWindowed(make([]byte, 40), 1)
	k, err := kernel.New(&graph.Unary{Fn: graph.Neg}, []graph.TensorType{f32(10)}, []graph.TensorType{f32(10)})
	require.NoError(b, err)
	operand, result := [][]byte{in.at.Block}, [][]byte{out.at.Block}
	ways := []struct {
		name    string
		in, out ipu.Stream
		run     func() error
	}{
		{"prepared over windows", in, out, func() error { return p.Run(ctx) }},
		{"prepared over memory", unwindowed{in}, unwindowed{out}, func() error { return p.Run(ctx) }},
		{"run over windows", in, out, func() error { return e.Run(ctx, 0) }},
		{"run over memory", unwindowed{in}, unwindowed{out}, func() error { return e.Run(ctx, 0) }},
		{"kernel", in, out, func() error { return k.Run(tensor.Serial{}, operand, result, nil) }},
	}
	var runners []measure.Runner
	for _, w := range ways {
		const batch = 200
		runners = append(runners, measure.Runner{Batch: batch, Run: func() error {
			connect(b, e, map[string]ipu.Stream{"x": w.in, "y": w.out})
			for range batch {
				in.at.Done, out.at.Done = 0, 0
				if err := w.run(); err != nil {
					return err
				}
			}
			return nil
		}})
	}
	var all []measure.Series
	for b.Loop() {
		got, err := measure.Interleave(measure.Config{Rounds: 1, Slice: 2 * time.Millisecond}, runners...)
		require.NoError(b, err)
		all = measure.Join(all, got)
	}
	b.ReportMetric(0, "ns/op")
	for i, w := range ways {
		b.ReportMetric(all[i].Best(), strings.ReplaceAll(w.name, " ", "-")+"-ns")
	}
}

// unwindowed hides that a stream is over a window.
type unwindowed struct{ ipu.Direct }
