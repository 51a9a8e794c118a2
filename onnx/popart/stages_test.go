package popart_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph/dump"
	"github.com/popefgen/popefgen/ipu/iputest"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/internal/onnxtest"
	"github.com/popefgen/popefgen/onnx/popart"
)

// filesIn returns the names of a folder's files.
func filesIn(t *testing.T, folder string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(folder)
	require.NoError(t, err)
	for _, f := range all {
		names = append(names, f.Name())
	}
	return names
}

// TestDotChecks draws the stages that options and environment name together: each has what it adds to the one before.
// Feature 117.
func TestDotChecks(t *testing.T) {
	line := regression()
	line.Graph.Nodes, line.Graph.Outputs = line.Graph.Nodes[:1], onnxtest.Outputs("y")
	train := func(folder string, checks ...string) error {
		s, err := popart.NewTrainingSession(t.Context(), popart.ONNX(line), popart.DataFlow{2, popart.Anchors{"loss": popart.All}}, popart.LossOf{Kind: "mse", Output: "y"},
			momentum(0.01), popart.CPU(), shapes, &popart.Options{DotChecks: checks, LogDir: folder, EngineCaching: true, CachePath: filepath.Join(filepath.Dir(folder), "cache")})
		if s != nil {
			require.NoError(t, s.Close())
		}
		return err
	}
	folder := t.TempDir()
	t.Setenv(popart.DotChecksVariable, "fwd0:Final")
	require.NoError(t, train(folder))
	require.Equal(t, []string{"training_final.dot", "training_fwd0.dot"}, filesIn(t, folder))
	require.NoError(t, train(folder, "bwd0"))
	require.Contains(t, filesIn(t, folder), "training_bwd0.dot", "drawn though the cache has the model")

	t.Setenv(popart.DotChecksVariable, "")
	all := t.TempDir()
	require.NoError(t, train(all, "all"))
	require.Equal(t, []string{"training_bwd0.dot", "training_final.dot", "training_fwd0.dot", "training_fwd1.dot", "training_prealias.dot"}, filesIn(t, all))
	text := func(stage string) string {
		b, err := os.ReadFile(filepath.Join(all, "training_"+stage+".dot"))
		require.NoError(t, err)
		return string(b)
	}
	subtraction := "Binary\\nloss" // of the mean square error
	require.NotContains(t, text("fwd0"), subtraction)
	require.Contains(t, text("fwd1"), subtraction)
	require.NotContains(t, text("fwd1"), "backward")
	require.Contains(t, text("bwd0"), `label="backward (backward)"`)
	require.Contains(t, text("bwd0"), `class="stash"`)
	require.NotContains(t, text("bwd0"), "(update)")
	require.Contains(t, text("prealias"), `label="update (update)"`)
	require.NotContains(t, text("prealias"), "arena")
	require.Regexp(t, `arena \d+\+\d+`, text("final"))
	require.Contains(t, text("final"), `label="w\nf32[3,1]\nkept"`)

	o := popart.Options{DotChecks: []string{"ALL"}, LogDir: t.TempDir()}
	s, err := popart.NewInferenceSession(t.Context(), doubler(), popart.DataFlow{1, popart.Anchors{"z": popart.All}}, popart.CPU(), shapes, &o)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.Equal(t, []string{"inference_final.dot", "inference_fwd0.dot", "inference_fwd1.dot", "inference_prealias.dot"}, filesIn(t, o.LogDir), "inference has no way back")

	err = train(t.TempDir(), "BWD1")
	require.ErrorIs(t, err, popart.ErrOption)
	require.ErrorContains(t, err, `there is no stage "BWD1" to draw, want one of FWD0, FWD1, BWD0, PREALIAS, FINAL or ALL`)
	require.ErrorContains(t, train(filepath.Join(t.TempDir(), "nowhere"), "FWD0"), "nowhere")
}

// irDump is what a dump of the intermediate form has.
type irDump struct {
	Kind, Error, Doing string
	Executable         *dump.Executable
	ONNX               []struct{ Type, Name string }
}

