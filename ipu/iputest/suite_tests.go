package iputest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/popefgen/popefgen/ipu"
)

var background = context.Background()

func testDescription(r *suiteRun) {
	e := r.engine()
	for range 2 {
		streams := e.Streams()
		if len(streams) != len(suiteStreams) {
			r.Fatalf("%d streams, want %d", len(streams), len(suiteStreams))
		}
		for _, want := range suiteStreams {
			i := slices.IndexFunc(streams, func(s ipu.StreamInfo) bool { return s.Handle == want.Handle })
			if i < 0 {
				r.Errorf("there is no stream %q", want.Handle)
				continue
			}
			s := streams[i]
			if s.Direction != want.Direction || s.Bytes != 16 || s.Type != "f32" || !slices.Equal(s.Shape, []int64{4}) || !slices.Equal(s.Programs, want.Programs) {
				r.Errorf("stream %+v, want 16 bytes of f32 [4], %v, programs %v", s, want.Direction, want.Programs)
			}
			clear(s.Shape) // what is returned is the caller's
			clear(s.Programs)
		}
		programs := e.Programs()
		for i, p := range programs {
			if p.Index != i {
				r.Errorf("program %d has index %d", i, p.Index)
			}
			programs[i] = ipu.ProgramInfo{Index: -1}
		}
		if len(programs) != 4 {
			r.Errorf("%d programs, want 4", len(programs))
		}
	}
}

func testUnknownStream(r *suiteRun) {
	e, _ := r.loaded()
	r.is(e.Connect("no such", r.in("no such", suiteA)), ipu.ErrUnknownStream, "connect", `"no such"`)
	r.works(e)
}

func testNotLoaded(r *suiteRun) {
	e := r.engine()
	r.connect(e) // is allowed before loading
	r.is(e.Run(background, 1), ipu.ErrNotLoaded, "run")
	if done := r.journal.take(); done != nil {
		r.Errorf("streams %q were moved", done)
	}
	r.ok(e.Load(background, r.device()), "load")
	r.works(e)
}

// foreign is a device of no back end.
type foreign struct{}

func (foreign) Info() ipu.DeviceInfo  { return ipu.DeviceInfo{Backend: "foreign"} }
func (foreign) Attach() (bool, error) { return true, nil }
func (foreign) Detach() error         { return nil }

func testLoadRefused(r *suiteRun) {
	e := r.engine()
	d := r.detached()
	r.is(e.Load(background, d), ipu.ErrNotAttached, "load onto a device that is not attached")
	if err := e.Load(background, foreign{}); err == nil {
		r.Errorf("an engine was loaded onto a device of another back end")
	}
	ok, err := d.Attach()
	r.ok(err, "attach")
	again, err := d.Attach()
	r.ok(err, "attach again")
	if !ok || !again {
		r.Fatalf("attach: %v, and again: %v", ok, again)
	}
	r.Cleanup(func() { r.ok(d.Detach(), "detach"); r.ok(d.Detach(), "detach again") })
	ctx, cancel := context.WithCancel(background)
	cancel()
	r.is(e.Load(ctx, d), context.Canceled, "load with a context that has ended")
	r.connect(e)
	r.is(e.Run(background, 1), ipu.ErrNotLoaded, "run after loading failed")
	r.ok(e.Load(background, d), "load")
	r.works(e)
}

func testUnknownProgram(r *suiteRun) {
	e, _ := r.loaded()
	r.connect(e)
	for _, p := range []int{4, -1, 1 << 30} {
		r.is(e.Run(background, p), ipu.ErrUnknownProgram, fmt.Sprintf("run program %d", p))
	}
	r.works(e)
}

