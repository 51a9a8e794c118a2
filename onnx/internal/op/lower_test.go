package op

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
)

// kinds lists the operators that are left to run.
func kinds(low *onnx.Lowered) []string {
	k := []string{}
	for _, n := range low.Executable.Graphs[low.Main].Nodes {
		k = append(k, n.Op.Kind())
	}
	return k
}

func mustLower(t *testing.T, m *onnx.Model, o onnx.Options) *onnx.Lowered {
	t.Helper()
	low, err := Lower(m, o)
	require.NoError(t, err)
	return verified(t, low)
}

func TestWeights(t *testing.T) {
	w := named(f32s(dims(3), 1, 2, 3), "w")
	g := &onnx.Graph{
		Inputs:       []onnx.ValueInfo{info("x", onnx.Float, 2, 3), info("w", onnx.Float, 3)},
		Initializers: []*onnx.Tensor{w, named(list1(0), "axes"), named(f32s(dims(3, 1), 1, 1, 1), "m"), named(list32(9), "unused")},
		Nodes: []*onnx.Node{
			node("Add", names("x", "w"), names("a")),
			node("Unsqueeze", names("w", "axes"), names("row")), // reshaped, but still the weight
			node("Mul", names("a", "row"), names("b")),
			node("Transpose", names("m"), names("mt")), // folded: a constant
			node("Mul", names("b", "mt"), names("y")),
		},
		Outputs: outputs("y"),
	}
	m := model(13, g)
	low := mustLower(t, m, onnx.Options{})
	require.Equal(t, []string{"Binary", "Reshape", "Binary", "Binary"}, kinds(low))
	require.Len(t, low.Inputs, 1, "an initialiser is no input, though it is listed as one")
	require.Len(t, low.Weights, 1)
	require.Equal(t, "w", low.Weights[0].Name)
	require.Equal(t, w.Data, low.Weights[0].Data)
	require.True(t, low.Executable.Tensors[low.Weights[0].Tensor].Persistent)
	out, err := interpret(low, map[string][]byte{"x": f32s(nil, 0, 0, 0, 1, 1, 1).Data})
	require.NoError(t, err)
	require.Equal(t, []float64{1, 4, 9, 2, 6, 12}, numbers(graph.F32, out[0]))

	low = mustLower(t, m, onnx.Options{FoldWeights: true})
	require.Empty(t, low.Weights)
	require.Equal(t, []string{"Binary", "Binary", "Binary"}, kinds(low))

	// A bound value replaces an input, here one with a default.
	low = mustLower(t, m, onnx.Options{Values: map[string]*onnx.Tensor{"w": f32s(dims(3), 0, 0, 1)}})
	require.Empty(t, low.Weights)
	out, err = interpret(low, map[string][]byte{"x": f32s(nil, 0, 0, 1, 1, 1, 1).Data})
	require.NoError(t, err)
	require.Equal(t, []float64{0, 0, 2, 0, 0, 2}, numbers(graph.F32, out[0]))
}

func TestOutputs(t *testing.T) {
	g := &onnx.Graph{
		Inputs:       []onnx.ValueInfo{info("x", onnx.Int64, 2)},
		Initializers: []*onnx.Tensor{named(list32(1, 2), "w"), named(list1(3), "k")},
		Nodes: []*onnx.Node{
			node("Identity", names("x"), names("same")),
			node("Shape", names("x"), names("shape")),
			node("Neg", names("w"), names("folded")),
			node("Neg", names("x"), names("y")),
			node("Identity", names("y"), names("z")),
		},
		Outputs: outputs("x", "same", "w", "k", "shape", "folded", "y", "z"),
	}
	low := mustLower(t, model(13, g), onnx.Options{})
	require.Equal(t, []string{"Unary"}, kinds(low))
	out, err := interpret(low, map[string][]byte{"x": list1(5, 6).Data})
	require.NoError(t, err)
	for i, want := range []*onnx.Tensor{list1(5, 6), list1(5, 6), list32(1, 2), list1(3), list1(2), list32(-1, -2), list1(-5, -6), list1(-5, -6)} {
		require.Equal(t, g.Outputs[i].Name, low.Outputs[i].Name)
		require.Equal(t, want.Elem, low.Outputs[i].Elem)
		require.Equal(t, want.Data, out[i], low.Outputs[i].Name)
	}
	require.Equal(t, low.Inputs[0].Tensor, low.Outputs[1].Tensor)
}

