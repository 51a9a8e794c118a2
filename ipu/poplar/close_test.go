//go:build poplar && poplarfake && linux && cgo

package poplar_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/generated_examples/digits/classifier"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/poplar"
	fake "github.com/popefgen/popefgen/ipu/poplar/internal/fakesdk/poplar"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// held is what a process holds.
type held struct {
	files, threads, goroutines int
	blocks                     int64 // of C's memory, objects of C++ among them
}

func holds(t testing.TB) held {
	count := func(dir string) int {
		all, err := os.ReadDir(dir)
		require.NoError(t, err)
		return len(all)
	}
	blocks, _ := fake.Blocks()
	return held{count("/proc/self/fd"), count("/proc/self/task"), runtime.NumGoroutine(), blocks}
}

// leavesNothing does something again and again, and compares what the process holds afterwards with what it held after the
// first times. Go's own threads stay, each with a little of C's memory: fewer of them than there are rounds may be new.
func leavesNothing(t *testing.T, rounds int, once func()) {
	t.Helper()
	t.Setenv("FAKE_POPLAR_LOCKS", t.TempDir()) // an attached device is an open file
	for range 3 {
		once()
	}
	before := holds(t)
	for range rounds {
		once()
	}
	var after held
	for end := time.Now().Add(2 * time.Second); ; time.Sleep(time.Millisecond) { // what has ended may take a moment to go
		after = holds(t)
		if after.files == before.files && after.goroutines <= before.goroutines && after.threads < before.threads+rounds && after.blocks < before.blocks+int64(rounds) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after %d rounds the process holds %+v, before them %+v", rounds, after, before)
		}
	}
}

// atOnce calls f from n goroutines.
func atOnce(n int, f func()) {
	var all sync.WaitGroup
	for range n {
		all.Go(f)
	}
	all.Wait()
}

// closing is an engine on its way to a state in which it is closed.
type closing struct {
	*testing.T
	e       *poplar.Engine
	d       ipu.Device
	running []<-chan error
	free    func() // ends what goes on by itself; called when the engine is being closed
}

// run starts a call that does not end by itself.
func (c *closing) run(call func() error) {
	done := make(chan error, 1)
	c.running = append(c.running, done)
	go func() {
		err := call()
		for errors.Is(err, ipu.ErrBusy) { // with looking whether it is
			err = call()
		}
		done <- err
	}()
}

func (c *closing) load() { require.NoError(c, c.e.Load(context.Background(), c.d)) }

// fault has the fake fail from now on until it is told again.
func (c *closing) fault(script string) { require.NoError(c, os.Setenv("FAKE_POPLAR_FAULT", script)) }

// busy waits until the call that was started drives the engine, or has ended.
func (c *closing) busy() {
	for len(c.running[0]) == 0 && !errors.Is(c.e.Connect("no such stream", nil), ipu.ErrBusy) {
		time.Sleep(50 * time.Microsecond)
	}
}

// blocked is an input whose Fetch does not return before its context ends, or, if it is stubborn, before it is let go.
type blocked struct {
	fixed
	inside chan struct{}
	goOn   chan struct{} // of a stubborn one
}

