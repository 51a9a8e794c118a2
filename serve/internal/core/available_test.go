package core

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestIndexOfAvailable has models in the index that nobody loaded, beside one that was refused.
func TestIndexOfAvailable(t *testing.T) {
	c := New()
	c.Refuse("b", "2", errors.New("it is half a file"))
	refused := Entry{Model: "b", Version: "2", State: Unavailable, Reason: "it is half a file", Refused: 1, Rejected: true}
	require.Equal(t, []Entry{refused}, c.Index())
	var failed error
	there := map[string][]string{"a": {"1"}, "b": {"1", "2"}}
	c.SetAvailable(func() (map[string][]string, error) { return there, failed })
	require.Equal(t, []Entry{{Model: "a", State: Unavailable, Reason: "not loaded"}, refused}, c.Index())
	for _, known := range []struct {
		model, version string
		want           bool
	}{{"a", "", true}, {"a", "1", false}, {"b", "", true}, {"b", "2", true}, {"b", "1", false}, {"c", "", false}} {
		require.Equal(t, known.want, c.Known(known.model, known.version), "%v", known)
	}
	failed = errors.New("no such folder")
	require.Equal(t, []Entry{refused}, c.Index())

	// What serves stays when its files go; what does not, goes with them.
	load(t, c, script(1, nil), Load{Version: "1"})
	load(t, c, script(1, nil), Load{Version: "2"})
	failed = nil
	require.Len(t, c.Index(), 4)
	require.NoError(t, c.Unload("script", "1"))
	gone := func(rows int) func() bool { return func() bool { return len(c.Index()) == rows } }
	until(t, gone(3))
	there = map[string][]string{"a": {"1"}, "b": {"1"}}
	require.Equal(t, []Entry{{Model: "a", State: Unavailable, Reason: "not loaded"}, {Model: "b", State: Unavailable, Reason: "not loaded"}, {Model: "script", Version: "2", State: Serving}}, c.Index())
	require.False(t, c.Known("script", "1"))
	require.NoError(t, c.Unload("script", ""))
	until(t, gone(2))
	require.False(t, c.Known("script", ""))
	require.NoError(t, c.Close(t.Context()))
}
