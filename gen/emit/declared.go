package emit

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/popefgen/popefgen/gen/plan"
)

// Declared returns the names that the files of every package declare and
// import. They are read from the files of the plans of [plan.Probes], once.
func Declared() *plan.Declared { return declared() }

var declared = sync.OnceValue(func() *plan.Declared {
	d := &plan.Declared{Owners: map[string]string{}, Packages: map[string]bool{}, Families: map[bool][]string{}}
	for _, p := range plan.Probes() {
		files, err := Emit(p)
		if err != nil {
			panic("emit: " + err.Error()) // no input leads here
		}
		for _, f := range files {
			if path.Ext(f.Name) == ".go" {
				declaredBy(d, f, p)
			}
		}
	}
	return d
})

// declaredBy adds what a file declares and imports.
func declaredBy(d *plan.Declared, f File, p *plan.Plan) {
	parsed, err := parser.ParseFile(token.NewFileSet(), f.Name, f.Data, 0)
	if err != nil {
		panic("emit: " + err.Error()) // Emit has formatted it
	}
	who := "the generated package itself"
	if strings.HasSuffix(f.Name, "_test.go") {
		who = "the generated tests"
	}
	declare := func(id *ast.Ident) {
		switch {
		case id.Name == "_" || id.Name == "init" || id.Name == p.Pin: // the pin is another for every model
		case strings.Contains(id.Name, plan.ProbeTensor):
			family := strings.Replace(id.Name, plan.ProbeTensor, "%s", 1)
			if list := d.Families[p.BatchSize > 0]; !slices.Contains(list, family) {
				d.Families[p.BatchSize > 0] = append(list, family)
			}
		default:
			d.Owners[id.Name] = who
		}
	}
	for _, decl := range parsed.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Recv == nil {
				declare(decl.Name)
			}
		case *ast.GenDecl:
			for _, s := range decl.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					declare(s.Name)
				case *ast.ValueSpec:
					for _, id := range s.Names {
						declare(id)
					}
				}
			}
		}
	}
	for _, i := range parsed.Imports {
		if at, err := strconv.Unquote(i.Path.Value); err == nil {
			d.Packages[path.Base(at)] = true
		}
	}
}
