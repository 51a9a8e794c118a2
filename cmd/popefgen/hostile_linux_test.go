package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/popefgen/popefgen/onnx"
)

// What a command may take for a hostile file: address space, which Go reserves
// some 1.6 GiB of when it starts, memory at its peak, and processor time. What is
// to be noticed would take hours: the time is more than ten times what any takes on
// a fast processor, since slow and busy ones count several times as much.
const (
	hostileSpace  = 2200 << 20
	hostileMemory = 512 << 20
	hostileTime   = 20 * time.Second
)

// hostileShare is how long one file may take before commands run in one way only;
// POPEFGEN_HOSTILE=all (make hostile) runs all of them in all ways.
const hostileShare = time.Second

// hostileRun is what a command did with a hostile file.
type hostileRun struct {
	Args []string
	Exit int
	CPU  time.Duration
	Said string // on standard error
	Done bool   // false where it begins
}

// TestHostileCases runs every command that reads models on files that are made to
// exhaust memory or time, in a process of its own for each file that is short of
// memory. Each is refused with a message, or ends in time.
func TestHostileCases(t *testing.T) {
	if list := os.Getenv("POPEFGEN_HOSTILE_COMMANDS"); list != "" {
		hostileChild(t, list)
		return
	}
	t.Parallel() // what each process may take is its own
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
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".hostile")
		t.Run(name, func(t *testing.T) {
			b, err := os.ReadFile(file)
			require.NoError(t, err)
			dir := t.TempDir()
			require.NoError(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600)) // what ext_fifo refers to
			commands := hostileCommands(t, dir, name, b)
			runs := hostileRuns(t, exe, dir, commands)
			if os.Getenv("POPEFGEN_HOSTILE") == "all" {
				require.Len(t, runs, len(commands))
			}
		})
	}
}

// hostileCommands returns every command that takes a model, for one whose file
// has bytes b, which it writes to dir with data of the model's inputs.
func hostileCommands(t *testing.T, dir, name string, b []byte) [][]string {
	at := func(elem ...string) string { return filepath.Join(append([]string{dir}, elem...)...) }
	write := func(name string, b []byte) {
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o777))
		require.NoError(t, os.WriteFile(name, b, 0o666))
	}
	model := at(name)
	write(model, b)
	commands := [][]string{
		{"inspect", model}, {"inspect", "--json", model}, {"inspect", "--plan", model}, {"inspect", "--dot", model},
		{"inspect", "--svg", at("model.svg"), model}, {"inspect", "--html", at("model.html"), model}, {"inspect", "--html", at("both.html"), "--against", model, model},
		{"run", "--random", "1", model}, {"run", "--memory", "64MiB", "--random", "1", model}, {"run", "--threads", "1", "--engine-option", "layout=off", "--random", "1", model},
		{"diff", model, model}, {"diff", "--markdown", "--html", at("diff.html"), model, model},
		{"generate", "-m", model, "-o", at("package")}, {"generate", "-m", model, "-o", at("embedded"), "--embed"}, {"check", "-m", model, "-o", at("package")},
		{"golden", "record", model, "-o", at("recorded"), "--random", "1"}, {"golden", "verify", model, at("recorded")},
		{"bench", "--duration", "20ms", model}, {"bench", "--duration", "20ms", "--mode", "all", "--profile", "--json", model},
	}
	write(at("project", "popefgen.yaml"), fmt.Appendf(nil, "models:\n  - model: %q\n    output: project\n", model))
	commands = append(commands, []string{"generate", "--config", at("project", "popefgen.yaml")}, []string{"check", "--config", at("project", "popefgen.yaml")})
	commands = append(commands, []string{"extract", model, "-o", at("extracted.onnx")}, []string{"extract", model, "-o", at("extracted.popef"), "--checkpoint", model})
	if !strings.HasSuffix(name, ".onnx") {
		return commands
	}
	commands = append(commands, []string{"compile", model, "-o", at("out.popef")}, []string{"compile", "--constants", "--compress", model, "-o", at("small.popef")},
		[]string{"compile", "--train", model, "-o", at("train.popef")}, []string{"compile", "--train", "--loss", "mse", "--init", "1", "--recompute", "all", "--batch-statistics", "--dropout", model, "-o", at("learn.popef")},
		[]string{"inspect", "--constants", model}, []string{"run", "--constants", "--random", "1", model})
	// A data set that fits the inputs as far as they are small, with an output that
	// no model gives.
	write(at("case", "model.onnx"), b)
	if m, err := onnx.Decode(b, dir); err == nil {
		for i, in := range m.Graph.Inputs {
			tensor := &onnx.Tensor{Elem: in.Elem}
			n := int64(in.Elem.DType().Size())
			for _, d := range in.Dims {
				tensor.Dims = append(tensor.Dims, max(1, min(d.Value, 1<<10)))
				n *= tensor.Dims[len(tensor.Dims)-1]
			}
			tensor.Data = make([]byte, n)
			write(at("case", "test_data_set_0", fmt.Sprintf("input_%d.pb", i)), protoOf(in.Name, tensor))
		}
		for i, out := range m.Graph.Outputs {
			write(at("case", "test_data_set_0", fmt.Sprintf("output_%d.pb", i)), protoOf(out.Name, &onnx.Tensor{Elem: onnx.Float, Dims: []int64{1}, Data: make([]byte, 4)}))
		}
	}
	return append(commands, []string{"verify", at("case")}, []string{"verify", "--recursive", "--noise", "2", "--json", dir},
		[]string{"golden", "import", model, at("case", "test_data_set_0"), "-o", at("imported")})
}