// TestFolding checks that shape arithmetic vanishes.
func TestFolding(t *testing.T) {
	g := &onnx.Graph{
		Inputs:       []onnx.ValueInfo{info("x", onnx.Float, "batch", 3, 4)},
		Initializers: []*onnx.Tensor{named(i64s(dims(), 0), "zero"), named(list1(0), "axes"), named(list1(-1), "rest")},
		Nodes: []*onnx.Node{
			node("Shape", names("x"), names("s")),
			node("Gather", names("s", "zero"), names("n")),
			node("Unsqueeze", names("n", "axes"), names("n1")),
			node("Concat", names("n1", "rest"), names("shape"), aInt("axis", 0)),
			node("Reshape", names("x", "shape"), names("y")),
		},
		Outputs: outputs("y"),
	}
	low := mustLower(t, model(13, g), onnx.Options{Batch: 5})
	require.Equal(t, []string{"Reshape"}, kinds(low))
	require.Equal(t, "f32[5,12]", low.Executable.Tensors[low.Outputs[0].Tensor].Type.String())
}

// TestBounds checks that a small model can't make the lowering use much
// memory or time.
func TestBounds(t *testing.T) {
	big := func(nodes ...*onnx.Node) *onnx.Model {
		return model(13, &onnx.Graph{
			Inputs:       []onnx.ValueInfo{info("x", onnx.Float)},
			Initializers: []*onnx.Tensor{named(list1(1<<15, 1<<12), "s"), named(list1(1<<20, 1<<20), "huge"), named(f32s(dims(), 1), "one")},
			Nodes:        nodes, Outputs: outputs("y"),
		})
	}
	low := mustLower(t, big(node("ConstantOfShape", names("s"), names("y"))), onnx.Options{})
	require.Equal(t, []string{"Expand"}, kinds(low), "512 MiB are not put into the executable")
	low = mustLower(t, big(node("Expand", names("one", "s"), names("e")), node("MatMul", names("e", "f"), names("y")),
		node("Transpose", names("e"), names("f"))), onnx.Options{})
	require.Equal(t, []string{"Expand", "Transpose", "MatMul"}, kinds(low))

	_, err := Lower(big(node("ConstantOfShape", names("huge"), names("y"))), onnx.Options{})
	require.ErrorContains(t, err, "2^40 bytes")
	_, err = Lower(big(node("ConstantOfShape", names("s"), names("e"), aTensor("value", list1(7))), node("Reshape", names("x", "e"), names("y"))), onnx.Options{})
	require.ErrorContains(t, err, "operand 1 (shape), i64[32768,4096], must be known now, but computing it is too much work")

	// A product that takes long stays one for the executable to compute.
	n := named(tensor(onnx.Float, dims(2000, 2000), make([]float64, 4e6)...), "m")
	m := big(node("MatMul", names("m", "m"), names("y")))
	m.Graph.Initializers = append(m.Graph.Initializers, n)
	require.Equal(t, []string{"MatMul"}, kinds(mustLower(t, m, onnx.Options{})))
}