func testUnconnected(r *suiteRun) {
	e, _ := r.loaded()
	r.ok(e.Connect("w", r.in("w", suiteW)), "connect")
	r.ok(e.Connect("a", r.in("a", suiteA)), "connect")
	r.run(e, 0) // needs no other
	r.journal.take()
	err := e.Run(background, 1)
	r.is(err, ipu.ErrUnconnected, "run", `"b"`, `"sum"`)
	if done := r.journal.take(); done != nil {
		r.Errorf("streams %q were moved", done)
	}
	r.works(e)
}

func testTransfers(r *suiteRun) {
	e, _ := r.loaded()
	direct := func(handle string, item []byte) *suiteDirect {
		return &suiteDirect{suiteStream: *r.in(handle, item)}
	}
	memory := func(m []byte) func() (ipu.Stream, []byte) {
		return func() (ipu.Stream, []byte) {
			clear(m)
			return &suiteDirect{suiteStream: *r.out("sum"), memory: [][]byte{m}}, m
		}
	}
	fetched := func() (ipu.Stream, []byte) { return r.out("sum"), nil }
	inputs := map[string]func(handle string, item []byte) ipu.Stream{
		"fetched":  func(h string, b []byte) ipu.Stream { return r.in(h, b) },
		"direct":   func(h string, b []byte) ipu.Stream { return direct(h, b) },
		"unmapped": func(h string, b []byte) ipu.Stream { s := direct(h, b); s.none = true; return s },
		"askew":    func(h string, b []byte) ipu.Stream { return direct(h, unaligned(b)) },
		"constant": func(h string, b []byte) ipu.Stream { return &suiteConstant{*direct(h, b)} },
	}
	outputs := map[string]func() (ipu.Stream, []byte){
		"fetched": fetched, "direct": memory(vector()), "askew": memory(unaligned(vector())),
	}
	for from, in := range inputs {
		for to, out := range outputs {
			w, a, b := slices.Clone(suiteW), slices.Clone(suiteA), slices.Clone(suiteB)
			r.ok(e.Connect("w", in("w", w)), "connect")
			r.ok(e.Connect("a", in("a", a)), "connect")
			r.ok(e.Connect("b", in("b", b)), "connect")
			s, m := out()
			r.ok(e.Connect("sum", s), "connect")
			r.run(e, 0, 1, 1)
			if m == nil {
				m = s.(*suiteStream).got[1]
			}
			r.equal(elements(m), suiteSum, from+" inputs to "+to+" outputs")
			for i, pair := range [][2][]byte{{w, suiteW}, {a, suiteA}, {b, suiteB}} {
				if !slices.Equal(pair[0], pair[1]) {
					r.Errorf("%s: the memory of input %d was written", from, i)
				}
			}
		}
	}
}

func testOrder(r *suiteRun) {
	e, _ := r.loaded()
	m := r.connect(e)
	for _, p := range []struct {
		program int
		want    []string
	}{
		{0, []string{"w"}},
		{1, []string{"a", "b", "sum"}},
		{2, []string{"state"}},
		{3, []string{"a", "b", "sum", "a", "b", "sum", "a", "b", "sum"}},
	} {
		r.run(e, p.program)
		if got := r.journal.take(); !slices.Equal(got, p.want) {
			r.Errorf("program %d completed %q, want %q", p.program, got, p.want)
		}
	}
	for _, s := range []*suiteStream{m.w, m.a, m.b, m.sum, m.state} {
		if s.ahead != 0 {
			r.Errorf("stream %q has %d transfers that were begun and not completed", s.handle, s.ahead)
		}
	}
}

