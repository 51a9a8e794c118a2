package rt_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/iputest"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
	"github.com/popefgen/popefgen/rt/genrt/genqueues"
	"github.com/popefgen/popefgen/rt/internal/rttest"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// endings are what code of the caller does where it should return.
var endings = map[string]func(){
	"panics":             func() { panic("ouch") },
	"ends the goroutine": runtime.Goexit,
}

// quitting is a back end whose engines call a function in Stop and Close, once
// they have done the same.
type quitting struct {
	ipu.Backend
	stop, close func()
}

func (b quitting) NewEngine(c ipu.EngineConfig) (ipu.Engine, error) {
	e, err := b.Backend.NewEngine(c)
	return &quittingEngine{e, b}, err
}

type quittingEngine struct {
	ipu.Engine
	of quitting
}

func (e *quittingEngine) Stop() error {
	err := e.Engine.Stop()
	e.of.stop()
	return err
}

func (e *quittingEngine) Close() error {
	err := e.Engine.Close()
	e.of.close()
	return err
}

// TestCloseReleasesWhateverItsStepsDo closes a runner while code of the caller,
// or of the back end, panics or ends its goroutine in one of the steps: all the
// others are done all the same, and Close says so.
func TestCloseReleasesWhateverItsStepsDo(t *testing.T) {
	ctx := context.Background()
	for how, end := range endings {
		for _, where := range []string{"saving", "stream", "unbound", "closed", "refused", "stop", "close"} {
			t.Run(where+" "+how, func(t *testing.T) {
				before := goleak.IgnoreCurrent()
				sys, v := tested(t, 1)
				var armed atomic.Bool
				at := func(here string) func() {
					return func() {
						if here == where && armed.Load() {
							end()
						}
					}
				}
				kinds := map[rt.EventKind]string{rt.EventSaved: "saving", rt.EventUnbound: "unbound", rt.EventClosed: "closed", rt.EventRefused: "refused"}
				manager := rt.WithManager(&ipu.Manager{Backends: []ipu.Backend{quitting{sys, at("stop"), at("close")}}})
				r, err := Open(ctx, affineSpec(t), &LoadInputs{B: &B{[2]float32{10, 20}}}, genrt.Source{Name: "affine.popef", Bytes: v.model},
					manager, rt.WithObserver(func(e rt.Event) { at(kinds[e.Kind])() }))
				require.NoError(t, err)
				var tickets []rt.Ticket
				if where == "stop" || where == "refused" { // something runs, and something waits
					remove := sys.Inject(iputest.OnRun(mainProgram), iputest.ErrHang)
					defer remove()
					for range 3 {
						ticket, err := r.Submit(ctx, NewInputs(), NewOutputs())
						require.NoError(t, err)
						tickets = append(tickets, ticket)
					}
					rttest.Eventually(t, func() bool { return len(sys.Events(iputest.EventFault)) == 1 }, "it runs")
				} else {
					require.NoError(t, r.SaveAtClose(ctx, 0, &SaveOutputs{W: new(W)}))
					if where == "stream" {
						require.NoError(t, modelrt.SetCallback(ctx, r.Session(), "weight_d2h_w", func(context.Context, []byte) error { at("stream")(); return nil }))
					}
				}
				armed.Store(true)
				closed := make(chan error, 1)
				var all sync.WaitGroup
				all.Go(func() { closed <- r.Close() })
				within(t, &all)
				require.Len(t, closed, 1, "Close ended the goroutine of its caller")
				err = <-closed
				for i, ticket := range tickets {
					err := ticket.Wait(ctx)
					require.ErrorIs(t, err, rt.ErrClosed)
					if where == "refused" && i > 0 {
						require.ErrorIs(t, err, rt.ErrPanic)
						require.Empty(t, faults(err, subjectOf))
					}
				}
				if where != "refused" {
					require.ErrorIs(t, err, rt.ErrPanic)
					require.Empty(t, faults(err, subjectOf), err)
					require.Equal(t, err, r.Close(), "the same error from every call")
				}
				require.Len(t, sys.Events(iputest.EventClose), 1, "the engine is closed")
				require.False(t, sys.Attached(0), "the device is detached")
				armed.Store(false)
				again := v.open(t, manager)
				compute(t, again, 3)
				require.NoError(t, again.Close())
				goleak.VerifyNone(t, before)
			})
		}
	}
}

