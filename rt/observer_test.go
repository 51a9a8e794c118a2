package rt_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/iputest"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// took returns the events so far in words, with their requests and whether
// they failed, and forgets them.
func (e *events) took() (words []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range e.all {
		s := ev.Kind.String()
		if ev.Request > 0 {
			s += " " + string(rune('0'+ev.Request))
		}
		if ev.Err != nil {
			s += "!"
		}
		words = append(words, s)
	}
	e.all = nil
	return words
}

// TestObserver goes through the life of a session.
func TestObserver(t *testing.T) {
	ctx := context.Background()
	var seen events
	v := fakeAffine(t, "observed", affineScript())
	s, err := modelrt.NewSession(ctx, load(t, v.model), rt.WithBackend(fakeName), modelrt.Deferred(), rt.SaveOnUnbind(), rt.WithObserver(seen.observe))
	require.NoError(t, err)
	_, _, w := buffers(t, s)
	require.Equal(t, []string{"opened"}, seen.took())
	for _, step := range []struct {
		name string
		do   func() error
		fail bool
		want []string
	}{
		{"run unbound", func() error { return s.Run(ctx) }, true, []string{"request begun 1", "request done 1!"}},
		{"no device", func() error { return s.Bind(ctx, &device{busy: true}) }, true, []string{"bound!"}},
		{"bind", func() error { return s.Bind(ctx, mine()) }, false, []string{"bound"}},
		{"run", func() error { return s.Run(ctx) }, false, []string{"request begun 2", "loaded", "request done 2"}},
		{"save", func() error { return s.Save(ctx) }, false, []string{"saved"}},
		{"weights", func() error { return s.UpdateWeights(ctx, rt.Weight{Anchor: "b", Data: floats(1, 2)}) }, false,
			[]string{"weights updated", "loaded"}},
		{"stop", s.Stop, false, []string{"stopped"}},
		{"reload", func() error { return s.Reload(ctx) }, false, []string{"bound"}},
		{"load fails", func() error {
			require.NoError(t, modelrt.SetCallback(ctx, s, "h2d_b", func(context.Context, []byte) error { return errors.New("no b") }))
			return s.Load(ctx)
		}, true, []string{"loaded!"}},
		{"load", func() error {
			require.NoError(t, s.ConnectData(ctx, "h2d_b", floats(1, 2)))
			return s.Load(ctx)
		}, false, []string{"loaded"}},
		{"save fails", func() error {
			require.NoError(t, modelrt.SetCallback(ctx, s, "weight_d2h_w", func(context.Context, []byte) error { return errors.New("no w") }))
			return s.Unload(ctx)
		}, true, []string{"saved!"}},
		{"another device", func() error {
			require.NoError(t, s.Connect(ctx, "weight_d2h_w", w))
			return s.Bind(ctx, mine())
		}, false, []string{"saved", "unbound", "bound"}},
		{"unload", func() error { return s.Unload(ctx) }, false, []string{"unbound"}},
		{"bind again", func() error { return s.Bind(ctx, mine()) }, false, []string{"bound"}},
		{"refused", func() error {
			ended, cancel := context.WithCancel(ctx)
			cancel()
			return s.Run(ended)
		}, true, []string{"refused!"}},
		{"close", s.Close, false, []string{"unbound", "closed"}},
		{"close again", s.Close, false, nil},
		{"run closed", func() error { return s.Run(ctx) }, true, []string{"refused!"}},
	} {
		err := step.do()
		require.Equal(t, step.fail, err != nil, "%s: %v", step.name, err)
		require.Equal(t, step.want, seen.took(), step.name)
	}

	// A session that could not be made.
	_, err = modelrt.NewSession(ctx, load(t, v.model), rt.WithDevice(&device{info: ipu.DeviceInfo{Backend: fakeName}, busy: true}), rt.WithObserver(seen.observe))
	require.Error(t, err)
	require.ErrorIs(t, seen.all[1].Err, ipu.ErrNoDevice)
	require.Equal(t, []string{"bound!", "opened!"}, seen.took())
}

// TestObserverOfRunner sees what happens to a runner's replicas.
func TestObserverOfRunner(t *testing.T) {
	var seen events
	sys, v := tested(t, 2)
	r := v.open(t, rt.WithManager(sys.Manager()), rt.WithReplicas(2), rt.WithObserver(seen.observe), rt.Timed())
	require.NoError(t, r.RunOn(context.Background(), 1, NewInputs(), NewOutputs()))
	last := seen.all[len(seen.all)-1]
	require.Positive(t, last.Took)
	require.Equal(t, rt.Event{Kind: rt.EventRequestDone, Model: "affine.popef", Replica: 1, Request: 1, Took: last.Took}, last)
	opening := []string{"bound", "opened", "loaded"}
	require.Equal(t, slices.Concat(opening, opening, []string{"request begun 1", "request done 1"}), seen.took())
	require.NoError(t, r.Close())
	require.ElementsMatch(t, []string{"unbound", "closed", "unbound", "closed"}, seen.took())
	require.Equal(t, "request done", rt.EventRequestDone.String())
	require.Equal(t, "weights updated", rt.EventWeightsUpdated.String())
	require.Equal(t, "unknown event", rt.EventKind(99).String())
}

// TestObserverOfFailure has a device fail with requests in the queue.
func TestObserverOfFailure(t *testing.T) {
	r, seen, errs := failing(t, ipu.KindRecoverable, ipu.IPUReset, rt.AutoReset())
	for i, err := range errs { // callers tell of themselves when they come round to it
		require.ErrorIs(t, err, rt.ErrDevice, i)
	}
	words := seen.took()
	require.Equal(t, []string{"bound", "opened", "loaded", "request begun 1", "failed 1!"}, words[:5])
	require.ElementsMatch(t, []string{"request done 1!", "refused 2!", "refused 3!", "refused 4!"}, words[5:])
	compute(t, r, 1)
	require.Equal(t, []string{"request begun 5", "reset", "loaded", "request done 5"}, seen.took())
}

