package popart_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ported are the packages whose names the tables of docs/porting.md name, with their folders.
var ported = map[string]string{
	"popxl": "rt/popxl", "ops": "rt/popxl/ops", "popart": "onnx/popart", "build": "onnx/build", "onnx": "onnx", "compile": "onnx/compile", "optim": "ipu/graph/optim", "dump": "ipu/graph/dump",
	"export": "ipu/export", "ipu": "ipu", "num": "ipu/num", "modelrt": "rt/modelrt",
}

// goName is a name of a package, or of a type of it, such as popxl.Ir.Scope.
var goName = regexp.MustCompile(`^([a-z]\w*)\.([A-Z]\w*(?:\.[A-Z]\w*)?)$`)

// TestPortingNames: the right side of each row of the tables of docs/porting.md names what this module exports, or says that there is nothing; the left side names everything once.
func TestPortingNames(t *testing.T) {
	text, err := os.ReadFile("../../docs/porting.md")
	require.NoError(t, err)
	_, tables, ok := strings.Cut(string(text), "\n## PopXL's names\n")
	require.True(t, ok)
	there := map[string]map[string]bool{}
	for name, folder := range ported {
		there[name] = exported(t, filepath.Join("..", "..", filepath.FromSlash(folder)))
	}
	quoted := regexp.MustCompile("`([^`]+)`")
	seen, named, rows := map[string]string{}, 0, 0
	part := ""
	for line := range strings.Lines(tables) {
		if strings.HasPrefix(line, "## ") {
			part = strings.TrimSpace(line)
		}
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| PopXL |") || strings.HasPrefix(line, "| PopART |") {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		require.Len(t, cells, 2, line)
		rows++
		for _, m := range quoted.FindAllStringSubmatch(cells[0], -1) {
			if first, ok := seen[part+m[1]]; ok {
				t.Errorf("%s stands in two rows:\n%s%s", m[1], first, line)
			}
			seen[part+m[1]] = line
		}
		for _, m := range quoted.FindAllStringSubmatch(cells[1], -1) {
			of := goName.FindStringSubmatch(m[1])
			if of == nil {
				continue // a command, or Go's own
			}
			named++
			switch all, ok := there[of[1]]; {
			case !ok:
				t.Errorf("%s is of a package that the test does not know:\n%s", m[1], line)
			case !all[of[2]]:
				t.Errorf("%s is not exported:\n%s", m[1], line)
			}
		}
		require.NotEmpty(t, strings.TrimSpace(cells[1]), line)
	}
	require.Greater(t, rows, 200)
	require.Greater(t, named, 300)
}

// exported returns what a package exports: names of its top level, and Type.Name of methods, fields and methods of interfaces, those of embedded types of the package included.
func exported(t *testing.T, folder string) map[string]bool {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	require.NoError(t, err)
	all, embeds := map[string]bool{}, map[string][]string{}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					all[d.Name.Name] = true
				} else {
					all[typeName(d.Recv.List[0].Type)+"."+d.Name.Name] = true
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.ValueSpec:
						for _, n := range s.Names {
							all[n.Name] = true
						}
					case *ast.TypeSpec:
						all[s.Name.Name] = true
						var fields *ast.FieldList
						switch of := s.Type.(type) {
						case *ast.StructType:
							fields = of.Fields
						case *ast.InterfaceType:
							fields = of.Methods
						default:
							continue
						}
						for _, f := range fields.List {
							for _, n := range f.Names {
								all[s.Name.Name+"."+n.Name] = true
							}
							if len(f.Names) == 0 {
								embeds[s.Name.Name] = append(embeds[s.Name.Name], typeName(f.Type))
							}
						}
					}
				}
			}
		}
	}
	for outer, inners := range embeds {
		for _, inner := range inners {
			for name := range all {
				if of, method, ok := strings.Cut(name, "."); ok && of == inner {
					all[outer+"."+method] = true
				}
			}
		}
	}
	return all
}

// typeName returns the name of a type of the package, without what it points to and its type arguments.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.IndexListExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
