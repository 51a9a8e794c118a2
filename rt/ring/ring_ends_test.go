package ring

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// TestRingDrains visits what was written and not read to the end, oldest first,
// wherever in memory that begins.
func TestRingDrains(t *testing.T) {
	r, err := New(Config[int]{Size: 4})
	require.NoError(t, err)
	for v := range 3 {
		require.NoError(t, r.Write(t.Context(), v))
		_, err := r.ReadLock(t.Context())
		require.NoError(t, err)
		require.NoError(t, r.ReadComplete())
	}
	for v := range 3 {
		require.NoError(t, r.Write(t.Context(), 10+v))
	}
	_, err = r.ReadLock(t.Context()) // and not complete
	require.NoError(t, err)
	var seen []int
	r.Drain(func(v *int) { seen = append(seen, *v) })
	require.Equal(t, []int{10, 11, 12}, seen)
}

// TestRingFinishes reads what was written before finish, and then waits for
// nothing.
func TestRingFinishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := New(Config[int]{Size: 2})
		require.NoError(t, err)
		got := make(chan error, 1)
		go func() {
			_, err := r.ReadLock(t.Context())
			got <- err
		}()
		synctest.Wait()
		r.Finish()
		require.ErrorIs(t, <-got, ErrInvalidated)
		require.NoError(t, r.Write(t.Context(), 7))
		v, err := r.ReadLock(t.Context())
		require.NoError(t, err)
		require.Equal(t, 7, *v)
		_, err = r.ReadLock(t.Context())
		require.ErrorIs(t, err, ErrInvalidated)
	})
}

// TestRingStates describes rings while their sides wait, and after they gave up.
func TestRingStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := New(Config[int]{Size: 1, Label: "x"})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		require.NoError(t, r.Write(ctx, 1))
		wait := make(chan error, 2)
		go func() { wait <- r.Write(ctx, 2) }()
		synctest.Wait()
		require.Equal(t, `ring "x": 1 of 1 buffers full, producer waits`, r.State(""))
		_, err = r.ReadLock(ctx)
		require.NoError(t, err)
		go func() {
			_, err := r.ReadLock(ctx)
			wait <- err
		}()
		synctest.Wait()
		require.Equal(t, `ring "x": 1 of 1 buffers full, producer waits, consumer waits`, r.State(""))
		cancel()
		require.ErrorIs(t, <-wait, context.Canceled)
		require.ErrorIs(t, <-wait, context.Canceled)
		require.Equal(t, `ring "x": 1 of 1 buffers full`, r.State(""))
	})
}
