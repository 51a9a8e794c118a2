package rt_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/rttest"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// shiftGroup returns a group of the main program's queues.
func shiftGroup(t testing.TB, m *modelrt.QueueManager) *modelrt.QueueGroup {
	g, err := m.Group()
	require.NoError(t, err)
	return g
}

// TestQueueGroup enqueues requests of all sizes, and what is no request.
func TestQueueGroup(t *testing.T) {
	onShift(t, modelrt.QueueConfig{}, func(t *testing.T, s rt.Session, m *modelrt.QueueManager) {
		ctx := context.Background()
		x, y := shiftQueues(t, m)
		g := shiftGroup(t, m)
		backwards, err := m.Group(y, x)
		require.NoError(t, err)
		ended := runLoop(m)
		for n := 1; n < 3*shiftBatch; n += shiftBatch - 1 {
			r := newShiftRequest(n, n)
			ticket, err := g.Enqueue(ctx, r.in, r.out)
			require.NoError(t, err)
			rest := newShiftRequest(2*n, 2*shiftBatch-n%shiftBatch)
			last, err := backwards.TryEnqueue(rest.out, rest.in)
			require.NoError(t, err)
			require.NoError(t, ticket.Wait(ctx))
			require.ErrorIs(t, ticket.Wait(ctx), rt.ErrTicketUsed)
			<-last.Done()
			last.Cancel()
			require.NoError(t, last.Wait(ctx))
			require.NoError(t, errors.Join(r.check(), rest.check()))
		}
		r := newShiftRequest(1, 3)
		for name, bad := range map[string]struct {
			parts [][]byte
			want  error
		}{
			"too few":     {[][]byte{r.in}, modelrt.ErrUnbalanced},
			"too many":    {[][]byte{r.in, r.out, nil}, modelrt.ErrUnbalanced},
			"half sample": {[][]byte{r.in, r.out[1:]}, modelrt.ErrSampleSize},
			"nothing":     {[][]byte{nil, r.out}, modelrt.ErrSampleSize},
			"fewer":       {[][]byte{r.in, r.out[shiftSample:]}, modelrt.ErrUnbalanced},
		} {
			_, err := g.Enqueue(ctx, bad.parts...)
			require.ErrorIs(t, err, bad.want, name)
			_, err = g.TryEnqueue(bad.parts...)
			require.ErrorIs(t, err, bad.want, name)
			require.Equal(t, x.Enqueued(), y.Enqueued())
		}
		other := &modelrt.InputQueue{} // of no session
		for _, queues := range [][]modelrt.Queue{{x, x}, {other}, {x, nil}} {
			_, err := m.Group(queues...)
			require.ErrorIs(t, err, rt.ErrOption)
		}
		left, err := g.Enqueue(ctx, r.in, r.out)
		require.NoError(t, err)
		require.NoError(t, s.Close())
		require.NoError(t, <-ended)
		require.ErrorIs(t, left.Wait(ctx), modelrt.ErrDisconnected)
		_, err = g.Enqueue(ctx, r.in, r.out)
		require.ErrorIs(t, err, modelrt.ErrDisconnected)
	})
}

