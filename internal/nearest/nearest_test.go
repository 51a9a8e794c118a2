package nearest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDidYouMean(t *testing.T) {
	anchors := []string{"input/1", "input/2", "Gemm:0"}
	require.Equal(t, `; did you mean "input/1"?`, DidYouMean("inputt/1", anchors))
	require.Equal(t, `; did you mean "Gemm:0"?`, DidYouMean("gemm0", anchors))
	require.Equal(t, `; there are "input/1", "input/2", "Gemm:0"`, DidYouMean("logits_of_all", anchors))
	require.Equal(t, "", DidYouMean("x", nil))
	many := make([]string, 20)
	for i := range many {
		many[i] = strings.Repeat("w", 30)
	}
	require.Contains(t, DidYouMean("a", many), "and 12 more")
	require.Equal(t, 3, editDistance("kitten", "sitting"))
}

// TestLike has no list of what there is.
func TestLike(t *testing.T) {
	require.Equal(t, `; did you mean "adam"?`, Like("adm", []string{"sgd", "adam"}))
	require.Empty(t, Like("zzzzzz", []string{"sgd", "adam"}))
}
