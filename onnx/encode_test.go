package onnx

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
)

// requireRoundTrip wants a model that is read again to be written as before.
func requireRoundTrip(t *testing.T, what string, m *Model) {
	t.Helper()
	b, err := Encode(m)
	require.NoError(t, err, what)
	got, err := Decode(b, "")
	require.NoError(t, err, what)
	again, err := Encode(got)
	require.NoError(t, err, what)
	require.True(t, bytes.Equal(b, again), what)
}

func TestEncode(t *testing.T) {
	value := named(f32s(dims(2), 1, -2), "v")
	body := &Graph{Name: "b", Nodes: []*Node{node("Neg", names("x"), names("y"))}, Outputs: outputs("y")}
	sub := func(e ElemType, data ...byte) *Tensor {
		return &Tensor{Name: e.String(), Elem: e, Dims: dims(int64(len(data))), Data: data}
	}
	m := &Model{
		IRVersion: 8, ProducerName: "p", ProducerVersion: "1", Opsets: []Opset{{Version: 17}, {Domain: "d", Version: 1}},
		Graph: &Graph{
			Name: "g",
			Nodes: []*Node{{
				OpType: "Op", Domain: "d", Overload: "o", Name: "n", Inputs: names("x", "", "w"), Outputs: names("", "y"),
				Attributes: []*Attribute{
					aInt("zero", 0), aInt("i", -1), aFloat("f", 0), aStr("s", ""), aStr("t", "mode"), aTensor("v", value), aGraph("b", body),
					{Name: "fs", Type: AttrFloats, Floats: []float32{0, 1}}, aInts("is", 0, -7), {Name: "none", Type: AttrInts},
					{Name: "ss", Type: AttrStrings, Strings: [][]byte{{}, []byte("a")}}, {Name: "ts", Type: AttrTensors, Tensors: []*Tensor{value, value}},
					{Name: "gs", Type: AttrGraphs, Graphs: []*Graph{body}},
				},
			}},
			Initializers: []*Tensor{named(f32s(nil, 3), "scalar"), named(f32s(dims(0, 4)), "empty"), sub(Int4, 0xff, 2, 0xf8), sub(Uint4, 15, 0, 1, 2), sub(Uint2, 0, 1, 2, 3, 1), sub(Int2, 0xff, 0xfe, 1), sub(Bool, 1, 0)},
			Inputs:       []ValueInfo{info("x", Float, "N", 3, 0), {Name: "free", Elem: Float}, {Name: "unknown"}},
			Outputs:      outputs("y"),
			Values:       []ValueInfo{info("z", Float16)},
		},
		Functions: []*Function{{
			Name: "f", Domain: "d", Overload: "o", Inputs: names("a"), Outputs: names("b"), Attributes: names("k"), Defaults: []*Attribute{aInt("q", 3)},
			Nodes: []*Node{node("Elu", names("a"), names("b"), &Attribute{Name: "alpha", Type: AttrFloat, Ref: "k"})}, Opsets: []Opset{{Version: 17}},
		}},
	}
	b, err := Encode(m)
	require.NoError(t, err)
	got, err := Decode(b, "")
	require.NoError(t, err)
	m.Size = int64(len(b))
	require.Empty(t, cmp.Diff(m, got, cmpopts.EquateEmpty()))
}

func TestEncodeRefusesWhatIsNotRead(t *testing.T) {
	with := func(change func(g *Graph)) *Model {
		m := model(17, &Graph{Inputs: []ValueInfo{info("x", Float, 2)}, Nodes: []*Node{node("Neg", names("x"), names("y"))}, Outputs: outputs("y")})
		change(m.Graph)
		return m
	}
	for name, c := range map[string]struct {
		m    *Model
		want string
	}{
		"no graph": {&Model{}, "no graph"},
		"strings": {with(func(g *Graph) {
			g.Initializers = []*Tensor{{Name: "words", Elem: String, Dims: dims(1)}}
		}), `initializer tensor "words": it can't be written: its elements are string`},
		"sequence": {with(func(g *Graph) { g.Inputs[0].NotDense = "sequence" }), `value "x" is of type sequence`},
		"data": {with(func(g *Graph) {
			g.Initializers = []*Tensor{{Name: "w", Elem: Float, Dims: dims(2), Data: make([]byte, 4)}}
		}), "found 4 bytes of data, want 8"},
		"sparse attribute": {with(func(g *Graph) { g.Nodes[0].Attributes = []*Attribute{{Name: "a", Type: 11}} }), `attribute "a": it can't be written: it is of type 11`},
	} {
		_, err := Encode(c.m)
		require.ErrorIs(t, err, ErrNotEncodable, name)
		require.ErrorContains(t, err, c.want, name)
	}
}

// TestEncodePublicData writes all public models and reads them again.
func TestEncodePublicData(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(testData(t), "data", "onnx-node-tests", "*", "model.onnx"))
	require.NoError(t, err)
	more, err := filepath.Glob(filepath.Join(testData(t), "models", "*", "model.onnx"))
	require.NoError(t, err)
	written := 0
	for _, f := range append(files, more...) {
		if st, err := os.Stat(f); err != nil || st.Size() > 1<<18 {
			continue
		}
		m, err := ReadFile(f)
		if err != nil {
			continue
		}
		if _, err := Encode(m); err != nil {
			require.ErrorIs(t, err, ErrNotEncodable, f)
			continue
		}
		written++
		requireRoundTrip(t, f, m)
	}
	require.Greater(t, written, 900)
}

func TestStaticInputs(t *testing.T) {
	m := model(17, &Graph{
		Inputs:       []ValueInfo{info("x", Float, "N", "h", 3), info("w", Float, 2), {Name: "free", Elem: Int64}, info("k", Int64, 1)},
		Initializers: []*Tensor{named(f32s(dims(2), 1, 2), "w")},
		Nodes:        []*Node{node("Neg", names("x"), names("y"))}, Outputs: outputs("y"),
	})
	o := Options{Batch: 4, Dims: map[string]int64{"h": 5, "free[0]": 6}, Values: map[string]*Tensor{"k": i64s(dims(1), 7)}}
	got, err := StaticInputs(m, o)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff([]ValueInfo{info("x", Float, 4, 5, 3), info("free", Int64, 6)}, got))
	o.Dims = nil
	_, err = StaticInputs(m, o)
	var missing *DimError
	require.ErrorAs(t, err, &missing)
}
