package cpu

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	diff "github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"golang.org/x/tools/go/callgraph"
	"golang.org/x/tools/go/callgraph/cha"
	"golang.org/x/tools/go/callgraph/vta"
	"golang.org/x/tools/go/packages"
	"golang.org/x/tools/go/ssa"
	"golang.org/x/tools/go/ssa/ssautil"
)

// escapeRoots are where a request enters the engine, as SSA calls them.
var escapeRoots = []string{
	"(*github.com/popefgen/popefgen/ipu/cpu.program).Run",
	"(*github.com/popefgen/popefgen/ipu/cpu.Engine).Run",
}

// escapeBounds are functions at which a run leaves the way of a request; what
// is reached through them alone may allocate.
var escapeBounds = map[string]string{
	"(*github.com/popefgen/popefgen/ipu/cpu.Engine).makeReady":  "the first run after a load or a connection",
	"(*github.com/popefgen/popefgen/ipu/cpu.Engine).runLoad":    "programs that set weights",
	"(*github.com/popefgen/popefgen/ipu/cpu.Engine).endFilling": "programs that set weights",
	"(*github.com/popefgen/popefgen/ipu/cpu.Engine).failed":     "the run has failed",
	"(*github.com/popefgen/popefgen/ipu/cpu.Engine).notLoaded":  "the run has failed",
	"github.com/popefgen/popefgen/ipu.NewPanicError":            "the run has failed",
	"(*github.com/popefgen/popefgen/ipu/cpu.Engine).set":        "programs that set weights",
	"(*github.com/popefgen/popefgen/ipu/cpu.Engine).target":     "a persistent tensor's first value",
}

const escapeList = "testdata/escapes.txt"

// enginePackages returns the directories of the engine and of all that it is made
// of, without what tests alone use.
func enginePackages(t *testing.T) []string {
	out, err := exec.Command("go", "list", "-f", "{{.Dir}}", ".", "./internal/...").Output()
	require.NoError(t, err)
	return slices.DeleteFunc(strings.Fields(string(out)), func(dir string) bool { return filepath.Base(dir) == "kerneltest" })
}

// TestNothingInARunEscapes asks the compiler what it puts on the heap and
// wants nothing of it in functions that a request can reach, but for what the
// list gives a reason for. Reached is what value analysis of the call graph
// says, function values and interfaces included; arguments of errors, which a
// run makes when it fails, do not count.
func TestNothingInARunEscapes(t *testing.T) {
	if runtime.GOARCH != "amd64" || testing.Short() {
		t.Skip("the list is that of amd64, which has every path; it takes the compiler")
	}
	got := map[string]string{}
	s := newSources(t)
	for _, e := range compilerEscapes(t) {
		if f := s.at(e.file, e.line, e.column); f != nil && s.reached[f.node] && !s.failing(e) {
			got[f.name+": "+e.what] = fmt.Sprintf("%s:%d:%d", e.file, e.line, e.column)
		}
	}
	want := readReasons(t, escapeList)
	var found []string
	for e, at := range got {
		found = append(found, e)
		if !slices.Contains(want, e) {
			t.Logf("%s: %s", at, e)
		}
	}
	slices.Sort(found)
	if d := diff.Diff(want, found); d != "" {
		t.Errorf("a request allocates what %s does not list (+), or no longer what it lists (-):\n%s", escapeList, d)
	}
}

// readReasons returns the entries of a reviewed list, sorted; each has a reason
// after " # ".
func readReasons(t *testing.T, file string) (entries []string) {
	list, err := os.ReadFile(file)
	require.NoError(t, err)
	for line := range strings.Lines(string(list)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		entry, reason, _ := strings.Cut(line, " # ")
		require.NotEmpty(t, strings.TrimSpace(reason), "%s: %q has no reason", file, line)
		entries = append(entries, strings.TrimSpace(entry))
	}
	slices.Sort(entries)
	return entries
}

// escape is what the compiler says of one place.
type escape struct {
	file         string
	line, column int
	what         string
}

