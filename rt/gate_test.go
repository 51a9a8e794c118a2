package rt

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// quietGate returns a gate whose callers leave quietly if that is possible at
// all.
func quietGate(t testing.TB) *gate {
	g := &gate{queuing: true, grant: make(chan int, 1)}
	for end := time.Now().Add(5 * time.Second); canFence() && g.manner.Load() == 0 && time.Now().Before(end); {
		require.True(t, g.take())
		g.release(0)
	}
	return g
}

// TestGateLosesNobody makes callers, guests and submitted requests meet at the
// moment at which one leaves and another comes. Whoever is lost waits for good.
func TestGateLosesNobody(t *testing.T) {
	eventuallyFences(t)
	g := quietGate(t)
	ctx := context.Background()
	rounds := 100_000
	if testing.Short() {
		rounds = 10_000
	}
	var inside, served atomic.Int64
	enter := func() {
		if inside.Add(1) != 1 {
			t.Error("two hold the gate")
		}
	}
	leave := func() {
		inside.Add(-1)
		served.Add(1)
	}
	pause := func() {
		for range rand.IntN(100) {
			_ = inside.Load()
		}
		if rand.IntN(64) == 0 {
			runtime.Gosched()
		}
	}
	var all, worker sync.WaitGroup
	slots := make([]turn, 2)
	ended := make([]chan struct{}, len(slots))
	for i := range slots {
		slots[i].slot, ended[i] = i, make(chan struct{}, 1)
	}
	worker.Go(func() {
		for slot := range g.grant {
			for slot >= 0 {
				enter()
				pause()
				leave()
				next := g.pass(1)
				ended[slot] <- struct{}{}
				slot = next
			}
		}
	})
	for range 2 {
		all.Go(func() {
			for range rounds {
				if err := g.acquire(ctx); err != nil {
					t.Error(err)
					return
				}
				enter()
				pause()
				leave()
				again(g)
				g.release(1)
				pause()
			}
		})
	}
	all.Go(func() {
		for range rounds / 4 {
			if err := g.visit(ctx, false); err != nil {
				t.Error(err)
				return
			}
			enter()
			leave()
			g.depart(1)
			for range 4 {
				pause()
			}
		}
	})
	all.Go(func() { // some give up
		for i := range rounds / 4 {
			short, cancel := context.WithCancel(ctx)
			go cancel()
			if g.acquire(short) == nil {
				enter()
				leave()
				g.release(1)
			}
			cancel()
			if i%4 == 0 {
				pause()
			}
		}
	})
	for i := range slots {
		all.Go(func() {
			for range rounds / 4 {
				if err := g.submit(&slots[i]); err != nil {
					t.Error(err)
					return
				}
				<-ended[i]
				pause()
			}
		})
	}
	all.Wait()
	require.EqualValues(t, served.Load(), g.requests())
	require.Zero(t, g.load())

	_, idle, busy := g.close()
	require.False(t, busy)
	<-idle
	require.ErrorIs(t, g.acquire(ctx), ErrClosed)
	close(g.grant)
	worker.Wait()
}

// TestGateMeeting makes one caller leave quietly at about the moment at which
// another comes, who would wait for good if neither saw what the other did: the
// first comes again only when the second has left.
func TestGateMeeting(t *testing.T) {
	if runtime.GOMAXPROCS(0) < 2 {
		t.Skip("one processor")
	}
	eventuallyFences(t)
	g := quietGate(t)
	ctx := context.Background()
	rounds := int64(100_000)
	if testing.Short() {
		rounds = 10_000
	}
	before := g.requests()
	var first, second atomic.Int64 // rounds that they are done with
	await := func(other *atomic.Int64, n int64) {
		for i := 1; other.Load() < n; i++ {
			if i%1024 == 0 {
				runtime.Gosched()
			}
		}
	}
	var waited atomic.Int64
	meet := func(mine, other *atomic.Int64) {
		for n := range rounds {
			await(other, n)
			for range rand.IntN(32) {
				_ = mine.Load()
			}
			again(g)
			if !g.take() {
				waited.Add(1)
				if err := g.acquire(ctx); err != nil {
					t.Error(err)
					return
				}
			}
			g.release(1)
			mine.Store(n + 1)
		}
	}
	var all sync.WaitGroup
	all.Go(func() { meet(&first, &second) })
	all.Go(func() { meet(&second, &first) })
	all.Wait()
	t.Logf("%d of %d times one came while the other was there", waited.Load(), rounds)
	require.EqualValues(t, before+2*uint64(rounds), g.requests())
}

// TestGateCloses closes gates while callers come and go: nobody is inside any
// more once it is idle.
func TestGateCloses(t *testing.T) {
	eventuallyFences(t)
	ctx := context.Background()
	for range 2000 {
		g := quietGate(t)
		var inside atomic.Int64
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				for g.acquire(ctx) == nil {
					inside.Add(1)
					inside.Add(-1)
					g.release(1)
				}
			})
		}
		for range rand.IntN(2000) {
			_ = inside.Load()
		}
		_, idle, _ := g.close()
		<-idle
		require.Zero(t, inside.Load())
		all.Wait()
	}
}

// again makes the next caller leave quietly, whatever has happened.
func again(g *gate) {
	if canFence() {
		g.manner.Store(quiet)
	}
}

// eventuallyFences waits until fences work, if they ever will.
func eventuallyFences(t testing.TB) {
	for end := time.Now().Add(time.Second); !canFence() && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	t.Logf("leaving quietly: %v", canFence())
}
