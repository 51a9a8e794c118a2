package op_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/onnx/internal/onnxtest"
	"github.com/popefgen/popefgen/onnx/verify"
)

// TestPublicTraining compiles ONNX's own tests of optimizers, of BatchNormalization and of Dropout in training mode and runs them
// on the engine. The random numbers of Dropout's references came from NumPy's generator: what is compared is that as many
// elements stay as the ratio says, that those are multiplied as much, and that the mask names them.
func TestPublicTraining(t *testing.T) {
	root := filepath.Join(onnxtest.Data(t), "cases", "training")
	dirs, err := filepath.Glob(filepath.Join(root, "test_*"))
	require.NoError(t, err)
	if len(dirs) == 0 {
		t.Skipf("no public tests of training in %s", root)
	}
	require.Len(t, dirs, 15)
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			m, err := onnx.ReadFile(filepath.Join(dir, "model.onnx"))
			require.NoError(t, err)
			read := func(kind string, i int) *onnx.Tensor {
				x, err := onnx.ReadTensor(filepath.Join(dir, "test_data_set_0", fmt.Sprintf("%s_%d.pb", kind, i)))
				require.NoError(t, err)
				return x
			}
			feeds := map[string][]byte{}
			var in, want []*onnx.Tensor
			for i, input := range m.Graph.Inputs {
				in = append(in, read("input", i))
				feeds[input.Name] = in[i].Data
			}
			for i := range m.Graph.Outputs {
				want = append(want, read("output", i))
			}
			r, err := compile.Compile(m, compile.Options{})
			require.NoError(t, err)
			got := runEngine(t, r, feeds)
			for i, p := range r.Outputs {
				require.True(t, p.Type.Equal(want[i].Type()), "output %d is %v, want %v", i, p.Type, want[i].Type())
			}
			if strings.Contains(dir, "dropout") {
				checkDropout(t, in, want, r, got)
				return
			}
			for i, p := range r.Outputs {
				d, err := verify.Compare(p.Type, got[p.Name], want[i].Data, verify.Tolerance{Rel: 1e-3, Abs: 1e-7})
				require.NoError(t, err)
				require.Zero(t, d.Bad, "output %d: %v", i, d)
			}
		})
	}
}

// checkDropout compares the results of a Dropout in training mode with what its operands ask for.
func checkDropout(t *testing.T, in, want []*onnx.Tensor, r *compile.Result, got map[string][]byte) {
	ratio := float32(0.5)
	if len(in) > 1 {
		ratio = floats32(in[1].Data)[0]
	}
	x, y := floats32(in[0].Data), floats32(got[r.Outputs[0].Name])
	kept := 0
	for i := range x {
		stays := y[i] != 0
		if stays {
			kept++
			require.InEpsilon(t, float64(x[i])/(1-float64(ratio)), float64(y[i]), 1e-6, "element %d", i)
		}
		if len(want) > 1 {
			require.Equal(t, stays, got[r.Outputs[1].Name][i] != 0, "mask of element %d", i)
		}
	}
	expected, n := float64(len(x))*float64(1-ratio), float64(len(x))
	require.InDelta(t, expected, kept, 4*math.Sqrt(n*float64(ratio*(1-ratio)))+0.5, "of %d elements, ratio %v", len(x), ratio)
	if ratio == 0 {
		require.Equal(t, floats32(want[0].Data), y)
	}
}

func floats32(b []byte) []float32 {
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}
