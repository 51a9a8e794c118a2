package golden_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/internal/golden"
)

// TestReadRefuses reads and writes descriptions with a mistake each.
func TestReadRefuses(t *testing.T) {
	_, err := golden.Read("nowhere.yaml")
	require.ErrorIs(t, err, fs.ErrNotExist)
	for text, names := range map[string]string{
		"file: m.popef\ncolour: red\n":                                                             "colour",
		"file: m.popef\nanchors: [{name: x, type: F32, dir: sideways}]":                            "want in, out or unknown",
		"file: m.popef\nanchors: [{name: x, type: f32, dir: in}]":                                  "unknown data type",
		"file: m.popef\nexecutable: {name: m}\nanchors: [{name: x, type: F8, dir: in, data: [1]}]": "can only be zeros",
		"file: m.popef\nanchors: [{name: x, type: F32, dir: in, data: ones}]":                      "word zeros",
		"file: m.popef\nengine_options: [debug]":                                                   "name=value",
		"file: m.popef\nmain: [1]\nexecutable: {name: m, compute: {1: [y = relu(x)]}}":             "no tensor",
	} {
		path := filepath.Join(t.TempDir(), "model.yaml")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		m, err := golden.Read(path)
		if err == nil {
			_, err = m.Write(t.TempDir())
		}
		require.ErrorContains(t, err, names)
	}
}
