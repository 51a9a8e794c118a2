package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSameAnswers compiles the program for this machine, for js/wasm and for
// wasip1/wasm, and wants the same lines of all: of the machine's plain Go, of
// node, and of wazero. What runs none of them here is named. Compiling takes
// minutes, so `make cross-test` sets POPEFGEN_CROSS for it.
func TestSameAnswers(t *testing.T) {
	if os.Getenv("POPEFGEN_CROSS") == "" {
		t.Skip("part of make cross-test (POPEFGEN_CROSS=1)")
	}
	model, err := filepath.Abs("../../digits/classifier/digits.popef")
	require.NoError(t, err)
	dir := t.TempDir()
	answers := func(t *testing.T, goos, goarch string, command ...string) []string {
		program := filepath.Join(dir, "answers."+goos)
		build := exec.Command("go", "build", "-o", program, ".")
		build.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0", "GOAMD64=v1")
		out, err := build.CombinedOutput()
		require.NoError(t, err, "%s", out)
		args := append(command, program, model, t.TempDir())
		run := exec.Command(args[0], args[1:]...)
		run.Env = append(os.Environ(), "POPEFGEN_CPU=go")
		var stdout, stderr bytes.Buffer
		run.Stdout, run.Stderr = &stdout, &stderr
		require.NoError(t, run.Run(), "%s", &stderr)
		return strings.Split(strings.TrimSpace(stdout.String()), "\n")
	}
	want := answers(t, runtime.GOOS, runtime.GOARCH)
	for _, model := range []string{"digits ", "file ", "tickets ", "words ", "diabetes ", "numbers ", "training "} {
		require.True(t, strings.Contains("\n"+strings.Join(want, "\n"), "\n"+model), "no answer of %q", model)
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	require.NoError(t, err)
	same := func(t *testing.T, got []string) {
		require.Len(t, got, len(want), "answers")
		differ := 0
		for i := range want {
			if got[i] != want[i] {
				if differ++; differ <= 5 {
					t.Errorf("got  %s\nwant %s", got[i], want[i])
				}
			}
		}
		if differ > 5 {
			t.Errorf("%d of %d answers differ", differ, len(want))
		}
	}
	t.Run("js", func(t *testing.T) {
		if _, err := exec.LookPath("node"); err != nil {
			t.Skip("no node here")
		}
		same(t, answers(t, "js", "wasm", filepath.Join(strings.TrimSpace(string(root)), "lib/wasm/go_js_wasm_exec")))
	})
	t.Run("wasip1", func(t *testing.T) {
		wazero := os.Getenv("POPEFGEN_WAZERO")
		if wazero == "" {
			t.Skip("no wazero: POPEFGEN_WAZERO has no path of its command")
		}
		cache := filepath.Join(filepath.Dir(wazero), "wazero-cache") // compiling the module takes wazero longer than running it
		same(t, answers(t, "wasip1", "wasm", wazero, "run", "-mount", "/:/", "-cachedir", cache))
	})
}