// TestQueueGroupAllOrNothing keeps one of two queues from taking more: nothing
// goes to the other one either, whatever ends the waiting.
func TestQueueGroupAllOrNothing(t *testing.T) {
	ctx := context.Background()
	r := newShiftRequest(1, 1)
	for name, c := range map[string]struct {
		end  func(cancel func(), m *modelrt.QueueManager) error
		want error
	}{
		"context":       {func(cancel func(), _ *modelrt.QueueManager) error { cancel(); return nil }, context.Canceled},
		"DisconnectAll": {func(_ func(), m *modelrt.QueueManager) error { m.DisconnectAll(); return nil }, modelrt.ErrDisconnected},
		"ResetAll":      {func(_ func(), m *modelrt.QueueManager) error { return m.ResetAll(ctx) }, modelrt.ErrDisconnected},
	} {
		for _, full := range []string{"x", "y"} {
			t.Run(name+" "+full, func(t *testing.T) {
				onShift(t, modelrt.QueueConfig{}, func(t *testing.T, s rt.Session, m *modelrt.QueueManager) {
					x, y := shiftQueues(t, m)
					g := shiftGroup(t, m)
					fill := func() error { return x.TryEnqueue(modelrt.InputData{Data: r.in}) }
					if full == "y" {
						fill = func() error { return y.TryEnqueue(modelrt.OutputData{Data: r.out}) }
					}
					for range 2 * shiftBatch {
						require.NoError(t, fill())
					}
					had := [2]int64{x.Enqueued(), y.Enqueued()}
					_, err := g.TryEnqueue(r.in, r.out)
					require.ErrorIs(t, err, rt.ErrQueueFull)
					require.ErrorContains(t, err, full)
					short, cancel := context.WithCancel(ctx)
					defer cancel()
					ended := make(chan error)
					for range 2 {
						go func() {
							_, err := g.Enqueue(short, r.in, r.out)
							ended <- err
						}()
					}
					rttest.Eventually(t, func() bool {
						return strings.Contains(x.State("")+y.State(""), "producer waits") && waitingToEnqueue(x) == 2
					}, "they wait")
					require.Equal(t, had, [2]int64{x.Enqueued(), y.Enqueued()})
					require.ErrorIs(t, fill(), rt.ErrQueueFull)
					if full == "x" { // there is room, but others came first
						require.ErrorIs(t, y.TryEnqueue(modelrt.OutputData{Data: r.out}), rt.ErrQueueFull)
					}
					require.NoError(t, c.end(cancel, m))
					for range 2 {
						require.ErrorIs(t, <-ended, c.want)
					}
					require.Zero(t, waitingToEnqueue(x))
					if name != "ResetAll" {
						require.Equal(t, had, [2]int64{x.Enqueued(), y.Enqueued()})
					} else {
						require.Zero(t, x.Enqueued()+y.Enqueued())
					}
					_, err = g.Enqueue(short, r.in, r.out)
					require.Equal(t, name == "ResetAll", err == nil)
				})
			})
		}
	}
}

// TestQueueGroupLocked meets a buffer that somebody has locked.
func TestQueueGroupLocked(t *testing.T) {
	onShift(t, modelrt.QueueConfig{}, func(t *testing.T, s rt.Session, m *modelrt.QueueManager) {
		ctx := context.Background()
		x, y := shiftQueues(t, m)
		r := newShiftRequest(1, shiftBatch)
		d, err := y.EnqueueLock(ctx)
		require.NoError(t, err)
		_, err = shiftGroup(t, m).Enqueue(ctx, r.in, r.out)
		require.ErrorIs(t, err, modelrt.ErrEnqueueLocked)
		require.Zero(t, x.Enqueued())
		d.Data = r.out
		require.NoError(t, y.EnqueueComplete())
		require.NoError(t, x.TryEnqueue(modelrt.InputData{Data: r.in}))
		require.NoError(t, s.Run(ctx))
		require.NoError(t, r.check())
	})
}

