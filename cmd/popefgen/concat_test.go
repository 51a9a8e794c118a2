package main

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/dynamic"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
)

// concatTypes are the types of inputs that are drawn; each can be cast to float.
var concatTypes = []onnx.ElemType{onnx.Float, onnx.Double, onnx.Float16, onnx.BFloat16, onnx.Int8, onnx.Uint8, onnx.Int16, onnx.Uint16, onnx.Int32, onnx.Uint32, onnx.Int64, onnx.Uint64, onnx.Bool}

// listModel casts each input to float, multiplies what it gets by a number of its own, and gives all
// of it in one list, and the first input as it is.
func listModel(types []onnx.ElemType, shapes [][]int64) *onnx.Model {
	g := &onnx.Graph{Name: "list"}
	m := &onnx.Model{IRVersion: 8, Opsets: []onnx.Opset{{Version: 13}}, Graph: g}
	cat := &onnx.Node{OpType: "Concat", Name: "cat", Outputs: []string{"y"}, Attributes: []*onnx.Attribute{{Name: "axis", Type: onnx.AttrInt, Int: 0}}}
	g.Initializers = append(g.Initializers, &onnx.Tensor{Name: "flat", Elem: onnx.Int64, Dims: []int64{1}, Data: []byte{255, 255, 255, 255, 255, 255, 255, 255}})
	for i, t := range types {
		name := func(s string) string { return fmt.Sprintf("%s%d", s, i) }
		in := onnx.ValueInfo{Name: name("in"), Elem: t, HasShape: true}
		n := int64(1)
		for _, d := range shapes[i] {
			in.Dims = append(in.Dims, onnx.Dim{Known: true, Value: d})
			n *= d
		}
		g.Inputs = append(g.Inputs, in)
		if n == 0 {
			continue
		}
		g.Initializers = append(g.Initializers, &onnx.Tensor{Name: name("k"), Elem: onnx.Float, Dims: []int64{}, Data: []byte{0, 0, byte(i), 64}})
		g.Nodes = append(g.Nodes,
			&onnx.Node{OpType: "Cast", Name: name("cast"), Inputs: []string{in.Name}, Outputs: []string{name("f")}, Attributes: []*onnx.Attribute{{Name: "to", Type: onnx.AttrInt, Int: int64(onnx.Float)}}},
			&onnx.Node{OpType: "Mul", Name: name("mul"), Inputs: []string{name("f"), name("k")}, Outputs: []string{name("m")}},
			&onnx.Node{OpType: "Reshape", Name: name("flatten"), Inputs: []string{name("m"), "flat"}, Outputs: []string{name("l")}})
		cat.Inputs = append(cat.Inputs, name("l"))
	}
	g.Nodes = append(g.Nodes, cat, &onnx.Node{OpType: "Identity", Name: "same", Inputs: []string{"in0"}, Outputs: []string{"first"}})
	g.Outputs = []onnx.ValueInfo{{Name: "y", Elem: onnx.Float}, {Name: "first", Elem: types[0]}}
	return m
}

// bothWays computes a model on random data, with and without joined inputs.
func bothWays(t require.TestingT, ctx *testing.T, m *onnx.Model, limit int64, seed uint64) (joined *popef.Model) {
	plain, err := compile.Compile(m, compile.Options{})
	require.NoError(t, err)
	r, err := compile.Compile(m, compile.Options{JoinInputs: limit})
	require.NoError(t, err)
	inputs := map[string][]byte{}
	for _, a := range plain.Metadata.Anchors {
		if a.Programs[0] == compile.MainProgram && a.Type == popef.Input {
			n, err := a.Info.SizeInBytes()
			require.NoError(t, err)
			inputs[a.Name] = make([]byte, n)
			dynamic.FillRandom(a.Info.DataType, inputs[a.Name], seed)
			seed++
		}
	}
	var got [2]map[string][]byte
	var models [2]*popef.Model
	for i, r := range []*compile.Result{plain, r} {
		models[i], err = r.Model("list")
		require.NoError(t, err)
		got[i], err = dynamic.ExecuteOnCPU(ctx.Context(), models[i], 0, inputs)
		require.NoError(t, err)
	}
	require.Equal(t, got[0], got[1])
	require.Equal(t, contract.Of(models[0]).Callers().Text(), contract.Of(models[1]).Callers().Text())
	require.Equal(t, models[0].Metadata.Anchors, models[1].Metadata.Anchors)
	checkPlan(t, models[1], limit)
	return models[1]
}

