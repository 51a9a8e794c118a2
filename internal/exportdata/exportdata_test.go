package exportdata

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestImporter(t *testing.T) {
	fset := token.NewFileSet()
	imports, err := Importer(fset, "bytes")
	require.NoError(t, err)
	for _, c := range []struct{ name, text, want string }{
		{"a package", `package a; import "bytes"; var B bytes.Buffer`, ""},
		{"what it imports", `package a; import "io"; var R io.Reader`, ""},
		{"a mistake", `package a; import "bytes"; var B bytes.Bufer`, "undefined: bytes.Bufer"},
		{"another package", `package a; import "net/http"; var C http.Client`, "net/http is not among the packages that were listed"},
	} {
		f, err := parser.ParseFile(fset, "a.go", c.text, 0)
		require.NoError(t, err)
		_, err = (&types.Config{Importer: imports}).Check("a", fset, []*ast.File{f}, nil)
		if c.want == "" {
			require.NoError(t, err, c.name)
		} else {
			require.ErrorContains(t, err, c.want, c.name)
		}
	}
	_, err = Importer(fset, "./nowhere")
	require.ErrorContains(t, err, "nowhere")
}
