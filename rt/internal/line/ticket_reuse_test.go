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

// hooks is a context that keeps what it is asked to call when it ends, and counts
// what is still asked for.
type hooks struct {
	context.Context
	done  chan struct{}
	err   error
	asked []func()
	open  int
}

func (h *hooks) Done() <-chan struct{} { return h.done }
func (h *hooks) Err() error            { return h.err }

func (h *hooks) AfterFunc(f func()) (stop func() bool) {
	h.asked = append(h.asked, f)
	h.open++
	return func() bool {
		h.open--
		return true
	}
}

// lineUp returns a queue of two places with one lane, nobody to serve it, and a
// gate that is held.
func lineUp(t *testing.T) (*Queue, *Lane) {
	t.Helper()
	g := newGate()
	require.True(t, g.Take(Held))
	q := NewQueue(callerr.Subject{}, 2, -1)
	l := &Lane{Queue: q, Gate: g, Refused: func(err error) error { return err }, stopped: make(chan struct{})}
	q.Lanes = []*Lane{l}
	return q, l
}

// submitted lines a request up.
func submitted(t *testing.T, ctx context.Context, l *Lane) Ticket {
	t.Helper()
	slot, err := l.Queue.Reserve(ctx, false)
	require.NoError(t, err)
	return l.Enqueue(ctx, slot)
}

// finishes takes a request out of the line as if it had been computed.
func finishes(l *Lane, ticket Ticket, err error) {
	l.Gate.withdraw(&ticket.pending.turn, ticket.generation)
	l.Queue.Complete(ticket.pending.turn.slot, err)
}

func isClosed[T any](c <-chan T) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestTicketsOfBefore has a request use the memory of an earlier one: nothing of
// that shows, neither to its ticket nor to the one of before, whose calls leave it
// alone.
func TestTicketsOfBefore(t *testing.T) {
	failure := errors.New("failure")
	background := context.Background()
	for name, first := range map[string]func(t *testing.T, l *Lane, old Ticket){
		"failed": func(_ *testing.T, l *Lane, old Ticket) { finishes(l, old, failure) },
		"done": func(t *testing.T, l *Lane, old Ticket) {
			done := old.Done()
			finishes(l, old, nil)
			require.True(t, isClosed(done))
		},
		"cancelled": func(t *testing.T, l *Lane, old Ticket) {
			stop := DoneOf(old.pending)
			old.Cancel()
			old.Cancel()
			require.True(t, isClosed(stop))
		},
		"cancelled while it computes": func(t *testing.T, l *Lane, old Ticket) {
			l.Gate.withdraw(&old.pending.turn, old.generation)
			require.NoError(t, old.pending.start())
			old.Cancel()
			require.True(t, isClosed(DoneOf(old.pending)), "its context ends, whenever it is asked for")
			old.Cancel()
			l.Queue.Complete(old.pending.turn.slot, failure)
		},
		"cancelled too late": func(_ *testing.T, l *Lane, old Ticket) {
			stop := DoneOf(old.pending)
			finishes(l, old, failure)
			old.Cancel()
			require.False(t, isClosed(stop))
			require.ErrorIs(t, old.Err(), failure)
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, l := lineUp(t)
			old := submitted(t, background, l)
			p := old.pending
			first(t, l, old)
			require.True(t, isClosed(old.Done()))
			_ = old.Wait(background)
			require.ErrorIs(t, old.Wait(background), errs.ErrTicketUsed)

			next := submitted(t, background, l)
			require.Same(t, p, next.pending, "it has the memory of the first")
			old.Cancel()
			require.NoError(t, next.Err())
			require.False(t, isClosed(next.Done()))
			require.False(t, isClosed(DoneOf(p)))
			require.NoError(t, p.Err())
			require.True(t, isClosed(old.Done()))
			require.ErrorIs(t, old.Err(), errs.ErrTicketUsed)
			require.ErrorIs(t, old.Wait(background), errs.ErrTicketUsed)
			require.Equal(t, 2, l.Gate.Load(), "it is still in line")
			l.Gate.withdraw(&p.turn, next.generation)
			require.NoError(t, p.start())
			next.Cancel()
			require.True(t, isClosed(DoneOf(p)))
			l.Queue.Complete(p.turn.slot, nil)
			require.NoError(t, next.Wait(background))
		})
	}
}

// TestContextsOfBefore has a context tell a request that it ends when another one
// has its memory already.
func TestContextsOfBefore(t *testing.T) {
	_, l := lineUp(t)
	h := &hooks{Context: context.Background(), done: make(chan struct{})}
	old := submitted(t, h, l)
	p := old.pending
	_ = DoneOf(p)
	_ = old.Done()
	require.Equal(t, 2, h.open)
	finishes(l, old, nil)
	require.Zero(t, h.open, "the context is not asked for anything any more")
	require.NoError(t, old.Wait(context.Background()))

	next := submitted(t, context.Background(), l)
	require.Same(t, p, next.pending)
	stop := DoneOf(p)
	h.err = context.Canceled
	for _, late := range h.asked {
		late()
	}
	require.False(t, isClosed(stop))
	require.NoError(t, next.Err())
	require.Equal(t, 2, l.Gate.Load(), "it is still in line")
}

