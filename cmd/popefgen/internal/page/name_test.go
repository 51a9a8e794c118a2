package page

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/graph"
)

func TestSplitName(t *testing.T) {
	for name, want := range map[string]string{
		"/encoder/layer.0/attention/self/query/MatMul": "encoder|layer.0|attention|self|query|>MatMul",
		"/layer1/layer1.0/conv1/Conv":                  "layer1|layer1.0|conv1|>Conv",
		"encoder.layer.3.mlp.MatMul":                   "encoder|layer|layer.3|mlp|>MatMul",
		"/0/0.1/Relu":                                  "module 0|module 0.1|>Relu",
		"Add.2":                                        ">Add.2",
		"Add/2":                                        ">Add/2",
		"node_Conv_17":                                 ">node_Conv_17",
		"":                                             ">",
		"///":                                          ">",
		"model/conv/Conv2D;model/bn/Fused":             "model|conv|>Conv2D",
		"Model/Conv1_relu/Relu6_Model/bn/Norm_Model/c/Conv2D": "Model|Conv1|Conv1_relu|>Relu6",
		"net/block_3_expand/Conv":                             "net|block_3|block_3_expand|>Conv",
	} {
		path, leaf := splitName(name)
		got := strings.Join(append(path, ">"+leaf), "|")
		require.Empty(t, cmp.Diff(want, got), name)
	}
	rapid.Check(t, func(t *rapid.T) {
		path, _ := splitName(rapid.String().Draw(t, "name"))
		require.LessOrEqual(t, len(path), 2*maxNesting)
		for _, p := range path {
			require.NotEmpty(t, p)
		}
	})
}

func TestTells(t *testing.T) {
	for name, want := range map[string]bool{"Add_t37": false, "Conv_12": false, "node_conv2d_3": false, "n8": false, "Plus30": false, "MatMul": false,
		"choice": true, "query": true, "box_decoder": true, "BatchNormalization_4": false} {
		require.Equal(t, want, tells(name), name)
	}
}

// pytorch is a network of layers, each an attention of sorts and a feed-forward
// part, with the names that PyTorch gives: of nodes, or of weights alone as
// newer exporters do. The weights are loaded, and one of each layer's is
// computed by the load program.
func pytorch(layers int, nodeNames bool) *graph.Executable {
	e := &graph.Executable{Name: "main_graph"}
	tensor := func(name string, t graph.TensorType, persistent bool) graph.TensorID {
		e.Tensors = append(e.Tensors, graph.Tensor{Name: name, Type: t, Persistent: persistent})
		return graph.TensorID(len(e.Tensors) - 1)
	}
	var load graph.Program
	main, prepare := graph.Graph{Name: "main"}, graph.Graph{Name: "prepare"}
	weight := func(name string, t graph.TensorType) graph.TensorID {
		id := tensor(name, t, true)
		e.Streams = append(e.Streams, graph.Stream{Handle: "h2d_" + name, Type: t})
		load.Steps = append(load.Steps, graph.Step{Kind: graph.CopyIn, Stream: graph.StreamID(len(e.Streams) - 1), Tensor: id})
		return id
	}
	count := 0
	node := func(module string, op graph.Op, shape graph.TensorType, in ...graph.TensorID) graph.TensorID {
		name := fmt.Sprintf("node_%s_%d", strings.ToLower(op.Kind()), count)
		if nodeNames {
			name = "/" + strings.ReplaceAll(module, "@", "/") + "/" + op.Kind()
		}
		count++
		y := tensor(fmt.Sprintf("val_%d", count), shape, false)
		main.Nodes = append(main.Nodes, graph.Node{Op: op, Name: name, Inputs: in, Outputs: []graph.TensorID{y}})
		return y
	}
	x := tensor("x", f32(8, 16), false)
	in := x
	for i := range layers {
		layer := fmt.Sprintf("encoder@layer.%d", i)
		name := fmt.Sprintf("encoder.layer.%d.", i)
		raw := weight(name+"attention.query.raw", f32(16, 16))
		w := tensor(name+"attention.query.weight", f32(16, 16), true)
		prepare.Nodes = append(prepare.Nodes, graph.Node{Op: &graph.Transpose{Perm: []int64{1, 0}}, Inputs: []graph.TensorID{raw}, Outputs: []graph.TensorID{w}})
		h := x
		if i > 0 { // between two layers
			h = node(layer+"@attention", &graph.Reshape{Shape: []int64{8, 16}}, f32(8, 16), x)
		}
		q := node(layer+"@attention@query", &graph.MatMul{}, f32(8, 16), h, w)
		s := node(layer+"@attention", &graph.Softmax{Axis: 1}, f32(8, 16), q)
		a := node(layer+"@attention", &graph.Binary{Fn: graph.Add}, f32(8, 16), s, x)
		flat := node(layer+"@output", &graph.Reshape{Shape: []int64{16}}, f32(16), weight(name+"output.bias", f32(1, 16)))
		h = node(layer+"@output", &graph.MatMul{}, f32(8, 16), a, weight(name+"output.dense.weight", f32(16, 16)))
		x = node(layer+"@output", &graph.Binary{Fn: graph.Add}, f32(8, 16), h, flat)
	}
	y := node("classifier", &graph.MatMul{}, f32(8, 4), x, weight("classifier.weight", f32(16, 4)))
	e.Graphs = []graph.Graph{main, prepare}
	e.Streams = append(e.Streams, graph.Stream{Handle: "h2d_x", Type: f32(8, 16)}, graph.Stream{Handle: "anchor_d2h_y", Direction: graph.DeviceToHost, Type: f32(8, 4)})
	n := graph.StreamID(len(e.Streams))
	load.Name = "WeightsFromHost"
	load.Steps = append(load.Steps, graph.Step{Kind: graph.Call, Graph: 1})
	e.Programs = []graph.Program{load, {Index: 5, Name: "Program", Steps: []graph.Step{
		{Kind: graph.CopyIn, Stream: n - 2, Tensor: in}, {Kind: graph.Call}, {Kind: graph.CopyOut, Stream: n - 1, Tensor: y},
	}}}
	return e
}

