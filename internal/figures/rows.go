package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// row is one line of the table.
type row struct {
	what    string
	command string // what a reader types to see it
	measure func(context.Context, *machine) (string, error)
}

// rows are the lines of the table, in their order.
var rows = []row{
	{"held-out digits read rightly, through the generated runner", "`go run ./generated_examples/digits`", digits},
	{"allocations of a request (`Run`, `Submit` + `Wait`, `RunSamples`) to public models, public tests, goldens and 530 random networks, with AVX-512, AVX2 and plain Go",
		"`POPEFGEN_TESTS=all go test ./onnx/verify ./ipu/cpu -run ModelsAllocateNothing`, `go test ./golden/... ./generated_examples/...`", allocations},
	{"public ONNX tests, newest operators (`docs/operators.md` names those that fail)", "`popefgen verify --recursive ../shared/data/onnx-node-tests`", verified("data", "onnx-node-tests")},
	{"public ONNX tests, older operator versions", "`popefgen verify --recursive ../shared/data/onnx-node-tests-older`", verified("data", "onnx-node-tests-older")},
	{"public ONNX model tests", "`popefgen verify --recursive ../shared/data/onnx-model-tests`", verified("data", "onnx-model-tests")},
	{"public real models within 1e-4 + 1e-3·\\|want\\| (float16: 1e-3 + 1e-2·\\|want\\|), every data set", "`go test ./onnx/verify -run PublicModels`", tests("models", "./onnx/verify", "TestPublicModels")},
	{"the same through `popefgen run` and through generated runners", "`go test ./cmd/popefgen -run PublicModels`", tests("data sets", "./cmd/popefgen", "TestPublicModels")},
	{"one digits request, one thread", "`popefgen bench digits.popef --threads 1`", digitsRequest},
	{"public real models, time by ONNX Runtime 1.30's in the same process: geometric mean, worst", "`make bench-peers ARGS='-sections models'`", peers},
	{"public real models in plain Go (`POPEFGEN_CPU=go`), time by that with this machine's SIMD instructions: least, median, most", "`go test ./onnx/verify -run '^$' -bench PublicModels`, with and without `POPEFGEN_CPU=go`", plainPath},
}

// machine has what several rows need: the command, built, and a folder for what
// is passing.
type machine struct {
	dir    string
	stderr io.Writer
}

func newMachine(stderr io.Writer) (*machine, error) {
	dir, err := os.MkdirTemp("", "popefgen-figures-")
	if err != nil {
		return nil, err
	}
	m := &machine{dir: dir, stderr: stderr}
	if _, err := m.run(context.Background(), nil, "go", "build", "-o", m.popefgen(), "./cmd/popefgen"); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

func (m *machine) close() { _ = os.RemoveAll(m.dir) }

func (m *machine) popefgen() string { return filepath.Join(m.dir, "popefgen") }

// run returns what a command prints on its standard output.
func (m *machine) run(ctx context.Context, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var stderr bytes.Buffer
	cmd.Env, cmd.Stderr = append(os.Environ(), env...), &stderr
	out, err := cmd.Output()
	if err != nil {
		text := strings.TrimSpace(string(out) + stderr.String())
		err = fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), strings.Join(args, " "), err, text[max(0, len(text)-2000):])
	}
	return out, err
}

var heldOut = regexp.MustCompile(`(\d+ of \d+) held-out scans read rightly`)

func digits(ctx context.Context, m *machine) (string, error) {
	out, err := m.run(ctx, nil, "go", "run", "./generated_examples/digits")
	if err != nil {
		return "", err
	}
	found := heldOut.FindSubmatch(out)
	if found == nil {
		return "", fmt.Errorf("the example does not say how many scans it read rightly:\n%s", out)
	}
	return string(found[1]), nil
}

// allocations is 0 as long as the tests that count them pass.
func allocations(ctx context.Context, m *machine) (string, error) {
	if _, err := testdata("models"); err != nil {
		return "", err
	}
	if _, err := m.run(ctx, []string{"POPEFGEN_TESTS=all"}, "go", "test", "-count=1", "-timeout", "30m", "-run", "ModelsAllocateNothing", "./onnx/verify", "./ipu/cpu"); err != nil {
		return "", err
	}
	_, err := m.run(ctx, nil, "go", "test", "./golden/...", "./generated_examples/...")
	return "0", err
}

// verified counts the data sets below a folder that pass. Those that fail are
// part of the figure, so the command's exit code is not looked at.
func verified(elem ...string) func(context.Context, *machine) (string, error) {
	return func(ctx context.Context, m *machine) (string, error) {
		dir, err := testdata(elem...)
		if err != nil {
			return "", err
		}
		out, runErr := m.run(ctx, nil, m.popefgen(), "verify", "--recursive", "--json", dir)
		count := map[string]int{}
		for d := json.NewDecoder(bytes.NewReader(out)); ; {
			var r struct{ Verdict string }
			if err := d.Decode(&r); err == io.EOF {
				break
			} else if err != nil {
				return "", err
			}
			count[r.Verdict]++
		}
		pass, fail, skip := count["PASS"], count["FAIL"], count["SKIP"]
		if pass == 0 {
			return "", fmt.Errorf("nothing passes: %w", runErr)
		}
		s := fmt.Sprintf("%d of %d", pass, pass+fail)
		if skip > 0 {
			s += fmt.Sprintf(", %d skipped", skip)
		}
		return s, nil
	}
}

