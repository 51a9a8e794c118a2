package op

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/internal/lower"
	"github.com/popefgen/popefgen/onnx/internal/onnxtest"
)

// What the tests of package onnx_test share with those of this package.
var (
	Interpret = interpret
	Sized     = sized
	Numbers   = numbers
	// Supported reports whether the table has an operator.
	Supported = func(name string) bool { return table.Operators[name] != nil }
)

// OperatorModel is a model of one node, which has all results that it can have.
type OperatorModel struct {
	Name  string
	Model *onnx.Model
	Feeds map[string][]byte
}

// OperatorModels returns a model for each form of each operator and each type
// of its first operand.
func OperatorModels(t testing.TB) (models []OperatorModel) {
	for _, c := range allTypeCases() {
		all := []graph.DType{graph.Invalid}
		slots := slotsOf(c.form, c.operands)
		if len(slots) > 0 {
			all = slots[0].types
		}
		for _, typ := range all {
			types := c.usual()
			if typ != graph.Invalid {
				for _, i := range slots[0].at {
					types[i] = typ
				}
			}
			m, feeds := c.model(t, c.tensors(t, types))
			require.NotNil(t, c.lower(t, m))
			models = append(models, OperatorModel{fmt.Sprintf("%s-%d %v", c.name, c.form.Version, typ), m, feeds})
		}
	}
	return models
}

// Lower lowers a model with all operators and, unless o has an evaluator, the CPU's.
func Lower(m *onnx.Model, o onnx.Options) (*onnx.Lowered, error) {
	if o.NewEvaluator == nil {
		o.NewEvaluator = func(ctx context.Context, memory int64) onnx.Evaluator { return cpu.NewFolder(ctx, memory) }
	}
	return lower.Lower(context.Background(), m, o, table)
}

// interpret runs the lowered graph node by node on the given inputs. Outputs are cut to their
// counts.
func interpret(low *onnx.Lowered, feeds map[string][]byte) ([][]byte, error) {
	_, outs, err := sized(low, feeds)
	return outs, err
}

// sized is interpret with the types that outputs have.
func sized(low *onnx.Lowered, feeds map[string][]byte) ([]graph.TensorType, [][]byte, error) {
	exe := low.Executable
	data := make([][]byte, len(exe.Tensors))
	for i, t := range exe.Tensors {
		if t.Const {
			data[i] = t.Data
		}
	}
	for _, w := range low.Weights {
		data[w.Tensor] = w.Data
	}
	if r := low.Random; r != nil {
		data[r.Step] = make([]byte, 8)
		if r.Seed != graph.None {
			data[r.Seed] = r.Value
		}
	}
	for _, in := range low.Inputs {
		b, ok := feeds[in.Name]
		if !ok {
			return nil, nil, fmt.Errorf("no data for input %q", in.Name)
		}
		data[in.Tensor] = b
	}
	if err := interpretGraph(exe, low.Main, data); err != nil {
		return nil, nil, err
	}
	types, outs := make([]graph.TensorType, len(low.Outputs)), make([][]byte, len(low.Outputs))
	for i, p := range low.Outputs {
		types[i], outs[i] = cutTo(low, p, data)
	}
	return types, outs, nil
}

// cutTo returns what there is of an output, and its type, and panics where there is more than
// zeros behind a count.
func cutTo(low *onnx.Lowered, p onnx.Port, data [][]byte) (graph.TensorType, []byte) {
	typ, x := low.Executable.Tensors[p.Tensor].Type, data[p.Tensor]
	if p.Counts == nil {
		return typ, x
	}
	shape := slices.Clone(typ.Shape)
	for a, name := range p.Counts {
		if i := slices.IndexFunc(low.Counts, func(c onnx.Port) bool { return c.Name == name }); name != "" {
			shape[a] = int64(binary.LittleEndian.Uint64(data[low.Counts[i].Tensor]))
		}
	}
	cut := graph.TensorType{DType: typ.DType, Shape: shape}
	out := []byte{}
	at := make([]int64, len(shape))
	size := typ.DType.Size()
	for i := 0; i < len(x); i += size {
		inside := true
		for a := range at {
			inside = inside && at[a] < shape[a]
		}
		if inside {
			out = append(out, x[i:i+size]...)
		} else {
			for _, b := range x[i : i+size] {
				if b != 0 {
					panic(fmt.Sprintf("output %s has junk behind its count at %v of %v", p.Name, at, shape))
				}
			}
		}
		for a := len(at) - 1; a >= 0; a-- {
			if at[a]++; at[a] < typ.Shape[a] {
				break
			}
			at[a] = 0
		}
	}
	return cut, out
}