func testRepeats(r *suiteRun) {
	e, _ := r.loaded()
	m := r.connect(e)
	m.w.items = [][]byte{vector(1, 1, 1, 1)}
	m.a.items = [][]byte{vector(1), vector(2), vector(3), vector(4), vector(5), vector(6)}
	m.b.items = [][]byte{vector(0, 1), vector(0, 2), vector(0, 3), vector(0, 4), vector(0, 5), vector(0, 6)}
	r.run(e, 0, 3, 3)
	if len(m.sum.got) != 2*suiteRepeats {
		r.Fatalf("%d outputs were delivered, want %d", len(m.sum.got), 2*suiteRepeats)
	}
	for i, got := range m.sum.got {
		n := float32(i + 1)
		r.equal(elements(got), []float32{n, n, 0, 0}, fmt.Sprintf("output %d", i))
	}

	// The same with memory that is another at each transfer.
	to := &suiteDirect{suiteStream: *r.out("sum"), memory: [][]byte{vector(), vector(), vector()}}
	r.ok(e.Connect("a", &suiteDirect{suiteStream: *r.in("a", m.a.items...)}), "connect")
	r.ok(e.Connect("sum", to), "connect")
	r.run(e, 3)
	for i, got := range to.memory {
		n := float32(i + 1)
		r.equal(elements(got), []float32{n, n, 0, 0}, fmt.Sprintf("output %d in memory", i))
	}
}

// testPrefetch offers data ahead of time, every now and then, to engines that
// take it. Whatever they do, they must get the transfers in order.
func testPrefetch(r *suiteRun) {
	for every := 1; every <= 4; every++ {
		e, d := r.loaded()
		m := r.connect(e)
		m.w.items = [][]byte{vector(1, 1, 1, 1)}
		m.a.items, m.b.items = nil, nil
		for i := range 64 {
			m.a.items = append(m.a.items, vector(float32(i)))
			m.b.items = append(m.b.items, vector(0, float32(i)))
		}
		asked := 0
		now := func() bool { asked++; return asked%every != 0 }
		m.a.refuse, m.b.refuse = now, now
		fails := 0
		m.b.fail = func() error {
			if fails++; fails%7 == 0 {
				return errors.New("now and then")
			}
			return nil
		}
		r.run(e, 0)
		for range 12 {
			err := e.Run(background, 3)
			if err != nil {
				r.is(err, ipu.ErrCallback, "run")
				// The runs that follow are in step again if the host is.
				r.ok(e.Load(background, d), "load")
				r.run(e, 0)
				at := max(m.a.done, m.b.done)
				m.a.done, m.b.done, m.sum.got = at, at, nil
				m.a.ahead, m.b.ahead = 0, 0
				continue
			}
			first := m.a.done - suiteRepeats
			for i, got := range m.sum.got {
				n := float32((first + i) % 64)
				r.equal(elements(got), []float32{n, n, 0, 0}, fmt.Sprintf("transfer %d", first+i))
			}
			m.sum.got = nil
		}
		r.ok(e.Close(), "close")
		r.ok(d.Detach(), "detach")
	}
}

func testReconnect(r *suiteRun) {
	e, _ := r.loaded()
	m := r.connect(e)
	m.a.refuse = func() bool { return false }
	r.run(e, 0, 1)
	before := m.a.done
	other := r.in("a", vector(0, 0, 0, 0))
	r.ok(e.Connect("a", other), "connect")
	r.run(e, 1)
	if m.a.done != before || other.done != 1 {
		r.Errorf("the old stream moved %d transfers more, the new one %d, want 0 and 1", m.a.done-before, other.done)
	}
	r.equal(elements(m.sum.got[1]), []float32{20, 60, 15, -40}, "sum of the new stream's data")
	r.ok(e.Connect("a", m.a), "connect the first again")
	r.run(e, 1)
	r.equal(elements(m.sum.got[2]), suiteSum, "sum of the first stream's data")
}

func testState(r *suiteRun) {
	e, d := r.loaded()
	m := r.connect(e)
	r.run(e, 0, 1, 1, 2)
	if m.w.done != 1 {
		r.Errorf("the weights were moved %d times, want 1", m.w.done)
	}
	r.equal(elements(m.state.got[0]), elements(suiteW), "state")
	m.w.items = [][]byte{vector(1, 1, 1, 1)}
	r.run(e, 2)
	r.equal(elements(m.state.got[1]), elements(suiteW), "state before the new weights are loaded")
	r.run(e, 0, 2)
	r.equal(elements(m.state.got[2]), []float32{1, 1, 1, 1}, "state")
	r.ok(e.Load(background, d), "load again")
	r.run(e, 0, 1)
	r.equal(elements(m.sum.got[2]), []float32{11, 22, 33, 44}, "sum after loading again")
}

