package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// guides are the documents that say where things are, and how many places each
// names at least.
var guides = map[string]struct{ places, names int }{
	"CONTRIBUTING.md":      {30, 30},
	"docs/architecture.md": {30, 30},
	"docs/glossary.md":     {30, 5},
}

var (
	// placeName is a file or a folder in backquotes.
	placeName = regexp.MustCompile("`([a-z0-9_*/]+(?:\\.(?:go|s|txt|md|json)|/[a-z0-9_*]+))`")
	// codeName is a name of Go in backquotes, with its package or its type or without.
	codeName = regexp.MustCompile("`([A-Za-z][A-Za-z0-9]*(?:\\.[A-Za-z][A-Za-z0-9]*)*)(?:\\(\\))?`")
)

// TestGuidesNamePlaces: every file and folder that the guides name is there, by its
// whole path or the end of it.
func TestGuidesNamePlaces(t *testing.T) {
	var all []string
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && file != root && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir
		}
		all = append(all, filepath.ToSlash(file))
		return err
	})
	require.NoError(t, err)
	there := func(place string) bool {
		parts := strings.Count(place, "/") + 1
		return slices.ContainsFunc(all, func(file string) bool {
			components := strings.Split(file, "/")
			ok, err := path.Match(place, strings.Join(components[max(0, len(components)-parts):], "/"))
			return ok && err == nil
		})
	}
	require.True(t, there("picture/*_test.go"))
	require.False(t, there("gen/picture"))
	for guide, least := range guides {
		text, err := os.ReadFile(filepath.Join(root, guide))
		require.NoError(t, err)
		found := 0
		for _, m := range placeName.FindAllStringSubmatch(string(text), -1) {
			if found++; !there(m[1]) && !foreign[m[1]] && !strings.Contains(m[1], "arm64") { // NEON is not there yet
				t.Errorf("%s: there is no %s: it has moved, or another file does its work", guide, m[1])
			}
		}
		require.GreaterOrEqual(t, found, least.places, guide)
	}
}

// TestQuestionsHaveOnePath: a question of the glossary has one path as its answer, from
// the root of the module, where a file is.
func TestQuestionsHaveOnePath(t *testing.T) {
	text, err := os.ReadFile(root + "/docs/glossary.md")
	require.NoError(t, err)
	_, table, ok := strings.Cut(string(text), "## Where things are")
	require.True(t, ok)
	asked := regexp.MustCompile(`(?m)^\| (.*\?) \| (.*?) \| .* \|$`).FindAllStringSubmatch(table, -1)
	require.GreaterOrEqual(t, len(asked), 10)
	for _, m := range asked {
		info, err := os.Stat(filepath.Join(root, strings.Trim(m[2], "`")))
		if err != nil || !info.Mode().IsRegular() {
			t.Errorf("docs/glossary.md: %s %s is no file: it has moved, or another one does its work", m[1], m[2])
		}
	}
	require.Len(t, asked, strings.Count(table, "\n| ")-1, "a row without a question and one path")
}

// foreign are names in the guides of what stands in other modules.
var foreign = map[string]bool{
	"CONTRIBUTING.md": true, "sync.Mutex": true, "testing.AllocsPerRun": true, "cli.Command": true, "text/template": true,
	"WeightsFromHost": true, "OptimizerFromHost": true, // programs of an executable
}

// TestGuidesNameCode: every function, method, type and test that the guides name is
// declared somewhere in the module.
func TestGuidesNameCode(t *testing.T) {
	declared := declarations(t)
	for guide, least := range guides {
		text, err := os.ReadFile(filepath.Join(root, guide))
		require.NoError(t, err)
		found := 0
		for _, m := range codeName.FindAllStringSubmatch(string(text), -1) {
			name := m[1]
			if name == strings.ToLower(name) || name == strings.ToUpper(name) || foreign[name] {
				continue // a word, an option, or a value that somebody types
			}
			if found++; !declared[name] {
				t.Errorf("%s: nothing is called %s: name what does its work now", guide, name)
			}
		}
		require.GreaterOrEqual(t, found, least.names, guide)
	}
}

// declarations returns all that the module declares, its tests included, as name,
// package.name, Type.name and package.Type.name.
func declarations(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(file) != ".go":
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		declare := func(name string) {
			names[name], names[strings.TrimSuffix(f.Name.Name, "_test")+"."+name] = true, true
		}
		for _, decl := range f.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				declare(decl.Name.Name)
				if decl.Recv != nil {
					declare(receiver(decl.Recv.List[0].Type) + "." + decl.Name.Name)
				}
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					declareSpec(spec, declare)
				}
			}
		}
		return nil
	})
	require.NoError(t, err)
	return names
}

// declareSpec declares variables, constants, and types with their fields and
// methods.
func declareSpec(spec ast.Spec, declare func(string)) {
	switch s := spec.(type) {
	case *ast.ValueSpec:
		for _, name := range s.Names {
			declare(name.Name)
		}
	case *ast.TypeSpec:
		declare(s.Name.Name)
		fields := &ast.FieldList{}
		switch typ := s.Type.(type) {
		case *ast.StructType:
			fields = typ.Fields
		case *ast.InterfaceType:
			fields = typ.Methods
		}
		for _, field := range fields.List {
			for _, name := range field.Names {
				declare(name.Name)
				declare(s.Name.Name + "." + name.Name)
			}
		}
	}
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	}
	return ""
}