func TestDimensions(t *testing.T) {
	g := &onnx.Graph{
		Inputs:  []onnx.ValueInfo{info("a", onnx.Float, "N", 3, "L"), info("b", onnx.Float, "N", ""), {Name: "c", Elem: onnx.Float}},
		Nodes:   []*onnx.Node{node("Identity", names("a"), names("y"))},
		Outputs: outputs("y"),
	}
	m := model(13, g)
	_, err := Lower(m, onnx.Options{})
	var missing *onnx.DimError
	require.ErrorAs(t, err, &missing)
	require.Len(t, missing.Inputs, 3)
	require.Equal(t, []int{0, 2}, missing.Inputs[0].Free)
	require.Equal(t, `sizes of input dimensions are missing:
  input "a": float[N,3,L]
  input "b": float[N,?]
  input "c": float of unknown shape: its shape is not in the model; give every dimension, --dim 'c[0]=SIZE' and so on
hint: give each a size: --dim N=SIZE --dim L=SIZE --dim 'b[1]=SIZE'; --batch SIZE sets every free first dimension`, missing.Error())

	c := map[string][]int64{"c": {}}
	all := map[string]int64{"N": 2, "L": 4, "b[1]": 5}
	for _, x := range []struct {
		name string
		o    onnx.Options
		want string // types of the inputs, or the error
	}{
		{"all dimensions", onnx.Options{Dims: all, Shapes: c}, "f32[2,3,4] f32[2,5] f32[]"},
		{"batch", onnx.Options{Batch: 7, Dims: map[string]int64{"L": 4, "b[1]": 5}, Shapes: c}, "f32[7,3,4] f32[7,5] f32[]"},
		{"batch that is there", onnx.Options{Batch: 2, Dims: all, Shapes: c}, "f32[2,3,4] f32[2,5] f32[]"},
		{"batch by a shape", onnx.Options{Batch: 6, Dims: map[string]int64{"b[1]": 1}, Shapes: map[string][]int64{"a": {6, 3, 0}, "c": {2}}}, "f32[6,3,0] f32[6,1] f32[2]"},
		{"place of a named dimension", onnx.Options{Batch: 1, Dims: map[string]int64{"a[2]": 4, "b[1]": 5}, Shapes: c}, "f32[1,3,4] f32[1,5] f32[]"},
		{"place binds the symbol", onnx.Options{Dims: map[string]int64{"b[0]": 9, "a[2]": 4, "b[1]": 5}, Shapes: c}, "f32[9,3,4] f32[9,5] f32[]"},
		{"place of a size in the model", onnx.Options{Dims: map[string]int64{"N": 2, "L": 4, "b[1]": 5, "a[1]": 3}, Shapes: c}, "f32[2,3,4] f32[2,5] f32[]"},
		{"place of another size in the model", onnx.Options{Dims: map[string]int64{"a[1]": 4}, Shapes: c}, "dimension a[1] is given the size 4, want 3, which it is in the model (float[N,3,L])"},
		{"place against symbol", onnx.Options{Dims: map[string]int64{"N": 2, "b[0]": 3}, Shapes: c}, `dimension "N" is 2 by the size given for it, but 3 by the size given for b[0]`},
		{"place that is none", onnx.Options{Dims: map[string]int64{"a[3]": 3}, Shapes: c}, `a size is given for dimension "a[3]", which no input has`},
		{"places make a shape", onnx.Options{Dims: map[string]int64{"N": 2, "L": 4, "b[1]": 5, "c[0]": 6, "c[1]": 7}}, "f32[2,3,4] f32[2,5] f32[6,7]"},
		{"places that miss one", onnx.Options{Dims: map[string]int64{"N": 2, "L": 4, "b[1]": 5, "c[0]": 6, "c[2]": 7}}, `input "c" is given 2 sizes, but none for c[1]`},
		{"places and a shape", onnx.Options{Dims: map[string]int64{"c[0]": 6}, Shapes: map[string][]int64{"c": {6}}}, `input "c" is given sizes of dimensions and a shape`},
		{"dimension before batch", onnx.Options{Batch: 7, Dims: all, Shapes: c}, "the batch size 7 has no effect"},
		{"shape binds symbols", onnx.Options{Dims: map[string]int64{"b[1]": 1}, Shapes: map[string][]int64{"a": {6, 3, 0}, "c": {2}}}, "f32[6,3,0] f32[6,1] f32[2]"},
		{"conflict", onnx.Options{Shapes: map[string][]int64{"a": {6, 3, 1}, "b": {5, 1}}}, `dimension "N" is 6 by the shape [6,3,1] of input "a", but 5 by the shape [5,1] of input "b"`},
		{"other shape", onnx.Options{Shapes: map[string][]int64{"a": {6, 2, 1}}}, `input "a" is given the shape [6,2,1], want one that fits the model's float[N,3,L]`},
		{"other rank", onnx.Options{Shapes: map[string][]int64{"a": {6}}}, "fits the model's float[N,3,L]"},
		{"no such dimension", onnx.Options{Dims: map[string]int64{"M": 1}}, `which no input has, want one of the free dimensions (L, N, b[1])`},
		{"no such input", onnx.Options{Shapes: map[string][]int64{"z": {1}}}, `a shape is given for "z", but the model has no such input`},
		{"no such input to bind", onnx.Options{Values: map[string]*onnx.Tensor{"z": list1()}}, `a value is bound to "z", but the model has no such input`},
		{"value binds symbols", onnx.Options{Values: map[string]*onnx.Tensor{"b": f32s(dims(2, 1), 1, 2)}, Dims: map[string]int64{"L": 1}, Shapes: c}, "f32[2,3,1] f32[]"},
		{"value of another type", onnx.Options{Values: map[string]*onnx.Tensor{"b": list1(1)}}, `the value bound to input "b" is of type int64, want float`},
		{"negative", onnx.Options{Dims: map[string]int64{"N": -1}}, `dimension "N" is given the size -1`},
		{"too big", onnx.Options{Dims: map[string]int64{"N": 1 << 40, "L": 1 << 40, "b[1]": 1}, Shapes: c}, `graph input "a": f32[1099511627776,3,1099511627776] is too big`},
	} {
		t.Run(x.name, func(t *testing.T) {
			low, err := Lower(m, x.o)
			if err != nil {
				require.ErrorContains(t, err, x.want)
				return
			}
			var got []string
			for _, in := range low.Inputs {
				got = append(got, low.Executable.Tensors[in.Tensor].Type.String())
			}
			require.Equal(t, x.want, strings.Join(got, " "))
		})
	}
}

