package main

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"
)

// layout is how amd64 lays out structs.
var layout = types.SizesFor("gc", "amd64")

// structs are the types of a package for amd64.
type structs struct{ *types.Package }

// structError is what looking up a struct or a field panics with: the code
// that writes assembly has too many places where it does for each to return
// an error.
type structError string

func (e structError) Error() string { return string(e) }

// named returns a struct of the package by name.
func (s *structs) named(name string) *types.Named {
	if s == nil || s.Package == nil {
		panic(structError(fmt.Sprintf("struct %s: no package is known", name)))
	}
	obj, ok := s.Scope().Lookup(name).(*types.TypeName)
	if ok {
		if t, ok := obj.Type().(*types.Named); ok {
			if _, ok := t.Underlying().(*types.Struct); ok {
				return t
			}
		}
	}
	panic(structError(fmt.Sprintf("package %s has no struct %s", s.Name(), name)))
}

// offset returns the offset of a field, of which path is the name, after those
// of the structs that hold it, with dots in between.
func (s *structs) offset(t *types.Named, path string) int {
	if t == nil {
		panic(structError(fmt.Sprintf("field %s: the function has no struct of arguments", path)))
	}
	var of types.Type = t
	var total int64
	for name := range strings.SplitSeq(path, ".") {
		u, ok := of.Underlying().(*types.Struct)
		if !ok {
			panic(structError(fmt.Sprintf("field %s of %s: %s is not a struct, so it has no %s", path, t.Obj().Name(), of, name)))
		}
		var fields []*types.Var // up to the one that is meant
		for f := range u.Fields() {
			fields = append(fields, f)
			if f.Name() == name {
				break
			}
		}
		if len(fields) == 0 || fields[len(fields)-1].Name() != name {
			panic(structError(fmt.Sprintf("%s has no field %s", t.Obj().Name(), path)))
		}
		for _, f := range fields {
			if !known(f.Type()) {
				panic(structError(fmt.Sprintf("field %s of %s: the size of field %s is not known", path, t.Obj().Name(), f.Name())))
			}
		}
		offsets := layout.Offsetsof(fields)
		total += offsets[len(offsets)-1]
		of = fields[len(fields)-1].Type()
	}
	return int(total)
}

// known reports whether the size of a type can be determined: whether nothing of it
// is from a package that was not read.
func known(t types.Type) bool {
	switch u := t.Underlying().(type) {
	case *types.Basic:
		return u.Kind() != types.Invalid
	case *types.Array:
		return u.Len() >= 0 && known(u.Elem())
	case *types.Struct:
		for f := range u.Fields() {
			if !known(f.Type()) {
				return false
			}
		}
	}
	return true // pointers and the like
}

// loader reads packages of one module from their source, without looking into
// functions. Packages of other modules are taken for empty: arguments of
// assembly have none of their types.
type loader struct {
	files    *token.FileSet
	module   string // its path
	root     string // and directory
	packages map[string]*types.Package
}

func newLoader() *loader {
	return &loader{files: token.NewFileSet(), packages: map[string]*types.Package{}}
}

// dir returns the structs of the package in a directory.
func (l *loader) dir(dir string) (*structs, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if l.root == "" {
		if err := l.findModule(dir); err != nil {
			return nil, err
		}
	}
	below, err := filepath.Rel(l.root, dir)
	if err != nil {
		return nil, err
	}
	path := l.module
	if below != "." {
		path += "/" + filepath.ToSlash(below)
	}
	p, err := l.Import(path)
	if err != nil {
		return nil, err
	}
	return &structs{p}, nil
}

// findModule sets the module that a directory belongs to.
func (l *loader) findModule(dir string) error {
	for at := dir; ; at = filepath.Dir(at) {
		text, err := os.ReadFile(filepath.Join(at, "go.mod"))
		if err == nil {
			l.root, l.module = at, modfile.ModulePath(text)
			return nil
		}
		if !os.IsNotExist(err) {
			return err
		}
		if at == filepath.Dir(at) {
			return fmt.Errorf("%s is in no module: no directory above it has a go.mod", dir)
		}
	}
}

// Import implements [types.Importer].
func (l *loader) Import(path string) (*types.Package, error) {
	if path == "unsafe" {
		return types.Unsafe, nil
	}
	if p, ok := l.packages[path]; ok {
		return p, nil
	}
	below, ok := strings.CutPrefix(path+"/", l.module+"/")
	if !ok {
		p := types.NewPackage(path, filepath.Base(path))
		p.MarkComplete()
		l.packages[path] = p
		return p, nil
	}
	dir := filepath.Join(l.root, filepath.FromSlash(below))
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	amd64 := build.Default
	amd64.GOOS, amd64.GOARCH = "linux", "amd64"
	var parsed []*ast.File
	for _, e := range entries {
		name := e.Name()
		if e.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		if ok, err := amd64.MatchFile(dir, name); err != nil || !ok {
			continue
		}
		f, err := parser.ParseFile(l.files, filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, f)
	}
	// What other modules' packages would have is missing, which is an error each.
	config := types.Config{Importer: l, IgnoreFuncBodies: true, Sizes: layout, Error: func(error) {}}
	p, _ := config.Check(path, l.files, parsed, nil)
	l.packages[path] = p
	return p, nil
}
