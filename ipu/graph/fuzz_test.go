package graph_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/pass"
	"github.com/popefgen/popefgen/ipu/graph/rows"
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
		for _, p := range e.Programs { // whatever its streams are, rows are looked at without harm
			_, err := rows.Findings(e, p.Index, 2, rowAxes(e))
			require.NoError(t, err)
		}
		load := 0
		require.NoError(t, pass.Optimize(e, pass.OptimizeOptions{Load: &load}))
		require.NoError(t, graph.Verify(e))
	})
}

// rowAxes takes, of every stream, the first axis with an even number of elements for one
// that counts two rows.
func rowAxes(e *graph.Executable) map[string]int {
	axes := map[string]int{}
	for _, s := range e.Streams {
		for axis, d := range s.Type.Shape {
			if d > 0 && d%2 == 0 {
				axes[s.Handle] = axis
				break
			}
		}
	}
	return axes
}
