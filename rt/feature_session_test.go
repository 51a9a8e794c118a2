package rt_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/rt"
)

// fakeAffine is the test model on the fake back end, with an executable of its
// own for each call.
func fakeAffine(t *testing.T, name string, s *script) variant {
	t.Helper()
	key := name + " " + t.Name()
	scripts.Store(key, s)
	t.Cleanup(func() { scripts.Delete(key) })
	return variant{name, fakeName, file(t, affineMetadata(), []byte(key), affineData), s}
}

// mine is a device of the fake back end that belongs to the test.
func mine() *device {
	return &device{info: ipu.DeviceInfo{ID: 5, Backend: fakeName, Kind: "ipu", NumIPUs: 1}}
}

// ready makes a session with everything connected, on a device of its own if
// it is not deferred.
func (v variant) ready(t *testing.T, opts ...rt.Option) (s *rt.Session, y, w *rt.Buffer) {
	t.Helper()
	s = v.session(t, opts...)
	x, y, w := buffers(t, s)
	copy(x.Bytes(), floats(1, 2, 3, 4))
	return s, y, w
}

// events collects what an observer is told.
type events struct {
	mu  sync.Mutex
	all []rt.Event
}

func (e *events) observe(ev rt.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, ev)
}

func (e *events) kinds() (kinds []rt.EventKind) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range e.all {
		kinds = append(kinds, ev.Kind)
	}
	e.all = nil
	return kinds
}

func TestFeature14_LoadFromPathsOrModel(t *testing.T) {
	ctx := context.Background()
	write := func(name string, fill func(w *popef.Writer) error) string {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, popef.WriteFile(path, fill))
		return path
	}
	meta := affineMetadata()
	program := write("program.popef", func(w *popef.Writer) error {
		e, err := w.CreateExecutable("affine", false)
		require.NoError(t, err)
		_, err = e.Write(affinePortable(t))
		return errors.Join(w.WriteMetadata(&meta), err, e.Close())
	})
	weights := write("weights.popef", func(w *popef.Writer) error {
		return w.WriteTensor("w", tensorInfo(2), affineData["w"])
	})
	whole, err := popef.Load(program, weights)
	require.NoError(t, err)
	defer whole.Close()
	fromPaths, err := rt.OpenSession(ctx, []string{program, weights}, rt.WithBackend("cpu"))
	require.NoError(t, err)
	fromModel, err := rt.NewSession(ctx, whole, rt.WithBackend("cpu"))
	require.NoError(t, err)
	for _, s := range []*rt.Session{fromPaths, fromModel} {
		x, y, _ := buffers(t, s)
		copy(x.Bytes(), floats(1, 2, 3, 4))
		require.NoError(t, s.Run(ctx))
		require.Equal(t, floats(12, 26, 16, 32), y.Bytes())
		require.NoError(t, s.Close())
	}
	_, err = rt.OpenSession(ctx, []string{program, filepath.Join(t.TempDir(), "none")})
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = rt.OpenSession(ctx, []string{weights})
	require.Error(t, err, "a model without metadata")
}

func TestFeature15_DeferredPolicy(t *testing.T) {
	ctx := context.Background()
	v := fakeAffine(t, "deferred", affineScript())
	s, y, _ := v.ready(t, rt.Deferred())
	require.Nil(t, s.Device())
	require.False(t, s.Bound())
	require.ErrorIs(t, s.Run(ctx), rt.ErrUnbound)
	require.Empty(t, v.script.engine.took())

	d := mine()
	require.NoError(t, s.Bind(ctx, d))
	require.True(t, s.Bound())
	require.Same(t, d, s.Device())
	require.NoError(t, s.Run(ctx))
	require.Equal(t, floats(12, 26, 16, 32), y.Bytes())
	require.NoError(t, s.Close())
	require.EqualValues(t, 1, d.attached.Load(), "a device that was given is the caller's")

	// A manager finds the device that the model needs.
	sys, tv := tested(t, 2)
	sys.Occupy(0)
	other := tv.session(t, rt.Deferred(), rt.WithManager(sys.Manager()))
	found, err := sys.Manager().Get(ctx, other.Target().Request())
	require.NoError(t, err)
	require.NoError(t, other.Bind(ctx, found))
	require.Equal(t, 1, other.Device().Info().ID)

	for _, opt := range []rt.Option{rt.WithDevice(d), rt.WithWait(ipu.WaitFor(1)), rt.WithDeviceID(1), rt.WithDeviceOption("a", "b")} {
		_, err := rt.NewSession(ctx, load(t, v.model), rt.Deferred(), opt)
		require.ErrorIs(t, err, rt.ErrOption)
	}
}

