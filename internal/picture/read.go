package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const module = "github.com/popefgen/popefgen"

// pkg is a package of the module. Tests and generated files do not count.
type pkg struct {
	path    string // below the module
	files   int
	lines   int
	imports []string // paths of packages of the module, in order
}

// internal reports whether only this module can import p.
func (p pkg) internal() bool { return strings.Contains("/"+p.path+"/", "/internal/") }

// read returns the packages of the module whose root is that directory, in the
// order of their paths, for all systems and processors. Left out are other
// modules, examples, and what tests read.
func read(root string) ([]pkg, error) {
	var packages []pkg
	err := filepath.WalkDir(root, func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(root, dir)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if skipped(root, rel, d.Name()) {
			return filepath.SkipDir
		}
		p, err := readPackage(dir, rel)
		if p.files > 0 {
			packages = append(packages, p)
		}
		return err
	})
	return packages, err
}

func skipped(root, rel, name string) bool {
	switch {
	case rel == ".":
		return false
	case name == "testdata", name == "vendor", strings.HasPrefix(name, "."), strings.HasPrefix(name, "_"):
		return true
	case rel == "generated_examples", rel == "build", rel == "bin":
		return true
	case name == "want" && strings.HasPrefix(rel, "golden/"):
		return true
	}
	_, err := os.Stat(filepath.Join(root, rel, "go.mod"))
	return !errors.Is(err, fs.ErrNotExist)
}

// readPackage reads the hand-written Go files of one directory. A package of no
// files is no package.
func readPackage(dir, rel string) (pkg, error) {
	p := pkg{path: rel}
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return p, err
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return p, err
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return p, err
		}
		if ast.IsGenerated(f) {
			continue
		}
		p.files++
		p.lines += bytes.Count(text, []byte("\n"))
		for _, spec := range f.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return p, fmt.Errorf("%s: import %s: %w", name, spec.Path.Value, err)
			}
			if below, ok := strings.CutPrefix(imported, module+"/"); ok {
				p.imports = append(p.imports, below)
			}
		}
	}
	slices.Sort(p.imports)
	p.imports = slices.Compact(p.imports)
	return p, nil
}

// rooms lists the parts of the module from the ground up; a package may import
// those of its own room and of rooms before it. A package belongs to the longest
// entry that it is or lies below.
var rooms = []string{
	"internal",
	"popef",
	"internal/npy",
	"ipu/num",
	"ipu",
	"ipu/graph",
	"ipu/export",
	"ipu/cpu",
	"ipu/iputest",
	"ipu/poplar",
	"onnx",
	"internal/sizes",
	"rt",
	"onnx/popart",
	"serve",
	"internal/serving",
	"golden",
	"internal/golden",
	"templates",
	"gen",
	"serve/dynamic",
	"cmd/popefgen",
}

// roomOf returns the index in rooms of a package's room, or -1.
func roomOf(pkgPath string) int {
	for p := pkgPath; p != "."; p = path.Dir(p) {
		if i := slices.Index(rooms, p); i >= 0 {
			return i
		}
	}
	return -1
}
