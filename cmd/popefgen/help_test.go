package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"

	"github.com/popefgen/popefgen/internal/npy"
	"github.com/popefgen/popefgen/popef"
)

// helpExamples finds the commands in the examples of a usage text.
var helpExamples = regexp.MustCompile(`(?m)^(?:example:|        ).*?\bpopefgen ([^>)\n]*)`)

// TestHelpExamples types every example of every command's help.
func TestHelpExamples(t *testing.T) {
	digits, err := filepath.Abs(filepath.Join("..", "..", "generated_examples", "digits", "digits.onnx"))
	require.NoError(t, err)
	model, err := os.ReadFile(digits)
	require.NoError(t, err)
	base := t.TempDir()
	require.NoError(t, writeVerifyCase(filepath.Join(base, "shared", "data", "onnx-node-tests", "test_abs"), "1", "Abs"))
	dir := filepath.Join(base, "project")
	require.NoError(t, os.Mkdir(dir, 0o777))
	t.Chdir(dir)
	require.NoError(t, os.WriteFile("digits.onnx", model, 0o666))
	for name, shape := range map[string][]int64{"scan.npy": {1, 1, 8, 8}, "scans.npy": {3, 1, 1, 8, 8}} {
		info := popef.TensorInfo{DataType: popef.F32, Shape: shape}
		size, err := info.SizeInBytes()
		require.NoError(t, err)
		var b bytes.Buffer
		require.NoError(t, npy.Write(&b, info, make([]byte, size)))
		require.NoError(t, os.WriteFile(name, b.Bytes(), 0o666))
	}
	run := func(line string) (code int, errOut string) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		if strings.HasPrefix(line, "watch ") {
			stop()
		}
		if strings.HasPrefix(line, "bench ") {
			line += " --duration 20ms"
		}
		var b bytes.Buffer
		code = Run(ctx, strings.Fields(line), strings.NewReader(""), io.Discard, &b)
		return code, b.String()
	}
	for _, line := range []string{
		"compile digits.onnx -o old.popef --batch 1 -q", "compile digits.onnx -o new.popef --batch 1 -q", "compile digits.onnx -o digits.popef --batch 1 -q",
		"generate -m digits.popef -o digits --embed",
	} {
		code, errOut := run(line)
		require.Zero(t, code, errOut)
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "."}, {"-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "-m", "all"}} {
		out, err := exec.Command("git", args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}

	var visit func(commands []*cli.Command, prefix string)
	visit = func(commands []*cli.Command, prefix string) {
		for _, c := range commands {
			if c.Name == "help" {
				continue
			}
			if len(c.Subcommands) > 0 && c.Name == "golden" {
				visit(c.Subcommands, prefix+c.Name+" ")
				continue
			}
			found := helpExamples.FindAllStringSubmatch(c.UsageText, -1)
			require.NotEmpty(t, found, "%s%s has no example", prefix, c.Name)
			for _, m := range found {
				require.True(t, strings.HasPrefix(m[1], prefix+c.Name), "%s is no example of %s%s", m[1], prefix, c.Name)
				code, errOut := run(strings.TrimSpace(m[1]))
				require.NotEqual(t, exitTrouble, code, "popefgen %s\n%s", m[1], errOut)
			}
		}
	}
	visit(newApp(nil, io.Discard, io.Discard).Commands, "")
}
