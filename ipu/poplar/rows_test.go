//go:build poplar && poplarfake && linux && cgo

package poplar_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The packages whose tests can run on the fake: these and, for rows of PopART, its own.
var rowPackages = []string{"ipu/poplar", "rt"}

// Why tests don't load an engine of Poplar, by package and by test. The tests of package rt that load one elsewhere have their
// reasons in rt/device_rows_test.go.
const (
	manager_  = "a manager of scripted devices"
	queues    = "queues and rings alone"
	before    = "refused before there is an engine"
	predicate = "decided before anything runs"
	simulated = "simulated IPUs are the cpu back end's"
	memory    = "memory and types alone"
	generated = "tests of generated packages run on the fake by themselves, in make poplar"
	model     = "compiles, and runs nothing"
)

var otherwisePackage = map[string]string{
	"ipu":                    manager_,
	"ipu/cpu":                simulated,
	"ipu/iputest":            "the device for tests itself",
	"rt/ring":                queues,
	"rt/modelrt":             queues,
	"rt/internal/packing":    "places in rows alone",
	"onnx/compile":           model,
	"ipu/graph/dump":         model,
	"rt/genrt":               generated,
	"golden/internal":        generated,
	"golden/internal/packed": generated,
	"gen":                    model,
	"popef":                  model,
	"popef/family":           model,
	"cmd/popefgen":           model,
	"onnx/popart":            "PopART's sessions compile for the cpu back end, whose devices they ask for",
}

var otherwise = map[string]string{
	"TestSimulatedMemory":          "the memory of a simulated tile can't be chosen with Poplar",
	"TestSimulatedRunner":          simulated,
	"TestSimulationRefused":        simulated,
	"TestLookAheadOfSimulation":    simulated,
	"TestSessionChecksDefinitions": "operators' definitions are those of the cpu back end",
	"TestReplicationRefused":       before,
	"TestDataMustFit":              before,
	"TestFlowPredicates":           predicate,
	"TestNotAssignedNonScalar":     predicate,
	"TestProgramIndexPredicates":   predicate,
	"TestAnchorPolicies":           predicate,
	"TestPredicatesOrAnd":          predicate,
	"TestCompilerChecksInputs":     memory,
	"TestMemoryViews":              memory,
	"TestLoggerOfEnvironment":      memory,
}

// TestRows runs the tests that docs/runtime.md names and lists which rows ran on the fake of Poplar: a test counts that
// passed and loaded an engine onto a device of the fake. Every other test has its reason. The list is docs/poplar-rows.md.
func TestRows(t *testing.T) {
	if os.Getenv("POPEFGEN_POPLAR_ROWS") == "" {
		t.Skip("it builds and runs tests of other packages: make poplar sets POPEFGEN_POPLAR_ROWS")
	}
	rows := runtimeRows(t)
	where := testPackages(t)
	var names []string
	for _, tests := range rows {
		names = append(names, tests...)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	loads := runTests(t, names)
	unable := reasons(t)
	var b strings.Builder
	b.WriteString("| Row | On the fake of Poplar | Not there, and why |\n|---|---|---|\n")
	used, ran := map[string]bool{}, 0
	for _, n := range slices.Sorted(maps.Keys(rows)) {
		var there, not []string
		for _, name := range rows[n] {
			popart := n >= 103 && n <= 118
			if slices.ContainsFunc(where[name], func(p string) bool { return (p == "onnx/popart") == popart && loads[p+" "+name] }) {
				there = append(there, name)
				if otherwise[name]+unable[name] != "" {
					t.Errorf("%s has a reason not to run on the fake, and ran", name)
				}
				continue
			}
			require.NotEmpty(t, where[name], "row %d names %s, which is no test", n, name)
			reason := otherwise[name]
			if reason == "" {
				reason = unable[name]
			}
			used[name] = true
			for _, p := range where[name] {
				if reason == "" && (p == "onnx/popart" || !popart || !slices.Contains(where[name], "onnx/popart")) {
					reason = otherwisePackage[p]
				}
			}
			if reason == "" {
				t.Errorf("row %d: %s (%v) loads no engine of Poplar, and has no reason", n, name, where[name])
			}
			not = append(not, name+": "+reason)
		}
		if len(there) > 0 {
			ran++
		}
		fmt.Fprintf(&b, "| %d | %s | %s |\n", n, strings.Join(there, ", "), strings.Join(not, "; "))
	}
	for name := range otherwise {
		require.True(t, used[name], "%s has a reason, and no row names it", name)
	}
	text := fmt.Sprintf(rowsHead, ran, len(rows)) + b.String()
	path := filepath.Join("..", "..", "docs", "poplar-rows.md")
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), text, "what ran has changed: look, and run the test with -update")
}

