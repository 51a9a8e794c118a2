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

func newGate() *gate { return &gate{maxWaiting: -1, grant: make(chan int, 1)} }

// eventually waits until f holds.
func soon(t *testing.T, f func() bool, what string) {
	t.Helper()
	require.Eventually(t, f, 10*time.Second, 10*time.Microsecond, what)
}

// TestGateLosesNobody makes callers, guests and submitted requests meet at the
// moment at which one leaves and another comes. Whoever is lost waits for good.
func TestGateLosesNobody(t *testing.T) {
	g := newGate()
	ctx := context.Background()
	rounds := 50_000
	if testing.Short() {
		rounds = 5_000
	}
	var inside, served atomic.Int64
	unguarded := 0 // the race detector sees who has not the gate
	enter := func() {
		if inside.Add(1) != 1 {
			t.Error("two hold the gate")
		}
		unguarded++
	}
	leave := func() {
		unguarded--
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
				g.release(1)
				pause()
			}
		})
	}
	all.Go(func() {
		for range rounds / 4 {
			if err := g.visit(ctx, guest); err != nil {
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
			for n := range rounds / 4 {
				if err := g.submit(&slots[i], 1); err != nil {
					t.Error(err)
					return
				}
				if n%8 == 0 && g.withdraw(&slots[i], 1) {
					continue
				}
				<-ended[i]
				pause()
			}
		})
	}
	all.Wait()
	require.EqualValues(t, served.Load(), g.requests())
	require.Zero(t, g.load())
	require.Zero(t, g.callers+g.guests+g.slots)
	require.Zero(t, g.state.Load()&(1<<flagBits-1), "no flag is left")

	_, idle, busy := g.close()
	require.False(t, busy)
	<-idle
	require.ErrorIs(t, g.acquire(ctx), ErrClosed)
	close(g.grant)
	worker.Wait()
}

