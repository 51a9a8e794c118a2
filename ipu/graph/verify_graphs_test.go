package graph

import (
	"testing"

	"github.com/stretchr/testify/require"
)

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
