package core

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/serve/oip"
)

// listed is a repository of these names.
type listed []string

func (l listed) Load(context.Context, string) error   { return nil }
func (l listed) Unload(context.Context, string) error { return nil }
func (l listed) Names() ([]string, error)             { return l, nil }

// TestRepository: without one, loading is refused as an extension that there is not; with one, the index has what is not loaded too.
func TestRepository(t *testing.T) {
	c := New()
	for _, err := range []error{c.Repository().Load(t.Context(), "m"), c.Repository().Unload(t.Context(), "m")} {
		var known *oip.Error
		require.ErrorAs(t, err, &known)
		require.Equal(t, oip.Unimplemented, known.Code)
	}
	c.Refuse("b", "2", errors.New("it is half a file"))
	require.Equal(t, []Entry{{Model: "b", Version: "2", State: Unavailable, Reason: "it is half a file", Refused: 1}}, c.Index())
	c.SetRepository(listed{"a", "b"})
	require.Equal(t, []Entry{
		{Model: "a", State: Unavailable, Reason: "not loaded"}, {Model: "b", Version: "2", State: Unavailable, Reason: "it is half a file", Refused: 1},
	}, c.Index())
	require.NoError(t, c.Repository().Load(t.Context(), "a"))
}