func TestNeedValue(t *testing.T) {
	g := &onnx.Graph{
		Inputs: []onnx.ValueInfo{info("x", onnx.Float, 6), info("rows", onnx.Int64, 1), info("columns", onnx.Int64, 1), info("pads", onnx.Int64, 4)},
		Nodes: []*onnx.Node{
			node("Concat", names("rows", "columns"), names("shape"), aInt("axis", 0)),
			{OpType: "Reshape", Name: "r", Inputs: names("x", "shape"), Outputs: names("y")},
			node("Pad", names("y", "pads"), names("z")), // not seen before y is known
			node("Reshape", names("x", "rows"), names("u")),
		},
		Outputs: outputs("z", "u"),
	}
	m := model(13, g)
	o := onnx.Options{Values: map[string]*onnx.Tensor{}}
	values := map[string]*onnx.Tensor{"rows": list1(-1), "columns": list1(2), "pads": list1(0, 0, 1, 1)}
	var rounds [][]string
	for range 3 {
		low, err := Lower(m, o)
		if err == nil {
			require.Len(t, low.Inputs, 1)
			require.Equal(t, "f32[4,3]", low.Executable.Tensors[low.Outputs[0].Tensor].Type.String())
			break
		}
		var need *onnx.NeedValueError
		require.ErrorAs(t, err, &need)
		require.Contains(t, err.Error(), "bind a value to input")
		rounds = append(rounds, need.Inputs())
		for _, in := range need.Inputs() {
			o.Values[in] = values[in]
		}
	}
	require.Equal(t, [][]string{{"columns", "rows"}, {"pads"}}, rounds)
	_, err := Lower(m, onnx.Options{})
	require.ErrorContains(t, err, `node "r" (Reshape, number 1): data decides the size of its result, and nothing says how much that may be`)
}