// interpretGraph runs the nodes of one graph on the values of all tensors.
func interpretGraph(exe *graph.Executable, g graph.GraphID, data [][]byte) error {
	for _, n := range exe.Graphs[g].Nodes {
		types := make([]graph.TensorType, len(n.Inputs))
		in := make([][]byte, len(n.Inputs))
		for i, id := range n.Inputs {
			if id != graph.None {
				types[i], in[i] = exe.Tensors[id].Type, data[id]
			}
		}
		var outTypes []graph.TensorType
		var out [][]byte
		var err error
		switch op := n.Op.(type) {
		case *graph.If:
			out, err = interpretIf(exe, op, in, data)
		case *graph.Loop:
			out, err = interpretLoop(exe, op, in, data)
		default:
			outTypes, out, err = cpu.Eval(n.Op, types, in)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
		if outTypes == nil {
			if outTypes, err = exe.Infer(n.Op, types); err != nil {
				return err
			}
		}
		for i, id := range n.Outputs {
			if id == graph.None {
				continue
			}
			if got, want := exe.Tensors[id].Type, outTypes[i]; !got.Equal(want) {
				return fmt.Errorf("%s: result %d is %v in the table and %v from the kernel", n.Name, i, got, want)
			}
			data[id] = out[i]
		}
	}
	return nil
}

func graphResults(exe *graph.Executable, g graph.GraphID, data [][]byte) [][]byte {
	var out [][]byte
	for _, id := range exe.Graphs[g].Results {
		out = append(out, data[id])
	}
	return out
}

func interpretIf(exe *graph.Executable, op *graph.If, in, data [][]byte) ([][]byte, error) {
	g := op.Else
	if in[0][0] != 0 {
		g = op.Then
	}
	err := interpretGraph(exe, g, data)
	return graphResults(exe, g, data), err
}

func interpretLoop(exe *graph.Executable, op *graph.Loop, in, data [][]byte) ([][]byte, error) {
	count := op.Count
	if in[0] != nil {
		count = int64(binary.LittleEndian.Uint64(in[0]))
	}
	more := in[1] == nil || in[1][0] != 0
	carried := in[2:]
	body := exe.Graphs[op.Body]
	collected := make([][]byte, len(body.Results)) // more than needed
	for i := int64(0); more && (i < count || count < 0 && in[0] == nil); i++ {
		data[body.Params[0]] = lower.KnownInts(i).Data
		for k, v := range carried {
			data[body.Params[1+k]] = v
		}
		if err := interpretGraph(exe, op.Body, data); err != nil {
			return nil, err
		}
		out := graphResults(exe, op.Body, data)
		if op.While {
			more, out = out[0][0] != 0, out[1:]
		}
		carried = out[:len(carried)]
		for k, v := range out[len(carried):] {
			collected[k] = append(collected[k], v...)
		}
	}
	return append(append([][]byte(nil), carried...), collected...), nil
}

// verified returns the lowered model after a check that a program around its
// graph makes a valid executable.
func verified(t testing.TB, low *onnx.Lowered) *onnx.Lowered {
	t.Helper()
	checkValid(t, low)
	return low
}

func checkValid(t require.TestingT, low *onnx.Lowered) {
	e := *low.Executable
	main := graph.Program{Index: 5}
	step := func(kind graph.StepKind, dir graph.Direction, name string, id graph.TensorID) graph.Step {
		e.Streams = append(e.Streams, graph.Stream{Handle: name, Direction: dir, Type: e.Tensors[id].Type})
		return graph.Step{Kind: kind, Stream: graph.StreamID(len(e.Streams) - 1), Tensor: id}
	}
	for _, in := range low.Inputs {
		main.Steps = append(main.Steps, step(graph.CopyIn, graph.HostToDevice, "in "+in.Name, in.Tensor))
	}
	main.Steps = append(main.Steps, graph.Step{Kind: graph.Call, Graph: low.Main})
	for _, out := range low.Outputs {
		main.Steps = append(main.Steps, step(graph.CopyOut, graph.DeviceToHost, "out "+out.Name, out.Tensor))
	}
	for _, out := range low.Counts {
		main.Steps = append(main.Steps, step(graph.CopyOut, graph.DeviceToHost, "out "+out.Name, out.Tensor))
	}
	e.Programs = []graph.Program{main}
	require.NoError(t, graph.Verify(&e))
}

// The builders of models, by short names.
var (
	tensor  = onnxtest.Tensor
	f32s    = onnxtest.F32s
	i64s    = onnxtest.I64s
	bools   = onnxtest.Bools
	list1   = onnxtest.List
	dims    = onnxtest.Dims
	named   = onnxtest.Named
	aInt    = onnxtest.AInt
	aInts   = onnxtest.AInts
	aFloat  = onnxtest.AFloat
	aStr    = onnxtest.AStr
	aTensor = onnxtest.ATensor
	aGraph  = onnxtest.AGraph
	node    = onnxtest.Node
	names   = onnxtest.Names
	info    = onnxtest.Info
	outputs = onnxtest.Outputs
	model   = onnxtest.Model
)

type pb = onnxtest.Message

// numbers decodes a tensor's elements.
func numbers(t graph.DType, data []byte) []float64 {
	_, out, err := cpu.Eval(&graph.Cast{To: graph.F64}, []graph.TensorType{{DType: t, Shape: dims(int64(len(data) / t.Size()))}}, [][]byte{data})
	if err != nil {
		panic(err)
	}
	f := make([]float64, len(out[0])/8)
	for i := range f {
		f[i] = math.Float64frombits(binary.LittleEndian.Uint64(out[0][8*i:]))
	}
	return f
}

// opCase is one node with operands and expected results. Operands whose
// place is in fixed are initialisers, the others graph inputs.
type opCase struct {
	name   string
	opset  int64
	op     string
	domain string // ONNX's own if empty
	attrs  []*onnx.Attribute
	in     []*onnx.Tensor // nil where left out
	fixed  []int
	want   []*onnx.Tensor // nil where nobody asks for the result
}

// model returns a model of the node, and the values of its inputs.
func (c *opCase) model() (m *onnx.Model, feeds map[string][]byte) {
	m, feeds, _ = c.build()
	return m, feeds
}

// build returns a model of the node and the values of its inputs in two forms.
func (c *opCase) build() (*onnx.Model, map[string][]byte, map[string]*onnx.Tensor) {
	n := &onnx.Node{OpType: c.op, Domain: c.domain, Attributes: c.attrs, Name: "tested"}
	g := &onnx.Graph{Nodes: []*onnx.Node{n}}
	feeds := map[string][]byte{}
	bound := map[string]*onnx.Tensor{}
	for i, x := range c.in {
		if x == nil {
			n.Inputs = append(n.Inputs, "")
			continue
		}
		name := fmt.Sprintf("x%d", i)
		n.Inputs = append(n.Inputs, name)
		fixed := false
		for _, f := range c.fixed {
			fixed = fixed || f == i
		}
		if fixed {
			g.Initializers = append(g.Initializers, named(x, name))
			continue
		}
		g.Inputs = append(g.Inputs, onnx.Declare(name, x.Elem, x.Dims))
		feeds[name] = x.Data
		bound[name] = x
	}
	for i, y := range c.want {
		if y == nil {
			n.Outputs = append(n.Outputs, "")
			continue
		}
		name := fmt.Sprintf("y%d", i)
		n.Outputs = append(n.Outputs, name)
		g.Outputs = append(g.Outputs, onnx.ValueInfo{Name: name})
	}
	m := model(c.opset, g)
	m.Opsets[0].Domain = c.domain
	return m, feeds, bound
}

// run checks the case twice: with inputs at run time, and with all operands
// known, so that everything is folded.
func (c *opCase) run(t *testing.T) {
	m, feeds, bound := c.build()
	var want []*onnx.Tensor
	for _, y := range c.want {
		if y != nil {
			want = append(want, y)
		}
	}
	for _, o := range []onnx.Options{{}, {Values: bound}} {
		low, err := Lower(m, o)
		require.NoError(t, err)
		verified(t, low)
		if o.Values != nil {
			require.Empty(t, low.Executable.Graphs[0].Nodes, "everything is known, so nothing is left to run")
		}
		types, outs, err := sized(low, feeds)
		require.NoError(t, err)
		for i, y := range want {
			typ := types[i]
			require.Equal(t, y.Elem, low.Outputs[i].Elem, "element type of result %d", i)
			require.Equal(t, y.Type().String(), typ.String(), "type of result %d", i)
			got, exp := numbers(typ.DType, outs[i]), numbers(typ.DType, y.Data)
			for j := range exp {
				if got[j] != exp[j] {
					require.InDelta(t, exp[j], got[j], 1e-6+1e-4*math.Abs(exp[j]), "element %d of result %d: got %v, want %v", j, i, got, exp)
				}
			}
		}
	}
}

func runCases(t *testing.T, cases []opCase) {
	t.Helper()
	for _, c := range cases {
		name := c.name
		if name == "" {
			name = fmt.Sprintf("%s-%d", c.op, c.opset)
		}
		t.Run(name, c.run)
	}
}
