package gen

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"strconv"
	"strings"
	"sync"

	"github.com/popefgen/popefgen/popef"
)

// reserved are the identifiers that generated files declare and import,
// whatever the model. They are read from the files of a model that has one
// tensor in every place, so that no template declares what this does not know.
type reserved struct {
	owners   map[string]string // package-level identifiers: who declares them
	packages map[string]bool   // names of imported packages
	families map[bool][]string // what each tensor declares, its name being %s; by whether samples are told apart
}

// probeTensor is the Go name of the tensor of that model. It does not occur in
// anything else that is generated.
const probeTensor = "PopefgenProbe"

var (
	reservedOnce  sync.Once
	reservedTable *reserved
)

// theReserved returns the table, which is made once.
func theReserved() *reserved {
	reservedOnce.Do(func() { reservedTable = readReserved() })
	return reservedTable
}

func readReserved() *reserved {
	r := &reserved{owners: map[string]string{}, packages: map[string]bool{}, families: map[bool][]string{}}
	dim := 0
	for _, o := range []Options{
		{Tests: true, Embed: "probe.popef"},
		{Tests: true, BatchDim: &dim},
	} {
		o.Package, o.ModelBase = "probe", "probe.popef"
		b := &builder{model: probeModel(), opts: o, probing: true}
		for _, pass := range passes() {
			pass(b)
		}
		files, err := Emit(&b.plan)
		if err != nil || len(b.problems) > 0 {
			panic("gen: the model that names are read from has no package: " + strings.Join(b.problems, "; ")) // no input leads here
		}
		for _, f := range files {
			if path.Ext(f.Name) == ".go" {
				r.read(f, &b.plan)
			}
		}
	}
	return r
}

// probeModel has a tensor of that name in every struct.
func probeModel() *popef.Model {
	info := popef.TensorInfo{DataType: popef.F32, Shape: []int64{1, 1}}
	m := &popef.Model{}
	m.Metadata = popef.Metadata{ReplicationFactor: 1, DeviceIterations: 1, ProgramFlow: popef.ProgramFlow{Load: []uint32{0}, Main: []uint32{1}, Save: []uint32{2}}}
	for _, a := range []struct {
		handle  string
		typ     popef.TensorType
		program uint32
	}{{"in", popef.Input, 1}, {"out", popef.Output, 1}, {"load", popef.Input, 0}, {"save", popef.Output, 2}} {
		m.Metadata.Anchors = append(m.Metadata.Anchors, popef.Anchor{Name: probeTensor, Handle: a.handle, Type: a.typ, Info: info, Programs: []uint32{a.program}})
	}
	return m
}

// read adds what a file declares and imports.
func (r *reserved) read(f File, p *Plan) {
	parsed, err := parser.ParseFile(token.NewFileSet(), f.Name, f.Data, 0)
	if err != nil {
		panic("gen: " + err.Error()) // Emit has formatted it
	}
	who := "the generated package itself"
	if strings.HasSuffix(f.Name, "_test.go") {
		who = "the generated tests"
	}
	declare := func(id *ast.Ident) {
		switch {
		case id.Name == "_" || id.Name == "init" || id.Name == p.Pin: // the pin is another for every model
		case strings.Contains(id.Name, probeTensor):
			family := strings.Replace(id.Name, probeTensor, "%s", 1)
			list := r.families[p.BatchSize > 0]
			for _, have := range list {
				if have == family {
					return
				}
			}
			r.families[p.BatchSize > 0] = append(list, family)
		default:
			r.owners[id.Name] = who
		}
	}
	for _, d := range parsed.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				declare(d.Name)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
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
			r.packages[path.Base(at)] = true
		}
	}
}
