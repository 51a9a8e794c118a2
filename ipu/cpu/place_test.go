package cpu

import (
	"context"
	"testing"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu/internal/weights"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/stretchr/testify/require"
)

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

	users := func() int { return weights.Engines(exe) }
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
	e.opts.Work = 1 << 20
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
