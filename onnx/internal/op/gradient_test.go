package op_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/onnx/internal/onnxtest"
)

const preview = "ai.onnx.preview.training"

// gradientOf is a Gradient node; a text lists names with spaces between.
func gradientOf(in, out []string, y string, xs ...string) *onnx.Node {
	list := func(name string, texts []string) *onnx.Attribute {
		a := &onnx.Attribute{Name: name, Type: onnx.AttrStrings}
		for _, s := range texts {
			a.Strings = append(a.Strings, []byte(s))
		}
		return a
	}
	n := onnxtest.Node("Gradient", in, out, list("xs", xs), onnxtest.AStr("y", y))
	if len(in) > len(xs) {
		n.Attributes = append(n.Attributes, list("zs", in[len(xs):]))
	}
	n.Domain = preview
	return n
}

// differentiated is a model of floats [2] with the nodes of Gradient's domain.
func differentiated(outputs []string, inputs []string, nodes ...*onnx.Node) *onnx.Model {
	g := &onnx.Graph{Nodes: nodes, Outputs: onnxtest.Outputs(outputs...)}
	for _, name := range inputs {
		g.Inputs = append(g.Inputs, onnxtest.Info(name, onnx.Float, 2))
	}
	m := onnxtest.Model(15, g)
	m.Opsets = append(m.Opsets, onnx.Opset{Domain: preview, Version: 1})
	return m
}

// TestGradient runs models with Gradient nodes, the first two of which are ONNX's own tests of it.
func TestGradient(t *testing.T) {
	names, node := onnxtest.Names, onnxtest.Node
	add := node("Add", names("a", "b"), names("c"))
	mul := node("Mul", names("c", "a"), names("d"))
	values := map[string][]float32{"a": {1.5, -2}, "b": {0.25, 3}, "p": {4, 5}, "q": {-1, 0.5}}
	type pair = []float32
	for _, c := range []struct {
		name  string
		in    []string
		want  map[string]pair
		nodes []*onnx.Node
	}{
		{"add", names("a", "b"), map[string]pair{"c": {1.75, 1}, "dc_da": {1, 1}, "dc_db": {1, 1}},
			[]*onnx.Node{add, gradientOf(names("a", "b"), names("dc_da", "dc_db"), "c", "a", "b")}},
		{"add and mul", names("a", "b"), map[string]pair{"d": {2.625, -2}, "dd_da": {3.25, -1}, "dd_db": {1.5, -2}},
			[]*onnx.Node{add, mul, gradientOf(names("a", "b"), names("dd_da", "dd_db"), "d", "a", "b")}},
		{"of what nobody else needs", names("a", "b"), map[string]pair{"g": {3.25, -1}},
			[]*onnx.Node{mul, gradientOf(names("a", "b"), names("g"), "d", "a"), add}},
		{"one of two", names("a", "b"), map[string]pair{"dd_db": {1.5, -2}},
			[]*onnx.Node{add, mul, gradientOf(names("a", "b"), names("", "dd_db"), "d", "a", "b")}},
		{"at other values", names("a", "b", "p", "q"), map[string]pair{"d": {2.625, -2}, "da": {2*4 - 1, 2*5 + 0.5}, "db": {4, 5}},
			[]*onnx.Node{add, mul, gradientOf(names("p", "q"), names("da", "db"), "d", "a", "b")}},
		{"the same value twice", names("a", "b", "p"), map[string]pair{"da": {12, 15}, "db": {4, 5}},
			[]*onnx.Node{add, mul, gradientOf(names("p", "p"), names("da", "db"), "d", "a", "b")}},
		{"by a value on the way", names("a", "b"), map[string]pair{"dc": {1.5, -2}, "da": {1.75, 1}},
			[]*onnx.Node{add, mul, gradientOf(names("c", "a"), names("dc", "da"), "d", "c", "a")}},
		{"second order", names("a", "b"), map[string]pair{"d2": {6 * 1.5, 6 * -2}},
			[]*onnx.Node{node("Mul", names("a", "a"), names("s")), node("Mul", names("s", "a"), names("y")),
				gradientOf(names("a"), names("d1"), "y", "a"), gradientOf(names("a"), names("d2"), "d1", "a")}},
		{"in a branch", names("a", "b"), map[string]pair{"r": {3.25, -1}},
			[]*onnx.Node{add, mul, node("ReduceSum", names("b"), names("sum"), onnxtest.AInt("keepdims", 0)), node("Cast", names("sum"), names("cond"), onnxtest.AInt("to", int64(onnx.Bool))),
				node("If", names("cond"), names("r"), onnxtest.AGraph("then_branch", &onnx.Graph{Nodes: []*onnx.Node{gradientOf(names("a", "b"), names("g"), "d", "a")}, Outputs: onnxtest.Outputs("g")}),
					onnxtest.AGraph("else_branch", &onnx.Graph{Nodes: []*onnx.Node{node("Identity", names("a"), names("h"))}, Outputs: onnxtest.Outputs("h")}))}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var outputs []string
			for name := range c.want {
				outputs = append(outputs, name)
			}
			m := differentiated(outputs, c.in, c.nodes...)
			r, err := compile.Compile(m, compile.Options{})
			require.NoError(t, err)
			feeds := map[string][]byte{}
			for _, name := range c.in {
				for _, v := range values[name] {
					feeds[name] = binary.LittleEndian.AppendUint32(feeds[name], math.Float32bits(v))
				}
			}
			got := runEngine(t, r, feeds)
			for name, want := range c.want {
				require.InDeltaSlice(t, want, floats32(got[name]), 1e-6, name)
			}
		})
	}
}

