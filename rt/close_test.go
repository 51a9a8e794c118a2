package rt_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/iputest"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
	"github.com/popefgen/popefgen/rt/internal/rttest"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// closing is a session in some state, with what was under way when it got
// there.
type closing struct {
	sys     *testSystem // two devices
	session rt.Session
	d       ipu.Device   // of the session, or for it
	running []chan error // calls under way, of which Close must end every one
	others  []rt.Session // that hold a device
}

// start begins a call and waits until the session, or the device, is at it.
func (c *closing) start(t *testing.T, call func() error, under func() bool) {
	t.Helper()
	result := make(chan error, 1)
	c.running = append(c.running, result)
	go func() { result <- call() }()
	rttest.Eventually(t, under, "the call is under way")
}

// faults tells how many injected faults came to pass.
func (c *closing) faults() int { return len(c.sys.Events(iputest.EventFault)) }

// hang makes everything at that point of the device go on for ever.
func (c *closing) hang(at iputest.Fault) { c.sys.Inject(at.Always(), iputest.ErrHang) }

// other puts another session of the model on a device.
func (c *closing) other(t *testing.T, v variant, d ipu.Device, opts ...modelrt.SessionOption) rt.Session {
	t.Helper()
	s := v.session(t, append(opts, rt.WithManager(c.sys.Manager()), rt.WithDevice(d))...)
	buffers(t, s)
	c.others = append(c.others, s)
	return s
}

