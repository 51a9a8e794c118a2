package words

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

// spaces joins the lines of comments: what divides two words of one sentence.
var spaces = regexp.MustCompile(`\s*\n\s*(//|\*|#|\|)?\s*|\s+`)

// plain returns text as one line in lower case.
func plain(text string) string { return strings.ToLower(spaces.ReplaceAllString(text, " ")) }

// sources calls f for every Go file, template and document of the repository
// but those that say how things were.
func sources(t *testing.T, f func(path, text string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name := d.Name()
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "build"):
			return filepath.SkipDir
		case d.IsDir(), name == "CHANGELOG.md", name == "private_test.go":
			return nil
		}
		switch filepath.Ext(name) {
		case ".go", ".md", ".tmpl", ".gotmpl":
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			f(path, string(text))
		}
		return nil
	})
	require.NoError(t, err)
}

// TestGlossaryIsInTheCode: a word of the glossary stands in the files that its row
// names, so that a search for the usual name of a thing finds it.
func TestGlossaryIsInTheCode(t *testing.T) {
	all := map[string]string{}
	sources(t, func(path, text string) {
		if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") || strings.Contains(path, "nearmiss") {
			all[filepath.ToSlash(path)] = plain(strings.ReplaceAll(text, "-", " "))
		}
	})
	text, err := os.ReadFile(filepath.Join(root, "docs", "glossary.md"))
	require.NoError(t, err)
	words, _, ok := strings.Cut(string(text), "## Where things are")
	require.True(t, ok)

	rows := regexp.MustCompile(`(?m)^\| (.+?) \| (.+) \| (.+) \|$`).FindAllStringSubmatch(words, -1)
	require.Greater(t, len(rows), 50)
	place := regexp.MustCompile("`([a-z0-9_/]+\\.go)`")
	inBrackets := regexp.MustCompile(`\s*\(.*?\)`)
	for _, row := range rows {
		if row[1] == "word" {
			continue
		}
		var there string
		for _, m := range place.FindAllStringSubmatch(row[3], -1) {
			found := false
			for path, text := range all {
				if strings.HasSuffix(path, "/"+m[1]) {
					there, found = there+" "+text, true
				}
			}
			require.True(t, found, "%s: there is no %s", row[1], m[1])
		}
		require.NotEmpty(t, there, "%s: no file", row[1])
		for word := range strings.SplitSeq(inBrackets.ReplaceAllString(row[1], ""), ", ") {
			if word := plain(strings.ReplaceAll(word, "-", " ")); !strings.Contains(there, word) {
				t.Errorf("%s does not say %q", row[3], word)
			}
		}
	}
}
