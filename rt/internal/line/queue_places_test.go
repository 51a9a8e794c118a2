package line

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/rt/internal/callerr"
	"github.com/popefgen/popefgen/rt/internal/errs"
)

// asks asks for a place and waits; the channels tell what came of it.
func asks(ctx context.Context, q *Queue) (slot chan int, failed chan error) {
	slot, failed = make(chan int, 1), make(chan error, 1)
	go func() {
		if i, err := q.Reserve(ctx, true); err != nil {
			failed <- err
		} else {
			slot <- i
		}
	}()
	synctest.Wait()
	return slot, failed
}

// gives ends the use of a place.
func gives(q *Queue, slot int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pass(slot)
}

func TestQueuePlaces(t *testing.T) {
	t.Run("an ended context gets none", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := NewQueue(callerr.Subject{}, 1, -1).Reserve(ctx, true)
		require.ErrorIs(t, err, context.Canceled)
	})
	t.Run("the first that waits gets the first", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			q := NewQueue(callerr.Subject{}, 1, -1)
			only, err := q.Reserve(t.Context(), true)
			require.NoError(t, err)
			first, _ := asks(t.Context(), q)
			second, _ := asks(t.Context(), q)
			third, _ := asks(t.Context(), q)
			require.Equal(t, 3, q.waiting)
			for i, next := range []chan int{first, second, third} {
				gives(q, only)
				synctest.Wait()
				require.Len(t, next, 1)
				require.Equal(t, 2-i, q.waiting)
			}
			gives(q, only)
			require.Equal(t, []int{only}, q.free)
		})
	})
	t.Run("who gives up leaves the line, wherever in it", func(t *testing.T) {
		for leaver := range 3 {
			synctest.Test(t, func(t *testing.T) {
				q := NewQueue(callerr.Subject{}, 1, -1)
				only, err := q.Reserve(t.Context(), true)
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				var slots []chan int
				for i := range 3 {
					of := t.Context()
					if i == leaver {
						of = ctx
					}
					slot, _ := asks(of, q)
					slots = append(slots, slot)
				}
				cancel()
				synctest.Wait()
				require.Equal(t, 2, q.waiting)
				last, _ := asks(t.Context(), q)
				slots = append(slots, last)
				for i, slot := range slots {
					if i != leaver {
						gives(q, only)
						synctest.Wait()
						require.Len(t, slot, 1, "waiter %d", i)
					}
				}
				require.Zero(t, q.waiting)
				require.Nil(t, q.head)
			})
		}
	})
	t.Run("a place that comes with the end of the context is passed on", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			q := NewQueue(callerr.Subject{}, 1, -1)
			only, err := q.Reserve(t.Context(), true)
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			_, failed := asks(ctx, q)
			q.mu.Lock()
			r := q.head
			q.leave(r)
			r.slot = only // and it is yet to be woken
			q.mu.Unlock()
			cancel()
			synctest.Wait()
			r.wake <- struct{}{}
			require.ErrorIs(t, <-failed, context.Canceled)
			require.Equal(t, []int{only}, q.free)
			require.Empty(t, r.wake, "nothing is left for who waits next")
		})
	})
	t.Run("a refusal that comes with the end of the context leaves nothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			q := NewQueue(callerr.Subject{}, 1, -1)
			only, err := q.Reserve(t.Context(), true)
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			_, failed := asks(ctx, q)
			q.mu.Lock()
			r := q.head
			q.leave(r)
			r.err = ipu.ErrClosed
			q.mu.Unlock()
			cancel()
			synctest.Wait()
			r.wake <- struct{}{}
			require.ErrorIs(t, <-failed, context.Canceled)
			require.Empty(t, r.wake)

			slot, failed := asks(t.Context(), q)
			require.Empty(t, failed, "the error is not that of who has the memory next")
			gives(q, only)
			require.Equal(t, only, <-slot)
		})
	})
	t.Run("bound", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			q := NewQueue(callerr.Subject{}, 1, 0)
			_, err := q.Reserve(t.Context(), true)
			require.NoError(t, err)
			_, err = q.Reserve(t.Context(), false)
			require.ErrorIs(t, err, errs.ErrQueueFull)
			_, err = q.Reserve(t.Context(), true)
			require.ErrorIs(t, err, errs.ErrOverloaded)
		})
	})
}

// TestQueueCloses refuses everybody, those that wait for a place included.
func TestQueueCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(callerr.Subject{}, 1, -1)
		only, err := q.Reserve(t.Context(), true)
		require.NoError(t, err)
		_, first := asks(t.Context(), q)
		_, second := asks(t.Context(), q)
		drained := q.Drain()
		require.ErrorIs(t, <-first, ipu.ErrClosed)
		require.ErrorIs(t, <-second, ipu.ErrClosed)
		again := q.Drain()
		_, err = q.Reserve(t.Context(), true)
		require.ErrorIs(t, err, ipu.ErrClosed)
		require.False(t, isClosed(drained) || isClosed(again), "one has a place")
		gives(q, only)
		<-drained
		<-again
		<-q.Drain()
		_, err = q.Reserve(t.Context(), true)
		require.ErrorIs(t, err, ipu.ErrClosed, "there is a place, but for nobody")
	})
	t.Run("with several places", func(t *testing.T) {
		q := NewQueue(callerr.Subject{}, 2, -1)
		one, err := q.Reserve(t.Context(), true)
		require.NoError(t, err)
		two, err := q.Reserve(t.Context(), true)
		require.NoError(t, err)
		drained := q.Drain()
		gives(q, one)
		require.False(t, isClosed(drained))
		gives(q, two)
		<-drained
	})
}