// TestQueueGroupTogether has many goroutines enqueue requests of all sizes at
// once, whose contexts end now and then, and who do not wait now and then, while
// the device flushes as fast as it can. A flush never meets a part of a request,
// everybody gets its own results, and a shutdown loses none.
func TestQueueGroupTogether(t *testing.T) {
	requests := 300
	if rttest.RaceEnabled || testing.Short() {
		requests = 80
	}
	var flushes, cancelled, full atomic.Int64
	c := modelrt.QueueConfig{RingSize: func(modelrt.Anchor) int { return 1 }, Timeout: time.Microsecond, OnTimeout: func(m *modelrt.QueueManager, q *modelrt.InputQueue) {
		switch err := m.FlushStarved(q); {
		case err == nil:
			flushes.Add(1)
		case !errors.Is(err, modelrt.ErrDisconnected) && !errors.Is(err, rt.ErrQueueFull):
			panic(err)
		}
	}}
	onShift(t, c, func(t *testing.T, s rt.Session, m *modelrt.QueueManager) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		g := shiftGroup(t, m)
		ended := runLoop(m)
		var all sync.WaitGroup
		for k := range 6 {
			all.Go(func() {
				for i := range requests {
					if i%8 == k {
						time.Sleep(20 * time.Microsecond) // so that the device has nothing, now and then
					}
					r := newShiftRequest(1000*k+i, 1+(k+i)%9)
					var ticket rt.Ticket
					var err error
					switch own, stop := context.WithTimeout(ctx, time.Duration(rand.IntN(50))*time.Microsecond); i % 3 {
					case 0:
						ticket, err = g.Enqueue(own, r.in, r.out)
						stop()
					case 1:
						stop()
						ticket, err = g.TryEnqueue(r.in, r.out)
					default:
						stop()
						ticket, err = g.Enqueue(ctx, r.in, r.out)
					}
					switch {
					case errors.Is(err, context.DeadlineExceeded):
						cancelled.Add(1)
						continue
					case errors.Is(err, rt.ErrQueueFull):
						full.Add(1)
						continue
					case err == nil:
						if err = ticket.Wait(ctx); err == nil {
							err = r.check()
						}
					case errors.Is(err, rt.ErrClosed):
						return
					}
					if err != nil {
						t.Errorf("goroutine %d, request %d: %v", k, i, err)
						return
					}
				}
			})
		}
		for s.Stats().Requests < uint64(3*requests) {
			time.Sleep(time.Millisecond)
		}
		require.NoError(t, s.Shutdown(ctx))
		require.NoError(t, <-ended)
		all.Wait()
	})
	t.Logf("%d flushes, %d gave up, %d found a queue full", flushes.Load(), cancelled.Load(), full.Load())
	require.NotZero(t, flushes.Load())
}

// TestQueueGroupModel compares groups with a list of requests: what is refused is
// nowhere, and what is accepted is answered in order.
func TestQueueGroupModel(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		ctx := context.Background()
		s := shiftSession(t, portable, shiftPortable())
		defer s.Close()
		require.NoError(t, s.ConnectData(ctx, "h2d_b", floats(10, 20, 30)))
		user := modelrt.InMain(s.Contract().Flow, modelrt.BindUser, modelrt.SkipBind)
		size := rapid.IntRange(1, 2).Draw(r, "ring")
		m, err := modelrt.NewQueueManager(ctx, s, modelrt.QueueConfig{Inputs: user, Outputs: user, RingSize: func(modelrt.Anchor) int { return size }})
		require.NoError(t, err)
		x, y := shiftQueues(t, m)
		g := shiftGroup(t, m)
		type entry struct {
			*shiftRequest // nil for dummies
			ticket        rt.Ticket
			end           int // of its samples
		}
		var waiting []entry
		enqueued, ran := 0, 0
		room := func() bool { return len(waiting) < size*shiftBatch }
		r.Repeat(map[string]func(*rapid.T){
			"enqueue": func(r *rapid.T) {
				q := newShiftRequest(enqueued, rapid.IntRange(1, 2*shiftBatch).Draw(r, "samples"))
				ticket, err := g.TryEnqueue(q.in, q.out)
				if room() {
					require.NoError(r, err)
					enqueued += len(q.in) / shiftSample
					waiting = append(waiting, entry{q, ticket, enqueued})
				} else {
					require.ErrorIs(r, err, rt.ErrQueueFull)
				}
			},
			"unbalanced": func(r *rapid.T) {
				in, out := rapid.IntRange(0, 4).Draw(r, "in"), rapid.IntRange(5, 8).Draw(r, "out")
				_, err := g.TryEnqueue(make([]byte, in*shiftSample), make([]byte, out*shiftSample))
				require.Error(r, err)
			},
			"run": func(r *rapid.T) {
				if enqueued-ran < shiftBatch {
					r.Skip("it would wait")
				}
				require.NoError(r, s.Run(ctx))
				ran += shiftBatch
			},
			"flush": func(r *rapid.T) {
				if err := m.FlushAll(); !errors.Is(err, rt.ErrQueueFull) {
					require.NoError(r, err)
					enqueued += shiftBatch - enqueued%shiftBatch
					waiting = append(waiting, entry{end: enqueued})
				}
			},
			"": func(r *rapid.T) {
				require.EqualValues(r, enqueued, x.Enqueued())
				require.EqualValues(r, enqueued, y.Enqueued())
				for len(waiting) > 0 && waiting[0].end <= ran {
					if w := waiting[0]; w.shiftRequest != nil {
						require.NoError(r, w.ticket.Wait(ctx))
						require.NoError(r, w.check())
					}
					waiting = waiting[1:]
				}
				for _, w := range waiting {
					require.True(r, w.shiftRequest == nil || !isDone(w.ticket))
				}
			},
		})
	})
}

