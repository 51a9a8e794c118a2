package rt_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
)

// gated is the affine model whose main program waits for permission: it sends
// the first input value on started and receives the error to return from
// proceed.
type gated struct {
	*Runner
	started chan float32
	proceed chan error
}

func openGated(t *testing.T, opts ...rt.RunnerOption) *gated {
	g := &gated{started: make(chan float32), proceed: make(chan error)}
	s := affineScript()
	main := s.programs[mainProgram]
	s.programs[mainProgram] = func(ctx context.Context, e *engine) error {
		x, err := e.in("h2d_x")
		if err != nil {
			return err
		}
		g.started <- f32s(x, 0)
		select {
		case err := <-g.proceed:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-e.stopping():
			return ipu.ErrStopped
		}
		return main(ctx, e)
	}
	v := variant{backend: fakeName, model: file(t, affineMetadata(), register(t, s), affineData)}
	g.Runner = v.open(t, opts...)
	return g
}

// run starts a synchronous run whose first input value is id.
func (g *gated) run(ctx context.Context, id float32) <-chan error {
	in := NewInputs()
	fill(in, id)
	result := make(chan error, 1)
	go func() { result <- g.Run(ctx, in, NewOutputs()) }()
	return result
}

func (g *gated) submit(t *testing.T, id float32) rt.Ticket {
	t.Helper()
	in := NewInputs()
	fill(in, id)
	ticket, err := g.TrySubmit(in, NewOutputs())
	require.NoError(t, err)
	return ticket
}

// isDone reports whether a request has ended.
func isDone(ticket rt.Ticket) bool {
	select {
	case <-ticket.Done():
		return true
	default:
		return false
	}
}

// queueing waits until n requests are in line behind the one that runs.
func queueing(t *testing.T, g *gated, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return waiting(g.Session()) == n }, 5*time.Second, 10*time.Microsecond)
}

func TestConcurrentIsRefused(t *testing.T) {
	ctx := context.Background()
	g := openGated(t, rt.SingleCaller())
	first := g.run(ctx, 1)
	require.EqualValues(t, 1, <-g.started)
	s := g.Session()
	for name, f := range map[string]func() error{
		"Run":         func() error { return g.Run(ctx, NewInputs(), NewOutputs()) },
		"Save":        func() error { return g.Save(ctx, &SaveOutputs{W: new(W)}) },
		"Load":        func() error { return s.Load(ctx) },
		"Reload":      func() error { return s.Reload(ctx) },
		"RunPrograms": func() error { return s.RunPrograms(ctx, loadProgram) },
		"ConnectData": func() error { return s.ConnectData(ctx, "h2d_b", floats(0, 0)) },
		"Unconnected": func() error { _, err := s.Unconnected(ctx); return err },
	} {
		err := f()
		require.ErrorIs(t, err, rt.ErrConcurrent, name)
	}
	ticket := g.submit(t, 2) // is never in the way
	g.proceed <- nil
	require.NoError(t, <-first)
	require.EqualValues(t, 2, <-g.started)

	// The worker computes: one caller may wait for it, a second may not.
	second := g.run(ctx, 3)
	queueing(t, g, 1)
	require.ErrorIs(t, g.Run(ctx, NewInputs(), NewOutputs()), rt.ErrConcurrent)
	g.proceed <- nil
	require.NoError(t, ticket.Wait(ctx))
	require.EqualValues(t, 3, <-g.started)
	g.proceed <- nil
	require.NoError(t, <-second)
}

// TestOrder checks that runs and submitted requests are served in the order in
// which they came.
func TestOrder(t *testing.T) {
	ctx := context.Background()
	g := openGated(t)
	results := []<-chan error{g.run(ctx, 0)}
	require.EqualValues(t, 0, <-g.started)
	var tickets []rt.Ticket
	for i := 1; i <= 7; i++ {
		if i%2 == 0 || i > 5 {
			results = append(results, g.run(ctx, float32(i)))
		} else {
			tickets = append(tickets, g.submit(t, float32(i)))
		}
		queueing(t, g, i)
	}
	for i := range 7 {
		g.proceed <- nil
		require.EqualValues(t, i+1, <-g.started)
	}
	g.proceed <- nil
	for _, r := range results {
		require.NoError(t, <-r)
	}
	for _, ticket := range tickets {
		require.NoError(t, ticket.Wait(ctx))
	}
}

