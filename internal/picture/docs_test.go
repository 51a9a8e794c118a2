package main

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGlossaryPlaces: every place that the glossary names is there. One may be
// given from the folder of the place before it.
func TestGlossaryPlaces(t *testing.T) {
	text, err := os.ReadFile(root + "/docs/glossary.md")
	require.NoError(t, err)
	_, table, ok := strings.Cut(string(text), "## Where things are")
	require.True(t, ok)
	before, found := ".", 0
	for _, m := range regexp.MustCompile("`([a-z0-9_*/]+(?:\\.(?:go|s)|/[a-z0-9_*]+))`").FindAllStringSubmatch(table, -1) {
		there := false
		for dir := before; !there; dir = path.Dir(dir) {
			names, err := filepath.Glob(path.Join(root, dir, m[1]))
			require.NoError(t, err)
			if there = len(names) > 0; there {
				before, found = path.Join(dir, m[1]), found+1
				if path.Ext(before) != "" {
					before = path.Dir(before)
				}
			} else if dir == "." {
				break
			}
		}
		require.True(t, there || strings.Contains(m[1], "arm64"), "docs/glossary.md: there is no %s", m[1])
	}
	require.Greater(t, found, 20)
}