// TestLentContext gives out a request's context for longer than the request: no
// other request gets its memory, and it stays ended.
func TestLentContext(t *testing.T) {
	type key struct{}
	_, l := lineUp(t)
	at := time.Now().Add(time.Hour)
	ctx, cancel := context.WithDeadline(context.WithValue(context.Background(), key{}, 5), at)
	defer cancel()
	old := submitted(t, ctx, l)
	p := old.pending
	deadline, ok := p.Deadline()
	require.True(t, ok)
	require.Equal(t, at, deadline)
	require.Equal(t, 5, p.Value(key{}))
	require.False(t, isClosed(p.Done()))
	finishes(l, old, nil)
	require.NoError(t, old.Wait(context.Background()))
	require.True(t, isClosed(p.Done()))
	require.ErrorIs(t, p.Err(), context.Canceled)
	next := submitted(t, context.Background(), l)
	require.NotSame(t, p, next.pending)
	require.False(t, next.pending.lent)
	_ = DoneOf(next.pending)
	require.False(t, next.pending.lent, "who is done with it before the request ends has not kept it")
}

// TestWaits waits for requests whose contexts end.
func TestWaits(t *testing.T) {
	background := context.Background()
	run := func(name string, test func(t *testing.T, l *Lane, ctx context.Context, cancel func())) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				_, l := lineUp(t)
				test(t, l, ctx, cancel)
			})
		})
	}
	run("in line", func(t *testing.T, l *Lane, ctx context.Context, cancel func()) {
		ticket := submitted(t, ctx, l)
		got := make(chan error, 1)
		go func() { got <- ticket.Wait(background) }()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-got, context.Canceled)
		require.Equal(t, 1, l.Gate.Load(), "it has left the line")
		require.ErrorIs(t, ticket.Wait(background), errs.ErrTicketUsed)
	})
	run("while it computes", func(t *testing.T, l *Lane, ctx context.Context, cancel func()) {
		ticket := submitted(t, ctx, l)
		l.Gate.withdraw(&ticket.pending.turn, ticket.generation)
		require.NoError(t, ticket.pending.start())
		got := make(chan error, 1)
		go func() { got <- ticket.Wait(background) }()
		synctest.Wait()
		cancel()
		synctest.Wait()
		require.Empty(t, got, "the engine still uses its memory")
		l.Queue.Complete(ticket.pending.turn.slot, ctx.Err())
		require.ErrorIs(t, <-got, context.Canceled)
	})
	run("two at a time", func(t *testing.T, l *Lane, ctx context.Context, _ func()) {
		ticket := submitted(t, ctx, l)
		got := make(chan error, 1)
		go func() { got <- ticket.Wait(background) }()
		synctest.Wait()
		require.ErrorIs(t, ticket.Wait(background), errs.ErrTicketUsed)
		finishes(l, ticket, nil)
		require.NoError(t, <-got)
	})
	run("the request's own context", func(t *testing.T, l *Lane, ctx context.Context, cancel func()) {
		cancel() // both have ended: the request is out of the line when Wait returns
		for range 32 {
			p := &pending{queue: l.Queue, ended: make(chan struct{}, 1)}
			p.turn.request = p
			ticket := p.begin(ctx, l)
			slot, err := l.Queue.Reserve(background, false)
			require.NoError(t, err)
			p.turn.slot, l.Queue.Slots[slot].request = slot, p
			require.NoError(t, l.Gate.submit(&p.turn, ticket.generation))
			require.ErrorIs(t, ticket.Wait(ctx), context.Canceled)
			require.Equal(t, 1, l.Gate.Load())
			require.ErrorIs(t, ticket.Wait(background), errs.ErrTicketUsed)
		}
	})
	run("giving up", func(t *testing.T, l *Lane, ctx context.Context, cancel func()) {
		ticket := submitted(t, background, l)
		cancel()
		require.ErrorIs(t, ticket.Wait(ctx), context.Canceled)
		require.NoError(t, ticket.pending.Err(), "the request goes on")
		require.Equal(t, 2, l.Gate.Load())
		finishes(l, ticket, nil)
		require.NoError(t, ticket.Wait(background), "the ticket is as good as before")
	})
	run("ended before", func(t *testing.T, l *Lane, ctx context.Context, cancel func()) {
		cancel()
		for range 32 { // whichever is noticed first
			ticket := submitted(t, background, l)
			finishes(l, ticket, nil)
			require.NoError(t, ticket.Wait(ctx), "it has ended")
			require.ErrorIs(t, ticket.Wait(background), errs.ErrTicketUsed)
		}
	})
}

// TestLaneOfEnded gives requests whose context has ended to the worker: they never
// reach the engine and count for nothing.
func TestLaneOfEnded(t *testing.T) {
	_, l := lineUp(t)
	served := 0
	l.Serve = func(context.Context, int) error {
		served++
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	ticket := submitted(t, ctx, l)
	cancel()
	n, err := l.compute(ticket.pending.turn.slot)
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, n)
	require.Zero(t, served)

	ticket = submitted(t, context.Background(), l)
	n, err = l.compute(ticket.pending.turn.slot)
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	require.Equal(t, 1, served)

	l.Serve = func(context.Context, int) error { panic("here") }
	n, err = l.compute(ticket.pending.turn.slot)
	require.ErrorIs(t, err, ipu.ErrPanic)
	require.EqualValues(t, 1, n)
}
