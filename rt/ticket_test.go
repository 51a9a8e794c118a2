package rt_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/rttest"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// answer lets the request that computes go on, which must be that one.
func (g *gated) answer(t *testing.T, id float32) {
	t.Helper()
	require.Equal(t, id, <-g.started)
	g.proceed <- nil
}

// TestSubmitWaitsForRoom fills the queue: Submit waits, in the order of callers,
// until a request ends or its context does.
func TestSubmitWaitsForRoom(t *testing.T) {
	g := openGated(t)
	for i := range QueueDepth {
		g.submit(t, float32(i)) // tickets are dropped
	}
	short, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_, err := g.Submit(short, NewInputs(), NewOutputs())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = g.TrySubmit(NewInputs(), NewOutputs())
	require.ErrorIs(t, err, rt.ErrQueueFull)
	tickets := make(chan rt.Ticket)
	go func() {
		in := NewInputs()
		fill(in, 9)
		ticket, err := g.Submit(context.Background(), in, NewOutputs())
		if err != nil {
			t.Error(err)
		}
		tickets <- ticket
	}()
	for i := range QueueDepth {
		g.answer(t, float32(i))
	}
	ticket := <-tickets
	g.answer(t, 9)
	require.NoError(t, ticket.Wait(context.Background()))
	require.Zero(t, waiting(g.Session()))
}

// TestCancelledRequests has requests whose context ends, or that are cancelled,
// before their turn: none reaches the engine, and there is room at once.
func TestCancelledRequests(t *testing.T) {
	for name, end := range map[string]func(cancel func(), ticket rt.Ticket){
		"context": func(cancel func(), _ rt.Ticket) { cancel() },
		"Cancel":  func(_ func(), ticket rt.Ticket) { ticket.Cancel() },
	} {
		for how, wait := range map[string]func(t *testing.T, ticket rt.Ticket) error{
			"Wait": func(_ *testing.T, ticket rt.Ticket) error { return ticket.Wait(context.Background()) },
			"Done": func(t *testing.T, ticket rt.Ticket) error {
				<-ticket.Done()
				require.ErrorIs(t, ticket.Err(), context.Canceled)
				return ticket.Wait(context.Background())
			},
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				g := openGated(t)
				first := g.run(context.Background(), 1)
				require.EqualValues(t, 1, <-g.started)
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				ticket, err := g.Submit(ctx, NewInputs(), NewOutputs())
				require.NoError(t, err)
				last := g.submit(t, 3)
				require.NoError(t, ticket.Err())
				require.False(t, isDone(ticket))
				end(cancel, ticket)
				require.ErrorIs(t, wait(t, ticket), context.Canceled)
				ticket.Cancel() // of a used ticket
				require.ErrorIs(t, ticket.Wait(ctx), rt.ErrTicketUsed)
				queueing(t, g, 1)
				g.proceed <- nil
				require.NoError(t, <-first)
				g.answer(t, 3)
				require.NoError(t, last.Wait(context.Background()))
				require.EqualValues(t, 2, g.Session().Stats().Requests, "it was none")
			})
		}
	}
	t.Run("while it computes", func(t *testing.T) {
		g := openGated(t)
		parent, stop := context.WithCancel(context.Background())
		defer stop()
		for _, ctx := range []context.Context{context.Background(), parent} {
			ticket, err := g.Submit(ctx, NewInputs(), NewOutputs())
			require.NoError(t, err)
			<-g.started
			ticket.Cancel()
			require.ErrorIs(t, ticket.Wait(context.Background()), context.Canceled)
		}
		ticket, err := g.Submit(parent, NewInputs(), NewOutputs())
		require.NoError(t, err)
		<-g.started
		stop()
		require.ErrorIs(t, ticket.Wait(context.Background()), context.Canceled)
		next := g.submit(t, 5)
		g.answer(t, 5)
		require.NoError(t, next.Wait(context.Background()), "a later request has nothing of it")
	})
	t.Run("a full queue has room where they were", func(t *testing.T) {
		g := openGated(t)
		first := g.run(context.Background(), 1)
		<-g.started
		ctx, cancel := context.WithCancel(context.Background())
		for range QueueDepth {
			_, err := g.Submit(ctx, NewInputs(), NewOutputs())
			require.NoError(t, err)
		}
		cancel()
		last := g.submit(t, 2)
		g.proceed <- nil
		require.NoError(t, <-first)
		g.answer(t, 2)
		require.NoError(t, last.Wait(context.Background()))
	})
}

