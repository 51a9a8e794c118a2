package onnx_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/internal/onnxtest"
)

// requireRoundTrip wants a model that is read again to be written as before.
func requireRoundTrip(t *testing.T, what string, m *onnx.Model) {
	t.Helper()
	b, err := onnx.Encode(m)
	require.NoError(t, err, what)
	got, err := onnx.Decode(b, "")
	require.NoError(t, err, what)
	again, err := onnx.Encode(got)
	require.NoError(t, err, what)
	require.True(t, bytes.Equal(b, again), what)
}

func TestEncode(t *testing.T) {
	value := onnxtest.Named(onnxtest.F32s(onnxtest.Dims(2), 1, -2), "v")
	body := &onnx.Graph{Name: "b", Nodes: []*onnx.Node{onnxtest.Node("Neg", onnxtest.Names("x"), onnxtest.Names("y"))}, Outputs: onnxtest.Outputs("y")}
	sub := func(e onnx.ElemType, data ...byte) *onnx.Tensor {
		return &onnx.Tensor{Name: e.String(), Elem: e, Dims: onnxtest.Dims(int64(len(data))), Data: data}
	}
	m := &onnx.Model{
		IRVersion: 8, ProducerName: "p", ProducerVersion: "1", Opsets: []onnx.Opset{{Version: 17}, {Domain: "d", Version: 1}},
		Graph: &onnx.Graph{
			Name: "g",
			Nodes: []*onnx.Node{{
				OpType: "Op", Domain: "d", Overload: "o", Name: "n", Inputs: onnxtest.Names("x", "", "w"), Outputs: onnxtest.Names("", "y"),
				Attributes: []*onnx.Attribute{
					onnxtest.AInt("zero", 0), onnxtest.AInt("i", -1), onnxtest.AFloat("f", 0), onnxtest.AStr("s", ""), onnxtest.AStr("t", "mode"), onnxtest.ATensor("v", value), onnxtest.AGraph("b", body),
					{Name: "fs", Type: onnx.AttrFloats, Floats: []float32{0, 1}}, onnxtest.AInts("is", 0, -7), {Name: "none", Type: onnx.AttrInts},
					{Name: "ss", Type: onnx.AttrStrings, Strings: [][]byte{{}, []byte("a")}}, {Name: "ts", Type: onnx.AttrTensors, Tensors: []*onnx.Tensor{value, value}},
					{Name: "gs", Type: onnx.AttrGraphs, Graphs: []*onnx.Graph{body}},
				},
			}},
			Initializers: []*onnx.Tensor{onnxtest.Named(onnxtest.F32s(nil, 3), "scalar"), onnxtest.Named(onnxtest.F32s(onnxtest.Dims(0, 4)), "empty"), sub(onnx.Int4, 0xff, 2, 0xf8), sub(onnx.Uint4, 15, 0, 1, 2), sub(onnx.Uint2, 0, 1, 2, 3, 1), sub(onnx.Int2, 0xff, 0xfe, 1), sub(onnx.Bool, 1, 0)},
			Inputs:       []onnx.ValueInfo{onnxtest.Info("x", onnx.Float, "N", 3, 0), {Name: "free", Elem: onnx.Float}, {Name: "unknown"}},
			Outputs:      onnxtest.Outputs("y"),
			Values:       []onnx.ValueInfo{onnxtest.Info("z", onnx.Float16)},
		},
		Functions: []*onnx.Function{{
			Name: "f", Domain: "d", Overload: "o", Inputs: onnxtest.Names("a"), Outputs: onnxtest.Names("b"), Attributes: onnxtest.Names("k"), Defaults: []*onnx.Attribute{onnxtest.AInt("q", 3)},
			Nodes: []*onnx.Node{onnxtest.Node("Elu", onnxtest.Names("a"), onnxtest.Names("b"), &onnx.Attribute{Name: "alpha", Type: onnx.AttrFloat, Ref: "k"})}, Opsets: []onnx.Opset{{Version: 17}},
		}},
	}
	b, err := onnx.Encode(m)
	require.NoError(t, err)
	got, err := onnx.Decode(b, "")
	require.NoError(t, err)
	m.Size = int64(len(b))
	require.Empty(t, cmp.Diff(m, got, cmpopts.EquateEmpty()))
}

