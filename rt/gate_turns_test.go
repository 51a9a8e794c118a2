package rt

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// These tests take the gate through its states one step at a time, so that what
// else only a race of several goroutines would meet happens for certain.

// leaveUnseen makes the holder leave as far as the state goes: it has yet to look
// for who is next.
func (g *gate) leaveUnseen() { g.state.Add(^uint64(held - 1)) }

// TestGateWhileHandingOn has newcomers in the moment between that in which a
// holder leaves and that in which it gives the gate to the submitted request that
// is next: nobody gets in between.
func TestGateWhileHandingOn(t *testing.T) {
	for name, try := range map[string]func(g *gate) bool{
		"take":    func(g *gate) bool { return g.take(held) },
		"acquire": func(g *gate) bool { turn, err := g.enlist(caller); return turn == nil && err == nil },
		"visit":   func(g *gate) bool { turn, err := g.enlist(guest); return turn == nil && err == nil },
		"submit": func(g *gate) bool {
			_ = g.submit(&turn{slot: 2}, 1)
			return len(g.grant) > 0
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate()
			require.True(t, g.take(held))
			require.NoError(t, g.submit(&turn{slot: 1}, 1))
			g.leaveUnseen()
			require.False(t, try(g), "the submitted request comes first")
			g.next()
			require.Equal(t, 1, <-g.grant)
		})
	}
}

// TestGateKinds is about what each kind of turn holds the gate as, and which
// bounds keep it out.
func TestGateKinds(t *testing.T) {
	for kind, want := range map[kind]uint64{caller: held, guest: held | byWorker, leader: held | byWorker, stayer: held | byWorker} {
		g := newGate()
		turn, err := g.enlist(kind)
		require.NoError(t, err)
		require.Nil(t, turn, "it is free")
		require.Equal(t, want, g.state.Load(), "kind %d", kind)
	}
	t.Run("single caller", func(t *testing.T) {
		g := newGate()
		g.single = true
		require.True(t, g.take(held))
		for _, kind := range []kind{guest, leader, stayer} {
			turn, err := g.enlist(kind)
			require.NoError(t, err, "kind %d is in no caller's way", kind)
			require.NotNil(t, turn)
		}
		_, err := g.enlist(caller)
		require.ErrorIs(t, err, ErrConcurrent)
	})
	t.Run("bound", func(t *testing.T) {
		g := newGate()
		g.maxWaiting = 1
		require.True(t, g.take(held))
		require.NoError(t, g.submit(&turn{slot: 1}, 1))
		for _, kind := range []kind{leader, stayer, caller} {
			turn, err := g.enlist(kind)
			require.NoError(t, err, "kind %d: neither submitted requests nor who was let in before count", kind)
			require.NotNil(t, turn)
		}
		for _, kind := range []kind{caller, guest} {
			_, err := g.enlist(kind)
			require.ErrorIs(t, err, ErrOverloaded)
		}
		turn, err := g.enlist(leader)
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
	require.True(t, g.take(held))
	first, err := g.enlist(caller)
	require.NoError(t, err)
	second, err := g.enlist(guest)
	require.NoError(t, err)
	first.since = now() + int64(patience) // however long this test takes: it has waited for less
	g.release(0)
	require.True(t, first.first)
	require.True(t, g.take(held), "a newcomer may overtake")
	require.False(t, seize(first))
	require.Zero(t, g.state.Load()&strict, "it has not waited for long")
	g.release(0)
	require.True(t, g.take(held))
	first.since, second.since = now()-2*int64(patience), now()-2*int64(patience)
	require.False(t, seize(first))
	require.NotZero(t, g.state.Load()&strict, "it has waited for long")
	g.leaveUnseen()
	require.False(t, g.take(held))
	g.next()
	require.True(t, first.ended, "the gate is handed over")
	g.release(0)
	require.True(t, second.ended, "and so to the next that has waited for long")
	g.depart(0)
	require.Zero(t, g.state.Load()&(1<<flagBits-1), "newcomers may overtake again")
}

// TestGateGivesUpInTurn has a context that ends at the moment at which its turn
// has come, or is not to come any more.
func TestGateGivesUpInTurn(t *testing.T) {
	for name, failed := range map[string]error{"the turn came": nil, "no turn will come": ErrClosed} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate()
				require.True(t, g.take(held))
				ctx, cancel := context.WithCancel(t.Context())
				got := make(chan error, 1)
				go func() { got <- g.acquire(ctx) }()
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
					require.Equal(t, 1, g.load(), "somebody else has the gate")
					return
				}
				require.ErrorIs(t, err, context.Canceled)
				require.Zero(t, g.load(), "it has left the gate")
			})
		})
	}
}

