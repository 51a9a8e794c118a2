package rt_test

import (
	"bytes"
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
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
	"github.com/popefgen/popefgen/ipu/iputest"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
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
func (v variant) ready(t *testing.T, opts ...modelrt.SessionOption) (s rt.Session, y, w *modelrt.Buffer) {
	t.Helper()
	s = v.session(t, opts...)
	x, y, w := buffers(t, s)
	copy(x.Bytes(), floats(1, 2, 3, 4))
	return s, y, w
}

// events collects the events that an observer gets.
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

// writeParts writes the model to two files: one with its program and one with
// its weights.
func writeParts(t *testing.T, dir string) (program, weights string) {
	t.Helper()
	program, weights = filepath.Join(dir, "program.popef"), filepath.Join(dir, "weights.popef")
	meta := affineMetadata()
	require.NoError(t, popef.WriteFile(program, func(w *popef.Writer) error {
		e, err := w.CreateExecutable("affine", false)
		require.NoError(t, err)
		_, err = e.Write(affinePortable(t))
		return errors.Join(w.WriteMetadata(&meta), err, e.Close())
	}))
	require.NoError(t, popef.WriteFile(weights, func(w *popef.Writer) error {
		return w.WriteTensor("w", tensorInfo(2), affineData["w"])
	}))
	return program, weights
}

// Feature 14.
func TestSessionOfPathsOrModel(t *testing.T) {
	ctx := context.Background()
	program, weights := writeParts(t, t.TempDir())
	whole, err := popef.Load(program, weights)
	require.NoError(t, err)
	defer whole.Close()
	fromPaths, err := modelrt.OpenSession(ctx, []string{program, weights}, rt.WithBackend(portable))
	require.NoError(t, err)
	fromModel, err := modelrt.NewSession(ctx, whole, rt.WithBackend(portable))
	require.NoError(t, err)
	for _, s := range []rt.Session{fromPaths, fromModel} {
		x, y, _ := buffers(t, s)
		copy(x.Bytes(), floats(1, 2, 3, 4))
		require.NoError(t, s.Run(ctx))
		require.Equal(t, floats(12, 26, 16, 32), y.Bytes())
		require.NoError(t, s.Close())
	}
	_, err = modelrt.OpenSession(ctx, []string{program, filepath.Join(t.TempDir(), "none")})
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = modelrt.OpenSession(ctx, []string{weights})
	require.Error(t, err, "a model without metadata")
}

// Feature 17.
func TestSessionChecksPackageHash(t *testing.T) {
	ctx := context.Background()
	script := affineScript()
	script.hash = true
	v := fakeAffine(t, "hash", script)
	_, err := modelrt.NewSession(ctx, load(t, v.model), rt.WithBackend(fakeName))
	require.ErrorIs(t, err, ipu.ErrPackageHash)
	s, _, _ := v.ready(t, rt.SkipHashCheck())
	require.NoError(t, s.Run(ctx))
}

// TestSessionChecksDefinitions: a portable executable that tells by which operators it was compiled is refused where they are others, with their names, unless that is
// switched off.
//
// Feature 17.
func TestSessionChecksDefinitions(t *testing.T) {
	exe, err := encoding.Decode(affinePortable(t))
	require.NoError(t, err)
	for _, tt := range []struct {
		name   string
		change func(*graph.Package)
		want   string
	}{
		{"the same", func(*graph.Package) {}, ""},
		{"another operator", func(p *graph.Package) { p.Operators[0].Hash = "0123456789abcdef" }, "these operators have other definitions: Binary (0123456789abcdef, and "},
		{"another meaning", func(p *graph.Package) { p.Revision++ }, "operators have revision 2 of their meaning, and 1 here; compile the model again, or skip the check (rt.SkipHashCheck)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			exe.Package = graph.PackageOf(exe)
			tt.change(exe.Package)
			var b bytes.Buffer
			require.NoError(t, encoding.Encode(&b, exe))
			v := variant{"cpu", "cpu", file(t, affineMetadata(), b.Bytes(), affineData), nil}
			if tt.want == "" {
				compute(t, v.open(t), 1)
				return
			}
			_, err := modelrt.NewSession(context.Background(), load(t, v.model))
			require.ErrorIs(t, err, ipu.ErrPackageHash)
			require.ErrorContains(t, err, "affine.popef: open: make a cpu engine: package hash mismatch: the executable was compiled by another popefgen: "+tt.want)
			compute(t, v.open(t, rt.SkipHashCheck()), 1)
		})
	}
}

