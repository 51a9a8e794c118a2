package line

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/rt/internal/callerr"
	"github.com/popefgen/popefgen/rt/internal/errs"
)

// These tests take the gate through its states one step at a time, so that what
// else only a race of several goroutines would meet happens for certain.

// leaveUnseen makes the holder leave as far as the state goes: it has yet to look
// for who is next.
func (g *Gate) leaveUnseen() { g.state.Add(^uint64(Held - 1)) }

// TestGateWhileHandingOn has newcomers in the moment between that in which a
// holder leaves and that in which it gives the gate to the submitted request that
// is next: nobody gets in between.
func TestGateWhileHandingOn(t *testing.T) {
	for name, try := range map[string]func(g *Gate) bool{
		"take":    func(g *Gate) bool { return g.Take(Held) },
		"acquire": func(g *Gate) bool { turn, err := g.Enlist(caller); return turn == nil && err == nil },
		"visit":   func(g *Gate) bool { turn, err := g.Enlist(Guest); return turn == nil && err == nil },
		"submit": func(g *Gate) bool {
			_ = g.submit(&turn{slot: 2}, 1)
			return len(g.Grant) > 0
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate()
			require.True(t, g.Take(Held))
			require.NoError(t, g.submit(&turn{slot: 1}, 1))
			g.leaveUnseen()
			require.False(t, try(g), "the submitted request comes first")
			g.next()
			require.Equal(t, 1, <-g.Grant)
		})
	}
}

// TestGateKinds is about what each kind of turn holds the gate as, and which
// bounds keep it out.
func TestGateKinds(t *testing.T) {
	for kind, want := range map[Kind]uint64{caller: Held, Guest: Held | byWorker, Leader: Held | byWorker, Stayer: Held | byWorker} {
		g := newGate()
		turn, err := g.Enlist(kind)
		require.NoError(t, err)
		require.Nil(t, turn, "it is free")
		require.Equal(t, want, g.state.Load(), "kind %d", kind)
	}
	t.Run("single caller", func(t *testing.T) {
		g := newGate()
		g.Single = true
		require.True(t, g.Take(Held))
		for _, kind := range []Kind{Guest, Leader, Stayer} {
			turn, err := g.Enlist(kind)
			require.NoError(t, err, "kind %d is in no caller's way", kind)
			require.NotNil(t, turn)
		}
		_, err := g.Enlist(caller)
		require.ErrorIs(t, err, errs.ErrConcurrent)
	})
	t.Run("bound", func(t *testing.T) {
		g := newGate()
		g.MaxWaiting = 1
		require.True(t, g.Take(Held))
		require.NoError(t, g.submit(&turn{slot: 1}, 1))
		for _, kind := range []Kind{Leader, Stayer, caller} {
			turn, err := g.Enlist(kind)
			require.NoError(t, err, "kind %d: neither submitted requests nor who was let in before count", kind)
			require.NotNil(t, turn)
		}
		for _, kind := range []Kind{caller, Guest} {
			_, err := g.Enlist(kind)
			require.ErrorIs(t, err, errs.ErrOverloaded)
		}
		turn, err := g.Enlist(Leader)
		require.NoError(t, err)
		require.NotNil(t, turn)
	})
}

// TestGatePatience has turns that are woken and find that somebody was faster.
// One that has waited for longer than patience is not overtaken again, nor is the
// next one that has; after them newcomers may overtake.
func TestGatePatience(t *testing.T) {
	g := newGate()
	seize := func(turn *turn) bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.seize(turn)
	}
	require.True(t, g.Take(Held))
	first, err := g.Enlist(caller)
	require.NoError(t, err)
	second, err := g.Enlist(Guest)
	require.NoError(t, err)
	first.since = Now() + int64(patience) // however long this test takes: it has waited for less
	g.Release(0)
	require.True(t, first.first)
	require.True(t, g.Take(Held), "a newcomer may overtake")
	require.False(t, seize(first))
	require.Zero(t, g.state.Load()&strict, "it has not waited for long")
	g.Release(0)
	require.True(t, g.Take(Held))
	first.since, second.since = Now()-2*int64(patience), Now()-2*int64(patience)
	require.False(t, seize(first))
	require.NotZero(t, g.state.Load()&strict, "it has waited for long")
	g.leaveUnseen()
	require.False(t, g.Take(Held))
	g.next()
	require.True(t, first.ended, "the gate is handed over")
	g.Release(0)
	require.True(t, second.ended, "and so to the next that has waited for long")
	g.Depart(0)
	require.Zero(t, g.state.Load()&(1<<flagBits-1), "newcomers may overtake again")
}

// TestGateGivesUpInTurn has a context that ends at the moment at which its turn
// has come, or is not to come any more.
func TestGateGivesUpInTurn(t *testing.T) {
	for name, failed := range map[string]error{"the turn came": nil, "no turn will come": ipu.ErrClosed} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate()
				require.True(t, g.Take(Held))
				ctx, cancel := context.WithCancel(t.Context())
				got := make(chan error, 1)
				go func() { got <- g.Acquire(ctx) }()
				synctest.Wait()
				g.mu.Lock()
				turn := g.head
				g.unlink(turn)
				turn.ended, turn.err = true, failed // handed over, or dismissed, and not told yet
				g.mu.Unlock()
				cancel()
				err := <-got
				if failed != nil {
					require.ErrorIs(t, err, failed)
					require.Equal(t, 1, g.Load(), "somebody else has the gate")
					return
				}
				require.ErrorIs(t, err, context.Canceled)
				require.Zero(t, g.Load(), "it has left the gate")
			})
		})
	}
}

