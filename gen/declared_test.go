package gen_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/gen"
	"github.com/popefgen/popefgen/internal/exportdata"
	"github.com/popefgen/popefgen/internal/golden"
	"github.com/popefgen/popefgen/popef"
)

// typeChecker checks generated packages, tests included, without the compiler:
// what they import was compiled once, by the go command.
type typeChecker struct {
	fset    *token.FileSet
	imports types.Importer
}

func newTypeChecker(t *testing.T, imports []string) *typeChecker {
	t.Helper()
	fset := token.NewFileSet()
	importer, err := exportdata.Importer(fset, imports...)
	require.NoError(t, err)
	return &typeChecker{fset, importer}
}

// everything is set by POPEFGEN_TESTS=all: names in all spellings with all options.
var everything = os.Getenv("POPEFGEN_TESTS") == "all"

// check returns what the compiler would complain of.
func (c *typeChecker) check(name string, files []gen.File) error {
	var parsed []*ast.File
	for _, f := range files {
		if path.Ext(f.Name) != ".go" {
			continue
		}
		file, err := parser.ParseFile(c.fset, f.Name, f.Data, 0)
		if err != nil {
			return err
		}
		parsed = append(parsed, file)
	}
	var all bytes.Buffer
	conf := types.Config{Importer: c.imports, Error: func(err error) { fmt.Fprintln(&all, err) }}
	if _, err := conf.Check(name, c.fset, parsed, nil); err != nil {
		return fmt.Errorf("%w\n%s", err, all.String())
	}
	return nil
}

// hostileModel has an anchor of each name in turn as run input, run output,
// load input and save output.
func hostileModel(names []string) *golden.Model {
	m := &golden.Model{File: "m.popef", Executable: golden.Executable{Name: "m"}, Replicas: 1, DeviceIterations: 1, Inference: true, Load: []uint32{0}, Main: []uint32{1}, Save: []uint32{2}}
	for i, name := range names {
		a := golden.Anchor{Name: name, Handle: fmt.Sprintf("h%d", i), Type: "F32", Shape: []int64{2, 3}, Direction: "in", Programs: []uint32{1}}
		switch i % 4 {
		case 1:
			a.Direction = "out"
		case 2:
			a.Programs[0] = 0
		case 3:
			a.Direction, a.Programs[0] = "out", 2
		}
		m.Anchors = append(m.Anchors, a)
	}
	return m
}

// hostileTraining is hostileModel of a model that trains: what is saved are weights, outputs are those of Evaluate too, and there is a value
// of the optimizer for each name.
func hostileTraining(names []string) *golden.Model {
	m := hostileModel(names)
	m.Inference = false
	m.Load = append(m.Load, 4)
	m.Programs = map[uint32]string{0: "WeightsFromHost", 1: "Program", 2: "WeightsToHost", 4: "OptimizerFromHost", 9: "Evaluate"}
	weights := map[string]bool{}
	for i, a := range m.Anchors {
		switch {
		case a.Programs[0] == 1:
			m.Anchors[i].Programs = []uint32{1, 9}
		case a.Programs[0] == 0:
			m.Anchors[i].Data = &golden.Data{}
		case a.Name != "" && !weights[a.Name]:
			weights[a.Name] = true
			m.Anchors = append(m.Anchors, golden.Anchor{Name: a.Name, Handle: "w" + a.Handle, Type: "F32", Shape: a.Shape, Direction: "in", Programs: []uint32{0}, Data: &golden.Data{}})
		}
	}
	loaded := map[string]bool{}
	for i := 0; i < len(m.Anchors); i++ { // a file has one tensor of a name
		if a := m.Anchors[i]; a.Data != nil {
			if loaded[a.Name] {
				m.Anchors = slices.Delete(m.Anchors, i, i+1)
				i--
			}
			loaded[a.Name] = true
		}
	}
	for i, name := range names {
		value := name + "___default___FLOAT"
		if !loaded[value] {
			m.Anchors = append(m.Anchors, golden.Anchor{Name: value, Handle: fmt.Sprintf("v%d", i), Type: "F32", Direction: "in", Programs: []uint32{4}, Data: &golden.Data{}})
		}
		loaded[value] = true
	}
	return m
}

