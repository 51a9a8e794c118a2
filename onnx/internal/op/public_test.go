package op_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/onnx/internal/onnxtest"
	"github.com/popefgen/popefgen/onnx/internal/op"
	"github.com/popefgen/popefgen/onnx/verify"
)

// needed are public tests of which a branch wants a value, which the index of
// the tests does not say, by the place of the input.
var needed = map[string]string{
	"test_affine_grid_2d_expanded":               "1",
	"test_affine_grid_3d_expanded":               "1",
	"test_affine_grid_2d_align_corners_expanded": "1",
	"test_affine_grid_3d_align_corners_expanded": "1",
}

// TestPublic lowers and runs every public ONNX test all of whose operators are
// in the table. Those in testdata/not_passing.tsv, and no others, must fail.
func TestPublic(t *testing.T) {
	data := filepath.Join(onnxtest.Data(t), "data")
	list := readFailing(t)
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
			t.Run(set+"/"+name, func(t *testing.T) {
				publicCase(t, filepath.Join(data, set, name), col[9]+","+needed[name], list[set+"/"+name])
			})
		}
		t.Logf("%s: %d tests have listed operators only", set, ran)
		require.Positive(t, ran)
	}
}

func isUnsupported(operator string) bool {
	name, _, _ := cutLast(operator, "-")
	return !op.Supported(name)
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// publicCase runs one test. constInputs are the places of the inputs whose
// values a static compiler may ask for, known says if the test is to fail.
func publicCase(t *testing.T, dir, constInputs string, known failing) {
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
	low, err := compile.Lower(m, o)
	for need := (*onnx.NeedValueError)(nil); errors.As(err, &need); low, err = compile.Lower(m, o) {
		for _, name := range need.Inputs() {
			require.NotContains(t, o.Values, name)
			require.Contains(t, strings.Split(constInputs, ","), strconv.Itoa(slices.Index(order, name)), "needed inputs")
			o.Values[name] = inputs[name]
		}
	}
	require.NoError(t, err)
	compare := func(low *onnx.Lowered) (bad int64) {
		types, outs, err := op.Sized(low, feeds)
		require.NoError(t, err)
		for i, p := range low.Outputs {
			want := read("output", i)
			require.Equal(t, want.Elem, p.Elem, "element type of output %d", i)
			typ := types[i]
			require.Equal(t, graph.ShapeString(want.Dims), graph.ShapeString(typ.Shape), "shape of output %d", i)
			d, err := verify.Compare(typ, outs[i], want.Data, verify.Tolerance{Rel: 1e-3, Abs: max(1e-7, known.absolute)})
			require.NoError(t, err)
			require.Zero(t, d.Bad, "output %d: %v", i, d)
			strict, err := verify.Compare(typ, outs[i], want.Data, verify.Tolerance{Rel: 1e-3, Abs: 1e-7})
			require.NoError(t, err)
			bad += strict.Bad
		}
		return bad
	}
	require.Equal(t, known.reason != "", compare(low) > 0, "it passes: take it off %s", failingFile)

	// With all inputs known, everything is folded, and the results are the same.
	o.Values = inputs
	low, err = compile.Lower(m, o)
	require.NoError(t, err)
	compare(low)
}