// TestOpenReleasesWhateverItsStepsDo ends the goroutine that opens a runner, a
// session or queues: nobody gets them, so nothing may be left of them.
func TestOpenReleasesWhateverItsStepsDo(t *testing.T) {
	ctx := context.Background()
	for _, kind := range []rt.EventKind{rt.EventOpened, rt.EventBound, rt.EventLoaded} {
		for _, what := range []string{"runner", "session", "queues"} {
			if kind == rt.EventLoaded && what == "session" {
				continue // it does not load
			}
			t.Run(fmt.Sprintf("%s %v", what, kind), func(t *testing.T) {
				before := goleak.IgnoreCurrent()
				sys, v := tested(t, 1)
				model := load(t, v.model)
				observer := rt.WithObserver(func(e rt.Event) {
					if e.Kind == kind {
						runtime.Goexit()
					}
				})
				source := genrt.Source{Name: "affine.popef", Bytes: v.model}
				var all sync.WaitGroup
				returned := false
				all.Go(func() {
					switch what {
					case "runner":
						_, _ = Open(ctx, affineSpec(t), &LoadInputs{B: &B{}}, source, rt.WithManager(sys.Manager()), observer)
					case "session":
						_, _ = modelrt.NewSession(ctx, model, rt.WithManager(sys.Manager()), observer)
					case "queues":
						var q genqueues.Core
						var b genrt.Input[B]
						var w genrt.Output[W]
						b.Bind(&B{})
						_ = q.Open(ctx, affineSpec(t), source, []genrt.Binding{{Anchor: 3, Stream: &b}, {Anchor: 0, Stream: &w}}, modelrt.QueueConfig{},
							rt.WithManager(sys.Manager()), observer)
					}
					returned = true
				})
				within(t, &all)
				require.False(t, returned, "nobody got there")
				require.Len(t, sys.Events(iputest.EventClose), 1, "the engine is closed")
				require.False(t, sys.Attached(0), "the device is detached")
				again := v.open(t, rt.WithManager(sys.Manager()))
				compute(t, again, 3)
				require.NoError(t, again.Close())
				goleak.VerifyNone(t, before)
			})
		}
	}
}

// TestQueuesHandBackWhateverTheirFunctionsDo has a function of a queue that ends
// its goroutine when memory is returned: all other memory is returned too.
func TestQueuesHandBackWhateverTheirFunctionsDo(t *testing.T) {
	for how, end := range endings {
		t.Run(how, func(t *testing.T) {
			onShift(t, modelrt.QueueConfig{}, func(t *testing.T, s rt.Session, m *modelrt.QueueManager) {
				x, _ := shiftQueues(t, m)
				var back atomic.Int32
				for range 2 {
					require.NoError(t, x.TryEnqueue(modelrt.InputData{Data: newShiftRequest(0, 1).in, OnDone: func(err error) {
						if back.Add(1) == 1 {
							end()
						}
					}}))
				}
				var all sync.WaitGroup
				var err error
				all.Go(func() { err = s.Close() })
				within(t, &all)
				require.ErrorIs(t, err, rt.ErrPanic)
				require.EqualValues(t, 2, back.Load())
			})
		})
	}
}

// TestQueuesRunExits ends the goroutine of a loop in a function of a stream: what
// is left in the queues is returned, and says why.
func TestQueuesRunExits(t *testing.T) {
	onShift(t, modelrt.QueueConfig{}, func(t *testing.T, s rt.Session, m *modelrt.QueueManager) {
		ctx := context.Background()
		x, y := shiftQueues(t, m)
		first, rest := newShiftRequest(0, shiftBatch), newShiftRequest(0, shiftBatch)
		require.NoError(t, x.Enqueue(ctx, modelrt.InputData{Data: first.in}))
		require.NoError(t, y.Enqueue(ctx, modelrt.OutputData{Data: first.out, OnDone: func(error) { runtime.Goexit() }}))
		require.NoError(t, rest.enqueue(ctx, x, y))
		var all sync.WaitGroup
		all.Go(func() { _ = m.Run(ctx) })
		within(t, &all)
		err := <-rest.ended
		if s.Stats().Errors > 0 {
			require.ErrorIs(t, err, modelrt.ErrDisconnected)
			require.ErrorIs(t, err, rt.ErrPanic)
		}
		require.ErrorIs(t, newShiftRequest(0, 1).enqueue(ctx, x, y), modelrt.ErrDisconnected)
		require.NoError(t, m.ResetAll(ctx))
		again := runLoop(m)
		require.NoError(t, rest.enqueue(ctx, x, y))
		require.NoError(t, <-rest.ended)
		require.NoError(t, rest.check())
		require.NoError(t, s.Close())
		require.NoError(t, <-again)
	})
}