// steps is a clock that sleeps in no time.
type steps struct {
	now    time.Time
	sleeps []time.Duration
	then   func(n int) // after the n-th sleep
}

func (c *steps) Now() time.Time { return c.now }

func (c *steps) Sleep(ctx context.Context, d time.Duration) error {
	c.now = c.now.Add(d)
	c.sleeps = append(c.sleeps, d)
	if c.then != nil {
		c.then(len(c.sleeps))
	}
	return ctx.Err()
}

func TestFeature16_ImmediatePolicyFailsWhole(t *testing.T) {
	ctx := context.Background()
	v := fakeAffine(t, "immediate", affineScript())
	// The only device of that id is busy.
	clock := &steps{now: time.Now()}
	opts := []rt.Option{rt.WithBackend(fakeName), rt.WithDeviceID(0), rt.WithManager(&ipu.Manager{Clock: clock})}
	s, err := rt.NewSession(ctx, load(t, v.model), opts...)
	require.Nil(t, s)
	require.ErrorIs(t, err, ipu.ErrNoDevice)
	require.True(t, v.script.engine.closed, "no half-made session")
	require.Empty(t, clock.sleeps, "no waiting unless asked for")

	opts = append(opts, rt.WithWait(ipu.Wait{Strategy: ipu.WaitWithTimeout, Timeout: 5 * time.Second, Sleep: time.Second}))
	_, err = rt.NewSession(ctx, load(t, v.model), opts...)
	require.ErrorIs(t, err, ipu.ErrNoDevice)
	require.Len(t, clock.sleeps, 5)

	defer func() { fakeDevices[0].busy = true }()
	clock.then = func(n int) { fakeDevices[0].busy = n < 7 }
	s, err = rt.NewSession(ctx, load(t, v.model), opts...)
	require.NoError(t, err)
	require.True(t, s.Bound())
	require.Equal(t, 0, s.Device().Info().ID)
	require.NoError(t, s.Close())
	require.Zero(t, fakeDevices[0].attached.Load(), "a device that the session found is the session's")
}

func TestFeature17_PackageHash(t *testing.T) {
	ctx := context.Background()
	script := affineScript()
	script.hash = true
	v := fakeAffine(t, "hash", script)
	_, err := rt.NewSession(ctx, load(t, v.model), rt.WithBackend(fakeName))
	require.ErrorIs(t, err, ipu.ErrPackageHash)
	s, _, _ := v.ready(t, rt.SkipHashCheck())
	require.NoError(t, s.Run(ctx))
}

func TestFeature18_ReplicationRefused(t *testing.T) {
	meta := affineMetadata()
	meta.ReplicationFactor = 2
	_, err := rt.NewSession(context.Background(), load(t, file(t, meta, affinePortable(t), affineData)))
	require.ErrorIs(t, err, rt.ErrReplication)
}

func TestFeature19_RemoteBufferNeedsData(t *testing.T) {
	ctx := context.Background()
	meta := affineMetadata()
	meta.Anchors[3].RemoteBuffer = true // w
	exe := affinePortable(t)
	s, err := rt.NewSession(ctx, load(t, file(t, meta, exe, affineData)))
	require.NoError(t, err)
	require.NoError(t, s.Close())
	_, err = rt.NewSession(ctx, load(t, file(t, meta, exe, nil)))
	require.ErrorIs(t, err, rt.ErrData)
	require.Contains(t, err.Error(), `anchor "w"`)
}

