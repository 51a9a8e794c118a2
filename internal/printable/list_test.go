package printable

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestList(t *testing.T) {
	require.Equal(t, "none", List(nil))
	require.Equal(t, `a, b\u202e`, List([]string{"a", "b\u202e"}))
	require.Equal(t, "n, n, n, n, n, n, n, n, n, n, n, n", List(slices.Repeat([]string{"n"}, 12)))
	require.Equal(t, "n, n, n, n, n, n, n, n, n, n, n, n, … (13 in all)", List(slices.Repeat([]string{"n"}, 13)))
	require.Equal(t, `"a", "b\n"`, Quoted([]string{"a", "b\n"}))
	require.Equal(t, "none", Quoted(nil))
	given := []string{"\x1b"}
	List(given)
	require.Equal(t, []string{"\x1b"}, given, "the caller's own")
}
