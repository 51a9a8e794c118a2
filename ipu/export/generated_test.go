package export_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/gen"
	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/ipu/graph/pass"
	"github.com/popefgen/popefgen/popef"
)

// generated is a package of the counter model.
type generated struct {
	*counter
	name string
	rs   []returning
	plan *gen.Plan
}

// generate writes the package of the counter model with all return types into a module.
func generate(t *testing.T, module string, batches, accumulation, replicas int64) *generated {
	t.Helper()
	g := &generated{counter: newCounter(t, batches, accumulation, replicas), name: fmt.Sprintf("steps%dx%dx%d", batches, accumulation, replicas)}
	g.rs = []returning{{export.All, 0}, {export.Final, 0}, {export.Sum, 0}, {export.EveryN, 1}}
	if batches > 1 {
		g.rs = append(g.rs, returning{export.EveryN, 2}, returning{export.EveryN, batches})
	}
	for _, r := range g.rs {
		g.output(r)
	}
	m, err := export.Training(g.exe, g.layout)
	require.NoError(t, err)
	load := export.LoadProgram
	require.NoError(t, pass.Optimize(m.Executable, pass.OptimizeOptions{Load: &load}))
	require.NoError(t, m.Encode())
	path := filepath.Join(t.TempDir(), "model.popef")
	require.NoError(t, m.WriteFile(path, false))
	model, err := popef.Load(path)
	require.NoError(t, err)
	defer model.Close()
	g.plan, err = gen.Build(model, gen.Options{Package: g.name, Embed: "model.popef", Tests: true})
	require.NoError(t, err)
	files, err := gen.Emit(g.plan)
	require.NoError(t, err)
	copied, err := gen.ModelCopy(g.plan, model)
	require.NoError(t, err)
	_, err = gen.Write(filepath.Join(module, g.name), append(files, copied))
	require.NoError(t, err)
	return g
}

// field returns the Go name and the number of transfers of an output.
func (g *generated) field(t *testing.T, name string) (string, int) {
	for _, f := range g.plan.Outputs {
		if a := g.plan.Anchors[f.Anchor]; a.Name == name {
			return f.Name, a.Transfers
		}
	}
	t.Fatalf("there is no output %q", name)
	return "", 0
}

// TestGenerated compiles a package for each number of batches, accumulation and replicas, and runs it: the fields of
// Outputs have as many tensors as are returned, with the values of the definitions.
func TestGenerated(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles generated packages")
	}
	module := t.TempDir()
	var all []*generated
	var imports, body strings.Builder
	for _, batches := range []int64{1, 4} {
		for _, accumulation := range []int64{1, 2} {
			for _, replicas := range []int64{1, 2} {
				g := generate(t, module, batches, accumulation, replicas)
				all = append(all, g)
				fmt.Fprintf(&imports, "\t%q\n", "steps/"+g.name)
				x := "&in.X.Data"
				count := "1"
				if batches*accumulation*replicas > 1 {
					x, count = "&in.X[i].Data", "len(in.X)"
				}
				fmt.Fprintf(&body, "\tfunc() {\n\t\tr, err := %[1]s.Open(ctx)\n\t\tcheck(err)\n\t\tdefer r.Close()\n\t\tin, out, saved := %[1]s.NewInputs(), %[1]s.NewOutputs(), %[1]s.NewSaveOutputs()\n"+
					"\t\tfor i := range %[2]s {\n\t\t\t*%[3]s = [2]float32{float32(i + 1), 10 * float32(i+1)}\n\t\t}\n"+
					"\t\tcheck(r.Run(ctx, in, out))\n\t\tcheck(r.Run(ctx, in, out))\n\t\tcheck(r.Save(ctx, saved))\n\t\tprint(%[1]q, out, saved)\n\t}()\n", g.name, count, x)
			}
		}
	}
	ran := runModule(t, module, imports.String(), body.String(), all[len(all)-1].name)
	for _, g := range all {
		l := &g.layout
		w := pair{100, 200}
		_, _, w = g.simulate(w, false)
		y, u, w := g.simulate(w, false)
		want, got := map[string][]pair{}, map[string][]pair{}
		for _, r := range g.rs {
			for name, values := range map[string][]pair{
				"y " + r.String(): r.want(y, l.BatchesPerStep, l.Accumulation-1, l.Replicas), "u " + r.String(): r.want(u, l.BatchesPerStep, 0, 1),
			} {
				field, transfers := g.field(t, name)
				want[name], got[name] = values, ran[g.name].pairs(t, field, transfers)
				require.Len(t, values, transfers, name)
			}
		}
		want["w"], got["w"] = []pair{w}, ran[g.name].pairs(t, "W", 1)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", g.name, diff)
		}
	}
}

// outputs are the fields of a package's structs, as JSON.
type outputs map[string]json.RawMessage

// pairs returns the tensors of a field: one, or an array of several.
func (o outputs) pairs(t *testing.T, field string, transfers int) []pair {
	t.Helper()
	var tensors []struct{ Data pair }
	raw := o[field]
	if transfers == 1 {
		raw = fmt.Appendf(nil, "[%s]", raw)
	}
	require.NoError(t, json.Unmarshal(raw, &tensors), "%s: %s", field, raw)
	var out []pair
	for _, x := range tensors {
		out = append(out, x.Data)
	}
	return out
}

// runModule builds a program over generated packages in a module of its own, and the tests of one of them, and runs
// both. It returns what each package printed.
func runModule(t *testing.T, module, imports, body, tested string) map[string]outputs {
	t.Helper()
	main := fmt.Sprintf(`package main

import (
	"context"
	"encoding/json"
	"log"
	"os"

%s)

func main() {
	ctx := context.Background()
%s}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func print(name string, all ...any) {
	for _, v := range all {
		check(json.NewEncoder(os.Stdout).Encode(map[string]any{name: v}))
	}
}
`, imports, body)
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	mod = regexp.MustCompile(`(?s)\ntool \(.*?\n\)\n`).ReplaceAll(mod, nil)
	mod = bytes.Replace(mod, []byte("module github.com/popefgen/popefgen\n"), []byte("module steps\n"), 1)
	mod = fmt.Appendf(mod, "\nrequire github.com/popefgen/popefgen v0.0.0\n\nreplace github.com/popefgen/popefgen => %s\n", root)
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	require.NoError(t, err)
	for name, b := range map[string][]byte{"go.mod": mod, "go.sum": sum, "main.go": []byte(main)} {
		require.NoError(t, os.WriteFile(filepath.Join(module, name), b, 0o666))
	}
	command := func(name string, args ...string) []byte {
		c := exec.Command(name, args...)
		c.Dir = module
		var errs bytes.Buffer
		c.Stderr = &errs
		out, err := c.Output()
		require.NoError(t, err, "%s %s:\n%s%s", name, strings.Join(args, " "), out, &errs)
		return out
	}
	program := filepath.Join(module, "steps.exe")
	command("go", "build", "-mod=mod", "-o", program, ".")
	command("go", "test", "-mod=mod", "./"+tested)
	ran := map[string]outputs{}
	d := json.NewDecoder(bytes.NewReader(command(program)))
	for d.More() {
		var v map[string]outputs
		require.NoError(t, d.Decode(&v))
		for name, fields := range v {
			if ran[name] == nil {
				ran[name] = outputs{}
			}
			for field, data := range fields {
				ran[name][field] = data
			}
		}
	}
	return ran
}
