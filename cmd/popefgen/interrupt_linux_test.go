package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// manyNodes is a chain of n operators on a vector.
func manyNodes(n int) []byte {
	value := func(name string) proto {
		shape := proto{}.message(1, proto{}.number(1, 8))
		return proto{}.text(1, name).message(2, proto{}.message(1, proto{}.number(1, 1).message(2, shape)))
	}
	var g proto
	for i := range n {
		op := []string{"Sin", "Tanh", "Exp", "Neg"}[i%4]
		g = g.message(1, proto{}.text(1, fmt.Sprint("t", i)).text(2, fmt.Sprint("t", i+1)).text(4, op))
	}
	g = g.text(2, "g").message(11, value("t0")).message(12, value(fmt.Sprint("t", n)))
	return proto{}.number(1, 8).message(7, g).message(8, proto{}.number(2, 17))
}

// TestInterrupts ends commands over a large model with SIGINT at random moments:
// each ends, soon, and leaves no half of what it was to write.
func TestInterrupts(t *testing.T) {
	if args := os.Getenv("POPEFGEN_INTERRUPT_ARGS"); args != "" {
		os.Args = append([]string{"popefgen"}, strings.Split(args, "\n")...)
		main()
	}
	exe, err := os.Executable()
	require.NoError(t, err)
	dir := t.TempDir()
	at := func(elem ...string) string { return filepath.Join(append([]string{dir}, elem...)...) }
	model := at("model.onnx")
	require.NoError(t, os.MkdirAll(at("case", "test_data_set_0"), 0o777))
	for _, name := range []string{model, at("case", "model.onnx")} {
		require.NoError(t, os.WriteFile(name, manyNodes(30_000), 0o666))
	}
	input := proto{}.number(1, 8).number(2, 1).text(8, "t0").message(9, make(proto, 32))
	require.NoError(t, os.WriteFile(at("case", "test_data_set_0", "input_0.pb"), input, 0o666))
	for _, args := range [][]string{
		{"compile", model, "-o", at("out.popef")}, {"inspect", "--html", at("model.html"), model}, {"run", "--random", "1", model},
		{"generate", "-m", model, "-o", at("package")}, {"verify", at("case")}, {"diff", model, model}, {"golden", "record", model, "--random", "1", "-o", at("golden")},
		{"reduce", model, "-o", at("small.onnx")}, {"reduce", model, "--check", "sleep 0.1 #", "-o", at("small.onnx")},
	} {
		c := exec.Command(exe, "-test.run", "^TestInterrupts$")
		c.Env = append(os.Environ(), "POPEFGEN_INTERRUPT_ARGS="+strings.Join(args, "\n"), "TMPDIR="+dir)
		var said bytes.Buffer
		c.Stderr = &said
		require.NoError(t, c.Start())
		ended := make(chan error, 1)
		go func() { ended <- c.Wait() }()
		moment := 100*time.Millisecond + rand.N(400*time.Millisecond)
		select {
		case err := <-ended:
			t.Logf("%s: done after less than %v: %v", args[0], moment, err)
		case <-time.After(moment):
			start := time.Now()
			require.NoError(t, c.Process.Signal(os.Interrupt))
			select {
			case err := <-ended:
				t.Logf("%s: ended %v after SIGINT at %v: %v", args[0], time.Since(start).Round(time.Millisecond), moment, err)
			case <-time.After(time.Minute): // others want the processor too
				require.NoError(t, c.Process.Kill())
				t.Fatalf("%s still runs a minute after it was interrupted", args[0])
			}
		}
		require.NotContains(t, said.String(), "goroutine ", args[0])
	}
	for _, name := range []string{"out.popef", "package/model.popef"} {
		if _, err := os.Stat(at(name)); err != nil {
			continue // it was not written
		}
		var out, errOut bytes.Buffer
		require.Zero(t, Run(t.Context(), []string{"inspect", at(name)}, nil, &out, &errOut), "%s is a half: %s", name, errOut.String())
	}
	for _, name := range []string{"small", "small.onnx"} { // there is no result before the search ends
		require.NoFileExists(t, at(name))
		require.NoDirExists(t, at(name))
	}
}
