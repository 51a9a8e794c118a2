package genrt

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/hostmem"
)

// TestPrefetchDepth plays a device that keeps several transfers in flight and
// throws some away: nothing is lost or repeated.
func TestPrefetchDepth(t *testing.T) {
	var in Input[[4]byte]
	w, size := in.Describe()
	require.Equal(t, 4, size)
	w.Anchor, w.At.Size, w.At.Count = "x", 1, 4
	var buf [1]byte
	take := func(want byte) {
		t.Helper()
		require.True(t, in.Prefetch(buf[:]))
		require.Equal(t, want, buf[0])
	}
	require.False(t, in.Prefetch(buf[:]), "no memory")
	in.Bind(&[4]byte{10, 11, 12, 13})
	take(10)
	take(11)
	take(12)
	in.InvalidatePrefetched()
	take(10)
	in.Complete()
	take(11)
	take(12)
	in.Complete()
	in.InvalidatePrefetched()
	require.NoError(t, in.Fetch(context.Background(), buf[:]))
	require.EqualValues(t, 12, buf[0])
	take(13)
	require.False(t, in.Prefetch(buf[:]), "the next run's data is not there yet")
	require.ErrorIs(t, in.Fetch(context.Background(), buf[:]), rt.ErrEndOfData)
	in.Complete()
	in.Complete()
	in.Bind(&[4]byte{20, 21, 22, 23})
	take(20)
}

func TestOutput(t *testing.T) {
	var out Output[[2]byte]
	w, _ := out.Describe()
	w.Anchor, w.At.Size, w.At.Count = "y", 1, 2
	require.False(t, out.Prefetch(nil))
	require.NoError(t, out.Fetch(context.Background(), []byte{1}), "dropped")
	mem, err := out.Memory(context.Background())
	require.NoError(t, err)
	require.Nil(t, mem)

	var got [2]byte
	out.Bind(&got)
	require.NoError(t, out.Fetch(context.Background(), []byte{1}))
	out.Complete()
	mem, err = out.Memory(context.Background())
	require.NoError(t, err)
	mem[0] = 2
	again, err := out.Memory(context.Background())
	require.NoError(t, err)
	require.Same(t, &mem[0], &again[0], "the same until Complete")
	out.Complete()
	require.Equal(t, [2]byte{1, 2}, got)
	require.ErrorIs(t, out.Fetch(context.Background(), []byte{3}), rt.ErrEndOfData)
	_, err = out.Memory(context.Background())
	require.ErrorIs(t, err, rt.ErrEndOfData)
	w.Clear()
	require.NoError(t, out.Fetch(context.Background(), []byte{3}))
	require.Equal(t, [2]byte{1, 2}, got)
}

func TestConstant(t *testing.T) {
	c := hostmem.Fixed{Data: []byte{1, 2}}
	for range 3 {
		buf := make([]byte, 2)
		require.NoError(t, c.Fetch(context.Background(), buf))
		require.Equal(t, c.Data, buf)
		require.True(t, c.Prefetch(make([]byte, 2)))
		c.Complete()
		c.InvalidatePrefetched()
	}
	mem, err := c.Memory(context.Background())
	require.NoError(t, err)
	require.Same(t, &c.Data[0], &mem[0])
	require.Same(t, &c.Data[0], &c.Constant()[0])
}
