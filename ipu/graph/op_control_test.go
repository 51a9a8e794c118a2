package graph

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// controlled is an executable with graphs for an If and a Loop: the branches
// give x+x and x·x, the body carries a and collects a·a.
func controlled(t *testing.T) (e *Executable, x, cond TensorID, then, otherwise, body GraphID) {
	b := NewBuilder("controlled")
	x, cond = b.AddLocal("x", f32(2)), b.AddLocal("cond", typ(Bool))
	binary := func(fn BinaryFn, a, c TensorID) TensorID {
		out, err := b.Node(&Binary{Fn: fn}, string(fn), a, c)
		require.NoError(t, err)
		return out[0]
	}
	then = b.BeginGraph("then")
	b.SetParams(then, nil, []TensorID{binary(Add, x, x)})
	otherwise = b.BeginGraph("else")
	b.SetParams(otherwise, nil, []TensorID{binary(Mul, x, x)})
	body = b.BeginGraph("body")
	i, a := b.AddLocal("i", typ(I64)), b.AddLocal("a", f32(2))
	b.SetParams(body, []TensorID{i, a}, []TensorID{binary(Add, a, x), binary(Mul, a, a)})
	main := b.BeginGraph("main")
	_, err := b.Node(&If{then, otherwise}, "if", cond)
	require.NoError(t, err)
	out, err := b.Node(&Loop{Body: body, Count: 3}, "loop", None, None, x)
	require.NoError(t, err)
	require.Equal(t, f32(2), b.Type(out[0]))
	require.Equal(t, f32(3, 2), b.Type(out[1]))
	b.AddProgram(0, "main", b.CopyIn("x", x), b.CopyIn("cond", cond), b.Call(main), b.CopyOut("y", out[1]))
	e, err = b.Finish()
	require.NoError(t, err)
	return e, x, cond, then, otherwise, body
}

func TestInferGraphs(t *testing.T) {
	e, _, _, then, otherwise, body := controlled(t)
	yes, n := typ(Bool), typ(I64)
	type types = []TensorType
	tests := []struct {
		name string
		op   Op
		in   types
		want string
	}{
		{"if", &If{then, otherwise}, types{yes}, ""},
		{"one branch", &If{then, then}, types{typ(Bool, 1)}, ""},
		{"cond", &If{then, otherwise}, types{typ(Bool, 2)}, "cond is bool[2], want one element"},
		{"cond type", &If{then, otherwise}, types{n}, "cond is i64[]"},
		{"no branch", &If{then, 9}, types{yes}, "graph Else: graph 9 does not exist, want 0 to 3"},
		{"parameters", &If{body, then}, types{yes}, "2 parameters, want none"},
		{"other results", &If{then, 3}, types{yes}, "1 results and graph Else 0"},
		{"loop", &Loop{Body: body, Count: 3}, types{none, none, f32(2)}, ""},
		{"never", &Loop{Body: body}, types{none, none, f32(2)}, ""},
		{"endless", &Loop{Body: body, Count: -1}, types{none, none, f32(2)}, "nothing ends the loop"},
		{"two counts", &Loop{Body: body, Count: 1}, types{n, none, f32(2)}, "want one of them"},
		{"far too often", &Loop{Body: body, Count: 1 << 40}, types{none, none, f32(2)}, "attribute Count is 1099511627776"},
		{"too much collected", &Loop{Body: body, Count: 1 << 39}, types{none, none, f32(2)}, "too big"},
		{"unknown count", &Loop{Body: body, Count: -1}, types{n, none, f32(2)}, "how many iterations there are is not known"},
		{"conditional", &Loop{Body: body, Count: 1}, types{none, yes, f32(2)}, "how many iterations there are is not known"},
		{"while", &Loop{Body: body, Count: 1, While: true}, types{none, none, f32(2)}, "first result is not one bool"},
		{"count type", &Loop{Body: body, Count: -1}, types{f32(), none, f32(2)}, "count is f32[]"},
		{"loop cond type", &Loop{Body: body, Count: 1}, types{none, n, f32(2)}, "cond is i64[]"},
		{"few operands", &Loop{Body: body, Count: 1}, types{none}, "1 operands, want at least 2"},
		{"nothing carried", &Loop{Body: body, Count: 1}, types{none, none}, "has 2 parameters, want 1"},
		{"other type", &Loop{Body: body, Count: 1}, types{none, none, f32(3)}, "carried value 0 is f32[3] as operand, f32[2] as parameter"},
		{"iteration", &Loop{Body: then, Count: 1}, types{none, none}, "graph Body has 0 parameters"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := e.Infer(tt.op, tt.in)
			if tt.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tt.want)
			}
			_, err = tt.op.Infer(tt.in)
			require.ErrorIs(t, err, errGraphOp)
		})
	}
}

func TestVerifyControl(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(e *Executable, x, cond TensorID, then, otherwise, body GraphID)
		want  string
	}{
		{"valid", func(*Executable, TensorID, TensorID, GraphID, GraphID, GraphID) {}, ""},
		{"branch types", func(e *Executable, _, cond TensorID, then, _, _ GraphID) {
			e.Graphs[then].Results[0] = cond
		}, `node 0 "if" (If): result 0 of graph Then is bool[] and that of graph Else f32[2]`},
		{"body type", func(e *Executable, _, cond TensorID, _, _, body GraphID) {
			e.Graphs[body].Results[0] = cond
		}, `node 1 "loop" (Loop): carried value 0 is f32[2] as operand`},
		{"a branch uses itself", func(e *Executable, _, cond TensorID, then, otherwise, _ GraphID) {
			e.Graphs[then].Nodes = append(e.Graphs[then].Nodes, Node{Op: &If{otherwise, then}, Inputs: []TensorID{cond}})
		}, "uses itself"},
		{"a branch reads what comes later", func(e *Executable, _, _ TensorID, then, _, _ GraphID) {
			e.Graphs[then].Results[0] = e.Graphs[3].Nodes[1].Outputs[0]
		}, "is read before it is written"},
		{"a branch's own tensor outside", func(e *Executable, _, _ TensorID, then, _, _ GraphID) {
			e.Graphs[3].Nodes[1].Inputs[2] = e.Graphs[then].Results[0]
		}, "but nothing has written it yet"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e, x, cond, then, otherwise, body := controlled(t)
			tt.spoil(e, x, cond, then, otherwise, body)
			err := Verify(e)
			if tt.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tt.want)
			}
		})
	}
}
