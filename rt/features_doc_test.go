package rt

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// features is the number of rows of the inventory.
const features = 124

// TestFeatures keeps docs/features.md: every row of the inventory stands there once;
// one of Model Runtime's points to its section of docs/runtime.md,
// with its tests; every other one that claims something names tests that exist.
func TestFeatures(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join("..", "docs", name))
		require.NoError(t, err)
		return string(text)
	}
	sections := map[int]string{} // of docs/runtime.md, by row
	for section := range strings.SplitSeq(read("runtime.md"), "\n## ") {
		title, body, _ := strings.Cut(section, "\n")
		if slices.Contains([]string{"Devices", "Session", "Callbacks", "Queues", "Runner", "PopART"}, title) {
			for n := range tableRows(t, body) {
				sections[n] = strings.ToLower(title)
			}
		}
	}
	functions := testFunctions(t)
	seen := map[int]bool{}
	link := regexp.MustCompile(`^\[\w+\]\(runtime\.md#(\w+)\)$`)
	for line := range strings.Lines(read("features.md")) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		n, err := strconv.Atoi(cells[0])
		if !strings.HasPrefix(line, "|") || err != nil {
			continue
		}
		require.Len(t, cells, 5, line)
		require.False(t, seen[n], "row %d stands there twice", n)
		seen[n] = true
		state, where, tests := cells[2], cells[3], cells[4]
		m := link.FindStringSubmatch(where)
		switch {
		case m != nil:
			require.Equal(t, "here", state, "row %d", n)
			require.Equal(t, sections[n], m[1], "row %d is in another section of docs/runtime.md, or none", n)
			require.Equal(t, "there", tests, "row %d", n)
		case sections[n] != "":
			t.Errorf("row %d is in docs/runtime.md: let it point there", n)
		case state == "not built":
			require.Equal(t, "–", tests, "row %d is not built and has tests", n)
		default:
			require.Contains(t, []string{"here", "partly", "otherwise"}, state, "row %d", n)
			for name := range strings.SplitSeq(tests, ", ") {
				_, ok := functions[name]
				require.True(t, ok, "row %d names %s, which is no test", n, name)
			}
		}
	}
	for n := 1; n <= features; n++ {
		require.True(t, seen[n], "row %d is missing", n)
	}
	require.Len(t, seen, features)
	for name, n := range functions {
		require.LessOrEqual(t, n, features, "%s says that it shows a feature that is no row of docs/features.md", name)
	}
}