func (b *blocked) Constant() []byte     { return nil } // it is called
func (b *blocked) Prefetch([]byte) bool { return false }
func (b *blocked) Fetch(ctx context.Context, _ []byte) error {
	b.inside <- struct{}{}
	if b.goOn != nil {
		<-b.goOn
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

// closingStates are the states of an engine, as what leads there from an engine that was made.
var closingStates = []struct {
	name string
	make func(c *closing)
}{
	{"created", func(*closing) {}},
	{"connected", func(c *closing) { c.connect(); c.called() }},
	{"loaded", func(c *closing) { c.load() }},
	{"loaded and connected", func(c *closing) { c.load(); c.connect(); c.called() }},
	{"has run", func(c *closing) { c.load(); c.connect(); c.ran(0, 1) }},
	{"has called streams", func(c *closing) { c.load(); c.connect(); c.called(); c.ran(0, 1) }},
	{"connected anew", func(c *closing) {
		c.load()
		for range 3 {
			c.connect()
			c.ran(0, 1)
			c.called()
			c.ran(1)
		}
		require.NoError(c, c.e.Connect("a", nothing{}))
		require.NoError(c, c.e.Connect("b", nil))
	}},
	{"loaded again", func(c *closing) { c.load(); c.connect(); c.called(); c.ran(0, 1); c.load() }},
	{"runs through rings", func(c *closing) {
		c.load()
		rings(c, c.e, 64, 1<<14) // the program moves more, but this takes some time
		c.run(func() error { return c.e.Run(context.Background(), 2) })
		c.busy()
	}},
	{"in a callback", func(c *closing) { c.load(); c.block(nil) }},
	{"in a callback that goes on", func(c *closing) {
		c.load()
		goOn := make(chan struct{})
		c.block(goOn)
		c.free = sync.OnceFunc(func() { close(goOn) })
	}},
	{"a program that never ends", func(c *closing) {
		c.load()
		c.run(func() error { return c.e.Run(context.Background(), 3) })
		c.busy()
	}},
	{"stopped", func(c *closing) { c.load(); c.connect(); c.ran(0); require.NoError(c, c.e.Stop()) }},
	{"a run was cancelled", func(c *closing) {
		c.load()
		ctx, cancel := context.WithCancel(context.Background())
		c.run(func() error { return c.e.Run(ctx, 3) })
		c.busy()
		cancel()
		err := <-c.running[0]
		c.running = nil
		require.ErrorIs(c, err, context.Canceled)
	}},
	{"loading", func(c *closing) {
		c.fault("load@*=hang")
		c.run(func() error { return c.e.Load(context.Background(), c.d) })
		c.busy()
	}},
	{"loading failed", func(c *closing) {
		c.fault("load@*=graph_memory")
		require.ErrorIs(c, c.e.Load(context.Background(), c.d), ipu.ErrMemory)
	}},
	{"a callback failed", func(c *closing) { c.load(); c.connect(); c.streamFails(func() error { return errors.New("no") }) }},
	{"a callback panicked", func(c *closing) { c.load(); c.connect(); c.streamFails(func() error { panic("no") }) }},
	{"a callback left", func(c *closing) { c.load(); c.connect(); c.streamFails(func() error { runtime.Goexit(); return nil }) }},
	{"application error", failedWith("application")},
	{"recoverable error", failedWith("recoverable:IPU_RESET")},
	{"unrecoverable error", failedWith("unrecoverable")},
	{"error of unknown cause", failedWith("unknown")},
	{"error of a class of its own", failedWith("control_program")},
	{"something else was thrown", failedWith("int")},
	{"the device is gone in a transfer", func(c *closing) {
		c.load()
		c.connect()
		c.called()
		c.fault("fetch@*=unrecoverable;load@*=unrecoverable;detach=unrecoverable")
		require.ErrorIs(c, c.e.Run(context.Background(), 1), ipu.ErrUnrecoverable)
		require.ErrorIs(c, c.e.Load(context.Background(), c.d), ipu.ErrUnrecoverable)
		require.ErrorIs(c, c.d.Detach(), ipu.ErrUnrecoverable)
	}},
	{"the device was detached", func(c *closing) {
		c.load()
		c.connect()
		c.ran(0, 1)
		require.NoError(c, c.d.Detach())
		require.ErrorIs(c, c.e.Run(context.Background(), 1), ipu.ErrNotLoaded)
	}},
	{"another engine has the device", func(c *closing) {
		c.load()
		other, err := backend(c).NewEngine(adder(64, 1, 1))
		require.NoError(c, err)
		require.NoError(c, other.Load(context.Background(), c.d))
		require.NoError(c, other.Close())
		require.Error(c, c.e.Run(context.Background(), 4))
	}},
}

func (c *closing) connect() { rings(c, c.e, 64, 4) }

// called connects the inputs to streams that are called.
func (c *closing) called() {
	for _, h := range []string{"a", "b"} {
		s := newWindowed(64, 4, false)
		require.NoError(c, c.e.Connect(h, struct{ ipu.Stream }{s}))
	}
}

func (c *closing) ran(programs ...int) {
	for _, p := range programs {
		require.NoError(c, c.e.Run(context.Background(), p))
	}
}

// block starts a run that waits in a callback of "b".
func (c *closing) block(goOn chan struct{}) {
	c.connect()
	c.called()
	b := &blocked{inside: make(chan struct{}, 9), goOn: goOn}
	require.NoError(c, c.e.Connect("b", b))
	c.run(func() error { return c.e.Run(context.Background(), 1) })
	<-b.inside
}

func (c *closing) streamFails(f func() error) {
	s := newWindowed(64, 4, false)
	s.fail = f
	require.NoError(c, c.e.Connect("a", unprefetched{s}))
	require.ErrorIs(c, c.e.Run(context.Background(), 1), ipu.ErrCallback)
}

// unprefetched is a stream that is called, and has nothing ahead.
type unprefetched struct{ ipu.Stream }

func (unprefetched) Prefetch([]byte) bool { return false }

func failedWith(effect string) func(*closing) {
	return func(c *closing) {
		c.load()
		c.connect()
		c.called()
		c.ran(0)
		c.fault("run:1@*=" + effect)
		require.Error(c, c.e.Run(context.Background(), 1))
	}
}

// TestCloseInAnyState closes engines in every state, from one goroutine or several, and before or after the device was
// given back. Nothing of them is left: no descriptor, thread or goroutine, no memory of C's, and no device.
func TestCloseInAnyState(t *testing.T) {
	poplar.SetPatience(t, 5*time.Millisecond)
	t.Setenv("FAKE_POPLAR_FAULT", "")
	for _, state := range closingStates {
		t.Run(state.name, func(t *testing.T) {
			round := 0
			leavesNothing(t, 8, func() {
				round++
				d, err := backend(t).Devices(context.Background())
				require.NoError(t, err)
				ok, err := d[0].Attach()
				require.NoError(t, err)
				require.True(t, ok, "the device is held by what was closed before")
				c := adder(64, 1<<30, 1+round%3)
				if round%2 == 0 {
					c.Options = []ipu.Option{{Name: "streamCallbacks.multiThreadMode", Value: "dedicated"}}
				}
				e, err := backend(t).NewEngine(c)
				require.NoError(t, err)
				at := &closing{T: t, e: e.(*poplar.Engine), d: d[0]}
				state.make(at)
				atOnce(1+round%4, func() {
					for {
						_ = e.Stop() // nothing may be there to stop
						if at.free != nil {
							time.Sleep(time.Millisecond)
							at.free()
						}
						err := e.Close()
						if !errors.Is(err, ipu.ErrBusy) {
							require.NoError(t, err)
							return
						}
						time.Sleep(100 * time.Microsecond)
					}
				})
				for _, done := range at.running {
					require.Error(t, <-done)
				}
				at.fault("")
				require.NoError(t, e.Close())
				require.ErrorIs(t, e.Run(context.Background(), 1), ipu.ErrClosed)
				require.ErrorIs(t, e.Load(context.Background(), d[0]), ipu.ErrClosed)
				require.ErrorIs(t, e.Connect("a", nil), ipu.ErrClosed)
				require.ErrorIs(t, e.Stop(), ipu.ErrClosed)
				require.NoError(t, d[0].Detach())
			})
		})
	}
}

// TestManyEngines makes and closes two hundred engines.
func TestManyEngines(t *testing.T) {
	d := attached(t)
	leavesNothing(t, 200, func() {
		e, err := backend(t).NewEngine(adder(64, 3, 2))
		require.NoError(t, err)
		require.NoError(t, e.Load(context.Background(), d))
		a, _, y := rings(t, e, 64, 3)
		require.NoError(t, e.Run(context.Background(), 2))
		require.NoError(t, e.Connect("a", struct{ ipu.Stream }{a}))
		a.rewind()
		y.rewind()
		require.ErrorIs(t, e.Run(context.Background(), 2), errShort) // of "b"
		require.NoError(t, e.Close())
	})
}

// TestNothingIsMade has engines and devices that can't be made: nothing is left of the attempts.
func TestNothingIsMade(t *testing.T) {
	t.Setenv("FAKE_POPLAR_FAULT", "")
	bad := adder(64, 1, 2)
	bad.Executable = []byte("GC_EXE_3 of something else")
	turned := adder(64, 1, 2)
	turned.Streams[1].Direction = ipu.DeviceToHost
	odd := adder(64, 1, 2)
	odd.Options = []ipu.Option{{Name: "no.such", Value: "1"}}
	for name, c := range map[string]struct {
		config ipu.EngineConfig
		fault  string
	}{
		"bad": {bad, ""}, "streams": {turned, ""}, "option": {odd, ""},
		"engine": {adder(64, 1, 2), "engine@*=bad_alloc"}, "deserialize": {adder(64, 1, 2), "deserialize@*=int"},
		"list": {adder(64, 1, 2), "streams@*=std"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("FAKE_POPLAR_FAULT", c.fault)
			leavesNothing(t, 20, func() {
				_, err := backend(t).NewEngine(c.config)
				require.Error(t, err)
			})
		})
	}
	for _, fault := range []string{"list", "open", "attach", "describe"} {
		t.Run(fault, func(t *testing.T) {
			t.Setenv("FAKE_POPLAR_FAULT", fault+"@*=poplar_error")
			leavesNothing(t, 20, func() {
				d, err := backend(t).Devices(context.Background())
				if err == nil {
					_, err = d[0].Attach()
				}
				require.Error(t, err)
			})
		})
	}
}

// TestHostsAreLetGo has streams that nobody else knows: once an engine has others, or is closed, they are collected.
func TestHostsAreLetGo(t *testing.T) {
	d := attached(t)
	kinds := map[string]func() (ipu.Stream, func() bool){
		"called": func() (ipu.Stream, func() bool) {
			s := &blocked{}
			w := weak.Make(s)
			return s, func() bool { return w.Value() == nil }
		},
		"ring": func() (ipu.Stream, func() bool) {
			s := newWindowed(64, 1, false)
			w := weak.Make(s)
			return s, func() bool { return w.Value() == nil }
		},
		"constant": func() (ipu.Stream, func() bool) {
			s := &fixed{data: make([]byte, 64)}
			w := weak.Make(s)
			return s, func() bool { return w.Value() == nil }
		},
	}
	for name, host := range kinds {
		for _, run := range []bool{false, true} {
			for _, closes := range []bool{false, true} {
				t.Run(fmt.Sprint(name, ", has run: ", run, ", closed: ", closes), func(t *testing.T) {
					e, err := backend(t).NewEngine(adder(64, 1, 2))
					require.NoError(t, err)
					require.NoError(t, e.Load(context.Background(), d))
					rings(t, e, 64, 1)
					s, gone := host()
					require.NoError(t, e.Connect("a", s))
					if run {
						if b, is := s.(*blocked); is {
							b.inside, b.goOn = make(chan struct{}, 1), make(chan struct{})
							close(b.goOn)
						}
						require.NoError(t, e.Run(context.Background(), 1))
					}
					s = nil
					if closes {
						require.NoError(t, e.Close())
					} else {
						rings(t, e, 64, 1)
					}
					require.Eventually(t, func() bool { runtime.GC(); return gone() }, 5*time.Second, time.Millisecond)
					require.NoError(t, e.Close())
				})
			}
		}
	}
}

// neverEnding is a model whose main program reads a, and does not end.
func neverEnding(t *testing.T) *popef.Model {
	return modelOf(t, "read a\nhang\nwrite y\n")
}

// TestCloseSession closes sessions in the states that have to do with the back end, from several goroutines.
func TestCloseSession(t *testing.T) {
	poplar.SetPatience(t, 5*time.Millisecond)
	t.Setenv("FAKE_POPLAR_FAULT", "")
	ctx := context.Background()
	never, adding := neverEnding(t), poplarModel(t)
	open := func(t *testing.T, m *popef.Model, o ...modelrt.SessionOption) rt.Session {
		s, err := modelrt.NewSession(ctx, m, append(o, rt.WithBackend(poplar.Name))...)
		require.NoError(t, err)
		for _, info := range s.Streams() {
			if info.Handle == "w" || info.Blocks > 0 {
				continue
			}
			b, err := modelrt.NewBuffer(info, s.DeviceIterations())
			require.NoError(t, err)
			require.NoError(t, s.Connect(ctx, info.Handle, b))
		}
		return s
	}
	under := func(call func() error, s rt.Session) []<-chan error {
		done := make(chan error, 1)
		go func() { done <- call() }()
		time.Sleep(time.Millisecond) // wherever it is by then
		return []<-chan error{done}
	}
	set := func(t *testing.T, name, value string) { require.NoError(t, os.Setenv(name, value)) }
	for _, state := range []struct {
		name  string
		model *popef.Model
		make  func(t *testing.T, s rt.Session) []<-chan error
	}{
		{"bound", adding, func(*testing.T, rt.Session) []<-chan error { return nil }},
		{"has run", adding, func(t *testing.T, s rt.Session) []<-chan error { require.NoError(t, s.Run(ctx)); return nil }},
		{"unloaded", adding, func(t *testing.T, s rt.Session) []<-chan error { require.NoError(t, s.Unload(ctx)); return nil }},
		{"stopped", adding, func(t *testing.T, s rt.Session) []<-chan error { require.NoError(t, s.Stop()); return nil }},
		{"reloaded", adding, func(t *testing.T, s rt.Session) []<-chan error { require.NoError(t, s.Reload(ctx)); return nil }},
		{"device failed", adding, func(t *testing.T, s rt.Session) []<-chan error {
			set(t, "FAKE_POPLAR_FAULT", "run@*=unknown")
			require.ErrorIs(t, s.Run(ctx), ipu.ErrUnknown)
			return nil
		}},
		{"device gone", adding, func(t *testing.T, s rt.Session) []<-chan error {
			require.NoError(t, s.Device().Detach())
			require.Error(t, s.Run(ctx))
			return nil
		}},
		{"binding failed", adding, func(t *testing.T, s rt.Session) []<-chan error {
			set(t, "FAKE_POPLAR_FAULT", "load@*=unrecoverable")
			require.ErrorIs(t, s.Reload(ctx), ipu.ErrUnrecoverable)
			return nil
		}},
		{"runs without end", never, func(t *testing.T, s rt.Session) []<-chan error {
			return under(func() error { return s.Run(ctx) }, s)
		}},
		{"killed by its context", never, func(t *testing.T, s rt.Session) []<-chan error {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Millisecond)
			defer cancel()
			require.ErrorIs(t, s.Run(ctx), context.DeadlineExceeded)
			return nil
		}},
		{"in a callback", adding, func(t *testing.T, s rt.Session) []<-chan error {
			b := &blocked{inside: make(chan struct{}, 9)}
			require.NoError(t, s.Connect(ctx, "a", b))
			all := under(func() error { return s.Run(ctx) }, s)
			<-b.inside
			return all
		}},
		{"uploading", adding, func(t *testing.T, s rt.Session) []<-chan error {
			set(t, "FAKE_POPLAR_FAULT", "load@*=hang")
			return under(func() error { return s.Reload(ctx) }, s)
		}},
		{"waiting for data of a queue", adding, func(t *testing.T, s rt.Session) []<-chan error {
			m, err := modelrt.NewQueueManager(ctx, s, modelrt.QueueConfig{})
			require.NoError(t, err)
			_, err = m.InputQueue("a")
			require.NoError(t, err)
			return under(func() error { return s.Run(ctx) }, s)
		}},
		{"waiting for a device", adding, func(t *testing.T, s rt.Session) []<-chan error {
			require.NoError(t, s.Unload(ctx))
			set(t, "FAKE_POPLAR_BUSY", "0,1,2,3")
			return under(func() error { return s.Reload(ctx) }, s)
		}},
	} {
		t.Run(state.name, func(t *testing.T) {
			t.Setenv("FAKE_POPLAR_BUSY", "")
			round := 0
			leavesNothing(t, 6, func() {
				round++
				s := open(t, state.model, rt.WithWait(ipu.Wait{Strategy: ipu.WaitForever, Sleep: time.Millisecond}))
				running := state.make(t, s)
				atOnce(1+round%4, func() { require.NoError(t, s.Close()) })
				for _, done := range running {
					require.Error(t, <-done)
				}
				set(t, "FAKE_POPLAR_FAULT", "")
				set(t, "FAKE_POPLAR_BUSY", "")
				require.ErrorIs(t, s.Run(ctx), rt.ErrClosed)
			})
		})
	}
	t.Run("never opened", func(t *testing.T) {
		leavesNothing(t, 6, func() {
			for _, v := range []string{"FAKE_POPLAR_BUSY=0,1,2,3", "FAKE_POPLAR_FAULT=load@*=hang"} {
				name, value, _ := strings.Cut(v, "=")
				set(t, name, value)
				ctx, cancel := context.WithTimeout(ctx, 3*time.Millisecond)
				_, err := modelrt.NewSession(ctx, adding, rt.WithBackend(poplar.Name), rt.WithWait(ipu.Wait{Strategy: ipu.WaitForever, Sleep: time.Millisecond}))
				cancel()
				set(t, name, "")
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
		})
	})
}

// TestCloseRunner closes runners of a generated package, from several goroutines.
func TestCloseRunner(t *testing.T) {
	poplar.SetPatience(t, 5*time.Millisecond)
	t.Setenv("FAKE_POPLAR_FAULT", "")
	ctx := context.Background()
	for _, state := range []struct {
		name, fault string
		requests    int
		waits       bool // they wait for the end of the runner
	}{
		{name: "idle"},
		{name: "has run", requests: 1},
		{name: "device failed", fault: "run:5@*=unrecoverable", requests: 2},
		{name: "transfer failed", fault: "fetch@*=application", requests: 2},
		{name: "requests wait", fault: "run:5@*=hang", requests: 3, waits: true},
	} {
		t.Run(state.name, func(t *testing.T) {
			leavesNothing(t, 5, func() {
				r, err := classifier.Open(ctx, rt.WithBackend(poplar.Name))
				require.NoError(t, err)
				require.NoError(t, os.Setenv("FAKE_POPLAR_FAULT", state.fault))
				results := make(chan error, state.requests)
				for range state.requests {
					go func() { results <- r.Run(ctx, classifier.NewInputs(), classifier.NewOutputs()) }()
				}
				if !state.waits {
					for range state.requests {
						require.Equal(t, state.fault == "", <-results == nil)
					}
				}
				atOnce(3, func() { require.NoError(t, r.Close()) })
				if state.waits {
					for range state.requests {
						require.ErrorIs(t, <-results, rt.ErrClosed)
					}
				}
				require.NoError(t, os.Setenv("FAKE_POPLAR_FAULT", ""))
				require.ErrorIs(t, r.Run(ctx, classifier.NewInputs(), classifier.NewOutputs()), rt.ErrClosed)
			})
		})
	}
}