// TestObserverOfRefusals has requests for which there is no room.
func TestObserverOfRefusals(t *testing.T) {
	ctx := context.Background()
	var seen events
	g := openGated(t, rt.WithObserver(seen.observe), rt.SingleCaller())
	seen.took()
	first := g.run(ctx, 1)
	<-g.started
	require.ErrorIs(t, g.Run(ctx, NewInputs(), NewOutputs()), rt.ErrConcurrent)
	require.Equal(t, []string{"request begun 1", "refused!"}, seen.took())
	var tickets []rt.Ticket
	for i := range QueueDepth {
		tickets = append(tickets, g.submit(t, float32(i)))
	}
	_, err := g.TrySubmit(NewInputs(), NewOutputs())
	require.ErrorIs(t, err, rt.ErrQueueFull)
	require.ErrorIs(t, seen.all[0].Err, rt.ErrQueueFull)
	require.Equal(t, []string{"refused!"}, seen.took())
	require.NoError(t, g.Close())
	require.ErrorIs(t, <-first, rt.ErrClosed)
	for _, ticket := range tickets {
		require.ErrorIs(t, ticket.Wait(ctx), rt.ErrClosed)
	}
	require.Equal(t, []string{"refused!", "refused!", "refused!", "refused!", "request done 1!", "unbound", "closed"}, seen.took())
	_, err = g.Submit(ctx, NewInputs(), NewOutputs())
	require.ErrorIs(t, err, rt.ErrClosed)
	require.ErrorIs(t, g.RunSamples(ctx, make([]XSample, group), make([]YSample, group)), rt.ErrClosed)
	require.Contains(t, seen.took(), "refused!")
}

// TestObserverCounts compares what an observer counts with the statistics,
// while many goroutines run, submit, give up, panic and close.
func TestObserverCounts(t *testing.T) {
	for _, v := range variants(t) {
		var begun, done, failed, refused, open atomic.Int64
		r := v.open(t, rt.WithObserver(func(e rt.Event) {
			switch e.Kind {
			case rt.EventOpened:
				open.Add(1)
			case rt.EventClosed:
				open.Add(-1)
			case rt.EventRequestBegun:
				if n := begun.Add(1); n != int64(e.Request) || n != done.Load()+1 {
					t.Errorf("request %d begins as the %d., %d ended", e.Request, n, done.Load())
				}
			case rt.EventRequestDone:
				if n := done.Add(1); n != int64(e.Request) {
					t.Errorf("request %d ends as the %d.", e.Request, n)
				}
				if e.Err != nil {
					failed.Add(1)
				}
			case rt.EventRefused:
				refused.Add(1)
			}
		}))
		var all sync.WaitGroup
		var got, gone atomic.Int64
		for id := range 8 {
			all.Go(func() {
				in, out := NewInputs(), NewOutputs()
				for round := range 60 {
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(round)*10*time.Microsecond)
					var err error
					if id%2 == 0 {
						err = r.Run(ctx, in, out)
					} else if ticket, e := r.Submit(ctx, in, out); e != nil {
						err = e
					} else {
						err = ticket.Wait(context.Background())
					}
					cancel()
					if err != nil {
						gone.Add(1)
					} else {
						got.Add(1)
					}
				}
			})
		}
		all.Wait()
		stats := r.Session().Stats()
		require.EqualValues(t, stats.Requests, done.Load())
		require.EqualValues(t, stats.Requests, begun.Load())
		require.EqualValues(t, stats.Errors, failed.Load())
		require.EqualValues(t, got.Load(), done.Load()-failed.Load())
		require.EqualValues(t, gone.Load(), failed.Load()+refused.Load())
		require.NoError(t, r.Close())
		require.Zero(t, open.Load())
	}
}

// TestObserverOfPanic sees the end of a request that panicked.
func TestObserverOfPanic(t *testing.T) {
	script := affineScript()
	script.programs[mainProgram] = func(context.Context, *engine) error { panic("ouch") }
	var seen events
	r := fakeAffine(t, "panic", script).open(t, rt.WithObserver(seen.observe))
	require.ErrorIs(t, r.Run(context.Background(), NewInputs(), NewOutputs()), rt.ErrPanic)
	last := seen.all[len(seen.all)-1]
	require.Equal(t, rt.EventRequestDone, last.Kind)
	require.ErrorIs(t, last.Err, rt.ErrPanic)
	require.EqualValues(t, 1, r.Session().Stats().Errors)
}

// TestObserverOfTestDevice compares the session's events with what its device
// saw.
func TestObserverOfTestDevice(t *testing.T) {
	var seen events
	sys, v := tested(t, 1)
	r := v.open(t, rt.WithManager(sys.Manager()), rt.WithObserver(seen.observe))
	for range 3 {
		compute(t, r, 1)
	}
	require.NoError(t, r.Close())
	require.Equal(t, len(sys.Events(iputest.EventLoad)), count(&seen, rt.EventBound))
	require.Equal(t, len(sys.Events(iputest.EventDone)), count(&seen, rt.EventLoaded)+count(&seen, rt.EventRequestDone))
	require.Equal(t, len(sys.Events(iputest.EventDetach)), count(&seen, rt.EventUnbound))
	require.Equal(t, len(sys.Events(iputest.EventClose)), count(&seen, rt.EventClosed))
}

func count(e *events, kind rt.EventKind) (n int) {
	for _, ev := range e.all {
		if ev.Kind == kind {
			n++
		}
	}
	return n
}