var subtest = regexp.MustCompile(`(?m)^    --- (PASS|FAIL|SKIP): `)

// tests counts the subtests of a test that pass.
func tests(what, pkg, name string) func(context.Context, *machine) (string, error) {
	return func(ctx context.Context, m *machine) (string, error) {
		if _, err := testdata("models"); err != nil {
			return "", err
		}
		out, err := m.run(ctx, nil, "go", "test", "-count=1", "-v", "-run", "^"+name+"$", pkg)
		count := map[string]int{}
		for _, found := range subtest.FindAllSubmatch(out, -1) {
			count[string(found[1])]++
		}
		if count["PASS"] == 0 {
			return "", fmt.Errorf("no subtest passes: %w", err)
		}
		return fmt.Sprintf("%d of %d %s", count["PASS"], count["PASS"]+count["FAIL"], what), nil
	}
}

// timing is what popefgen bench measures of a model.
type timing struct {
	Measurements []struct {
		MinNS int64 `json:"min_ns"`
		P50NS int64 `json:"p50_ns"`
	}
}

// bench measures a model on one thread.
func (m *machine) bench(ctx context.Context, env []string, model string) (timing, error) {
	var t timing
	out, err := m.run(ctx, env, m.popefgen(), "bench", model, "--threads", "1", "--duration", "2s", "--json")
	if err == nil {
		err = json.Unmarshal(out, &t)
	}
	if err == nil && len(t.Measurements) != 1 {
		err = fmt.Errorf("bench %s: %d measurements, want 1", model, len(t.Measurements))
	}
	return t, err
}

func digitsRequest(ctx context.Context, m *machine) (string, error) {
	t, err := m.bench(ctx, nil, filepath.Join("generated_examples", "digits", "classifier", "digits.popef"))
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%.1f µs (median; fastest %.1f)", float64(t.Measurements[0].P50NS)/1e3, float64(t.Measurements[0].MinNS)/1e3), nil
}

// plainPath compares the public models' requests with and without vectorised
// kernels.
func plainPath(ctx context.Context, m *machine) (string, error) {
	if _, err := testdata("models"); err != nil {
		return "", err
	}
	var took [2]map[string]float64
	for i, env := range [][]string{nil, {"POPEFGEN_CPU=go"}} {
		out, err := m.run(ctx, env, "go", "test", "-run", "^$", "-bench", "PublicModels/.*/threads=1", "-benchtime", "300ms", "-timeout", "30m", "./onnx/verify")
		if err != nil {
			return "", err
		}
		took[i] = benchmarks(out)
	}
	var ratios []float64
	for name, fast := range took[0] {
		if plain, ok := took[1][name]; ok {
			ratios = append(ratios, plain/fast)
		}
	}
	if len(ratios) == 0 {
		return "", errors.New("no model was measured")
	}
	slices.Sort(ratios)
	return fmt.Sprintf("%.0f, %.0f, %.0f times (%d models)", ratios[0], ratios[len(ratios)/2], ratios[len(ratios)-1], len(ratios)), nil
}

var benchmark = regexp.MustCompile(`(?m)^Benchmark(\S+)\s+\d+\s+([0-9.]+) ns/op`)

// benchmarks returns the ns/op that go test -bench printed, by name.
func benchmarks(out []byte) map[string]float64 {
	all := map[string]float64{}
	for _, found := range benchmark.FindAllSubmatch(out, -1) {
		if v, err := strconv.ParseFloat(string(found[2]), 64); err == nil {
			all[string(found[1])] = v
		}
	}
	return all
}

// peers measures the public models beside ONNX Runtime.
func peers(ctx context.Context, m *machine) (string, error) {
	out, err := m.run(ctx, nil, "make", "-s", "bench-peers", "ARGS=-sections models -gomlx=false")
	if err != nil {
		return "", err
	}
	tables := ratios(out)
	if len(tables) != 2 {
		return "", fmt.Errorf("%d tables of models, want one for one thread and one for two:\n%s", len(tables), out)
	}
	return fmt.Sprintf("one thread %s; two threads %s", tables[0], tables[1]), nil
}

// ratios returns the geometric mean and the largest of the ratios to ONNX
// Runtime of each table of models.
func ratios(out []byte) []string {
	const column = 8 // of the ratio, counted from the empty one before the first bar
	var tables []string
	worst, of := 0.0, ""
	for line := range strings.Lines(string(out)) {
		cells := strings.Split(line, "|")
		if len(cells) <= column {
			worst, of = 0, ""
			continue
		}
		name, value := strings.TrimSpace(cells[1]), strings.TrimSpace(cells[column])
		v, err := strconv.ParseFloat(value, 64)
		switch {
		case err != nil:
		case name == "geometric mean":
			tables = append(tables, fmt.Sprintf("%s, %.2f (`%s`)", value, worst, of))
		case v > worst:
			worst, of = v, name
		}
	}
	return tables
}