// TestQueueForgets ends requests: their memory is forgotten, whether they ran or
// not.
func TestQueueForgets(t *testing.T) {
	q, l := lineUp(t)
	var dropped []int
	q.Drop = func(slot int) { dropped = append(dropped, slot) }
	ticket := submitted(t, t.Context(), l)
	slot := ticket.pending.turn.slot
	finishes(l, ticket, nil)
	require.Equal(t, []int{slot}, dropped)
	require.Nil(t, q.Slots[slot].request)

	l.Gate.Close()
	ticket = submitted(t, t.Context(), l)
	require.ErrorIs(t, ticket.Err(), ipu.ErrClosed, "nobody would ever end it")
	require.Len(t, q.free, 2)
}

// TestQueueSweeps makes room in a full queue: requests whose context has ended
// leave it, to whichever replica they were to go.
func TestQueueSweeps(t *testing.T) {
	q, first := lineUp(t)
	_, second := lineUp(t)
	second.Queue, q.Lanes = q, append(q.Lanes, second)
	ctx, cancel := context.WithCancel(t.Context())
	one, two := submitted(t, ctx, first), submitted(t, ctx, second)
	_, err := q.Reserve(t.Context(), false)
	require.ErrorIs(t, err, errs.ErrQueueFull)
	cancel()
	for range 2 {
		_, err := q.Reserve(t.Context(), false)
		require.NoError(t, err)
	}
	require.ErrorIs(t, one.Err(), context.Canceled)
	require.ErrorIs(t, two.Err(), context.Canceled)
}

// TestQueueHelpers is about the goroutines that serve submitted samples: as many
// as there are samples at a time, that end with the queue.
func TestQueueHelpers(t *testing.T) {
	start := func(t *testing.T, serve func(ctx context.Context) error) (*Queue, func(ctx context.Context) Ticket) {
		q, l := lineUp(t)
		q.Samples = func(ctx context.Context, _ int) error { return serve(ctx) }
		t.Cleanup(q.Close)
		return q, func(ctx context.Context) Ticket {
			slot, err := q.Reserve(t.Context(), true)
			require.NoError(t, err)
			return q.EnqueueSamples(ctx, slot, l)
		}
	}
	background := context.Background()
	t.Run("several at a time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var inside atomic.Int64
			leave := make(chan struct{})
			q, submit := start(t, func(context.Context) error {
				inside.Add(1)
				<-leave
				return nil
			})
			for range 3 { // the second and third time with goroutines of the first
				one, two := submit(background), submit(background)
				synctest.Wait()
				require.EqualValues(t, 2, inside.Swap(0))
				leave <- struct{}{}
				leave <- struct{}{}
				require.NoError(t, one.Wait(background))
				require.NoError(t, two.Wait(background))
				synctest.Wait()
			}
			require.Equal(t, 2, q.helpers)
			require.Equal(t, 2, q.idle)
		})
	})
	t.Run("one after the other", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			q, submit := start(t, func(context.Context) error { return nil })
			for range 4 {
				require.NoError(t, submit(background).Wait(background))
				synctest.Wait()
			}
			require.Equal(t, 1, q.helpers)
		})
	})
	t.Run("a panic", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			_, submit := start(t, func(context.Context) error { panic("here") })
			for range 2 {
				require.ErrorIs(t, submit(background).Wait(background), ipu.ErrPanic)
			}
		})
	})
	t.Run("cancelled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			_, submit := start(t, func(ctx context.Context) error {
				<-DoneOf(ctx)
				return ctx.Err()
			})
			ticket := submit(background)
			synctest.Wait()
			ticket.Cancel()
			require.ErrorIs(t, ticket.Wait(background), context.Canceled)
		})
	})
	t.Run("ended before", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, submit := start(t, func(context.Context) error { return errors.New("computed") })
			require.ErrorIs(t, submit(ctx).Wait(background), context.Canceled)
		})
	})
	t.Run("closing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			q, submit := start(t, func(context.Context) error {
				time.Sleep(time.Second)
				return nil
			})
			ticket := submit(background)
			slot, err := q.Reserve(background, true)
			require.NoError(t, err)
			began := time.Now()
			q.Close()
			require.Equal(t, time.Second, time.Since(began), "it waits for who computes")
			require.NoError(t, ticket.Wait(background))
			q.Close()
			late := q.EnqueueSamples(background, slot, q.Lanes[0])
			require.ErrorIs(t, late.Wait(background), ipu.ErrClosed)
		})
	})
}

// TestLaneCloses ends workers, and keeps those that have not started from it.
func TestLaneCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := lineUp(t)
		l.stopped = nil
		l.Serve = func(context.Context, int) error {
			time.Sleep(time.Second)
			return nil
		}
		l.Gate.Release(0)
		ticket := submitted(t, context.Background(), l)
		synctest.Wait()
		l.Gate.Close()
		began := time.Now()
		l.Close()
		require.Equal(t, time.Second, time.Since(began), "it waits for who computes")
		require.NoError(t, ticket.Err())

		_, unused := lineUp(t)
		unused.stopped = nil
		unused.Close()
		_, err := unused.Queue.Reserve(t.Context(), true)
		require.NoError(t, err)
		synctest.Wait() // would find a worker that nobody ends when the test is over
	})
}