// TestGateWokenGivesUp has the turn that was woken give up: whoever waits behind
// it is woken in its place.
func TestGateWokenGivesUp(t *testing.T) {
	wokenCaller := func(t *testing.T, g *Gate) (cancel func(), got chan error) {
		ctx, cancel := context.WithCancel(t.Context())
		got = make(chan error, 1)
		go func() { got <- g.Acquire(ctx) }()
		synctest.Wait()
		g.mu.Lock()
		g.state.Or(woken) // and it has not looked yet
		g.head.first = true
		g.mu.Unlock()
		return cancel, got
	}
	t.Run("a caller is next", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := newGate()
			require.True(t, g.Take(Held))
			cancel, got := wokenCaller(t, g)
			next := make(chan error, 1)
			go func() { next <- g.Acquire(t.Context()) }()
			synctest.Wait()
			g.Release(0)
			cancel()
			require.ErrorIs(t, <-got, context.Canceled)
			require.NoError(t, <-next)
		})
	})
	t.Run("a submitted request is next", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := newGate()
			require.True(t, g.Take(Held))
			cancel, got := wokenCaller(t, g)
			require.NoError(t, g.submit(&turn{slot: 3}, 1))
			g.Release(0)
			synctest.Wait()
			require.Empty(t, g.Grant)
			cancel()
			require.ErrorIs(t, <-got, context.Canceled)
			synctest.Wait()
			require.Len(t, g.Grant, 1)
			require.Equal(t, 3, <-g.Grant)
		})
	})
}

// TestGateClosed lets nobody in, whether it was idle or busy, and turns those
// away that wait. What comes later, such as a ticket that is cancelled, finds it
// as it is.
func TestGateClosed(t *testing.T) {
	for _, busy := range []bool{false, true} {
		g := newGate()
		if busy {
			require.True(t, g.Take(Held))
		}
		var lines []chan error // of a caller and a guest that wait, if it is busy
		for _, who := range []Kind{caller, Guest} {
			if busy {
				line := make(chan error, 1)
				go func() { line <- g.line(t.Context(), who) }()
				lines = append(lines, line)
				require.Eventually(t, func() bool { return g.Load() == 1+len(lines) }, 10*time.Second, time.Millisecond)
			}
		}
		_, idle, was := g.Close()
		require.Equal(t, busy, was)
		require.False(t, g.Take(Held))
		require.ErrorIs(t, g.submit(&turn{slot: 1}, 1), ipu.ErrClosed)
		_, err := g.Enlist(caller)
		require.ErrorIs(t, err, ipu.ErrClosed)
		_, err = g.Enlist(Stayer)
		require.ErrorIs(t, err, ipu.ErrClosed)
		for _, line := range lines {
			require.ErrorIs(t, <-line, ipu.ErrClosed)
		}
		if busy {
			require.Empty(t, idle)
			g.Release(0)
		}
		<-idle
		require.False(t, g.withdraw(&turn{slot: 1}, 1))
	}
}

// TestGateDrainedTwice drains gates that are idle, and from two sides.
func TestGateDrainedTwice(t *testing.T) {
	g := newGate()
	<-g.Drain()
	require.False(t, g.Take(Held))
	require.ErrorIs(t, g.Acquire(t.Context()), ipu.ErrClosed)
	require.ErrorIs(t, g.submit(&turn{slot: 1}, 1), ipu.ErrClosed)

	g = newGate()
	require.True(t, g.Take(Held))
	first, second := g.Drain(), g.Drain()
	g.Release(0)
	<-first
	<-second
	<-g.Drain()
}

// TestGateExpired takes every request out of the line whose context has ended,
// and no other.
func TestGateExpired(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	g := newGate()
	require.True(t, g.Take(Held))
	q := NewQueue(callerr.Subject{}, 4, -1)
	all := make([]*pending, 4)
	for i := range all {
		all[i] = &pending{queue: q}
		all[i].turn.slot, all[i].turn.request = i, all[i]
		ctx := t.Context()
		if i%2 == 1 {
			ctx = over
		}
		all[i].begin(ctx, nil)
		require.NoError(t, g.submit(&all[i].turn, 0))
	}
	require.Equal(t, []*pending{all[1], all[3]}, g.expired())
	require.Empty(t, g.expired())
	g.Release(0)
	require.Equal(t, 0, <-g.Grant)
	require.Equal(t, 2, g.pass(1))
	require.Equal(t, -1, g.pass(1))
}

// TestGateTurnsAway empties the line but for another session that waits for the
// device: a failure is the reason for it to wait, not one to send it away.
func TestGateTurnsAway(t *testing.T) {
	g := newGate()
	require.True(t, g.Take(Held))
	first, err := g.Enlist(caller)
	require.NoError(t, err)
	stays, err := g.Enlist(Stayer)
	require.NoError(t, err)
	require.NoError(t, g.submit(&turn{slot: 1}, 1))
	last, err := g.Enlist(Guest)
	require.NoError(t, err)
	failure := errors.New("the device failed")
	var told []int
	g.TurnAway(func(slot int) error {
		told = append(told, slot)
		return failure
	})
	require.Equal(t, []int{-1, 1, -1}, told)
	require.True(t, first.ended && last.ended)
	require.Same(t, failure, first.err)
	require.Same(t, failure, last.err)
	require.False(t, stays.ended)
	require.Same(t, stays, g.head)
	require.EqualValues(t, 3, g.Requests())
	g.mu.Lock()
	g.recycle(first)
	g.mu.Unlock()
	again, err := g.Enlist(caller)
	require.NoError(t, err)
	require.Same(t, first, again)
	require.NoError(t, again.err, "the failure is not that of who comes next")
	require.False(t, again.ended)
	g.Release(1)
	require.True(t, stays.first)
}
