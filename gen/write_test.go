package gen

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/gen/emit"
)

// tree returns the files of a directory.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	out := map[string]string{}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		out[e.Name()] = string(data)
	}
	return out
}

func file(name, text string) File { return File{Name: name, Data: []byte(text)} }

const hand = "// Written by hand.\npackage m\n"

func TestWrite(t *testing.T) {
	a1, a2 := emit.Header+"\npackage m\n\n//go:embed m.popef\n", emit.Header+"\npackage m\n\n//go:embed m.popef\n// 2\n"
	for _, c := range []struct {
		name    string
		before  map[string]string
		files   []File
		changed []string
		after   map[string]string
		fails   error
	}{
		{
			name: "into nothing", files: []File{file("m.go", a1), file("m.popef", "model")},
			changed: []string{"m.go", "m.popef"}, after: map[string]string{"m.go": a1, "m.popef": "model"},
		},
		{
			name: "nothing changed", before: map[string]string{"m.go": a1, "m.popef": "model", "x.go": hand},
			files: []File{file("m.popef", "model"), file("m.go", a1)},
			after: map[string]string{"m.go": a1, "m.popef": "model", "x.go": hand},
		},
		{
			name: "only what differs", before: map[string]string{"m.go": a1, "m_contract.go": a1}, files: []File{file("m_contract.go", a2), file("m.go", a1)},
			changed: []string{"m_contract.go"}, after: map[string]string{"m.go": a1, "m_contract.go": a2},
		},
		{
			name: "orphans with our header go, others stay", before: map[string]string{
				"m_test.go": a1, "old.go": emit.Header + "\r\npackage m\r\n", "doc.go": hand, "late.go": "\n" + emit.Header, "notes.txt": emit.Header, "old.popef": "x"},
			files: []File{file("m.go", a1)}, changed: []string{"m.go", "m_test.go", "old.go"},
			after: map[string]string{"m.go": a1, "doc.go": hand, "late.go": "\n" + emit.Header, "notes.txt": emit.Header, "old.popef": "x"},
		},
		{
			name: "a foreign Go file in the way", before: map[string]string{"m.go": hand}, files: []File{file("a.go", a1), file("m.go", a1)},
			fails: ErrForeign, after: map[string]string{"m.go": hand},
		},
		{
			name: "a foreign contract.txt in the way", before: map[string]string{"contract.txt": "I, the undersigned\n"}, files: []File{file("contract.txt", "popefgen contract 1\n"), file("m.go", a1)},
			fails: ErrForeign, after: map[string]string{"contract.txt": "I, the undersigned\n"},
		},
		{
			name: "our contract.txt is replaced", before: map[string]string{"contract.txt": "popefgen contract 1\r\nold"}, files: []File{file("contract.txt", "popefgen contract 1\nnew")},
			changed: []string{"contract.txt"}, after: map[string]string{"contract.txt": "popefgen contract 1\nnew"},
		},
		{
			name: "a foreign model in the way", before: map[string]string{"m.popef": "trained for a year"}, files: []File{file("m.go", a1), file("m.popef", "model")},
			fails: ErrForeign, after: map[string]string{"m.popef": "trained for a year"},
		},
		{
			name: "an embedded model is replaced", before: map[string]string{"m.go": a1, "m.popef": "old"}, files: []File{file("m.go", a1), file("m.popef", "new")},
			changed: []string{"m.popef"}, after: map[string]string{"m.go": a1, "m.popef": "new"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "a", "b")
			if c.before != nil {
				require.NoError(t, os.MkdirAll(dir, 0o777))
			}
			for name, text := range c.before {
				require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
			}
			diff, err := Check(dir, c.files)
			require.NoError(t, err)
			require.Equal(t, c.changed == nil && c.fails == nil, diff == "", "diff: %s", diff)
			changed, err := Write(dir, c.files)
			require.ErrorIs(t, err, c.fails)
			require.Empty(t, cmp.Diff(c.changed, changed))
			require.Empty(t, cmp.Diff(c.after, tree(t, dir)))
			if c.fails == nil {
				diff, err = Check(dir, c.files)
				require.NoError(t, err)
				require.Empty(t, diff)
			}
		})
	}
}

func TestWriteRefusesNames(t *testing.T) {
	for _, name := range []string{"", ".", "..", "a/b.go", "../m.go", `a\b.go`, ".hidden.go"} {
		_, err := Write(t.TempDir(), []File{file(name, "x")})
		require.ErrorContains(t, err, "plain file name", "%q", name)
	}
	_, err := Write(t.TempDir(), []File{file("a.go", "x"), file("a.go", "y")})
	require.ErrorContains(t, err, "listed twice")
}

func TestWriteLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "m.popef"), 0o777))
	_, err := Write(dir, []File{file("a.go", emit.Header), file("m.popef", "model")})
	require.Error(t, err)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

// TestLineEnds takes text with the line ends of Windows for the same.
func TestLineEnds(t *testing.T) {
	dir := t.TempDir()
	files := []File{file("m.go", emit.Header+"\na\n"), file("contract.txt", "popefgen contract 1\nx\n"), file("m.popef", "a\nb")}
	_, err := Write(dir, files)
	require.NoError(t, err)
	for _, f := range files {
		data := strings.ReplaceAll(string(f.Data), "\n", "\r\n")
		require.NoError(t, os.WriteFile(filepath.Join(dir, f.Name), []byte(data), 0o644))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "n.go"), []byte(emit.Header+"\r\n//go:embed m.popef\r\n"), 0o644))
	files = append(files, file("n.go", emit.Header+"\n//go:embed m.popef\n"))
	changed, err := Write(dir, files)
	require.NoError(t, err)
	require.Equal(t, []string{"m.popef"}, changed, "bytes of a model are bytes")
}

func TestCheckDiff(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"m.go": emit.Header + "\na\nb\n", "m_test.go": emit.Header + "\nold\n", "m.popef": "old"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	diff, err := Check(dir, []File{file("m.go", emit.Header+"\na\nc\n"), file("n.go", emit.Header+"\n"), file("m.popef", "new")})
	require.NoError(t, err)
	d := filepath.ToSlash(dir)
	require.Equal(t, `--- `+d+`/m.go
+++ `+d+`/m.go
@@ -1,3 +1,3 @@
 `+emit.Header+`
 a
-b
+c
Binary files `+d+`/m.popef and `+d+`/m.popef differ
--- `+d+`/m_test.go
+++ `+os.DevNull+`
@@ -1,2 +0,0 @@
-`+emit.Header+`
-old
--- `+os.DevNull+`
+++ `+d+`/n.go
@@ -0,0 +1 @@
+`+emit.Header+`
`, diff)
}
