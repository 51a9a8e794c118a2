package rt_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// TestOverwrittenModel writes over and cuts off the file of a model that is in
// use, in a process of its own: it would end one that maps it.
func TestOverwrittenModel(t *testing.T) {
	if how := os.Getenv("POPEFGEN_TEST_OVERWRITE"); how != "" {
		overwritten(t, how)
		return
	}
	if runtime.GOOS == "js" {
		t.Skip("there are no processes")
	}
	for _, how := range []string{"cut off", "other bytes"} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestOverwrittenModel$", "-test.v")
		cmd.Env = append(os.Environ(), "POPEFGEN_TEST_OVERWRITE="+how)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", how, out)
		require.Contains(t, string(out), "--- PASS: TestOverwrittenModel")
	}
}

func overwritten(t *testing.T, how string) {
	v := variant{"cpu", "cpu", file(t, affineMetadata(), affinePortable(t), affineData), nil}
	path := filepath.Join(t.TempDir(), "affine.popef")
	write := func() {
		data := v.model
		switch how {
		case "cut off":
			data = nil
		case "other bytes":
			data = bytes.Repeat([]byte{0xAA}, len(v.model))
		}
		require.NoError(t, os.WriteFile(path, data, 0o600)) // the same file
		require.NoError(t, os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour)))
	}
	for _, private := range []bool{true, false} {
		require.NoError(t, os.WriteFile(path, v.model, 0o600))
		opts := []rt.RunnerOption{rt.WithModelFile(path), rt.WithBackend("cpu")}
		if private {
			opts = append(opts, rt.WithPrivateCopy())
		}
		r, err := Open(t.Context(), affineSpec(t), &LoadInputs{B: &B{[2]float32{10, 20}}}, genrt.Source{}, opts...)
		require.NoError(t, err)
		compute(t, r, 1)
		write()
		if private {
			compute(t, r, 1)
			require.NoError(t, r.Session().Load(t.Context()))
			compute(t, r, 2)
		} else {
			err := r.Session().Load(t.Context())
			require.ErrorIs(t, err, popef.ErrChanged)
			require.ErrorContains(t, err, "replace models by a rename")
			require.ErrorIs(t, r.UpdateWeights(t.Context(), rt.WeightOf("h2d_b", &B{})), popef.ErrChanged)
		}
		require.NoError(t, r.Close())
	}
	// A file that takes its place is harmless.
	require.NoError(t, os.WriteFile(path, v.model, 0o600))
	s, err := modelrt.OpenSession(t.Context(), []string{path}, rt.WithBackend("cpu"))
	require.NoError(t, err)
	buffers(t, s)
	require.NoError(t, os.WriteFile(path+".new", []byte("other"), 0o600))
	require.NoError(t, os.Rename(path+".new", path))
	require.NoError(t, s.Load(t.Context()))
	require.NoError(t, s.Run(t.Context()))
	require.NoError(t, s.Close())
	_, err = modelrt.NewSession(t.Context(), load(t, v.model), rt.WithPrivateCopy())
	require.ErrorIs(t, err, rt.ErrOption)
}
