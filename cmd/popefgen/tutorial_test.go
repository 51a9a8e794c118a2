package main

import (
	"bufio"
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
// the memory of a plan, and the last digits of what is computed.
var varying = regexp.MustCompile(`(?m)[0-9]+ KiB working memory|\b[0-9.]+(ms|µs|s)\b|\(cached\)|at most .* rows$|[0-9]+ of 50 elements|in case .*:$|^    [-+] [0-9.e-]+$`)

// offline is what Go says where modules are neither in the cache nor to be had.
var offline = regexp.MustCompile(`dial tcp|GOPROXY=off|connection refused|i/o timeout|no such host|Forbidden`)

// TestTutorial types the commands of docs/tutorial.md into an empty folder and
// wants the output that stands there.
func TestTutorial(t *testing.T) {
	if testing.Short() {
		t.Skip("the tutorial builds programs for seconds")
	}
	doc := filepath.Join("..", "..", "docs", "tutorial.md")
	text, err := os.ReadFile(doc)
	require.NoError(t, err)
	require.Equal(t, strings.Count(string(text), "\n```")/2, len(tutorialBlocks.FindAllString(string(text), -1)), "blocks that nobody types")
	got, commands := typed(t, string(text))
	require.Greater(t, commands, 25)
	if *updateDocs {
		require.NoError(t, os.WriteFile(doc, []byte(got), 0o666))
		return
	}
	require.Empty(t, tutorialDiff(string(text), got), "go test ./cmd/popefgen -run Tutorial -update-docs")
}

// TestTutorialNotices types tutorials with one line wrong.
func TestTutorialNotices(t *testing.T) {
	const right = "```console\n$ mkdir a\n$ cd a\n$ greet() { echo \"hello $1\"; }\n```\n\n`main.go`:\n\n```go\npackage main\n```\n\n```console\n" +
		"$ ls\nmain.go\n$ greet you\nhello you\n$ ls nowhere 2>/dev/null || echo none\nnone\n$ go mod init example.com/a 2>&1 | tail -1\ngo: to add module requirements and sums:\n```\n"
	text := strings.Replace(right, "go: to add module requirements and sums:", "\tgo mod tidy", 1)
	got, commands := typed(t, text)
	require.Equal(t, 7, commands)
	require.Empty(t, tutorialDiff(text, got))
	for _, wrong := range [][2]string{
		{"hello you", "hello me"}, {"$ cd a\n", "$ cd .\n"}, {"main.go\n$", "main.go\nother.go\n$"}, {"$ greet you", "$ greets you"}, {"\nnone\n", "\n"},
	} {
		bad := strings.Replace(text, wrong[0], wrong[1], 1)
		require.NotEqual(t, text, bad)
		got, _ := typed(t, bad)
		require.NotEmpty(t, tutorialDiff(bad, got), wrong[0])
	}
}

// TestFiveMinutes types the commands of the README's first minutes. Nothing can
// be fetched from where the repository will be: this checkout, where it is (so
// that what was built of it serves), stands for the clone.
func TestFiveMinutes(t *testing.T) {
	if testing.Short() {
		t.Skip("the first minutes build programs for seconds")
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(text), "\n## Five minutes\n")
	require.True(t, ok)
	m := regexp.MustCompile("(?s)\n```sh\n(.*?)```").FindStringSubmatch(rest)
	require.NotNil(t, m)
	const clone = "git clone https://github.com/popefgen/popefgen ../popefgen"
	require.Contains(t, m[1], clone)
	s := newShell(t)
	require.Empty(t, s.run("mkdir service && cd service && go mod init example.com/service 2>/dev/null"))
	for line := range strings.Lines(strings.ReplaceAll(strings.Replace(m[1], clone+"\n", "", 1), "../popefgen", "$POPEFGEN")) {
		said := s.run(strings.TrimSpace(line) + " || echo FAILED")
		if strings.Contains(line, "go mod tidy") && offline.MatchString(said) {
			t.Skipf("go mod tidy can't fetch modules here: %s", said)
		}
		require.NotContains(t, said, "FAILED", line)
	}
	require.Regexp(t, `^ok `, s.run("go test ./..."))
	const modules = "go list -deps -f '{{with .Module}}{{.Path}}{{end}}' ./digits | grep -v example.com | sort -u"
	require.Equal(t, s.run(modules), s.run("go mod edit -print | sed -n 's/^\\t*\\(require \\)*\\([^ ]*\\) v[0-9].*/\\2/p' | sort"), "go.mod has what the package links")
	require.Equal(t, "6\n", s.run("grep -c indirect go.mod"), "as the README says")
	require.Equal(t, "20\n", s.run("grep indirect tools.mod | grep -vc popefgen/popefgen"), "as the README says")
}

// tutorialDiff compares a tutorial with what typing it gave.
func tutorialDiff(want, got string) string {
	plain := func(s string) string { return varying.ReplaceAllString(s, "TIME") }
	return cmp.Diff(plain(want), plain(got))
}

// typed types the commands of a tutorial into one shell, in an empty folder,
// and returns the tutorial with the output that came, and how many there were.
func typed(t *testing.T, text string) (got string, commands int) {
	t.Helper()
	s := newShell(t)
	got = tutorialBlocks.ReplaceAllStringFunc(text, func(block string) string {
		m := tutorialBlocks.FindStringSubmatch(block)
		if m[1] != "" {
			name := filepath.Join(strings.TrimSpace(s.run("pwd")), m[1])
			require.NoError(t, os.WriteFile(filepath.Join(s.dir, strings.TrimPrefix(name, "…")), []byte(m[2]), 0o666))
			return block
		}
		var b strings.Builder
		for line := range strings.SplitSeq(m[3], "\n") {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				commands++
				said := s.run(command)
				if strings.Contains(command, "go mod tidy") && offline.MatchString(said) {
					t.Skipf("go mod tidy can't fetch modules here: %s", said)
				}
				fmt.Fprintf(&b, "$ %s\n%s", command, said)
			}
		}
		return "```console\n" + b.String() + "```"
	})
	return got, commands
}

