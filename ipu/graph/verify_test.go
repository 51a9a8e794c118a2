package graph

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVerifyErrors(t *testing.T) {
	// Tensors of the sample by name.
	e := sample(t)
	id := func(name string) TensorID {
		at := slices.IndexFunc(e.Tensors, func(x Tensor) bool { return x.Name == name })
		require.GreaterOrEqual(t, at, 0, name)
		return TensorID(at)
	}
	main := func(e *Executable) *Graph { return &e.Graphs[0] }
	body := func(e *Executable) []Step { return e.Programs[1].Steps[0].Body }
	tests := []struct {
		name  string
		spoil func(e *Executable)
		want  string
	}{
		{"dtype", func(e *Executable) { e.Tensors[0].Type.DType = 77 }, `tensor 0 "x": element type dtype(77)`},
		{"size", func(e *Executable) { e.Tensors[0].Type.Shape = []int64{1 << 50} }, `tensor 0 "x": f32[1125899906842624] is too big`},
		{"data of a local", func(e *Executable) { e.Tensors[0].Data = []byte{} }, `tensor 0 "x": it has data but is not a constant`},
		{"data size", func(e *Executable) { e.Tensors[id("bias")].Data = make([]byte, 15) }, "its data has 15 bytes, want 16 for f32[4]"},
		{"constant and persistent", func(e *Executable) { e.Tensors[id("bias")].Persistent = true }, "it is a constant and persistent"},
		{"bool data", func(e *Executable) {
			e.Tensors = append(e.Tensors, Tensor{Type: typ(Bool, 2), Const: true, Data: []byte{1, 2}})
		}, "its element 1 is 2, want 0 to 1 for bool"},
		{"i4 data", func(e *Executable) {
			e.Tensors = append(e.Tensors, Tensor{Type: typ(I4, 2), Const: true, Data: []byte{0xf8, 0xf7}})
		}, "its element 1 is -9, want -8 to 7 for i4"},
		{"memory", func(e *Executable) {
			for range 40 {
				e.Tensors = append(e.Tensors, Tensor{Type: typ(U8, 1<<39)})
			}
		}, "want at most 2^42"},
		{"empty handle", func(e *Executable) { e.Streams[0].Handle = "" }, `stream 0 "": its handle is empty`},
		{"handle twice", func(e *Executable) { e.Streams[1].Handle = e.Streams[0].Handle }, "stream 0 has the same handle"},
		{"direction", func(e *Executable) { e.Streams[1].Direction = 9 }, "its direction is 9"},
		{"stream type", func(e *Executable) { e.Streams[1].Type.DType = 0 }, "element type invalid"},
		{"no operator", func(e *Executable) { main(e).Nodes[0].Op = nil }, `graph 0 "main", node 0 "gemm" (no operator): it has no operator`},
		{"nil operator", func(e *Executable) { main(e).Nodes[0].Op = (*Gemm)(nil) }, "it has no operator"},
		{"foreign operator", func(e *Executable) { main(e).Nodes[0].Op = &testOp{} }, "is not one of this package's"},
		{"operand", func(e *Executable) { main(e).Nodes[0].Inputs[1] = 99 }, `node 0 "gemm" (Gemm): operand 1: tensor 99 does not exist`},
		{"operand below none", func(e *Executable) { main(e).Nodes[0].Inputs[1] = -2 }, "tensor -2 does not exist"},
		{"operand types", func(e *Executable) { main(e).Nodes[0].Inputs[1] = id("x") }, `node 0 "gemm" (Gemm): a is f32[2,3]`},
		{"results", func(e *Executable) { main(e).Nodes[0].Outputs = []TensorID{id("gemm"), None} }, "2 results, want at most 1"},
		{"result", func(e *Executable) { main(e).Nodes[0].Outputs[0] = 99 }, "result 0: tensor 99 does not exist"},
		{"result type", func(e *Executable) { e.Tensors[id("half")].Type.DType = BF16 }, `(Cast): result 0 is tensor 10 "half" of type bf16[2,1], want f16[2,1]`},
		{"parameter", func(e *Executable) { main(e).Params = []TensorID{99} }, `graph 0 "main": parameters and results: tensor 99 does not exist`},
		{"constant written", func(e *Executable) { main(e).Nodes[9].Outputs[0] = id("one") }, `node 9 "tick" (Binary): tensor 4 "one" is a constant, but it is written by a node`},
		{"written twice", func(e *Executable) { main(e).Nodes[1].Outputs[0] = id("gemm") }, `tensor 6 "gemm" is written by more than one: each is a node`},
		{"stream", func(e *Executable) { body(e)[0].Stream = 9 }, `program 1 "main": step 0 (Repeat): step 0 (CopyIn): stream 9 does not exist`},
		{"step tensor", func(e *Executable) { body(e)[0].Tensor = -1 }, "tensor -1 does not exist"},
		{"step direction", func(e *Executable) { body(e)[0].Kind = CopyOut }, `stream "x" goes the other way: host-to-device`},
		{"step type", func(e *Executable) { body(e)[0].Tensor = id("w") }, `tensor 1 "w" is f32[3,4], want f32[2,3] like stream "x"`},
		{"step graph", func(e *Executable) { body(e)[1].Graph = 1 }, "graph 1 does not exist"},
		{"step kind", func(e *Executable) { body(e)[1].Kind = 9 }, "step 1 (step(9)): there is no such kind of step"},
		{"count", func(e *Executable) { e.Programs[1].Steps[0].Count = 0 }, "it repeats 0 times, want at least 1"},
		{"call with parameters", func(e *Executable) {
			main(e).Params = []TensorID{id("none")}
			e.Tensors[id("none")] = Tensor{Type: f32()}
		},
			"has 1 parameters and 0 results, want none in a graph that a program calls"},
		{"index order", func(e *Executable) { e.Programs[2].Index = 1 }, `program 1 "save": its index is not`},
		{"index below 0", func(e *Executable) { e.Programs[0].Index = -1 }, "its index is not between 0 and"},
		{"read before written", func(e *Executable) { e.Programs[1].Steps[0].Body = body(e)[1:] },
			`program 1 "main": step 0 (Repeat): step 0 (Call): graph 0 "main" reads tensor 0 "x", but nothing has written it yet`},
		{"copied out before written", func(e *Executable) { slices.Reverse(body(e)) }, `step 0 (CopyOut): tensor 10 "half" is read, but nothing has written it yet`},
		{"nodes out of order", func(e *Executable) { slices.Reverse(main(e).Nodes) }, "is read before it is written"},
		{"nesting", func(e *Executable) {
			for range MaxNesting + 1 {
				e.Programs[1].Steps = []Step{{Kind: Repeat, Count: 1, Body: e.Programs[1].Steps}}
			}
		}, "Repeat steps are nested deeper than 32"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := sample(t)
			tt.spoil(e)
			err := Verify(e)
			require.ErrorIs(t, err, ErrInvalid)
			require.ErrorContains(t, err, tt.want)
		})
	}
}

