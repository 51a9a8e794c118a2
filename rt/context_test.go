package rt_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/rttest"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// TestContextsEndWaiting has a program wait in a queue that nobody fills. Its
// run ends with its context, and so does everything that waits for the engine
// behind it. Nothing was moved, so that the queues are as they were.
func TestContextsEndWaiting(t *testing.T) {
	onShift(t, modelrt.QueueConfig{}, func(t *testing.T, s rt.Session, m *modelrt.QueueManager) {
		x, y := shiftQueues(t, m)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		ran := make(chan error, 1)
		go func() { ran <- s.Run(ctx) }()
		rttest.Eventually(t, func() bool { return strings.Contains(x.State(""), "consumer waits") }, "the program waits")

		none := func(modelrt.Anchor) ipu.Stream { return nil }
		for name, call := range map[string]func(context.Context) error{
			"Run":            s.Run,
			"Connect":        func(ctx context.Context) error { return s.Connect(ctx, "h2d_x", &modelrt.Callback{}) },
			"ConnectData":    func(ctx context.Context) error { return s.ConnectData(ctx, "h2d_b", floats(1, 2, 3)) },
			"SetCallback":    func(ctx context.Context) error { return modelrt.SetCallback(ctx, s, "h2d_x", drop) },
			"HandleInputs":   func(ctx context.Context) error { return modelrt.HandleInputs(ctx, s, none, nil, false) },
			"HandleOutputs":  func(ctx context.Context) error { return modelrt.HandleOutputs(ctx, s, none, nil, false) },
			"Unconnected":    func(ctx context.Context) error { _, err := s.Unconnected(ctx); return err },
			"CheckConnected": func(ctx context.Context) error { return s.CheckConnected(ctx) },
			"NewQueueManager": func(ctx context.Context) error {
				_, err := modelrt.NewQueueManager(ctx, s, modelrt.QueueConfig{})
				return err
			},
			"ResetAll":      m.ResetAll,
			"Load":          s.Load,
			"Save":          s.Save,
			"RunLoaded":     func(ctx context.Context) error { return s.RunLoaded(ctx, loadProgram) },
			"RunPrograms":   func(ctx context.Context) error { return s.RunPrograms(ctx, loadProgram) },
			"Reload":        s.Reload,
			"Unload":        s.Unload,
			"Bind":          func(ctx context.Context) error { return s.Bind(ctx, s.Device()) },
			"UpdateWeights": func(ctx context.Context) error { return s.UpdateWeights(ctx) },
		} {
			short, stop := context.WithTimeout(context.Background(), 2*time.Millisecond)
			require.ErrorIs(t, call(short), context.DeadlineExceeded, name)
			stop()
		}
		require.Zero(t, waiting(s), "nobody is left in the line")
		cancel()
		require.ErrorIs(t, <-ran, context.Canceled)

		require.True(t, x.Connected())
		ended := runLoop(m)
		r := newShiftRequest(1, shiftBatch)
		require.NoError(t, r.enqueue(context.Background(), x, y))
		require.NoError(t, <-r.ended)
		require.NoError(t, r.check())
		require.NoError(t, s.Close())
		require.NoError(t, <-ended)
	})
}

// TestContextReachesStreams looks at the context that a callback gets: it is the
// run's.
func TestContextReachesStreams(t *testing.T) {
	type key struct{}
	for _, v := range variants(t) {
		t.Run(v.name, func(t *testing.T) {
			s, _, _ := v.ready(t)
			var got any
			require.NoError(t, modelrt.SetCallback(context.Background(), s, "h2d_x", func(ctx context.Context, buf []byte) error {
				got = ctx.Value(key{})
				return nil
			}))
			require.NoError(t, s.Run(context.WithValue(context.Background(), key{}, "mine")))
			require.Equal(t, "mine", got)
		})
	}
}

func drop(context.Context, []byte) error { return nil }