// A model of PyTorch opens as its layers, from input to output: no load
// program, no weights but inside of operators, groups by module.
func TestPyTorchOpensAsItsLayers(t *testing.T) {
	for _, named := range []bool{true, false} {
		e := pytorch(2, named)
		require.NoError(t, graph.Verify(e))
		names := map[string]string{"h2d_x": "tokens", "anchor_d2h_y": "logits"}
		for _, s := range e.Streams[:len(e.Streams)-2] {
			names[s.Handle] = strings.TrimPrefix(s.Handle, "h2d_")
		}
		d, err := draw(e, names)
		require.NoError(t, err)
		got := outline(d.root, "")
		dense := map[bool]string{true: "output", false: "output/dense"}[named]
		layer := func(i int) string {
			return fmt.Sprintf(`  layer.%d | %d operators | 2 MatMul · 2 Add · Softmax
    attention | %d operators | MatMul · Softmax · Add
%s      MatMul | 16×16 | query
      Softmax
      Add
    MatMul | 16×16 | %s
    Add | 16 | output
`, i, 5+i, 3+i, strings.Repeat("      Reshape\n", i), dense)
		}
		require.Empty(t, cmp.Diff("tokens | input  f32[8,16]\nencoder | 11 operators | 4 MatMul · 4 Add · 2 Softmax\n"+layer(0)+layer(1)+
			"MatMul | 16×4 | classifier\nlogits | output  f32[8,4]\n", got), "named %v", named)
		for _, l := range d.edges {
			require.True(t, l.from.node >= 0 || l.from.Name == "tokens", "an edge from %q", l.from.Name)
		}
		checkDrawing(t, d)
		for _, b := range d.boxes {
			if b.Title == "MatMul" {
				require.Equal(t, "weight", b.Detail.In[1].Kind)
				if b.node == 0 {
					require.Equal(t, []string{"encoder.layer.0.attention.query.raw", "Transpose"}, []string{b.Detail.In[1].Name, b.Detail.In[1].Via})
				}
			}
		}
	}
}
