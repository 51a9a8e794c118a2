package build_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/build"
	"github.com/popefgen/popefgen/onnx/internal/onnxtest"
)

// python returns an interpreter that has ONNX's own checker, and the newest operator set that the checker knows.
func python(t *testing.T) (string, int64) {
	for _, name := range []string{"python3", "/usr/bin/python3"} {
		if out, err := check(name, nil); err == nil {
			newest, err := strconv.ParseInt(strings.TrimSpace(out), 10, 64)
			require.NoError(t, err)
			return name, newest
		}
	}
	t.Skip("no python3-onnx here (Debian: apt-get install python3-onnx): its checker sees no model")
	return "", 0
}

// check returns what the checker says of models.
func check(python string, paths []string) (string, error) {
	cmd := exec.Command(python, filepath.Join("testdata", "check.py"))
	cmd.Stdin = strings.NewReader(strings.Join(paths, "\n"))
	out, err := cmd.Output()
	return string(out), err
}

// TestChecker: ONNX's checker, with its inference of shapes, accepts what a Builder writes: every public model of an operator set that it knows, built again (every sixth, without POPEFGEN_TESTS=all), and a model with subgraphs, placement, scopes, custom
// operators and external data.
func TestChecker(t *testing.T) {
	t.Parallel()
	interpreter, newest := python(t)
	dir := t.TempDir()
	var paths []string
	write := func(b *build.Builder) {
		path := filepath.Join(dir, fmt.Sprintf("%d.onnx", len(paths)))
		require.NoError(t, b.WriteFile(ctx, path))
		paths = append(paths, path)
	}
	b := everything()
	write(b)
	for _, set := range []string{"onnx-node-tests", "onnx-node-tests-older", "onnx-model-tests"} {
		files, err := filepath.Glob(filepath.Join(onnxtest.Data(t), "data", set, "*", "model.onnx"))
		require.NoError(t, err)
		older, err := filepath.Glob(filepath.Join(onnxtest.Data(t), "data", set, "*", "*", "model.onnx"))
		require.NoError(t, err)
		for i, f := range append(files, older...) {
			if os.Getenv("POPEFGEN_TESTS") != "all" && i%6 != 0 {
				continue
			}
			if m, err := onnx.ReadFile(f); err == nil && m.Opsets[0].Version <= newest && len(m.Graph.Nodes) > 0 {
				b, err := rebuilt(m, map[string]bool{}, true)
				require.NoError(t, err, f)
				if _, err := b.Model(ctx); err != nil {
					continue // a declaration of the original that is not what the model gives
				}
				write(b)
			}
		}
	}
	require.Greater(t, len(paths), 100)
	out, err := check(interpreter, paths)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(out), "\n")[1:]
	for i, l := range lines {
		path, why, _ := strings.Cut(l, " ")
		if m, err := onnx.ReadFile(path); err == nil && i < 10 {
			t.Errorf("%s: set %v: %s", m.Graph.Nodes[0].OpType, m.Opsets, why)
		}
	}
	require.Empty(t, lines)
	t.Logf("%d models", len(paths))
}

// everything builds a model with everything that is no operator.
func everything() *build.Builder {
	b := build.New(build.Opset(17), build.GraphName("everything"))
	x := b.Input("x", onnx.Float, "N", 3)
	w := b.Initializer("w", build.TensorOf([]float32{1, 2, 3, 4, 5, 6, 7, 8, 9}, 3, 3))
	b.Scope("layer", func() {
		b.With(func() { x = b.Relu(b.MatMul(x, w)) }, build.VirtualGraph(1), build.PipelineStage(0))
	})
	total := b.ReduceSum(x, nil, build.Keepdims(false))
	x = b.If(b.Greater(total, build.Const(b, []float32{0})), func(build.Tensors) build.Tensors { return build.Tensors{x} }, func(build.Tensors) build.Tensors { return build.Tensors{b.Neg(x)} })[0]
	x = b.Loop(build.Const(b, []int64{3}), nil, build.Tensors{x}, func(in build.Tensors) build.Tensors { return build.Tensors{in[1], b.Add(in[2], in[2])} })[0]
	b.Output("y", x)
	b.Output("gelu", b.Graphcore().Gelu(x))
	mine := b.Custom("com.example", 1, "Mine", build.Tensors{x}, 1, build.Attribute("k", []int64{1, 2}))[0]
	b.Declare(mine, onnx.Float, "N", 3)
	b.Output("mine", mine)
	b.SaveInitializersExternally("weights.bin")
	return b
}

// TestCheckerReads: the model that the checker accepts is one that is read here, too.
func TestCheckerReads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.onnx")
	require.NoError(t, everything().WriteFile(ctx, path))
	m, err := onnx.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "float[N,3]", m.Graph.Outputs[0].String())
	st, err := os.Stat(filepath.Join(filepath.Dir(path), "weights.bin"))
	require.NoError(t, err)
	require.EqualValues(t, 36, st.Size())
}