// compilerEscapes returns what the compiler puts on the heap in the engine and
// its kernels. What it inlines stands at the call.
func compilerEscapes(t *testing.T) []escape {
	out, err := exec.Command("go", append([]string{"build", "-gcflags=-m"}, enginePackages(t)...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	message := regexp.MustCompile(`(?m)^(\S+\.go):(\d+):(\d+): (?:moved to heap: (\w+)|(.+) escapes to heap(?:\.\.\.)?:?)$`)
	var all []escape
	for _, m := range message.FindAllStringSubmatch(string(out), -1) {
		file, err := filepath.Abs(m[1])
		require.NoError(t, err)
		line, _ := strconv.Atoi(m[2])
		column, _ := strconv.Atoi(m[3])
		all = append(all, escape{file, line, column, cmp.Or(m[4], m[5])})
	}
	require.Greater(t, len(all), 500, "escapes of functions that make kernels")
	return all
}

// sourceFunction is a function or function literal in the source.
type sourceFunction struct {
	node     ast.Node
	name     string
	from, to token.Position
}

// sources are the functions of the engine and its kernels.
type sources struct {
	functions map[string][]sourceFunction // by file
	errors    map[string][]sourceFunction // calls that make errors
	reached   map[ast.Node]bool           // by a request
}

func newSources(t *testing.T) *sources {
	pkgs, err := packages.Load(&packages.Config{Mode: packages.LoadSyntax}, enginePackages(t)...)
	require.NoError(t, err)
	require.Zero(t, packages.PrintErrors(pkgs))
	prog, _ := ssautil.Packages(pkgs, ssa.InstantiateGenerics)
	prog.Build()
	s := &sources{map[string][]sourceFunction{}, map[string][]sourceFunction{}, map[ast.Node]bool{}}
	for _, p := range pkgs {
		for _, f := range p.Syntax {
			s.survey(prog.Fset, p.Name, f)
		}
	}
	s.reach(t, vta.CallGraph(ssautil.AllFunctions(prog), cha.CallGraph(prog)))
	return s
}

// survey lists the functions of a file. A literal is named after the function
// that it stands in.
func (s *sources) survey(fset *token.FileSet, pkg string, f *ast.File) {
	file := fset.Position(f.Pos()).Filename
	for _, d := range f.Decls {
		name := pkg
		if d, ok := d.(*ast.FuncDecl); ok {
			name += "." + d.Name.Name
			if d.Recv != nil {
				name = pkg + "." + receiver(d.Recv.List[0].Type) + "." + d.Name.Name
			}
		}
		ast.Inspect(d, func(n ast.Node) bool {
			if n == nil {
				return false
			}
			at := sourceFunction{n, name, fset.Position(n.Pos()), fset.Position(n.End())}
			switch n := n.(type) {
			case *ast.FuncDecl:
				s.functions[file] = append(s.functions[file], at)
			case *ast.FuncLit:
				at.name += ".func"
				at.from.Column++ // the literal itself is made outside of it
				s.functions[file] = append(s.functions[file], at)
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.SelectorExpr); ok {
					if p, ok := f.X.(*ast.Ident); ok && (p.Name == "fmt" && f.Sel.Name == "Errorf" || p.Name == "errors") {
						s.errors[file] = append(s.errors[file], at)
					}
				}
			}
			return true
		})
	}
}

// receiver is the name of a method's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "?"
}

// reach marks what the roots call, as far as the bounds.
func (s *sources) reach(t *testing.T, g *callgraph.Graph) {
	roots, bounds := map[string]bool{}, map[string]bool{}
	seen := map[*callgraph.Node]bool{}
	var visit func(n *callgraph.Node)
	visit = func(n *callgraph.Node) {
		f := n.Func
		if o := f.Origin(); o != nil {
			f = o
		}
		if _, ok := escapeBounds[f.String()]; ok {
			bounds[f.String()] = true
			return
		}
		if seen[n] {
			return
		}
		seen[n] = true
		if at := f.Syntax(); at != nil {
			s.reached[at] = true
		}
		for _, e := range n.Out {
			visit(e.Callee)
		}
	}
	for f, n := range g.Nodes {
		if f != nil && slices.Contains(escapeRoots, f.String()) {
			roots[f.String()] = true
			visit(n)
		}
	}
	require.Len(t, roots, len(escapeRoots), "roots that there are: %v", roots)
	for b := range escapeBounds {
		require.True(t, bounds[b], "no request reaches %s: take it off the list", b)
	}
	require.Greater(t, len(s.reached), 500, "functions that a request reaches")
}

// at returns the innermost function at a place, nil outside of all.
func (s *sources) at(file string, line, column int) *sourceFunction {
	return innermost(s.functions[file], line, column)
}

// failing reports whether an escape is of an error that is made.
func (s *sources) failing(e escape) bool {
	return innermost(s.errors[e.file], e.line, e.column) != nil
}

func innermost(all []sourceFunction, line, column int) *sourceFunction {
	var best *sourceFunction
	for i := range all {
		f := &all[i]
		after := f.from.Line < line || f.from.Line == line && f.from.Column <= column
		before := f.to.Line > line || f.to.Line == line && f.to.Column > column
		if after && before && (best == nil || best.from.Offset < f.from.Offset) {
			best = f
		}
	}
	return best
}
