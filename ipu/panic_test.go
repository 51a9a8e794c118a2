package ipu_test

import (
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
)

func explode(v any) (err error) {
	defer ipu.Guard(&err)
	if v != nil {
		panic(v)
	}
	return io.EOF
}

// TestPanics makes panics errors: of values, of errors, and of one that went
// through another goroutine.
func TestPanics(t *testing.T) {
	require.Equal(t, io.EOF, explode(nil), "no panic, no change")

	err := explode("ouch")
	require.ErrorIs(t, err, ipu.ErrPanic)
	var first *ipu.PanicError
	require.ErrorAs(t, err, &first)
	require.Equal(t, "ouch", first.Value)
	require.Contains(t, string(first.Stack), "explode", "of who panicked")
	require.ErrorContains(t, err, "panic: ouch\n"+string(first.Stack))
	require.NoError(t, errors.Unwrap(err))

	require.Same(t, first, explode(first), "it stays as it is")

	err = explode(io.ErrUnexpectedEOF)
	require.ErrorIs(t, err, ipu.ErrPanic)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)

	require.ErrorIs(t, ipu.NewExitError(), ipu.ErrPanic)
	require.ErrorContains(t, ipu.NewExitError(), "runtime.Goexit")
}
