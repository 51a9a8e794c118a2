package rt_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestExamplesDoc compares docs/examples.md with the examples: each stands
// there, and each that stands there exists and is run.
func TestExamplesDoc(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "docs", "examples.md"))
	require.NoError(t, err)
	listed := map[string]bool{}
	for _, name := range regexp.MustCompile("`(Example\\w*)`").FindAllStringSubmatch(string(doc), -1) {
		listed[name[1]] = true
	}
	var files []string
	for _, pattern := range []string{"example_*_test.go", "*/example_*_test.go"} {
		some, err := filepath.Glob(pattern)
		require.NoError(t, err)
		files = append(files, some...)
	}
	found := map[string]bool{}
	for _, path := range files {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?ms)^func (Example\w*)\(\) \{.*?^\}`).FindAllStringSubmatch(string(text), -1) {
			found[m[1]] = true
			require.Contains(t, m[0], "// Output:", "%s is not run", m[1])
		}
	}
	require.NotEmpty(t, found)
	require.Equal(t, found, listed)
}