// shell is a shell in an empty folder, with POPEFGEN as the tutorial wants it.
type shell struct {
	t   *testing.T
	dir string
	in  *bufio.Writer
	out *bufio.Reader
}

func newShell(t *testing.T) *shell {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the tutorial is for a shell")
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	c := exec.Command("sh")
	c.Dir = dir
	c.Env = append(os.Environ(), "POPEFGEN="+root, "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com", "GIT_CONFIG_GLOBAL=/dev/null", "NO_COLOR=1", "GOFLAGS=")
	in, err := c.StdinPipe()
	require.NoError(t, err)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	c.Stderr = c.Stdout
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		in.Close()
		if err := c.Wait(); err != nil {
			t.Logf("the shell: %v", err)
		}
	})
	return &shell{t, dir, bufio.NewWriter(in), bufio.NewReader(out)}
}

// endOfCommand is what the shell prints after the output of each command.
const endOfCommand = "\x00end of the command\x00"

// run runs a command in the shell and returns what it prints, without the
// messages of Go about modules that it fetches.
func (s *shell) run(command string) string {
	s.t.Helper()
	fmt.Fprintf(s.in, "%s\nprintf '\\000end of the command\\000'\n", command)
	require.NoError(s.t, s.in.Flush())
	var b bytes.Buffer
	for !bytes.HasSuffix(b.Bytes(), []byte(endOfCommand)) {
		c, err := s.out.ReadByte()
		require.NoError(s.t, err, "%s: %s", command, b.String())
		b.WriteByte(c)
	}
	text := strings.TrimSuffix(b.String(), endOfCommand)
	var lines []string
	for line := range strings.Lines(strings.ReplaceAll(text, s.dir, "…")) {
		if !strings.HasPrefix(line, "go: downloading ") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}