// identifiers returns every identifier that stands in Go files, in their
// comments and strings too: a template may begin to declare any of them.
func identifiers(t *testing.T, into map[string]bool, imports map[string]bool, files []gen.File) {
	for _, f := range files {
		if path.Ext(f.Name) != ".go" {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), f.Name, f.Data, 0)
		require.NoError(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				into[id.Name] = true
			}
			return true
		})
		for _, i := range parsed.Imports {
			imports[strings.Trim(i.Path.Value, `"`)] = true
		}
	}
}

// TestHostileNames gives anchors the names of everything that generated files
// declare or use, in several spellings, and those of Go itself. The packages
// must compile with their tests.
func TestHostileNames(t *testing.T) {
	dim := 0
	options := []gen.Options{{Package: "m", Tests: true}, {Package: "m", Tests: true, BatchDim: &dim, Embed: "m.popef"}}
	served := []gen.Options{{Package: "m", Tests: true, Serve: true}, {Package: "m", Tests: true, Serve: true, BatchDim: &dim, Embed: "m.popef"}}
	// Of a model with at least an input and an output.
	both := append(slices.Clone(options),
		gen.Options{Package: "m", Tests: true, Pack: &gen.PackOptions{Inputs: []string{"h0"}, Axis: 1, Fill: map[string]string{"none": ""}}},
		gen.Options{Package: "m", Tests: true, State: []gen.StatePair{{Out: "h1", In: "h0"}}})
	found, imports := map[string]bool{}, map[string]bool{}
	for _, o := range slices.Concat(both, served) {
		identifiers(t, found, imports, emit(t, load(t, hostileModel([]string{"a", "b", "c", "d"})), o))
	}
	identifiers(t, found, imports, emit(t, load(t, hostileTraining([]string{"a", "b", "c", "d"})), options[0]))
	for tok := token.BREAK; tok <= token.VAR; tok++ {
		found[tok.String()] = true
	}
	for _, name := range types.Universe.Names() {
		found[name] = true
	}
	for _, name := range []string{"main", "Test", "TestMain", "Benchmark", "Example", "Fuzz", "From", "Anchor", "Freeze", "Sample", "Contract", "PopefgenProbe"} {
		found[name] = true
	}
	var words []string
	for name := range found {
		words = append(words, name)
	}
	slices.Sort(words)
	require.Contains(t, words, "TestGolden")
	var paths []string
	for p := range imports {
		paths = append(paths, p)
	}
	checker := newTypeChecker(t, paths)
	// Every spelling that leads to the same words, as anchors of one model.
	spell := []func(string) string{
		func(s string) string { return s },
		strings.ToLower,
		func(s string) string { // TestGolden, as a framework writes it
			var b strings.Builder
			for i, r := range s {
				if i > 0 && r >= 'A' && r <= 'Z' {
					b.WriteByte('_')
				}
				b.WriteString(strings.ToLower(string(r)))
			}
			return b.String()
		},
		func(s string) string { return strings.TrimPrefix(strings.TrimSuffix(s, "From"), "Anchor") },
	}
	check := func(t require.TestingT, model *popef.Model, o gen.Options, names []string) {
		files := emit(t, model, o)
		require.NoError(t, checker.check("m", files), "anchors %q", names)
	}
	for i, f := range spell {
		var names []string
		for _, w := range words {
			names = append(names, f(w))
		}
		for j, o := range both {
			if i > 0 && i != j && !everything { // the first as with everything, the others with options in turn
				continue
			}
			t.Run(fmt.Sprintf("spelling %d, samples %v, pack %v, state %v", i, o.BatchDim != nil, o.Pack != nil, o.State != nil), func(t *testing.T) {
				check(t, load(t, hostileModel(names)), o, nil)
			})
		}
		t.Run(fmt.Sprintf("spelling %d, training", i), func(t *testing.T) {
			check(t, load(t, hostileTraining(names)), options[0], nil)
		})
		for j, o := range served {
			if i > 0 && i%2 != j && !everything {
				continue
			}
			t.Run(fmt.Sprintf("spelling %d, samples %v, served", i, o.BatchDim != nil), func(t *testing.T) {
				named := slices.DeleteFunc(slices.Clone(names), func(s string) bool { return s == "" }) // clients can not ask for such a tensor
				for some := range slices.Chunk(named, 4*64) {                                           // a model with more inputs is not served
					check(t, load(t, hostileModel(some)), o, some)
				}
			})
		}
	}
	t.Run("random", rapid.MakeCheck(func(t *rapid.T) {
		piece := rapid.OneOf(rapid.SampledFrom(words), rapid.SampledFrom([]string{"/", "_", "2", "x", "From", "Anchor", ":0"}))
		names := rapid.SliceOfN(rapid.Map(rapid.SliceOfN(piece, 1, 3), func(p []string) string { return strings.Join(p, "") }), 1, 12).Draw(t, "names")
		check(t, load(t, hostileModel(names)), rapid.SampledFrom(slices.Concat(options, served)).Draw(t, "options"), names)
	}))
}

