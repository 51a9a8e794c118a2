package main

import (
	"bytes"
	"context"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

func TestParseList(t *testing.T) {
	list, err := parseList("a.txt", []byte("# comment\n== one\nfile: x/a.go\ntest: ./x -run 'TestA|Test B'\n- \tif a {\n-\n- }\n+ \tif !a {\n+ }\n\n== two\nfile: b.go\ntest: .\nsurvives: because\n- x\n"))
	require.NoError(t, err)
	want := []mutant{
		{name: "one", at: "a.txt:2", file: "x/a.go", test: []string{"./x", "-run", "TestA|Test B"}, old: []string{"\tif a {", "", "}"}, new: []string{"\tif !a {", "}"}},
		{name: "two", at: "a.txt:11", file: "b.go", test: []string{"."}, survives: "because", old: []string{"x"}},
	}
	if d := cmp.Diff(want, list, cmp.AllowUnexported(mutant{})); d != "" {
		t.Error(d)
	}
	for _, bad := range []string{
		"file: a.go\n",
		"== a\nfile: a.go\ntest: .\n",
		"== a\nfile: ../a.go\ntest: .\n- x\n",
		"== a\nfile: a.go\ntest: './x\n- x\n",
		"== a\nfile: a.go\ntest: .\n+ y\n- x\n",
		"== a\nwhat is this\n",
	} {
		_, err := parseList("a.txt", []byte(bad))
		require.ErrorContains(t, err, "a.txt:", bad)
	}
}

func TestApply(t *testing.T) {
	source := []byte("a\n\tb\nc\nb\nd")
	for _, c := range []struct {
		old, new []string
		want     string
		err      string
	}{
		{old: []string{"b", "c"}, new: []string{"x"}, want: "a\nx\nb\nd"},
		{old: []string{"d"}, want: "a\n\tb\nc\nb"},
		{old: []string{"b"}, err: "lines 2 and 4"},
		{old: []string{"e"}, err: "not in f.go any more"},
	} {
		m := mutant{file: "f.go", old: c.old, new: c.new}
		got, err := m.apply(source)
		if c.err != "" {
			require.ErrorContains(t, err, c.err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.want, string(got))
	}
}

func TestUseNames(t *testing.T) {
	source := "package p\n\nimport (\n\t\"math\"\n)\n\nfunc f(a []int) {\n\tfor i, v := range a {\n\t}\n\tx, y := 1, 2\n}"
	out := "# example.com/p\np/a.go:4:2: \"math\" imported and not used\np/a.go:8:6: declared and not used: i\np/a.go:8:9: declared and not used: v\np/a.go:10:5: declared and not used: y\np/b.go:1:1: declared and not used: z\nFAIL"
	used, found := useNames([]byte(source), "p/a.go", out)
	require.True(t, found)
	require.Equal(t, "package p\n\nimport (\n\t_ \"math\"\n)\n\nfunc f(a []int) {\n\tfor i, v := range a {\n_ = i\n_ = v\n\t}\n\tx, y := 1, 2\n_ = y\n}", string(used))
	_, found = useNames([]byte(source), "p/a.go", "p/a.go:8:6: undefined: i")
	require.False(t, found)
}

// TestRun tries mutants of every verdict on a module of a few lines.
func TestRun(t *testing.T) {
	root := filepath.Join(t.TempDir(), strings.Repeat("deep/", 20)) // the compiler gives a file outside its whole path
	for name, text := range map[string]string{
		"go.mod":      "module example.com/small\n\ngo 1.26\n",
		"abs.go":      "package small\n\nfunc abs(x int) int {\n\tif x < 0 {\n\t\treturn -x\n\t}\n\treturn x\n}\n",
		"abs_test.go": "package small\n\nimport \"testing\"\n\nfunc TestAbs(t *testing.T) {\n\tif abs(-2) != 2 {\n\t\tt.Fatal(abs(-2))\n\t}\n}\n",
		"list/a.txt": `== kept
file: abs.go
test: .
- 	if x < 0 {
+ 	if x > 0 {
== unused
file: abs.go
test: .
- 	if x < 0 {
+ 	if y := x; false {
== border
file: abs.go
test: .
survives: -0 is 0
- 	if x < 0 {
+ 	if x <= 0 {
`,
		"bad/a.txt": `== border
file: abs.go
test: .
- 	if x < 0 {
+ 	if x <= 0 {
== not-go
file: abs.go
test: .
- 	if x < 0 {
+ 	if x {
== gone
file: abs.go
test: .
- 	if y < 0 {
== excused-for-nothing
file: abs.go
test: .
survives: no idea
- 		return -x
+ 		return x
`,
		"endless/a.txt": `== endless
file: abs.go
test: .
- 		return -x
+ 		for {}
`,
	} {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	t.Chdir(root)
	out, err := exec.Command("git", "init", "-q").CombinedOutput()
	require.NoError(t, err, string(out))
	work := filepath.Join(t.TempDir(), "work")
	try := func(args ...string) (int, string) {
		var stdout, stderr bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		code := run(ctx, append([]string{"-work", work}, args...), &stdout, &stderr)
		return code, stdout.String() + stderr.String()
	}

	code, text := try("-lists", "list")
	require.Equal(t, 0, code, text)
	require.Contains(t, text, "border (abs.go) survives, and may: -0 is 0")
	require.Contains(t, text, "3 mutants: 2 noticed, 1 survive with a reason, 0 to mend")

	for _, work := range []string{work, "build/mutants"} { // one by itself
		code, text = try("-lists", "list", "-run", "^unused$", "-work", work)
		require.Equal(t, 0, code, text)
	}

	code, text = try("-lists", "endless", "-timeout", "3s")
	require.Equal(t, 0, code, text)

	code, text = try("-lists", "bad")
	require.Equal(t, 1, code, text)
	for _, want := range []string{
		"border: SURVIVED: go test .", "not-go: INVALID: it does not compile", "gone: STALE: the original is not in abs.go",
		"excused-for-nothing: a test notices it now", "4 mutants: 0 noticed, 0 survive with a reason, 4 to mend",
	} {
		require.Contains(t, text, want)
	}

	code, text = try("-lists", "bad", "-sample", "1", "-seed", "x")
	require.Contains(t, text, "a sample of 1 of 4 mutants: -sample 1 -seed x")
	require.Equal(t, 1, strings.Count(text, "(abs.go)"), text)
	require.LessOrEqual(t, code, 1)

	code, text = try("-lists", "bad", "-run", "nowhere")
	require.Equal(t, 2, code)
	require.Contains(t, text, `none of 4 mutants matches "nowhere"`)
}

// TestListsFit applies every mutant of the committed lists: its lines must stand
// in the source as it is, what takes their place must be Go of names that there
// are, and every alternative of -run must choose a test.
func TestListsFit(t *testing.T) {
	list, err := readLists("list")
	require.NoError(t, err)
	tests, names := map[string][]string{}, map[string]map[string]bool{}
	for i := range list {
		m := &list[i]
		for _, run := range idle(t, m, tests) {
			t.Errorf("%s: %s: no test of %v is called %s", m.at, m.name, m.test[0], run)
		}
		path := filepath.Join("..", "..", filepath.FromSlash(m.file))
		source, err := os.ReadFile(path)
		if err != nil {
			t.Errorf("%s: %s: %v", m.at, m.name, err)
			continue
		}
		mutated, err := m.apply(source)
		if err != nil {
			t.Errorf("%s: %s: %v", m.at, m.name, err)
			continue
		}
		if filepath.Ext(m.file) != ".go" {
			continue
		}
		unknown, err := unresolved(mutated)
		if err != nil {
			t.Errorf("%s: %s: %v", m.at, m.name, err)
			continue
		}
		dir := filepath.Dir(path)
		if names[dir] == nil {
			names[dir] = declared(t, dir)
		}
		for _, n := range unknown {
			if !names[dir][n] && types.Universe.Lookup(n) == nil {
				t.Errorf("%s: %s: %s says nothing in %s", m.at, m.name, n, m.file)
			}
		}
	}
}

// unresolved returns the names that a source uses and does not declare.
func unresolved(source []byte) ([]string, error) {
	f, err := parser.ParseFile(token.NewFileSet(), "", source, 0)
	if err != nil {
		return nil, err
	}
	imported := map[string]bool{}
	for _, s := range f.Imports {
		p := strings.Trim(s.Path.Value, `"`)
		for _, part := range strings.Split(p, "/") { // math/rand/v2, yaml.v3
			name, _, _ := strings.Cut(part, ".")
			imported[name] = true
		}
		if s.Name != nil {
			imported[s.Name.Name] = true
		}
	}
	var out []string
	for _, id := range f.Unresolved {
		if !imported[id.Name] {
			out = append(out, id.Name)
		}
	}
	return out, nil
}

// declared returns the names that the files of a folder declare outside functions.
func declared(t *testing.T, dir string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	for _, path := range files {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		require.NoError(t, err)
		for n := range f.Scope.Objects {
			names[n] = true
		}
	}
	return names
}

// idle returns the alternatives of a mutant's -run that choose no test. tests
// remembers the names of each folder's.
func idle(t *testing.T, m *mutant, tests map[string][]string) (out []string) {
	t.Helper()
	c, err := parseCommand(m.test)
	if err != nil || c.run == "" {
		return nil
	}
	var all []string
	for _, p := range c.patterns {
		dir, below := strings.CutSuffix(filepath.Join("..", "..", filepath.FromSlash(p)), string(filepath.Separator)+"...")
		folders := []string{dir}
		if below {
			folders = nil
			require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					folders = append(folders, path)
				}
				return err
			}))
		}
		for _, dir := range folders {
			if _, ok := tests[dir]; !ok {
				tests[dir] = []string{}
				files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
				require.NoError(t, err)
				for _, path := range files {
					text, err := os.ReadFile(path)
					require.NoError(t, err)
					for _, f := range testHead.FindAllSubmatch(text, -1) {
						tests[dir] = append(tests[dir], string(f[1]))
					}
				}
			}
			all = append(all, tests[dir]...)
		}
	}
	for _, run := range alternatives(wholeTests(c.run)) {
		match, err := regexp.Compile(run)
		require.NoError(t, err, m.name)
		if !slices.ContainsFunc(all, match.MatchString) {
			out = append(out, run)
		}
	}
	return out
}

var testHead = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)

// alternatives divides an expression at the bars that are in no parentheses.
func alternatives(run string) []string {
	var out []string
	depth, from := 0, 0
	for i, r := range run {
		switch r {
		case '(', '[':
			depth++
		case ')', ']':
			depth--
		case '|':
			if depth == 0 {
				out, from = append(out, run[from:i]), i+1
			}
		}
	}
	return append(out, run[from:])
}