func TestFeature20_BindAndRebind(t *testing.T) {
	ctx := context.Background()
	v := fakeAffine(t, "rebind", affineScript())
	s, y, w := v.ready(t, rt.Deferred(), rt.SaveOnUnbind())
	e := v.script.engine
	first, second := mine(), mine()
	require.NoError(t, s.Bind(ctx, first))
	require.NoError(t, s.Bind(ctx, first))
	require.Equal(t, "load, load", e.took(), "nothing to save yet")
	require.NoError(t, s.Run(ctx))
	require.NoError(t, s.Bind(ctx, first))
	require.NoError(t, s.Run(ctx))
	require.Equal(t, "run 0, run 7, load, run 0", e.took(), "the same device is loaded again too")
	require.Equal(t, floats(2, 3), w.Bytes())
	require.NoError(t, s.Bind(ctx, second))
	require.NoError(t, s.Run(ctx))
	require.Equal(t, "run 7, load, run 0", e.took())
	require.Same(t, second, s.Device())
	require.Equal(t, floats(12, 26, 16, 32), y.Bytes())
	require.ErrorIs(t, s.Bind(ctx, nil), rt.ErrOption)

	// A device that can't be had leaves the session without one.
	busy := &device{busy: true}
	require.ErrorIs(t, s.Bind(ctx, busy), ipu.ErrNoDevice)
	require.ErrorIs(t, s.Run(ctx), rt.ErrUnbound)
	require.NoError(t, s.Bind(ctx, first))
	require.NoError(t, s.Run(ctx))

	// What can't be saved is not left.
	failing := errors.New("disk full")
	require.NoError(t, s.SetCallback("weight_d2h_w", func([]byte) error { return failing }))
	require.ErrorIs(t, s.Bind(ctx, second), failing)
	require.ErrorIs(t, s.Unload(ctx), failing)
	require.Same(t, first, s.Device())
	require.NoError(t, s.Run(ctx))
	require.NoError(t, s.Connect("weight_d2h_w", w))
}

func TestFeature21_Unload(t *testing.T) {
	ctx := context.Background()
	v := fakeAffine(t, "unload", affineScript())
	s, _, w := v.ready(t, rt.SaveOnUnbind())
	d := s.Device().(*device)
	require.NoError(t, s.Run(ctx))
	require.NoError(t, s.Unload(ctx))
	require.Equal(t, floats(2, 3), w.Bytes(), "saved")
	require.Zero(t, d.attached.Load())
	require.False(t, s.Bound())
	require.ErrorIs(t, s.Unload(ctx), rt.ErrUnbound)
	require.ErrorIs(t, s.Run(ctx), rt.ErrUnbound)
	require.NoError(t, s.Close())
}

func TestFeature22_Reload(t *testing.T) {
	ctx := context.Background()
	v := fakeAffine(t, "reload", affineScript())
	s, y, _ := v.ready(t)
	d := s.Device().(*device)
	for _, leave := range []func() error{s.Stop, func() error { return s.Unload(ctx) }} {
		require.NoError(t, s.Run(ctx))
		require.NoError(t, leave())
		require.Error(t, s.Run(ctx))
		v.script.engine.took()
		require.NoError(t, s.Reload(ctx))
		require.EqualValues(t, 1, d.attached.Load())
		clear(y.Bytes())
		require.NoError(t, s.Run(ctx))
		require.Equal(t, "load, run 0", v.script.engine.took(), "the load programs run again")
		require.Equal(t, floats(12, 26, 16, 32), y.Bytes())
	}
	deferred := v.session(t, rt.Deferred())
	require.ErrorIs(t, deferred.Reload(ctx), rt.ErrUnbound, "no device is remembered")
}

