package popart_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/internal/onnxtest"
	"github.com/popefgen/popefgen/onnx/popart"
)

// caching returns options of a session with a cache, and what is logged about that.
func caching(t testing.TB, folder string, o popart.Options) (*popart.Options, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	h, err := popart.NewLogHandler(&log, popart.LogConfig{Level: popart.LevelOff, Modules: map[string]slog.Level{"cache": slog.LevelDebug}})
	require.NoError(t, err)
	o.EngineCaching, o.CachePath, o.Logger = true, folder, slog.New(h)
	return &o, &log
}

const taken = "the compiled model is taken from the cache"

// TestCache: the same model, data flow and options take the compiled model from the cache, and compute the same; whatever else differs does not.
// Feature 113.
func TestCache(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "new", "cache")
	flow := popart.DataFlow{2, popart.Anchors{"z": popart.All}}
	results := func(model popart.Model, flow popart.DataFlow, o popart.Options) ([]float32, bool, []string) {
		with, log := caching(t, folder, o)
		s, err := popart.NewInferenceSession(t.Context(), model, flow, popart.CPU(), shapes, with)
		require.NoError(t, err)
		defer s.Close()
		require.NoError(t, s.PrepareDevice(t.Context()))
		in, out := s.Inputs()["x"], s.InitAnchorArrays()
		n := int64(1)
		for _, d := range in.Shape {
			n *= d
		}
		require.NoError(t, s.Run(t.Context(), popart.Arrays(map[string]popart.Array{"x": popart.Of(count(int(n)))}, out)))
		return popart.In[float32](out["z"]), strings.Contains(log.String(), taken), s.Warnings()
	}
	files := func() []string {
		all, err := filepath.Glob(filepath.Join(folder, "*"))
		require.NoError(t, err)
		return all
	}
	first, hit, _ := results(doubler(), flow, popart.Options{})
	require.False(t, hit)
	require.Len(t, files(), 1)
	for _, o := range []popart.Options{{}, {VariableWeights: true, EngineOptions: map[string]string{"threads": "1"}}} { // which change no compiled model
		again, hit, _ := results(doubler(), flow, o)
		require.True(t, hit)
		require.Equal(t, first, again)
	}

	other := onnxtest.Model(13, &onnx.Graph{
		Name:         "doubler",
		Initializers: []*onnx.Tensor{onnxtest.Named(onnxtest.F32s(onnxtest.Dims(3), 1, 2, 4), "w")},
		Inputs:       []onnx.ValueInfo{onnxtest.Info("x", onnx.Float, "n", 3), onnxtest.Info("idle", onnx.Float, 1)},
		Nodes: []*onnx.Node{
			onnxtest.Node("Add", onnxtest.Names("x", "x"), onnxtest.Names("y")),
			onnxtest.Node("Add", onnxtest.Names("y", "w"), onnxtest.Names("z")),
		},
		Outputs: onnxtest.Outputs("z"),
	})
	for i, different := range []func() ([]float32, bool, []string){
		func() ([]float32, bool, []string) { return results(popart.ONNX(other), flow, popart.Options{}) },
		func() ([]float32, bool, []string) {
			return results(doubler(), popart.DataFlow{2, popart.Anchors{"z": popart.Final}}, popart.Options{})
		},
		func() ([]float32, bool, []string) {
			return results(doubler(), popart.DataFlow{4, popart.Anchors{"z": popart.All}}, popart.Options{})
		},
		func() ([]float32, bool, []string) {
			return results(doubler(), flow, popart.Options{ReplicationFactor: 2})
		},
		func() ([]float32, bool, []string) { return results(doubler(), flow, popart.Options{Seed: 7}) },
	} {
		want, hit, warnings := different()
		require.False(t, hit, i)
		got, hit, again := different()
		require.True(t, hit, i)
		require.Equal(t, want, got)
		require.Equal(t, warnings, again)
	}
	require.Len(t, files(), 6)
	require.NotEqual(t, first, func() []float32 { y, _, _ := results(popart.ONNX(other), flow, popart.Options{}); return y }())
}

