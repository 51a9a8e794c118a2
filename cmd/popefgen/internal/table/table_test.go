package table

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWideCells wants one long cell to make its own row long and no other.
func TestWideCells(t *testing.T) {
	t.Parallel()
	const rows, long = 20_000, 1 << 20
	all := New("name", "bytes")
	for i := range rows {
		all.Row(fmt.Sprint("tensor ", i), i)
	}
	all.Row(strings.Repeat("n", long), 7)
	var b bytes.Buffer
	require.NoError(t, all.Print(&b))
	require.Less(t, b.Len(), long+rows*40)
	lines := strings.Split(b.String(), "\n")
	require.Equal(t, "name          bytes", lines[0])
	require.Equal(t, "tensor 0          0", lines[1])
	require.Equal(t, "tensor 19999  19999", lines[rows])
	require.Equal(t, strings.Repeat("n", long)+"      7", lines[rows+1])
}