// TestGradientOfDropout wants the mask of what the model gives in the gradient of it.
func TestGradientOfDropout(t *testing.T) {
	m := differentiated(onnxtest.Names("y", "dw"), nil,
		onnxtest.Node("Mul", onnxtest.Names("x", "w"), onnxtest.Names("p")),
		onnxtest.Node("Dropout", onnxtest.Names("p", "ratio", "yes"), onnxtest.Names("y")),
		gradientOf(onnxtest.Names("w", "x"), onnxtest.Names("dw"), "y", "w"))
	for _, name := range []string{"x", "w"} {
		m.Graph.Inputs = append(m.Graph.Inputs, onnxtest.Info(name, onnx.Float, 1000))
	}
	m.Graph.Initializers = []*onnx.Tensor{onnxtest.Named(onnxtest.F32s(nil, 0.5), "ratio"), onnxtest.Named(onnxtest.Bools(nil, 1), "yes")}
	r, err := compile.Compile(m, compile.Options{})
	require.NoError(t, err)
	feeds := map[string][]byte{}
	for i := range 1000 {
		feeds["x"] = binary.LittleEndian.AppendUint32(feeds["x"], math.Float32bits(float32(i+1)))
		feeds["w"] = binary.LittleEndian.AppendUint32(feeds["w"], math.Float32bits(2))
	}
	got := runEngine(t, r, feeds)
	y, dw := floats32(got["y"]), floats32(got["dw"])
	for i := range y {
		require.InDelta(t, y[i]/2, dw[i], 1e-3, "element %d", i)
	}
}

// TestGradientInvalid lists Gradient nodes that make no sense, and what is said of them.
func TestGradientInvalid(t *testing.T) {
	names, node := onnxtest.Names, onnxtest.Node
	square := node("Mul", names("a", "a"), names("s"))
	for want, nodes := range map[string][]*onnx.Node{
		`attribute y is "nothing": graph output "nothing" is not defined`:                  {gradientOf(names("a"), names("r"), "nothing", "a")},
		`it has 2 operands, want one for each name in attributes xs (1) and zs (0)`:        {square, {OpType: "Gradient", Domain: preview, Inputs: names("a", "b"), Outputs: names("r"), Attributes: gradientOf(names("a"), names("r"), "s", "a").Attributes}},
		`attributes xs and zs name "a" twice`:                                              {square, gradientOf(names("a", "b"), names("r", "u"), "s", "a", "a")},
		`tensor "b": it has no influence on what gradients are provided of`:                {square, gradientOf(names("a", "b"), names("q", "r"), "s", "a", "b")},
		`attribute y is "i", i64[2], want a float to differentiate`:                        {node("Cast", names("a"), names("i"), onnxtest.AInt("to", int64(onnx.Int64))), gradientOf(names("a"), names("r"), "i", "a")},
		`attribute y is "q", which depends on this gradient`:                               {gradientOf(names("a"), names("r"), "q", "a"), gradientOf(names("a"), names("q"), "r", "a")},
		`it takes the bits of numbers for others, which has no useful gradient`:            {node("Cast", names("a"), names("h"), onnxtest.AInt("to", int64(onnx.Float16))), node("BitCast", names("h"), names("f"), onnxtest.AInt("to", int64(onnx.BFloat16))), gradientOf(names("a"), names("r"), "f", "a")},
		`operand 0 is i64[2], want a float to differentiate by`:                            {square, node("Cast", names("a"), names("i"), onnxtest.AInt("to", int64(onnx.Int64))), gradientOf(names("i"), names("r"), "s", "a")},
		`it is the gradient of a gradient of a gradient …, of which at most 8 are lowered`: tower(9),
	} {
		m := differentiated(names("r"), names("a", "b"), nodes...)
		m.Opsets[0].Version = 26
		_, err := compile.LowerContext(context.Background(), m, onnx.Options{})
		require.ErrorContains(t, err, want, want)
	}
	_, err := compile.LowerContext(context.Background(), differentiated(names("r"), names("a"), tower(4)...), onnx.Options{})
	require.NoError(t, err)
}

// tower is a gradient of gradients of so many orders.
func tower(orders int) []*onnx.Node {
	nodes := []*onnx.Node{onnxtest.Node("Sin", onnxtest.Names("a"), onnxtest.Names("g0"))}
	for i := range orders {
		out := fmt.Sprint("g", i+1)
		if i+1 == orders {
			out = "r"
		}
		nodes = append(nodes, gradientOf(onnxtest.Names("a"), onnxtest.Names(out), fmt.Sprint("g", i), "a"))
	}
	return nodes
}
