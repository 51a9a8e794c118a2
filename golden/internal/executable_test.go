package golden_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	sizes "github.com/popefgen/popefgen/golden/internal/family/want"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/family"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// otherwise writes the model in a file with other metadata and another family, and the executable that it has.
func otherwise(t *testing.T, from string, edit func(meta *popef.Metadata, f *family.Family)) string {
	t.Helper()
	m, err := popef.Load(from)
	require.NoError(t, err)
	defer m.Close()
	f, err := family.Of(m)
	require.NoError(t, err)
	exe, err := m.Executable()
	require.NoError(t, err)
	meta := m.Metadata
	edit(&meta, f)
	path := filepath.Join(t.TempDir(), "family.popef")
	require.NoError(t, popef.WriteFile(path, func(w *popef.Writer) error {
		e, err := w.CreateExecutable(meta.Executable, false)
		require.NoError(t, err)
		_, err = e.Write(exe)
		require.NoError(t, errors.Join(err, e.Close()))
		for _, b := range m.Tensors() {
			data, err := b.Bytes()
			require.NoError(t, err)
			require.NoError(t, w.WriteTensor(b.Name, b.Info, data))
		}
		o, err := w.CreateOpaque(family.BlobName, meta.Executable)
		require.NoError(t, err)
		_, err = o.Write(f.Encode())
		require.NoError(t, errors.Join(err, o.Close()))
		return w.WriteMetadata(&meta)
	}))
	return path
}

// TestMemberThatTheExecutableLacks opens files whose last member is not in their executable: no session and no
// runner opens, although the other members could run.
func TestMemberThatTheExecutableLacks(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(meta *popef.Metadata, f *family.Family)
		want string
	}{
		{"a program", func(meta *popef.Metadata, f *family.Family) {
			meta.ProgramFlow.Main[2], f.Members[2].Program = 77, 77
			for i := 7; i < 10; i++ {
				meta.Anchors[i].Programs[0] = 77
			}
		}, `the executable has no program 77`},
		{"a stream", func(meta *popef.Metadata, _ *family.Family) { meta.Anchors[9].Handle = "elsewhere" },
			`the executable has no stream "elsewhere" in program 11, of anchor "y"`},
		{"a stream of its own", func(meta *popef.Metadata, _ *family.Family) {
			meta.Anchors[8].Handle, meta.Anchors[5].Handle = meta.Anchors[5].Handle, meta.Anchors[8].Handle
		}, `the executable has no stream "h2d_mask#11" in program 10, of anchor "mask"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := otherwise(t, write(t, "family", nil)[0], c.edit)
			for _, opts := range [][]rt.RunnerOption{{rt.WithModelFile(path)}, {rt.WithModelFile(path), rt.WithObserver(func(rt.Event) {}), rt.WithReplicas(2)}} {
				_, err := sizes.Open(ctx, opts...)
				require.ErrorIs(t, err, family.ErrFamily)
				require.ErrorContains(t, err, "family.popef: ")
				require.ErrorContains(t, err, c.want+"; metadata and executable are of different compilations: compile the model again")
			}
			_, err := modelrt.OpenSession(ctx, []string{path})
			require.ErrorIs(t, err, family.ErrFamily)
			require.ErrorContains(t, err, c.want)
		})
	}
	path := otherwise(t, write(t, "family", nil)[0], func(*popef.Metadata, *family.Family) {})
	s, err := modelrt.OpenSession(ctx, []string{path})
	require.NoError(t, err)
	require.NoError(t, s.Close())
}

// TestSessionOfSeveralSizes has a session of a model of several sizes: it has no run and no queues, and runs a
// size by its program, or by a session for it alone.
func TestSessionOfSeveralSizes(t *testing.T) {
	m, err := popef.Load(write(t, "family", nil)...)
	require.NoError(t, err)
	defer m.Close()
	f, err := family.Of(m)
	require.NoError(t, err)
	s, err := modelrt.NewSession(ctx, m)
	require.NoError(t, err)
	defer s.Close()
	const member = 1
	buffers := map[string]*modelrt.Buffer{}
	connect := func(s rt.Session) {
		for i := range f.Tensors {
			info, ok := s.Stream(m.Metadata.Anchors[f.Tensors[i].Anchors[member]].Handle)
			require.True(t, ok)
			b, err := modelrt.NewBuffer(info, 1)
			require.NoError(t, err)
			require.NoError(t, s.Connect(ctx, info.Handle, b))
			buffers[f.Tensors[i].Name] = b
		}
	}
	connect(s)
	err = s.Run(ctx)
	require.ErrorIs(t, err, rt.ErrSeveralSizes)
	require.EqualError(t, err, "family.popef: run: the model has several sizes, and a run is of one: it has batch=1 seq=4 (program 5); batch=2 seq=4 (program 10); "+
		"batch=2 seq=8 (program 11); RunPrograms runs the program of one, after Load, and family.Family.Single gives a model of one")
	_, err = modelrt.NewQueueManager(ctx, s, modelrt.QueueConfig{})
	require.ErrorIs(t, err, rt.ErrSeveralSizes)

	ran := func(run func() error) {
		t.Helper()
		for i := range buffers["x"].Bytes() {
			buffers["x"].Bytes()[i] = 0
		}
		copy(buffers["x"].Bytes(), []byte{0, 0, 0x80, 0x3f})    // 1
		copy(buffers["mask"].Bytes(), []byte{0, 0, 0x80, 0x3f}) // 1
		require.NoError(t, run())
		require.Equal(t, []byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0x40}, buffers["y"].Bytes()[:8]) // the first row of w: 1, 2
		require.Len(t, buffers["y"].Bytes(), 2*4*2*4)
	}
	require.NoError(t, s.Load(ctx))
	ran(func() error { return s.RunPrograms(ctx, int(f.Members[member].Program)) })

	one, err := modelrt.NewSession(ctx, f.Single(m, member))
	require.NoError(t, err)
	defer one.Close()
	connect(one)
	ran(func() error { return one.Run(ctx) })
	_, err = modelrt.NewQueueManager(ctx, one, modelrt.QueueConfig{})
	require.NoError(t, err)

	r, err := sizes.Open(ctx) // which chooses, and whose session does not
	require.NoError(t, err)
	defer r.Close()
	require.ErrorIs(t, r.Session().Run(ctx), rt.ErrSeveralSizes)
	require.NoError(t, r.Run(ctx, sizes.NewInputs(1, 4), sizes.NewOutputs()))
}
