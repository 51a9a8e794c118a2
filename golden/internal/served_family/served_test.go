package served_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	counts "github.com/popefgen/popefgen/golden/internal/served_counts/want"
	served "github.com/popefgen/popefgen/golden/internal/served_family/want"
	"github.com/popefgen/popefgen/serve/oip"
	"github.com/popefgen/popefgen/serve/servetest"
)

var ctx = context.Background()

// TestSizes makes requests of every size with one memory of the server, larger and smaller ones in turn.
func TestSizes(t *testing.T) {
	r, err := served.Open(ctx)
	require.NoError(t, err)
	defer r.Close()
	m := served.Served(r)
	require.Equal(t, []int64{-1, -1, 3}, m.Spec().Inputs[0].Shape)
	require.Equal(t, []int64{2, 8, 3}, m.Spec().Inputs[0].Max)
	c := served.NewClient(servetest.Local(m))
	want, got := served.NewOutputs(), served.NewOutputs()
	for _, size := range [][2]int{{2, 8}, {1, 1}, {2, 5}, {1, 4}, {2, 8}} {
		in := served.NewInputs(size[0], size[1])
		for i := range in.X.Flat() {
			in.X.Flat()[i] = float32(i%5) - 2
		}
		for i := range in.Grid.Flat() {
			in.Grid.Flat()[i] = float32(i)
		}
		for i := range in.Mask.Flat() {
			in.Mask.Flat()[i] = float32(i % 2)
		}
		require.NoError(t, r.Run(ctx, in, want))
		require.NoError(t, c.Run(ctx, in, got))
		require.Equal(t, want, got)
	}
	var e *oip.Error
	in := served.NewInputs(2, 8)
	in.Mask.Resize(2, 7)
	require.ErrorAs(t, c.Run(ctx, in, got), &e)
	require.Equal(t, oip.InvalidArgument, e.Code)
	require.ErrorContains(t, e, "7")
	require.ErrorAs(t, c.Run(ctx, served.NewInputs(3, 8), got), &e)
	require.Equal(t, oip.InvalidArgument, e.Code)
}

// TestSharedAxis gives two axes that are one dimension different sizes.
func TestSharedAxis(t *testing.T) {
	r, err := served.Open(ctx)
	require.NoError(t, err)
	defer r.Close()
	c := served.Served(r).NewCall()
	mem, err := c.Input(2, []int64{2, 5, 5})
	require.NoError(t, err)
	require.Len(t, mem, 4*2*5*5)
	_, err = c.Input(2, []int64{2, 5, 6})
	var e *oip.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, oip.InvalidArgument, e.Code)
	require.ErrorContains(t, err, "tensor 'grid' can not have the shape [2 5 6]: size 5 of axis 1 is also that of another axis, with 6")
}

// TestCounts has data decide how much of an output there is.
func TestCounts(t *testing.T) {
	r, err := counts.Open(ctx)
	require.NoError(t, err)
	defer r.Close()
	c := counts.NewClient(servetest.Local(counts.Served(r)))
	in, want, got := counts.NewInputs(), counts.NewOutputs(), counts.NewOutputs()
	for i := range in.X.Flat() {
		in.X.Flat()[i] = float32(i)
	}
	for _, n := range [][2]int64{{3, 4}, {0, 4}, {2, 1}, {1, 0}, {3, 4}} {
		in.K.Data, in.L.Data = n[0], n[1]
		require.NoError(t, r.Run(ctx, in, want))
		require.NoError(t, c.Run(ctx, in, got))
		require.Equal(t, int(n[0]), got.Y.Count)
		require.Equal(t, int(n[1]), got.Y.Count2)
		require.Equal(t, len(want.Y.Flat()), len(got.Y.Flat()))
		for i, v := range want.Y.Flat() {
			require.Equal(t, v, got.Y.Flat()[i])
		}
	}
}