func TestEncodeRefusesWhatIsNotRead(t *testing.T) {
	with := func(change func(g *onnx.Graph)) *onnx.Model {
		m := onnxtest.Model(17, &onnx.Graph{Inputs: []onnx.ValueInfo{onnxtest.Info("x", onnx.Float, 2)}, Nodes: []*onnx.Node{onnxtest.Node("Neg", onnxtest.Names("x"), onnxtest.Names("y"))}, Outputs: onnxtest.Outputs("y")})
		change(m.Graph)
		return m
	}
	for name, c := range map[string]struct {
		m    *onnx.Model
		want string
	}{
		"no graph": {&onnx.Model{}, "no graph"},
		"strings": {with(func(g *onnx.Graph) {
			g.Initializers = []*onnx.Tensor{{Name: "words", Elem: onnx.String, Dims: onnxtest.Dims(1)}}
		}), `initializer tensor "words": it can't be written: its elements are string`},
		"sequence": {with(func(g *onnx.Graph) { g.Inputs[0].NotDense = "sequence" }), `value "x" is of type sequence`},
		"data": {with(func(g *onnx.Graph) {
			g.Initializers = []*onnx.Tensor{{Name: "w", Elem: onnx.Float, Dims: onnxtest.Dims(2), Data: make([]byte, 4)}}
		}), "found 4 bytes of data, want 8"},
		"sparse attribute": {with(func(g *onnx.Graph) { g.Nodes[0].Attributes = []*onnx.Attribute{{Name: "a", Type: 11}} }), `attribute "a": it can't be written: it is of type 11`},
	} {
		_, err := onnx.Encode(c.m)
		require.ErrorIs(t, err, onnx.ErrNotEncodable, name)
		require.ErrorContains(t, err, c.want, name)
	}
}

// TestEncodePublicData writes all public models and reads them again.
func TestEncodePublicData(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(onnxtest.Data(t), "data", "onnx-node-tests", "*", "model.onnx"))
	require.NoError(t, err)
	more, err := filepath.Glob(filepath.Join(onnxtest.Data(t), "models", "*", "model.onnx"))
	require.NoError(t, err)
	written := 0
	for _, f := range append(files, more...) {
		if st, err := os.Stat(f); err != nil || st.Size() > 1<<18 {
			continue
		}
		m, err := onnx.ReadFile(f)
		if err != nil {
			continue
		}
		if _, err := onnx.Encode(m); err != nil {
			require.ErrorIs(t, err, onnx.ErrNotEncodable, f)
			continue
		}
		written++
		requireRoundTrip(t, f, m)
	}
	require.Greater(t, written, 900)
}

func TestStaticInputs(t *testing.T) {
	m := onnxtest.Model(17, &onnx.Graph{
		Inputs:       []onnx.ValueInfo{onnxtest.Info("x", onnx.Float, "N", "h", 3), onnxtest.Info("w", onnx.Float, 2), {Name: "free", Elem: onnx.Int64}, onnxtest.Info("k", onnx.Int64, 1)},
		Initializers: []*onnx.Tensor{onnxtest.Named(onnxtest.F32s(onnxtest.Dims(2), 1, 2), "w")},
		Nodes:        []*onnx.Node{onnxtest.Node("Neg", onnxtest.Names("x"), onnxtest.Names("y"))}, Outputs: onnxtest.Outputs("y"),
	})
	o := onnx.Options{Batch: 4, Dims: map[string]int64{"h": 5, "free[0]": 6}, Values: map[string]*onnx.Tensor{"k": onnxtest.I64s(onnxtest.Dims(1), 7)}}
	got, err := onnx.StaticInputs(m, o)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff([]onnx.ValueInfo{onnxtest.Info("x", onnx.Float, 4, 5, 3), onnxtest.Info("free", onnx.Int64, 6)}, got))
	o.Dims = nil
	_, err = onnx.StaticInputs(m, o)
	var missing *onnx.DimError
	require.ErrorAs(t, err, &missing)
}
