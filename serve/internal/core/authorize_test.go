package core

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/serve/access"
	"github.com/popefgen/popefgen/serve/oip"
)

// TestAuthorize: the function sees what was asked; clients do not see its own errors, and a panic is its request's alone.
func TestAuthorize(t *testing.T) {
	c := New()
	require.False(t, c.Guarded())
	require.NoError(t, c.Authorize(t.Context(), access.Admin, "", "", nil))
	secret := errors.New("the data base of users is at 10.0.0.1")
	c.SetAuthorization(func(_ context.Context, a access.Access) error {
		switch a.Token {
		case "good":
			require.Equal(t, access.Access{API: access.Infer, Model: "digits", Token: "good"}, a)
			return nil
		case "known":
			return oip.Errorf(oip.Unauthenticated, "who?")
		case "panic":
			panic("token panic")
		}
		return secret
	})
	require.True(t, c.Guarded())
	ask := func(header string) error { return c.Authorize(t.Context(), access.Infer, "digits", header, nil) }
	require.NoError(t, ask("Bearer good"))
	require.EqualError(t, ask("Bearer known"), "who?")
	err := ask("")
	require.EqualError(t, err, "not allowed")
	require.ErrorIs(t, err, secret)
	require.EqualError(t, ask("Bearer panic"), "the authorisation of this server failed")
}
