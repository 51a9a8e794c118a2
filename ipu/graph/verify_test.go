package graph_test

import (
	"slices"
	"testing"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/internal/graphtest"

	"github.com/stretchr/testify/require"
)

func TestVerifyErrors(t *testing.T) {
	// Tensors of the sample by name.
	e := graphtest.Sample(t)
	id := func(name string) graph.TensorID {
		at := slices.IndexFunc(e.Tensors, func(x graph.Tensor) bool { return x.Name == name })
		require.GreaterOrEqual(t, at, 0, name)
		return graph.TensorID(at)
	}
	main := func(e *graph.Executable) *graph.Graph { return &e.Graphs[0] }
	body := func(e *graph.Executable) []graph.Step { return e.Programs[1].Steps[0].Body }
	tests := []struct {
		name  string
		spoil func(e *graph.Executable)
		want  string
	}{
		{"dtype", func(e *graph.Executable) { e.Tensors[0].Type.DType = 77 }, `tensor 0 "x": element type dtype(77)`},
		{"size", func(e *graph.Executable) { e.Tensors[0].Type.Shape = []int64{1 << 50} }, `tensor 0 "x": f32[1125899906842624] is too big`},
		{"data of a local", func(e *graph.Executable) { e.Tensors[0].Data = []byte{} }, `tensor 0 "x": it has data but is not a constant`},
		{"data size", func(e *graph.Executable) { e.Tensors[id("bias")].Data = make([]byte, 15) }, "its data has 15 bytes, want 16 for f32[4]"},
		{"constant and persistent", func(e *graph.Executable) { e.Tensors[id("bias")].Persistent = true }, "it is a constant and persistent"},
		{"bool data", func(e *graph.Executable) {
			e.Tensors = append(e.Tensors, graph.Tensor{Type: typ(graph.Bool, 2), Const: true, Data: []byte{1, 2}})
		}, "its element 1 is 2, want 0 to 1 for bool"},
		{"i4 data", func(e *graph.Executable) {
			e.Tensors = append(e.Tensors, graph.Tensor{Type: typ(graph.I4, 2), Const: true, Data: []byte{0xf8, 0xf7}})
		}, "its element 1 is -9, want -8 to 7 for i4"},
		{"memory", func(e *graph.Executable) {
			for range 40 {
				e.Tensors = append(e.Tensors, graph.Tensor{Type: typ(graph.U8, 1<<39)})
			}
		}, "want at most 2^42"},
		{"empty handle", func(e *graph.Executable) { e.Streams[0].Handle = "" }, `stream 0 "": its handle is empty`},
		{"handle twice", func(e *graph.Executable) { e.Streams[1].Handle = e.Streams[0].Handle }, "stream 0 has the same handle"},
		{"direction", func(e *graph.Executable) { e.Streams[1].Direction = 9 }, "its direction is 9"},
		{"stream type", func(e *graph.Executable) { e.Streams[1].Type.DType = 0 }, "element type invalid"},
		{"no operator", func(e *graph.Executable) { main(e).Nodes[0].Op = nil }, `graph 0 "main", node 0 "gemm" (no operator): it has no operator`},
		{"nil operator", func(e *graph.Executable) { main(e).Nodes[0].Op = (*graph.Gemm)(nil) }, "it has no operator"},
		{"foreign operator", func(e *graph.Executable) { main(e).Nodes[0].Op = &foreign{} }, "is not one of this package's"},
		{"operand", func(e *graph.Executable) { main(e).Nodes[0].Inputs[1] = 99 }, `node 0 "gemm" (Gemm): operand 1: tensor 99 does not exist`},
		{"operand below none", func(e *graph.Executable) { main(e).Nodes[0].Inputs[1] = -2 }, "tensor -2 does not exist"},
		{"operand types", func(e *graph.Executable) { main(e).Nodes[0].Inputs[1] = id("x") }, `node 0 "gemm" (Gemm): a is f32[2,3]`},
		{"results", func(e *graph.Executable) { main(e).Nodes[0].Outputs = []graph.TensorID{id("gemm"), graph.None} }, "2 results, want at most 1"},
		{"result", func(e *graph.Executable) { main(e).Nodes[0].Outputs[0] = 99 }, "result 0: tensor 99 does not exist"},
		{"result type", func(e *graph.Executable) { e.Tensors[id("half")].Type.DType = graph.BF16 }, `(Cast): result 0 is tensor 10 "half" of type bf16[2,1], want f16[2,1]`},
		{"parameter", func(e *graph.Executable) { main(e).Params = []graph.TensorID{99} }, `graph 0 "main": parameters and results: tensor 99 does not exist`},
		{"constant written", func(e *graph.Executable) { main(e).Nodes[9].Outputs[0] = id("one") }, `node 9 "tick" (Binary): tensor 4 "one" is a constant, but it is written by a node`},
		{"written twice", func(e *graph.Executable) { main(e).Nodes[1].Outputs[0] = id("gemm") }, `tensor 6 "gemm" is written by more than one: each is a node`},
		{"stream", func(e *graph.Executable) { body(e)[0].Stream = 9 }, `program 1 "main": step 0 (Repeat): step 0 (CopyIn): stream 9 does not exist`},
		{"step tensor", func(e *graph.Executable) { body(e)[0].Tensor = -1 }, "tensor -1 does not exist"},
		{"step direction", func(e *graph.Executable) { body(e)[0].Kind = graph.CopyOut }, `stream "x" goes the other way: host-to-device`},
		{"step type", func(e *graph.Executable) { body(e)[0].Tensor = id("w") }, `tensor 1 "w" is f32[3,4], want f32[2,3] like stream "x"`},
		{"step graph", func(e *graph.Executable) { body(e)[1].Graph = 1 }, "graph 1 does not exist"},
		{"step kind", func(e *graph.Executable) { body(e)[1].Kind = 9 }, "step 1 (step(9)): there is no such kind of step"},
		{"count", func(e *graph.Executable) { e.Programs[1].Steps[0].Count = 0 }, "it repeats 0 times, want at least 1"},
		{"call with parameters", func(e *graph.Executable) {
			main(e).Params = []graph.TensorID{id("none")}
			e.Tensors[id("none")] = graph.Tensor{Type: graphtest.F32()}
		},
			"has 1 parameters and 0 results, want none in a graph that a program calls"},
		{"index order", func(e *graph.Executable) { e.Programs[2].Index = 1 }, `program 1 "save": its index is not`},
		{"index below 0", func(e *graph.Executable) { e.Programs[0].Index = -1 }, "its index is not between 0 and"},
		{"read before written", func(e *graph.Executable) { e.Programs[1].Steps[0].Body = body(e)[1:] },
			`program 1 "main": step 0 (Repeat): step 0 (Call): graph 0 "main" reads tensor 0 "x", but nothing has written it yet`},
		{"copied out before written", func(e *graph.Executable) { slices.Reverse(body(e)) }, `step 0 (CopyOut): tensor 10 "half" is read, but nothing has written it yet`},
		{"nodes out of order", func(e *graph.Executable) { slices.Reverse(main(e).Nodes) }, "is read before it is written"},
		{"nesting", func(e *graph.Executable) {
			for range graph.MaxNesting + 1 {
				e.Programs[1].Steps = []graph.Step{{Kind: graph.Repeat, Count: 1, Body: e.Programs[1].Steps}}
			}
		}, "Repeat steps are nested deeper than 32"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := graphtest.Sample(t)
			tt.spoil(e)
			err := graph.Verify(e)
			require.ErrorIs(t, err, graph.ErrInvalid)
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func typ(d graph.DType, shape ...int64) graph.TensorType {
	return graph.TensorType{DType: d, Shape: shape}
}

// foreign is an operator of another package.
type foreign struct{}

func (*foreign) Kind() string                                            { return "foreign" }
func (*foreign) Infer(in []graph.TensorType) ([]graph.TensorType, error) { return in, nil }