// TestIRDump: the intermediate form is written when a session is made, and when it could not be: what there was of it, and why.
// Feature 117.
func TestIRDump(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ir.json")
	t.Setenv(popart.IRDumpVariable, path)
	read := func() irDump {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.Remove(path))
		var d irDump
		require.NoError(t, json.Unmarshal(text, &d))
		return d
	}
	flow := popart.DataFlow{2, popart.Anchors{"loss": popart.All}}
	s, err := popart.NewTrainingSession(t.Context(), popart.ONNX(regression()), flow, popart.Loss("loss"), momentum(0.01), popart.CPU(), shapes, nil)
	require.NoError(t, err)
	defer s.Close()
	text, err := s.SerializeIR()
	require.NoError(t, err)
	var serialized irDump
	require.NoError(t, json.Unmarshal(text, &serialized))
	whole := read()
	require.Equal(t, serialized, whole)
	require.Equal(t, "training", whole.Kind)
	require.Empty(t, whole.Error)
	require.Len(t, whole.Executable.Programs, 5)
	require.Equal(t, "Gemm", whole.Executable.Graphs[1].Nodes[1].Op)

	// Lowering: the operator is not there.
	broken := regression()
	broken.Graph.Nodes = append(broken.Graph.Nodes, onnxtest.Node("Unknowable", onnxtest.Names("loss"), onnxtest.Names("end")))
	_, err = popart.NewInferenceSession(t.Context(), popart.ONNX(broken), popart.DataFlow{1, popart.Anchors{"end": popart.All}}, popart.CPU(), shapes, nil)
	require.Error(t, err)
	d := read()
	require.Equal(t, "inference", d.Kind)
	require.Equal(t, "lower", d.Doing)
	require.Contains(t, err.Error(), d.Error)
	require.Nil(t, d.Executable)
	require.Len(t, d.ONNX, 4)
	require.Equal(t, "Unknowable", d.ONNX[3].Type)

	// Differentiating: Round has no gradient.
	blocked := regression()
	blocked.Graph.Nodes = append(blocked.Graph.Nodes, onnxtest.Node("Round", onnxtest.Names("loss"), onnxtest.Names("end")))
	_, err = popart.NewTrainingSession(t.Context(), popart.ONNX(blocked), popart.DataFlow{1, popart.Anchors{"end": popart.All}}, popart.Loss("end"), momentum(0.01), popart.CPU(), shapes, nil)
	require.Error(t, err)
	d = read()
	require.Equal(t, "differentiate", d.Doing)
	require.NotEmpty(t, d.Error)
	require.GreaterOrEqual(t, len(d.Executable.Graphs[0].Nodes), 4, "the forward graph is there")

	// A file that can't be written is not in the way.
	t.Setenv(popart.IRDumpVariable, filepath.Join(t.TempDir(), "nowhere", "ir.json"))
	w, err := popart.NewInferenceSession(t.Context(), doubler(), popart.DataFlow{1, popart.Anchors{"z": popart.All}}, popart.CPU(), shapes, nil)
	require.NoError(t, err)
	defer w.Close()
	require.Len(t, w.Warnings(), 1)
	require.Contains(t, w.Warnings()[0], "POPART_IR_DUMP")
}

// TestTensorMap: PrepareDevice writes where the tensors lie; those that are in use at the same time do not overlap. A back end that does not tell is an error.
// Feature 117.
func TestTensorMap(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ttm.js")
	t.Setenv(popart.TensorMapVariable, path)
	s := training(t, regression())
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var m popart.MemoryMap
	require.NoError(t, json.Unmarshal(text, &m))
	require.Equal(t, "regression", m.Name)
	main := slices.IndexFunc(m.Programs, func(p popart.ProgramTensors) bool { return p.Index == 5 })
	require.NotEmpty(t, m.Programs[main].Tensors)
	for i, a := range m.Programs[main].Tensors {
		require.LessOrEqual(t, a.Offset+a.Bytes, m.ArenaBytes)
		require.LessOrEqual(t, a.First, a.Last)
		for _, b := range m.Programs[main].Tensors[:i] {
			same := a.Offset == b.Offset && a.Bytes == b.Bytes // one buffer of several tensors
			apart := a.Offset+a.Bytes <= b.Offset || b.Offset+b.Bytes <= a.Offset || a.Last < b.First || b.Last < a.First
			require.True(t, same || apart, "%v and %v", a, b)
		}
	}
	require.Contains(t, string(text), `"name": "w"`)
	r, err := s.Report()
	require.NoError(t, err)
	require.Equal(t, &m, r.Graph.Memory)

	devices := popart.Devices{Manager: iputest.New(iputest.Config{}).Manager()}
	device, err := devices.IPUModel(t.Context(), ipu.Simulation{NumIPUs: 1})
	require.NoError(t, err)
	defer device.Close()
	other, err := popart.NewInferenceSession(t.Context(), doubler(), popart.DataFlow{1, popart.Anchors{"z": popart.All}}, device, shapes, &popart.Options{TensorMap: path + "2"})
	require.NoError(t, err)
	defer other.Close()
	err = other.PrepareDevice(t.Context())
	require.ErrorContains(t, err, "does not tell where its tensors lie")
	require.NoFileExists(t, path+"2")
	nowhere, err := popart.NewInferenceSession(t.Context(), doubler(), popart.DataFlow{1, popart.Anchors{"z": popart.All}}, popart.CPU(), shapes, &popart.Options{TensorMap: filepath.Join(path, "x")})
	require.NoError(t, err)
	defer nowhere.Close()
	require.ErrorContains(t, nowhere.PrepareDevice(t.Context()), "tensor map")
	require.ErrorIs(t, nowhere.Run(t.Context(), popart.Arrays(nil, nil)), popart.ErrNotPrepared)
}

// TestStagesOfDigits draws and dumps a model with layouts of its own and many operators.
func TestStagesOfDigits(t *testing.T) {
	folder := t.TempDir()
	t.Setenv(popart.IRDumpVariable, filepath.Join(folder, "ir.json"))
	m, err := onnx.ReadFile("../../generated_examples/digits/digits.onnx")
	require.NoError(t, err)
	s, err := popart.NewTrainingSession(t.Context(), popart.ONNX(m), popart.DataFlow{1, popart.Anchors{"loss": popart.All}}, popart.Nll{Output: "probabilities"},
		popart.ConstSGD(0.1), popart.CPU(), popart.Shapes{"image": {4, 1, 8, 8}}, &popart.Options{DotChecks: []string{"ALL"}, LogDir: folder})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.Len(t, filesIn(t, folder), 6)
	for _, name := range filesIn(t, folder) {
		text, err := os.ReadFile(filepath.Join(folder, name))
		require.NoError(t, err)
		require.True(t, strings.Contains(string(text), "conv") || strings.Contains(string(text), "Conv"), name)
	}
}
