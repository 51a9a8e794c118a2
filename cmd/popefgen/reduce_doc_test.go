package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

// TestReduceDoc runs the example of docs/reduce.md.
func TestReduceDoc(t *testing.T) {
	doc := filepath.Join("..", "..", "docs", "reduce.md")
	text, err := os.ReadFile(doc)
	require.NoError(t, err)
	m := regexp.MustCompile("(?s)## An example.*?```sh\n(.*?)```\n\n```\n(.*?)```").FindSubmatchIndex(text)
	require.NotNil(t, m)
	digits, err := os.ReadFile(filepath.Join("..", "..", "generated_examples", "digits", "digits.onnx"))
	require.NoError(t, err)
	c := exec.CommandContext(t.Context(), "sh", "-e", "-c", string(text[m[2]:m[3]]))
	c.Dir = t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(c.Dir, "digits.onnx"), digits, 0o666))
	c.Stderr = os.Stderr
	got, err := c.Output()
	require.NoError(t, err)
	if *updateDocs {
		require.NoError(t, os.WriteFile(doc, append(append(append([]byte{}, text[:m[4]]...), got...), text[m[5]:]...), 0o666))
		return
	}
	require.Empty(t, cmp.Diff(string(text[m[4]:m[5]]), string(got)), "go test ./cmd/popefgen -run ReduceDoc -update-docs")
}
