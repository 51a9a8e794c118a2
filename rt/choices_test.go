package rt

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// idleReplicas returns a runner of n replicas without engines.
func idleReplicas(n int) *Core {
	c := &Core{done: make(chan struct{})}
	for range n {
		c.replicas = append(c.replicas, &replica{session: &Session{closed: make(chan struct{})}})
		g := &c.replicas[len(c.replicas)-1].session.gate
		g.grant, g.maxWaiting = make(chan int, 1), -1
	}
	return c
}

// chosen returns how often each replica is chosen in so many requests.
func chosen(t *testing.T, c *Core, requests int) []int {
	t.Helper()
	count := make([]int, len(c.replicas))
	for range requests {
		i, err := c.choose(LeastBusy)
		require.NoError(t, err)
		count[i]++
	}
	return count
}

// TestLeastBusyReplica sends requests to the replica that has the least to do, to
// all alike if none has more, and to none that would only refuse them.
func TestLeastBusyReplica(t *testing.T) {
	c := idleReplicas(3)
	require.Equal(t, []int{4, 4, 4}, chosen(t, c, 12), "ties go round")
	gate := func(i int) *gate { return &c.replicas[i].session.gate }
	busy := func(i, n int) {
		require.True(t, gate(i).take(held))
		for range n - 1 {
			_, err := gate(i).enlist(guest)
			require.NoError(t, err)
		}
	}
	busy(0, 2)
	busy(2, 1)
	require.Equal(t, []int{0, 12, 0}, chosen(t, c, 12))
	busy(1, 3)
	require.Equal(t, []int{0, 0, 12}, chosen(t, c, 12), "not in turn")
	c.replicas[2].session.failed.Store(&failure{err: errors.New("failed")})
	require.Equal(t, []int{12, 0, 0}, chosen(t, c, 12), "it would draw every request")
	c.replicas[2].session.autoReset = true
	require.Equal(t, []int{0, 0, 12}, chosen(t, c, 12), "it is to be reset")
	gate(2).close()
	require.Equal(t, []int{12, 0, 0}, chosen(t, c, 12))
	for _, i := range []int{3, -2} {
		_, err := c.choose(i)
		require.ErrorIs(t, err, ErrReplica)
	}
}

// TestHandOverWhileClosing asks a session that closes for its device: it is there
// once everything has ended, and not before.
func TestHandOverWhileClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := idleReplicas(1).replicas[0].session
		require.True(t, s.gate.take(held))
		s.gate.close()
		got := make(chan error, 1)
		go func() { got <- s.handOver(t.Context()) }()
		ctx, cancel := context.WithCancel(t.Context())
		given := make(chan error, 1)
		go func() { given <- s.handOver(ctx) }()
		synctest.Wait()
		require.Empty(t, got, "it has not finished")
		cancel()
		require.ErrorIs(t, <-given, context.Canceled)
		close(s.closed)
		require.NoError(t, <-got)
	})
}

// TestHandOverAfterFailure has another session wait for the device when that
// fails, and when as many callers wait as may: it waits on.
func TestHandOverAfterFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := idleReplicas(1).replicas[0].session
		s.gate.maxWaiting = 0
		require.True(t, s.gate.take(held))
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error, 1)
		go func() { got <- s.handOver(ctx) }()
		synctest.Wait()
		s.gate.turnAway(func(int) error { return errors.New("the device failed") })
		synctest.Wait()
		require.Empty(t, got)
		require.Equal(t, 2, s.gate.load())
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
