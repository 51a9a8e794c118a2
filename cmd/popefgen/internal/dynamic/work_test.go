package dynamic

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/onnx/verify"
)

// TestWorkFor keeps the bound of what runs may compute where it is meant to be.
func TestWorkFor(t *testing.T) {
	require.EqualValues(t, freeWork, workFor(0, 0))
	require.Less(t, workFor(400, 4), int64(freeWork+freeWork/100), "a few hundred bytes ask for nothing worth mentioning")
	require.EqualValues(t, mostWork, workFor(100<<20, 600<<10))
	require.EqualValues(t, mostWork, workFor(math.MaxInt64, math.MaxInt64))

	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "a", "b"), 0o777))
	for _, name := range []string{"x", "a/y", "a/b/z"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), make([]byte, 100), 0o666))
	}
	require.EqualValues(t, 300, SizeOf(dir))
	require.NoError(t, os.Symlink("x", filepath.Join(dir, "link")))
	require.EqualValues(t, 200, SizeOf(filepath.Join(dir, "link"), filepath.Join(dir, "a/y"), filepath.Join(dir, "none")))
}

// TestPublicModelsStayFarBelowTheirWork wants real models to take a tenth at most
// of what the command lets a model of their size take.
func TestPublicModelsStayFarBelowTheirWork(t *testing.T) {
	data := os.Getenv("POPEFGEN_TESTDATA")
	if data == "" {
		data = filepath.Join("..", "..", "..", "..", "..", "shared")
	}
	cases, err := verify.Find([]string{filepath.Join(data, "models")}, true)
	if err != nil || len(cases) == 0 {
		t.Skipf("no public models in %s (set POPEFGEN_TESTDATA)", data)
	}
	for _, c := range cases {
		m, err := onnx.ReadFile(filepath.Join(c.Dir, "model.onnx"))
		require.NoError(t, err)
		require.Positive(t, m.Size, c.Dir)
		s, err := verify.Compile(m, c.Sets[0], compile.Options{})
		require.NoError(t, err, c.Dir)
		plan, err := cpu.PlanOf(s.Executable, 1)
		require.NoError(t, err, c.Dir)
		inputs, work := int64(0), int64(0)
		for _, b := range s.Fed {
			inputs += int64(len(b))
		}
		for _, p := range plan.Programs {
			work = max(work, p.Work)
		}
		require.Positive(t, work, c.Dir)
		t.Logf("%s: %.2g operations, %.1f %% of what is allowed", filepath.Base(c.Dir), float64(work), 100*float64(work)/float64(workFor(m.Size, inputs)))
		require.Less(t, work, workFor(m.Size, inputs)/10, c.Dir)
	}
}
