package ring_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/rt/ring"
)

// TestRingTimeouts waits for longer than a ring's timeout, with a function that is
// called then and without.
func TestRingTimeouts(t *testing.T) {
	t.Run("nobody to call", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRing(t, ring.Config[int]{Size: 1, Timeout: time.Millisecond})
			go func() {
				time.Sleep(time.Second)
				write(t, r, 3)
			}()
			read(t, r, 3)
		})
	})
	t.Run("who calls does not wait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			r := newRing(t, ring.Config[int]{Size: 1, Timeout: time.Millisecond, OnTimeout: func(r *ring.Ring[int]) {
				calls++
				require.NotContains(t, r.State(""), "waits")
			}})
			ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Microsecond)
			defer cancel()
			_, err := r.ReadLock(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, 3, calls)
			require.NotContains(t, r.State(""), "waits")
		})
	})
}