func TestUnsupported(t *testing.T) {
	nodes := []*onnx.Node{
		node("Foo", names("x"), names("a")),
		{OpType: "FusedConv", Domain: "com.microsoft", Inputs: names("x"), Outputs: names("b")},
		node("Dropout", names("x", "", "t"), names("c")),
		node("Cast", names("x"), names("d"), aInt("to", int64(onnx.Complex64))),
		node("Add", names("a", "b"), names("e")),
		node("Neg", names("cx"), names("g")),
		node("Bar", nil, names("dead")),
	}
	for i := range 5 {
		nodes = append(nodes, &onnx.Node{OpType: "Foo", Name: fmt.Sprint("foo", i), Inputs: names("x"), Outputs: names(fmt.Sprint("f", i))})
	}
	g := &onnx.Graph{
		Inputs:       []onnx.ValueInfo{info("x", onnx.Float, 6), info("s", onnx.String, 1), {Name: "q", NotDense: "sequence"}},
		Initializers: []*onnx.Tensor{named(bools(dims(), 1), "t"), {Name: "cx", Elem: onnx.Complex128, Dims: dims(0)}, {Name: "unused", Elem: onnx.String, Dims: dims(0)}},
		Nodes:        nodes,
		Outputs:      outputs("c", "d", "e", "g", "f0", "f1", "f2", "f3", "f4"),
	}
	want := `the model needs what is not supported:
  operator Foo of operator set 13: node 0 (Foo), node "foo0" (Foo, number 7), node "foo1" (Foo, number 8) and 3 more
    hint: docs/operators.md lists the operators that are supported
  operator com.microsoft.FusedConv (whose operator set the model does not import): node 1 (com.microsoft.FusedConv)
    hint: this is an operator of ONNX Runtime's own, none of which is supported: its graph optimisation made this one; export without it (in Optimum, without -O or ORTOptimizer; or save with GraphOptimizationLevel ORT_DISABLE_ALL), popefgen fuses by itself`
	rest := `
  element type string of a graph input: s
    hint: an executable has no strings: turn text into numbers before the model
  graph input of type sequence: q
    hint: an executable has tensors only: export with Split and Concat in place of sequences, without optionals
  operator Cast of operator set 13: conversion to complex64: node 3 (Cast)
    hint: make real and imaginary part a last dimension of 2, as DFT takes it
  element type complex128 of an initializer: node 5 (Neg)`
	_, err := Lower(model(13, g), onnx.Options{})
	var u *onnx.UnsupportedError
	require.ErrorAs(t, err, &u)
	require.Equal(t, want+rest, err.Error())
	require.Equal(t, 6, u.Obstacles[0].Count)

	// What no option can mend comes first if dimensions are missing too.
	g.Inputs[0] = info("x", onnx.Float, "N")
	_, err = Lower(model(13, g), onnx.Options{})
	require.ErrorContains(t, err, want)
	require.ErrorAs(t, err, new(*onnx.DimError))
}

