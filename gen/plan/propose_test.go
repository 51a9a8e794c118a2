package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/popef"
)

// modelOf has run inputs and outputs of these names; a vertical bar separates
// a name from a stream handle that is not made of it.
func modelOf(inputs, outputs []string) *popef.Model {
	m := &popef.Model{}
	m.Metadata = popef.Metadata{ReplicationFactor: 1, DeviceIterations: 1, ProgramFlow: popef.ProgramFlow{Main: []uint32{1}}}
	add := func(prefix string, typ popef.TensorType, names []string) {
		for _, name := range names {
			name, handle, ok := strings.Cut(name, "|")
			if !ok {
				handle = prefix + name
			}
			m.Metadata.Anchors = append(m.Metadata.Anchors, popef.Anchor{Name: name, Handle: handle, Type: typ, Programs: []uint32{1},
				Info: popef.TensorInfo{DataType: popef.F32, Shape: []int64{1, 3}}})
		}
	}
	add("h2d_", popef.Input, inputs)
	add("d2h_", popef.Output, outputs)
	return m
}

func TestPropose(t *testing.T) {
	for _, c := range []struct {
		name            string
		inputs, outputs []string
		renames         map[string]string
		want            []Rename
	}{
		{"fine", []string{"image"}, []string{"logits"}, nil, nil},
		{"a role", []string{"input"}, []string{"output"}, nil, nil},
		{"an operator, chosen", []string{"flatten_input"}, []string{"softmax"}, nil, nil},
		{"words with numbers", []string{"image_1", "stage2_features"}, []string{"head.0", "boxes1"}, nil, nil},
		{"numbers that tell apart", []string{"input_2", "input_3"}, []string{"output.1", "output.2"}, nil, nil},
		{"letters of a formula", []string{"x", "y"}, []string{"a", "b"}, nil, nil},
		{"other scripts", []string{"画像", "вход"}, []string{"확률"}, nil, nil},
		{"a camel's state", []string{"state"}, []string{"stateN"}, nil, nil},
		{"a letter alone", []string{"x"}, []string{"y"}, nil, []Rename{{"x", "X", "Input"}, {"y", "Y", "Output"}}},
		{"numbers", []string{"1"}, []string{"758"}, nil, []Rename{{"1", "X1", "Input"}, {"758", "X758", "Output"}}},
		{"PyTorch", []string{"input.1"}, []string{"39"}, nil, []Rename{{"input.1", "Input1", "Input"}, {"39", "X39", "Output"}}},
		{"PyTorch, traced", []string{"onnx::Flatten_0", "onnx::mask"}, []string{"/head/fc/Gemm_output_0"}, nil, []Rename{
			{"onnx::Flatten_0", "OnnxFlatten0", "Input"}, {"onnx::mask", "OnnxMask", "Mask"}, {"/head/fc/Gemm_output_0", "HeadFcGemmOutput0", "Output"}}},
		{"TensorFlow", []string{"serving_default_input_2:0"}, []string{"StatefulPartitionedCall:2", "StatefulPartitionedCall:0"}, nil, []Rename{
			{"serving_default_input_2:0", "ServingDefaultInput2_0", "Input"},
			{"StatefulPartitionedCall:2", "StatefulPartitionedCall2", "Output2"}, {"StatefulPartitionedCall:0", "StatefulPartitionedCall0", "Output0"}}},
		{"Keras", []string{"image_in:0"}, []string{"Identity:0", "Identity_1:0", "dense_3"}, nil, []Rename{
			{"image_in:0", "ImageIn0", "ImageIn"},
			{"Identity:0", "Identity0", "Output0"}, {"Identity_1:0", "Identity1_0", "Output1"}, {"dense_3", "Dense3", "Output2"}}},
		{"CNTK", []string{"Input3"}, []string{"Plus214_Output_0"}, nil, []Rename{{"Input3", "Input3", "Input"}, {"Plus214_Output_0", "Plus214Output0", "Output"}}},
		{"Paddle", []string{"image"}, []string{"softmax_11.tmp_0"}, nil, []Rename{{"softmax_11.tmp_0", "Softmax11Tmp0", "Output"}}},
		{"one of several", []string{"image", "input_2"}, []string{"Result497", "scores"}, nil, []Rename{{"input_2", "Input2", "Input"}, {"Result497", "Result497", "Result"}}},
		{"the name is there", []string{"image"}, []string{"Output", "39", "40"}, nil, []Rename{{"39", "X39", "Output0"}, {"40", "X40", "Output1"}}},
		{"the names are there", []string{"image"}, []string{"output", "output0", "39"}, nil, []Rename{{"39", "X39", "Output2"}}},
		{"taken in the package", []string{"inputs:0"}, []string{"y2"}, nil, []Rename{{"inputs:0", "Inputs0", "Inputs2"}, {"y2", "Y2", "Output"}}},
		{"one has another", []string{"1"}, []string{"2"}, map[string]string{"1": "Scan"}, []Rename{{"2", "X2", "Output"}}},
		{"two of a name", []string{"image"}, []string{"7|a", "7|b"}, nil, []Rename{{"a", "X7", "Output0"}, {"b", "X7_2", "Output1"}}},
		{"no name", []string{"|1"}, []string{"y_out"}, nil, []Rename{{"1", "X1", "Input"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := modelOf(c.inputs, c.outputs)
			opts := Options{ModelBase: "m.popef", Renames: c.renames}
			got, err := Propose(m, opts, some)
			require.NoError(t, err)
			if c.name == "taken in the package" {
				require.Equal(t, "Inputs2", got[0].To, "Inputs is a type of every package")
			}
			require.Empty(t, cmp.Diff(c.want, got))
		})
	}
	_, err := Propose(modelOf([]string{"1"}, nil), Options{ModelBase: "m.popef", Renames: map[string]string{"1": "scan"}}, some)
	require.ErrorIs(t, err, ErrBuild)
}

// TestProposeIsTaken takes what is proposed for names that are likely to clash:
// all of it together, and each alone, must be taken by Build, and
// whoever takes it is not asked again.
func TestProposeIsTaken(t *testing.T) {
	pieces := []string{"input", "output", "Input", "1", "2", "x", "_", ".", ":0", "Identity", "onnx::", "softmax", "serving_default_", "Scores", "Outputs",
		"Runner", "From", "Anchor", "/", "_output_0", "=", " ", "画", "\xff", "\u202e", strings.Repeat("a", 95)}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.Custom(func(t *rapid.T) string {
			return strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 4).Draw(t, "pieces"), "")
		})
		unique := func(prefix string, names []string) []string {
			for i, n := range names {
				names[i] = fmt.Sprintf("%s|%s%d", strings.ReplaceAll(n, "|", ""), prefix, i)
			}
			return names
		}
		m := modelOf(unique("in", rapid.SliceOfN(name, 0, 5).Draw(t, "inputs")), unique("out", rapid.SliceOfN(name, 0, 5).Draw(t, "outputs")))
		opts := Options{ModelBase: "m.popef", Tests: true}
		all, err := Propose(m, opts, some)
		require.NoError(t, err)
		sets := []map[string]string{{}}
		for _, r := range all {
			require.NotEqual(t, r.From, r.To)
			sets[0][r.Key] = r.To
			sets = append(sets, map[string]string{r.Key: r.To})
		}
		require.Len(t, sets[0], len(all), "a key stands twice")
		for _, renames := range sets {
			opts.Renames = renames
			with, err := Build(m, opts, some)
			require.NoError(t, err, "%v", renames)
			names := map[string]bool{}
			for _, tensor := range with.Tensors {
				names[tensor.Name] = true
			}
			for _, to := range renames {
				require.True(t, names[to], "%s of %v", to, renames)
			}
		}
		opts.Renames = sets[0]
		again, err := Propose(m, opts, some)
		require.NoError(t, err)
		if len(all) < maxProposals {
			require.Empty(t, again)
		}
	})
}

func TestWords(t *testing.T) {
	for name, want := range map[string][]string{
		"StatefulPartitionedCall:0": {"stateful", "partitioned", "call", "0"},
		"softmax_11.tmp_0":          {"softmax", "11", "tmp", "0"},
		"stateN":                    {"state", "n"},
		"INPUT__0":                  {"input", "0"},
		"画像1":                       {"画像", "1"},
		"":                          nil,
		"::":                        nil,
	} {
		require.Equal(t, want, words(name), name)
	}
}
