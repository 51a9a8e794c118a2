package emit

import (
	"fmt"
	"go/format"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/gen/plan"
)

// TestFormatInPieces formats the main and test files of models with many anchors, as they
// are rendered, and the golden files in pieces of any size: no byte may
// differ from what gofmt writes of the whole.
func TestFormatInPieces(t *testing.T) {
	sources := map[string][]byte{}
	for what, name := range map[string]func(i int) string{
		"numbered":   func(i int) string { return fmt.Sprintf("input_%d", i) },
		"of symbols": func(i int) string { return strings.Repeat("世", 1+i%40) + fmt.Sprint(i) + "}\n\nfunc x() {\n" },
	} {
		p, err := plan.Build(manyAnchors(t, 24, name), plan.Options{Tests: true}, Declared())
		require.NoError(t, err)
		for file, render := range map[string]func(*plan.Plan) ([]byte, error){"main": mainFile, "contract": contractFile, "test": testFile} {
			sources[what+", "+file], err = render(p)
			require.NoError(t, err)
		}
	}
	golden, err := filepath.Glob(filepath.Join("..", "..", "golden", "internal", "*", "want", "*.go"))
	require.NoError(t, err)
	require.NotEmpty(t, golden)
	for _, path := range golden {
		sources[path], err = os.ReadFile(path)
		require.NoError(t, err)
	}
	cut := 0
	for what, src := range sources {
		want, err := format.Source(src)
		require.NoError(t, err, what)
		for _, size := range []int{1, 100, 1000, 5000} {
			cut += len(pieces(src, size)) - 1
			got, err := gofmt(src, size)
			require.NoError(t, err, what)
			require.Empty(t, cmp.Diff(string(want), string(got)), "%s in pieces of %d bytes", what, size)
		}
	}
	require.Greater(t, cut, 20*len(sources), "nothing was cut")
}

// TestFormatPiecesThatAreNone formats what a line within a raw string or a comment makes
// look like the end of a declaration, and what is no Go.
func TestFormatPiecesThatAreNone(t *testing.T) {
	long := "package p\n\nvar s = `{\n}\n\nfunc f() {\n}\n\ntype t `\n\n/* {\n}\n\nfunc g() {}\n*/\nfunc h ( ) {\n}\n\n\nfunc i ( ) {}\n"
	want, err := format.Source([]byte(long))
	require.NoError(t, err)
	got, err := gofmt([]byte(long), 1)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))

	broken := "package p\n\nfunc a() {\n}\n\nfunc b() { 1 2 }\n"
	_, want2 := format.Source([]byte(broken))
	_, err = gofmt([]byte(broken), 1)
	require.EqualError(t, err, want2.Error())
}
