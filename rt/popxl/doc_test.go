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
	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/rt/popxl"
	"github.com/popefgen/popefgen/rt/popxl/ops"
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
	module.generate("affine")
	require.Equal(t, printed[0], module.run("run", "-mod=mod", "."))
}

// TestTrainingPackage: a package that is generated of a graph with an optimizer learns what a session learns, bit for bit.
func TestTrainingPackage(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a generated package")
	}
	ir, _, _, _ := line()
	m, err := ir.Export(t.Context())
	require.NoError(t, err)
	module := newModule(t, "example.com/net")
	require.NoError(t, m.WriteFile(filepath.Join(module.dir, "line.popef"), false))
	module.generate("line")
	module.write("main.go", `package main

import (
	"context"
	"fmt"
	"log"

	"example.com/net/line"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	ctx := context.Background()
	r, err := line.Open(ctx)
	check(err)
	defer r.Close()
	in, out := line.NewInputs(), line.NewOutputs()
	in.X.Data, in.Label.Data = [4]float32{0, 1, 2, 3}, [4]float32{1, 3, 5, 7}
	for i := range 6 {
		if i == 3 {
			check(r.SetOptimizer(ctx, line.Optimizer{LearningRate: 0.01}))
		}
		check(r.Step(ctx, in, out))
		fmt.Println(out.Loss.Data)
	}
}
`)
	ir, x, label, loss := line()
	s, err := popxl.NewSession(t.Context(), ir)
	require.NoError(t, err)
	defer s.Close()
	want, l := "", loss.Make()
	require.NoError(t, s.In(t.Context(), func() error {
		for i := range 6 {
			if i == 3 {
				require.NoError(t, s.SetOptimizer(t.Context(), adam(0.01)))
			}
			require.NoError(t, s.Run(t.Context(), x.Feed([]float32{0, 1, 2, 3}), label.Feed([]float32{1, 3, 5, 7}), loss.Into(l)))
			want += fmt.Sprintln(l[0])
		}
		return nil
	}))
	require.Equal(t, want, module.run("run", "-mod=mod", "."))
}

func adam(rate float32) optim.Optimizer {
	o := optim.NewAdam()
	o.LearningRate = optim.Changeable(rate)
	return o
}

// line is a graph that learns a line through four points.
func line() (*popxl.Ir, popxl.Input[float32], popxl.Input[float32], popxl.Output[float32]) {
	ir := popxl.New("line")
	x, label := popxl.NewInput[float32](ir, "x", 4), popxl.NewInput[float32](ir, "label", 4)
	slope, offset := popxl.NewVariable(ir, "slope", []float32{0}), popxl.NewVariable(ir, "offset", []float32{0})
	loss := ops.MSELoss(ops.Add(ops.Mul(x.Load(), slope.Tensor()), offset.Tensor()), label.Load())
	popxl.Minimize(loss, popxl.Training{Optimizer: adam(0.1)}, slope, offset)
	return ir, x, label, popxl.NewOutput("loss", loss)
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

// generate makes a package of the model of that name.
func (m *module) generate(name string) {
	m.t.Helper()
	model, err := popef.Load(filepath.Join(m.dir, name+".popef"))
	require.NoError(m.t, err)
	defer model.Close()
	plan, err := gen.Build(model, gen.Options{Package: name, Embed: name + ".popef"})
	require.NoError(m.t, err)
	files, err := gen.Emit(plan)
	require.NoError(m.t, err)
	copied, err := gen.ModelCopy(plan, model)
	require.NoError(m.t, err)
	_, err = gen.Write(filepath.Join(m.dir, name), append(files, copied))
	require.NoError(m.t, err)
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
	for _, row := range regexp.MustCompile("(?m)^\\| [^|`]+ \\| (`.*) \\|$").FindAllStringSubmatch(section, -1) {
		names := regexp.MustCompile("[:;]").Split(row[1], 2)[0] // options and notes follow
		for _, m := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(names, -1) {
			require.False(t, listed[m[1]], "%s is listed twice", m[1])
			listed[m[1]] = true
		}
	}
	require.Equal(t, functions(t), listed)
}

// functions returns the names of the functions of package ops but for those that make options.
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
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !f.Name.IsExported() {
				continue
			}
			if result, ok := f.Type.Results.List[0].Type.(*ast.Ident); !ok || !strings.HasSuffix(result.Name, "Option") {
				all[f.Name.Name] = true
			}
		}
	}
	return all
}