// TestQueueGroupEmptyTensor has an input without elements, with as many
// transfers as the others.
func TestQueueGroupEmptyTensor(t *testing.T) {
	ctx := context.Background()
	script, meta := shiftScript(), shiftMetadata()
	empty := script.streams[0]
	empty.Handle, empty.Bytes, empty.Shape = "h2d_e", 0, []int64{shiftBatch, 0}
	script.streams = append(script.streams, empty)
	meta.Anchors = append(meta.Anchors, popef.Anchor{Name: "e", Handle: "h2d_e", Type: popef.Input, Info: tensorInfo(shiftBatch, 0), Programs: []uint32{mainProgram}})
	once := script.programs[mainProgram]
	script.programs[mainProgram] = func(ctx context.Context, e *engine) error {
		if _, err := e.in("h2d_e"); err != nil {
			return err
		}
		e.done("h2d_e")
		return once(ctx, e)
	}
	model, err := popef.LoadBytes("shift.popef", file(t, meta, register(t, script), map[string][]byte{"b": floats(10, 20, 30)}))
	require.NoError(t, err)
	s, err := modelrt.NewSession(ctx, model, rt.WithBackend(fakeName))
	require.NoError(t, err)
	m, err := modelrt.NewQueueManager(ctx, s, modelrt.QueueConfig{})
	require.NoError(t, err)
	x, y := shiftQueues(t, m)
	e, err := m.InputQueue("e")
	require.NoError(t, err)
	g, err := m.Group(x, e, y)
	require.NoError(t, err)
	ended := runLoop(m)
	for n := shiftBatch; n <= 3*shiftBatch; n += shiftBatch {
		r := newShiftRequest(n, n)
		ticket, err := g.Enqueue(ctx, r.in, nil, r.out)
		require.NoError(t, err)
		require.NoError(t, ticket.Wait(ctx))
		require.NoError(t, r.check())
	}
	require.EqualValues(t, 1+2+3, e.Enqueued())
	part := newShiftRequest(1, 1)
	_, err = g.Enqueue(ctx, part.in, nil, part.out)
	require.ErrorIs(t, err, modelrt.ErrUnbalanced, "a part of a transfer of nothing")
	alone, err := m.Group(e)
	require.NoError(t, err)
	_, err = alone.Enqueue(ctx, part.in)
	require.ErrorIs(t, err, modelrt.ErrSampleSize)
	_, err = alone.Enqueue(ctx, nil)
	require.NoError(t, err)
	require.EqualValues(t, 7, e.Enqueued())
	require.NoError(t, errors.Join(s.Close(), <-ended, model.Close()))
}

