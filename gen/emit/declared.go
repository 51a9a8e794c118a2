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
	d := &plan.Declared{Owners: map[string]string{}, Packages: map[string]bool{}, Tensors: map[plan.Kind][]string{}, Used: map[string]bool{}, Extra: map[string]map[string]string{}}
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
			if err := declareFile(d, p, f, p.ExtrasOf(f.Name), plan.Kind{Samples: p.BatchSize > 0, Family: p.Family != nil}); err != nil {
				return err
			}
		}
	}
	if p.BatchSize == 0 || p.Family == nil {
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
	if p.Serve == nil {
		return nil
	}
	texts, err := templates.Arms(templates.Serve, p)
	for _, text := range texts {
		if err == nil {
			err = declareFile(d, p, File{Name: templates.Serve, Data: []byte(text)}, p.ExtrasOf(plan.ServeSuffix), plan.Kind{}, plan.Kind{Samples: true}, plan.Kind{Family: true}, plan.Kind{Samples: true, Family: true})
		}
	}
	return err
}

// declareText adds what a template declares, a file or declarations for one.
func declareText(d *plan.Declared, p *plan.Plan, name, text string) error {
	if !strings.HasPrefix(strings.TrimSpace(text), "package ") {
		text = clause + text
	}
	if name == templates.Tests {
		name = testSuffix
	}
	return declareFile(d, p, File{Name: name, Data: []byte(text)}, nil, plan.Kind{}, plan.Kind{Samples: true}, plan.Kind{Family: true}, plan.Kind{Samples: true, Family: true})
}

// testSuffix ends the names of files with tests.
const testSuffix = "_test.go"

// declareFile adds what a file of packages with these features declares and imports; tensors in packages
// of these kinds.
func declareFile(d *plan.Declared, p *plan.Plan, f File, extras []string, kinds ...plan.Kind) error {
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
			for _, k := range kinds {
				if !slices.Contains(d.Tensors[k], family) {
					d.Tensors[k] = append(d.Tensors[k], family)
				}
			}
		case strings.Contains(id, plan.ProbeDim), strings.Contains(id, plan.ProbeBranch): // of a size, or a branch: the plan knows them
		case d.Owners[id] != "":
		case len(extras) == 0:
			if !extra(d, id) {
				d.Owners[id] = who
			}
		default:
			for _, e := range extras {
				if d.Extra[e] == nil {
					d.Extra[e] = map[string]string{}
				}
				d.Extra[e][id] = who
			}
		}
	}
	if p.Family != nil {
		use(d, parsed)
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

// extra reports whether packages with some feature declare the identifier.
func extra(d *plan.Declared, id string) bool {
	for _, e := range d.Extra {
		if e[id] != "" {
			return true
		}
	}
	return false
}

// use notes the methods of a file, whose names no field of a type may have, and all identifiers that
// are not exported, which parameters would hide; but for those that are called after a probe.
func use(d *plan.Declared, file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Recv != nil && !strings.Contains(n.Name.Name, plan.ProbeDim) {
				d.Used[n.Name.Name] = true
			}
		case *ast.Ident:
			if !n.IsExported() && !strings.Contains(n.Name, plan.ProbeSize) {
				d.Used[n.Name] = true
			}
		}
		return true
	})
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