// closingStates lists the states of a session, as what leads there from a
// session that is bound and connected.
var closingStates = []struct {
	name string
	opts []modelrt.SessionOption
	make func(t *testing.T, c *closing, v variant)
	want error // what calls under way fail with
}{
	{name: "bound", make: func(t *testing.T, c *closing, v variant) {}},
	{name: "loaded", make: func(t *testing.T, c *closing, v variant) { require.NoError(t, c.session.Load(context.Background())) }},
	{name: "has run", make: func(t *testing.T, c *closing, v variant) { require.NoError(t, c.session.Run(context.Background())) }},
	{name: "unloaded", make: func(t *testing.T, c *closing, v variant) { require.NoError(t, c.session.Unload(context.Background())) }},
	{name: "stopped", make: func(t *testing.T, c *closing, v variant) { require.NoError(t, c.session.Stop()) }},
	{name: "device failed", make: func(t *testing.T, c *closing, v variant) {
		c.sys.Inject(iputest.OnRun(mainProgram), &ipu.Error{Kind: ipu.KindUnknown})
		require.ErrorIs(t, c.session.Run(context.Background()), rt.ErrDevice)
	}},
	{name: "binding failed", make: func(t *testing.T, c *closing, v variant) {
		c.sys.Inject(iputest.OnLoad(), &ipu.Error{Kind: ipu.KindMemory})
		require.ErrorIs(t, c.session.Reload(context.Background()), ipu.ErrMemory)
	}},
	{name: "device handed over", make: func(t *testing.T, c *closing, v variant) {
		require.NoError(t, c.other(t, v, c.d).Run(context.Background()))
	}},
	{name: "running", want: rt.ErrClosed, make: func(t *testing.T, c *closing, v variant) {
		c.hang(iputest.OnRun(mainProgram))
		c.start(t, func() error { return c.session.Run(context.Background()) }, func() bool { return c.faults() == 1 })
	}},
	{name: "in a transfer", want: rt.ErrClosed, make: func(t *testing.T, c *closing, v variant) {
		c.hang(iputest.OnTransfer("h2d_x").Nth(2))
		c.start(t, func() error { return c.session.Run(context.Background()) }, func() bool { return c.faults() == 1 })
	}},
	{name: "loading", want: rt.ErrClosed, make: func(t *testing.T, c *closing, v variant) {
		c.hang(iputest.OnRun(loadProgram))
		c.start(t, func() error { return c.session.Load(context.Background()) }, func() bool { return c.faults() == 1 })
	}},
	{name: "saving", want: rt.ErrClosed, make: func(t *testing.T, c *closing, v variant) {
		require.NoError(t, c.session.Load(context.Background()))
		c.hang(iputest.OnRun(saveProgram))
		c.start(t, func() error { return c.session.Save(context.Background()) }, func() bool { return c.faults() == 1 })
	}},
	{name: "uploading", want: rt.ErrClosed, make: func(t *testing.T, c *closing, v variant) {
		c.hang(iputest.OnLoad())
		c.start(t, func() error { return c.session.Reload(context.Background()) }, func() bool { return c.faults() == 1 })
	}},
	{name: "waiting for a device that another computes on", want: rt.ErrClosed, make: func(t *testing.T, c *closing, v variant) {
		other := c.other(t, v, c.sys.Device(1))
		remove := c.sys.Inject(iputest.OnRun(mainProgram).Always(), iputest.ErrHang)
		result := make(chan error, 1)
		go func() { result <- other.Run(context.Background()) }()
		rttest.Eventually(t, func() bool { return c.faults() == 1 }, "the other runs")
		t.Cleanup(func() { require.ErrorIs(t, <-result, rt.ErrClosed) })
		t.Cleanup(func() { require.NoError(t, other.Close()) })
		t.Cleanup(remove)
		c.start(t, func() error { return c.session.Bind(context.Background(), other.Device()) }, func() bool { return waiting(other) == 1 })
	}},
	{name: "running, with callers in line", opts: []modelrt.SessionOption{}, want: rt.ErrClosed, make: func(t *testing.T, c *closing, v variant) {
		ctx := context.Background()
		c.hang(iputest.OnRun(mainProgram))
		c.start(t, func() error { return c.session.Run(ctx) }, func() bool { return c.faults() == 1 })
		for i, call := range []func() error{
			func() error { return c.session.Run(ctx) },
			func() error { return c.session.Save(ctx) },
			func() error { return c.session.Unload(ctx) },
			func() error { return c.session.Bind(ctx, c.sys.Device(1)) },
			func() error { return c.session.UpdateWeights(ctx, rt.Weight{Anchor: "w", Data: floats(0, 0)}) },
			func() error { return c.session.ConnectData(ctx, "h2d_b", floats(0, 0)) },
			func() error { return c.session.CheckConnected(ctx) },
		} {
			c.start(t, call, func() bool { return waiting(c.session) == i+1 })
		}
	}},
	{name: "running, with another session that wants the device", want: rt.ErrClosed, make: func(t *testing.T, c *closing, v variant) {
		c.hang(iputest.OnRun(mainProgram))
		c.start(t, func() error { return c.session.Run(context.Background()) }, func() bool { return c.faults() == 1 })
		other := v.session(t, modelrt.Deferred(), rt.WithManager(c.sys.Manager()))
		result := make(chan error, 1)
		go func() { result <- other.Bind(context.Background(), c.d) }()
		rttest.Eventually(t, func() bool { return waiting(c.session) == 1 }, "the other waits")
		t.Cleanup(func() { require.NoError(t, <-result, "it gets the device in the end") })
	}},
	{name: "waiting for data in a queue", opts: []modelrt.SessionOption{rt.WithEngineOption("exchange.enablePrefetch", "false")}, want: rt.ErrClosed,
		make: func(t *testing.T, c *closing, v variant) {
			m, err := modelrt.NewQueueManager(context.Background(), c.session, modelrt.QueueConfig{Inputs: modelrt.InMain(affineMetadata().ProgramFlow, modelrt.BindUser, modelrt.SkipBind)})
			require.NoError(t, err)
			q, err := m.InputQueue("x")
			require.NoError(t, err)
			c.start(t, func() error { return c.session.Run(context.Background()) }, func() bool { return strings.Contains(q.State(""), "consumer waits") })
		}},
}

// atOnce calls every function from a goroutine of its own, and returns when
// all have returned. A hang would end the test with all stacks.
func atOnce(calls ...func()) {
	var all sync.WaitGroup
	for _, call := range calls {
		all.Go(call)
	}
	all.Wait()
}

