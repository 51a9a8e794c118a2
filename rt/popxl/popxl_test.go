package popxl_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	_ "github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/num"
	"github.com/popefgen/popefgen/rt/modelrt"
	"github.com/popefgen/popefgen/rt/popxl"
	"github.com/popefgen/popefgen/rt/popxl/ops"
)

// run exports ir, runs it once and returns its outputs by name.
func run(t *testing.T, ir *popxl.Ir, inputs map[string]any) map[string][]byte {
	t.Helper()
	require.NoError(t, ir.Err())
	m, err := ir.Export(t.Context())
	require.NoError(t, err)
	model, err := m.Load(t.Context(), t.Name())
	require.NoError(t, err)
	defer model.Close()
	s, err := modelrt.NewSession(t.Context(), model)
	require.NoError(t, err)
	defer s.Close()
	out := map[string]*modelrt.Buffer{}
	connect := func(handle string) *modelrt.Buffer {
		info, ok := s.Stream(handle)
		require.True(t, ok, handle)
		b, err := modelrt.NewBuffer(info, 1)
		require.NoError(t, err)
		require.NoError(t, s.Connect(t.Context(), handle, b))
		return b
	}
	for _, a := range s.UserInputs() {
		_, err := binary.Encode(connect(a.Handle).Bytes(), binary.LittleEndian, inputs[a.Name])
		require.NoError(t, err, a.Name)
	}
	for _, a := range s.UserOutputs() {
		out[a.Name] = connect(a.Handle)
	}
	require.NoError(t, s.Run(t.Context()))
	got := map[string][]byte{}
	for name, b := range out {
		got[name] = b.Bytes()
	}
	return got
}

func decode[T popxl.Element](t *testing.T, b []byte) []T {
	t.Helper()
	v := make([]T, len(b)/popxl.TypeOf[T]().Size())
	_, err := binary.Decode(b, binary.LittleEndian, v)
	require.NoError(t, err)
	return v
}

func affine() *popxl.Ir {
	ir := popxl.New("affine")
	x := popxl.NewInput[float32](ir, "x", 2, 3)
	w := popxl.NewVariable(ir, "w", []float32{1, 2, 3, 4, 5, 6}, 3, 2)
	b := popxl.NewVariable(ir, "b", []float32{10, 20}, 2)
	ir.Scope("layer", func() {
		popxl.NewOutput("y", ops.Add(ops.MatMul(x.Load(), w.Tensor()), b.Tensor()))
	})
	return ir
}

// TestAffine: inputs, variables and a scope, as the package's documentation has them.
func TestAffine(t *testing.T) {
	got := run(t, affine(), map[string]any{"x": []float32{1, 0, 0, 1, 1, 1}})
	require.Equal(t, []float32{11, 22, 19, 32}, decode[float32](t, got["y"]))
}

// TestExport: streams and variables are the model's anchors, nodes are named after scopes, and passes have optimised the graph.
func TestExport(t *testing.T) {
	ir := popxl.New("named")
	x := popxl.NewInput[float32](ir, "x", 2, 3)
	w := popxl.NewVariable(ir, "w", make([]float32, 6), 3, 2)
	var y popxl.Output[float32]
	ir.Scope("net", func() {
		ir.Scope("layer", func() {
			y = popxl.NewOutput("y", ops.Add(ops.MatMul(x.Load(), w.Tensor()), popxl.Constant(ir, []float32{1})))
		})
	})
	require.Equal(t, []int64{2, 2}, y.Shape())
	m, err := ir.Export(t.Context())
	require.NoError(t, err)
	var names []string
	for _, a := range m.Metadata.Anchors {
		names = append(names, a.Name)
	}
	require.Equal(t, []string{x.Name(), y.Name(), w.Name()}, names)
	require.Len(t, m.Executable.Graphs[0].Nodes, 1, "the sum has become a part of the product")
	require.Equal(t, "net/layer/ops.Add", m.Executable.Graphs[0].Nodes[0].Name)
}

// TestPassedThrough: what no operator computes, or two outputs return, can be returned.
func TestPassedThrough(t *testing.T) {
	ir := popxl.New("through")
	x := popxl.NewInput[int32](ir, "x", 2)
	sum := ops.Add(x.Load(), popxl.Constant(ir, []int32{1}))
	popxl.NewOutput("input", x.Load())
	popxl.NewOutput("identity", ops.Identity(x.Load()))
	popxl.NewOutput("constant", popxl.Constant(ir, []int32{7, 8}, 2))
	popxl.NewOutput("variable", popxl.NewVariable(ir, "v", []int32{3}).Tensor())
	popxl.NewOutput("once", sum)
	popxl.NewOutput("twice", sum)
	got := run(t, ir, map[string]any{"x": []int32{5, 6}})
	want := map[string][]int32{"input": {5, 6}, "identity": {5, 6}, "constant": {7, 8}, "variable": {3}, "once": {6, 7}, "twice": {6, 7}}
	require.Len(t, got, len(want))
	for name, w := range want {
		require.Equal(t, w, decode[int32](t, got[name]), name)
	}
}

