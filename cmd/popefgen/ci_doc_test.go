package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"
)

// TestCIDoc reads the workflows of docs/ci.md as what they are, and looks up
// every command of popefgen in them, with its flags.
func TestCIDoc(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "ci.md"))
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllSubmatch(text, -1)
	require.Len(t, blocks, 4)
	for _, b := range blocks {
		var v map[string]any
		require.NoError(t, yaml.Unmarshal(b[1], &v), "%s", b[1])
	}
	path := filepath.Join(t.TempDir(), projectFile)
	require.NoError(t, os.WriteFile(path, blocks[0][1], 0o666))
	jobs, err := readProject(path)
	require.NoError(t, err)
	require.Len(t, jobs, 2)

	app := newApp(nil, nil, nil)
	lines := regexp.MustCompile(`go tool popefgen ([a-z]+)(.*)`).FindAllStringSubmatch(string(text), -1)
	require.Greater(t, len(lines), 5)
	for _, m := range lines {
		c := app.Command(m[1])
		require.NotNil(t, c, m[0])
		known := map[string]bool{}
		for _, f := range c.Flags {
			for _, n := range f.Names() {
				known["-"+n], known["--"+n] = true, true
			}
		}
		for word := range strings.FieldsSeq(m[2]) {
			if strings.HasPrefix(word, "-") {
				require.True(t, known[word], "%s: %s", m[0], word)
			}
		}
	}
}
