//go:build poplar && poplarfake && linux && cgo

package poplar_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/poplar"
)

// begun starts a run that does not end by itself, and returns when it is under way.
func begun(ctx context.Context, t *testing.T, e *poplar.Engine) <-chan error {
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx, 3) }()
	require.Eventually(t, func() bool {
		select {
		case err := <-done:
			t.Fatal("it has ended: ", err)
		default:
		}
		return e.Runs()
	}, 5*time.Second, time.Millisecond)
	return done
}

// TestProgramThatNeverEnds is cancelled, stopped, and not closed meanwhile.
func TestProgramThatNeverEnds(t *testing.T) {
	poplar.SetPatience(t, 20*time.Millisecond)
	e, d := engineOf(t, adder(64, 1, 2))
	_, _, y := rings(t, e, 64, 1)
	for tries := 0; ; tries++ {
		ctx, cancel := context.WithCancel(context.Background())
		done := begun(ctx, t, e)
		require.ErrorIs(t, e.Close(), ipu.ErrBusy)
		require.ErrorIs(t, d.Detach(), ipu.ErrBusy)
		cancel()
		err := <-done
		require.ErrorIs(t, err, context.Canceled)
		if ipu.Reloadable(err) {
			break
		}
		require.Less(t, tries, 100, "%v", err) // the engine's thread had not begun it, and nothing is lost
	}
	require.ErrorIs(t, e.Run(context.Background(), 1), ipu.ErrNotLoaded)
	require.NoError(t, e.Load(context.Background(), d))
	require.NoError(t, e.Run(context.Background(), 1))
	require.Equal(t, float32(0.5), y.get(0))

	done := begun(context.Background(), t, e)
	require.NoError(t, e.Stop())
	require.ErrorIs(t, <-done, ipu.ErrStopped)
	require.ErrorIs(t, e.Run(context.Background(), 1), ipu.ErrStopped)
	require.NoError(t, e.Stop())
	require.NoError(t, e.Load(context.Background(), d))
	rings(t, e, 64, 1)
	require.NoError(t, e.Run(context.Background(), 1))
}

// TestDeviceGone detaches the device below an engine, and gives it to another one.
func TestDeviceGone(t *testing.T) {
	ctx := context.Background()
	e, d := engineOf(t, adder(64, 1, 2))
	rings(t, e, 64, 1)
	require.NoError(t, d.Detach())
	err := e.Run(ctx, 1)
	require.ErrorIs(t, err, ipu.ErrNotLoaded)
	require.ErrorContains(t, err, "was detached")
	require.ErrorIs(t, e.Load(ctx, d), ipu.ErrNotAttached)
	other, otherDevice := engineOf(t, adder(64, 1, 2))
	rings(t, other, 64, 1)
	require.NoError(t, other.Run(ctx, 1))
	require.NoError(t, e.Load(ctx, otherDevice))
	require.NoError(t, e.Run(ctx, 1))
	require.ErrorContains(t, other.Run(ctx, 1), "another engine was loaded onto device 0 since")
}
