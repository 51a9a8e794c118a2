package popef_test

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/popeftest"
)

// TestChanged writes over each file of a model, and replaces each by a rename.
func TestChanged(t *testing.T) {
	at := slices.IndexFunc(popeftest.All(), func(f *popeftest.Fixture) bool { return len(f.Files) > 1 })
	require.GreaterOrEqual(t, at, 0, "a model of several files")
	for name, c := range map[string]struct {
		change  func(path string) error
		changed bool
	}{
		"another time": {func(path string) error { return os.Chtimes(path, time.Time{}, time.Unix(1, 0)) }, true},
		"another size": {func(path string) error {
			st, err := os.Stat(path)
			if err == nil {
				err = os.Truncate(path, st.Size()+1)
			}
			if err == nil {
				err = os.Chtimes(path, time.Time{}, st.ModTime())
			}
			return err
		}, true},
		"renamed over": {func(path string) error {
			if err := os.WriteFile(path+".new", []byte("new"), 0o600); err != nil {
				return err
			}
			return os.Rename(path+".new", path)
		}, false},
		"removed": {os.Remove, false},
	} {
		t.Run(name, func(t *testing.T) {
			for i := 0; ; i++ {
				paths, err := popeftest.All()[at].WriteDir(t.TempDir())
				require.NoError(t, err)
				if i == len(paths) {
					return
				}
				m, err := popef.Load(paths...)
				require.NoError(t, err)
				require.NoError(t, m.CheckUnchanged())
				require.NoError(t, c.change(paths[i]))
				if err := m.CheckUnchanged(); c.changed {
					require.ErrorIs(t, err, popef.ErrChanged)
					require.ErrorContains(t, err, paths[i])
				} else {
					require.NoError(t, err)
				}
				require.NoError(t, m.Close())
			}
		})
	}
}
