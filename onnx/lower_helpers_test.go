package onnx

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/graph"
)

// What the tests of package onnx_test share with those of this package.
var (
	TestData  = testData
	Interpret = interpret
	Numbers   = numbers
	// Supported reports whether the table has an operator.
	Supported = func(name string) bool { return table.Operators[name] != nil }
)

// OperatorModel is a model of one node, which has all results that it can have.
type OperatorModel struct {
	Name  string
	Model *Model
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

// interpret runs the lowered graph node by node on the given inputs.
func interpret(low *Lowered, feeds map[string][]byte) ([][]byte, error) {
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
	for _, in := range low.Inputs {
		b, ok := feeds[in.Name]
		if !ok {
			return nil, fmt.Errorf("no data for input %q", in.Name)
		}
		data[in.Tensor] = b
	}
	if err := interpretGraph(exe, low.Main, data); err != nil {
		return nil, err
	}
	outs := make([][]byte, len(low.Outputs))
	for i, p := range low.Outputs {
		outs[i] = data[p.Tensor]
	}
	return outs, nil
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
		data[body.Params[0]] = encodeInts([]int64{i})
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
func verified(t testing.TB, low *Lowered) *Lowered {
	t.Helper()
	checkValid(t, low)
	return low
}

func checkValid(t require.TestingT, low *Lowered) {
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
	e.Programs = []graph.Program{main}
	require.NoError(t, graph.Verify(&e))
}

// Tensors for tests. Values are converted to the element type.
func tensor(elem ElemType, shape []int64, values ...float64) *Tensor {
	t := &Tensor{Elem: elem, Dims: shape, Data: []byte{}}
	for _, v := range values {
		t.Data = append(t.Data, EncodeFloat(elem.DType(), v)...)
	}
	return t
}

func f32s(shape []int64, values ...float64) *Tensor  { return tensor(Float, shape, values...) }
func i64s(shape []int64, values ...float64) *Tensor  { return tensor(Int64, shape, values...) }
func bools(shape []int64, values ...float64) *Tensor { return tensor(Bool, shape, values...) }

// list1 is an int64 tensor of rank 1.
func list1(values ...float64) *Tensor { return i64s(dims(int64(len(values))), values...) }

func dims(d ...int64) []int64 { return d }

func named(t *Tensor, name string) *Tensor {
	c := *t
	c.Name = name
	return &c
}

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

func aInt(name string, v int64) *Attribute { return &Attribute{Name: name, Type: AttrInt, Int: v} }
func aInts(name string, v ...int64) *Attribute {
	return &Attribute{Name: name, Type: AttrInts, Ints: v}
}
func aFloat(name string, v float32) *Attribute {
	return &Attribute{Name: name, Type: AttrFloat, Float: v}
}
func aStr(name, v string) *Attribute {
	return &Attribute{Name: name, Type: AttrString, String: []byte(v)}
}
func aTensor(name string, v *Tensor) *Attribute {
	return &Attribute{Name: name, Type: AttrTensor, Tensor: v}
}
func aGraph(name string, g *Graph) *Attribute {
	return &Attribute{Name: name, Type: AttrGraph, Graph: g}
}

func node(op string, in, out []string, attrs ...*Attribute) *Node {
	return &Node{OpType: op, Inputs: in, Outputs: out, Attributes: attrs}
}

func names(n ...string) []string { return n }

// info is a value of fixed or symbolic shape: numbers and symbols.
func info(name string, elem ElemType, shape ...any) ValueInfo {
	v := ValueInfo{Name: name, Elem: elem, HasShape: true}
	for _, d := range shape {
		switch d := d.(type) {
		case int:
			v.Dims = append(v.Dims, Dim{Known: true, Value: int64(d)})
		case string:
			v.Dims = append(v.Dims, Dim{Symbol: d})
		}
	}
	return v
}

func outputs(names ...string) []ValueInfo {
	var v []ValueInfo
	for _, n := range names {
		v = append(v, ValueInfo{Name: n})
	}
	return v
}

func model(opset int64, g *Graph) *Model {
	return &Model{IRVersion: 8, Opsets: []Opset{{"", opset}}, Graph: g}
}

// opCase is one node with operands and expected results. Operands whose
// place is in fixed are initialisers, the others graph inputs.
type opCase struct {
	name   string
	opset  int64
	op     string
	domain string // ONNX's own if empty
	attrs  []*Attribute
	in     []*Tensor // nil where left out
	fixed  []int
	want   []*Tensor // nil where nobody asks for the result
}

// model returns a model of the node, and the values of its inputs.
func (c *opCase) model() (m *Model, feeds map[string][]byte) {
	m, feeds, _ = c.build()
	return m, feeds
}

// build returns a model of the node and the values of its inputs in two forms.
func (c *opCase) build() (*Model, map[string][]byte, map[string]*Tensor) {
	n := &Node{OpType: c.op, Domain: c.domain, Attributes: c.attrs, Name: "tested"}
	g := &Graph{Nodes: []*Node{n}}
	feeds := map[string][]byte{}
	bound := map[string]*Tensor{}
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
		v := ValueInfo{Name: name, Elem: x.Elem, HasShape: true}
		for _, d := range x.Dims {
			v.Dims = append(v.Dims, Dim{Known: true, Value: d})
		}
		g.Inputs = append(g.Inputs, v)
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
		g.Outputs = append(g.Outputs, ValueInfo{Name: name})
	}
	m := model(c.opset, g)
	m.Opsets[0].Domain = c.domain
	return m, feeds, bound
}

// run checks the case twice: with inputs at run time, and with all operands
// known, so that everything is folded.
func (c *opCase) run(t *testing.T) {
	m, feeds, bound := c.build()
	var want []*Tensor
	for _, y := range c.want {
		if y != nil {
			want = append(want, y)
		}
	}
	for _, o := range []Options{{}, {Values: bound}} {
		low, err := Lower(m, o)
		require.NoError(t, err)
		verified(t, low)
		if o.Values != nil {
			require.Empty(t, low.Executable.Graphs[0].Nodes, "everything is known, so nothing is left to run")
		}
		outs, err := interpret(low, feeds)
		require.NoError(t, err)
		for i, y := range want {
			typ := low.Executable.Tensors[low.Outputs[i].Tensor].Type
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
