package kernel

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	goreflect "reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAssemblyOffsets compares what the writer of the assembly believes of
// the structs that it is given with what they are.
func TestAssemblyOffsets(t *testing.T) {
	want := map[string]uintptr{}
	structs := map[string]any{
		"gemm": gemmArgs{}, "gemv": gemvArgs{}, "dot": dotArgs{}, "depthwise": depthwiseArgs{},
		"conv": convArgs{}, "copy": copyArgs{}, "blocked": blockedArgs{}, "blockMove": blockMoveArgs{}, "blockedDepthwise": blockedDepthwiseArgs{},
		"bilinear": bilinearArgs{},
		"int8":     int8Args{}, "int8Finish": int8FinishArgs{}, "int8Plane": int8PlaneArgs{},
	}
	for name, s := range structs {
		typ := goreflect.TypeOf(s)
		for i := range typ.NumField() {
			f := typ.Field(i)
			want[name+strings.ToUpper(f.Name[:1])+f.Name[1:]] = f.Offset
		}
	}
	want["panelBytes"] = panel * 4
	want["peakFMAs"] = peakFMAs
	want["convBlock"] = convBlock

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
