//go:build unix

package ring_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/rt/ring"
)

// processorTime returns how long the process has computed.
func processorTime(t testing.TB) time.Duration {
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestParkedConsumer shows that waiting costs no processor time,
// also for a consumer that has watched for a while.
//
// Feature 49.
func TestParkedConsumer(t *testing.T) {
	for name, spin := range map[string]*ring.Spinner{"parking": nil, "spinning": ring.NewSpinner(10_000)} {
		ctx, cancel := context.WithCancel(context.Background())
		r := newRing(t, ring.Config[int]{Size: 1, Consumer: spin})
		done := make(chan error)
		go func() {
			_, err := r.ReadLock(ctx)
			done <- err
		}()
		waits(t, r, "consumer")
		const wait = 100 * time.Millisecond
		before := processorTime(t)
		time.Sleep(wait)
		used := processorTime(t) - before
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
		require.Less(t, used, wait/4, name)
	}
}
