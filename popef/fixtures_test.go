package popef_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/popeftest"
)

// checkModel compares a model with the fixture that it was written from.
func checkModel(t *testing.T, f *popeftest.Fixture, m *popef.Model) {
	t.Helper()
	if d := cmp.Diff(f.Metadata, m.Metadata); d != "" {
		t.Errorf("metadata (-written +read):\n%s", d)
	}
	exe, err := m.Executable()
	require.NoError(t, err)
	require.Equal(t, popeftest.Executable(), exe)
	require.Len(t, m.Tensors(), len(f.Tensors))
	for i, want := range f.Tensors {
		b := m.Tensors()[i]
		require.Equal(t, want.Name, b.Name)
		require.True(t, want.Info.Equal(b.Info), "%v", b.Info)
		got, ok := m.TensorData(want.Name)
		require.True(t, ok)
		require.Equal(t, want.Data, got)
	}
	require.Empty(t, m.Warnings())
}

func TestFixtures(t *testing.T) {
	// From the tables of the models: blobs of the files, bytes of tensor data.
	want := map[string]struct {
		blobs int
		bytes []int
	}{
		"A": {5, []int{512, 32}},
		"B": {7, []int{18816, 4096000, 2000}},
		"C": {3, nil},
		"D": {9, []int{96, 16, 4, 4, 8, 565248}},
	}
	for _, f := range popeftest.All() {
		t.Run(f.Name, func(t *testing.T) {
			w := want[f.Name]
			var bytes []int
			for _, x := range f.Tensors {
				bytes = append(bytes, len(x.Data))
			}
			require.Equal(t, w.bytes, bytes)

			whole, err := f.Bytes()
			require.NoError(t, err)
			m, err := popef.LoadBytes("whole", whole)
			require.NoError(t, err)
			checkModel(t, f, m)

			paths, err := f.WriteDir(t.TempDir())
			require.NoError(t, err)
			files, err := popef.Load(paths...)
			require.NoError(t, err)
			defer files.Close()
			checkModel(t, f, files)
			require.Equal(t, paths, files.Files())

			r := popef.NewReader()
			require.NoError(t, r.AddBytes("whole", whole))
			require.Len(t, r.Blobs(), w.blobs)
			for _, b := range r.Blobs() {
				if b.Offset%8 == 0 && (b.Kind == popef.ExecutableBlob || b.Kind == popef.TensorBlob) {
					require.Zero(t, b.PayloadOffset%popef.Alignment, "blob %d", b.Index)
				}
			}
		})
	}
}

func TestFixturesAreWrittenTheSameTwice(t *testing.T) {
	for _, f := range popeftest.All() {
		a, err := f.Bytes()
		require.NoError(t, err)
		b, err := f.Bytes()
		require.NoError(t, err)
		require.Equal(t, a, b)
	}
}
