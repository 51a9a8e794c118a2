package popart

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/popef"
)

// TestRollingQueue plays a device that asks three transfers ahead: six buffers are handed out in their order, each once, and are done in that order, also where the device throws away
// what it prefetched.
// Feature 109.
func TestRollingQueue(t *testing.T) {
	var calls []string
	next, done := 0, 0
	q := &queue{s: &stream{name: "x", input: true, bytes: 1, array: Array{Type: popef.U8}}, c: Callbacks{
		In: func(_ string, _ int, prefetch bool) []byte {
			if next == 6 {
				return nil
			}
			next++
			calls = append(calls, fmt.Sprintf("in(%d)", next-1)+map[bool]string{true: "p"}[prefetch])
			return []byte{byte(next - 1)}
		},
		InComplete: func(string) { calls, done = append(calls, fmt.Sprintf("done(%d)", done)), done+1 },
	}}
	buf := make([]byte, 1)
	fetch := func(want byte) {
		require.NoError(t, q.Fetch(t.Context(), buf))
		require.Equal(t, want, buf[0])
	}
	prefetch := func(want byte) {
		require.True(t, q.Prefetch(buf))
		require.Equal(t, want, buf[0])
	}
	fetch(0)
	prefetch(1)
	prefetch(2)
	q.Complete()
	prefetch(3)
	q.InvalidatePrefetched()
	fetch(1) // again, and In is not asked
	prefetch(2)
	prefetch(3)
	q.Complete()
	prefetch(4)
	q.Complete()
	prefetch(5)
	q.Complete()
	require.False(t, q.Prefetch(buf), "nil is fine for a prefetch")
	require.ErrorIs(t, q.Fetch(t.Context(), buf), ErrNilBuffer)
	require.Equal(t, []string{"in(0)", "in(1)p", "in(2)p", "done(0)", "in(3)p", "done(1)", "in(4)p", "done(2)", "in(5)p", "done(3)"}, calls)
}