// ordered is a session whose programs 0 to 6 only say that they ran.
func ordered(t *testing.T, opts ...rt.Option) (*rt.Session, *engine) {
	t.Helper()
	meta := affineMetadata()
	meta.ProgramFlow = popef.ProgramFlow{Load: []uint32{2, 1}, Main: []uint32{4, 3, 4}, Save: []uint32{6, 5}}
	meta.Anchors = nil
	s := &script{programs: map[int]func(context.Context, *engine) error{}}
	for i := range 7 {
		s.programs[i] = func(_ context.Context, e *engine) error {
			e.log("%d", i)
			return nil
		}
	}
	v := variant{backend: fakeName, model: file(t, meta, register(t, s), nil)}
	r := v.session(t, opts...)
	require.Equal(t, "load", s.engine.took())
	return r, s.engine
}

func TestFeature23_LoadPrograms(t *testing.T) {
	s, e := ordered(t)
	require.NoError(t, s.Load(context.Background()))
	require.Equal(t, "2, 1", e.took(), "in the file's order")
}

func TestFeature24_ImplicitLoadOncePerBind(t *testing.T) {
	ctx := context.Background()
	s, e := ordered(t)
	require.NoError(t, s.Run(ctx))
	require.NoError(t, s.Run(ctx))
	require.Equal(t, "2, 1, 4, 3, 4, 4, 3, 4", e.took())
	require.NoError(t, s.Bind(ctx, mine()))
	require.NoError(t, s.Run(ctx))
	require.NoError(t, s.Run(ctx))
	require.Equal(t, "load, 2, 1, 4, 3, 4, 4, 3, 4", e.took())
	require.NoError(t, s.Reload(ctx))
	require.NoError(t, s.Load(ctx))
	require.NoError(t, s.Run(ctx))
	require.Equal(t, "load, 2, 1, 4, 3, 4", e.took(), "not again after an explicit one")
}

// TestFeature25_HandOver runs sessions A, B and A on one device.
func TestFeature25_HandOver(t *testing.T) {
	ctx := context.Background()
	d := mine()
	var seen events
	a, b := fakeAffine(t, "a", affineScript()), fakeAffine(t, "b", affineScript())
	sa, ya, wa := a.ready(t, rt.WithDevice(d), rt.SaveOnUnbind(), rt.WithObserver(seen.observe))
	require.NoError(t, sa.Run(ctx))
	require.Equal(t, "load, run 0", a.script.engine.took())

	sb, yb, _ := b.ready(t, rt.WithDevice(d))
	require.Equal(t, "run 7", a.script.engine.took(), "A saves before B is loaded")
	require.Equal(t, floats(2, 3), wa.Bytes())
	require.NoError(t, sb.Run(ctx))
	require.Equal(t, "load, run 0", b.script.engine.took())
	require.Equal(t, floats(12, 26, 16, 32), yb.Bytes())
	require.ErrorIs(t, sa.Save(ctx), rt.ErrNotLoaded, "what A had on the device is gone")

	require.NoError(t, sa.Run(ctx))
	require.Equal(t, "load, run 0", a.script.engine.took(), "A takes the device back")
	require.Equal(t, floats(12, 26, 16, 32), ya.Bytes())
	require.Equal(t, []rt.EventKind{
		rt.EventBound, rt.EventOpened, rt.EventRequestBegun, rt.EventLoaded, rt.EventRequestDone,
		rt.EventSaved, rt.EventHandedOver,
		rt.EventRequestBegun, rt.EventTookBack, rt.EventLoaded, rt.EventRequestDone,
	}, seen.kinds())
	require.NoError(t, sa.Run(ctx))
	require.Empty(t, a.script.engine.took(), "and keeps it")

	// A save that fails keeps B out, and A on the device.
	require.NoError(t, sa.SetCallback("weight_d2h_w", func([]byte) error { return errors.New("disk full") }))
	err := sb.Run(ctx)
	require.ErrorContains(t, err, "disk full")
	require.NoError(t, sa.Run(ctx))
	require.NoError(t, sa.Connect("weight_d2h_w", wa))
	require.NoError(t, sb.Run(ctx))
	require.NoError(t, sa.Close())
	require.NoError(t, sb.Run(ctx))
}

