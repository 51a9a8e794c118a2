package encoding_test

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"github.com/popefgen/popefgen/ipu/graph/encoding"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/dump"
	"github.com/popefgen/popefgen/ipu/graph/pass"
	"github.com/popefgen/popefgen/ipu/graph/rows"
)

func FuzzDecode(f *testing.F) {
	good, err := os.ReadFile("testdata/sample-v1.bin")
	require.NoError(f, err)
	var empty bytes.Buffer
	require.NoError(f, encoding.Encode(&empty, new(graph.Executable)))
	f.Add(good)
	f.Add(empty.Bytes())
	f.Add(good[:len(good)/2])
	compact, err := os.ReadFile("testdata/sample-v2.bin")
	require.NoError(f, err)
	f.Add(compact)
	f.Add(compact[:len(compact)/2])
	two := graph.NewBuilder("two sizes")
	for i, n := range []int64{1, 3} {
		x := two.AddLocal("x", graph.TensorType{DType: graph.F32, Shape: []int64{n, 2}})
		g := two.BeginGraph("main")
		y, err := two.Node(&graph.Softmax{Axis: 1}, "softmax", x)
		require.NoError(f, err)
		two.AddProgram(5+i, "main", two.CopyIn(fmt.Sprint("x", i), x), two.Call(g), two.CopyOut(fmt.Sprint("y", i), y[0]))
	}
	e, err := two.Finish()
	require.NoError(f, err)
	sections := encoding.CompactSections(e)
	_, err = encoding.Decode(encoding.WithSections(sections))
	require.NoError(f, err)
	f.Add(sections)
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := encoding.Decode(encoding.Checked(b))
		if err != nil {
			if e, err = encoding.Decode(encoding.WithSections(b)); err != nil {
				return
			}
		}
		var file, second bytes.Buffer
		require.NoError(t, encoding.Encode(&file, e))
		again, err := encoding.Decode(file.Bytes())
		require.NoError(t, err)
		require.NoError(t, encoding.Encode(&second, again))
		require.Equal(t, file.Bytes(), second.Bytes())
		require.NotEmpty(t, dump.String(e))
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