func testCallbackErrors(r *suiteRun) {
	e, _ := r.loaded()
	m := r.connect(e)
	r.run(e, 0)
	cause := fmt.Errorf("the camera is unplugged")
	for _, s := range []*suiteStream{m.a, m.b, m.sum} {
		s.fail = func() error { return cause }
		for _, p := range []int{1, 3} {
			err := e.Run(background, p)
			r.is(err, ipu.ErrCallback, "run", fmt.Sprintf("%q", s.handle))
			r.is(err, cause, "run")
		}
		s.fail = nil
		s.ahead, m.a.ahead, m.b.ahead = 0, 0, 0
		m.sum.got = nil
		r.run(e, 1)
		r.equal(elements(m.sum.got[0]), suiteSum, "sum after an error of "+s.handle)
	}
	if !e.Inline() {
		return
	}
	r.ok(e.Connect("a", &suiteDirect{suiteStream: *r.in("a", suiteA), err: cause}), "connect")
	err := e.Run(background, 1)
	r.is(err, ipu.ErrCallback, "run with memory that fails")
	r.is(err, cause, "run with memory that fails")
}

func testCallbackPanics(r *suiteRun) {
	e, _ := r.loaded()
	m := r.connect(e)
	r.run(e, 0)
	for _, s := range []*suiteStream{m.a, m.sum} {
		s.fail = func() error { panic("out of ideas") }
		err := e.Run(background, 1)
		r.is(err, ipu.ErrCallback, "run", "out of ideas")
		r.is(err, ipu.ErrPanic, "run", "suite_tests.go") // with the stack
		s.fail = nil
		m.a.ahead, m.b.ahead = 0, 0
	}
	m.sum.got = nil
	r.run(e, 1)
	r.equal(elements(m.sum.got[0]), suiteSum, "sum after a panic")
}

// blocked starts a run that blocks in a stream. The channel gives the run's
// error.
func (r *suiteRun) blocked(ctx context.Context, e ipu.Engine, s *suiteStream) (done chan error, release func()) {
	r.Helper()
	s.block, s.inside, done = make(chan struct{}), make(chan struct{}, 64), make(chan error, 1)
	go func() { done <- e.Run(ctx, 1) }()
	release = sync.OnceFunc(func() { close(s.block) })
	r.Cleanup(release) // for the engine to be closed, whatever happens
	select {
	case <-s.inside:
	case err := <-done:
		r.Fatalf("the run ended before it got to stream %q: %v", s.handle, err)
	case <-time.After(patience):
		r.Fatalf("the run does not get to stream %q", s.handle)
	}
	return done, release
}

func testStopBlocked(r *suiteRun) {
	e, d := r.loaded()
	m := r.connect(e)
	r.run(e, 0)
	done, release := r.blocked(background, e, m.a)
	stopping := make(chan error, 1)
	go func() { stopping <- e.Stop() }()
	r.ok(r.within(stopping, "stopping"), "stop")
	release()
	r.is(r.within(done, "the stopped run"), ipu.ErrStopped, "the stopped run")
	r.is(e.Run(background, 1), ipu.ErrStopped, "run after stop")
	r.ok(e.Load(background, d), "load after stop")
	r.works(e)
}

func testStopIdle(r *suiteRun) {
	e, d := r.loaded()
	r.connect(e)
	r.run(e, 0, 1)
	r.ok(e.Stop(), "stop")
	r.is(e.Run(background, 1), ipu.ErrStopped, "run after stop")
	r.ok(e.Load(background, d), "load after stop")
	r.works(e)
	r.ok(e.Stop(), "stop")
	r.ok(e.Close(), "close after stop")
}