// TestFeature25_HandOverUnderLoad lets three sessions fight for one device.
func TestFeature25_HandOverUnderLoad(t *testing.T) {
	ctx := context.Background()
	d := mine()
	var running sync.Mutex
	var outputs []*rt.Buffer
	var wg sync.WaitGroup
	for i := range 3 {
		script := affineScript()
		main := script.programs[mainProgram]
		script.programs[mainProgram] = func(ctx context.Context, e *engine) error {
			if !running.TryLock() {
				t.Error("two sessions run on one device")
				return nil
			}
			defer running.Unlock()
			return main(ctx, e)
		}
		v := fakeAffine(t, string(rune('a'+i)), script)
		s, y, _ := v.ready(t, rt.WithDevice(d), rt.Concurrent(), rt.SaveOnUnbind())
		outputs = append(outputs, y)
		for range 2 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for range 50 {
					if err := s.Run(ctx); err != nil {
						t.Error(err)
					}
				}
			}()
		}
		if i == 0 {
			wg.Add(1)
			go func() { // leaves in the middle
				defer wg.Done()
				other := fakeAffine(t, "other", affineScript())
				s, _, _ := other.ready(t, rt.WithDevice(d))
				if err := s.Run(ctx); err != nil {
					t.Error(err)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				for range 5 { // and runners that come and go
					r, err := Open(ctx, affineSpec(t), &LoadInputs{B: new(B)}, rt.Source{Name: "affine.popef", Bytes: other.model}, rt.WithDevice(d))
					if err != nil {
						t.Error(err)
						return
					}
					in, out := NewInputs(), NewOutputs()
					fill(in, 1)
					if err := r.Run(ctx, in, out); err != nil || out.Y[0].Data[0] != 2 {
						t.Error(err, out.Y)
					}
					if err := r.Close(); err != nil {
						t.Error(err)
					}
				}
			}()
		}
	}
	wg.Wait()
	for _, y := range outputs {
		require.Equal(t, floats(12, 26, 16, 32), y.Bytes())
	}
}

func TestFeature26_SavePrograms(t *testing.T) {
	ctx := context.Background()
	s, e := ordered(t, rt.SaveOnUnbind())
	require.ErrorIs(t, s.Save(ctx), rt.ErrNotLoaded)
	require.NoError(t, s.Run(ctx))
	e.took()
	require.NoError(t, s.Save(ctx))
	require.Equal(t, "6, 5", e.took(), "explicit")
	require.NoError(t, s.Close())
	require.Equal(t, "6, 5", e.took(), "implicit")

	s, e = ordered(t)
	require.NoError(t, s.Run(ctx))
	e.took()
	require.NoError(t, s.Close())
	require.Empty(t, e.took(), "only if asked for")

	v := fakeAffine(t, "stopped", affineScript())
	r, _, w := v.ready(t, rt.SaveOnUnbind())
	require.NoError(t, r.Run(ctx))
	require.NoError(t, r.Stop())
	require.NoError(t, r.Close())
	require.Equal(t, floats(0, 0), w.Bytes(), "a stopped device is in no state to save")
}

func TestFeature27_ProgramList(t *testing.T) {
	ctx := context.Background()
	s, e := ordered(t)
	require.NoError(t, s.RunPrograms(ctx, 6, 0, 6, 3))
	require.Equal(t, "6, 0, 6, 3", e.took(), "each once, in this order, without the load programs")
	require.NoError(t, s.RunPrograms(ctx, 3, 6, 0, 6))
	require.Equal(t, "3, 6, 0, 6", e.took())
	require.ErrorIs(t, s.RunPrograms(ctx, 3, 7), rt.ErrUnknownProgram)
	require.Empty(t, e.took(), "nothing ran")
}

