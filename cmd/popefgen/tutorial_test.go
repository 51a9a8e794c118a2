package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

// tutorialBlocks are the commands of a tutorial with their output, and the
// files that it tells to write.
var tutorialBlocks = regexp.MustCompile("(?ms)^(?:`([a-z_./]+)`:\n\n```(?:go|json)\n(.*?)^```$|```console\n(.*?)^```$)")

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
	t.Parallel()
	doc := filepath.Join("..", "..", "docs", "tutorial.md")
	text, err := os.ReadFile(doc)
	require.NoError(t, err)
	require.Equal(t, strings.Count(string(text), "\n```")/2, len(tutorialBlocks.FindAllString(string(text), -1)), "blocks that nobody types")
	got, commands := typed(t, string(text), nil)
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
	got, commands := typed(t, text, nil)
	require.Equal(t, 7, commands)
	require.Empty(t, tutorialDiff(text, got))
	for _, wrong := range [][2]string{
		{"hello you", "hello me"}, {"$ cd a\n", "$ cd .\n"}, {"main.go\n$", "main.go\nother.go\n$"}, {"$ greet you", "$ greets you"}, {"\nnone\n", "\n"},
	} {
		bad := strings.Replace(text, wrong[0], wrong[1], 1)
		require.NotEqual(t, text, bad)
		got, _ := typed(t, bad, nil)
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

// TestServingTutorial types the commands of docs/serving.md, "From ONNX to a
// server", with addresses that are free here.
func TestServingTutorial(t *testing.T) {
	if testing.Short() {
		t.Skip("the tutorial builds programs for seconds")
	}
	doc := readSection(t, "serving.md", "From ONNX to a server")

	address, grpc := freeAddress(t), freeAddress(t)
	t.Setenv("POPEFGEN_SERVE_HTTP", address)
	t.Setenv("POPEFGEN_SERVE_GRPC", grpc)
	_, noCurl := exec.LookPath("curl")
	without := func(command string) bool {
		if noCurl == nil || !strings.Contains(command, "curl ") {
			return false
		}
		t.Logf("not typed, without curl: %s", command)
		require.Eventually(t, func() bool { // what curl waits for
			c, err := net.Dial("tcp", address)
			if err == nil {
				_ = c.Close()
			}
			return err == nil
		}, 20*time.Second, 10*time.Millisecond)
		return true
	}
	const documented = "localhost:8000"
	got, commands := typed(t, strings.ReplaceAll(doc.text, documented, address), without)
	got = strings.ReplaceAll(got, address, documented)
	require.Greater(t, commands, 20)
	doc.compare(t, got)
}

// TestTrainingTutorial types the commands of docs/training.md, "From an ONNX model to one that has learnt".
func TestTrainingTutorial(t *testing.T) {
	if testing.Short() {
		t.Skip("the tutorial builds programs for seconds")
	}
	doc := readSection(t, "training.md", "From an ONNX model to one that has learnt")
	got, commands := typed(t, doc.text, nil)
	require.Greater(t, commands, 14)
	doc.compare(t, got)
}

// section is a part of a document whose commands are typed.
type section struct {
	path          string
	before, after string
	text          string
}

// readSection reads the section of that heading of a document in docs.
func readSection(t *testing.T, name, heading string) section {
	t.Helper()
	path := filepath.Join("..", "..", "docs", name)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(text), "\n## "+heading+"\n")
	require.True(t, ok)
	within, after, ok := strings.Cut(rest, "\n## ")
	require.True(t, ok)
	require.Equal(t, strings.Count(within, "\n```")/2, len(tutorialBlocks.FindAllString(within, -1)), "blocks that nobody types")
	return section{path, before + "\n## " + heading + "\n", "\n## " + after, within}
}

// compare wants the section to be what typing it gave, or makes it so.
func (s section) compare(t *testing.T, got string) {
	t.Helper()
	if *updateDocs {
		require.NoError(t, os.WriteFile(s.path, []byte(s.before+got+s.after), 0o666))
		return
	}
	require.Empty(t, tutorialDiff(s.text, got), "go test ./cmd/popefgen -run %s -update-docs", t.Name())
}

// freeAddress returns an address of this machine where nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	defer l.Close()
	return fmt.Sprintf("localhost:%d", l.Addr().(*net.TCPAddr).Port)
}

// typed types the commands of a tutorial into one shell, in an empty folder,
// and returns the tutorial with the output that came, and how many there were.
// Commands of which skip is true are not typed, and keep their output.
func typed(t *testing.T, text string, skip func(command string) bool) (got string, commands int) {
	t.Helper()
	s := newShell(t)
	got = tutorialBlocks.ReplaceAllStringFunc(text, func(block string) string {
		m := tutorialBlocks.FindStringSubmatch(block)
		if m[1] != "" {
			name := filepath.Join(strings.TrimSpace(s.run("pwd")), m[1])
			name = filepath.Join(s.dir, strings.TrimPrefix(name, "…"))
			require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o777))
			require.NoError(t, os.WriteFile(name, []byte(m[2]), 0o666))
			return block
		}
		var b strings.Builder
		skipped := false
		for line := range strings.Lines(m[3]) {
			if command, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "$ "); ok {
				commands++
				if skipped = skip != nil && skip(command); skipped {
					b.WriteString(line)
					continue
				}
				said := s.run(command)
				if strings.Contains(command, "go mod tidy") && offline.MatchString(said) {
					t.Skipf("go mod tidy can't fetch modules here: %s", said)
				}
				fmt.Fprintf(&b, "$ %s\n%s", command, said)
			} else if skipped {
				b.WriteString(line)
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
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com", "GIT_CONFIG_GLOBAL=/dev/null", "NO_COLOR=1", "GOFLAGS=-ldflags=-w") // nobody debugs what is built
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
	s := &shell{t, dir, bufio.NewWriter(in), bufio.NewReader(out)}
	s.run("trap 'kill $! 2>/dev/null' EXIT") // a server that a test which failed has left
	return s
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
