package popart_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/build"
	"github.com/popefgen/popefgen/onnx/popart"
)

// builtRegression is regression, built by calls, with other weights before its own, which nothing reads.
func builtRegression(before ...*onnx.Tensor) *build.Builder {
	b := build.New(build.Opset(13), build.GraphName("regression"))
	for _, t := range before {
		b.Initializer("before", t)
	}
	w := b.Initializer("w", build.TensorOf([]float32{1, -2, 3}, 3, 1))
	y := b.MatMul(b.Input("x", onnx.Float, "n", 3), w)
	b.Output("loss", b.ReduceMeanV1(b.Mul(y, y), build.Keepdims(false)))
	return b
}

func sessionOf(t *testing.T, m popart.Model) *popart.TrainingSession {
	t.Helper()
	s, err := popart.NewTrainingSession(t.Context(), m, popart.DataFlow{2, popart.Anchors{"loss": popart.All}}, popart.Loss("loss"),
		momentum(0.01), popart.CPU(), shapes, &popart.Options{AccumulationFactor: 2})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.PrepareDevice(t.Context()))
	return s
}

// TestBuilt: a Builder's model learns as the same model from elsewhere does, to the bit. Its mistakes are the session's.
func TestBuilt(t *testing.T) {
	a, b := training(t, regression()), sessionOf(t, popart.Built(builtRegression()))
	require.NoError(t, a.WeightsFromHost(t.Context()))
	require.NoError(t, b.WeightsFromHost(t.Context()))
	require.Equal(t, steps(t, a, 3), steps(t, b, 3))
	path := filepath.Join(t.TempDir(), "learnt.onnx")
	require.NoError(t, b.ModelToHost(t.Context(), path))
	m, err := onnx.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, build.TensorOf(popart.In[float32](weights(t, a)["w"])).Data, m.Graph.Initializers[0].Data)

	wrong := builtRegression()
	wrong.MatMul(nil, nil)
	_, err = popart.NewInferenceSession(t.Context(), popart.Built(wrong), popart.DataFlow{1, popart.Anchors{"loss": popart.All}}, popart.CPU(), shapes, nil)
	require.ErrorIs(t, err, popart.ErrPopART)
	var mistake *build.Error
	require.ErrorAs(t, err, &mistake)
	require.Equal(t, "built_test.go", filepath.Base(mistake.File))
	_, err = popart.NewInferenceSession(t.Context(), popart.Built(nil), popart.DataFlow{}, popart.CPU(), shapes, nil)
	require.ErrorIs(t, err, popart.ErrPopART)
}

// TestModelToHostExternal: weights in a file beside the model are written there, in place or beside the new model, and the model and all else in the file stay.
func TestModelToHostExternal(t *testing.T) {
	dir := t.TempDir()
	path, data := filepath.Join(dir, "m.onnx"), filepath.Join(dir, "w.bin")
	b := builtRegression(build.TensorOf([]float32{7, 8}, 2))
	b.SaveInitializersExternally("w.bin")
	require.NoError(t, b.WriteFile(t.Context(), path))
	file, err := os.ReadFile(path)
	require.NoError(t, err)
	fresh, err := os.ReadFile(data)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(data, append(fresh[:len(fresh):len(fresh)], "of another model"...), 0o666))

	s := sessionOf(t, popart.File(path))
	require.NoError(t, s.WeightsFromHost(t.Context()))
	steps(t, s, 3)
	learnt := build.TensorOf(popart.In[float32](weights(t, s)["w"])).Data
	require.NotEqual(t, fresh[64:], learnt)
	copied := filepath.Join(dir, "copy", "learnt.onnx")
	require.NoError(t, os.Mkdir(filepath.Dir(copied), 0o777))
	for _, to := range []string{copied, path} {
		require.NoError(t, s.ModelToHost(t.Context(), to))
		is, err := os.ReadFile(to)
		require.NoError(t, err)
		require.Equal(t, file, is)
		is, err = os.ReadFile(filepath.Join(filepath.Dir(to), "w.bin"))
		require.NoError(t, err)
		require.Equal(t, string(fresh[:64])+string(learnt)+"of another model", string(is))
	}
	goesOn := sessionOf(t, popart.File(copied))
	require.NoError(t, goesOn.WeightsFromHost(t.Context()))
	require.Equal(t, learnt, build.TensorOf(popart.In[float32](weights(t, goesOn)["w"])).Data)

	require.NoError(t, os.WriteFile(data, fresh[:8], 0o666))
	require.ErrorContains(t, s.ModelToHost(t.Context(), path), `external data file "w.bin" has 8 bytes, the model wants 12 at offset 64 for tensor "w": it was changed`)
	require.NoError(t, os.Remove(data))
	require.ErrorContains(t, s.ModelToHost(t.Context(), path), `external data of tensor "before"`)
	is, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, file, is)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 2, "files of data that were begun are gone")
}