// everything is every method that may meet Close, and must return.
func everything(s rt.Session, d ipu.Device) []func() {
	ctx := context.Background()
	return []func(){
		func() { s.Run(ctx) }, func() { s.Load(ctx) }, func() { s.Save(ctx) }, func() { s.RunPrograms(ctx, mainProgram) },
		func() { s.Stop() }, func() { s.Reload(ctx) }, func() { s.Unload(ctx) }, func() { s.Bind(ctx, d) },
		func() { s.UpdateWeights(ctx, rt.Weight{Anchor: "w", Data: floats(5, 5)}) },
		func() { s.ConnectData(ctx, "h2d_b", floats(1, 1)) }, func() { s.Unconnected(ctx) },
		func() {
			s.Stats()
			s.Traces()
			s.Stopped()
			s.Bound()
			s.Device()
			s.Streams()
			s.Target()
		},
	}
}

// requireNamed checks the error of a call that everything met, Close among it:
// any of the others may have ended it, or let it pass.
func requireNamed(t *testing.T, err error) {
	t.Helper()
	for _, name := range []error{nil, rt.ErrClosed, rt.ErrStopped, rt.ErrUnbound, rt.ErrNotLoaded, rt.ErrConcurrent} {
		if errors.Is(err, name) {
			return
		}
	}
	t.Errorf("got %v", err)
}

// TestCloseInAnyState closes sessions in every state, from several goroutines
// and again.
func TestCloseInAnyState(t *testing.T) {
	for _, st := range closingStates {
		for _, busy := range []bool{false, true} {
			name := st.name
			if busy {
				name += ", everybody calling"
			}
			t.Run(name, func(t *testing.T) {
				before := goleak.IgnoreCurrent()
				t.Cleanup(func() { goleak.VerifyNone(t, before) })
				sys := newSystem(iputest.Config{Devices: make([]ipu.DeviceInfo, 2)})
				v := variant{"device", sys.Name(), file(t, affineMetadata(), affinePortable(t), affineData), nil}
				s, err := modelrt.NewSession(context.Background(), load(t, v.model), append(st.opts, rt.WithManager(sys.Manager()), rt.WithDevice(sys.Device(0)))...)
				require.NoError(t, err)
				x, _, _ := buffers(t, s)
				copy(x.Bytes(), floats(1, 2, 3, 4))
				c := &closing{sys: sys, session: s, d: s.Device()}
				st.make(t, c, v)
				errs := make([]error, 4)
				var calls []func()
				for i := range errs {
					calls = append(calls, func() { errs[i] = s.Close() })
				}
				if busy {
					calls = append(calls, everything(s, c.d)...)
				}
				atOnce(calls...)
				for _, err := range errs {
					require.NoError(t, err)
				}
				for _, result := range c.running {
					if err := <-result; !busy {
						require.ErrorIs(t, err, st.want)
					} else {
						requireNamed(t, err)
					}
				}
				for _, call := range []func() error{
					func() error { return s.Run(context.Background()) }, func() error { return s.Reload(context.Background()) }, s.Stop,
				} {
					require.ErrorIs(t, call(), rt.ErrClosed)
				}
				require.NoError(t, s.Close())
				require.Empty(t, sys.Violations())
			})
		}
	}
}

// TestCloseUnbound closes a session that never had a device.
func TestCloseUnbound(t *testing.T) {
	sys, v := tested(t, 1)
	for _, calls := range []bool{false, true} {
		s, _, _ := v.ready(t, modelrt.Deferred(), rt.WithManager(sys.Manager()))
		all := []func(){func() { s.Close() }, func() { s.Close() }}
		if calls {
			all = append(all, everything(s, sys.Device(0))...)
		}
		atOnce(all...)
		require.NoError(t, s.Close())
		require.ErrorIs(t, s.Bind(context.Background(), sys.Device(0)), rt.ErrClosed)
	}
}