// hostileRuns runs commands on a file in a process with limits, and wants each to end in time and, if it fails,
// with words.
func hostileRuns(t *testing.T, exe, dir string, commands [][]string) []hostileRun {
	runs, usage := hostileParent(t, exe, dir, commands)
	for _, r := range runs {
		what := strings.ReplaceAll(strings.Join(r.Args, " "), dir, "")
		require.True(t, r.Done, "%s: it ended the process", what)
		for _, bad := range []string{"goroutine ", "panic"} {
			require.NotContains(t, r.Said, bad, what)
		}
		if r.Exit != exitOK {
			require.NotEmpty(t, r.Said, "%s failed without a word", what)
		}
		require.Less(t, r.CPU, hostileTime, "%s: of the processor: %s", what, r.Said)
	}
	require.Greater(t, len(runs), 7)
	require.Less(t, usage.Maxrss<<10, int64(hostileMemory), "bytes at its peak")
	return runs
}

// hostileParent runs commands in a process with limits.
func hostileParent(t *testing.T, exe, dir string, commands [][]string) (runs []hostileRun, usage *syscall.Rusage) {
	list, err := json.Marshal(commands)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "commands.json"), list, 0o666))
	ctx, cancel := context.WithTimeout(t.Context(), 9*time.Minute) // others want the processor too; what counts is what it used
	defer cancel()
	shell := fmt.Sprintf(`ulimit -v %d && exec "$0" -test.run '^TestHostileCases$'`, hostileSpace>>10)
	c := exec.CommandContext(ctx, "sh", "-c", shell, exe)
	c.Env = append(os.Environ(), "POPEFGEN_HOSTILE_COMMANDS="+filepath.Join(dir, "commands.json"))
	var out, errOut bytes.Buffer
	c.Stdout, c.Stderr = &out, &errOut
	err = c.Run()
	text := errOut.String()
	for lines := bufio.NewScanner(&out); lines.Scan(); {
		var r hostileRun
		if json.Unmarshal(lines.Bytes(), &r) != nil || r.Args == nil {
			continue
		}
		if n := len(runs); r.Done && n > 0 {
			runs[n-1] = r
		} else {
			runs = append(runs, r)
		}
	}
	last := ""
	if len(runs) > 0 {
		last = strings.Join(runs[len(runs)-1].Args, " ")
	}
	require.NoError(t, err, "after %s: %s", last, text[:min(len(text), 2000)])
	return runs, c.ProcessState.SysUsage().(*syscall.Rusage)
}

// hostileChild runs the commands that a file lists, one after the other, and
// prints a [hostileRun] before and after each.
func hostileChild(t *testing.T, list string) {
	b, err := os.ReadFile(list)
	require.NoError(t, err)
	var commands [][]string
	require.NoError(t, json.Unmarshal(b, &commands))
	used := func() time.Duration {
		var u syscall.Rusage
		require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	print := json.NewEncoder(os.Stdout)
	kinds, start := map[string]bool{}, used()
	for _, args := range commands {
		kind := args[0]
		if kind == "golden" || args[1] == "--train" {
			kind += " " + args[1]
		}
		if kinds[kind] && used()-start > hostileShare && os.Getenv("POPEFGEN_HOSTILE") != "all" {
			continue
		}
		kinds[kind] = true
		require.NoError(t, print.Encode(hostileRun{Args: args}))
		var out, errOut bytes.Buffer
		before := used()
		exit := Run(context.Background(), args, strings.NewReader(""), &out, &errOut)
		require.NoError(t, print.Encode(hostileRun{Args: args, Exit: exit, CPU: used() - before, Said: errOut.String() + out.String()[:min(out.Len(), 100)], Done: true}))
		debug.FreeOSMemory() // what the next one takes is its own
	}
}