func testCancel(r *suiteRun) {
	e, _ := r.loaded()
	m := r.connect(e)
	r.run(e, 0)
	r.journal.take()
	ctx, cancel := context.WithCancel(background)
	cancel()
	r.is(e.Run(ctx, 1), context.Canceled, "run with a context that has ended")
	if done := r.journal.take(); done != nil {
		r.Errorf("streams %q were moved", done)
	}
	ctx, cancel = context.WithCancel(background)
	done, release := r.blocked(ctx, e, m.a)
	cancel() // the stream itself waits for it
	r.is(r.within(done, "the cancelled run"), context.Canceled, "the cancelled run")
	release()
	m.a.ahead, m.b.ahead, m.a.block = 0, 0, nil
	m.sum.got = nil
	r.run(e, 1) // without loading again
	r.equal(elements(m.sum.got[0]), suiteSum, "sum after a cancelled run")
}

func testConcurrent(r *suiteRun) {
	e, d := r.loaded()
	m := r.connect(e)
	r.run(e, 0)
	done, release := r.blocked(background, e, m.a)
	for doing, f := range map[string]func() error{
		"run during a run":                 func() error { return e.Run(background, 1) },
		"run another program during a run": func() error { return e.Run(background, 2) },
		"load during a run":                func() error { return e.Load(background, d) },
	} {
		refused := make(chan error, 1)
		go func() { refused <- f() }()
		r.is(r.within(refused, doing), ipu.ErrBusy, doing)
	}
	release()
	r.ok(r.within(done, "the run"), "the run that was under way")
	r.equal(elements(m.sum.got[0]), suiteSum, "sum")
}

func testGoroutines(r *suiteRun) {
	e, _ := r.loaded()
	m := r.connect(e)
	r.run(e, 0)
	for range 8 {
		done := make(chan error, 1)
		go func() {
			runtime.LockOSThread()
			done <- e.Run(background, 1)
		}()
		r.ok(r.within(done, "a run"), "run in another goroutine")
	}
	for _, got := range m.sum.got {
		r.equal(elements(got), suiteSum, "sum")
	}
}

func testTurns(r *suiteRun) {
	d := r.device()
	a, b := r.engine(), r.engine()
	for _, e := range []ipu.Engine{a, b, a, a, b} {
		r.ok(e.Load(background, d), "load")
		r.works(e)
	}
	if !d.Info().Shared {
		return
	}
	r.run(a, 1)
	r.run(b, 1)
}

func testClose(r *suiteRun) {
	d := r.device()
	before := runtime.NumGoroutine()
	unused := r.engine()
	r.ok(unused.Close(), "close an engine that was not loaded")
	e := r.engine()
	r.ok(e.Load(background, d), "load")
	r.works(e)
	r.ok(e.Close(), "close")
	r.ok(e.Close(), "close again")
	r.is(e.Run(background, 1), ipu.ErrClosed, "run after close")
	r.is(e.Load(background, d), ipu.ErrClosed, "load after close")
	r.is(e.Connect("a", r.in("a", suiteA)), ipu.ErrClosed, "connect after close")
	r.is(e.Stop(), ipu.ErrClosed, "stop after close")
	r.goroutines(before)
}

func testAllocations(r *suiteRun) {
	e, _ := r.loaded()
	if !e.Inline() {
		r.Skip("the engine does not compute in the caller's goroutine")
	}
	for handle, m := range map[string][]byte{"w": suiteW, "a": suiteA, "b": suiteB, "sum": vector(), "state": vector()} {
		r.ok(e.Connect(handle, noop{m}), "connect")
	}
	r.run(e, 0)
	for _, p := range []int{0, 1, 2, 3} {
		if n := testing.AllocsPerRun(100, func() { r.run(e, p) }); n != 0 {
			r.Errorf("a run of program %d allocates %v times, want 0", p, n)
		}
	}
}