func TestFeature28_Preconditions(t *testing.T) {
	ctx := context.Background()
	v := fakeAffine(t, "preconditions", affineScript())
	s := v.session(t, rt.Deferred())
	calls := map[string]func() error{
		"Run":         func() error { return s.Run(ctx) },
		"Load":        func() error { return s.Load(ctx) },
		"Save":        func() error { return s.Save(ctx) },
		"RunPrograms": func() error { return s.RunPrograms(ctx, mainProgram) },
		"Unload":      func() error { return s.Unload(ctx) },
		"Reload":      func() error { return s.Reload(ctx) },
		"Stop":        s.Stop,
	}
	for name, call := range calls {
		require.ErrorIs(t, call(), rt.ErrUnbound, name)
	}
	require.NoError(t, s.Bind(ctx, mine()))
	require.ErrorIs(t, s.Run(ctx), rt.ErrUnconnected)
	require.ErrorIs(t, s.Save(ctx), rt.ErrNotLoaded)
	require.ErrorIs(t, s.RunPrograms(ctx, 99), rt.ErrUnknownProgram)
	require.ErrorIs(t, s.SetCallback("none", func([]byte) error { return nil }), rt.ErrUnknownStream)
	require.ErrorIs(t, s.SetCallback("h2d_x", nil), rt.ErrOption)
	require.ErrorIs(t, s.HandleInputs(nil, nil, false), rt.ErrOption)
	buffers(t, s)
	require.NoError(t, s.Run(ctx))
	require.NoError(t, s.Stop())
	for _, name := range []string{"Run", "Load", "Save", "RunPrograms", "Stop"} {
		require.ErrorIs(t, calls[name](), rt.ErrStopped, name)
	}
	require.NoError(t, s.Close())
	for name, call := range calls {
		require.ErrorIs(t, call(), rt.ErrClosed, name)
	}
	require.ErrorIs(t, s.Bind(ctx, mine()), rt.ErrClosed)
	require.ErrorIs(t, s.HandleOutputs(func(rt.Anchor) ipu.Stream { return nil }, nil, false), rt.ErrClosed)
	errs := []error{rt.ErrUnbound, rt.ErrUnconnected, rt.ErrNotLoaded, rt.ErrUnknownProgram, rt.ErrUnknownStream, rt.ErrOption, rt.ErrStopped, rt.ErrClosed}
	for i, a := range errs {
		for _, b := range errs[:i] {
			require.NotErrorIs(t, a, b)
		}
	}
}

func TestFeature29_Stop(t *testing.T) {
	ctx := context.Background()
	script := affineScript()
	started := make(chan struct{})
	main := script.programs[mainProgram]
	script.programs[mainProgram] = func(ctx context.Context, e *engine) error {
		started <- struct{}{}
		<-e.stopping()
		return ipu.ErrStopped
	}
	s, _, _ := fakeAffine(t, "stop", script).ready(t)
	result := make(chan error)
	go func() { result <- s.Run(ctx) }()
	<-started
	require.NoError(t, s.Stop())
	require.ErrorIs(t, <-result, rt.ErrStopped, "the blocked run returns")
	require.True(t, s.Stopped())
	require.ErrorIs(t, s.Run(ctx), rt.ErrStopped)
	script.programs[mainProgram] = main
	require.NoError(t, s.Reload(ctx))
	require.False(t, s.Stopped())
	require.NoError(t, s.Run(ctx))
}