// TestRefusalIsComplete has obstacles that hide behind others: nodes whose
// operands can't be lowered, branches of an If with such a condition, a
// function that such a node calls, types that only the model's declarations
// tell.
func TestRefusalIsComplete(t *testing.T) {
	hidden := &onnx.Function{Name: "Hidden", Domain: "local", Inputs: names("x"), Outputs: names("y"), Opsets: []onnx.Opset{{Domain: "", Version: 13}},
		Nodes: []*onnx.Node{node("ImageDecoder", names("x"), names("y"))}}
	branch := func(op string) *onnx.Graph {
		return &onnx.Graph{Nodes: []*onnx.Node{node(op, names("x"), names("r"))}, Outputs: outputs("r")}
	}
	m := model(15, &onnx.Graph{
		Inputs: []onnx.ValueInfo{info("x", onnx.Float, "N", 6)},
		Nodes: []*onnx.Node{
			{OpType: "FusedMatMul", Domain: "com.microsoft", Name: "fused", Inputs: names("x"), Outputs: names("a")},
			{OpType: "BatchNormalization", Name: "bn", Inputs: names("a", "a", "a", "a", "a"), Outputs: names("b"), Attributes: []*onnx.Attribute{aInt("training_mode", 1)}},
			{OpType: "Custom", Domain: "acme", Name: "custom", Inputs: names("x"), Outputs: names("i")},
			{OpType: "Softmax", Name: "typed", Inputs: names("i"), Outputs: names("c")},
			{OpType: "Cast", Name: "cast", Inputs: names("b"), Outputs: names("d"), Attributes: []*onnx.Attribute{aInt("to", int64(onnx.Complex64))}},
			{OpType: "Less", Name: "less", Inputs: names("d", "d"), Outputs: names("unknown")},
			{OpType: "If", Name: "if", Inputs: names("unknown"), Outputs: names("e"), Attributes: []*onnx.Attribute{aGraph("then_branch", branch("StringNormalizer")), aGraph("else_branch", branch("SplitToSequence"))}},
			{OpType: "Hidden", Domain: "local", Name: "call", Inputs: names("d"), Outputs: names("f")},
			{OpType: "Upsample", Name: "late", Inputs: names("x", "x"), Outputs: names("g")},
			{OpType: "Gelu", Name: "early", Inputs: names("x"), Outputs: names("h")},
			{OpType: "Constant", Name: "text", Outputs: names("j"), Attributes: []*onnx.Attribute{aStr("value_string", "x")}},
		},
		Values:  []onnx.ValueInfo{info("i", onnx.Int64, "N", 2)},
		Outputs: outputs("c", "e", "f", "g", "h", "j"),
	})
	m.Opsets = append(m.Opsets, onnx.Opset{Domain: "local", Version: 1}, onnx.Opset{Domain: "com.microsoft", Version: 1}, onnx.Opset{Domain: "acme", Version: 3})
	m.Functions = []*onnx.Function{hidden}
	const want = `the model needs what is not supported:
  operator com.microsoft.FusedMatMul of operator set 1: node "fused" (com.microsoft.FusedMatMul, number 0)
    hint: this is an operator of ONNX Runtime's own, none of which is supported: its graph optimisation made this one; export without it (in Optimum, without -O or ORTOptimizer; or save with GraphOptimizationLevel ORT_DISABLE_ALL), popefgen fuses by itself
  operator acme.Custom of operator set 3: node "custom" (acme.Custom, number 2)
    hint: a custom operator can be lowered if the model defines it as a function
  operator Upsample of operator set 15 (ONNX dropped it in 10): node "late" (Upsample, number 8)
  operator Gelu of operator set 15 (the oldest known is of 20): node "early" (Gelu, number 9)
  operator Softmax of operator set 15 on int64, operand input: node "typed" (Softmax, number 3)
    hint: Softmax takes bfloat16, double, float, float16 there: cast the operand in the model
  operator Cast of operator set 15: conversion to complex64: node "cast" (Cast, number 4)
    hint: make real and imaginary part a last dimension of 2, as DFT takes it
  operator StringNormalizer of operator set 15: node "if" (If, number 6): then_branch: node 0 (StringNormalizer)
    hint: an executable has no strings: turn text into numbers before the model
  operator SplitToSequence of operator set 15: node "if" (If, number 6): else_branch: node 0 (SplitToSequence)
    hint: an executable has tensors only: export with Split and Concat in place of sequences, without optionals
  operator ImageDecoder of operator set 13: node "call" (local.Hidden, number 7): in function Hidden: node 0 (ImageDecoder)
    hint: decode images before the model
  operator Constant of operator set 15: attribute value_string: node "text" (Constant, number 10)`
	_, err := Lower(m, onnx.Options{Batch: 2})
	require.EqualError(t, err, want)
}

