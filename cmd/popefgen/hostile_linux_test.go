package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// What a command may take for a hostile file: address space, which Go reserves
// some 1.6 GiB of when it starts, memory at its peak, and processor time.
const (
	hostileSpace  = 2200 << 20
	hostileMemory = 512 << 20
	hostileTime   = 2 * time.Second
)

// TestHostileCases runs every command that reads models on files that are made to
// exhaust memory or time, in a process of its own that is short of memory. Each is
// refused with a message, or ends in time; or, where it computes for long, soon
// after it is interrupted.
func TestHostileCases(t *testing.T) {
	if os.Getenv("POPEFGEN_HOSTILE_ARGS") != "" {
		os.Args = append([]string{"popefgen"}, strings.Split(os.Getenv("POPEFGEN_HOSTILE_ARGS"), "\n")...)
		main()
	}
	data := os.Getenv("POPEFGEN_TESTDATA")
	if data == "" {
		data = filepath.Join("..", "..", "..", "shared")
	}
	files, err := filepath.Glob(filepath.Join(data, "cases", "hostile", "*.hostile"))
	require.NoError(t, err)
	if len(files) == 0 {
		t.Skipf("no hostile cases in %s (set POPEFGEN_TESTDATA)", data)
	}
	exe, err := os.Executable()
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600)) // what ext_fifo refers to
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".hostile")
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		model := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(model, b, 0o666))
		commands := [][]string{
			{"inspect", model}, {"inspect", "--plan", model}, {"run", "--random", "1", model}, {"diff", model, model},
			{"generate", "-m", model, "-o", filepath.Join(dir, "package")}, {"run", "--memory", "64MiB", "--random", "1", model},
		}
		if strings.HasSuffix(name, ".onnx") {
			commands = append(commands, []string{"compile", model, "-o", filepath.Join(dir, "out.popef")})
		}
		for _, args := range commands {
			what := strings.Join(append([]string{name}, args[:len(args)-1]...), " ")
			t.Run(strings.ReplaceAll(what, dir, ""), func(t *testing.T) { hostileRun(t, exe, args) })
		}
	}
}

// hostileRun runs the command in a process with limits.
func hostileRun(t *testing.T, exe string, args []string) {
	shell := fmt.Sprintf(`ulimit -v %d && exec "$0" -test.run '^TestHostileCases$'`, hostileSpace>>10)
	c := exec.Command("sh", "-c", shell, exe)
	c.Env = append(os.Environ(), "POPEFGEN_HOSTILE_ARGS="+strings.Join(args, "\n"))
	var said bytes.Buffer
	c.Stderr = &said
	require.NoError(t, c.Start())
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	var err error
	patience := 15 * hostileTime // others want the processor too; what counts is what it used
	if args[0] == "run" {
		patience = hostileTime // it may be computing, as it was told to
	}
	select {
	case err = <-ended:
	case <-time.After(patience):
		used := time.Now()
		require.NoError(t, c.Process.Signal(os.Interrupt))
		select {
		case err = <-ended:
			t.Logf("ended %v after it was interrupted", time.Since(used))
		case <-time.After(30 * time.Second):
			require.NoError(t, c.Process.Kill())
			t.Fatalf("still runs after it was interrupted")
		}
		require.Contains(t, []string{"run"}, args[0], "only a run may take long: %s", said.String())
	}
	text := said.String()
	for _, bad := range []string{"goroutine ", "fatal error", "panic:", "out of memory: cannot allocate"} {
		require.NotContains(t, text, bad, "%v", err)
	}
	if err != nil {
		require.NotEmpty(t, text, "it failed without a word: %v", err)
	}
	usage := c.ProcessState.SysUsage().(*syscall.Rusage)
	require.Less(t, usage.Maxrss<<10, int64(hostileMemory), "bytes at its peak: %s", text)
	if args[0] != "run" {
		require.Less(t, c.ProcessState.UserTime()+c.ProcessState.SystemTime(), hostileTime, "of the processor: %s", text)
	}
}