// TestCloseWaitsForSave closes a session that is to save, while a request
// computes: that ends in peace, unless somebody calls Stop.
func TestCloseWaitsForSave(t *testing.T) {
	for _, stop := range []bool{false, true} {
		script := affineScript()
		main := script.programs[mainProgram]
		started, proceed := make(chan struct{}), make(chan struct{})
		script.programs[mainProgram] = func(ctx context.Context, e *engine) error {
			close(started)
			select {
			case <-proceed:
			case <-e.stopping():
				return ipu.ErrStopped
			}
			return main(ctx, e)
		}
		s, _, w := fakeAffine(t, "saving", script).ready(t, rt.SaveOnUnbind())
		ran, done := make(chan error, 1), make(chan error, 1)
		go func() { ran <- s.Run(context.Background()) }()
		<-started
		go func() { done <- s.Close() }()
		select {
		case <-done:
			t.Fatal("it did not wait")
		case <-time.After(20 * time.Millisecond):
		}
		if stop {
			require.NoError(t, s.Stop())
			require.ErrorIs(t, <-ran, rt.ErrStopped)
			require.NoError(t, <-done)
			require.Equal(t, floats(0, 0), w.Bytes())
			continue
		}
		close(proceed)
		require.NoError(t, <-ran)
		require.NoError(t, <-done)
		require.Equal(t, floats(2, 3), w.Bytes())
	}
}

// TestCloseRunner closes runners in every state.
func TestCloseRunner(t *testing.T) {
	ctx := context.Background()
	for name, make := range map[string]func(t *testing.T, sys *testSystem, r *Runner) []chan error{
		"idle": func(t *testing.T, sys *testSystem, r *Runner) []chan error { return nil },
		"has run": func(t *testing.T, sys *testSystem, r *Runner) []chan error {
			compute(t, r, 1)
			return nil
		},
		"a replica stopped": func(t *testing.T, sys *testSystem, r *Runner) []chan error {
			require.NoError(t, r.Replica(1).Stop())
			return nil
		},
		"a replica closed": func(t *testing.T, sys *testSystem, r *Runner) []chan error {
			require.NoError(t, r.Replica(1).Close())
			return nil
		},
		"a replica failed": func(t *testing.T, sys *testSystem, r *Runner) []chan error {
			sys.Inject(iputest.OnRun(mainProgram), &ipu.Error{Kind: ipu.KindUnknown})
			require.Error(t, r.RunOn(ctx, 1, NewInputs(), NewOutputs()))
			return nil
		},
		"everything under way": func(t *testing.T, sys *testSystem, r *Runner) (all []chan error) {
			sys.Inject(iputest.OnRun(mainProgram).Always(), iputest.ErrHang)
			do := func(call func() error) {
				result := make(chan error, 1)
				all = append(all, result)
				go func() { result <- call() }()
			}
			for range QueueDepth {
				ticket, err := r.Submit(ctx, NewInputs(), NewOutputs())
				require.NoError(t, err)
				do(func() error { return ticket.Wait(ctx) })
			}
			for n := range 3 * group {
				do(func() error { return r.Run(ctx, NewInputs(), NewOutputs()) })
				do(func() error {
					x, y := someSamples(0, n+1)
					return r.RunSamples(ctx, x, y)
				})
			}
			do(func() error { return r.Save(ctx, &SaveOutputs{W: new(W)}) })
			do(func() error { return r.UpdateWeights(ctx, rt.Weight{Anchor: "w", Data: floats(5, 5)}) })
			rttest.Eventually(t, func() bool { return len(sys.Events(iputest.EventFault)) == 2 }, "both replicas run")
			return all
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			sys, v := tested(t, 2)
			r, err := Open(ctx, affineSpec(t), &LoadInputs{B: &B{[2]float32{10, 20}}}, genrt.Source{Name: "affine.popef", Bytes: v.model},
				rt.WithManager(sys.Manager()), rt.WithReplicas(2), rt.WithBatching(rt.BatchPolicy{Linger: rt.Forever}))
			require.NoError(t, err)
			results := make(t, sys, r)
			var calls []func()
			for range 4 {
				calls = append(calls, func() {
					if err := r.Close(); err != nil {
						t.Error(err)
					}
				}, func() { r.Run(ctx, NewInputs(), NewOutputs()) }, func() {
					if ticket, err := r.Submit(ctx, NewInputs(), NewOutputs()); err == nil {
						ticket.Wait(ctx)
					}
				})
			}
			atOnce(append(calls, everything(r.Replica(0), sys.Device(0))...)...)
			for _, result := range results {
				requireNamed(t, <-result)
			}
			require.NoError(t, r.Close())
			require.ErrorIs(t, r.Run(ctx, NewInputs(), NewOutputs()), rt.ErrClosed)
			goleak.VerifyNone(t, before)
		})
	}
}
