package compile

import (
	"bytes"
	"encoding/binary"
	"math"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/popef"
)

func floats(vs ...float32) []byte {
	var b []byte
	for _, v := range vs {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// affine is y = x·w + b with a symbolic batch; b has an odd number of elements.
func affine() *onnx.Model {
	dim := func(n int64) onnx.Dim { return onnx.Dim{Known: true, Value: n} }
	return &onnx.Model{
		IRVersion: 8, Opsets: []onnx.Opset{{Version: 13}},
		Graph: &onnx.Graph{
			Name: "affine",
			Nodes: []*onnx.Node{
				{OpType: "MatMul", Name: "product", Inputs: []string{"x", "w"}, Outputs: []string{"xw"}},
				{OpType: "Add", Name: "sum", Inputs: []string{"xw", "b"}, Outputs: []string{"y"}},
			},
			Initializers: []*onnx.Tensor{
				{Name: "b", Elem: onnx.Float, Dims: []int64{3}, Data: floats(1, 2, 3)},
				{Name: "w", Elem: onnx.Float, Dims: []int64{2, 3}, Data: floats(1, 2, 3, 4, 5, 6)},
			},
			Inputs:  []onnx.ValueInfo{{Name: "x", Elem: onnx.Float, HasShape: true, Dims: []onnx.Dim{{Symbol: "N"}, dim(2)}}},
			Outputs: []onnx.ValueInfo{{Name: "y", Elem: onnx.Float}},
		},
	}
}

func TestCompileMetadata(t *testing.T) {
	r, err := Compile(affine(), Options{Options: onnx.Options{Batch: 4}, Iterations: 3})
	require.NoError(t, err)
	f32 := func(shape ...int64) popef.TensorInfo { return popef.TensorInfo{DataType: popef.F32, Shape: shape} }
	want := popef.Metadata{
		ReplicationFactor: 1, NumIPUs: 1, NumProcesses: 1, IsInference: true, DeviceIterations: 3,
		Executable:  r.Metadata.Executable,
		ProgramFlow: popef.ProgramFlow{Load: []uint32{0}, Main: []uint32{5}},
		Programs:    []popef.ProgramInfo{{Index: 0, Name: "WeightsFromHost"}, {Index: 5, Name: "Program"}},
		Anchors: []popef.Anchor{
			{Name: "x", Handle: "h2d_x", Programs: []uint32{5}, Info: f32(4, 2), Type: popef.Input},
			{Name: "y", Handle: "anchor_d2h_y", Programs: []uint32{5}, Info: f32(4, 3), Type: popef.Output},
			{Name: "w", Handle: "h2d_w", Programs: []uint32{0}, Info: f32(2, 3), Type: popef.Input},
			{Name: "b", Handle: "h2d_b", Programs: []uint32{0}, Info: f32(3), Type: popef.Input},
		},
	}
	require.Empty(t, cmp.Diff(want, r.Metadata))
	require.Regexp(t, `^[0-9]+$`, r.Metadata.Executable)
	main := r.Executable.Programs[1]
	require.Len(t, main.Steps, 1)
	require.Equal(t, graph.Repeat, main.Steps[0].Kind)
	require.EqualValues(t, 3, main.Steps[0].Count)
}

// TestFile reads back what was written and checks that everything that can be
// used in place from a mapped file is aligned.
func TestFile(t *testing.T) {
	for _, compress := range []bool{false, true} {
		r, err := Compile(affine(), Options{Options: onnx.Options{Batch: 1}})
		require.NoError(t, err)
		path := filepath.Join(t.TempDir(), "affine.popef")
		require.NoError(t, r.WriteFile(path, compress))
		m, err := popef.Load(path)
		require.NoError(t, err)
		require.Empty(t, m.Warnings())
		exe, err := m.Executable()
		require.NoError(t, err)
		var want bytes.Buffer
		require.NoError(t, encoding.Encode(&want, r.Executable))
		require.Equal(t, want.Bytes(), exe)
		for name, want := range map[string][]byte{"w": floats(1, 2, 3, 4, 5, 6), "b": floats(1, 2, 3)} {
			got, ok := m.TensorData(name)
			require.True(t, ok)
			require.Equal(t, want, got)
			b, _ := m.Data(name)
			if len(want)%8 == 0 {
				require.Zero(t, b.PayloadOffset%64, "weight %s is aligned", name)
			}
		}
		require.Zero(t, m.ExecutableBlob().PayloadOffset%64)
		require.NoError(t, m.Close())
	}
}

func TestSameBytes(t *testing.T) {
	var first []byte
	for i := range 3 {
		r, err := Compile(affine(), Options{Options: onnx.Options{Dims: map[string]int64{"N": 2}}})
		require.NoError(t, err)
		b, err := r.Bytes()
		require.NoError(t, err)
		if i == 0 {
			first = b
		}
		require.Equal(t, first, b)
	}
}

func TestConstants(t *testing.T) {
	r, err := Compile(affine(), Options{Options: onnx.Options{Batch: 1, FoldWeights: true}})
	require.NoError(t, err)
	require.Empty(t, r.Weights)
	require.Len(t, r.Metadata.Anchors, 2)
}

func TestTooManyIterations(t *testing.T) {
	_, err := Compile(affine(), Options{Options: onnx.Options{Batch: 1}, Iterations: 1 << 40})
	require.ErrorContains(t, err, "want at most 2147483648")
}
