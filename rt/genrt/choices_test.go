package genrt

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/line"
	"github.com/popefgen/popefgen/rt/internal/session"
)

// idleReplicas returns a runner of n replicas without engines.
func idleReplicas(n int) *Core {
	c := &Core{done: make(chan struct{})}
	for range n {
		c.replicas = append(c.replicas, &replica{session: &session.Session{Closed: make(chan struct{})}})
		g := &c.replicas[len(c.replicas)-1].session.Gate
		g.Grant, g.MaxWaiting = make(chan int, 1), -1
	}
	return c
}

// chosen returns how often each replica is chosen in so many requests.
func chosen(t *testing.T, c *Core, requests int) []int {
	t.Helper()
	count := make([]int, len(c.replicas))
	for range requests {
		i, err := c.choose(rt.LeastBusy)
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
	gate := func(i int) *line.Gate { return &c.replicas[i].session.Gate }
	busy := func(i, n int) {
		require.True(t, gate(i).Take(line.Held))
		for range n - 1 {
			_, err := gate(i).Enlist(line.Guest)
			require.NoError(t, err)
		}
	}
	busy(0, 2)
	busy(2, 1)
	require.Equal(t, []int{0, 12, 0}, chosen(t, c, 12))
	busy(1, 3)
	require.Equal(t, []int{0, 0, 12}, chosen(t, c, 12), "not in turn")
	c.replicas[2].session.Failed.Store(&session.Failure{Err: errors.New("failed")})
	require.Equal(t, []int{12, 0, 0}, chosen(t, c, 12), "it would draw every request")
	c.replicas[2].session.AutoReset = true
	require.Equal(t, []int{0, 0, 12}, chosen(t, c, 12), "it is to be reset")
	gate(2).Close()
	require.Equal(t, []int{12, 0, 0}, chosen(t, c, 12))
	for _, i := range []int{3, -2} {
		_, err := c.choose(i)
		require.ErrorIs(t, err, rt.ErrReplica)
	}
}
