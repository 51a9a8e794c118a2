package onnx_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/verify"
	"github.com/stretchr/testify/require"
)

// notLowered are public tests of listed operators that can't be lowered, with
// what the error says.
var notLowered = map[string]string{}

// needed are public tests of which a branch wants a value, which the index of
// the tests does not say, by the place of the input.
var needed = map[string]string{
	"test_affine_grid_2d_expanded":               "1",
	"test_affine_grid_3d_expanded":               "1",
	"test_affine_grid_2d_align_corners_expanded": "1",
	"test_affine_grid_3d_align_corners_expanded": "1",
}

// noisy are public tests whose expected values were computed in single
// precision, where 0 came out as 2e-7, with the absolute tolerance that ONNX's
// own test runner grants them.
var noisy = map[string]float64{
	"test_dft_inverse":         1e-6,
	"test_dft_inverse_opset19": 1e-6,
}

// TestPublic lowers and runs every public ONNX test all of whose operators are
// in the table.
func TestPublic(t *testing.T) {
	data := filepath.Join(onnx.TestData(t), "data")
	for _, set := range []string{"onnx-node-tests", "onnx-node-tests-older", "onnx-model-tests"} {
		b, err := os.ReadFile(filepath.Join(data, set, "INDEX.tsv"))
		require.NoError(t, err)
		ran := 0
		for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n")[1:] {
			col := strings.Split(line, "\t")
			name, ops := col[0], strings.Split(col[1], ",")
			if strings.HasPrefix(name, "light/") || slices.ContainsFunc(ops, isUnsupported) {
				continue
			}
			ran++
			t.Run(set+"/"+name, func(t *testing.T) { publicCase(t, filepath.Join(data, set, name), col[9]+","+needed[name]) })
		}
		t.Logf("%s: %d tests have listed operators only", set, ran)
		require.Positive(t, ran)
	}
}

func isUnsupported(op string) bool {
	name, _, _ := cutLast(op, "-")
	return !onnx.Supported(name)
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// publicCase runs one test. constInputs are the places of the inputs whose
// values a static compiler may ask for.
func publicCase(t *testing.T, dir, constInputs string) {
	m, err := onnx.ReadFile(filepath.Join(dir, "model.onnx"))
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(dir, "test_data_set_0", "*.pb"))
	require.NoError(t, err)
	read := func(kind string, i int) *onnx.Tensor {
		path := filepath.Join(dir, "test_data_set_0", fmt.Sprintf("%s_%d.pb", kind, i))
		require.Contains(t, files, path)
		x, err := onnx.ReadTensor(path)
		require.NoError(t, err)
		return x
	}
	inputs := map[string]*onnx.Tensor{}
	feeds := map[string][]byte{}
	o := onnx.Options{Shapes: map[string][]int64{}, Values: map[string]*onnx.Tensor{}}
	var order []string
	for _, in := range m.Graph.Inputs {
		if slices.ContainsFunc(m.Graph.Initializers, func(x *onnx.Tensor) bool { return x.Name == in.Name }) {
			continue
		}
		x := read("input", len(order))
		order = append(order, in.Name)
		inputs[in.Name], feeds[in.Name], o.Shapes[in.Name] = x, x.Data, x.Dims
	}
	low, err := onnx.Lower(m, o)
	for need := (*onnx.NeedValueError)(nil); errors.As(err, &need); low, err = onnx.Lower(m, o) {
		for _, name := range need.Inputs() {
			require.NotContains(t, o.Values, name)
			require.Contains(t, strings.Split(constInputs, ","), strconv.Itoa(slices.Index(order, name)), "needed inputs")
			o.Values[name] = inputs[name]
		}
	}
	if text, ok := notLowered[filepath.Base(dir)]; ok {
		require.ErrorContains(t, err, text, "remove this test from the list of those that can't be lowered")
		return
	}
	require.NoError(t, err)
	outs, err := onnx.Interpret(low, feeds)
	require.NoError(t, err)
	for i, p := range low.Outputs {
		want := read("output", i)
		require.Equal(t, want.Elem, p.Elem, "element type of output %d", i)
		typ := low.Executable.Tensors[p.Tensor].Type
		require.Equal(t, graph.ShapeString(want.Dims), graph.ShapeString(typ.Shape), "shape of output %d", i)
		d, err := verify.Compare(typ, outs[i], want.Data, verify.Tolerance{Rel: 1e-3, Abs: max(1e-7, noisy[filepath.Base(dir)])})
		require.NoError(t, err)
		require.Zero(t, d.Bad, "output %d: %v", i, d)
	}
}