// TestInvalid lists models that ONNX forbids and the errors they give.
func TestInvalid(t *testing.T) {
	for _, c := range []struct {
		name  string
		want  string
		nodes []*onnx.Node
		edit  func(m *onnx.Model)
	}{
		{"defined twice", `node 0 (Neg) and node 1 (Abs) both define "y"`, []*onnx.Node{node("Neg", names("x"), names("y")), node("Abs", names("x"), names("y"))}, nil},
		{"redefines an input", `node 0 (Neg) defines "x", which is a graph input`, []*onnx.Node{node("Neg", names("y"), names("x"))}, nil},
		{"undefined", `node 0 (Neg) uses "nothing", which nothing defines`, []*onnx.Node{node("Neg", names("nothing"), names("y"))}, nil},
		{"cycle", `depends on its own result "y": the graph has a cycle`, []*onnx.Node{node("Neg", names("z"), names("y")), node("Neg", names("y"), names("z"))}, nil},
		{"undefined output", `graph output "y" is not defined`, nil, nil},
		{"no output", "the graph has no outputs", nil, func(m *onnx.Model) { m.Graph.Outputs = nil }},
		{"declared type", `graph output "y" is declared as int64, but its value is float`, []*onnx.Node{node("Neg", names("x"), names("y"))}, func(m *onnx.Model) { m.Graph.Outputs[0].Elem = onnx.Int64 }},
		{"types", "node 0 (Add): operand 1 (B) is i64[3], want the element type of operand 0 (A), f32[2,3]", []*onnx.Node{node("Add", names("x", "k"), names("y"))}, nil},
		{"missing operand", "node 0 (Add): operand 1 (B) is missing", []*onnx.Node{node("Add", names("x", ""), names("y"))}, nil},
		{"too many operands", "it has 2 operands, but Neg of operator set 13 takes at most 1", []*onnx.Node{node("Neg", names("x", "x"), names("y"))}, nil},
		{"too many results", "it has 2 results, but Neg of operator set 13 gives at most 1", []*onnx.Node{node("Neg", names("x"), names("y", "z"))}, nil},
		{"unknown attribute", `Neg of operator set 13 has no attribute "fast"`, []*onnx.Node{node("Neg", names("x"), names("y"), aInt("fast", 1))}, nil},
		{"attribute type", `attribute "axis" is of type float, want int`, []*onnx.Node{node("Softmax", names("x"), names("y"), aFloat("axis", 1))}, nil},
		{"attribute twice", `attribute "axis" is given twice`, []*onnx.Node{node("Softmax", names("x"), names("y"), aInt("axis", 1), aInt("axis", 1))}, nil},
		{"axis", "axis 2 is out of range, want -2 to 1", []*onnx.Node{node("Softmax", names("x"), names("y"), aInt("axis", 2))}, nil},
		{"no opset", `the model imports no operator set of domain ""`, []*onnx.Node{node("Neg", names("x"), names("y"))}, func(m *onnx.Model) { m.Opsets = nil }},
		{"no graph", "the model has no graph", nil, func(m *onnx.Model) { m.Graph = nil }},
		{"initializer twice", `initializer "k" is defined twice`, nil, func(m *onnx.Model) { m.Graph.Initializers = append(m.Graph.Initializers, m.Graph.Initializers[0]) }},
		{"initializer data", `initializer "k": i64[3] holds 8 bytes, want 24`, nil, func(m *onnx.Model) { m.Graph.Initializers[0].Data = make([]byte, 8) }},
		{"input twice", `graph input "x" is declared twice`, nil, func(m *onnx.Model) { m.Graph.Inputs = append(m.Graph.Inputs, m.Graph.Inputs[0]) }},
		{"legacy shapes", "want equal shapes, as attribute broadcast is not set", []*onnx.Node{node("Mul", names("x", "f"), names("y"))}, func(m *onnx.Model) { m.Opsets[0].Version = 6 }},
		{"legacy axis", "want a shape that fits into operand 0, f32[2,3], from axis 2 on", []*onnx.Node{node("Mul", names("x", "f"), names("y"), aInt("broadcast", 1), aInt("axis", 2))}, func(m *onnx.Model) { m.Opsets[0].Version = 6 }},
		{"kernel size", `attribute "kernel_shape" is [0], want numbers from 1 to`, []*onnx.Node{node("Unsqueeze", names("x", "zero"), names("u")), node("MaxPool", names("u"), names("y"), aInts("kernel_shape", 0))}, nil},
		{"reshape", "f32[2,3] can't take the shape [1,2,3]: there is no size for its -1", []*onnx.Node{node("Reshape", names("x", "k"), names("y"))}, func(m *onnx.Model) { m.Graph.Initializers[0] = named(list1(4, -1), "k") }},
		{"gather out of range", "computing it from constants", []*onnx.Node{node("Gather", names("f", "k"), names("y"))}, nil},
		{"slice step", "the step of axis 0 is 0", []*onnx.Node{node("Slice", names("x", "zero", "zero", "zero", "zero"), names("y"))}, nil},
		{"split", "want sizes that add up to the 3 of axis 1 of f32[2,3]", []*onnx.Node{node("Split", names("x", "zero"), names("y"), aInt("axis", 1))}, nil},
		{"range", "the range has 9.223372036854776e+18 elements", []*onnx.Node{node("Range", names("r0", "r1", "r2"), names("y"))}, func(m *onnx.Model) {
			m.Graph.Initializers = append(m.Graph.Initializers, named(i64s(dims(), 0), "r0"), named(i64s(dims(), 1<<63-1), "r1"), named(i64s(dims(), 1), "r2"))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := model(13, &onnx.Graph{
				Inputs:       []onnx.ValueInfo{info("x", onnx.Float, 2, 3)},
				Initializers: []*onnx.Tensor{named(list1(1, 2, 3), "k"), named(list32(1, 2, 3), "f"), named(list1(0), "zero")},
				Nodes:        c.nodes, Outputs: outputs("y"),
			})
			if c.edit != nil {
				c.edit(m)
			}
			if c.name == "reshape" {
				c.want = "f32[2,3] can't take the shape [4,-1]: there is no size for its -1"
			}
			m.Path = "dir/m.onnx"
			_, err := Lower(m, onnx.Options{})
			require.ErrorContains(t, err, c.want)
			require.True(t, strings.HasPrefix(err.Error(), "dir/m.onnx: "), "%v", err)
		})
	}
}