// TestMaxWaiting has more callers than may wait.
func TestMaxWaiting(t *testing.T) {
	ctx := context.Background()
	g := openGated(t, rt.WithMaxWaiting(1))
	first := g.run(ctx, 1)
	<-g.started
	second := g.run(ctx, 2)
	queueing(t, g, 1)
	require.ErrorIs(t, g.Run(ctx, NewInputs(), NewOutputs()), rt.ErrOverloaded)
	x, y := someSamples(0, group)
	require.ErrorIs(t, g.RunSamples(ctx, x, y), rt.ErrOverloaded)
	for i := range QueueDepth {
		g.submit(t, float32(3+i))
	}
	short, cancel := context.WithCancel(ctx)
	waits := make(chan error)
	go func() {
		_, err := g.Submit(short, NewInputs(), NewOutputs())
		waits <- err
	}()
	rttest.Eventually(t, func() bool { return waitForRoom(&g.core) == 1 }, "one may wait for room")
	_, err := g.Submit(ctx, NewInputs(), NewOutputs())
	require.ErrorIs(t, err, rt.ErrOverloaded)
	cancel()
	require.ErrorIs(t, <-waits, context.Canceled)
	g.proceed <- nil
	require.NoError(t, <-first)
	g.answer(t, 2)
	require.NoError(t, <-second)
	for i := range QueueDepth {
		g.answer(t, float32(3+i))
	}
}

// TestShutdown ends what was accepted, and refuses the rest.
func TestShutdown(t *testing.T) {
	ctx := context.Background()
	t.Run("in peace", func(t *testing.T) {
		g := openGated(t)
		first := g.run(ctx, 1)
		<-g.started
		ticket := g.submit(t, 2)
		second := g.run(ctx, 3)
		queueing(t, g, 2)
		over := make(chan error, 1)
		go func() { over <- g.Shutdown(ctx) }()
		rttest.Eventually(t, func() bool { return draining(g.Session()) }, "nobody gets in")
		_, err := g.TrySubmit(NewInputs(), NewOutputs())
		require.ErrorIs(t, err, rt.ErrClosed)
		x, y := someSamples(0, 1)
		require.ErrorIs(t, g.RunSamples(ctx, x[:0], y[:0]), rt.ErrClosed)
		require.ErrorIs(t, g.Session().Load(ctx), rt.ErrClosed)
		require.Empty(t, over)
		g.proceed <- nil
		require.NoError(t, <-first)
		g.answer(t, 2)
		require.NoError(t, ticket.Wait(ctx))
		require.Empty(t, over)
		g.answer(t, 3)
		require.NoError(t, <-second)
		require.NoError(t, <-over)
		require.NoError(t, g.Close())
	})
	t.Run("out of time", func(t *testing.T) {
		g := openGated(t)
		first := g.run(ctx, 1)
		<-g.started
		short, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		require.ErrorIs(t, g.Shutdown(short), context.DeadlineExceeded)
		require.ErrorIs(t, <-first, rt.ErrClosed)
		require.ErrorIs(t, g.Run(ctx, NewInputs(), NewOutputs()), rt.ErrClosed)
	})
	t.Run("batches do not wait for more", func(t *testing.T) {
		r := variants(t)[2].open(t, rt.WithBatching(rt.BatchPolicy{Linger: rt.Forever}))
		x, y := someSamples(7, 1)
		ticket, err := r.SubmitSamples(ctx, x, y)
		require.NoError(t, err)
		gathers(t, r, 1)
		require.NoError(t, r.Shutdown(ctx))
		require.NoError(t, ticket.Wait(ctx))
		require.ErrorIs(t, r.RunSamples(ctx, x[:0], y[:0]), rt.ErrClosed)
	})
	t.Run("a session", func(t *testing.T) {
		s, _, _ := variants(t)[2].ready(t)
		require.NoError(t, s.Shutdown(ctx))
		require.ErrorIs(t, s.Run(ctx), rt.ErrClosed)
	})
}

