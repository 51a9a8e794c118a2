package kernel

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAssemblyConstants compares the numbers that the writer of the assembly
// and the kernels both have.
func TestAssemblyConstants(t *testing.T) {
	want := map[string]uintptr{"panelBytes": panel * 4, "peakFMAs": peakFMAs, "convBlock": convBlock}

	files, err := filepath.Glob("internal/asm/*.go")
	require.NoError(t, err)
	got := map[string]uintptr{}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		for _, d := range f.Decls {
			if d, ok := d.(*ast.GenDecl); ok && d.Tok == token.CONST {
				for _, spec := range d.Specs {
					constants(t, spec.(*ast.ValueSpec), got)
				}
			}
		}
	}
	for name, n := range want {
		require.Contains(t, got, name)
		require.Equal(t, n, got[name], name)
	}
}

// constants adds the constants that s gives a number.
func constants(t *testing.T, s *ast.ValueSpec, to map[string]uintptr) {
	for i, v := range s.Values {
		if v, ok := v.(*ast.BasicLit); ok && v.Kind == token.INT {
			n, err := strconv.ParseUint(v.Value, 0, 64)
			require.NoError(t, err)
			to[s.Names[i].Name] = uintptr(n)
		}
	}
}
