package verify

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/onnx/internal/onnxtest"
	"github.com/popefgen/popefgen/popef/family"
)

// masked is a model of batch × seq that adds a mask to its input and has a softmax over seq.
func masked(nodes ...*onnx.Node) *onnx.Model {
	dims := []onnx.Dim{{Symbol: "batch"}, {Symbol: "seq"}}
	value := func(name string) onnx.ValueInfo {
		return onnx.ValueInfo{Name: name, Elem: onnx.Float, HasShape: true, Dims: dims}
	}
	return onnxtest.Model(18, &onnx.Graph{Name: "masked", Inputs: []onnx.ValueInfo{value("x"), value("mask")}, Outputs: []onnx.ValueInfo{value("y")}, Nodes: nodes})
}

func padTo(value string, sizes ...int64) compile.Options {
	o := compile.Options{Pads: map[string][]family.Pad{"seq": {{Input: "x", Value: "0"}, {Input: "mask", Value: value}}}}
	o.Batch = 2
	for _, n := range sizes {
		o.Members = append(o.Members, compile.Sizes{Dims: map[string]int64{"seq": n}})
	}
	return o
}

func TestPadding(t *testing.T) {
	add := onnxtest.Node("Add", []string{"x", "mask"}, []string{"s"})
	softmax := onnxtest.Node("Softmax", []string{"s"}, []string{"y"})
	for _, c := range []struct {
		name  string
		model *onnx.Model
		value string
		want  string
	}{
		{"a mask that leaves out", masked(add, softmax), "-1e9", ""},
		{"a mask that does not", masked(add, softmax), "0", `the declared padding along "seq" changes results: filled up from 3 to 5, of output "y" 6 of 6 elements differ`},
		{"element by element", masked(onnxtest.Node("Mul", []string{"x", "mask"}, []string{"y"})), "7", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := compile.Compile(c.model, padTo(c.value, 3, 5, 16))
			require.NoError(t, err)
			unchecked, err := Padding(t.Context(), r, execute)
			require.Empty(t, unchecked)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			var wrong *PaddingError
			require.True(t, errors.As(err, &wrong))
			require.ErrorContains(t, err, c.want)
		})
	}
}

// TestPaddingOfPublicModels declares that texts are filled up with what is masked.
func TestPaddingOfPublicModels(t *testing.T) {
	dir := onnxtest.Data(t)
	for name, c := range map[string]struct {
		dim   string
		right bool
	}{
		"synth_bert_tiny": {"sequence", true}, "bert_mlm_small": {"tokens", true},
		"t5_encoder_small": {"tokens", false}, // what it masks it pays a little attention to
	} {
		t.Run(name, func(t *testing.T) {
			m, err := onnx.ReadFile(filepath.Join(dir, "models", name, "model.onnx"))
			require.NoError(t, err)
			o := compile.Options{Pads: map[string][]family.Pad{}}
			o.Batch = 1
			for _, in := range m.Graph.Inputs {
				o.Pads[c.dim] = append(o.Pads[c.dim], family.Pad{Input: in.Name, Value: "0"})
			}
			for _, n := range []int64{7, 12} {
				o.Members = append(o.Members, compile.Sizes{Dims: map[string]int64{c.dim: n}})
			}
			r, err := compile.Compile(m, o)
			require.NoError(t, err)
			unchecked, err := Padding(t.Context(), r, execute)
			require.Empty(t, unchecked)
			require.Equal(t, c.right, err == nil, err)
		})
	}
}
