package ring

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRingMark marks a buffer that changed between the last look at it and the
// decision to wait for it, which the other side did without waking anybody.
func TestRingMark(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	r, err := New(Config[int]{Size: 1, Label: "r"})
	require.NoError(t, err)
	state := &r.slots[0].state

	require.NoError(t, r.AwaitFree(ended, Place{state}), "it is free already")
	require.Zero(t, state.Load(), "nobody waits")

	state.Store(full)
	require.ErrorIs(t, r.AwaitFree(ended, Place{state}), context.Canceled)
	require.Equal(t, full, state.Load(), "nobody waits any more")

	for _, c := range []struct {
		state, was, after uint32
		wait              bool
	}{
		{full, full, full | awaited, true},
		{full | awaited, full, full | awaited, true}, // another producer waits too
		{0, full, 0, false},
		{awaited, full, awaited, false}, // it was read, and the consumer waits for more
		{0, 0, awaited, true},
		{awaited, 0, awaited, true},
		{full, 0, full, false},
		{full | awaited, 0, full | awaited, false},
	} {
		state.Store(c.state)
		require.Equal(t, c.wait, mark(state, c.was), "%+v", c)
		require.Equal(t, c.after, state.Load(), "%+v", c)
	}
}