// TestErrors: every mistake is there with this file and the line of its call, what follows from one is not.
func TestErrors(t *testing.T) {
	ir, other := popxl.New("wrong"), popxl.New("other")
	x := popxl.NewInput[float32](ir, "x", 2, 3).Load()
	bad := ops.MatMul(x, x)
	popxl.NewOutput("y", ops.Relu(ops.Add(bad, x)))
	ops.Sum(x, 2)
	ops.Mean(x, 1, -1)
	ops.Add(x, popxl.NewInput[float32](other, "x", 2, 3).Load())
	ops.Add(x, popxl.Tensor[float32]{})
	popxl.NewInput[bool](ir, "x")
	popxl.NewInput[bool](ir, "", 1)
	popxl.NewVariable(ir, "w", []float32{1, 2}, 3)
	popxl.Constant(ir, []float32{1}, -1)
	popxl.Constant(ir, []float32(nil), math.MaxInt64, 4)
	popxl.Apply[float64]("mine", &graph.Unary{Fn: graph.Abs}, x)
	popxl.Apply[float32]("mine", (*graph.Unary)(nil), x)
	popxl.Apply[float32]("mine", &graph.Unary{Fn: graph.Abs}, x, (*popxl.Tensor[float32])(nil))
	ops.Conv(x, x, 1, ops.Window{Strides: []int64{1, 1}})
	var got []string
	for _, err := range ir.Err().(interface{ Unwrap() []error }).Unwrap() {
		var at *popxl.Error
		require.ErrorAs(t, err, &at)
		require.Contains(t, err.Error(), "popxl_test.go:")
		got = append(got, at.Call)
	}
	require.Equal(t, []string{"ops.MatMul", "ops.Sum", "ops.Mean", "ops.Add", "ops.Add", "popxl.NewInput", "popxl.NewInput", "popxl.NewVariable", "popxl.Constant",
		"popxl.Constant", "mine", "mine", "mine", "ops.Conv"}, got)
	require.ErrorContains(t, ir.Err(), "axis 2, want one from -2 to 1")
	require.ErrorContains(t, ir.Err(), "axis 1 is given twice")
	require.ErrorContains(t, ir.Err(), "operand 1 is of another Ir")
	require.ErrorContains(t, ir.Err(), "operand 1 is the zero Tensor")
	require.ErrorContains(t, ir.Err(), `there is a stream or variable "x" already`)
	require.ErrorContains(t, ir.Err(), `"w": 2 elements, want the 3 of shape [3]`)
	require.ErrorContains(t, ir.Err(), "the result is f32, want f64")
	require.ErrorIs(t, ir.Err(), ipu.ErrPanic)
	require.ErrorIs(t, ir.Err(), ops.ErrSpatial)
	_, err := ir.Export(t.Context())
	require.Equal(t, ir.Err(), err)
}

// TestTaken: an Ir that has been exported does not change.
func TestTaken(t *testing.T) {
	ir := popxl.New("taken")
	x := popxl.NewInput[float32](ir, "x", 2).Load()
	_, err := ir.Export(t.Context())
	require.ErrorContains(t, err, "returns nothing")
	for _, change := range []func(){
		func() { ops.Relu(x) }, func() { popxl.NewInput[float32](ir, "z") }, func() { popxl.NewVariable(ir, "w", []float32{1}) },
		func() { popxl.Constant(ir, []float32{1}) }, func() { popxl.NewOutput("y", x) },
	} {
		before := len(errors(ir))
		change()
		require.Len(t, errors(ir), before+1)
		require.ErrorIs(t, errors(ir)[before], popxl.ErrTaken)
	}
	_, err = ir.Export(t.Context())
	require.ErrorIs(t, err, popxl.ErrTaken)
}

func errors(ir *popxl.Ir) []error {
	if err, ok := ir.Err().(interface{ Unwrap() []error }); ok {
		return err.Unwrap()
	}
	return nil
}