// TestGateWokenGivesUp has the turn that was woken give up: whoever waits behind
// it is woken in its place.
func TestGateWokenGivesUp(t *testing.T) {
	wokenCaller := func(t *testing.T, g *gate) (cancel func(), got chan error) {
		ctx, cancel := context.WithCancel(t.Context())
		got = make(chan error, 1)
		go func() { got <- g.acquire(ctx) }()
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
			require.True(t, g.take(held))
			cancel, got := wokenCaller(t, g)
			next := make(chan error, 1)
			go func() { next <- g.acquire(t.Context()) }()
			synctest.Wait()
			g.release(0)
			cancel()
			require.ErrorIs(t, <-got, context.Canceled)
			require.NoError(t, <-next)
		})
	})
	t.Run("a submitted request is next", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := newGate()
			require.True(t, g.take(held))
			cancel, got := wokenCaller(t, g)
			require.NoError(t, g.submit(&turn{slot: 3}, 1))
			g.release(0)
			synctest.Wait()
			require.Empty(t, g.grant)
			cancel()
			require.ErrorIs(t, <-got, context.Canceled)
			synctest.Wait()
			require.Len(t, g.grant, 1)
			require.Equal(t, 3, <-g.grant)
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
			require.True(t, g.take(held))
		}
		var lines []chan error // of a caller and a guest that wait, if it is busy
		for _, who := range []kind{caller, guest} {
			if busy {
				line := make(chan error, 1)
				go func() { line <- g.line(t.Context(), who) }()
				lines = append(lines, line)
				require.Eventually(t, func() bool { return g.load() == 1+len(lines) }, 10*time.Second, time.Millisecond)
			}
		}
		_, idle, was := g.close()
		require.Equal(t, busy, was)
		require.False(t, g.take(held))
		require.ErrorIs(t, g.submit(&turn{slot: 1}, 1), ErrClosed)
		_, err := g.enlist(caller)
		require.ErrorIs(t, err, ErrClosed)
		_, err = g.enlist(stayer)
		require.ErrorIs(t, err, ErrClosed)
		for _, line := range lines {
			require.ErrorIs(t, <-line, ErrClosed)
		}
		if busy {
			require.Empty(t, idle)
			g.release(0)
		}
		<-idle
		require.False(t, g.withdraw(&turn{slot: 1}, 1))
	}
}

// TestGateDrainedTwice drains gates that are idle, and from two sides.
func TestGateDrainedTwice(t *testing.T) {
	g := newGate()
	<-g.drain()
	require.False(t, g.take(held))
	require.ErrorIs(t, g.acquire(t.Context()), ErrClosed)
	require.ErrorIs(t, g.submit(&turn{slot: 1}, 1), ErrClosed)

	g = newGate()
	require.True(t, g.take(held))
	first, second := g.drain(), g.drain()
	g.release(0)
	<-first
	<-second
	<-g.drain()
}

// TestGateExpired takes every request out of the line whose context has ended,
// and no other.
func TestGateExpired(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	g := newGate()
	require.True(t, g.take(held))
	q := newQueue(subject{}, 4, -1)
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
	g.release(0)
	require.Equal(t, 0, <-g.grant)
	require.Equal(t, 2, g.pass(1))
	require.Equal(t, -1, g.pass(1))
}

// TestGateTurnsAway empties the line but for another session that waits for the
// device: a failure is the reason for it to wait, not one to send it away.
func TestGateTurnsAway(t *testing.T) {
	g := newGate()
	require.True(t, g.take(held))
	first, err := g.enlist(caller)
	require.NoError(t, err)
	stays, err := g.enlist(stayer)
	require.NoError(t, err)
	require.NoError(t, g.submit(&turn{slot: 1}, 1))
	last, err := g.enlist(guest)
	require.NoError(t, err)
	failure := errors.New("the device failed")
	var told []int
	g.turnAway(func(slot int) error {
		told = append(told, slot)
		return failure
	})
	require.Equal(t, []int{-1, 1, -1}, told)
	require.True(t, first.ended && last.ended)
	require.Same(t, failure, first.err)
	require.Same(t, failure, last.err)
	require.False(t, stays.ended)
	require.Same(t, stays, g.head)
	require.EqualValues(t, 3, g.requests())
	g.mu.Lock()
	g.recycle(first)
	g.mu.Unlock()
	again, err := g.enlist(caller)
	require.NoError(t, err)
	require.Same(t, first, again)
	require.NoError(t, again.err, "the failure is not that of who comes next")
	require.False(t, again.ended)
	g.release(1)
	require.True(t, stays.first)
}