// A local tensor is written either by a node or by steps.
func TestVerifyMixedWriters(t *testing.T) {
	b := NewBuilder("mixed")
	x := b.AddLocal("x", f32(2))
	g := b.BeginGraph("g")
	y, err := b.Node(&Unary{Fn: Neg}, "neg", x)
	require.NoError(t, err)
	b.AddProgram(0, "p", b.CopyIn("x", x), b.Call(g), b.CopyIn("y", y[0]), b.CopyOut("z", y[0]))
	_, err = b.Finish()
	require.ErrorContains(t, err, `program 0 "p": step 2 (CopyIn): tensor 1 "neg" is written by a node and by a CopyIn step`)
}

// testOp is an operator that uses graphs: a branch on its Bool operand, whose
// result has the type of its second operand.
type testOp struct{ Then, Else GraphID }

func (*testOp) Kind() string { return "testOp" }
func (*testOp) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "cond", "x")
	if err != nil {
		return nil, err
	}
	return results(in[1])
}

// withTestOp makes the operator known for one test.
func withTestOp(t *testing.T) {
	operators["testOp"] = func() Op { return new(testOp) }
	usesGraphs["testOp"] = true
	t.Cleanup(func() {
		delete(operators, "testOp")
		delete(usesGraphs, "testOp")
	})
}