// TestCancelWhileWaiting takes callers out of the queue: first, middle, last,
// and all.
func TestCancelWhileWaiting(t *testing.T) {
	for _, leave := range [][]int{{0}, {1}, {2}, {0, 1, 2}, {2, 1, 0}, {}} {
		t.Run(fmt.Sprint(leave), func(t *testing.T) {
			g := openGated(t)
			first := g.run(context.Background(), 9)
			<-g.started
			var cancel [3]context.CancelFunc
			var result [3]<-chan error
			for i := range 3 {
				var ctx context.Context
				ctx, cancel[i] = context.WithCancel(context.Background())
				defer cancel[i]()
				result[i] = g.run(ctx, float32(i))
				queueing(t, g, i+1)
			}
			for _, i := range leave {
				cancel[i]()
				require.ErrorIs(t, <-result[i], context.Canceled)
			}
			queueing(t, g, 3-len(leave))
			g.proceed <- nil
			require.NoError(t, <-first)
			for i := range 3 {
				if slices.Contains(leave, i) {
					continue
				}
				require.EqualValues(t, i, <-g.started)
				g.proceed <- nil
				require.NoError(t, <-result[i])
			}
			last := g.run(context.Background(), 8) // the engine is free again
			<-g.started
			g.proceed <- nil
			require.NoError(t, <-last)
		})
	}
}

func TestCancelDuringRun(t *testing.T) {
	g := openGated(t)
	ctx, cancel := context.WithCancel(context.Background())
	result := g.run(ctx, 1)
	<-g.started
	cancel()
	require.ErrorIs(t, <-result, context.Canceled)
	result = g.run(context.Background(), 2)
	<-g.started
	g.proceed <- nil
	require.NoError(t, <-result)
}

// TestCancelledWait checks that a wait that gave up leaves its request
// running, and that the slot is free when that ends.
func TestCancelledWait(t *testing.T) {
	g := openGated(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var tickets []rt.Ticket
	for i := range QueueDepth {
		tickets = append(tickets, g.submit(t, float32(i)))
	}
	<-g.started
	for _, ticket := range tickets {
		require.False(t, isDone(ticket))
		require.ErrorIs(t, ticket.Wait(ctx), context.Canceled)
		require.ErrorIs(t, ticket.Wait(ctx), context.Canceled, "the ticket is as good as before")
	}
	_, err := g.TrySubmit(NewInputs(), NewOutputs())
	require.ErrorIs(t, err, rt.ErrQueueFull, "the requests still run")
	for range QueueDepth - 1 {
		g.proceed <- nil
		<-g.started
	}
	g.proceed <- nil
	<-tickets[QueueDepth-1].Done()
	require.NoError(t, tickets[QueueDepth-1].Err())
	require.NoError(t, tickets[QueueDepth-1].Wait(ctx))
	require.ErrorIs(t, tickets[QueueDepth-1].Err(), rt.ErrTicketUsed)
	require.EqualValues(t, QueueDepth, g.Session().Stats().Requests)
	for i := range QueueDepth {
		tickets[i] = g.submit(t, float32(i))
	}
	for _, ticket := range tickets {
		<-g.started
		g.proceed <- nil
		<-ticket.Done()
		require.NoError(t, ticket.Wait(ctx), "a result that is there is returned although ctx has ended")
	}
}

func TestErrorsReachTheirRequest(t *testing.T) {
	ctx := context.Background()
	g := openGated(t)
	boom := errors.New("boom")
	a, b := g.submit(t, 1), g.submit(t, 2)
	<-g.started
	g.proceed <- boom
	<-g.started
	g.proceed <- nil
	err := a.Wait(ctx)
	require.ErrorIs(t, err, boom)
	require.True(t, strings.Contains(err.Error(), "affine.popef: run: "), err)
	require.NoError(t, b.Wait(ctx))
	require.EqualValues(t, 1, g.Session().Stats().Errors)
}

func TestPanic(t *testing.T) {
	ctx := context.Background()
	s := affineScript()
	main := s.programs[mainProgram]
	var armed atomic.Bool
	s.programs[mainProgram] = func(ctx context.Context, e *engine) error {
		if armed.Load() {
			panic("ouch")
		}
		return main(ctx, e)
	}
	save := s.programs[saveProgram]
	s.programs[saveProgram] = func(ctx context.Context, e *engine) error {
		if armed.Load() {
			panic("ouch")
		}
		return save(ctx, e)
	}
	r := variant{backend: fakeName, model: file(t, affineMetadata(), register(t, s), affineData)}.open(t)
	in, out := NewInputs(), NewOutputs()
	armed.Store(true)
	require.ErrorIs(t, r.Run(ctx, in, out), rt.ErrPanic)
	require.ErrorIs(t, r.Save(ctx, &SaveOutputs{W: new(W)}), rt.ErrPanic)
	require.ErrorIs(t, r.Session().RunPrograms(ctx, mainProgram), rt.ErrPanic)
	ticket, err := r.Submit(ctx, in, out)
	require.NoError(t, err)
	err = ticket.Wait(ctx)
	require.ErrorIs(t, err, rt.ErrPanic)
	require.Contains(t, err.Error(), "ouch")
	require.Contains(t, err.Error(), "concurrent_test.go", "the stack")
	armed.Store(false)
	fill(in, 1)
	require.NoError(t, r.Run(ctx, in, out))
	require.Equal(t, want(1), out.Y)
}

// TestClose closes while one request runs, callers and requests wait, and
// others keep coming.
func TestClose(t *testing.T) {
	for name, submitted := range map[string]bool{"a run is under way": false, "a submitted request is under way": true} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			g := openGated(t)
			var results []<-chan error
			var tickets []rt.Ticket
			if submitted {
				tickets = append(tickets, g.submit(t, 0))
			} else {
				results = append(results, g.run(ctx, 0))
			}
			<-g.started
			tickets = append(tickets, g.submit(t, 1))
			results = append(results, g.run(ctx, 2))
			queueing(t, g, 2)
			tickets = append(tickets, g.submit(t, 3))
			abandoned := g.submit(t, 4)
			ended, cancel := context.WithCancel(ctx)
			cancel()
			require.ErrorIs(t, abandoned.Wait(ended), context.Canceled)

			var closers sync.WaitGroup
			for range 4 {
				closers.Go(func() {
					if err := g.Close(); err != nil {
						t.Error(err)
					}
				})
			}
			closers.Wait()
			for _, r := range results {
				require.ErrorIs(t, <-r, rt.ErrClosed)
			}
			for _, ticket := range tickets {
				require.True(t, isDone(ticket))
				require.ErrorIs(t, ticket.Wait(ctx), rt.ErrClosed)
			}
			require.ErrorIs(t, g.Run(ctx, NewInputs(), NewOutputs()), rt.ErrClosed)
			_, err := g.Submit(ctx, NewInputs(), NewOutputs())
			require.ErrorIs(t, err, rt.ErrClosed)
			require.ErrorIs(t, g.Session().Stop(), rt.ErrClosed)
		})
	}
}

