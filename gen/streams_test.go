package gen_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/gen"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/popef"
)

// TestPublicStreams generates packages of public models that give their state out and take it
// back, and runs the tests that come with them: what a stream does after Reset and
// SetState is what it did before.
func TestPublicStreams(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles packages")
	}
	data := os.Getenv("POPEFGEN_TESTDATA")
	if data == "" {
		data = filepath.Join("..", "..", "shared")
	}
	if _, err := os.Stat(filepath.Join(data, "models")); err != nil {
		t.Skipf("no public models in %s (set POPEFGEN_TESTDATA)", data)
	}
	root := moduleFolder(t, "streams-")
	for _, c := range []struct {
		model, out, in string
		dims           map[string]int64
	}{
		{"dtln_lstm1", "tf_op_layer_stack_2", "input_3", nil},
		{"silero_vad_16k", "stateN", "state", map[string]int64{"batch": 1, "sequence": 576}},
	} {
		m, err := onnx.ReadFile(filepath.Join(data, "models", c.model, "model.onnx"))
		require.NoError(t, err)
		r, err := compile.Compile(m, compile.Options{Options: onnx.Options{Dims: c.dims}})
		require.NoError(t, err)
		bytes, err := r.Bytes()
		require.NoError(t, err)
		model, err := popef.LoadBytes("m.popef", bytes)
		require.NoError(t, err)
		p, err := gen.Build(model, gen.Options{ModelBase: "m.popef", Package: "m", Embed: "m.popef", Tests: true, State: []gen.StatePair{{Out: c.out, In: c.in}}})
		require.NoError(t, err)
		files, err := gen.Emit(p)
		require.NoError(t, err)
		_, err = gen.Write(filepath.Join(root, c.model), append(files, gen.File{Name: "m.popef", Data: bytes}))
		require.NoError(t, err)
	}
	test := exec.Command("go", "test", "-vet=off", "-count=1", "-v", "-run", "Stream", "./"+root+"/...")
	out, err := test.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NotContains(t, string(out), "SKIP")
	require.Contains(t, string(out), "PASS: TestStream ")
}
