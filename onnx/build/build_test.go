package build_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/build"
)

var ctx = context.Background()

// model returns what a Builder has built.
func model(t *testing.T, b *build.Builder) *onnx.Model {
	t.Helper()
	m, err := b.Model(ctx)
	require.NoError(t, err)
	return m
}

// nodes describes a graph's nodes, one a line: results, operator, operands, and attributes of other compilers.
func nodes(g *onnx.Graph) string {
	var b strings.Builder
	for _, n := range g.Nodes {
		fmt.Fprintf(&b, "%s: %s = %s(%s)", n.Name, strings.Join(n.Outputs, ", "), n.OpType, strings.Join(n.Inputs, ", "))
		for _, a := range n.Attributes {
			switch a.Type {
			case onnx.AttrInt:
				fmt.Fprintf(&b, " %s=%d", a.Name, a.Int)
			case onnx.AttrFloat:
				fmt.Fprintf(&b, " %s=%g", a.Name, a.Float)
			case onnx.AttrString:
				fmt.Fprintf(&b, " %s=%s", a.Name, a.String)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// TestAdd is the first program of PopART's guide.
func TestAdd(t *testing.T) {
	b := build.New()
	i1 := b.Input("", onnx.Float, 1, 2, 32, 32)
	i2 := b.Input("", onnx.Float, 1, 2, 32, 32)
	o := b.Add(i1, i2)
	b.Output("", o)
	require.Equal(t, []string{"input", "input/1", "Add:0"}, []string{i1.Name(), i2.Name(), o.Name()})
	m := model(t, b)
	require.Equal(t, "Add: Add:0 = Add(input, input/1)\n", nodes(m.Graph))
	require.Equal(t, "float[1,2,32,32]", m.Graph.Outputs[0].String())
	require.Equal(t, []onnx.Opset{{Version: build.Newest()}}, m.Opsets)
}

// TestNames: scopes stand in front of the names of nodes and values, a node's own name in place of its operator's, and what is taken gets a number.
func TestNames(t *testing.T) {
	b := build.New(build.GraphName("net"))
	x := b.Input("x", onnx.Float, 2)
	var y *build.Tensor
	b.Scope("encoder", func() {
		y = b.Relu(x)
		b.Scope("layer", func() { y = b.Relu(b.Relu(y, build.Name("first"))) })
		w := b.Initializer("", build.TensorOf([]float32{1, 2}, 2))
		y = b.Add(y, w)
	})
	b.Output("y", b.Relu(b.Relu(y)))
	m := model(t, b)
	require.Equal(t, "net", m.Graph.Name)
	require.Equal(t, `encoder/Relu: encoder/Relu:0 = Relu(x)
encoder/layer/first: encoder/layer/first:0 = Relu(encoder/Relu:0)
encoder/layer/Relu: encoder/layer/Relu:0 = Relu(encoder/layer/first:0)
encoder/Add: encoder/Add:0 = Add(encoder/layer/Relu:0, encoder/init)
Relu: Relu:0 = Relu(encoder/Add:0)
Relu/1: y = Relu(Relu:0)
`, nodes(m.Graph))
}

// TestOutputNames: a value that others know by its name keeps it.
func TestOutputNames(t *testing.T) {
	b := build.New()
	x := b.Input("x", onnx.Float, 2)
	y := b.Neg(x)
	require.Equal(t, "Neg:0", y.Name())
	b.Output("y", y)
	b.Output("z", x)
	b.Output("", y)
	m := model(t, b)
	require.Equal(t, "Neg: Neg:0 = Neg(x)\nIdentity: y = Identity(Neg:0)\nIdentity/1: z = Identity(x)\n", nodes(m.Graph))
	require.Equal(t, []string{"y", "z", "Neg:0"}, m.Graph.OutputNames())
}

// TestPlacement: where nodes are to run stands in the file, in PopART's attributes.
func TestPlacement(t *testing.T) {
	b := build.New()
	x := b.Input("x", onnx.Float, 1)
	var o1, o2 *build.Tensor
	b.With(func() {
		o1 = b.Add(x, x)
		b.With(func() { o2 = b.Neg(b.Mul(x, x, build.VirtualGraph(3))) }, build.PipelineStage(2), build.VirtualGraph(1))
	}, build.VirtualGraph(0))
	o := b.Add(o1, o2)
	b.Place(o, build.VirtualGraph(1), build.RecomputeOutput(build.RecomputeRecompute), build.AvailableMemory(0.25), build.PartialSums("HALF"), build.SchedulePriority(2), build.ExecutionPhase(4), build.Attribute("__mine", "yes"))
	b.Output("o", o)
	m := model(t, b)
	require.Equal(t, `Add: Add:0 = Add(x, x) __ipu_number=0
Mul: Mul:0 = Mul(x, x) __ipu_number=3 __pipeline_stage=2
Neg: Neg:0 = Neg(Mul:0) __pipeline_stage=2 __ipu_number=1
Add/1: o = Add(Add:0, Neg:0) __ipu_number=1 __recompute_output_in_backward_pass=2 __available_memory=0.25 __partials_type=HALF __schedule_priority=2 __execution_phase=4 __mine=yes
`, nodes(m.Graph))
}

// TestResultsThatNothingReads: a result that may be left out is written if something reads it.
func TestResultsThatNothingReads(t *testing.T) {
	b := build.New()
	x := b.Input("x", onnx.Float, 1, 1, 4, 4)
	y, _ := b.MaxPool(x, []int64{2, 2})
	_, at := b.MaxPool(x, []int64{2, 2})
	_, h, _ := b.LSTM(b.Initializer("", build.TensorOf(make([]float32, 2), 2, 1, 1)), b.Initializer("", build.TensorOf(make([]float32, 4), 1, 4, 1)), b.Initializer("", build.TensorOf(make([]float32, 4), 1, 4, 1)), nil, nil, nil, nil, nil, build.HiddenSize(1))
	b.Output("y", y)
	b.Output("at", at)
	b.Output("h", h)
	m := model(t, b)
	require.Equal(t, [][]string{{"y"}, {"MaxPool:0/1", "at"}, {"", "h"}}, [][]string{m.Graph.Nodes[0].Outputs, m.Graph.Nodes[1].Outputs, m.Graph.Nodes[2].Outputs})
}

// TestSubgraphs: bodies read the values around them, return values of any graph, and know their inputs.
func TestSubgraphs(t *testing.T) {
	b := build.New()
	x := b.Input("x", onnx.Float, 3)
	cond := b.Input("cond", onnx.Bool)
	branch := b.If(cond,
		func(build.Tensors) build.Tensors { return build.Tensors{x, b.Neg(x)} },
		func(build.Tensors) build.Tensors { y := b.Exp(x); return build.Tensors{y, y} })
	require.Len(t, branch, 2)
	loop := b.Loop(build.Const(b, []int64{4}), nil, build.Tensors{branch[0]}, func(in build.Tensors) build.Tensors {
		require.Len(t, in, 3)
		next := b.Add(in[2], branch[1])
		return build.Tensors{in[1], next, next}
	})
	require.Len(t, loop, 2)
	scan := b.Scan(build.Tensors{x, loop[1]}, func(in build.Tensors) build.Tensors {
		require.Len(t, in, 2)
		b.Declare(in[1], onnx.Float, 3)
		sum := b.Add(in[0], in[1])
		return build.Tensors{sum, b.Relu(sum)}
	}, 1)
	b.Output("last", scan[0])
	b.Output("all", scan[1])
	m := model(t, b)
	require.Equal(t, "float[3]", m.Graph.Outputs[0].String())
	require.Equal(t, "float[4,3]", m.Graph.Outputs[1].String())
	body := m.Graph.Nodes[len(m.Graph.Nodes)-1].Attributes[0].Graph
	require.Equal(t, "float[3]", body.Inputs[1].String())
}

// TestVersions: the model is of one operator set, and the calls for others say what to call.
func TestVersions(t *testing.T) {
	b := build.New(build.Opset(11))
	x := b.Input("x", onnx.Float, 1, 3)
	b.Output("y", b.SqueezeV1(x, build.Axes(0)))
	m := model(t, b)
	require.EqualValues(t, 11, m.Opsets[0].Version)
	require.EqualValues(t, 6, m.IRVersion)
	b.Squeeze(x, nil)
	b.Gelu(x)
	b.UpsampleV7(x, []float32{1, 1})
	b.Upsample(x, x)
	b.Cast(x, onnx.Int32, build.Saturate(false))
	b.Pad(x, x, nil, x)
	b.BatchNormalizationV7(x, x, x, x, x, build.Spatial(true))
	requireMistakes(t, b.Err(),
		"Squeeze: it is an operator of sets from 13 on, and the model is of set 11: call SqueezeV1",
		"Gelu: it is an operator of sets from 20 on, and the model is of set 11: give build.New another build.Opset",
		"Upsample: it is an operator of sets 7 to 8, and the model is of set 11: give build.New another build.Opset",
		"Upsample: it is an operator of sets 9 to 9, and the model is of set 11: give build.New another build.Opset",
		`Cast: attribute "saturate" is one from operator set 19 on, and the model is of set 11`,
		"Pad: operand 3 (axes) is one from operator set 18 on, and the model is of set 11",
		`BatchNormalization: attribute "spatial" is one of operator sets before 9, and the model is of set 11`,
	)
}

// requireMistakes wants one error a line of this test, in this order.
func requireMistakes(t *testing.T, err error, want ...string) {
	t.Helper()
	_, file, _, _ := runtime.Caller(1)
	var got []string
	for line := range strings.SplitSeq(fmt.Sprint(err), "\n") {
		text, ok := regexp.MustCompile(`^([a-z_]+\.go):\d+: `).FindString(line), true
		require.NotEmpty(t, text, line)
		require.True(t, ok && strings.HasPrefix(text, filepath.Base(file)+":"), line)
		got = append(got, strings.TrimPrefix(line, text))
	}
	require.Equal(t, want, got)
}

func TestMistakes(t *testing.T) {
	b, other := build.New(), build.New()
	x := b.Input("x", onnx.Float, 2, 3)
	bad := b.MatMul(nil, x)
	b.Relu(b.Add(bad, x)) // of a wrong call: no further mistake
	b.Add(other.Input("a", onnx.Float, 1), x)
	b.Input("s", onnx.String)
	b.Input("d", onnx.Float, 1.5)
	b.Input("n", onnx.Float, -1)
	b.Initializer("w", build.TensorOf([]float32{1}, 2))
	b.Initializer("w", nil)
	b.Constant(build.Value(nil))
	b.Conv(x, x, nil, build.Pads(1), build.Pads(2))
	b.Relu(x, build.Attribute("alpha", 1))
	b.Relu(x, build.Attribute("__mine", struct{}{}))
	b.Elu(x, nil)
	b.Split(x, nil, 0)
	b.If(x, nil, nil)
	var inner *build.Tensor
	b.If(b.Input("c", onnx.Bool), func(build.Tensors) build.Tensors {
		inner = b.Relu(x)
		b.Output("o", inner)
		return build.Tensors{inner}
	},
		func(build.Tensors) build.Tensors { b.Input("i", onnx.Float, 1); return nil })
	b.Relu(inner)
	b.If(b.Input("c", onnx.Bool), func(build.Tensors) build.Tensors { return build.Tensors{x, x} }, func(build.Tensors) build.Tensors { return build.Tensors{x} })
	b.Output("", nil)
	b.Output("x", b.Relu(x))
	b.Output("a\xff", b.Relu(x))
	b.Place(x, build.VirtualGraph(1))
	b.Declare(x, onnx.Float)
	b.Custom("", 1, "Mine", nil, 1)
	b.Custom("com.x", 1, "Mine", nil, 1)
	b.Custom("com.x", 2, "Mine", nil, 1)
	b.Custom("com.x", 1, "Mine", nil, -1)
	b.SaveInitializersExternally("../w", nil)
	b.SaveInitializersExternally("w", x)
	b.Scope("s", nil)
	b.With(nil)
	b.Sum(build.Tensors{x, nil})
	_, err := b.Model(ctx)
	requireMistakes(t, err,
		"MatMul: operand 0 (A) is nil, want a value: it can't be left out",
		"Add: operand 0 (A) is a value of another Builder, or of none",
		"Input: element type string, which is not supported",
		"Input: dimension 0 is of type float64, want an int, an int64, a string or an onnx.Dim",
		"Input: dimension 0 is -1, want a size from 0 on",
		"Initializer: the tensor has 4 bytes of data, want 8 for f32[2]",
		"Initializer: the tensor is nil",
		`Constant: attribute "value": the tensor is nil`,
		`Conv: attribute "pads" is given twice`,
		`Relu: it has no attribute "alpha"; names of other compilers begin with __`,
		`Relu: attribute "__mine": it is of type struct {}, want int, int64, bool, onnx.ElemType, float32, string, []int64, []float32, []string or *onnx.Tensor`,
		"Elu: an option is nil",
		"Split: 0 results, want at least 1",
		`If: attribute "then_branch": the function is nil`,
		`If: attribute "else_branch": the function is nil`,
		`Output: output "o" within a subgraph, want it in the main graph: what a subgraph's function returns are its outputs`,
		`Input: input "i" within a subgraph, want it in the main graph: subgraphs read values of the graphs around them, and their own inputs are the arguments of their functions`,
		"If: else_branch: the function returns no values",
		"If: its subgraphs return 1 and 0 values, want as many of each",
		`Relu: operand 0 (X), "Relu:0", belongs to a subgraph that has ended: return it from the subgraph's function`,
		"If: its subgraphs return 2 and 1 values, want as many of each",
		"Output: the output is nil, want a value",
		`Output: there is something of the name "x" already`,
		`Output: the name "a\xff" is not UTF-8`,
		`Place: no node computes "x", which is an input or an initializer`,
		`Declare: the type of "x" is known already`,
		"Custom: operator Mine without a domain of its own: ONNX's operators are methods of the Builder",
		`Custom: version 2 of domain "com.x", of which the model has nodes of version 1: a model imports one version of a domain`,
		"Custom: -1 results, want 0 to 65536",
		`SaveInitializersExternally: the file "../w", want a name within the folder of the model`,
		`SaveInitializersExternally: value 0, "x", is no initializer of the main graph`,
		"Scope: the function is nil",
		"With: the function is nil",
		"Sum: data[1] is nil, want a value",
	)
	var one *build.Error
	require.ErrorAs(t, err, &one)
	_, err = b.Bytes(ctx)
	require.Error(t, err)
	require.ErrorAs(t, b.WriteFile(ctx, filepath.Join(t.TempDir(), "m.onnx")), &one)
	requireMistakes(t, build.New(build.Opset(0), nil, build.Opset(1000)).Err(),
		fmt.Sprintf("Opset: operator set 0, want one from 1 to %d", build.Newest()), fmt.Sprintf("Opset: operator set 1000, want one from 1 to %d", build.Newest()))
}

// TestSizesDoNotFit: what the lowering finds names the lines of the calls, in subgraphs too.
func TestSizesDoNotFit(t *testing.T) {
	b := build.New()
	x := b.Input("x", onnx.Float, 2, 3)
	y := b.MatMul(x, x)
	z := b.Relu(b.Add(x, build.Const(b, []int64{1})))
	c := b.Loop(build.Const(b, []int64{4}), nil, build.Tensors{x}, func(in build.Tensors) build.Tensors {
		return build.Tensors{in[1], b.Conv(in[2], x, nil)}
	})
	b.Output("y", y)
	b.Output("z", z)
	b.Output("chosen", c[0])
	_, err := b.Model(ctx)
	require.Len(t, strings.Split(err.Error(), "\n"), 3, err.Error())
	requireMistakes(t, err,
		"MatMul: a is f32[2,3] and b is f32[2,3], want as many columns of a as rows of b: 3 and 2",
		"Add: operand 1 (B) is i64[], want the element type of operand 0 (A), f32[2,3]",
		"Conv: operand 0 is f32[2,3], want at least 3 dimensions: batch, channels and spatial axes")
}

// TestTypes: outputs have types, with symbols of inputs; where they can't be found out, they have to be said.
func TestTypes(t *testing.T) {
	b := build.New()
	x := b.Input("x", onnx.Float, "N", 3, onnx.Dim{}, "M")
	y := b.Transpose(x, build.Perm(3, 0, 1, 2))
	b.Output("y", y)
	b.Output("size", b.Size(x))
	b.Output("flat", b.Flatten(x))
	b.Output("where", b.NonZero(x))
	m := model(t, b)
	var types []string
	for _, o := range m.Graph.Outputs {
		types = append(types, o.String())
	}
	require.Equal(t, []string{"float[M,N,3,?]", "int64[]", "float[N,?]", "int64[4,?]"}, types)
	info, err := b.Info(ctx, b.Exp(y))
	require.NoError(t, err)
	require.Equal(t, "float[M,N,3,?]", info.String())

	mine := b.Custom("com.x", 3, "Mine", build.Tensors{x, nil}, 2, build.Attribute("k", []int64{1}), build.Name("mine"), build.Subgraph("g", 1, func(in build.Tensors) build.Tensors { return in }))
	b.Output("mine", mine[1])
	_, err = b.Model(ctx)
	requireMistakes(t, err, `Model: the type of output "mine" can't be found out: say it with Declare`, "Custom: operator com.x.Mine of operator set 3 is not supported; hint: a custom operator can be lowered if the model defines it as a function")
	b.Declare(mine[1], onnx.Float, 3, "K")
	m = model(t, b)
	require.Equal(t, "float[3,K]", m.Graph.Outputs[4].String())
	require.Equal(t, []onnx.Opset{{Version: build.Newest()}, {Domain: "com.x", Version: 3}}, m.Opsets)
	b.Declare(y, onnx.Float, 1, 2)
	_, err = b.Model(ctx)
	requireMistakes(t, err, `Model: output "y" is declared as float[1,2], but it is float[M,N,3,?]: the numbers of dimensions differ`)
}

func TestNoBuilder(t *testing.T) {
	var none *build.Builder
	for _, b := range []*build.Builder{none, {}} {
		x := b.Input("x", onnx.Float)
		y, at := b.MaxPool(b.Relu(x), nil)
		b.Output("y", b.Graphcore().Gelu(y))
		b.Declare(at, onnx.Float)
		b.Place(at)
		b.With(func() {})
		b.Scope("s", func() {})
		b.SaveInitializersExternally("w")
		b.If(x, nil, nil)
		b.Split(x, nil, -3)
		b.Custom("d", 1, "x", nil, 2)
		build.Const(b, []bool{true})
		require.ErrorIs(t, b.Err(), build.ErrNoBuilder)
		_, err := b.Model(ctx)
		require.ErrorIs(t, err, build.ErrNoBuilder)
		_, err = b.Bytes(ctx)
		require.ErrorIs(t, err, build.ErrNoBuilder)
		_, err = b.Info(ctx, nil)
		require.ErrorIs(t, err, build.ErrNoBuilder)
		require.ErrorIs(t, b.WriteFile(ctx, "x"), build.ErrNoBuilder)
		require.Empty(t, x.Name())
	}
}

// TestManyMistakes: mistakes are counted from some number on.
func TestManyMistakes(t *testing.T) {
	b := build.New()
	for range 150 {
		b.Relu(nil)
	}
	require.ErrorContains(t, b.Err(), "and 50 more")
	require.Equal(t, 101, strings.Count(b.Err().Error(), "\n")+1)
}

// TestModelWithin: a model is made of a whole graph.
func TestModelWithin(t *testing.T) {
	b := build.New()
	x := b.Input("x", onnx.Float, 1)
	_, err := b.Model(ctx)
	require.ErrorContains(t, err, "the model has no outputs: add one with Output")
	b.Output("y", b.If(b.Input("c", onnx.Bool), func(build.Tensors) build.Tensors {
		_, err := b.Model(ctx)
		require.ErrorContains(t, err, "a subgraph is being made")
		return build.Tensors{x}
	}, func(build.Tensors) build.Tensors { return build.Tensors{x} })[0])
	model(t, b)
	done, cancel := context.WithCancel(ctx)
	cancel()
	_, err = b.Model(done)
	require.ErrorIs(t, err, context.Canceled)
}

// TestPanicInBody: after a function that panics, the Builder is where it was.
func TestPanicInBody(t *testing.T) {
	b := build.New()
	x := b.Input("x", onnx.Float, 1)
	require.PanicsWithError(t, "mine", func() {
		b.If(b.Input("c", onnx.Bool), func(build.Tensors) build.Tensors { panic(errors.New("mine")) }, func(build.Tensors) build.Tensors { return build.Tensors{x} })
	})
	b.Output("y", b.Relu(x))
	require.Equal(t, "Relu: y = Relu(x)\n", nodes(model(t, b).Graph))
}

// TestNestedBodies: subgraphs within subgraphs have an end, also those of a function that calls itself.
func TestNestedBodies(t *testing.T) {
	b := build.New()
	x := b.Input("x", onnx.Float, 1)
	c := b.Input("c", onnx.Bool)
	var body build.Body
	body = func(build.Tensors) build.Tensors {
		return b.If(c, body, func(build.Tensors) build.Tensors { return build.Tensors{x} })
	}
	body(nil)
	require.ErrorContains(t, b.Err(), fmt.Sprintf("subgraphs are nested more than %d deep", onnx.MaxDepth))
}

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m.onnx")
	b := build.New()
	w := b.Initializer("w", build.TensorOf([]float32{1, 2, 3}, 3))
	v := b.Initializer("v", build.TensorOf([]float32{4, 5, 6}, 3))
	b.Output("y", b.Add(b.Input("x", onnx.Float, 3), b.Mul(w, v)))
	require.NoError(t, b.WriteFile(ctx, path))
	whole, err := onnx.ReadFile(path)
	require.NoError(t, err)
	b.SaveInitializersExternally("weights.bin", w)
	require.NoError(t, b.WriteFile(ctx, path))
	got, err := onnx.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, whole.Graph, got.Graph)
	data, err := os.ReadFile(filepath.Join(dir, "weights.bin"))
	require.NoError(t, err)
	require.Equal(t, w.Name(), got.Graph.Initializers[0].Name)
	require.Equal(t, data, got.Graph.Initializers[0].Data)
	b.SaveInitializersExternally("weights.bin")
	require.NoError(t, b.WriteFile(ctx, path))
	st, err := os.Stat(filepath.Join(dir, "weights.bin"))
	require.NoError(t, err)
	require.EqualValues(t, 64+12, st.Size())
	b.SaveInitializersExternally("others.bin", w)
	require.ErrorContains(t, b.Err(), `the data of "w" goes to file "weights.bin" already`)
}
