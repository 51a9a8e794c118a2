package graph_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/pass"
)

func FuzzDecode(f *testing.F) {
	good, err := os.ReadFile("testdata/sample-v1.bin")
	require.NoError(f, err)
	var empty bytes.Buffer
	require.NoError(f, new(graph.Executable).Encode(&empty))
	f.Add(good)
	f.Add(empty.Bytes())
	f.Add(good[:len(good)/2])
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := graph.Decode(graph.Checked(b))
		if err != nil {
			return
		}
		var file, second bytes.Buffer
		require.NoError(t, e.Encode(&file))
		again, err := graph.Decode(file.Bytes())
		require.NoError(t, err)
		require.NoError(t, again.Encode(&second))
		require.Equal(t, file.Bytes(), second.Bytes())
		require.NotEmpty(t, e.String())
		load := 0
		require.NoError(t, pass.Optimize(e, pass.OptimizeOptions{Load: &load}))
		require.NoError(t, graph.Verify(e))
	})
}
