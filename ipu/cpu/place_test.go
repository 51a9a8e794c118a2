package cpu

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu/internal/align"
	"github.com/popefgen/popefgen/ipu/graph"
)

// TestInUse compares what the index finds with what a look at every buffer does.
func TestInUse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const steps = 40
		draw := func() *Buffer {
			first := rapid.IntRange(0, steps-1).Draw(t, "first")
			return &Buffer{First: first, Last: rapid.IntRange(first, steps-1).Draw(t, "last")}
		}
		index, all := newInUse(steps), map[*Buffer]bool{}
		for range rapid.IntRange(0, 30).Draw(t, "buffers") {
			u := draw()
			index.add(u)
			all[u] = true
		}
		u := draw()
		found := map[*Buffer]bool{}
		for _, o := range index.with(u, nil) {
			require.False(t, found[o], "found twice")
			found[o] = true
		}
		for o := range all {
			require.Equal(t, o.First <= u.Last && u.First <= o.Last, found[o], "%+v beside %+v", o, u)
		}
	})
}

// TestLayOutManyAtOnce lays out as many buffers as a plan may have steps, all of
// them in use at the end: to compare each with all others would take minutes.
func TestLayOutManyAtOnce(t *testing.T) {
	buffers := make([]Buffer, maxSteps)
	for i := range buffers {
		buffers[i] = Buffer{Bytes: 64, First: i, Last: maxSteps}
	}
	total, err := layOut(context.Background(), buffers, 1<<20)
	require.NoError(t, err)
	require.EqualValues(t, 64*maxSteps, total)
	taken := map[int64]bool{}
	for _, u := range buffers {
		require.False(t, taken[u.Offset], "two at %d", u.Offset)
		taken[u.Offset] = true
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = layOut(ctx, buffers, placeEffort)
	require.ErrorIs(t, err, context.Canceled)
}

// TestRoundUp bounds what rounding adds.
func TestRoundUp(t *testing.T) {
	for n := int64(0); n < 1<<16; n += 61 {
		r := roundUp(n)
		require.Zero(t, r%align.Line)
		require.GreaterOrEqual(t, r, n)
		require.LessOrEqual(t, r, max(align.Up(n), n+n/3))
	}
}

// endsLater is a context that is done from the second question on, before whose
// answer it waits.
type endsLater struct {
	context.Context
	asked int
	wait  func()
}

func (c *endsLater) Err() error {
	if c.asked++; c.asked == 1 {
		return nil
	}
	if c.asked == 2 {
		c.wait()
	}
	return context.Canceled
}

// TestPlanningEndsWithContext ends the planning of an engine while another waits
// for the same plan: that one makes it itself.
func TestPlanningEndsWithContext(t *testing.T) {
	b := graph.NewBuilder("m")
	x := b.AddLocal("x", f32(2))
	g := b.BeginGraph("main")
	y := node(t, b, &graph.Unary{Fn: graph.Neg}, "neg", x)
	b.AddProgram(0, "main", b.CopyIn("x", x), b.Call(g), b.CopyOut("y", y))
	exe := executable(t, b)

	done, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := New(ipu.EngineConfig{Executable: exe, Context: done})
	require.ErrorIs(t, err, context.Canceled)

	opts := defaultOptions()
	users := func() int {
		images.Lock()
		defer images.Unlock()
		for key, m := range images.all {
			if key.size == len(exe) && key.at == &exe[0] && key.opts == opts {
				return m.users
			}
		}
		return 0
	}
	require.Zero(t, users())
	second := make(chan error)
	_, err = New(ipu.EngineConfig{Executable: exe, Context: &endsLater{Context: context.Background(), wait: func() {
		go func() {
			e, err := New(ipu.EngineConfig{Executable: exe})
			if err == nil {
				err = e.Close()
			}
			second <- err
		}()
		require.Eventually(t, func() bool { return users() == 2 }, hung, 1)
	}}})
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, <-second)
	require.Zero(t, users())
}

// TestEndlessLoopIsBounded runs a loop that nothing ends under the option "work".
func TestEndlessLoopIsBounded(t *testing.T) {
	e := endless(t)
	y := make([]float32, 2)
	e.opts.work = 1 << 20
	connect(t, e, map[string]ipu.Stream{"x": in(t, []float32{1, 1}), "y": out(t, y)})
	err := e.Run(context.Background(), 0)
	require.ErrorIs(t, err, ipu.ErrApplication)
	require.ErrorContains(t, err, "its loops have taken more than the limit of 1e+06 operations; if the file is to be trusted, raise the limit")

	connect(t, e, map[string]ipu.Stream{"x": in(t, []float32{0, -1}), "y": out(t, y)})
	for range 1 << 12 { // each run has all of it
		run(t, e, 0)
	}
	require.Equal(t, []float32{0, -2}, y)
	require.Zero(t, e.spent, "of the run before")
}
