package rt

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// featureLine is the line of a test's comment that says which feature it shows.
var featureLine = regexp.MustCompile(`(?m)^Feature (\d+)\.$`)

// testFunctions returns the names of all test, example and benchmark functions
// of the module, with the number of the feature that each shows, or 0.
func testFunctions(t *testing.T) map[string]int {
	t.Helper()
	names := map[string]int{}
	is := regexp.MustCompile(`^(Test|Example|Benchmark|Fuzz)`)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != ".." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && is.MatchString(f.Name.Name) {
				if names[f.Name.Name] == 0 {
					names[f.Name.Name] = 0
				}
				if m := featureLine.FindStringSubmatch(f.Doc.Text()); m != nil {
					if names[f.Name.Name], err = strconv.Atoi(m[1]); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
	require.NoError(t, err)
	return names
}

// tableRows returns the rows of the tables of a section of docs/runtime.md that
// begin with a number, by number: the tests that the last cell names.
func tableRows(t *testing.T, section string) map[int][]string {
	t.Helper()
	rows := map[int][]string{}
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		number, err := strconv.Atoi(strings.TrimSpace(cells[0]))
		if !strings.HasPrefix(line, "|") || err != nil {
			continue
		}
		require.NotContains(t, rows, number, "row %d stands there twice", number)
		for name := range strings.SplitSeq(cells[len(cells)-1], ",") {
			rows[number] = append(rows[number], strings.TrimSpace(name))
		}
	}
	return rows
}

// TestRuntimeDoc keeps docs/runtime.md and the tests together: every feature
// and every weakness has tests that exist, and every feature test its row.
func TestRuntimeDoc(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "runtime.md"))
	require.NoError(t, err)
	functions := testFunctions(t)
	sections := map[string]string{}
	for section := range strings.SplitSeq(string(text), "\n## ") {
		title, body, _ := strings.Cut(section, "\n")
		sections[title] = body
	}
	check := func(rows map[int][]string) {
		t.Helper()
		for _, n := range slices.Sorted(maps.Keys(rows)) {
			for _, name := range rows[n] {
				if _, ok := functions[name]; !ok {
					t.Errorf("row %d names %s, which is no test", n, name)
				}
			}
		}
	}
	numbers := func(from, to int, more ...int) (all []int) {
		for i := from; i <= to; i++ {
			all = append(all, i)
		}
		return append(all, more...)
	}

	var features strings.Builder
	for _, title := range []string{"Devices", "Session", "Callbacks", "Queues", "Runner", "PopART"} {
		require.Contains(t, sections, title)
		features.WriteString(sections[title])
	}
	rows := tableRows(t, features.String())
	require.Equal(t, numbers(1, 93, 103, 104, 106, 107, 108, 109, 111, 112, 113, 114, 116, 117, 118, 121, 122, 123, 124), slices.Sorted(maps.Keys(rows)))
	check(rows)
	shown := map[int]bool{}
	for name, feature := range functions {
		if feature > 0 && !slices.Contains(rows[feature], name) {
			t.Errorf("%s is not in row %d", name, feature)
		}
		shown[feature] = true
	}
	for n := range rows {
		require.True(t, shown[n], "row %d has no test of its own: a test whose comment ends with the line Feature %[1]d", n)
	}

	weaknesses := tableRows(t, sections["What Model Runtime leaves to its users"])
	require.Equal(t, numbers(1, 20), slices.Sorted(maps.Keys(weaknesses)))
	check(weaknesses)

	decisions := tableRows(t, sections["Where the sources contradict each other"])
	require.Equal(t, numbers(1, 13), slices.Sorted(maps.Keys(decisions)))
	check(decisions)
}

// TestDocumentsNameTests: every test that a document names exists.
func TestDocumentsNameTests(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join("..", "docs", "*.md"))
	require.NoError(t, err)
	functions, seen := testFunctions(t), 0
	for _, path := range append(paths, filepath.Join("..", "README.md"), filepath.Join("..", "CONTRIBUTING.md")) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, name := range regexp.MustCompile(`\b(?:Test|Example|Benchmark|Fuzz)[A-Z][A-Za-z0-9]*(?:_\w+)?`).FindAllString(string(text), -1) {
			seen++
			if _, ok := functions[name]; !ok && !strings.Contains(string(text), "func "+name+"(") { // the reader's own
				t.Errorf("%s names %s, which is no test", path, name)
			}
		}
	}
	require.Greater(t, seen, 300)
}