// checkPlan checks that joined inputs are the small ones, lie at multiples of their elements' sizes and
// leave no room for another.
func checkPlan(t require.TestingT, m *popef.Model, limit int64) {
	for _, j := range m.Joined() {
		used, last, end := int64(0), int64(0), int64(0)
		for _, f := range j.Fields {
			a := m.Metadata.Anchors[f.Anchor]
			n, err := a.Info.SizeInBytes()
			require.NoError(t, err)
			require.LessOrEqual(t, n, limit)
			require.Zero(t, f.Offset%int64(a.Info.DataType.Size()), a.Name)
			if used += n; n > 0 && f.Offset >= last {
				last, end = f.Offset, f.Offset+n
			}
		}
		require.Equal(t, used, end)
		size, err := j.Anchor.Info.SizeInBytes()
		require.NoError(t, err)
		require.Equal(t, (used+7)&^7, size)
	}
}

// sixty are the types and shapes of 60 small inputs.
func sixty() (types []onnx.ElemType, shapes [][]int64) {
	for i := range 60 {
		types = append(types, concatTypes[i%len(concatTypes)])
		shapes = append(shapes, [][]int64{{}, {3}, {1, 1}, {2, 3}, {7}, {1}, {16}}[i%7])
	}
	return types, shapes
}

// listModelFile FILE writes an ONNX model of 60 small inputs.
func listModelFile(ts *testscript.TestScript, _ bool, args []string) {
	b, err := onnx.Encode(listModel(sixty()))
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), b, 0o666))
}

// scaledModelFile FILE writes an ONNX model y = x·scale + bias, where x is [n].
func scaledModelFile(ts *testscript.TestScript, _ bool, args []string) {
	value := func(name string, dims ...onnx.Dim) onnx.ValueInfo {
		return onnx.ValueInfo{Name: name, Elem: onnx.Float, HasShape: true, Dims: dims}
	}
	b, err := onnx.Encode(&onnx.Model{IRVersion: 8, Opsets: []onnx.Opset{{Version: 17}}, Graph: &onnx.Graph{
		Name: "scaled", Inputs: []onnx.ValueInfo{value("x", onnx.Dim{Symbol: "n"}), value("scale"), value("bias")}, Outputs: []onnx.ValueInfo{value("y", onnx.Dim{Symbol: "n"})},
		Nodes: []*onnx.Node{{OpType: "Mul", Inputs: []string{"x", "scale"}, Outputs: []string{"s"}}, {OpType: "Add", Inputs: []string{"s", "bias"}, Outputs: []string{"y"}}},
	}})
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), b, 0o666))
}

// edited FROM TO OLD NEW writes a copy of a file with other bytes in one place, as many of them.
func edited(ts *testscript.TestScript, _ bool, args []string) {
	b, err := os.ReadFile(ts.MkAbs(args[0]))
	ts.Check(err)
	if len(args[2]) != len(args[3]) || bytes.Count(b, []byte(args[2])) != 1 {
		ts.Fatalf("want %q once, and as many bytes as %q has", args[2], args[3])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), bytes.Replace(b, []byte(args[2]), []byte(args[3]), 1), 0o666))
}

// TestJoinedInputs computes a model of 60 small inputs that travel in one stream.
func TestJoinedInputs(t *testing.T) {
	types, shapes := sixty()
	m := bothWays(t, t, listModel(types, shapes), 256, 1)
	require.Len(t, m.Joined(), 1)
	require.Len(t, m.Joined()[0].Fields, 60)
	require.Len(t, m.MetadataBlob().Metadata.Anchors, 3) // one joined input, two outputs
}

// TestJoinedInputsOfAnyKind draws the inputs.
func TestJoinedInputsOfAnyKind(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(rt, "inputs")
		types, shapes := []onnx.ElemType{onnx.Float}, [][]int64{{2}}
		for range n {
			types = append(types, rapid.SampledFrom(concatTypes).Draw(rt, "type"))
			shapes = append(shapes, rapid.SliceOfN(rapid.Int64Range(0, 5), 0, 3).Draw(rt, "shape"))
		}
		bothWays(rt, t, listModel(types, shapes), rapid.Int64Range(1, 200).Draw(rt, "limit"), rapid.Uint64().Draw(rt, "seed"))
	})
}
