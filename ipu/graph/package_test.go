package graph

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPackage: an executable tells the definitions of the operators that it has, each once, and what differs from those here is named.
func TestPackage(t *testing.T) {
	b := NewBuilder("package")
	x := b.AddLocal("x", TensorType{DType: F32, Shape: []int64{2, 2}})
	g := b.BeginGraph("main")
	y, err := b.Node(&MatMul{}, "product", x, x)
	require.NoError(t, err)
	for range 2 {
		y, err = b.Node(&Binary{Fn: Add}, "sum", y[0], x)
		require.NoError(t, err)
	}
	b.AddProgram(0, "main", b.CopyIn("x", x), b.Call(g), b.CopyOut("y", y[0]))
	e, err := b.Finish()
	require.NoError(t, err)

	p := PackageOf(e)
	require.Empty(t, p.Differs())
	require.Len(t, p.Operators, 2)
	require.Equal(t, []string{"Binary", "MatMul"}, []string{p.Operators[0].Kind, p.Operators[1].Kind})
	here := p.Operators[1].Hash
	require.Regexp(t, "^[0-9a-f]{16}$", here)
	p.Operators[1].Hash = "0123456789abcdef"
	require.Equal(t, "these operators have other definitions: MatMul (0123456789abcdef, and "+here+" here)", p.Differs())
	p.Operators[1] = Definition{"Germ", "0123456789abcdef"}
	require.Equal(t, "these operators have other definitions: Germ (0123456789abcdef, and  here)", p.Differs())
	p.Revision = 7
	require.Equal(t, "operators have revision 7 of their meaning, and 1 here", p.Differs())

	seen := map[string]bool{}
	for _, v := range []any{struct{ A int64 }{}, struct{ B int64 }{}, struct{ A bool }{}, struct{ A, B int64 }{}, struct{}{}} {
		h := hashOf("Op", reflect.TypeOf(v))
		require.False(t, seen[h], "%T", v)
		seen[h] = true
	}
	require.NotEqual(t, hashOf("Op", reflect.TypeOf(struct{}{})), hashOf("Other", reflect.TypeOf(struct{}{})))
}