// TestPackageNames refuses as package names those of what generated code
// imports, the tests included.
func TestPackageNames(t *testing.T) {
	m := load(t, hostileModel([]string{"a", "b"}))
	for _, name := range []string{"rt", "ipu", "context", "filepath", "outputs", "flag", "testing"} {
		_, err := gen.Build(m, gen.Options{Package: name})
		require.ErrorIs(t, err, gen.ErrBuild, name)
		p, err := gen.Build(m, gen.Options{ModelBase: name + ".popef"})
		require.NoError(t, err)
		require.Equal(t, "model"+name, p.Package)
	}
}

// planted stands in the environment of TestPlantedDeclarations where templates have
// the declarations that it plants.
const planted = "POPEFGEN_PLANTED"

// TestPlantedDeclarations adds declarations to templates, within conditions that no
// model of the tests fulfils, and gives anchors their names: that they clash must be
// found, without a word of it anywhere but in the template.
func TestPlantedDeclarations(t *testing.T) {
	if os.Getenv(planted) == "" {
		if testing.Short() {
			t.Skip("compiles this package with other templates")
		}
		overlay := struct{ Replace map[string]string }{map[string]string{}}
		for name, text := range map[string]string{
			"test.go.tmpl": "\n{{if gt .DeviceIterations 1000}}{{if .Embed}}func TestShuffle() {}{{else}}var Cut, Deal = 1, 2{{end}}" +
				"{{range .Inputs}}\nfunc Shuffle{{.Name}}() {}{{end}}{{end}}\n",
			"queues.go.tmpl": "\n{{if gt .DeviceIterations 1000}}type Riffle int{{end}}\n",
			"serve.go.tmpl":  "\n{{if gt .DeviceIterations 1000}}type Dealer int{{end}}\n",
		} {
			path, err := filepath.Abs(filepath.Join("..", "templates", name))
			require.NoError(t, err)
			have, err := os.ReadFile(path)
			require.NoError(t, err)
			with := filepath.Join(t.TempDir(), name)
			require.NoError(t, os.WriteFile(with, append(have, text...), 0o644))
			overlay.Replace[path] = with
		}
		file := filepath.Join(t.TempDir(), "overlay.json")
		text, err := json.Marshal(overlay)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, text, 0o644))
		c := exec.Command("go", "test", "-vet=off", "-count=1", "-overlay", file, "-run", "^"+t.Name()+"$", ".")
		c.Env = append(os.Environ(), planted+"=1")
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	m := load(t, hostileModel([]string{"test_shuffle", "cut", "deal", "riffle", "x", "shuffle/x"}))
	p, err := gen.Build(m, gen.Options{Package: "m", Tests: true})
	require.NoError(t, err)
	var names []string
	for _, tensor := range p.Tensors {
		names = append(names, tensor.Name)
	}
	require.ElementsMatch(t, []string{"TestShuffle2", "Cut2", "Deal2", "Riffle2", "X", "ShuffleX2"}, names)
	_, err = gen.Build(m, gen.Options{Package: "m", Renames: map[string]string{"x": "Dealer"}})
	require.NoError(t, err, "packages that do not serve may have it")
	_, err = gen.Build(m, gen.Options{Package: "m", Serve: true, Renames: map[string]string{"x": "Dealer"}})
	require.ErrorContains(t, err, "the name Dealer is taken by the generated package itself")
	for name, who := range map[string]string{"Deal": "the generated tests", "Riffle": "the generated package itself"} {
		_, err = gen.Build(m, gen.Options{Package: "m", Renames: map[string]string{"x": name}})
		require.ErrorIs(t, err, gen.ErrBuild)
		require.ErrorContains(t, err, "the name "+name+" is taken by "+who)
	}
}
