package session

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/rt/internal/line"
)

// idleSession returns a session without an engine.
func idleSession() *Session {
	s := &Session{Closed: make(chan struct{})}
	s.Gate.MaxWaiting, s.Gate.Grant = -1, make(chan int, 1)
	return s
}

// TestHandOverWhileClosing asks a session that closes for its device: it is there
// once everything has ended, and not before.
func TestHandOverWhileClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := idleSession()
		require.True(t, s.Gate.Take(line.Held))
		s.Gate.Close()
		got := make(chan error, 1)
		go func() { got <- s.handOver(t.Context()) }()
		ctx, cancel := context.WithCancel(t.Context())
		given := make(chan error, 1)
		go func() { given <- s.handOver(ctx) }()
		synctest.Wait()
		require.Empty(t, got, "it has not finished")
		cancel()
		require.ErrorIs(t, <-given, context.Canceled)
		close(s.Closed)
		require.NoError(t, <-got)
	})
}

// TestHandOverAfterFailure has another session wait for the device when that
// fails, and when as many callers wait as may: it waits on.
func TestHandOverAfterFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := idleSession()
		s.Gate.MaxWaiting = 0
		require.True(t, s.Gate.Take(line.Held))
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error, 1)
		go func() { got <- s.handOver(ctx) }()
		synctest.Wait()
		s.Gate.TurnAway(func(int) error { return errors.New("the device failed") })
		synctest.Wait()
		require.Empty(t, got)
		require.Equal(t, 2, s.Gate.Load())
		cancel()
		require.ErrorIs(t, <-got, context.Canceled)
	})
}

// TestTraceOfAnother reads traces that are overwritten meanwhile.
func TestTraceOfAnother(t *testing.T) {
	var s traceSlot
	_, ok := s.load(0)
	require.False(t, ok)
	s.store(3, 1, 1, 1, 1, 1)
	trace, ok := s.load(3)
	require.True(t, ok)
	require.EqualValues(t, 1, trace.Request)
	for _, index := range []int64{2, 3 + 256, -1} {
		_, ok = s.load(index)
		require.False(t, ok, "%d", index)
	}
	done, writes := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(writes)
		for n := int64(0); ; n++ {
			select {
			case <-done:
				return
			default:
			}
			s.store(3+256*n, uint64(n), n, n, n, n)
		}
	}()
	for s.values[0].Load() < 1000 {
		runtime.Gosched()
	}
	for range 1_000_000 {
		n := s.values[0].Load()
		if trace, ok := s.load(3 + 256*n); ok && (int64(trace.Request) != n || int64(trace.Total) != n || int64(trace.Computation) != n) {
			t.Errorf("torn: %+v", trace)
			break
		}
	}
	close(done)
	<-writes
}