// TestQueuesRunGivesUpAfterReset ends the context of a loop that has to wait for
// another call that computes, behind a reset of the queues. The queues are then
// those of the reset: connected, for the next Run.
func TestQueuesRunGivesUpAfterReset(t *testing.T) {
	ctx := context.Background()
	script := shiftScript()
	saving, fail := make(chan bool, 1), make(chan error, 1)
	script.programs[saveProgram] = func(context.Context, *engine) error {
		saving <- true
		return <-fail
	}
	s := shiftSession(t, fakeName, register(t, script))
	m, err := modelrt.NewQueueManager(ctx, s, modelrt.QueueConfig{})
	require.NoError(t, err)
	b, err := m.InputQueue("b")
	require.NoError(t, err)
	require.NoError(t, b.TryEnqueue(modelrt.InputData{Data: floats(10, 20, 30)}))
	require.NoError(t, s.Load(ctx))
	x, y := shiftQueues(t, m)
	looping, stopLoop := context.WithCancel(ctx)
	loop := make(chan error, 1)
	go func() { loop <- m.Run(looping) }()
	first := newShiftRequest(0, shiftBatch)
	require.NoError(t, first.enqueue(ctx, x, y))
	require.NoError(t, <-first.ended)

	var other, reset sync.WaitGroup
	other.Go(func() { _ = s.RunPrograms(ctx, saveProgram) })
	<-saving
	failed := make(chan error, 1)
	reset.Go(func() { failed <- m.ResetAll(ctx) })
	// The loop may wait as well, for a turn that finds nothing to do: there are two then, or one for good.
	var since time.Time
	rttest.Eventually(t, func() bool {
		n := waiting(s)
		if n != 1 || since.IsZero() {
			since = time.Now()
		}
		return n == 2 || n == 1 && time.Since(since) > 100*time.Millisecond
	}, "the reset waits")
	stopLoop()
	since = time.Time{} // a loop that waits for a turn waits no more, and then again
	rttest.Eventually(t, func() bool {
		if waiting(s) != 2 || since.IsZero() {
			since = time.Now()
		}
		return time.Since(since) > 100*time.Millisecond
	}, "the loop has given up, and waits behind it")
	fail <- nil
	within(t, &other)
	within(t, &reset)
	require.NoError(t, <-failed)
	require.ErrorIs(t, <-loop, context.Canceled)

	again := runLoop(m)
	next := newShiftRequest(0, shiftBatch)
	require.NoError(t, next.enqueue(ctx, x, y))
	require.NoError(t, <-next.ended)
	require.NoError(t, next.check())
	require.NoError(t, s.Close())
	require.NoError(t, <-again)
}

// TestQueuesRunGivesUp ends the context of a loop that has to wait, while it
// returns memory, for another call that computes. Whatever ends that one, Run
// returns and nothing is left in the queues.
func TestQueuesRunGivesUp(t *testing.T) {
	ctx := context.Background()
	failure := &ipu.Error{Kind: ipu.KindUnknown, Message: "it broke"}
	for _, c := range []struct {
		name string
		end  func(s rt.Session, cancel func(), fail chan error) error
		want error // of the loop
		left error
	}{
		{"by itself", func(_ rt.Session, _ func(), fail chan error) error { fail <- nil; return nil }, context.Canceled, context.Canceled},
		{"its context", func(_ rt.Session, cancel func(), _ chan error) error { cancel(); return nil }, context.Canceled, context.Canceled},
		{"its device fails", func(_ rt.Session, _ func(), fail chan error) error { fail <- failure; return nil }, context.Canceled, context.Canceled},
		{"Stop", func(s rt.Session, _ func(), _ chan error) error { return s.Stop() }, context.Canceled, context.Canceled},
		{"Close", func(s rt.Session, _ func(), _ chan error) error { return s.Close() }, context.Canceled, modelrt.ErrDisconnected},
	} {
		t.Run(c.name, func(t *testing.T) {
			script := shiftScript()
			saving, fail := make(chan bool, 1), make(chan error, 1)
			script.programs[saveProgram] = func(ctx context.Context, e *engine) error {
				saving <- true
				select {
				case err := <-fail:
					return err
				case <-e.stopping():
					return ipu.ErrStopped
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			s := shiftSession(t, fakeName, register(t, script))
			m, err := modelrt.NewQueueManager(ctx, s, modelrt.QueueConfig{})
			require.NoError(t, err)
			b, err := m.InputQueue("b")
			require.NoError(t, err)
			require.NoError(t, b.TryEnqueue(modelrt.InputData{Data: floats(10, 20, 30)}))
			require.NoError(t, s.Load(ctx))
			x, y := shiftQueues(t, m)
			looping, stopLoop := context.WithCancel(ctx)
			loop := make(chan error, 1)
			go func() { loop <- m.Run(looping) }()
			first := newShiftRequest(0, shiftBatch)
			require.NoError(t, first.enqueue(ctx, x, y))
			require.NoError(t, <-first.ended) // it waits for more, without the engine
			_, err = s.Unconnected(ctx)
			require.NoError(t, err)

			own, cancel := context.WithCancel(ctx)
			defer cancel()
			var other sync.WaitGroup
			other.Go(func() { _ = s.RunPrograms(own, saveProgram) })
			<-saving
			rest := newShiftRequest(0, shiftBatch)
			require.NoError(t, rest.enqueue(ctx, x, y))
			rttest.Eventually(t, func() bool { return waiting(s) == 1 }, "the loop wants the engine")
			stopLoop()
			rttest.Eventually(t, func() bool { return !x.Connected() && waiting(s) == 1 }, "it has given up, and waits")
			require.Empty(t, loop)
			require.NoError(t, c.end(s, cancel, fail))
			within(t, &other)
			require.ErrorIs(t, <-loop, c.want)
			require.ErrorIs(t, <-rest.ended, c.left)
			require.ErrorIs(t, newShiftRequest(0, 1).enqueue(ctx, x, y), modelrt.ErrDisconnected)
		})
	}
}
