package rt

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mayImport says what each room may import beside the standard library: packages
// below it, none of which computes: ipu/poplar is empty unless its build tag is given. A room must be in here.
var mayImport = map[string]string{
	".":                  "ipu ipu/num popef popef/checkpoint popef/contract rt/internal/callerr rt/internal/errs rt/internal/histogram rt/internal/line rt/internal/seal rt/internal/settings rt/internal/view",
	"ring":               "rt/internal/errs",
	"genrt":              "internal/budget ipu ipu/num ipu/poplar popef popef/checkpoint popef/contract popef/family rt rt/internal/callerr rt/internal/hostmem rt/internal/line rt/internal/packed rt/internal/runs rt/internal/series rt/internal/session rt/internal/sizes rt/internal/view",
	"genrt/genqueues":    "rt rt/genrt rt/internal/callerr rt/modelrt",
	"modelrt":            "ipu popef popef/contract rt rt/internal/callerr rt/internal/hostmem rt/internal/line rt/internal/session rt/internal/settings rt/ring",
	"popxl":              "ipu ipu/export ipu/graph ipu/graph/autodiff ipu/graph/optim ipu/graph/pass ipu/num popef rt rt/internal/hostmem rt/internal/settings rt/internal/view rt/modelrt",
	"popxl/ops":          "ipu/graph ipu/graph/optim ipu/num rt/popxl",
	"internal/callerr":   "internal/printable ipu popef",
	"internal/errs":      "",
	"internal/histogram": "",
	"internal/hostmem":   "ipu popef rt",
	"internal/line":      "ipu rt/internal/callerr rt/internal/errs",
	"internal/packed":    "ipu rt rt/internal/line rt/internal/packing rt/internal/series rt/internal/view",
	"internal/packing":   "rt",
	"internal/rttest":    "github.com/stretchr/testify/require",
	"internal/runs":      "ipu rt",
	"internal/seal":      "",
	"internal/series":    "ipu/num rt",
	"internal/session":   "internal/budget internal/nearest internal/printable ipu popef popef/contract rt rt/internal/callerr rt/internal/histogram rt/internal/hostmem rt/internal/line rt/internal/seal rt/internal/settings",
	"internal/settings":  "",
	"internal/sizes":     "ipu/num popef popef/family rt",
	"internal/view":      "",
}

const module = "github.com/popefgen/popefgen/"

// TestImports keeps what generated code links small, and the rooms one above the
// other.
func TestImports(t *testing.T) {
	seen := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		room := filepath.ToSlash(filepath.Dir(path))
		allowed, ok := mayImport[room]
		require.True(t, ok, "%s is no room that the table has", room)
		seen[room] = true
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, i := range f.Imports {
			at, err := strconv.Unquote(i.Path.Value)
			require.NoError(t, err)
			if strings.Contains(at, ".") {
				require.True(t, slices.Contains(strings.Fields(allowed), strings.TrimPrefix(at, module)), "%s imports %s", path, at)
			}
		}
		return nil
	})
	require.NoError(t, err)
	require.Len(t, seen, len(mayImport), "a room of the table is gone")
}

// TestRunnerAlone lists what packages link that were generated with and without
// queues: who uses a Runner alone pays for that alone.
func TestRunnerAlone(t *testing.T) {
	links := func(of string) string {
		cmd := exec.Command("go", "list", "-deps", "./golden/internal/"+of+"/want")
		cmd.Dir = ".."
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	with, without := links("affine"), links("runner_alone")
	for _, room := range []string{"rt/modelrt", "rt/ring", "rt/genrt/genqueues"} {
		require.Contains(t, with, module+room+"\n")
		require.NotContains(t, without, module+room+"\n")
	}
	require.Contains(t, without, module+"rt/genrt\n")
}