// Feature 18.
func TestReplicationRefused(t *testing.T) {
	meta := affineMetadata()
	meta.ReplicationFactor = 2
	_, err := modelrt.NewSession(context.Background(), load(t, file(t, meta, affinePortable(t), affineData)))
	require.ErrorIs(t, err, rt.ErrReplication)
}

// Feature 19.
func TestRemoteBufferNeedsData(t *testing.T) {
	ctx := context.Background()
	meta := affineMetadata()
	meta.Anchors[3].RemoteBuffer = true // w
	exe := affinePortable(t)
	s, _, w := variant{backend: portable, model: file(t, meta, exe, affineData)}.ready(t)
	require.NoError(t, s.Run(ctx), "it behaves as any other")
	require.NoError(t, s.Save(ctx))
	require.Equal(t, floats(2, 3), w.Bytes())
	_, err := modelrt.NewSession(ctx, load(t, file(t, meta, exe, nil)))
	require.ErrorIs(t, err, rt.ErrData)
	require.Contains(t, err.Error(), `anchor "w"`)
}

// ordered is a session whose programs 0 to 6 only say that they ran.
func ordered(t *testing.T, opts ...modelrt.SessionOption) (rt.Session, *engine) {
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

// Feature 23.
func TestLoadPrograms(t *testing.T) {
	s, e := ordered(t)
	require.NoError(t, s.Load(context.Background()))
	require.Equal(t, "2, 1", e.took(), "in the file's order")
	require.NoError(t, s.Load(context.Background()))
	require.Equal(t, "2, 1", e.took(), "and again whenever asked for")
	require.NoError(t, s.Unload(context.Background()))
	require.ErrorIs(t, s.Load(context.Background()), rt.ErrUnbound)

	open := fakeAffine(t, "open", affineScript()).session(t)
	err := open.Load(context.Background())
	require.ErrorIs(t, err, rt.ErrUnconnected)
	require.ErrorContains(t, err, `input "b"`)
}

// Feature 24.
func TestImplicitLoadOncePerBind(t *testing.T) {
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

// Feature 26.
func TestSavePrograms(t *testing.T) {
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

	for _, v := range variants(t) {
		r, _, w := v.ready(t, rt.SaveOnUnbind())
		require.NoError(t, r.Run(ctx))
		require.Equal(t, floats(0, 0), w.Bytes())
		require.NoError(t, r.Save(ctx))
		require.Equal(t, floats(2, 3), w.Bytes(), "the weights arrive")
		clear(w.Bytes())
		require.NoError(t, r.Close())
		require.Equal(t, floats(2, 3), w.Bytes())
		require.ErrorIs(t, r.Save(ctx), rt.ErrClosed)
	}
	v := fakeAffine(t, "stopped", affineScript())
	r, _, w := v.ready(t, rt.SaveOnUnbind())
	require.NoError(t, r.Run(ctx))
	require.NoError(t, r.Stop())
	require.NoError(t, r.Close())
	require.Equal(t, floats(0, 0), w.Bytes(), "a stopped device is in no state to save")
}

// Feature 27.
func TestProgramList(t *testing.T) {
	ctx := context.Background()
	s, e := ordered(t)
	require.NoError(t, s.RunPrograms(ctx, 6, 0, 6, 3))
	require.Equal(t, "6, 0, 6, 3", e.took(), "each once, in this order, without the load programs")
	require.NoError(t, s.RunPrograms(ctx, 3, 6, 0, 6))
	require.Equal(t, "3, 6, 0, 6", e.took())
	require.ErrorIs(t, s.RunPrograms(ctx, 3, 7), rt.ErrUnknownProgram)
	require.Empty(t, e.took(), "nothing ran")
}

// Feature 28.
func TestErrorOfEachPrecondition(t *testing.T) {
	ctx := context.Background()
	v := fakeAffine(t, "preconditions", affineScript())
	s := v.session(t, modelrt.Deferred())
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
	require.ErrorIs(t, modelrt.SetCallback(ctx, s, "none", func(context.Context, []byte) error { return nil }), rt.ErrUnknownStream)
	require.ErrorIs(t, modelrt.SetCallback(ctx, s, "h2d_x", nil), rt.ErrOption)
	require.ErrorIs(t, modelrt.HandleInputs(ctx, s, nil, nil, false), rt.ErrOption)
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
	require.ErrorIs(t, modelrt.HandleOutputs(ctx, s, func(modelrt.Anchor) ipu.Stream { return nil }, nil, false), rt.ErrClosed)
	errs := []error{rt.ErrUnbound, rt.ErrUnconnected, rt.ErrNotLoaded, rt.ErrUnknownProgram, rt.ErrUnknownStream, rt.ErrOption, rt.ErrStopped, rt.ErrClosed}
	for i, a := range errs {
		for _, b := range errs[:i] {
			require.NotErrorIs(t, a, b)
		}
	}
}

// Feature 29.
func TestStopEndsBlockedRun(t *testing.T) {
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

// Feature 30.
func TestUnconnectedAnchors(t *testing.T) {
	s := fakeAffine(t, "unconnected", affineScript()).session(t)
	missing, err := s.Unconnected(context.Background(), loadProgram, mainProgram, saveProgram)
	require.NoError(t, err)
	got := map[int][]string{}
	for program, list := range modelrt.ByProgram(missing) {
		for _, u := range list {
			got[program] = append(got[program], u.Handle)
		}
	}
	require.Equal(t, map[int][]string{loadProgram: {"h2d_b"}, mainProgram: {"h2d_x", "anchor_d2h_y"}, saveProgram: {"weight_d2h_w"}}, got)
	require.EqualError(t, s.CheckConnected(context.Background(), saveProgram),
		`affine.popef: check streams: nothing is connected to output "w" F32 [2] (handle "weight_d2h_w", programs [7])`)
	buffers(t, s)
	require.NoError(t, s.CheckConnected(context.Background(), loadProgram, mainProgram, saveProgram))
}

// Feature 31.
func TestInputsOutputsAndModel(t *testing.T) {
	m := load(t, variants(t)[2].model)
	s, err := modelrt.NewSession(context.Background(), m, rt.WithBackend(portable))
	require.NoError(t, err)
	defer s.Close()
	handles := func(anchors []modelrt.Anchor) (out []string) {
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

// TestLookAhead has a device that wants the next iteration's input
// before it delivers this one's output, as far as it may look ahead, and a
// caller who gives the next input only when he has the output.
//
// Feature 32.
func TestLookAhead(t *testing.T) {
	run := func(t *testing.T, opts ...modelrt.SessionOption) error {
		script := affineScript()
		script.programs[mainProgram] = func(_ context.Context, e *engine) error {
			unlimited := !slices.Contains(e.config.Options, ipu.Option{Name: "streamCallbacks.maxLookahead", Value: "0"})
			x, y := e.connected["h2d_x"], e.connected["anchor_d2h_y"]
			buf := make([]byte, 8)
			if unlimited {
				if err := errors.Join(x.Fetch(context.Background(), buf), x.Fetch(context.Background(), buf)); err != nil {
					return err
				}
			}
			for range 2 {
				if !unlimited {
					if err := x.Fetch(context.Background(), buf); err != nil {
						return err
					}
				}
				x.Complete()
				if err := y.Fetch(context.Background(), buf); err != nil {
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
		require.NoError(t, modelrt.SetCallback(context.Background(), s, "h2d_x", func(_ context.Context, buf []byte) error {
			select {
			case data := <-inputs:
				copy(buf, data)
				return nil
			case <-time.After(50 * time.Millisecond):
				return errors.New("deadlock")
			}
		}))
		require.NoError(t, modelrt.SetCallback(context.Background(), s, "anchor_d2h_y", func(_ context.Context, buf []byte) error {
			inputs <- floats(3, 4)
			return nil
		}))
		return s.Run(context.Background())
	}
	require.ErrorContains(t, run(t), "deadlock")
	require.NoError(t, run(t, rt.WithLookAhead(0)))
	require.ErrorContains(t, run(t, rt.WithLookAhead(8)), "deadlock")

	// A request of generated code has the data of every iteration, so that the
	// device may look ahead as far as it likes.
	script := affineScript()
	main := script.programs[mainProgram]
	script.programs[mainProgram] = func(ctx context.Context, e *engine) error {
		buf := make([]byte, 8)
		for range 2 {
			if !e.connected["h2d_x"].Prefetch(buf) {
				return errors.New("deadlock")
			}
		}
		e.connected["h2d_x"].InvalidatePrefetched()
		return main(ctx, e)
	}
	compute(t, fakeAffine(t, "runner", script).open(t), 1)

	// The option goes with executables of every format; those of Poplar's in the file do not.
	s := affineScript()
	fakeAffine(t, "portable", s).session(t, rt.WithLookAhead(3))
	require.Equal(t, []ipu.Option{{Name: "streamCallbacks.maxLookahead", Value: "3"}}, s.engine.config.Options)
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
	b, err := modelrt.NewBuffer(info, 1)
	require.NoError(t, err)
	require.NoError(t, modelrt.HandleOutputs(ctx, s, func(a modelrt.Anchor) ipu.Stream {
		require.Equal(t, "version", a.Name, "the only output that is not connected")
		return b
	}, nil, true))
	require.NoError(t, s.Load(ctx))
	require.Equal(t, floats(7, 8), b.Bytes())
}

// TestTargetOfModel looks at what a model says of its device, and at
// the device that a session finds for it.
//
// Feature 2.
func TestTargetOfModel(t *testing.T) {
	meta := affineMetadata()
	meta.NumIPUs, meta.IPUVersion = 4, 21
	meta.DeviceOptions = []popef.Option{{Name: "syncConfiguration", Value: "ipuAndAll"}}
	meta.Anchors[3].RemoteBuffer = true
	const poplar = "GC_EXE_3 target"
	scripts.Store(poplar, affineScript())
	defer scripts.Delete(poplar)
	s := variant{backend: fakeName, model: file(t, meta, []byte(poplar), affineData)}.session(t, modelrt.Deferred())
	want := ipu.Target{NumIPUs: 4, Version: 21, RemoteBuffers: true, Options: []ipu.Option{{Name: "syncConfiguration", Value: "ipuAndAll"}}}
	require.Equal(t, want, s.Target())
	require.Equal(t, ipu.Request{NumIPUs: 4, Version: 21, RemoteBuffers: true, Options: want.Options}, s.Target().Request(), "it does not wait")

	// A portable executable runs on any version, and has no options for Poplar.
	model := file(t, meta, affinePortable(t), affineData)
	sys := newSystem(iputest.Config{Devices: []ipu.DeviceInfo{{NumIPUs: 4}, {NumIPUs: 2, RemoteBuffers: true}, {NumIPUs: 4, RemoteBuffers: true}}})
	s = variant{model: model}.session(t, rt.WithManager(sys.Manager()), rt.WithDeviceOption("a", "b"))
	require.Equal(t, ipu.Target{NumIPUs: 4, RemoteBuffers: true}, s.Target())
	require.Equal(t, 2, s.Device().Info().ID, "the only one that fits")
	require.Equal(t, []ipu.Option{{Name: "a", Value: "b"}}, s.Device().(*iputest.Device).Options())

	// One IPU is no device for a model of two.
	meta.NumIPUs = 2
	sys = newSystem(iputest.Config{})
	_, err := modelrt.NewSession(context.Background(), load(t, file(t, meta, affinePortable(t), affineData)), rt.WithManager(sys.Manager()))
	require.ErrorIs(t, err, ipu.ErrNoDevice)
}
