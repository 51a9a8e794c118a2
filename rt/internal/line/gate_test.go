package line

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/rt/internal/errs"
)

func newGate() *Gate { return &Gate{MaxWaiting: -1, Grant: make(chan int, 1)} }

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
		for slot := range g.Grant {
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
				if err := g.Acquire(ctx); err != nil {
					t.Error(err)
					return
				}
				enter()
				pause()
				leave()
				g.Release(1)
				pause()
			}
		})
	}
	all.Go(func() {
		for range rounds / 4 {
			if err := g.Visit(ctx, Guest); err != nil {
				t.Error(err)
				return
			}
			enter()
			leave()
			g.Depart(1)
			for range 4 {
				pause()
			}
		}
	})
	all.Go(func() { // some give up
		for i := range rounds / 4 {
			short, cancel := context.WithCancel(ctx)
			go cancel()
			if g.Acquire(short) == nil {
				enter()
				leave()
				g.Release(1)
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
	require.EqualValues(t, served.Load(), g.Requests())
	require.Zero(t, g.Load())
	require.Zero(t, g.callers+g.guests+g.slots)
	require.Zero(t, g.state.Load()&(1<<flagBits-1), "no flag is left")

	_, idle, busy := g.Close()
	require.False(t, busy)
	<-idle
	require.ErrorIs(t, g.Acquire(ctx), ipu.ErrClosed)
	close(g.Grant)
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
				for g.Acquire(ctx) == nil {
					inside.Add(1)
					inside.Add(-1)
					g.Release(1)
				}
			})
		}
		for range rand.IntN(2000) {
			_ = inside.Load()
		}
		_, idle, _ := g.Close()
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
		require.NoError(t, g.Acquire(ctx))
		var got atomic.Bool
		go func() {
			if visits {
				_ = g.Visit(ctx, Guest)
			} else {
				_ = g.Acquire(ctx)
			}
			got.Store(true)
			if visits {
				g.Depart(0)
			} else {
				g.Release(0)
			}
		}()
		soon(t, func() bool { return g.Load() == 2 }, "it waits")
		overtaken := 0
		for start := time.Now(); !got.Load(); overtaken++ {
			g.Release(0)
			require.NoError(t, g.Acquire(ctx)) // before the other one has a processor
			if runtime.Gosched(); time.Since(start) > time.Minute {
				t.Fatal("it is overtaken for ever")
			}
		}
		require.Positive(t, overtaken)
		g.Release(0)
		soon(t, func() bool { return g.Load() == 0 && g.state.Load()&strict == 0 }, "overtaking is allowed again")
	}
}

// TestGateOrder is about who may come before whom.
func TestGateOrder(t *testing.T) {
	ctx := context.Background()
	t.Run("a newcomer overtakes callers", func(t *testing.T) {
		g := newGate()
		require.NoError(t, g.Acquire(ctx))
		got := make(chan error, 1)
		go func() { got <- g.Acquire(ctx) }()
		soon(t, func() bool { return g.Load() == 2 }, "it waits")
		g.mu.Lock() // so that the one that is woken gets no further
		g.state.Add(^uint64(Held - 1))
		require.True(t, g.Take(Held))
		g.mu.Unlock()
		g.Release(0)
		require.NoError(t, <-got)
		g.Release(0)
	})
	t.Run("nobody overtakes submitted requests", func(t *testing.T) {
		g := newGate()
		require.NoError(t, g.Acquire(ctx))
		first, second := turn{slot: 1}, turn{slot: 2}
		require.NoError(t, g.submit(&first, 1))
		require.NoError(t, g.submit(&second, 1))
		got := make(chan error, 1)
		go func() { got <- g.Acquire(ctx) }()
		soon(t, func() bool { return g.Load() == 4 }, "it waits")
		g.Release(1)
		require.Equal(t, 1, <-g.Grant)
		require.False(t, g.Take(Held))
		require.Equal(t, 2, g.pass(1))
		require.Empty(t, got)
		require.Equal(t, -1, g.pass(1))
		require.NoError(t, <-got)
		g.Release(1)
		require.EqualValues(t, 4, g.Requests())
	})
	t.Run("who gives up while it is its turn leaves it to the next", func(t *testing.T) {
		for range 200 {
			g := newGate()
			require.NoError(t, g.Acquire(ctx))
			short, cancel := context.WithCancel(ctx)
			got, next := make(chan error, 1), make(chan error, 1)
			go func() { got <- g.Acquire(short) }()
			soon(t, func() bool { return g.Load() == 2 }, "the first waits")
			go func() { next <- g.Acquire(ctx) }()
			soon(t, func() bool { return g.Load() == 3 }, "the second waits")
			go cancel()
			g.Release(0)
			if err := <-got; err == nil {
				g.Release(0)
			} else {
				require.ErrorIs(t, err, context.Canceled)
			}
			require.NoError(t, <-next)
			g.Release(0)
			require.Zero(t, g.Load())
		}
	})
	t.Run("a withdrawn request lets callers overtake again", func(t *testing.T) {
		g := newGate()
		require.NoError(t, g.Acquire(ctx))
		request := turn{slot: 1}
		require.NoError(t, g.submit(&request, 1))
		require.True(t, g.withdraw(&request, 1))
		require.False(t, g.withdraw(&request, 1))
		require.NoError(t, g.submit(&request, 2))
		require.False(t, g.withdraw(&request, 1), "it is another request by now")
		require.True(t, g.withdraw(&request, 2))
		g.Release(0)
		require.True(t, g.Take(Held))
		require.Zero(t, len(g.Grant))
	})
}