// TestStress lets many goroutines do everything at once; every result must be
// that of its own input.
func TestStress(t *testing.T) {
	for _, v := range variants(t) {
		t.Run(v.name, func(t *testing.T) {
			const goroutines, rounds = 16, 200
			r := v.open(t)
			var group sync.WaitGroup
			var requests, tooMany atomic.Int64
			for id := range goroutines {
				group.Go(func() {
					in, out := NewInputs(), NewOutputs()
					for round := range rounds {
						ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
						seed := float32(1000*id + round)
						fill(in, seed)
						err := error(nil)
						switch round % 8 {
						case 1, 3, 5:
							var ticket rt.Ticket
							if ticket, err = r.Submit(ctx, in, out); err == nil {
								requests.Add(1)
								err = ticket.Wait(ctx)
							}
						case 7: // often gives up while it waits for its turn
							soon, stop := context.WithTimeout(ctx, time.Duration(round)*time.Microsecond)
							err = r.Run(soon, in, out)
							stop()
							if errors.Is(err, context.DeadlineExceeded) {
								cancel()
								continue
							}
							requests.Add(1)
						default:
							requests.Add(1)
							err = r.Run(ctx, in, out)
						}
						cancel()
						if errors.Is(err, rt.ErrQueueFull) {
							tooMany.Add(1)
							continue
						}
						if err != nil {
							t.Error(err)
							return
						}
						if *out.Y != *want(seed) {
							t.Errorf("%d round %d: got %v, want %v", id, round, *out.Y, *want(seed))
							return
						}
					}
				})
			}
			group.Wait()
			stats := r.Session().Stats()
			require.GreaterOrEqual(t, int64(stats.Requests), requests.Load())
			t.Logf("%d requests, queue full %d times", stats.Requests, tooMany.Load())
		})
	}
}

// TestCloseUnderLoad closes at a random moment of a stress.
func TestCloseUnderLoad(t *testing.T) {
	for i := range 50 {
		v := variants(t)[i%3]
		r, err := Open(context.Background(), affineSpec(t), &LoadInputs{B: new(B)}, genrt.Source{Name: "affine.popef", Bytes: v.model},
			rt.WithBackend(v.backend))
		require.NoError(t, err)
		var group sync.WaitGroup
		for id := range 6 {
			group.Go(func() {
				in, out := NewInputs(), NewOutputs()
				for {
					var err error
					if id%2 == 0 {
						err = r.Run(context.Background(), in, out)
					} else {
						var ticket rt.Ticket
						if ticket, err = r.Submit(context.Background(), in, out); err == nil {
							err = ticket.Wait(context.Background())
						}
					}
					switch {
					case errors.Is(err, rt.ErrClosed):
						return
					case err != nil && !errors.Is(err, rt.ErrQueueFull):
						t.Error(err)
						return
					}
				}
			})
		}
		time.Sleep(time.Duration(i*20) * time.Microsecond)
		require.NoError(t, r.Close())
		group.Wait()
	}
}
