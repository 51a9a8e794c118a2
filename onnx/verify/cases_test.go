package verify

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFind(t *testing.T) {
	root := t.TempDir()
	for _, d := range []string{"all/a/test_data_set_10", "all/a/test_data_set_2", "all/[b]*/c/test_data_set_0", "all/empty"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, d), 0o777))
	}
	for _, d := range []string{"all/a", "all/[b]*/c", "all/empty"} {
		require.NoError(t, os.WriteFile(filepath.Join(root, d, modelFile), nil, 0o666))
	}
	require.NoError(t, os.Symlink(filepath.Join(root, "all"), filepath.Join(root, "link")))
	at := func(p ...string) string { return filepath.Join(append([]string{root, "link"}, p...)...) }
	want := []Case{
		{Dir: at("[b]*", "c"), Sets: []string{at("[b]*", "c", "test_data_set_0")}},
		{Dir: at("a"), Sets: []string{at("a", "test_data_set_2"), at("a", "test_data_set_10")}},
	}
	got, err := Find([]string{at()}, true)
	require.NoError(t, err)
	require.Equal(t, want, got)
	got, err = Find([]string{at("a")}, false)
	require.NoError(t, err)
	require.Equal(t, want[1:], got)

	_, err = Find([]string{at()}, false)
	require.ErrorContains(t, err, "no model.onnx in it")
	_, err = Find([]string{at("empty")}, false)
	require.ErrorContains(t, err, "there is no data beside model.onnx: want folders test_data_set_N")
	_, err = Find([]string{at("empty")}, true)
	require.ErrorContains(t, err, "no folder in it")
	_, err = Find([]string{at("gone")}, true)
	require.ErrorContains(t, err, "gone")
}
