package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

// TestProjectSchema compares the keys that editors offer with those that are
// read.
func TestProjectSchema(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "popefgen.schema.json"))
	require.NoError(t, err)
	var schema struct {
		Properties map[string]struct {
			Items struct {
				Properties map[string]struct{ Description string }
			}
		}
	}
	require.NoError(t, json.Unmarshal(data, &schema))
	keys := func(v any) (names []string) {
		typ := reflect.TypeOf(v)
		for i := range typ.NumField() {
			names = append(names, typ.Field(i).Tag.Get("yaml"))
		}
		return slices.Sorted(slices.Values(names))
	}
	require.Empty(t, cmp.Diff(keys(project{}), slices.Sorted(maps.Keys(schema.Properties))))
	require.Empty(t, cmp.Diff(keys(projectModel{}), slices.Sorted(maps.Keys(schema.Properties["models"].Items.Properties))))
	for name, p := range schema.Properties["models"].Items.Properties {
		require.NotEmpty(t, p.Description, name)
	}
}

// FuzzProject gives the reader of project files any text.
func FuzzProject(f *testing.F) {
	f.Add([]byte("models:\n  - model: [a.onnx]\n    output: a\n    embed: true\n    bind: {x: x.npy}\n"))
	f.Add([]byte("models: [{model: m.popef, output: a, rename: {b: C}, queue: 0}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), projectFile)
		require.NoError(t, os.WriteFile(path, data, 0o666))
		jobs, err := readProject(path)
		if err != nil {
			require.ErrorContains(t, err, projectFile)
			return
		}
		for _, j := range jobs {
			require.NotEmpty(t, j.models)
			require.NotEmpty(t, j.dir)
		}
	})
}