const rowsHead = `# Which rows ran on the fake of Poplar

Of each row of [the runtime, feature by feature](runtime.md): the tests that passed on engines of the back end [for IPUs](poplar.md), loaded onto devices of
the fake of Poplar, and those that did not run there, with the reason. %d of %d rows ran. TestRows, which ` + "`make poplar`" + ` runs, keeps the page.

`

// runtimeRows returns the rows of docs/runtime.md with the tests that each names.
func runtimeRows(t *testing.T) map[int][]string {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "runtime.md"))
	require.NoError(t, err)
	body, _, ok := strings.Cut(string(text), "\n## What Model Runtime leaves")
	require.True(t, ok)
	rows := map[int][]string{}
	for line := range strings.Lines(body) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		n, err := strconv.Atoi(strings.TrimSpace(cells[0]))
		if !strings.HasPrefix(line, "|") || err != nil {
			continue
		}
		for name := range strings.SplitSeq(cells[len(cells)-1], ",") {
			rows[n] = append(rows[n], strings.TrimSpace(name))
		}
	}
	require.Greater(t, len(rows), 100)
	return rows
}

// testPackages returns the folders of the tests by name, whatever their build tags.
func testPackages(t *testing.T) map[string][]string {
	root := filepath.Join("..", "..")
	where := map[string][]string{}
	is := regexp.MustCompile(`(?m)^func ((?:Test|Example)\w*)\(`)
	require.NoError(t, filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		for _, m := range is.FindAllSubmatch(text, -1) {
			where[string(m[1])] = append(where[string(m[1])], filepath.ToSlash(dir))
		}
		return err
	}))
	return where
}

// reasons reads the table of rt/device_rows_test.go.
func reasons(t *testing.T) map[string]string {
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "..", "rt", "device_rows_test.go"), nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	texts, out := map[string]string{}, map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			if v, ok := n.Values[0].(*ast.BasicLit); ok {
				texts[n.Names[0].Name], err = strconv.Unquote(v.Value)
				require.NoError(t, err)
			}
		case *ast.KeyValueExpr:
			name, err := strconv.Unquote(n.Key.(*ast.BasicLit).Value)
			require.NoError(t, err)
			out[name] = texts[n.Value.(*ast.Ident).Name]
			require.NotEmpty(t, out[name], name)
		}
		return true
	})
	require.NotEmpty(t, out)
	return out
}

// runTests runs tests of rowPackages on the fake, which must pass, and returns those that loaded engines, with their folders.
func runTests(t *testing.T, names []string) map[string]bool {
	args := []string{"test", "-tags", "poplar,poplarfake", "-vet=off", "-count=1", "-json", "-run", "^(" + strings.Join(names, "|") + ")$"}
	for _, p := range rowPackages {
		args = append(args, "./"+p)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "FAKE_POPLAR_TRACE=1")
	var out, words bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &words
	err := cmd.Run()
	loads, passed, said := map[string]bool{}, map[string]bool{}, map[string]string{}
	for lines := bufio.NewScanner(&out); lines.Scan(); {
		var event struct{ Action, Package, Test, Output string }
		require.NoError(t, json.Unmarshal(lines.Bytes(), &event), lines.Text())
		name, _, sub := strings.Cut(event.Test, "/")
		name = strings.TrimPrefix(event.Package, "github.com/popefgen/popefgen/") + " " + name
		switch {
		case event.Action == "output" && strings.Contains(event.Output, "fake poplar: loaded"):
			loads[name] = true
		case event.Action == "output" || event.Action == "build-output":
			said[name] += event.Output
		case event.Action == "fail":
			t.Errorf("%s of %s failed:\n%s", event.Test, event.Package, said[name])
		case event.Action == "pass" && !sub:
			passed[name] = true
		}
	}
	require.NoError(t, err, words.String())
	for name := range loads {
		if !passed[name] {
			delete(loads, name)
		}
	}
	return loads
}
