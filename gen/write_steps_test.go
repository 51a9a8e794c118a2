package gen

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/gen/plan"
	"github.com/popefgen/popefgen/internal/exportdata"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
)

// withPackage imports one package that is under test, and others from its
// importer.
type withPackage struct {
	types.Importer
	path string
	pkg  *types.Package
}

func (w withPackage) Import(path string) (*types.Package, error) {
	if filepath.Base(path) == w.path && w.pkg != nil {
		return w.pkg, nil
	}
	return w.Importer.Import(path)
}

// builds reports whether the package in dir compiles, with its tests. A folder
// without Go files does.
func builds(dir string, fset *token.FileSet, imports types.Importer) error {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return err
	}
	var own, outside []*ast.File
	name := ""
	for _, n := range names {
		f, err := parser.ParseFile(fset, n, nil, parser.ParseComments)
		switch {
		case err != nil:
			return err
		case strings.HasSuffix(f.Name.Name, "_test"):
			outside = append(outside, f)
			continue
		case name != "" && name != f.Name.Name:
			return fmt.Errorf("found packages %s and %s", name, f.Name.Name)
		}
		name = f.Name.Name
		own = append(own, f)
		for _, group := range f.Comments {
			for _, c := range group.List {
				if file, ok := strings.CutPrefix(c.Text, "//go:embed "); ok {
					if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
						return err
					}
				}
			}
		}
	}
	if own == nil && outside == nil {
		return nil
	}
	check := types.Config{Importer: imports}
	pkg, err := check.Check("example.com/"+name, fset, own, nil)
	if err != nil || outside == nil {
		return err
	}
	check.Importer = withPackage{imports, name, pkg}
	_, err = check.Check("example.com/"+name+"_test", fset, outside, nil)
	return err
}

// packageOf renders the package of a model with these inputs.
func packageOf(t *testing.T, o Options, shape []int64, inputs ...string) []File {
	t.Helper()
	info := popef.TensorInfo{DataType: popef.F32, Shape: shape}
	md := &popef.Metadata{
		ReplicationFactor: 1, NumIPUs: 1, NumProcesses: 1, IsInference: true, Executable: "e", DeviceIterations: 1,
		ProgramFlow: popef.ProgramFlow{Main: []uint32{5}},
		Anchors:     []popef.Anchor{{Name: "y", Handle: "d2h_y", Programs: []uint32{5}, Info: info, Type: popef.Output}},
	}
	for _, in := range inputs {
		md.Anchors = append(md.Anchors, popef.Anchor{Name: in, Handle: "h2d_" + in, Programs: []uint32{5}, Info: info, Type: popef.Input})
	}
	path := filepath.Join(t.TempDir(), "m.popef")
	require.NoError(t, popef.WriteFile(path, func(w *popef.Writer) error {
		if err := w.WriteMetadata(md); err != nil {
			return err
		}
		e, err := w.CreateExecutable("e", false)
		if err != nil {
			return err
		}
		return e.Close()
	}))
	m, err := popef.Load(path)
	require.NoError(t, err)
	defer m.Close()
	p, err := Build(m, o)
	require.NoError(t, err)
	files, err := Emit(p)
	require.NoError(t, err)
	if o.Embed != "" {
		copied, err := ModelCopy(p, m)
		require.NoError(t, err)
		files = append(files, copied)
	}
	return files
}

// TestWriteInSteps ends Write before each of its changes, as a kill would, and
// wants a package that builds; and the next Write finishes.
func TestWriteInSteps(t *testing.T) {
	if testing.Short() {
		t.Skip("it needs the export data of what generated packages import")
	}
	fset := token.NewFileSet()
	imports, err := exportdata.Importer(fset, "github.com/popefgen/popefgen/golden/internal/affine/want",
		"github.com/popefgen/popefgen/golden/outputs", "github.com/popefgen/popefgen/ipu/cpu", "testing", "embed", "log", "path/filepath", "errors")
	require.NoError(t, err)
	zero := 0
	plain := Options{Package: "net", ModelBase: "net.popef", Tests: true}
	embedded, other, batched, underscored := plain, plain, plain, plain
	underscored.Package = "n_et" // whose files have the names of those of package net
	embedded.Embed = "net.popef"
	other.Package, other.ModelBase = "other", "other.popef"
	batched.BatchDim, batched.QueueDepth = &zero, 9
	quiet := plain
	quiet.Tests = false
	packages := map[string][]File{
		"plain":        packageOf(t, plain, []int64{4}, "image", "mask"),
		"other inputs": packageOf(t, plain, []int64{4}, "picture"),
		"other shape":  packageOf(t, plain, []int64{5, 2}, "image", "mask"),
		"embedded":     packageOf(t, embedded, []int64{4}, "image"),
		"other name":   packageOf(t, other, []int64{4}, "image"),
		"batched":      packageOf(t, batched, []int64{4, 3}, "image", "more"),
		"underscore":   packageOf(t, underscored, []int64{4}, "image"),
		"no tests":     packageOf(t, quiet, []int64{4}, "image"),
		"nothing":      nil,
	}
	defer func(f func(string) error) { beforeStep = f }(beforeStep)
	killed := errors.New("killed")
	// write brings dir to hold a package, unless it is killed before a step.
	write := func(dir string, files []File, kill int) (done bool) {
		step := 0
		beforeStep = func(path string) error {
			if step++; step > kill {
				// A kill leaves what was being written.
				require.NoError(t, os.WriteFile(filepath.Join(dir, ".popefgen-0123"), []byte("package x"), 0o600))
				return killed
			}
			return nil
		}
		_, err := Write(dir, files)
		if err != nil {
			require.ErrorIs(t, err, killed)
		}
		return err == nil
	}
	const never = 1 << 20
	for from, old := range packages {
		for to, new := range packages {
			if from == to || rand.IntN(3) > 0 && os.Getenv("POPEFGEN_TESTS") != "all" { // a third of the pairs, others each time
				continue
			}
			for kill, done := 0, false; !done; kill++ {
				dir := t.TempDir()
				require.True(t, write(dir, old, never))
				require.NoError(t, builds(dir, fset, imports), "%s as it is", from)
				done = write(dir, new, kill)
				require.NoError(t, builds(dir, fset, imports), "from %s to %s, killed before step %d", from, to, kill+1)
				if done {
					continue
				}
				// Whoever goes on may want the new package or the old one again.
				want := new
				if kill%2 == 1 {
					want = old
				}
				if !write(dir, want, 1) { // and is killed once more
					require.NoError(t, builds(dir, fset, imports), "from %s to %s, killed before step %d, and again", from, to, kill+1)
				}
				require.True(t, write(dir, want, never))
				require.NoFileExists(t, filepath.Join(dir, ".popefgen-0123"))
				require.NoError(t, builds(dir, fset, imports))
				diff, err := Check(dir, want)
				require.NoError(t, err)
				require.Empty(t, diff)
			}
		}
	}
}

// TestContractIsWrittenLast: contract.txt says what the package is, so it may not
// say so of a package whose tests are still missing.
func TestContractIsWrittenLast(t *testing.T) {
	var stale []difference
	for _, name := range []string{contract.FileName, "p.go", "p_test.go", "p" + plan.ContractSuffix, "p" + plan.ModelSuffix, "p.popef"} {
		stale = append(stale, difference{name: name, want: &File{}})
	}
	steps := inSteps(stale)
	require.Len(t, steps, len(stale))
	require.Equal(t, contract.FileName, steps[len(steps)-1].name)
}
