package onnx_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/internal/onnxtest"
)

// TestEncodeKeepsOtherFields: fields that are not read, in every kind of message, are written as they were.
func TestEncodeKeepsOtherFields(t *testing.T) {
	marks := 0
	with := func(p pb) pb { // two fields that no version of the format has
		marks++
		return p.Int(1000, int64(marks)).Str(1001, fmt.Sprintf("mark %d;", marks))
	}
	tensor := func(name string) pb {
		return with(pb{}.Packed(1, 1).Int(2, 1).Str(8, name).Str(12, "about the tensor;").Bytes(9, make([]byte, 4)))
	}
	value := func(name string) pb {
		dim := pb{}.Int(1, 1).Str(3, "DATA_BATCH;")
		typ := pb{}.Bytes(1, pb{}.Int(1, 1).Bytes(2, pb{}.Bytes(1, dim))).Str(6, "IMAGE;")
		return with(pb{}.Str(1, name).Bytes(2, with(typ)).Str(3, "about the value;"))
	}
	sequence := with(pb{}.Str(1, "list").Bytes(2, pb{}.Bytes(4, pb{}.Bytes(1, pb{}.Bytes(1, pb{}.Int(1, 1))))))
	words := with(pb{}.Packed(1, 2).Int(2, 8).Str(6, "one word;").Str(6, "another;").Str(8, "words"))
	inner := with(pb{}.Str(2, "inner").Bytes(12, value("i")))
	attributes := []pb{
		with(pb{}.Str(1, "v").Bytes(5, tensor("constant")).Int(20, 4)),
		with(pb{}.Str(1, "g").Bytes(6, inner).Int(20, 5).Str(13, "about the attribute;")),
		with(pb{}.Str(1, "s").Bytes(22, pb{}.Bytes(1, tensor("sparse;"))).Int(20, 11)),
	}
	node := pb{}.Str(1, "x").Str(2, "y").Str(4, "Op").Str(6, "about the node;").Bytes(9, pb{}.Str(1, "namespace").Str(2, "encoder;"))
	for _, a := range attributes {
		node = node.Bytes(5, a)
	}
	graph := with(pb{}.Bytes(1, with(node)).Str(2, "main").Bytes(5, tensor("w")).Bytes(5, words).Str(10, "about the graph;").Bytes(11, value("x")).Bytes(11, sequence).Bytes(12, value("y")).Bytes(13, value("z")))
	function := with(pb{}.Str(1, "f").Str(10, "d").Str(8, "about the function;").Bytes(12, value("inside")))
	file := with(pb{}.Int(1, 8).Str(4, "a domain;").Int(5, 7).Str(6, "about the model;").Bytes(7, graph).Bytes(8, pb{}.Int(2, 17)).Bytes(25, function).Bytes(14, pb{}.Str(1, "key").Str(2, "value;")))

	m, err := onnx.Decode(file, "")
	require.NoError(t, err)
	b, err := onnx.Encode(m)
	require.NoError(t, err)
	for i := range marks {
		require.Contains(t, string(b), fmt.Sprintf("mark %d;", i+1))
	}
	for _, text := range []string{"about the tensor;", "about the value;", "DATA_BATCH;", "IMAGE;", "one word;", "another;", "sparse;", "about the attribute;", "about the node;", "encoder;", "about the graph;", "about the function;", "inside", "a domain;", "about the model;", "value;"} {
		require.Equal(t, strings.Count(string(file), text), strings.Count(string(b), text), text)
	}
	require.Len(t, b, len(file), "a field more or less than there was")
	again, err := onnx.Decode(b, "")
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(m, again, cmpopts.IgnoreFields(onnx.Model{}, "Size")))
}

func weights() *onnx.Model {
	g := &onnx.Graph{
		Name:   "g",
		Inputs: []onnx.ValueInfo{onnxtest.Info("x", onnx.Float, 3)},
		Nodes:  []*onnx.Node{onnxtest.Node("Add", onnxtest.Names("x", "w"), onnxtest.Names("y"))}, Outputs: onnxtest.Outputs("y"),
		Initializers: []*onnx.Tensor{
			onnxtest.Named(onnxtest.F32s(onnxtest.Dims(3), 1, 2, 3), "w"), onnxtest.Named(onnxtest.I64s(onnxtest.Dims(1), 7), "k"),
			{Name: "nibbles", Elem: onnx.Int4, Dims: onnxtest.Dims(3), Data: []byte{1, 0xff, 2}}, onnxtest.Named(onnxtest.F32s(onnxtest.Dims(0)), "none"),
		},
	}
	return onnxtest.Model(17, g)
}

func TestWriteFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m.onnx")
	for what, file := range map[string]func(*onnx.Tensor) string{
		"all in the model": nil,
		"all outside":      func(*onnx.Tensor) string { return "m.data" },
		"two files": func(t *onnx.Tensor) string {
			return map[string]string{"w": "./a.bin", "nibbles": "a.bin", "none": "b.bin"}[t.Name]
		},
	} {
		m := weights()
		require.NoError(t, onnx.WriteFiles(path, m, file), what)
		got, err := onnx.ReadFile(path)
		require.NoError(t, err, what)
		require.Empty(t, cmp.Diff(m, got, cmpopts.IgnoreFields(onnx.Model{}, "Size", "Path"), cmpopts.EquateEmpty()), what)
	}
	st, err := os.Stat(filepath.Join(dir, "m.data"))
	require.NoError(t, err)
	require.EqualValues(t, 2*64+2+62, st.Size()) // each begins at a multiple of 64, the empty one at the end
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Len(t, names, 4)
}

// TestWriteFilesFails: what can't be written leaves the files as they were.
func TestWriteFilesFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m.onnx")
	require.NoError(t, onnx.WriteFiles(path, weights(), func(*onnx.Tensor) string { return "m.data" }))
	was, err := os.ReadFile(filepath.Join(dir, "m.data"))
	require.NoError(t, err)
	words := weights()
	words.Graph.Initializers[0] = &onnx.Tensor{Name: "words", Elem: onnx.String, Dims: onnxtest.Dims(1)}
	other := weights()
	other.Graph.Initializers[0].Data = make([]byte, 12)
	for what, c := range map[string]struct {
		m    *onnx.Model
		file string
		want string
	}{
		"outside of the folder": {other, "../m.data", "want the name of another file within the folder"},
		"the model itself":      {other, "m.onnx", "want the name of another file"},
		"no such folder":        {other, "sub/m.data", "no such file or directory"},
		"strings":               {words, "m.data", "its elements are string"},
		"no model":              {nil, "m.data", "the model has no graph"},
	} {
		err := onnx.WriteFiles(path, c.m, func(*onnx.Tensor) string { return c.file })
		require.ErrorContains(t, err, c.want, what)
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, entries, 2, what)
		is, err := os.ReadFile(filepath.Join(dir, "m.data"))
		require.NoError(t, err)
		require.Equal(t, was, is, what)
	}
	require.ErrorContains(t, onnx.WriteFile(filepath.Join(dir, "no", "m.onnx"), other), "no such file")
}
