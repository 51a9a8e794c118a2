package modelrt_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// Feature 63.
func TestRingPool(t *testing.T) {
	p, err := modelrt.NewRingPool(8, 3)
	require.NoError(t, err)
	require.Equal(t, 3, p.NumBlobs())
	require.Equal(t, 8, p.BlobSize())
	var blobs []*modelrt.Blob
	for range 3 {
		b, err := p.Get()
		require.NoError(t, err)
		require.Len(t, b.Bytes(), 8)
		require.Equal(t, 8, cap(b.Bytes()), "no way into the next one")
		b.Bytes()[0] = byte(len(blobs))
		blobs = append(blobs, b)
	}
	_, err = p.Get()
	require.ErrorIs(t, err, modelrt.ErrInUse)
	require.ErrorContains(t, err, "number 1 of 3")
	require.NoError(t, blobs[1].Release())
	_, err = p.Get()
	require.ErrorIs(t, err, modelrt.ErrInUse, "it is the first one's turn")
	blobs[0].Done()(nil)
	for i := range 2 {
		b, err := p.Get()
		require.NoError(t, err)
		require.Same(t, blobs[i], b, "from the beginning again")
		require.EqualValues(t, i, b.Bytes()[0])
	}
	require.NoError(t, blobs[0].Release())
	require.ErrorIs(t, blobs[0].Release(), modelrt.ErrNotInUse)

	for _, bad := range [][2]int{{-1, 1}, {1, 0}, {1, -1}, {1 << 50, 2}, {1, 1 << 40}} {
		_, err := modelrt.NewRingPool(bad[0], bad[1])
		require.ErrorIs(t, err, rt.ErrOption, "%v", bad)
	}
}

// Feature 63.
func TestQueueStorage(t *testing.T) {
	q := inputQueue(t, 3)
	p, err := modelrt.NewQueuePool(q, 2)
	require.NoError(t, err)
	require.Equal(t, q.NumBuffers()+2, p.NumBlobs())
	require.Equal(t, 8, p.BlobSize())
	_, err = modelrt.NewQueuePool(q, -1)
	require.ErrorIs(t, err, rt.ErrOption)

	// Blobs travel through the queue and come back.
	for i := range 4 * p.NumBlobs() {
		b, err := p.Get()
		require.NoError(t, err)
		copy(b.Bytes(), samples(i, 4))
		require.NoError(t, q.TryEnqueue(modelrt.InputData{Data: b.Bytes(), OnDone: b.Done()}))
		if i >= 5 {
			require.Equal(t, samples(i-5, 4), fetch(t, q))
		}
	}
}

// Feature 63.
func TestRingPoolConcurrent(t *testing.T) {
	p, err := modelrt.NewRingPool(8, 4)
	require.NoError(t, err)
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 1000 {
				b, err := p.Get()
				if err != nil {
					continue
				}
				for j := range b.Bytes() {
					b.Bytes()[j] = byte(g + i) // the race detector watches
				}
				if err := b.Release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}
