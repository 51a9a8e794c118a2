package graph

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// joinedPair has two inputs in one stream, of which the body of a loop reads both.
func joinedPair(t *testing.T, also func(b *Builder, x TensorID)) *Executable {
	t.Helper()
	b := NewBuilder("pair")
	x := b.AddLocal("x", typ(U64, 2))
	g := b.BeginGraph("main")
	p, err := b.Node(&Field{Handle: "h2d_p", To: F32, Shape: []int64{2}}, "p", x)
	require.NoError(t, err)
	q, err := b.Node(&Field{Handle: "h2d_q", Offset: 8, To: F32}, "q", x)
	require.NoError(t, err)
	y, err := b.Node(&Binary{Fn: Add}, "y", p[0], q[0])
	require.NoError(t, err)
	if also != nil {
		also(b, x)
	}
	b.AddProgram(5, "main", b.Repeat(3, b.CopyIn("in", x), b.Call(g), b.CopyOut("out", y[0])))
	e, err := b.Finish()
	require.NoError(t, err)
	return e
}

// TestUnjoined takes a joined stream apart, and leaves what something else reads whole.
func TestUnjoined(t *testing.T) {
	e := joinedPair(t, nil)
	before := e.String()
	apart := e.Unjoined()
	require.NoError(t, Verify(apart))
	require.Equal(t, before, e.String())
	body := apart.Programs[0].Steps[0].Body
	require.Len(t, body, 4)
	require.Equal(t, []string{"in", "out", "h2d_p", "h2d_q"}, []string{apart.Streams[0].Handle, apart.Streams[1].Handle, apart.Streams[body[0].Stream].Handle, apart.Streams[body[1].Stream].Handle})
	require.Len(t, apart.Graphs[0].Nodes, 1)
	require.Same(t, apart, apart.Unjoined())

	e = joinedPair(t, func(b *Builder, x TensorID) {
		_, err := b.Node(&BitCast{To: I64}, "z", x)
		require.NoError(t, err)
	})
	require.Same(t, e, e.Unjoined())
}
