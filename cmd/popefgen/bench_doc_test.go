package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/bench"
)

// TestBenchDoc wants docs/bench.md to show every field of the JSON that bench
// prints, and no other.
func TestBenchDoc(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "bench.md"))
	require.NoError(t, err)
	_, example, ok := strings.Cut(string(doc), "```json\n")
	require.True(t, ok)
	example, _, ok = strings.Cut(example, "```")
	require.True(t, ok)

	var r bench.Report
	d := json.NewDecoder(strings.NewReader(example))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&r))
	var printed bytes.Buffer
	require.NoError(t, json.NewEncoder(&printed).Encode(r))
	require.Empty(t, cmp.Diff(fields(t, printed.Bytes()), fields(t, []byte(example))))
}

// fields returns the paths of all fields of a JSON document.
func fields(t *testing.T, text []byte) map[string]bool {
	var doc any
	require.NoError(t, json.Unmarshal(text, &doc))
	all := map[string]bool{}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, child := range v {
				walk(path+"."+name, child)
			}
		case []any:
			for i, child := range v {
				walk(fmt.Sprintf("%s[%d]", path, i), child)
			}
		default:
			all[path] = true
		}
	}
	walk("", doc)
	return all
}
