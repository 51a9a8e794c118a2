package popxl_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/gen"
	"github.com/popefgen/popefgen/popef"
)

// document returns docs/popxl.md.
func document(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "popxl.md"))
	require.NoError(t, err)
	return string(text)
}

// blocks returns the fenced blocks of a document in a language, without those that are part of a list.
func blocks(text, language string) []string {
	var found []string
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```").FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
}

// TestFiveMinutes does what the document says: one program makes a model, a package is generated of it, and another
// program computes with the package what the document shows.
func TestFiveMinutes(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a generated package")
	}
	doc := document(t)
	programs, printed := blocks(doc, "go"), blocks(doc, "text")
	require.GreaterOrEqual(t, len(programs), 2)
	require.Len(t, printed, 1)
	module := newModule(t, "example.com/net")
	module.write("make/main.go", programs[0])
	module.write("main.go", programs[1])
	module.run("run", "-mod=mod", "./make")
	model, err := popef.Load(filepath.Join(module.dir, "affine.popef"))
	require.NoError(t, err)
	defer model.Close()
	plan, err := gen.Build(model, gen.Options{Package: "affine", Embed: "affine.popef"})
	require.NoError(t, err)
	files, err := gen.Emit(plan)
	require.NoError(t, err)
	copied, err := gen.ModelCopy(plan, model)
	require.NoError(t, err)
	_, err = gen.Write(filepath.Join(module.dir, "affine"), append(files, copied))
	require.NoError(t, err)
	require.Equal(t, printed[0], module.run("run", "-mod=mod", "."))
}

// TestSnippets: every snippet of the document behind the first two programs is a part of an example, which is run.
func TestSnippets(t *testing.T) {
	text, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	examples := regexp.MustCompile(`(?m)^\t`).ReplaceAllString(string(text), "")
	snippets := blocks(document(t), "go")[2:]
	require.NotEmpty(t, snippets)
	for _, s := range snippets {
		require.Contains(t, examples, s)
	}
}

// module is a Go module in a folder of its own that requires this one as it is here.
type module struct {
	t   *testing.T
	dir string
}

func newModule(t *testing.T, name string) *module {
	t.Helper()
	m := &module{t, t.TempDir()}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	mod = regexp.MustCompile(`(?s)\ntool \(.*?\n\)\n`).ReplaceAll(mod, nil)
	mod = bytes.Replace(mod, []byte("module github.com/popefgen/popefgen\n"), []byte("module "+name+"\n"), 1)
	m.write("go.mod", fmt.Sprintf("%s\nrequire github.com/popefgen/popefgen v0.0.0\n\nreplace github.com/popefgen/popefgen => %s\n", mod, root))
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	require.NoError(t, err)
	m.write("go.sum", string(sum))
	return m
}

func (m *module) write(name, text string) {
	m.t.Helper()
	file := filepath.Join(m.dir, name)
	require.NoError(m.t, os.MkdirAll(filepath.Dir(file), 0o777))
	require.NoError(m.t, os.WriteFile(file, []byte(text), 0o666))
}

// run runs the go command in the module and returns what it prints.
func (m *module) run(args ...string) string {
	m.t.Helper()
	c := exec.Command("go", args...)
	c.Dir = m.dir
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	require.NoError(m.t, err, "go %s:\n%s%s", strings.Join(args, " "), out, &errs)
	return string(out)
}

// TestOperatorsDoc: the document lists the functions of package ops, all of them and no others.
func TestOperatorsDoc(t *testing.T) {
	_, section, ok := strings.Cut(document(t), "\n## Operators\n")
	require.True(t, ok)
	section, _, _ = strings.Cut(section, "\n## ")
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| [^|`]+ \\| (`.*) \\|$").FindAllStringSubmatch(section, -1) {
		for name := range strings.FieldsSeq(m[1]) {
			name = strings.Trim(name, "`")
			require.False(t, listed[name], "%s is listed twice", name)
			listed[name] = true
		}
	}
	require.Equal(t, functions(t), listed)
}

// functions returns the names of the functions of package ops.
func functions(t *testing.T) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("ops", "*.go"))
	require.NoError(t, err)
	all := map[string]bool{}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		require.NoError(t, err)
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.IsExported() {
				all[f.Name.Name] = true
			}
		}
	}
	return all
}