// TestGateBound refuses callers and guests that would be too many, and counts
// who leaves the line.
func TestGateBound(t *testing.T) {
	ctx := context.Background()
	g := newGate()
	g.MaxWaiting = 2
	require.NoError(t, g.Acquire(ctx))
	short, cancel := context.WithCancel(ctx)
	got := make(chan error, 3)
	go func() { got <- g.Acquire(short) }()
	go func() { got <- g.Visit(short, Guest) }()
	soon(t, func() bool { return g.Load() == 3 }, "two wait")
	require.ErrorIs(t, g.Acquire(ctx), errs.ErrOverloaded)
	require.ErrorIs(t, g.Visit(ctx, Guest), errs.ErrOverloaded)
	request := turn{slot: 1}
	require.NoError(t, g.submit(&request, 1), "the queue has a bound of its own")
	require.True(t, g.withdraw(&request, 1))
	stay, leave := context.WithCancel(ctx)
	go func() { got <- g.Visit(stay, Stayer) }()
	soon(t, func() bool { return g.Load() == 4 }, "no bound keeps out who stays")
	cancel()
	require.ErrorIs(t, <-got, context.Canceled)
	require.ErrorIs(t, <-got, context.Canceled)
	go func() { got <- g.Acquire(ctx) }()
	soon(t, func() bool { return g.Load() == 3 }, "there is room again")
	leave()
	require.ErrorIs(t, <-got, context.Canceled)
	g.Release(0)
	require.NoError(t, <-got)
	g.Release(0)
	g.MaxWaiting = 0
	require.NoError(t, g.Acquire(ctx), "nobody has to wait")
	require.ErrorIs(t, g.Acquire(ctx), errs.ErrOverloaded)
}

// TestGateDrains lets those in that wait, and nobody else.
func TestGateDrains(t *testing.T) {
	ctx := context.Background()
	g := newGate()
	require.NoError(t, g.Acquire(ctx))
	got := make(chan error, 1)
	go func() { got <- g.Acquire(ctx) }()
	soon(t, func() bool { return g.Load() == 2 }, "one waits")
	request := turn{slot: 1}
	require.NoError(t, g.submit(&request, 1))
	drained := g.Drain()
	require.ErrorIs(t, g.Acquire(ctx), ipu.ErrClosed)
	require.ErrorIs(t, g.submit(&turn{slot: 2}, 1), ipu.ErrClosed)
	g.Release(1)
	require.NoError(t, <-got)
	require.Empty(t, drained)
	g.Release(1)
	require.Equal(t, 1, <-g.Grant)
	select {
	case <-drained:
		t.Fatal("one is inside")
	default:
	}
	require.Equal(t, -1, g.pass(1))
	<-drained
	<-g.Drain()
	require.NoError(t, g.Visit(ctx, Stayer), "who was accepted elsewhere")
	g.Depart(0)
}
