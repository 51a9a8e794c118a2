package rt

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestImports keeps what generated code links small: the standard library and
// the packages below this one, none of which computes.
func TestImports(t *testing.T) {
	const module = "github.com/popefgen/popefgen/"
	allowed := map[string]bool{module + "internal/budget": true, module + "internal/nearest": true, module + "internal/printable": true, module + "ipu": true, module + "ipu/num": true, module + "popef": true, module + "popef/contract": true,
		module + "rt/internal/errs": true, module + "rt/ring": true}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		require.NoError(t, err)
		for _, i := range f.Imports {
			path, err := strconv.Unquote(i.Path.Value)
			require.NoError(t, err)
			if strings.Contains(path, ".") {
				require.True(t, allowed[path], "%s imports %s", name, path)
			}
		}
	}
}
