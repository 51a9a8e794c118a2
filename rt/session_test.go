package rt_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/popeftest"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// load reads a model from memory and closes it with the test.
func load(t testing.TB, file []byte) *popef.Model {
	t.Helper()
	m, err := popef.LoadBytes("affine.popef", file)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

// session makes a session of the variant's model.
func (v variant) session(t testing.TB, opts ...modelrt.SessionOption) rt.Session {
	t.Helper()
	opts = append([]modelrt.SessionOption{rt.WithBackend(v.backend)}, opts...)
	s, err := modelrt.NewSession(context.Background(), load(t, v.model), opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// buffers connects buffers to everything that the caller must connect, and
// returns those of x, y and the saved w.
func buffers(t testing.TB, s rt.Session) (x, y, w *modelrt.Buffer) {
	t.Helper()
	connect := func(handle string, transfers int) *modelrt.Buffer {
		info, ok := s.Stream(handle)
		require.True(t, ok)
		b, err := modelrt.NewBuffer(info, transfers)
		require.NoError(t, err)
		require.NoError(t, s.Connect(context.Background(), handle, b))
		return b
	}
	require.NoError(t, s.ConnectData(context.Background(), "h2d_b", floats(10, 20)))
	return connect("h2d_x", s.DeviceIterations()), connect("anchor_d2h_y", s.DeviceIterations()), connect("weight_d2h_w", 1)
}

func TestSession(t *testing.T) {
	ctx := context.Background()
	for _, v := range variants(t) {
		t.Run(v.name, func(t *testing.T) {
			s := v.session(t)
			x, y, w := buffers(t, s)
			require.Equal(t, 2, s.DeviceIterations())
			require.Len(t, x.Bytes(), 16)
			copy(x.Bytes(), floats(1, 2, 3, 4))
			for range 2 {
				require.NoError(t, s.Run(ctx))
				require.Equal(t, floats(12, 26, 16, 32), y.Bytes())
				require.Equal(t, 2, x.Transfers())
				require.Equal(t, 2, y.Transfers())
			}
			require.NoError(t, s.Save(ctx))
			require.Equal(t, floats(2, 3), w.Bytes())

			// Own weights instead of the file's, for the next load.
			require.NoError(t, s.ConnectData(ctx, "h2d_w", floats(-1, 1)))
			require.NoError(t, s.Load(ctx))
			require.NoError(t, s.Run(ctx))
			require.Equal(t, floats(9, 22, 7, 24), y.Bytes())

			require.NoError(t, s.RunPrograms(ctx, saveProgram, mainProgram, loadProgram))
			require.Equal(t, floats(-1, 1), w.Bytes())
			require.NoError(t, s.RunPrograms(ctx))
			require.EqualValues(t, 3, s.Stats().Requests, "only runs of the main flow count")
		})
	}
}

func TestSessionOrder(t *testing.T) {
	ctx := context.Background()
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
	r := v.session(t)
	e := s.engine
	require.Equal(t, "load", e.took())
	require.NoError(t, r.Run(ctx))
	require.Equal(t, "2, 1, 4, 3, 4", e.took(), "the first run loads")
	require.NoError(t, r.Run(ctx))
	require.Equal(t, "4, 3, 4", e.took())
	require.NoError(t, r.Load(ctx))
	require.NoError(t, r.Save(ctx))
	require.Equal(t, "2, 1, 6, 5", e.took())
	require.NoError(t, r.RunPrograms(ctx, 6, 0, 6))
	require.Equal(t, "6, 0, 6", e.took())
	require.NoError(t, r.Reload(ctx))
	require.NoError(t, r.Run(ctx))
	require.Equal(t, "load, 2, 1, 4, 3, 4", e.took())
	require.NoError(t, r.Stop())
	require.NoError(t, r.Reload(ctx))
	require.NoError(t, r.Load(ctx))
	require.NoError(t, r.Run(ctx))
	require.Equal(t, "load, 2, 1, 4, 3, 4", e.took(), "load once")
}

// TestPreconditions goes through what each state does not allow.
func TestPreconditions(t *testing.T) {
	ctx := context.Background()
	for _, v := range variants(t) {
		t.Run(v.name, func(t *testing.T) {
			s := v.session(t)
			// Nothing connected but what the file has.
			for _, f := range []func() error{
				func() error { return s.Run(ctx) },
				func() error { return s.Load(ctx) },
				func() error { return s.RunPrograms(ctx, mainProgram) },
			} {
				require.ErrorIs(t, f(), rt.ErrUnconnected)
			}
			require.ErrorIs(t, s.Save(ctx), rt.ErrNotLoaded)
			require.ErrorIs(t, s.RunPrograms(ctx, mainProgram, 9), rt.ErrUnknownProgram)
			require.ErrorIs(t, s.Connect(ctx, "h2d_z", &modelrt.Buffer{}), rt.ErrUnknownStream)
			require.ErrorIs(t, s.ConnectData(ctx, "h2d_z", nil), rt.ErrUnknownStream)
			require.ErrorIs(t, s.ConnectData(ctx, "h2d_x", floats(1)), rt.ErrData)
			require.ErrorIs(t, s.ConnectData(ctx, "anchor_d2h_y", floats(1, 2)), rt.ErrData)
			require.ErrorIs(t, s.Connect(ctx, "h2d_x", nil), rt.ErrOption)
			require.NoError(t, s.ConnectData(ctx, "h2d_b", floats(1, 2)))
			require.NoError(t, s.Load(ctx))
			require.ErrorIs(t, s.Save(ctx), rt.ErrUnconnected)
			require.ErrorIs(t, s.Run(ctx), rt.ErrUnconnected)
			buffers(t, s)
			require.NoError(t, s.Run(ctx))

			require.False(t, s.Stopped())
			require.NoError(t, s.Stop())
			require.True(t, s.Stopped())
			require.ErrorIs(t, s.Stop(), rt.ErrStopped)
			for _, f := range []func() error{
				func() error { return s.Run(ctx) },
				func() error { return s.Load(ctx) },
				func() error { return s.Save(ctx) },
				func() error { return s.RunPrograms(ctx, mainProgram) },
			} {
				require.ErrorIs(t, f(), rt.ErrStopped)
			}
			require.NoError(t, s.Reload(ctx))
			require.False(t, s.Stopped())
			require.ErrorIs(t, s.Save(ctx), rt.ErrNotLoaded)
			require.NoError(t, s.Run(ctx))

			ended, cancel := context.WithCancel(ctx)
			cancel()
			for _, f := range []func(context.Context) error{s.Run, s.Load, s.Save, s.Reload,
				func(ctx context.Context) error { return s.RunPrograms(ctx, mainProgram) }} {
				require.ErrorIs(t, f(ended), context.Canceled)
			}
			require.NoError(t, s.Run(ctx), "a call whose context had ended changes nothing")

			require.NoError(t, s.Close())
			require.NoError(t, s.Close())
			for _, f := range []func() error{
				func() error { return s.Run(ctx) },
				func() error { return s.Load(ctx) },
				func() error { return s.Save(ctx) },
				func() error { return s.RunPrograms(ctx, mainProgram) },
				func() error { return s.Reload(ctx) },
				func() error { return s.ConnectData(ctx, "h2d_b", floats(1, 2)) },
				func() error { _, err := s.Unconnected(ctx); return err },
				s.Stop,
			} {
				require.ErrorIs(t, f(), rt.ErrClosed)
			}
		})
	}
}

func TestSaveWithoutPrograms(t *testing.T) {
	meta := affineMetadata()
	meta.ProgramFlow.Save = nil
	v := variant{backend: "cpu", model: file(t, meta, affinePortable(t), affineData)}
	s := v.session(t)
	require.ErrorIs(t, s.Save(context.Background()), rt.ErrNoSave)
}

func TestUnconnected(t *testing.T) {
	for _, v := range variants(t) {
		t.Run(v.name, func(t *testing.T) {
			s := v.session(t)
			err := s.Run(context.Background())
			require.EqualError(t, err, `affine.popef: load: nothing is connected to input "b" F32 [2] (handle "h2d_b", programs [0])`)
			var unconnected *rt.UnconnectedError
			require.ErrorAs(t, err, &unconnected)
			require.Equal(t, "h2d_b", unconnected.Streams[0].Handle)

			handles := func(programs ...int) (out []string) {
				t.Helper()
				missing, err := s.Unconnected(context.Background(), programs...)
				require.NoError(t, err)
				for _, m := range missing {
					out = append(out, m.Handle)
				}
				slices.Sort(out)
				return out
			}
			require.Equal(t, []string{"anchor_d2h_y", "h2d_b", "h2d_x"}, handles())
			require.Equal(t, []string{"weight_d2h_w"}, handles(saveProgram))
			require.Empty(t, handles(9))
			require.NoError(t, s.ConnectData(context.Background(), "h2d_b", floats(0, 0)))
			require.Equal(t, []string{"anchor_d2h_y", "h2d_x"}, handles())
			err = s.Run(context.Background())
			require.ErrorIs(t, err, rt.ErrUnconnected)
			require.Contains(t, err.Error(), `input "x" F32 [2] (handle "h2d_x", programs [5]); output "y" F32 [2] (handle "anchor_d2h_y", programs [5])`)
		})
	}
}

func TestGetters(t *testing.T) {
	v := variants(t)[2]
	v.backend = "cpu" // whose device this looks at
	s := v.session(t)
	var inputs, user, outputs []string
	for _, a := range s.Inputs() {
		inputs = append(inputs, a.Handle)
	}
	for _, a := range s.UserInputs() {
		user = append(user, a.Handle)
	}
	for _, a := range s.UserOutputs() {
		outputs = append(outputs, a.Handle)
	}
	require.Equal(t, []string{"h2d_b", "h2d_w", "h2d_x"}, inputs)
	require.Equal(t, []string{"h2d_b", "h2d_x"}, user)
	require.Equal(t, []string{"weight_d2h_w", "anchor_d2h_y"}, outputs)
	require.Equal(t, affineContract(t), s.Contract().Callers().Text())
	require.Len(t, s.Streams(), 5)
	require.Equal(t, "cpu", s.Device().Info().Kind)
	require.True(t, s.Engine().Inline())
	require.Equal(t, "affine", s.Model().Metadata.Executable)
	_, ok := s.Stream("h2d_z")
	require.False(t, ok)
}

func TestNewSessionErrors(t *testing.T) {
	ctx := context.Background()
	with := func(change func(*popef.Metadata, map[string][]byte)) *popef.Model {
		meta, data := affineMetadata(), map[string][]byte{"w": floats(2, 3)}
		change(&meta, data)
		return load(t, file(t, meta, affinePortable(t), data))
	}
	for _, c := range []struct {
		name  string
		model *popef.Model
		opts  []modelrt.SessionOption
		is    error
		text  string
	}{
		{"two replicas", popeftest.ModelD().Load(t), nil, rt.ErrReplication, "D.popef: open: unsupported replication factor 2: only models of one replica can be run"},
		{"no replica", with(func(m *popef.Metadata, _ map[string][]byte) { m.ReplicationFactor = 0 }), nil, rt.ErrReplication, "factor 0"},
		{"remote buffer without data", with(func(m *popef.Metadata, _ map[string][]byte) { m.Anchors[4].RemoteBuffer = true }), nil, rt.ErrData, `anchor "b" (handle "h2d_b") lives in a remote buffer`},
		{"size", with(func(m *popef.Metadata, _ map[string][]byte) { m.Anchors[1].Info.Shape = []int64{3} }), nil, rt.ErrData, `anchor "x" (handle "h2d_x"): data does not fit: it is F32 [3], 12 bytes, and the executable's stream moves 8`},
		{"direction", with(func(m *popef.Metadata, _ map[string][]byte) { m.Anchors[1].Type = popef.Output }), nil, rt.ErrData, `anchor "x" (handle "h2d_x"): data does not fit: it is an output, and the executable's stream goes host-to-device`},
		{"Poplar's executable", popeftest.ModelA().Load(t), nil, ipu.ErrWrongBackend, "A.popef: open: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := modelrt.NewSession(ctx, c.model, append([]modelrt.SessionOption{rt.WithBackend("cpu")}, c.opts...)...)
			require.Nil(t, s)
			require.ErrorIs(t, err, c.is)
			require.Contains(t, err.Error(), c.text)
		})
	}
}

func TestDevices(t *testing.T) {
	ctx := context.Background()
	exe := register(t, affineScript())
	open := func(ipus uint32, remote bool, opts ...modelrt.SessionOption) (rt.Session, error) {
		meta := affineMetadata()
		meta.NumIPUs = ipus
		meta.Anchors[3].RemoteBuffer = remote
		return modelrt.NewSession(ctx, load(t, file(t, meta, exe, affineData)), append(opts, rt.WithBackend(fakeName))...)
	}
	for _, c := range []struct {
		ipus   uint32
		remote bool
		want   int // id, or -1
	}{{1, false, 2}, {2, false, 1}, {0, false, 2}, {1, true, 2}, {2, true, -1}, {4, false, -1}} {
		s, err := open(c.ipus, c.remote)
		if c.want < 0 {
			require.ErrorIs(t, err, ipu.ErrNoDevice)
			require.Contains(t, err.Error(), "of 3 devices")
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.want, s.Device().Info().ID)
		d := s.Device().(*device)
		require.EqualValues(t, 1, d.attached.Load())
		require.NoError(t, s.Close())
		require.Zero(t, d.attached.Load())
	}
	given := &device{info: ipu.DeviceInfo{ID: 9, Backend: fakeName}}
	s, err := open(1, false, rt.WithDevice(given))
	require.NoError(t, err)
	require.Equal(t, 9, s.Device().Info().ID)
	require.NoError(t, s.Close())
	require.EqualValues(t, 1, given.attached.Load(), "the caller's device stays attached")
	given.busy = true
	_, err = open(1, false, rt.WithDevice(given))
	require.ErrorIs(t, err, ipu.ErrNoDevice)
	require.Contains(t, err.Error(), "device 9")
}

func TestEngineOptions(t *testing.T) {
	own := []ipu.Option{{Name: "threads", Value: "3"}, {Name: "a", Value: "b"}}
	inFile := []ipu.Option{{Name: "exchange.enablePrefetch", Value: "true"}}
	for prefix, want := range map[string][]ipu.Option{
		"GC_EXE_3": slices.Concat(inFile, own), // the file's options are in Poplar's words
		"POPEFGEN": own,
	} {
		s := affineScript()
		scripts.Store(prefix, s)
		v := variant{backend: fakeName, model: file(t, affineMetadata(), []byte(prefix), affineData)}
		v.session(t, rt.WithThreads(3), rt.WithEngineOption("a", "b"), rt.SkipHashCheck())
		require.Equal(t, want, s.engine.config.Options)
		require.True(t, s.engine.config.DisableHashCheck)
		require.Equal(t, "affine.popef", s.engine.config.Name)
		scripts.Delete(prefix)
	}
}

// TestFeed runs a model whose input comes from a feed of three tensors.
func TestFeed(t *testing.T) {
	ctx := context.Background()
	for _, fetching := range []bool{false, true} {
		s := affineScript()
		s.fetching = fetching
		exe := register(t, s)
		meta := affineMetadata()
		var buf popeftest.Buffer
		w := popef.NewWriter(&buf)
		require.NoError(t, w.WriteMetadata(&meta))
		e, err := w.CreateExecutable("affine", false)
		require.NoError(t, err)
		_, err = e.Write(exe)
		require.NoError(t, errors.Join(err, e.Close()))
		f, err := w.CreateFeed("x", tensorInfo(2), 4)
		require.NoError(t, err)
		for i := range 4 {
			require.NoError(t, f.WriteTensor(i, floats(float32(i), float32(i))))
		}
		require.NoError(t, f.Close())
		require.NoError(t, w.WriteTensor("w", tensorInfo(2), floats(1, 1)))
		require.NoError(t, w.Close())

		r := variant{backend: fakeName, model: buf.Bytes()}.session(t)
		require.NoError(t, r.ConnectData(ctx, "h2d_b", floats(0, 0)))
		info, _ := r.Stream("anchor_d2h_y")
		y, err := modelrt.NewBuffer(info, 2)
		require.NoError(t, err)
		require.NoError(t, r.Connect(ctx, "anchor_d2h_y", y))
		for range 2 {
			require.NoError(t, r.Run(ctx))
			require.Equal(t, floats(0, 0, 1, 1), y.Bytes())
			require.NoError(t, r.Run(ctx))
			require.Equal(t, floats(2, 2, 3, 3), y.Bytes())
			err = r.Run(ctx)
			require.ErrorIs(t, err, rt.ErrEndOfData, "data is not repeated")
			require.Contains(t, err.Error(), `feed "x"`)
			require.NoError(t, r.Reload(ctx))
		}
	}
}

func TestNewBuffer(t *testing.T) {
	for _, c := range []struct{ bytes, transfers int }{{8, 0}, {8, -1}, {-1, 1}, {1 << 40, 1 << 40}} {
		_, err := modelrt.NewBuffer(ipu.StreamInfo{Bytes: c.bytes}, c.transfers)
		require.ErrorIs(t, err, rt.ErrOption)
	}
	b, err := modelrt.NewBuffer(ipu.StreamInfo{Handle: "empty"}, 2)
	require.NoError(t, err)
	mem, err := b.Memory(context.Background())
	require.NoError(t, err)
	require.NotNil(t, mem)
	b.Complete()
	b.Complete()
	b.Complete()
	require.Equal(t, 2, b.Transfers())
	_, err = b.Memory(context.Background())
	require.ErrorIs(t, err, rt.ErrEndOfData)
}

// TestStopDuringRun stops a program that would never end.
func TestStopDuringRun(t *testing.T) {
	s := affineScript()
	started := make(chan struct{}, 1)
	s.programs[mainProgram] = func(ctx context.Context, e *engine) error {
		started <- struct{}{}
		select {
		case <-e.stopping():
			return ipu.ErrStopped
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r := variant{backend: fakeName, model: file(t, affineMetadata(), register(t, s), affineData)}.session(t)
	buffers(t, r)
	result := make(chan error)
	go func() { result <- r.Run(context.Background()) }()
	<-started
	require.NoError(t, r.Stop())
	err := <-result
	require.ErrorIs(t, err, rt.ErrStopped)
	require.NotErrorIs(t, err, rt.ErrClosed)
	require.NoError(t, r.Reload(context.Background()))

	ctx, cancel := context.WithCancel(context.Background())
	go func() { result <- r.Run(ctx) }()
	<-started
	cancel()
	require.ErrorIs(t, <-result, context.Canceled)
}

func TestDefaultBackend(t *testing.T) {
	v := variants(t)[2]
	s, err := modelrt.NewSession(context.Background(), load(t, v.model))
	require.NoError(t, err)
	require.Equal(t, "cpu", s.Device().Info().Backend, "cpu is preferred where several are registered")
	require.NoError(t, s.Close())
}
