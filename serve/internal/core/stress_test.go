package core

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/serve/oip"
)

// TestStorm has 64 callers with random deadlines, who leave, of a model that is slow, fails and panics, while it is
// replaced: each answer is its caller's own, every request is counted once, and nothing is left behind.
func TestStorm(t *testing.T) {
	const callers, each = 64, 60
	goroutines := runtime.NumGoroutine()
	c := New()
	c.SetLimits("", Limits{Computing: 3, Waiting: 24})
	before := func(ctx context.Context) error {
		// Between the place and this line time passes, on a loaded machine some of it.
		if d, ok := ctx.Deadline(); !ok || time.Since(d) > 5*time.Second {
			t.Errorf("the model got a request that was over since %v", time.Since(d))
		}
		switch n := rand.IntN(40); {
		case n == 0:
			panic("storm")
		case n == 1:
			return &rt.DeviceError{Err: errors.New("fault")}
		case n < 8: // waits with the context, as batches do
			derived, cancel := context.WithTimeout(ctx, time.Duration(rand.IntN(3))*time.Millisecond)
			defer cancel()
			<-derived.Done()
			return ctx.Err()
		case n < 16:
			time.Sleep(time.Duration(rand.IntN(500)) * time.Microsecond)
		}
		return nil
	}
	load(t, c, script(3, before), Load{Cold: true})
	var codes [Codes]atomic.Uint64
	var answered, left atomic.Uint64
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for n := range each {
				ctx, cancel := context.WithCancel(context.Background())
				if rand.IntN(4) == 0 {
					time.AfterFunc(time.Duration(rand.IntN(2000))*time.Microsecond, cancel)
				}
				err := ask(ctx, c, uint32(i*each+n), func(c *Call) {
					c.Priority = uint64(rand.IntN(3))
					if rand.IntN(3) == 0 {
						c.Timeout = time.Duration(1+rand.IntN(3000)) * time.Microsecond
					}
					if rand.IntN(5) == 0 {
						c.Deadline = time.Now().Add(time.Duration(rand.IntN(3000)) * time.Microsecond)
					}
				})
				cancel()
				var e *oip.Error
				switch {
				case err == nil:
					answered.Add(1)
				case errors.As(err, &e):
					codes[e.Code].Add(1)
				default:
					t.Error(err) // an answer that is another's
				}
			}
			left.Add(1)
		})
	}
	for left.Load() < callers {
		v, err := c.Load(t.Context(), script(3, before), Load{Cold: true})
		require.NoError(t, err)
		require.Equal(t, "1", v.Name)
		time.Sleep(2 * time.Millisecond)
	}
	all.Wait()
	s := c.Statistics("script")[0]
	require.Equal(t, answered.Load(), s.Latency.Count)
	for i := range codes {
		require.Equal(t, codes[i].Load(), s.Failed[REST][i], "%v", oip.Code(i))
	}
	require.Zero(t, s.InFlight+s.Computing+s.Waiting)
	for _, k := range []oip.Code{oip.Internal, oip.Deadline, oip.Canceled, oip.Exhausted} {
		require.Positive(t, codes[k].Load(), "%v did not happen", k)
	}
	require.Greater(t, answered.Load(), uint64(callers))
	require.NoError(t, c.Close(t.Context()))
	for begun := time.Now(); runtime.NumGoroutine() > goroutines; time.Sleep(time.Millisecond) {
		require.Less(t, time.Since(begun), time.Minute, "goroutines are left")
	}
}
