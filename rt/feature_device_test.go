package rt_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// Feature 15.
func TestDeferredSession(t *testing.T) {
	ctx := context.Background()
	v := fakeAffine(t, "deferred", affineScript())
	s, y, _ := v.ready(t, modelrt.Deferred())
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
	other := tv.session(t, modelrt.Deferred(), rt.WithManager(sys.Manager()))
	found, err := sys.Manager().Get(ctx, other.Target().Request())
	require.NoError(t, err)
	require.NoError(t, other.Bind(ctx, found))
	require.Equal(t, 1, other.Device().Info().ID)

	for _, opt := range []modelrt.SessionOption{rt.WithDevice(d), rt.WithWait(ipu.WaitFor(1)), rt.WithDeviceID(1), rt.WithDeviceOption("a", "b")} {
		_, err := modelrt.NewSession(ctx, load(t, v.model), modelrt.Deferred(), opt)
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

// Feature 16.
func TestSessionWithoutDeviceIsNotMade(t *testing.T) {
	ctx := context.Background()
	v := fakeAffine(t, "immediate", affineScript())
	// The only device of that id is busy.
	clock := &steps{now: time.Now()}
	opts := []modelrt.SessionOption{rt.WithBackend(fakeName), rt.WithDeviceID(0), rt.WithManager(&ipu.Manager{Clock: clock})}
	s, err := modelrt.NewSession(ctx, load(t, v.model), opts...)
	require.Nil(t, s)
	require.ErrorIs(t, err, ipu.ErrNoDevice)
	require.True(t, v.script.engine.closed, "no half-made session")
	require.Empty(t, clock.sleeps, "no waiting unless asked for")

	opts = append(opts, rt.WithWait(ipu.Wait{Strategy: ipu.WaitWithTimeout, Timeout: 5 * time.Second, Sleep: time.Second}))
	_, err = modelrt.NewSession(ctx, load(t, v.model), opts...)
	require.ErrorIs(t, err, ipu.ErrNoDevice)
	require.Len(t, clock.sleeps, 5)

	defer func() { fakeDevices[0].busy = true }()
	clock.then = func(n int) { fakeDevices[0].busy = n < 7 }
	s, err = modelrt.NewSession(ctx, load(t, v.model), opts...)
	require.NoError(t, err)
	require.True(t, s.Bound())
	require.Equal(t, 0, s.Device().Info().ID)
	require.NoError(t, s.Close())
	require.Zero(t, fakeDevices[0].attached.Load(), "a device that the session found is the session's")

	// A device that can't be loaded is given back.
	v.script.failLoad = &ipu.Error{Kind: ipu.KindMemory}
	s, err = modelrt.NewSession(ctx, load(t, v.model), rt.WithBackend(fakeName))
	require.Nil(t, s)
	require.ErrorIs(t, err, ipu.ErrMemory)
	require.True(t, v.script.engine.closed)
	require.Zero(t, fakeDevices[2].attached.Load())
}

// Feature 20.
func TestBindAndRebind(t *testing.T) {
	ctx := context.Background()
	v := fakeAffine(t, "rebind", affineScript())
	s, y, w := v.ready(t, modelrt.Deferred(), rt.SaveOnUnbind())
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

	// So does one that can't be loaded; the session remembers it, for Reload.
	v.script.failLoad = &ipu.Error{Kind: ipu.KindMemory}
	require.ErrorIs(t, s.Bind(ctx, second), ipu.ErrMemory)
	require.False(t, s.Bound())
	require.ErrorIs(t, s.Run(ctx), rt.ErrUnbound)
	v.script.failLoad = nil
	require.NoError(t, s.Reload(ctx))
	require.Same(t, second, s.Device())
	require.NoError(t, s.Bind(ctx, first))
	require.NoError(t, s.Run(ctx))

	// What can't be saved is not left.
	failing := errors.New("disk full")
	require.NoError(t, modelrt.SetCallback(ctx, s, "weight_d2h_w", func(context.Context, []byte) error { return failing }))
	require.ErrorIs(t, s.Bind(ctx, second), failing)
	require.ErrorIs(t, s.Unload(ctx), failing)
	require.Same(t, first, s.Device())
	require.NoError(t, s.Run(ctx))
	require.NoError(t, s.Connect(ctx, "weight_d2h_w", w))
}

// Feature 21.
func TestUnload(t *testing.T) {
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

// Feature 22.
func TestReload(t *testing.T) {
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
	deferred := v.session(t, modelrt.Deferred())
	require.ErrorIs(t, deferred.Reload(ctx), rt.ErrUnbound, "no device is remembered")
}

// TestHandOver runs sessions A, B and A on one device.
//
// Feature 25.
func TestHandOver(t *testing.T) {
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
	require.NoError(t, modelrt.SetCallback(ctx, sa, "weight_d2h_w", func(context.Context, []byte) error { return errors.New("disk full") }))
	err := sb.Run(ctx)
	require.ErrorContains(t, err, "disk full")
	require.NoError(t, sa.Run(ctx))
	require.NoError(t, sa.Connect(ctx, "weight_d2h_w", wa))
	require.NoError(t, sb.Run(ctx))

	// RunPrograms finds nothing on a device that another session had; RunLoaded loads first, if nothing is loaded.
	a.script.engine.took()
	require.NoError(t, sa.RunLoaded(ctx, saveProgram))
	require.Equal(t, "load, run 0, run 7", a.script.engine.took())
	require.NoError(t, sa.RunLoaded(ctx, saveProgram))
	require.Equal(t, "run 7", a.script.engine.took())
	require.ErrorIs(t, sa.RunLoaded(ctx, 77), rt.ErrUnknownProgram)
	require.NoError(t, sa.Close())
	require.NoError(t, sb.Run(ctx))
}

// TestHandOverUnderLoad lets three sessions fight for one device.
//
// Feature 25.
func TestHandOverUnderLoad(t *testing.T) {
	ctx := context.Background()
	d := mine()
	var running sync.Mutex
	var outputs []*modelrt.Buffer
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
		s, y, _ := v.ready(t, rt.WithDevice(d), rt.SaveOnUnbind())
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
					r, err := Open(ctx, affineSpec(t), &LoadInputs{B: new(B)}, genrt.Source{Name: "affine.popef", Bytes: other.model}, rt.WithDevice(d))
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

// TestOneActiveSession binds a second session to a device of which
// the first computes: it waits.
//
// Feature 13.
func TestOneActiveSession(t *testing.T) {
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
	b, _, _ := fakeAffine(t, "b", affineScript()).ready(t, modelrt.Deferred())
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
	cpu.backend = "cpu" // whatever the others compute on
	s1, _, _ := cpu.ready(t)
	s2, _, w := cpu.ready(t, rt.WithDevice(s1.Device()))
	require.NoError(t, s1.Run(ctx))
	require.NoError(t, s2.Run(ctx))
	require.NoError(t, s1.Save(ctx))
	require.NoError(t, s2.Save(ctx))
	require.Equal(t, floats(2, 3), w.Bytes())
}
