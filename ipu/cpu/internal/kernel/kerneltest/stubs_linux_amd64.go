package kerneltest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
)

// Set is an instruction set of functions in assembly.
type Set struct {
	Name  string // ends the names of operations
	Tile  string // ends those of tiles
	Lanes int    // float32 in a vector
}

// Wide reports whether the set is AVX-512.
func (s Set) Wide() bool { return s.Lanes == 16 }

// Stubs runs the functions in assembly of the package in the working directory
// by themselves, on memory between pages that may not be touched.
type Stubs struct {
	*Guarded
	names map[string]bool // of all; whether they have run
	sets  []Set
}

// NewStubs returns the package's functions. Those of the test's path and of
// slower ones are run.
func NewStubs(t *testing.T) *Stubs {
	if tensor.Path == tensor.PathGo {
		t.Skip("no AVX2")
	}
	s := &Stubs{Guarded: newGuarded(t), names: map[string]bool{}, sets: []Set{{"AVX2", "_avx2", 8}}}
	if tensor.Path == tensor.PathAVX512 {
		s.sets = append(s.sets, Set{"AVX512", "_avx512", 16})
	}
	files, err := filepath.Glob("stubs_*_amd64.go")
	require.NoError(t, err)
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		for _, d := range f.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				s.names[f.Name.Name] = false
			}
		}
	}
	return s
}

// Each calls f for every instruction set.
func (s *Stubs) Each(f func(Set)) {
	for _, set := range s.sets {
		f(set)
	}
}

// Run calls f twice, with operands that end where memory ends that may be
// touched, and with those that begin where it begins. The function is the one by
// whose name it is called, or, of a tile, the one that arguments ask for.
func (s *Stubs) Run(function string, f func(m *Guarded)) {
	s.t.Helper()
	_, ok := s.names[function]
	require.True(s.t, ok, "there is no function %s", function)
	s.names[function] = true
	s.run(function, f)
}

// Finish fails for functions that have not run, though the machine could. One
// that goes on in tiles has run if they have.
func (s *Stubs) Finish() {
	s.t.Helper()
	tiled := map[string]bool{}
	for name := range s.names {
		if operation, _, ok := strings.Cut(name, "_"); ok {
			tiled[operation] = true
		}
	}
	for name, ran := range s.names {
		if operation := strings.TrimSuffix(strings.TrimSuffix(name, "AVX512"), "AVX2"); ran || tiled[operation] {
			continue
		}
		wide := strings.HasSuffix(strings.ToLower(name), "avx512")
		require.True(s.t, wide && len(s.sets) == 1, "%s has not run by itself", name)
	}
}

// Without says that the machine lacks what operations need by AVX-512, which need
// not run then.
func (s *Stubs) Without(operations ...string) {
	for name := range s.names {
		for _, o := range operations {
			if name == o+"AVX512" || strings.HasPrefix(name, o+"_") && strings.HasSuffix(name, "_avx512") {
				s.names[name] = true
			}
		}
	}
}
