package encoding

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/stretchr/testify/require"
)

// sameExecutable ignores the difference between nil and empty lists, which
// the encoding does not keep.
func sameExecutable(t *testing.T, want, got *graph.Executable) {
	t.Helper()
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateNaNs()); d != "" {
		t.Fatalf("executables differ (-want +got):\n%s", d)
	}
}

func encoded(t testing.TB, e *graph.Executable) []byte {
	t.Helper()
	var buf bytes.Buffer
	require.NoError(t, Encode(&buf, e))
	return buf.Bytes()
}

// at returns a copy of b that starts off bytes after a multiple of 64.
func at(off int, b []byte) []byte {
	return alignedCopy(append(make([]byte, off), b...))[off:]
}