// TestCacheOfTraining: a session of a cached model learns what the first one learnt, takes the same optimizers, and saves without what the cache keeps besides; another optimizer or loss is another model.
// Feature 113.
func TestCacheOfTraining(t *testing.T) {
	folder := t.TempDir()
	open := func(loss popart.TrainingLoss, o popart.Optimizer) (*popart.TrainingSession, string) {
		with, log := caching(t, folder, popart.Options{AccumulationFactor: 2})
		s, err := popart.NewTrainingSession(t.Context(), popart.ONNX(regression()), popart.DataFlow{2, popart.Anchors{"loss": popart.All}}, loss, o, popart.CPU(), shapes, with)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		require.NoError(t, s.PrepareDevice(t.Context()))
		require.NoError(t, s.WeightsFromHost(t.Context()))
		return s, log.String()
	}
	a, log := open(popart.Loss("loss"), momentum(0.01))
	require.NotContains(t, log, taken)
	b, log := open(popart.Loss("loss"), momentum(0.01))
	require.Contains(t, log, taken)
	require.Equal(t, steps(t, a, 3), steps(t, b, 3))
	for _, s := range []*popart.TrainingSession{a, b} {
		require.NoError(t, s.UpdateOptimizer(t.Context(), momentum(0.002)))
		require.ErrorIs(t, s.UpdateOptimizer(t.Context(), popart.ConstSGD(1)), popart.ErrReplacement)
	}
	require.Equal(t, steps(t, a, 3), steps(t, b, 3))
	saved := func(s *popart.TrainingSession) []byte {
		path := filepath.Join(t.TempDir(), "saved.popef")
		require.NoError(t, s.WeightsToHost(t.Context()))
		require.NoError(t, s.SaveExecutable(path, popart.WithVariables()))
		file, err := os.ReadFile(path)
		require.NoError(t, err)
		return file
	}
	require.Equal(t, saved(a), saved(b))
	_, log = open(popart.Loss("loss"), momentum(0.02))
	require.NotContains(t, log, taken)
	_, log = open(popart.LossOf{Kind: "output", Output: "loss", Reduction: "sum"}, momentum(0.01))
	require.NotContains(t, log, taken)
}

// TestCacheOfDamagedFiles: a file that is cut short, changed or another one is compiled anew and replaced, with a warning in the log; a folder that can't be written is a warning of the session.
// Feature 113.
func TestCacheOfDamagedFiles(t *testing.T) {
	folder := t.TempDir()
	flow := popart.DataFlow{1, popart.Anchors{"z": popart.All}}
	open := func(folder string) (string, []string) {
		with, log := caching(t, folder, popart.Options{})
		s, err := popart.NewInferenceSession(t.Context(), doubler(), flow, popart.CPU(), shapes, with)
		require.NoError(t, err)
		defer s.Close()
		require.NoError(t, s.PrepareDevice(t.Context()))
		out := s.InitAnchorArrays()
		require.NoError(t, s.Run(t.Context(), popart.Arrays(map[string]popart.Array{"x": popart.Of(count(6))}, out)))
		require.Equal(t, []float32{1, 4, 7, 7, 10, 13}, popart.In[float32](out["z"]))
		return log.String(), s.Warnings()
	}
	open(folder)
	all, err := filepath.Glob(filepath.Join(folder, "*.popef"))
	require.NoError(t, err)
	require.Len(t, all, 1)
	whole, err := os.ReadFile(all[0])
	require.NoError(t, err)
	weight := bytes.Index(whole, popart.Of([]float32{1, 2, 3}).Data)
	require.Positive(t, weight)
	for name, damage := range map[string]func() []byte{
		"empty":     func() []byte { return nil },
		"cut short": func() []byte { return whole[:len(whole)-100] },
		"one weight": func() []byte {
			b := bytes.Clone(whole)
			b[weight+2]++
			return b
		},
		"another key": func() []byte {
			key := strings.TrimSuffix(filepath.Base(all[0]), ".popef")
			return bytes.Replace(whole, []byte(key), []byte(strings.Repeat("0", len(key))), 1)
		},
		"no file of the cache": func() []byte { return bytes.ReplaceAll(whole, []byte("popefgen.session"), []byte("popefgen.another")) },
	} {
		require.NoError(t, os.WriteFile(all[0], damage(), 0o666))
		log, warnings := open(folder)
		require.NotContains(t, log, taken, name)
		require.Contains(t, log, "is not used, and is replaced", name)
		require.Empty(t, warnings)
		now, err := os.ReadFile(all[0])
		require.NoError(t, err)
		require.Equal(t, whole, now, name)
		log, _ = open(folder)
		require.Contains(t, log, taken)
	}
	blocked := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(blocked, nil, 0o666))
	log, warnings := open(blocked)
	require.Contains(t, log, "can't be kept")
	require.Len(t, warnings, 1)
	require.Contains(t, warnings[0], blocked)
}

// TestCacheTogether: sessions that are made at a time share a folder, which has one whole file afterwards. The environment names the folder.
// Feature 113.
func TestCacheTogether(t *testing.T) {
	folder := t.TempDir()
	t.Setenv(popart.CacheVariable, folder)
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			s, err := popart.NewInferenceSession(context.WithoutCancel(t.Context()), doubler(), popart.DataFlow{1, popart.Anchors{"z": popart.All}}, popart.CPU(), shapes, nil)
			if assert.NoError(t, err) {
				assert.Empty(t, s.Warnings())
				assert.NoError(t, s.Close())
			}
		})
	}
	all.Wait()
	files, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, files, 1)
	with, log := caching(t, "", popart.Options{})
	s, err := popart.NewInferenceSession(t.Context(), doubler(), popart.DataFlow{1, popart.Anchors{"z": popart.All}}, popart.CPU(), shapes, with)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.Contains(t, log.String(), taken)
}
