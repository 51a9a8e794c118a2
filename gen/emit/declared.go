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
	"github.com/popefgen/popefgen/templates"
)

// Declared returns the names that generated files declare and import, whatever the
// model. They are read, once, from what this package writes for the plans of
// [plan.Probes], and from every branch of its templates, so that there is no list
// of names that could lack one.
func Declared() *plan.Declared { return declared() }

var declared = sync.OnceValue(func() *plan.Declared {
	d := &plan.Declared{Owners: map[string]string{}, Packages: map[string]bool{}, Families: map[bool][]string{}, Extra: map[string]map[string]string{}}
	for _, p := range plan.Probes() {
		if err := declare(d, p); err != nil {
			panic("emit: the names that files declare: " + err.Error()) // no input leads here
		}
	}
	return d
})

// declare adds what is written for p, and what templates would write if conditions
// were otherwise.
func declare(d *plan.Declared, p *plan.Plan) error {
	files, err := Emit(p)
	if err != nil {
		return err
	}
	for _, f := range files {
		if path.Ext(f.Name) == ".go" {
			if err := declareFile(d, p, f, p.BatchSize > 0); err != nil {
				return err
			}
		}
	}
	if p.BatchSize == 0 {
		return nil // another plan has more that templates can name
	}
	for _, name := range templates.Go() {
		texts, err := templates.Arms(name, p)
		if err != nil {
			return err
		}
		for _, text := range texts {
			if err := declareText(d, p, name, text); err != nil {
				return err
			}
		}
	}
	return nil
}

// declareText adds what a template declares, a file or declarations for one.
func declareText(d *plan.Declared, p *plan.Plan, name, text string) error {
	if !strings.HasPrefix(strings.TrimSpace(text), "package ") {
		text = clause + text
	}
	if name == templates.Tests {
		name = testSuffix
	}
	return declareFile(d, p, File{Name: name, Data: []byte(text)}, false, true)
}

// testSuffix ends the names of files with tests.
const testSuffix = "_test.go"

// declareFile adds what a file declares and imports where samples are told apart, or
// are not, or both.
func declareFile(d *plan.Declared, p *plan.Plan, f File, samples ...bool) error {
	parsed, err := parser.ParseFile(token.NewFileSet(), f.Name, f.Data, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	who := "the generated package itself"
	if strings.HasSuffix(f.Name, testSuffix) {
		who = "the generated tests"
	}
	for _, id := range topLevel(parsed) {
		switch {
		case id == "_" || id == "init" || id == p.Pin: // the pin is another for every model
		case strings.Contains(id, plan.ProbeTensor):
			family := strings.Replace(id, plan.ProbeTensor, "%s", 1)
			for _, s := range samples {
				if !slices.Contains(d.Families[s], family) {
					d.Families[s] = append(d.Families[s], family)
				}
			}
		case d.Owners[id] != "":
		case len(p.Extras()) == 0:
			d.Owners[id] = who
		default:
			for _, e := range p.Extras() {
				if d.Extra[e] == nil {
					d.Extra[e] = map[string]string{}
				}
				d.Extra[e][id] = who
			}
		}
	}
	for _, i := range parsed.Imports {
		at, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return err
		}
		d.Packages[path.Base(at)] = true
	}
	return nil
}

// topLevel lists the identifiers that a file declares in its package.
func topLevel(file *ast.File) (ids []string) {
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Recv == nil {
				ids = append(ids, decl.Name.Name)
			}
		case *ast.GenDecl:
			for _, s := range decl.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					ids = append(ids, s.Name.Name)
				case *ast.ValueSpec:
					for _, id := range s.Names {
						ids = append(ids, id.Name)
					}
				}
			}
		}
	}
	return ids
}
