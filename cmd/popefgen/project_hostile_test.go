package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestProjectBombs reads project files that are made to exhaust memory or time.
func TestProjectBombs(t *testing.T) {
	laughs := func(levels int, key string) string {
		var b strings.Builder
		b.WriteString("models:\n- model: m\n  output: o\n  " + key + ":\n    a0: &a0 [1, 2, 3, 4, 5, 6, 7, 8, 9]\n")
		for i := range levels {
			fmt.Fprintf(&b, "    a%d: &a%d [%s*a%d]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 8), i)
		}
		return b.String()
	}
	merges := func(levels int) string {
		var b strings.Builder
		b.WriteString("models:\n- model: m\n  output: o\n  bind:\n    a0: &a0 {x: 1}\n")
		for i := range levels {
			fmt.Fprintf(&b, "    a%d: &a%d {p: *a%d, q: *a%d}\n", i+1, i+1, i, i)
		}
		return b.String()
	}
	legal := "models:\n- {model: a, output: a, dim: &d {n: 1}}\n"
	for i := range 20 {
		legal += fmt.Sprintf("- {model: m, output: o%d, dim: *d}\n", i)
	}
	path := filepath.Join(t.TempDir(), projectFile)
	require.NoError(t, os.WriteFile(path, []byte(legal), 0o666))
	_, err := readProject(path)
	require.NotContains(t, fmt.Sprint(err), "alias")

	for name, text := range map[string]string{
		"a billion laughs":       laughs(9, "bind"),
		"laughs of another type": laughs(9, "dim"),
		"laughs nobody reads":    strings.Replace(laughs(9, "bind"), "bind", "nothing", 1),
		"maps in maps":           merges(40),
		"many of a large one":    "models:\n- model: m\n  output: o\n  bind:\n    a: &a [" + strings.Repeat("1, ", 10_000) + "1]\n    b: [" + strings.Repeat("*a, ", 10_000) + "1]\n",
		"an alias of itself":     "models:\n- model: m\n  output: o\n  bind: &a {x: *a}\n",
		"lists 100,000 deep":     "models: " + strings.Repeat("[", 100_000),
		"maps 100,000 deep":      "models: " + strings.Repeat("{a: ", 100_000),
		"a megabyte of dashes":   "models:\n" + strings.Repeat("- ", 1<<19),
		"a megabyte of one name": "models:\n- model: " + strings.Repeat("n", 1<<20) + "\n  output: o\n",
		"a million spaces":       "models:\n" + strings.Repeat(" ", 1<<20) + "- model: m\n",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), projectFile)
			require.NoError(t, os.WriteFile(path, []byte(text), 0o666))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := readProject(path)
			runtime.ReadMemStats(&after)
			if name != "a megabyte of one name" {
				require.Error(t, err)
				require.Less(t, len(err.Error()), 1<<12)
			}
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(256<<20))
		})
	}
}
