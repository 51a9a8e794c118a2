package kerneltest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// SameInAssembly compares a number that the writer of the assembly and the kernels
// both have. The writer's source is in a directory internal/asm beside that of
// the test, or of one above.
func SameInAssembly(t *testing.T, name string, want uintptr) {
	t.Helper()
	files, err := filepath.Glob("internal/asm/*.go")
	for up := ".."; err == nil && len(files) == 0 && len(up) < 20; up = filepath.Join(up, "..") {
		files, err = filepath.Glob(filepath.Join(up, "internal/asm/*.go"))
	}
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
	require.Contains(t, got, name)
	require.Equal(t, want, got[name], name)
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
