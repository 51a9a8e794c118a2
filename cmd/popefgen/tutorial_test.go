package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

// tutorialBlocks are the commands of the tutorial with their output, and the
// files that it tells to write.
var tutorialBlocks = regexp.MustCompile("(?ms)^(?:`([a-z_.]+)`:\n\n```go\n(.*?)^```$|```console\n(.*?)^```$)")

// varying is what runs on different machines need not have in common: times,
// and the last digits of what is computed.
var varying = regexp.MustCompile(`(?m)\b[0-9.]+(ms|µs|s)\b|\(cached\)|at most .* rows$|[0-9]+ of 50 elements|in case .*:$|^    [-+] [0-9.e-]+$`)

// TestTutorial types the commands of docs/tutorial.md into a scratch module
// and wants the output that stands there.
func TestTutorial(t *testing.T) {
	if testing.Short() {
		t.Skip("the tutorial builds programs for seconds")
	}
	if runtime.GOOS == "windows" {
		t.Skip("the tutorial is for a shell")
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	doc := filepath.Join(root, "docs", "tutorial.md")
	text, err := os.ReadFile(doc)
	require.NoError(t, err)

	dir := scratchModule(t, root, "example.com/reader")
	for from, to := range map[string]string{
		"generated_examples/digits/digits.onnx": "digits.onnx", "docs/tutorial/retrained.onnx": "retrained.onnx", "docs/tutorial/eleven.onnx": "eleven.onnx",
	} {
		data, err := os.ReadFile(filepath.Join(root, from))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, to), data, 0o666))
	}
	shell := func(line string) string {
		c := exec.Command("sh", "-c", line)
		c.Dir = dir
		c.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com",
			"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com", "GIT_CONFIG_GLOBAL=/dev/null", "NO_COLOR=1")
		out, _ := c.CombinedOutput() // some commands are to fail; what they print says so
		return string(bytes.ReplaceAll(out, []byte(dir), []byte("…")))
	}
	require.Empty(t, shell("git init -q"))

	commands := 0
	got := tutorialBlocks.ReplaceAllStringFunc(string(text), func(block string) string {
		m := tutorialBlocks.FindStringSubmatch(block)
		if m[1] != "" {
			require.NoError(t, os.WriteFile(filepath.Join(dir, m[1]), []byte(m[2]), 0o666))
			return block
		}
		var b strings.Builder
		for line := range strings.SplitSeq(m[3], "\n") {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				commands++
				fmt.Fprintf(&b, "$ %s\n%s", command, shell(command))
			}
		}
		return "```console\n" + b.String() + "```"
	})
	require.Greater(t, commands, 15)
	if *updateDocs {
		require.NoError(t, os.WriteFile(doc, []byte(got), 0o666))
		return
	}
	plain := func(s string) string { return varying.ReplaceAllString(s, "TIME") }
	require.Empty(t, cmp.Diff(plain(string(text)), plain(got)), "go test ./cmd/popefgen -run Tutorial -update-docs")
}

// scratchModule returns the folder of a new module that has this one, as it
// is here, as a dependency and as its tool.
func scratchModule(t *testing.T, root, name string) string {
	t.Helper()
	dir := t.TempDir()
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	mod = regexp.MustCompile(`(?s)\ntool \(.*?\n\)\n`).ReplaceAll(mod, nil)
	mod = bytes.Replace(mod, []byte("module github.com/popefgen/popefgen\n"), []byte("module "+name+"\n"), 1)
	mod = fmt.Appendf(mod, "\ntool github.com/popefgen/popefgen/cmd/popefgen\n\nrequire github.com/popefgen/popefgen v0.0.0\n\nreplace github.com/popefgen/popefgen => %s\n", root)
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), mod, 0o666))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.sum"), sum, 0o666))
	return dir
}
