package serve

import (
	"bufio"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPackageDoc builds the two programs of docs/serving.md, "From a package", and runs them: the client prints what stands
// there, and the server ends as it should.
func TestPackageDoc(t *testing.T) {
	if testing.Short() || runtime.GOOS == "windows" {
		t.Skip("builds programs, and ends one with a signal")
	}
	text, err := os.ReadFile("../docs/serving.md")
	require.NoError(t, err)
	_, section, ok := strings.Cut(string(text), "\n## From a package\n")
	require.True(t, ok)
	section, _, _ = strings.Cut(section, "\n## ")
	programs := regexp.MustCompile("(?s)```go\n(package main.*?)```").FindAllStringSubmatch(section, -1)
	require.Len(t, programs, 2)
	want := regexp.MustCompile("(?s)```\n(it is.*?)```").FindStringSubmatch(section)
	require.Len(t, want, 2)

	l, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	root, err := os.MkdirTemp(".", "_doc-") // in the module, for its packages, where "./..." passes it by
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(root)) })
	var built []string
	for i, name := range []string{"server", "client"} {
		dir := filepath.Join(root, name)
		require.NoError(t, os.Mkdir(dir, 0o755))
		source := strings.ReplaceAll(programs[i][1], "localhost:8000", address)
		require.NotEqual(t, programs[i][1], source)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o644))
		out, err := exec.Command("go", "vet", "./"+dir).CombinedOutput()
		require.NoError(t, err, "%s", out)
		built = append(built, filepath.Join(t.TempDir(), name))
		out, err = exec.Command("go", "build", "-o", built[i], "./"+dir).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}

	server := exec.Command(built[0])
	said, err := server.StdoutPipe()
	require.NoError(t, err)
	server.Stderr = os.Stderr
	require.NoError(t, server.Start())
	defer func() { _ = server.Process.Kill() }()
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}, 20*time.Second, 10*time.Millisecond)
	out, err := exec.Command(built[1]).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, want[1], string(out))
	require.NoError(t, server.Process.Signal(syscall.SIGTERM))
	last, err := io.ReadAll(bufio.NewReader(said))
	require.NoError(t, err)
	require.NoError(t, server.Wait())
	require.Equal(t, "drained\n", string(last))
}