func TestFeature30_UnconnectedAnchors(t *testing.T) {
	s := fakeAffine(t, "unconnected", affineScript()).session(t)
	missing, err := s.Unconnected(loadProgram, mainProgram, saveProgram)
	require.NoError(t, err)
	got := map[int][]string{}
	for program, list := range rt.ByProgram(missing) {
		for _, u := range list {
			got[program] = append(got[program], u.Handle)
		}
	}
	require.Equal(t, map[int][]string{loadProgram: {"h2d_b"}, mainProgram: {"h2d_x", "anchor_d2h_y"}, saveProgram: {"weight_d2h_w"}}, got)
	require.EqualError(t, s.CheckConnected(saveProgram),
		`affine.popef: check streams: nothing is connected to output "w" F32 [2] (handle "weight_d2h_w", programs [7])`)
	buffers(t, s)
	require.NoError(t, s.CheckConnected(loadProgram, mainProgram, saveProgram))
}

func TestFeature31_Getters(t *testing.T) {
	m := load(t, variants(t)[2].model)
	s, err := rt.NewSession(context.Background(), m, rt.WithBackend("cpu"))
	require.NoError(t, err)
	defer s.Close()
	handles := func(anchors []rt.Anchor) (out []string) {
		for _, a := range anchors {
			out = append(out, a.Handle)
		}
		slices.Sort(out)
		return out
	}
	require.Equal(t, []string{"h2d_b", "h2d_w", "h2d_x"}, handles(s.Inputs()))
	require.Equal(t, []string{"h2d_b", "h2d_x"}, handles(s.UserInputs()), "the file has w")
	require.Equal(t, []string{"anchor_d2h_y", "weight_d2h_w"}, handles(s.UserOutputs()))
	require.Same(t, m, s.Model())
}

// TestFeature32_LookAhead has a device that wants the next iteration's input
// before it delivers this one's output, as far as it may look ahead, and a
// caller who gives the next input only when he has the output.
func TestFeature32_LookAhead(t *testing.T) {
	run := func(t *testing.T, opts ...rt.Option) error {
		script := affineScript()
		script.programs[mainProgram] = func(_ context.Context, e *engine) error {
			unlimited := !slices.Contains(e.config.Options, ipu.Option{Name: "streamCallbacks.maxLookahead", Value: "0"})
			x, y := e.connected["h2d_x"], e.connected["anchor_d2h_y"]
			buf := make([]byte, 8)
			if unlimited {
				if err := errors.Join(x.Fetch(buf), x.Fetch(buf)); err != nil {
					return err
				}
			}
			for range 2 {
				if !unlimited {
					if err := x.Fetch(buf); err != nil {
						return err
					}
				}
				x.Complete()
				if err := y.Fetch(buf); err != nil {
					return err
				}
				y.Complete()
			}
			return nil
		}
		key := "GC_EXE_3 " + t.Name()
		scripts.Store(key, script)
		defer scripts.Delete(key)
		s := variant{backend: fakeName, model: file(t, affineMetadata(), []byte(key), affineData)}.session(t, opts...)
		buffers(t, s)
		inputs := make(chan []byte, 2)
		inputs <- floats(1, 2)
		require.NoError(t, s.SetCallback("h2d_x", func(buf []byte) error {
			select {
			case data := <-inputs:
				copy(buf, data)
				return nil
			case <-time.After(50 * time.Millisecond):
				return errors.New("deadlock")
			}
		}))
		require.NoError(t, s.SetCallback("anchor_d2h_y", func(buf []byte) error {
			inputs <- floats(3, 4)
			return nil
		}))
		return s.Run(context.Background())
	}
	require.ErrorContains(t, run(t), "deadlock")
	require.NoError(t, run(t, rt.WithLookAhead(0)))
	require.ErrorContains(t, run(t, rt.WithLookAhead(8)), "deadlock")

	// Other formats know no such option.
	s := affineScript()
	fakeAffine(t, "portable", s).session(t, rt.WithLookAhead(0))
	require.Empty(t, s.engine.config.Options)
}

