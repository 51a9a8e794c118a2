package ring_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/rt/internal/rttest"
	"github.com/popefgen/popefgen/rt/ring"
)

var errWrong = errors.New("wrong result")

// TestNoAllocations goes through everything that is done again and again with a
// ring, and fails for a method that is not in the table.
func TestNoAllocations(t *testing.T) {
	const others = `
	Ring.Invalidate Ring.Label Ring.NumBuffers Ring.Reset Ring.State Ring.StateOf Ring.Valid Ring.Finish
	Ring.WakeWriter Ring.Drain`
	rttest.NoAllocations(t, others, ringRows(), &ring.Ring[int]{})
}

// ringRows are rings that nobody waits for, and a pair of which each side waits
// for the other every time.
func ringRows() []rttest.Steady {
	ctx := context.Background()
	return []rttest.Steady{
		{Name: "ring/one goroutine", Of: "Ring.Write Ring.WriteLock Ring.WriteComplete Ring.TryWriteLock Ring.ReadLock Ring.TryReadLock Ring.ReadComplete Ring.ReadReset Ring.ReadAvailable Ring.Ahead Ring.AwaitFree Ring.NextFree Ring.Peek Ring.Held Ring.Oldest Ring.Unfinished",
			Make: func(t *testing.T) func() error {
				r, err := ring.New(ring.Config[int]{Size: 4})
				require.NoError(t, err)
				return func() error {
					err := r.AwaitFree(ctx, r.Ahead(0))
					if *r.NextFree() = 1; err == nil {
						err = r.WriteComplete()
					}
					if r.Peek(0) == nil || !r.Unfinished() || r.Held() != 0 || r.Oldest() != nil {
						return errWrong
					}
					if v, _ := r.TryReadLock(); v == nil || err != nil || r.ReadComplete() != nil {
						return errWrong
					}
					err = r.Write(ctx, 1)
					if v, _ := r.TryWriteLock(); err == nil && v != nil {
						*v = 2
						err = r.WriteComplete()
					}
					if v, _ := r.WriteLock(ctx); err == nil && v != nil {
						*v = 3
						err = r.WriteComplete()
					}
					_, _ = r.ReadLock(ctx)
					r.ReadReset()
					for i := 1; i <= 3 && err == nil; i++ {
						v, _ := r.TryReadLock()
						if v == nil || *v != i || r.ReadAvailable() != (i < 3) {
							return errWrong
						}
						err = r.ReadComplete()
					}
					return err
				}
			}},
		{Name: "ring/two goroutines that park", Of: "", Make: func(t *testing.T) func() error { return pingPong(t, ctx, 0) }},
		{Name: "ring/two goroutines that park with a context and a timeout", Of: "", Make: func(t *testing.T) func() error {
			cancelled, cancel := context.WithCancel(ctx)
			t.Cleanup(cancel)
			return pingPong(t, cancelled, time.Hour)
		}},
	}
}

func pingPong(t *testing.T, ctx context.Context, timeout time.Duration) func() error {
	c := ring.Config[int]{Size: 1, Timeout: timeout, OnTimeout: func(*ring.Ring[int]) {}}
	there, err := ring.New(c)
	require.NoError(t, err)
	back, err := ring.New(c)
	require.NoError(t, err)
	t.Cleanup(there.Invalidate)
	go func() {
		for {
			v, err := there.ReadLock(ctx)
			if err != nil {
				return
			}
			_ = back.Write(ctx, *v)
			_ = there.ReadComplete()
		}
	}()
	return func() error {
		if err := there.Write(ctx, 1); err != nil {
			return err
		}
		if _, err := back.ReadLock(ctx); err != nil {
			return err
		}
		return back.ReadComplete()
	}
}
