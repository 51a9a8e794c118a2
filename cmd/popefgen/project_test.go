package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/family"
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
			tag, _, _ := strings.Cut(typ.Field(i).Tag.Get("yaml"), ",")
			names = append(names, tag)
		}
		return slices.Sorted(slices.Values(names))
	}
	require.Empty(t, cmp.Diff(keys(project{}), slices.Sorted(maps.Keys(schema.Properties))))
	require.Empty(t, cmp.Diff(keys(projectModel{}), slices.Sorted(maps.Keys(schema.Properties["models"].Items.Properties))))
	for name, p := range schema.Properties["models"].Items.Properties {
		require.NotEmpty(t, p.Description, name)
	}
}

// TestProjectTypes gives values of other types than are wanted: the message
// names the place, the key, what was found and what is wanted.
func TestProjectTypes(t *testing.T) {
	for text, want := range map[string]string{
		"models: 3":                                 `[1:9] models: found "3", want a list`,
		"- x.onnx":                                  `[1:1] the file: found a list, want keys with values`,
		"models: [x.onnx]":                          `[1:10] models[0]: found "x.onnx", want keys with values`,
		"models:\n- model: {a: 1}":                  `[2:10] models[0].model: found keys with values, want a file or a list of files`,
		"models:\n- output: [a]":                    `[2:11] models[0].output: found a list, want text`,
		"models:\n- {output: a, embed: maybe}":      `[2:22] models[0].embed: found "maybe", want true or false`,
		"models:\n- rename: [a]":                    `[2:11] models[0].rename: found a list, want keys with values`,
		"models:\n- dim: {n: {a: 1}}":               `[2:12] models[0].dim.n: found keys with values, want text`,
		"models:\n- size: [{n: x}]":                 `[2:14] models[0].size[0].n: found "x", want a whole number`,
		"models:\n- batch: 99999999999999999999999": `[2:10] models[0].batch: found "99999999999999999999999", want a size, a list of sizes or text as for --batch`,
	} {
		path := filepath.Join(t.TempDir(), projectFile)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o666))
		_, err := readProject(path)
		require.ErrorContains(t, err, projectFile+": "+want+"\n")
		require.NotContains(t, err.Error(), "unmarshal")
	}
}

// FuzzProject gives the reader of project files any text.
func FuzzProject(f *testing.F) {
	f.Add([]byte("models:\n  - model: [a.onnx]\n    output: a\n    embed: true\n    bind: {x: x.npy}\n"))
	f.Add([]byte(" "))
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

// TestLargeEmbedded wants a word where a large model becomes part of programs.
func TestLargeEmbedded(t *testing.T) {
	digits, err := filepath.Abs(filepath.Join("..", "..", "generated_examples", "digits", "digits.onnx"))
	require.NoError(t, err)
	t.Chdir(t.TempDir())
	generate := func(args ...string) string {
		var out, errOut bytes.Buffer
		require.Zero(t, Run(t.Context(), append([]string{"generate", "-m", digits, "--batch", "1"}, args...), nil, &out, &errOut), errOut.String())
		return errOut.String()
	}
	require.NotContains(t, generate("-o", "small", "--embed"), "warning")
	defer func(n int) { largeEmbedded = n }(largeEmbedded)
	largeEmbedded = 100 << 10
	require.Regexp(t, `warning: large/digits.popef: embedding 15[0-9] KiB makes every build and every process hold it once more; without --embed`, generate("-o", "large", "--embed"))
	require.NotContains(t, generate("-o", "apart"), "warning")
}

// TestProjectMax bounds what data decides, as compile --max does.
func TestProjectMax(t *testing.T) {
	dir := t.TempDir()
	data, err := os.ReadFile(filepath.Join("testdata", "mistakes", "nonzero.onnx"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "m.onnx"), data, 0o666))
	for text, want := range map[string]string{
		"max: {NAME: 3}": "", "max: {NAME: 0}": "max: NAME: found 0, want at least 1", "max: {other: 3}": "--max other=3: no axis of a value of this name",
		"max: {NAME: x}": `models[0].max.NAME: found "x", want a whole number`,
	} {
		path := filepath.Join(dir, projectFile)
		text = "models:\n- {model: m.onnx, output: m, " + strings.ReplaceAll(text, "NAME", "y") + "}\n"
		require.NoError(t, os.WriteFile(path, []byte(text), 0o666))
		jobs, err := readProject(path)
		if err == nil {
			var r *rendered
			if r, err = jobs[0].render(); err == nil {
				m, err := popef.LoadBytes("m", r.popef)
				require.NoError(t, err)
				f, err := family.Of(m)
				require.NoError(t, err)
				require.Equal(t, int64(3), f.Tensors[1].Axes[1].Size)
				require.NoError(t, m.Close())
			}
		}
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, strings.ReplaceAll(want, "NAME", "y"))
	}
}