// TestFeature13_OneActiveSession binds a second session to a device of which
// the first computes: it waits.
func TestFeature13_OneActiveSession(t *testing.T) {
	ctx := context.Background()
	d := mine()
	script := affineScript()
	started, proceed := make(chan struct{}), make(chan struct{})
	main := script.programs[mainProgram]
	script.programs[mainProgram] = func(ctx context.Context, e *engine) error {
		started <- struct{}{}
		<-proceed
		return main(ctx, e)
	}
	a, _, _ := fakeAffine(t, "a", script).ready(t, rt.WithDevice(d), rt.SaveOnUnbind())
	b, _, _ := fakeAffine(t, "b", affineScript()).ready(t, rt.Deferred())
	result := make(chan error, 2)
	go func() { result <- a.Run(ctx) }()
	<-started
	soon, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, b.Bind(soon, d), context.DeadlineExceeded)
	go func() { result <- b.Bind(ctx, d) }()
	close(proceed)
	require.NoError(t, <-result)
	require.NoError(t, <-result)
	require.True(t, a.Bound())
	require.NoError(t, b.Run(ctx))
	go func() { <-started }()
	require.NoError(t, a.Run(ctx))

	// A CPU serves any number of sessions at a time.
	cpu := variants(t)[2]
	s1, _, _ := cpu.ready(t)
	s2, _, w := cpu.ready(t, rt.WithDevice(s1.Device()))
	require.NoError(t, s1.Run(ctx))
	require.NoError(t, s2.Run(ctx))
	require.NoError(t, s1.Save(ctx))
	require.NoError(t, s2.Save(ctx))
	require.Equal(t, floats(2, 3), w.Bytes())
}

// TestSeveralMainPrograms moves one input by two main programs of one run.
func TestSeveralMainPrograms(t *testing.T) {
	ctx := context.Background()
	for _, fetching := range []bool{false, true} {
		script := affineScript()
		script.fetching = fetching
		script.programs[mainProgram+1] = script.programs[mainProgram]
		for i := range script.streams[:2] {
			script.streams[i].Programs = []int{mainProgram, mainProgram + 1}
		}
		meta := affineMetadata()
		meta.ProgramFlow.Main = []uint32{mainProgram, mainProgram + 1}
		v := variant{backend: fakeName, model: file(t, meta, register(t, script), affineData)}
		s := v.session(t)
		x, y, _ := buffers(t, s)
		copy(x.Bytes(), floats(1, 2, 3, 4))
		for range 2 {
			require.NoError(t, s.Run(ctx))
			require.Equal(t, floats(12, 26, 16, 32), y.Bytes())
			require.Equal(t, 2, x.Transfers())
		}
		require.NoError(t, s.Close())
	}
}

// TestLoadOutput has an output that only the load program delivers.
func TestLoadOutput(t *testing.T) {
	ctx := context.Background()
	script := affineScript()
	script.streams = append(script.streams, stream("d2h_version", ipu.DeviceToHost, loadProgram))
	loads := script.programs[loadProgram]
	script.programs[loadProgram] = func(ctx context.Context, e *engine) error {
		return errors.Join(loads(ctx, e), e.out("d2h_version", floats(7, 8)))
	}
	meta := affineMetadata()
	meta.Anchors = append(meta.Anchors, popef.Anchor{Name: "version", Handle: "d2h_version", Type: popef.Output, Info: tensorInfo(2), Programs: []uint32{loadProgram}})
	v := variant{backend: fakeName, model: file(t, meta, register(t, script), affineData)}
	s := v.session(t)
	buffers(t, s)
	require.NoError(t, s.Run(ctx), "dropped unless somebody wants it")
	info, _ := s.Stream("d2h_version")
	b, err := rt.NewBuffer(info, 1)
	require.NoError(t, err)
	require.NoError(t, s.HandleOutputs(func(a rt.Anchor) ipu.Stream {
		require.Equal(t, "version", a.Name, "the only output that is not connected")
		return b
	}, nil, true))
	require.NoError(t, s.Load(ctx))
	require.Equal(t, floats(7, 8), b.Bytes())
}