// TestQueueGroupOvertakesNobody has one goroutine wait for room in one queue while
// there is room already: a request of a group that comes then is put behind its.
func TestQueueGroupOvertakesNobody(t *testing.T) {
	for name, first := range map[string]func(ctx context.Context, g *modelrt.QueueGroup, x *modelrt.InputQueue, r *shiftRequest) error{
		"a queue's": func(ctx context.Context, _ *modelrt.QueueGroup, x *modelrt.InputQueue, r *shiftRequest) error {
			return x.Enqueue(ctx, modelrt.InputData{Data: r.in})
		},
		"a group's": func(ctx context.Context, g *modelrt.QueueGroup, _ *modelrt.InputQueue, r *shiftRequest) error {
			_, err := g.Enqueue(ctx, r.in, r.out)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := modelrt.QueueConfig{RingSize: func(modelrt.Anchor) int { return 1 }}
			onShift(t, c, func(t *testing.T, s rt.Session, m *modelrt.QueueManager) {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				x, y := shiftQueues(t, m)
				g := shiftGroup(t, m)
				batch := func(i int) (r [shiftBatch]*shiftRequest) {
					for k := range r {
						r[k] = newShiftRequest(100*i+10*k, 1)
					}
					return r
				}
				was, now := batch(0), batch(1)
				for _, r := range was {
					_, err := g.TryEnqueue(r.in, r.out)
					require.NoError(t, err)
				}
				release := holdTurn(x)
				ended := make(chan error, 2)
				go func() { ended <- first(ctx, g, x, now[0]) }()
				rttest.Eventually(t, func() bool { return waitingToEnqueue(x) == 1 }, "the first waits")
				require.NoError(t, s.Run(ctx))
				require.Contains(t, x.State(""), "0 of 4 buffers full", "there is room")

				_, err := g.TryEnqueue(now[1].in, now[1].out)
				require.ErrorIs(t, err, rt.ErrQueueFull)
				go func() {
					_, err := g.Enqueue(ctx, now[1].in, now[1].out)
					ended <- err
				}()
				rttest.Eventually(t, func() bool { return waitingToEnqueue(x) == 2 }, "the second waits")
				require.EqualValues(t, shiftBatch, x.Enqueued())
				require.EqualValues(t, shiftBatch, y.Enqueued())
				if name == "a queue's" { // the group would be behind it in y too
					require.ErrorIs(t, y.TryEnqueue(modelrt.OutputData{Data: now[0].out}), rt.ErrQueueFull)
				}
				release()
				require.NoError(t, <-ended)
				require.NoError(t, <-ended)
				if name == "a queue's" {
					require.NoError(t, y.Enqueue(ctx, modelrt.OutputData{Data: now[0].out}))
					now[0].out, now[1].out = now[1].out, now[0].out
				}
				for _, r := range now[2:] {
					require.NoError(t, r.enqueue(ctx, x, y))
				}
				require.NoError(t, s.Run(ctx))
				for _, r := range now {
					require.NoError(t, r.check())
				}
			})
		})
	}
}

// TestResetAllKeepsRequestsTogether enqueues a request at the moment at which a
// reset of all queues has emptied the input and not yet the output: it may not get
// into one of them alone, or every later request would have another's results.
func TestResetAllKeepsRequestsTogether(t *testing.T) {
	onShift(t, modelrt.QueueConfig{}, func(t *testing.T, s rt.Session, m *modelrt.QueueManager) {
		ctx := context.Background()
		x, y := shiftQueues(t, m)
		g := shiftGroup(t, m)
		dropped, between := newShiftRequest(1, 1), newShiftRequest(100, shiftBatch)
		var meanwhile error
		require.NoError(t, x.Enqueue(ctx, modelrt.InputData{Data: dropped.in, OnDone: func(error) { _, meanwhile = g.TryEnqueue(between.in, between.out) }}))
		require.NoError(t, y.Enqueue(ctx, modelrt.OutputData{Data: dropped.out}))
		require.NoError(t, m.ResetAll(ctx))
		require.ErrorIs(t, meanwhile, modelrt.ErrDisconnected)
		require.EqualValues(t, 0, x.Enqueued())
		require.EqualValues(t, 0, y.Enqueued())

		after := newShiftRequest(500, shiftBatch)
		ticket, err := g.Enqueue(ctx, after.in, after.out)
		require.NoError(t, err)
		require.NoError(t, s.Run(ctx))
		require.NoError(t, ticket.Wait(ctx))
		require.NoError(t, after.check())
	})
}
