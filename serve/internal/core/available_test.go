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
	refused := Entry{Model: "b", Version: "2", State: Unavailable, Reason: "it is half a file", Refused: 1}
	require.Equal(t, []Entry{refused}, c.Index())
	var failed error
	c.SetAvailable(func() ([]string, error) { return []string{"a", "b"}, failed })
	require.Equal(t, []Entry{{Model: "a", State: Unavailable, Reason: "not loaded"}, refused}, c.Index())
	failed = errors.New("no such folder")
	require.Equal(t, []Entry{refused}, c.Index())
}