// TestOrder checks that nodes may stand in any order in the file.
func TestOrder(t *testing.T) {
	g := &onnx.Graph{
		Inputs: []onnx.ValueInfo{info("x", onnx.Float, 2)},
		Nodes: []*onnx.Node{
			node("Neg", names("b"), names("y")),
			node("Abs", names("a"), names("b")),
			node("Unknown", names("a"), names("dead")), // nobody needs it
			node("Exp", names("x"), names("a")),
		},
		Outputs: outputs("y"),
	}
	low := mustLower(t, model(13, g), onnx.Options{})
	out, err := interpret(low, map[string][]byte{"x": list32(0, 0).Data})
	require.NoError(t, err)
	require.Equal(t, []float64{-1, -1}, numbers(graph.F32, out[0]))
}

func TestDeepGraph(t *testing.T) {
	const n = 100_000
	g := &onnx.Graph{Inputs: []onnx.ValueInfo{info("v0", onnx.Float, 1)}, Outputs: outputs("y")}
	for i := range n { // backwards, so that the order has to be found
		to := fmt.Sprint("v", n-i)
		if i == 0 {
			to = "y"
		}
		g.Nodes = append(g.Nodes, node("Neg", names(fmt.Sprint("v", n-i-1)), names(to)))
	}
	low, err := Lower(model(13, g), onnx.Options{})
	require.NoError(t, err)
	require.Len(t, low.Executable.Graphs[0].Nodes, n)
}