func gathers(t *testing.T, r *Runner, n int) {
	t.Helper()
	rttest.Eventually(t, func() bool { return gathered(&r.core) == n }, "samples gather")
}

// TestFullBatchWaitsForNobody has a caller whose samples fill one batch and begin
// the next, which waits for ever. The caller that leads the full batch gives up
// while that waits for the engine: it must run all the same.
func TestFullBatchWaitsForNobody(t *testing.T) {
	ctx := context.Background()
	g := openGated(t, rt.WithBatching(rt.BatchPolicy{Linger: rt.Forever}))
	first := g.run(ctx, 1)
	<-g.started
	leads, cancel := context.WithCancel(ctx)
	x, y := someSamples(10, 1)
	lead := make(chan error, 1)
	go func() { lead <- g.RunSamples(leads, x, y) }()
	gathers(t, g.Runner, 1)
	other := make(chan error, 1)
	go func() {
		x, y := someSamples(20, group-2)
		other <- g.RunSamples(ctx, x, y)
	}()
	gathers(t, g.Runner, group-1)
	both, stop := context.WithCancel(ctx)
	defer stop()
	spans := make(chan error, 1)
	go func() {
		x, y := someSamples(30, 2)
		spans <- g.RunSamples(both, x, y)
	}()
	queueing(t, g, 1) // the full batch waits for the engine
	gathers(t, g.Runner, 1)
	cancel()
	require.ErrorIs(t, <-lead, context.Canceled)
	queueing(t, g, 1)
	g.proceed <- nil
	require.NoError(t, <-first)
	<-g.started
	g.proceed <- nil
	require.NoError(t, <-other)
	stop()
	require.ErrorIs(t, <-spans, context.Canceled)
}

// Feature 121.
func TestSubmitSamples(t *testing.T) {
	ctx := context.Background()
	for _, v := range variants(t) {
		t.Run(v.name, func(t *testing.T) {
			r := v.open(t)
			var all sync.WaitGroup
			for id := range 64 {
				all.Go(func() {
					x, y := someSamples(100*id, 1+id%(2*group))
					ticket, err := r.SubmitSamples(ctx, x, y)
					if err == nil {
						err = ticket.Wait(ctx)
					}
					if err != nil {
						t.Error(err)
					}
					for i := range x { // its place in the batch decides which weight it meets
						if got, v := y[i].Data, x[i].Data; got != 2*v+10 && got != 3*v+20 {
							t.Errorf("%d: sample %d of %v got %v", id, i, v, got)
						}
					}
				})
			}
			all.Wait()
			x, y := someSamples(0, 2)
			_, err := r.SubmitSamples(ctx, x, y[:1])
			require.ErrorIs(t, err, rt.ErrSamples)
		})
	}
}

// Feature 122.
func TestSamplesOnReplica(t *testing.T) {
	ctx := context.Background()
	sys, v := tested(t, 2)
	r := v.open(t, rt.WithManager(sys.Manager()), rt.WithReplicas(2))
	x, y := someSamples(0, 2*group+1)
	for i := range 2 {
		before := r.Replica(i).Stats().Requests
		require.NoError(t, r.RunSamplesOn(ctx, i, x, y))
		ticket, err := r.SubmitSamplesOn(ctx, i, x, y)
		require.NoError(t, err)
		require.NoError(t, ticket.Wait(ctx))
		require.EqualValues(t, before+6, r.Replica(i).Stats().Requests)
	}
	require.ErrorIs(t, r.RunSamplesOn(ctx, 2, x, y), rt.ErrReplica)
	_, err := r.SubmitSamplesOn(ctx, -2, x, y)
	require.ErrorIs(t, err, rt.ErrReplica)
}

