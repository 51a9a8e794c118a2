package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPublicPackages: go list ./... shows what users may import, which are the packages
// of the table in docs/architecture.md, and nothing else but commands, examples,
// tests and internal packages.
func TestPublicPackages(t *testing.T) {
	text, err := os.ReadFile(root + "/docs/architecture.md")
	require.NoError(t, err)
	_, table, ok := strings.Cut(string(text), "## What users may import")
	require.True(t, ok)
	table, _, _ = strings.Cut(table, "\n## ")
	said := map[string]bool{} // whether it is there
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z0-9_/]+)` \\| (.*) \\|$").FindAllStringSubmatch(table, -1) {
		require.NotContains(t, said, m[1], "twice")
		require.NotEmpty(t, strings.TrimSpace(m[2]), "docs/architecture.md does not say what %s is for", m[1])
		said[m[1]] = false
	}
	require.Greater(t, len(said), 10)

	list := exec.Command("go", "list", "-f", "{{.ImportPath}} {{.Name}} {{len .GoFiles}}", "./...")
	list.Dir = root
	out, err := list.Output()
	require.NoError(t, err)
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		p := strings.TrimPrefix(fields[0], module+"/")
		_, public := said[p]
		switch {
		case fields[1] == "main", fields[2] == "0", strings.HasPrefix(p, "generated_examples/"), pkg{path: p}.internal():
			require.False(t, public, "docs/architecture.md says that users may import %s, which they can't or should not", p)
		case public:
			said[p] = true
		default:
			t.Errorf("anybody can import %s: move it below an internal folder, or say in docs/architecture.md, \"What users may import\", what it is for", p)
		}
	}
	for p, there := range said {
		require.True(t, there, "docs/architecture.md says that users may import %s, which is not there", p)
	}
}