func branching(t *testing.T) (b *Builder, g, then GraphID) {
	withTestOp(t)
	b = NewBuilder("branch")
	x, cond := b.AddLocal("x", f32(2)), b.AddLocal("cond", typ(Bool))
	g, then = b.BeginGraph("main"), b.BeginGraph("then")
	neg, err := b.Node(&Unary{Fn: Neg}, "neg", x)
	require.NoError(t, err)
	b.SetParams(then, nil, neg)
	other := b.BeginGraph("else")
	b.SetParams(other, nil, []TensorID{x})
	b.SetGraph(g)
	y, err := b.Node(&testOp{then, other}, "if", cond, x)
	require.NoError(t, err)
	b.AddProgram(0, "main", b.CopyIn("x", x), b.CopyIn("cond", cond), b.Call(g), b.CopyOut("y", y[0]))
	return b, g, then
}

func TestVerifySubgraphs(t *testing.T) {
	b, _, _ := branching(t)
	e, err := b.Finish()
	require.NoError(t, err)
	got, err := Decode(encode(t, e))
	require.NoError(t, err)
	sameExecutable(t, e, got)

	e.Programs[0].Steps = e.Programs[0].Steps[1:]
	require.ErrorContains(t, Verify(e), `graph 0 "main" reads tensor 0 "x", but nothing has written it yet`, "a branch's reads are its user's")
}

func TestVerifyRecursiveGraphs(t *testing.T) {
	b, g, then := branching(t)
	b.SetGraph(then)
	_, err := b.Node(&testOp{g, g}, "again", 1, 0)
	require.NoError(t, err)
	_, err = b.Finish()
	require.ErrorContains(t, err, `graph 0 "main" uses itself`)
}

func TestVerifyBranchKeepsItsTensors(t *testing.T) {
	b, g, then := branching(t)
	b.SetGraph(g)
	inner := b.exe.Graphs[then].Results[0]
	_, err := b.Node(&Unary{Fn: Neg}, "peek", inner)
	require.NoError(t, err)
	_, err = b.Finish()
	require.ErrorContains(t, err, `reads tensor 2 "neg", but nothing has written it yet`)
}

func TestVerifyNestedGraphs(t *testing.T) {
	withTestOp(t)
	b := NewBuilder("deep")
	x, cond := b.AddConst("x", f32(), floatData(1)), b.AddConst("cond", typ(Bool), []byte{1})
	last := b.BeginGraph("leaf")
	b.SetParams(last, nil, []TensorID{x})
	for range MaxNesting {
		g := b.BeginGraph("level")
		out, err := b.Node(&testOp{last, last}, "if", cond, x)
		require.NoError(t, err)
		b.SetParams(g, nil, out)
		last = g
	}
	_, err := b.Finish()
	require.ErrorContains(t, err, "nests graphs deeper than 32")
}

func TestBuilderErrors(t *testing.T) {
	b := NewBuilder("b")
	x := b.AddLocal("x", f32(2))
	_, err := b.Node(&Unary{Fn: Neg}, "n", x)
	require.EqualError(t, err, `node "n" (Unary): no graph has been begun`)
	b.BeginGraph("g")
	_, err = b.Node(&Unary{Fn: Neg}, "n", 7)
	require.EqualError(t, err, `node "n" (Unary): operand 0 is tensor 7, want one of the 1 added`)
	_, err = b.Node(&Unary{Fn: Not}, "n", x)
	require.EqualError(t, err, `node "n" (Unary): not: x is f32[2], want elements of type bool`)
	require.ErrorContains(t, b.NodeTo(&Unary{Fn: Neg}, "n", []TensorID{x, x}, x), "2 results, want at most 1")
	require.Equal(t, Tensor{}, b.Tensor(None))
}