// TestNoIr: without an Ir nothing is made, and nothing panics.
func TestNoIr(t *testing.T) {
	for _, ir := range []*popxl.Ir{nil, {}} {
		called := false
		ir.Scope("s", func() { called = true })
		ir.Scope("s", nil)
		require.True(t, called)
		x := popxl.NewInput[float32](ir, "x", 2).Load()
		v := popxl.NewVariable(ir, "v", []float32{1}).Tensor()
		y := popxl.NewOutput("y", ops.Softmax(ops.Concat(0, x, v, popxl.Constant(ir, []float32{1}, 1)), 0))
		ops.Argmax(ops.Transpose(ops.Identity(x)), 0)
		ops.Gather(x, popxl.Tensor[int32]{}, 0)
		ops.Conv(x, v, 1, ops.Window{})
		ops.Concat[float32](0)
		require.False(t, x.Valid())
		require.Nil(t, y.Shape())
		require.ErrorIs(t, ir.Err(), popxl.ErrNoIr)
		_, err := ir.Export(t.Context())
		require.ErrorIs(t, err, popxl.ErrNoIr)
	}
}

// TestElementTypes: what a constant of each type holds comes back.
func TestElementTypes(t *testing.T) {
	echo(t, []bool{true, false})
	echo(t, []int8{-1, 2})
	echo(t, []uint8{1, 200})
	echo(t, []int16{-1, 300})
	echo(t, []uint16{1, 60000})
	echo(t, []int32{-1, 1 << 20})
	echo(t, []uint32{1, 1 << 31})
	echo(t, []int64{-1, 1 << 40})
	echo(t, []uint64{1, 1 << 63})
	echo(t, []float32{-1.5, 2})
	echo(t, []float64{-1.5, 1e-300})
	echo(t, []num.Float16{num.Float16From(-1.5), num.Float16From(2)})
	echo(t, []num.BFloat16{num.BFloat16From(-1.5), num.BFloat16From(2)})
}

func echo[T popxl.Element](t *testing.T, v []T) {
	t.Helper()
	ir := popxl.New("echo")
	popxl.NewOutput("y", ops.Concat(0, popxl.NewInput[T](ir, "x", 2).Load(), popxl.Constant(ir, v, 2)))
	require.Equal(t, append(v, v...), decode[T](t, run(t, ir, map[string]any{"x": v})["y"]))
}

// TestRemoteVariables: they are refused by name, with the line, and so is a session of them.
func TestRemoteVariables(t *testing.T) {
	for _, run := range []func(*popxl.Ir) error{
		func(ir *popxl.Ir) error { _, err := ir.Export(t.Context()); return err },
		func(ir *popxl.Ir) error { _, err := popxl.NewSession(t.Context(), ir); return err },
	} {
		ir := popxl.New("remote")
		w := popxl.NewRemoteVariable(ir, "far", []float32{1, 2}, 2)
		popxl.NewRemoteVariable(ir, "", []float32{1})
		popxl.NewOutput("y", ops.Negate(w.Tensor()))
		require.Len(t, errors(ir), 1)
		ir = popxl.New("remote")
		w = popxl.NewRemoteVariable(ir, "far", []float32{1, 2}, 2)
		popxl.NewOutput("y", ops.Negate(w.Tensor()))
		err := run(ir)
		require.ErrorContains(t, err, "popxl_test.go:")
		require.ErrorContains(t, err, `popxl.NewRemoteVariable: "far": no device here has remote memory, neither the CPU nor its ipu_model: take NewVariable`)
	}
}

// TestScopesReachTheModel: the names of scopes, graphs and calls are those of the model's nodes, which its page shows.
func TestScopesReachTheModel(t *testing.T) {
	ir := popxl.New("scopes")
	x := popxl.NewInput[float32](ir, "x", 2)
	var p popxl.Param[float32]
	var r popxl.Result[float32]
	g := popxl.NewGraph(ir, "layer", func(g *popxl.Graph) {
		p = popxl.NewParam[float32](g, "p", 2)
		ir.Scope("inner", func() { r = popxl.NewResult(g, ops.Cumsum(p.Tensor(), 0)) })
	})
	y := x.Load()
	ir.Scope("encoder", func() {
		for range 2 {
			y = r.Of(g.Call(p.Is(y)))
		}
	})
	popxl.NewOutput("y", y)
	m, err := ir.Export(t.Context())
	require.NoError(t, err)
	var names []string
	for _, g := range m.Executable.Graphs {
		for _, n := range g.Nodes {
			names = append(names, n.Name)
		}
	}
	require.Equal(t, []string{"encoder/layer/inner/ops.Cumsum", "encoder/layer/inner/ops.Cumsum"}, names)
}
