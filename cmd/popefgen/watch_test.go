package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// log is a buffer that is written and read at the same time.
type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// waitFor waits until what was printed contains text.
func (l *log) waitFor(t *testing.T, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(l.String(), text) }, 20*time.Second, 5*time.Millisecond,
		"%q is not in what was printed", text)
}

func TestWatch(t *testing.T) {
	dir := t.TempDir()
	model, onnx := filepath.Join(dir, "m.popef"), filepath.Join("..", "..", "generated_examples", "digits", "digits.onnx")
	compile := func(to, batch string) {
		t.Helper()
		var errOut bytes.Buffer
		require.Zero(t, Run(context.Background(), []string{"compile", onnx, "-o", to, "--batch", batch, "-q"}, nil, &bytes.Buffer{}, &errOut), errOut.String())
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var out, errOut log
	ended := make(chan int)
	go func() {
		ended <- Run(ctx, []string{"watch", "-m", model, "-o", filepath.Join(dir, "reader"), "--interval", "10ms"}, nil, &out, &errOut)
	}()

	errOut.waitFor(t, "watching 1 file")
	compile(model, "1") // the file may come later
	errOut.waitFor(t, "reader: wrote contract.txt, reader.go")
	require.Empty(t, out.String(), "there was nothing to compare with")

	compile(filepath.Join(dir, "new.popef"), "2")
	require.NoError(t, os.Rename(filepath.Join(dir, "new.popef"), model))
	out.waitFor(t, "breaking: 2 breaking")

	// What is being written is left alone until it is whole; trouble is reported
	// and does not end anything.
	data, err := os.ReadFile(model)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(model, data[:len(data)/2], 0o666))
	errOut.waitFor(t, "m.popef@0x")
	require.NoError(t, os.WriteFile(model, data, 0o666))
	out.waitFor(t, "identical: no change")
	errOut.waitFor(t, "reader: nothing changed")

	stop()
	require.Zero(t, <-ended)
}

// TestWatchProject edits the list of packages while it is watched.
func TestWatchProject(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, projectFile)
	data, err := os.ReadFile(filepath.Join("..", "..", "generated_examples", "digits", "digits.onnx"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "digits.onnx"), data, 0o666))
	write := func(text string) {
		t.Helper()
		// As an editor does it: another file takes its place.
		require.NoError(t, os.WriteFile(config+"~", []byte(text), 0o666))
		require.NoError(t, os.Rename(config+"~", config))
	}
	write("models:\n- {model: digits.onnx, output: one, batch: 1}\n")
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var out, errOut log
	ended := make(chan int)
	go func() {
		ended <- Run(ctx, []string{"watch", "--config", config, "--interval", "10ms"}, nil, &out, &errOut)
	}()
	errOut.waitFor(t, "watching 2 files")
	errOut.waitFor(t, "one: wrote ")

	write("models:\n- {model: digits.onnx, output: one, batch: 1}\n- {model: digits.onnx, output: two, batch: 2}\n")
	errOut.waitFor(t, projectFile+" has changed: watching 2 files")
	errOut.waitFor(t, "two: wrote ")
	require.NotContains(t, errOut.String(), "nothing changed", "the first package is as it was")

	write("models:\n- {model: digits.onnx, output: one, batch: 4}\n- {model: digits.onnx, output: two, bacth: 2}\n")
	errOut.waitFor(t, `unknown field "bacth"`)
	require.Empty(t, out.String())
	write("models:\n- {model: digits.onnx, output: one, batch: 4}\n- {model: digits.onnx, output: two, batch: 2}\n")
	out.waitFor(t, "breaking: 2 breaking")

	stop()
	require.Zero(t, <-ended)
}