// TestGateCloses closes gates while callers come and go: nobody is inside any
// more once it is idle.
func TestGateCloses(t *testing.T) {
	ctx := context.Background()
	for range 2000 {
		g := newGate()
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

// TestGateStarvesNobody has a caller that leaves the gate for no more than a
// moment at a time, for as long as it takes until another one gets it. That one
// must get it all the same, once it has waited for longer than patience: without
// that, it would have to be on a processor in that very moment.
func TestGateStarvesNobody(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // nobody is ever faster than who holds it
	ctx := context.Background()
	for _, visits := range []bool{false, true} {
		g := newGate()
		require.NoError(t, g.acquire(ctx))
		var got atomic.Bool
		go func() {
			if visits {
				_ = g.visit(ctx, guest)
			} else {
				_ = g.acquire(ctx)
			}
			got.Store(true)
			if visits {
				g.depart(0)
			} else {
				g.release(0)
			}
		}()
		soon(t, func() bool { return g.load() == 2 }, "it waits")
		overtaken := 0
		for start := time.Now(); !got.Load(); overtaken++ {
			g.release(0)
			require.NoError(t, g.acquire(ctx)) // before the other one has a processor
			if runtime.Gosched(); time.Since(start) > time.Minute {
				t.Fatal("it is overtaken for ever")
			}
		}
		require.Positive(t, overtaken)
		g.release(0)
		soon(t, func() bool { return g.load() == 0 && g.state.Load()&strict == 0 }, "overtaking is allowed again")
	}
}

// TestGateOrder is about who may come before whom.
func TestGateOrder(t *testing.T) {
	ctx := context.Background()
	t.Run("a newcomer overtakes callers", func(t *testing.T) {
		g := newGate()
		require.NoError(t, g.acquire(ctx))
		got := make(chan error, 1)
		go func() { got <- g.acquire(ctx) }()
		soon(t, func() bool { return g.load() == 2 }, "it waits")
		g.mu.Lock() // so that the one that is woken gets no further
		g.state.Add(^uint64(held - 1))
		require.True(t, g.take(held))
		g.mu.Unlock()
		g.release(0)
		require.NoError(t, <-got)
		g.release(0)
	})
	t.Run("nobody overtakes submitted requests", func(t *testing.T) {
		g := newGate()
		require.NoError(t, g.acquire(ctx))
		first, second := turn{slot: 1}, turn{slot: 2}
		require.NoError(t, g.submit(&first, 1))
		require.NoError(t, g.submit(&second, 1))
		got := make(chan error, 1)
		go func() { got <- g.acquire(ctx) }()
		soon(t, func() bool { return g.load() == 4 }, "it waits")
		g.release(1)
		require.Equal(t, 1, <-g.grant)
		require.False(t, g.take(held))
		require.Equal(t, 2, g.pass(1))
		require.Empty(t, got)
		require.Equal(t, -1, g.pass(1))
		require.NoError(t, <-got)
		g.release(1)
		require.EqualValues(t, 4, g.requests())
	})
	t.Run("who gives up while it is its turn leaves it to the next", func(t *testing.T) {
		for range 200 {
			g := newGate()
			require.NoError(t, g.acquire(ctx))
			short, cancel := context.WithCancel(ctx)
			got, next := make(chan error, 1), make(chan error, 1)
			go func() { got <- g.acquire(short) }()
			soon(t, func() bool { return g.load() == 2 }, "the first waits")
			go func() { next <- g.acquire(ctx) }()
			soon(t, func() bool { return g.load() == 3 }, "the second waits")
			go cancel()
			g.release(0)
			if err := <-got; err == nil {
				g.release(0)
			} else {
				require.ErrorIs(t, err, context.Canceled)
			}
			require.NoError(t, <-next)
			g.release(0)
			require.Zero(t, g.load())
		}
	})
	t.Run("a withdrawn request lets callers overtake again", func(t *testing.T) {
		g := newGate()
		require.NoError(t, g.acquire(ctx))
		request := turn{slot: 1}
		require.NoError(t, g.submit(&request, 1))
		require.True(t, g.withdraw(&request, 1))
		require.False(t, g.withdraw(&request, 1))
		require.NoError(t, g.submit(&request, 2))
		require.False(t, g.withdraw(&request, 1), "it is another request by now")
		require.True(t, g.withdraw(&request, 2))
		g.release(0)
		require.True(t, g.take(held))
		require.Zero(t, len(g.grant))
	})
}

// TestGateBound refuses callers and guests that would be too many, and counts
// who leaves the line.
func TestGateBound(t *testing.T) {
	ctx := context.Background()
	g := newGate()
	g.maxWaiting = 2
	require.NoError(t, g.acquire(ctx))
	short, cancel := context.WithCancel(ctx)
	got := make(chan error, 3)
	go func() { got <- g.acquire(short) }()
	go func() { got <- g.visit(short, guest) }()
	soon(t, func() bool { return g.load() == 3 }, "two wait")
	require.ErrorIs(t, g.acquire(ctx), ErrOverloaded)
	require.ErrorIs(t, g.visit(ctx, guest), ErrOverloaded)
	request := turn{slot: 1}
	require.NoError(t, g.submit(&request, 1), "the queue has a bound of its own")
	require.True(t, g.withdraw(&request, 1))
	stay, leave := context.WithCancel(ctx)
	go func() { got <- g.visit(stay, stayer) }()
	soon(t, func() bool { return g.load() == 4 }, "no bound keeps out who stays")
	cancel()
	require.ErrorIs(t, <-got, context.Canceled)
	require.ErrorIs(t, <-got, context.Canceled)
	go func() { got <- g.acquire(ctx) }()
	soon(t, func() bool { return g.load() == 3 }, "there is room again")
	leave()
	require.ErrorIs(t, <-got, context.Canceled)
	g.release(0)
	require.NoError(t, <-got)
	g.release(0)
	g.maxWaiting = 0
	require.NoError(t, g.acquire(ctx), "nobody has to wait")
	require.ErrorIs(t, g.acquire(ctx), ErrOverloaded)
}

// TestGateDrains lets those in that wait, and nobody else.
func TestGateDrains(t *testing.T) {
	ctx := context.Background()
	g := newGate()
	require.NoError(t, g.acquire(ctx))
	got := make(chan error, 1)
	go func() { got <- g.acquire(ctx) }()
	soon(t, func() bool { return g.load() == 2 }, "one waits")
	request := turn{slot: 1}
	require.NoError(t, g.submit(&request, 1))
	drained := g.drain()
	require.ErrorIs(t, g.acquire(ctx), ErrClosed)
	require.ErrorIs(t, g.submit(&turn{slot: 2}, 1), ErrClosed)
	g.release(1)
	require.NoError(t, <-got)
	require.Empty(t, drained)
	g.release(1)
	require.Equal(t, 1, <-g.grant)
	select {
	case <-drained:
		t.Fatal("one is inside")
	default:
	}
	require.Equal(t, -1, g.pass(1))
	<-drained
	<-g.drain()
	require.NoError(t, g.visit(ctx, stayer), "who was accepted elsewhere")
	g.depart(0)
}
