package session

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/rt"
)

// TestTraceBeingWritten reads a trace whose writer stops at every place: what is
// half one and half the next is not read.
func TestTraceBeingWritten(t *testing.T) {
	s := &traceSlot{}
	_, ok := s.load(0)
	require.False(t, ok, "nothing was written yet")
	s.store(3, 7, 10, 20, 30, 40)
	want := rt.Trace{Request: 7, Total: 10, Queue: 20, Preparation: 30, Computation: 40}
	got, ok := s.load(3)
	require.True(t, ok)
	require.Equal(t, want, got)
	for _, other := range []int64{2, 4, 259} {
		_, ok = s.load(other)
		require.False(t, ok, "trace %d", other)
	}
	// More durations than there is room for: the writer never comes to its end.
	require.Panics(t, func() { s.store(259, 8, 1, 2, 3, 4, 5) })
	for _, index := range []int64{3, 259} {
		_, ok = s.load(index)
		require.False(t, ok, "trace %d", index)
	}
}