// Feature 123.
func TestSessionActive(t *testing.T) {
	ctx := context.Background()
	sys, v := tested(t, 1)
	s, _, _ := v.ready(t, modelrt.Deferred(), rt.WithManager(sys.Manager()))
	require.False(t, s.Active())
	d := sys.Device(0)
	require.NoError(t, s.Bind(ctx, d))
	require.True(t, s.Active())
	other, _, _ := v.ready(t, rt.WithManager(sys.Manager()), rt.WithDevice(d))
	require.True(t, other.Active())
	require.False(t, s.Active(), "displaced")
	require.True(t, s.Bound())
	require.NoError(t, s.Run(ctx))
	require.True(t, s.Active())
	require.False(t, other.Active())
	require.NoError(t, s.Unload(ctx))
	require.False(t, s.Active())
}

// Feature 124.
func TestConfigTellsEveryOption(t *testing.T) {
	v := variants(t)[2]
	c := v.open(t).Config()
	require.Equal(t, 1, c.Replicas)
	require.Equal(t, -1, c.MaxWaiting)
	require.Equal(t, QueueDepth, c.QueueDepth)
	require.Equal(t, portable, c.Backend)
	require.False(t, c.SingleCaller || c.Timed || c.AutoReset || c.SaveOnUnbind || c.WrapFeeds || c.SkipHashCheck)
	require.Zero(t, c.Batching)

	sys, v := tested(t, 2)
	m := sys.Manager()
	r := v.open(t, rt.WithManager(m), rt.WithReplicas(2), rt.WithMaxWaiting(3), rt.Timed(), rt.AutoReset(), rt.SaveOnUnbind(),
		rt.WrapFeeds(), rt.SkipHashCheck(), rt.WithBatching(rt.BatchPolicy{Linger: time.Second}), rt.WithWait(ipu.WaitFor(time.Second)),
		rt.WithDeviceOption("a", "b"), rt.WithReplicaDevices(map[int]ipu.Device{1: sys.Device(1)}))
	c = r.Config()
	require.Same(t, m, c.Manager)
	require.Equal(t, 2, c.Replicas)
	require.Equal(t, 3, c.MaxWaiting)
	require.True(t, c.Timed && c.AutoReset && c.SaveOnUnbind && c.WrapFeeds && c.SkipHashCheck)
	require.Equal(t, rt.BatchPolicy{Linger: time.Second}, c.Batching)
	require.Equal(t, ipu.WaitFor(time.Second), c.Wait)
	require.Equal(t, []ipu.Option{{Name: "a", Value: "b"}}, c.DeviceOptions)
	require.Len(t, c.ReplicaDevices, 1)
	delete(c.ReplicaDevices, 1)
	require.Len(t, r.Config().ReplicaDevices, 1, "it is a copy")
	require.Equal(t, sys.Device(1), r.Replica(1).Config().Device)
}

// TestEndedTicket uses tickets of requests that have ended in every way that
// those of a runner can be used.
func TestEndedTicket(t *testing.T) {
	ctx := context.Background()
	over, cancel := context.WithCancel(ctx)
	cancel()
	for _, want := range []error{nil, rt.ErrOverloaded} {
		ticket := rt.Ended(want)
		require.True(t, isDone(ticket))
		require.ErrorIs(t, ticket.Err(), want)
		ticket.Cancel()
		require.ErrorIs(t, ticket.Err(), want, "it had ended")
		same := ticket
		require.ErrorIs(t, ticket.Wait(over), want, "it does not wait")
		for _, used := range []rt.Ticket{ticket, same} {
			require.ErrorIs(t, used.Wait(ctx), rt.ErrTicketUsed)
			require.ErrorIs(t, used.Err(), rt.ErrTicketUsed)
			require.True(t, isDone(used))
		}
		require.ErrorIs(t, rt.Ended(want).Wait(ctx), want, "another one")
	}
}
