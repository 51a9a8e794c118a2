package rows

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph"
)

// TestEveryOperatorHasARule: whoever adds an operator says how it computes rows.
func TestEveryOperatorHasARule(t *testing.T) {
	for _, kind := range graph.Kinds() {
		require.NotNil(t, rules[kind], "operator %s has no rule: write one, or start with whole", kind)
	}
	for kind := range rules {
		require.NotNil(t, graph.NewOp(kind), "there is no operator %s", kind)
	}
}

func TestRegroup(t *testing.T) {
	at := counting([]int64{6, 4}, 0, 3) // rows of two neighbours
	for _, c := range []struct {
		shape []int64
		want  layout
	}{
		{[]int64{24}, layout{{{3, 1}, {8, 0}}}},
		{[]int64{3, 8}, layout{{{3, 1}}, {{8, 0}}}},
		{[]int64{1, 3, 2, 4}, layout{nil, {{3, 1}}, {{2, 0}}, {{4, 0}}}},
		{[]int64{12, 2}, layout{{{3, 1}, {4, 0}}, {{2, 0}}}},
		{[]int64{2, 12}, nil},
		{[]int64{4, 6}, nil},
	} {
		got, ok := at.regroup(c.shape)
		require.Equal(t, c.want != nil, ok, "%v", c.shape)
		if ok {
			require.True(t, c.want.equal(got), "%v: %v", c.shape, got)
		}
	}
	// Six rows in two axes, transposed and back.
	at = counting([]int64{6}, 0, 6)
	two, ok := at.regroup([]int64{2, 3})
	require.True(t, ok)
	require.Equal(t, layout{{{2, 3}}, {{3, 1}}}, two)
	back, ok := layout{two[1], two[0]}.regroup([]int64{6})
	require.True(t, ok)
	require.Equal(t, layout{{{3, 1}, {2, 3}}}, back)
	require.False(t, back.equal(at))
}

// model builds a program 1 of one input x of the given shape, in whose first axis are
// the rows, and one output.
func model(t require.TestingT, x graph.TensorType, build func(b *graph.Builder, x graph.TensorID) graph.TensorID) *graph.Executable {
	b := graph.NewBuilder("rows")
	in := b.AddLocal("x", x)
	steps := []graph.Step{b.CopyIn("x", in)}
	g := b.BeginGraph("main")
	y := build(b, in)
	steps = append(steps, b.Call(g), b.CopyOut("y", y))
	b.AddProgram(1, "main", steps...)
	e, err := b.Finish()
	require.NoError(t, err)
	return e
}

func f32(shape ...int64) graph.TensorType { return graph.TensorType{DType: graph.F32, Shape: shape} }
func i64(shape ...int64) graph.TensorType { return graph.TensorType{DType: graph.I64, Shape: shape} }

func node1(t require.TestingT, b *graph.Builder, op graph.Op, in ...graph.TensorID) graph.TensorID {
	out, err := b.Node(op, op.Kind(), in...)
	require.NoError(t, err)
	return out[0]
}

func TestRows(t *testing.T) {
	for _, c := range []struct {
		name   string
		x      graph.TensorType
		build  func(b *graph.Builder, x graph.TensorID) graph.TensorID
		reason Reason
	}{
		{"relu", f32(3, 4), func(b *graph.Builder, x graph.TensorID) graph.TensorID {
			return node1(t, b, &graph.Unary{Fn: graph.Relu}, x)
		}, 0},
		{"reduce over others", f32(3, 4), func(b *graph.Builder, x graph.TensorID) graph.TensorID {
			return node1(t, b, &graph.Reduce{Fn: graph.ReduceSum, Axes: []int64{1}, KeepDims: true}, x)
		}, 0},
		{"reduce over rows", f32(3, 4), func(b *graph.Builder, x graph.TensorID) graph.TensorID {
			s := node1(t, b, &graph.Reduce{Fn: graph.ReduceSum, Axes: []int64{0}, KeepDims: true}, x)
			return node1(t, b, &graph.Binary{Fn: graph.Sub}, x, s)
		}, Mixes},
		{"softmax over rows", f32(3, 4), func(b *graph.Builder, x graph.TensorID) graph.TensorID {
			return node1(t, b, &graph.Softmax{Axis: 0}, x)
		}, Mixes},
		{"rows times rows", f32(3, 3), func(b *graph.Builder, x graph.TensorID) graph.TensorID {
			return node1(t, b, &graph.MatMul{}, x, node1(t, b, &graph.Transpose{Perm: []int64{1, 0}}, x))
		}, Mixes},
		{"there and back", f32(3, 4, 2), func(b *graph.Builder, x graph.TensorID) graph.TensorID {
			x = node1(t, b, &graph.Reshape{Shape: []int64{12, 2}}, x)
			x = node1(t, b, &graph.MatMul{}, x, b.AddPersistent("w", f32(2, 5)))
			x = node1(t, b, &graph.Reshape{Shape: []int64{3, 20}}, x)
			x = node1(t, b, &graph.Transpose{Perm: []int64{1, 0}}, x)
			x = node1(t, b, &graph.Softmax{Axis: 0}, x)
			return node1(t, b, &graph.Transpose{Perm: []int64{1, 0}}, x)
		}, 0},
		{"reversed", f32(3, 4), func(b *graph.Builder, x graph.TensorID) graph.TensorID {
			return node1(t, b, &graph.Slice{Start: []int64{2, 0}, Size: []int64{3, 4}, Step: []int64{-1, 1}}, x)
		}, Mixes},
		{"twice and halved", f32(3, 4), func(b *graph.Builder, x graph.TensorID) graph.TensorID {
			x = node1(t, b, &graph.Concat{}, x, x)
			return node1(t, b, &graph.Slice{Start: []int64{3, 0}, Size: []int64{3, 4}, Step: []int64{1, 1}}, x)
		}, 0},
		{"cut apart", f32(3, 4), func(b *graph.Builder, x graph.TensorID) graph.TensorID {
			x = node1(t, b, &graph.Reshape{Shape: []int64{2, 6}}, x)
			x = node1(t, b, &graph.Softmax{Axis: 1}, x)
			return node1(t, b, &graph.Reshape{Shape: []int64{3, 4}}, x)
		}, Mixes},
		{"cut apart and joined", f32(3, 4), func(b *graph.Builder, x graph.TensorID) graph.TensorID {
			x = node1(t, b, &graph.Reshape{Shape: []int64{2, 6}}, x)
			x = node1(t, b, &graph.Unary{Fn: graph.Exp}, x)
			x = node1(t, b, &graph.Binary{Fn: graph.Mul}, x, floats(b, nil, 2))
			x = node1(t, b, &graph.Binary{Fn: graph.Mul}, x, floats(b, []int64{2, 6}, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4))
			return node1(t, b, &graph.Reshape{Shape: []int64{3, 4}}, x)
		}, 0},
		{"a constant of its own while cut apart", f32(3, 4), func(b *graph.Builder, x graph.TensorID) graph.TensorID {
			x = node1(t, b, &graph.Reshape{Shape: []int64{2, 6}}, x)
			x = node1(t, b, &graph.Binary{Fn: graph.Mul}, x, floats(b, []int64{2, 6}, 1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 3, 4))
			return node1(t, b, &graph.Reshape{Shape: []int64{3, 4}}, x)
		}, Differs},
		{"a constant of its own for each row", f32(3, 2), func(b *graph.Builder, x graph.TensorID) graph.TensorID {
			return node1(t, b, &graph.Binary{Fn: graph.Add}, x, b.AddConst("c", f32(3, 1), []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 128, 63}))
		}, Differs},
		{"a constant for all rows", f32(3, 2), func(b *graph.Builder, x graph.TensorID) graph.TensorID {
			return node1(t, b, &graph.Binary{Fn: graph.Add}, x, b.AddConst("c", f32(3, 1), make([]byte, 12)))
		}, 0},
		{"a weight for each row", f32(3, 2), func(b *graph.Builder, x graph.TensorID) graph.TensorID {
			return node1(t, b, &graph.Binary{Fn: graph.Add}, x, b.AddPersistent("w", f32(3, 2)))
		}, Differs},
		{"a weight stretched to rows", f32(3, 2), func(b *graph.Builder, x graph.TensorID) graph.TensorID {
			w := node1(t, b, &graph.Expand{Shape: []int64{3, 1}}, b.AddPersistent("w", f32(1, 1)))
			return node1(t, b, &graph.Concat{Axis: 1}, w, x)
		}, 0},
		{"tokens", i64(3, 4), func(b *graph.Builder, x graph.TensorID) graph.TensorID {
			return node1(t, b, &graph.Gather{}, b.AddPersistent("table", f32(10, 5)), x)
		}, 0},
		{"tokens below a first one", i64(3, 4), func(b *graph.Builder, x graph.TensorID) graph.TensorID {
			x = node1(t, b, &graph.Binary{Fn: graph.Sub}, x, b.AddConst("first", i64(), []byte{20, 0, 0, 0, 0, 0, 0, 0}))
			return node1(t, b, &graph.Gather{}, b.AddPersistent("table", f32(10, 5)), x)
		}, Refuses},
		{"state", f32(3, 4), func(b *graph.Builder, x graph.TensorID) graph.TensorID {
			s := b.AddPersistent("s", f32(3, 4))
			y := node1(t, b, &graph.Binary{Fn: graph.Add}, x, s)
			require.NoError(t, b.NodeTo(&graph.Unary{Fn: graph.Neg}, "update", []graph.TensorID{s}, y))
			return y
		}, Keeps},
		{"a number that grows from run to run", f32(3, 4), func(b *graph.Builder, x graph.TensorID) graph.TensorID {
			s := b.AddPersistent("s", f32())
			y := node1(t, b, &graph.Binary{Fn: graph.Add}, x, s)
			require.NoError(t, b.NodeTo(&graph.Unary{Fn: graph.Exp}, "update", []graph.TensorID{s}, s))
			return y
		}, Keeps},
		{"branch by rows", f32(3, 4), func(b *graph.Builder, x graph.TensorID) graph.TensorID {
			main := b.CurrentGraph()
			s := node1(t, b, &graph.Reduce{Fn: graph.ReduceMax, Axes: []int64{0, 1}}, x)
			c := node1(t, b, &graph.Cast{To: graph.Bool}, s)
			then := b.BeginGraph("then")
			b.SetParams(then, nil, []graph.TensorID{x})
			other := b.BeginGraph("else")
			b.SetParams(other, nil, []graph.TensorID{node1(t, b, &graph.Unary{Fn: graph.Neg}, x)})
			b.SetGraph(main)
			return node1(t, b, &graph.If{Then: then, Else: other}, c)
		}, Mixes},
		{"branch by a weight", f32(3, 4), func(b *graph.Builder, x graph.TensorID) graph.TensorID {
			main := b.CurrentGraph()
			c := b.AddPersistent("c", graph.TensorType{DType: graph.Bool})
			then := b.BeginGraph("then")
			b.SetParams(then, nil, []graph.TensorID{x})
			other := b.BeginGraph("else")
			b.SetParams(other, nil, []graph.TensorID{node1(t, b, &graph.Unary{Fn: graph.Neg}, x)})
			b.SetGraph(main)
			return node1(t, b, &graph.If{Then: then, Else: other}, c)
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := model(t, c.x, c.build)
			err := Independent(e, 1, 3, map[string]int{"x": 0, "y": 0})
			if c.reason == 0 {
				require.NoError(t, err)
				return
			}
			var f *Finding
			require.ErrorAs(t, err, &f)
			require.Equal(t, c.reason, f.Reason, "%v", f)
			t.Log(f)
		})
	}
}

// TestPlaces: rows that are in the declared axis in another order, or in another axis, are
// no rows of the output; and an output that is declared to have none must not have any.
func TestPlaces(t *testing.T) {
	swapped := model(t, f32(6, 2), func(b *graph.Builder, x graph.TensorID) graph.TensorID {
		x = node1(t, b, &graph.Reshape{Shape: []int64{2, 3, 2}}, x)
		x = node1(t, b, &graph.Transpose{Perm: []int64{1, 0, 2}}, x)
		return node1(t, b, &graph.Reshape{Shape: []int64{6, 2}}, x)
	})
	require.ErrorContains(t, Independent(swapped, 1, 6, map[string]int{"x": 0, "y": 0}), "in another order")
	require.ErrorContains(t, Independent(swapped, 1, 2, map[string]int{"x": 0, "y": 0}), "in another order")
	turned := model(t, f32(3, 3), func(b *graph.Builder, x graph.TensorID) graph.TensorID {
		return node1(t, b, &graph.Transpose{Perm: []int64{1, 0}}, x)
	})
	require.ErrorContains(t, Independent(turned, 1, 3, map[string]int{"x": 0, "y": 0}), "axis 1 in place of axis 0")
	require.NoError(t, Independent(turned, 1, 3, map[string]int{"x": 0, "y": 1}))
	require.ErrorContains(t, Independent(turned, 1, 3, map[string]int{"x": 0}), "it is to have none")
	require.NoError(t, Independent(turned, 1, 3, map[string]int{}))

	// What was asked must make sense.
	for _, c := range []struct {
		program int
		n       int64
		axes    map[string]int
		want    string
	}{
		{2, 3, nil, "there is no such program"},
		{1, 0, nil, "want at least 1"},
		{1, 3, map[string]int{"x": 2}, "has no axis 2"},
		{1, 2, map[string]int{"x": 0}, "want a multiple of 2"},
	} {
		_, err := Findings(turned, c.program, c.n, c.axes)
		require.ErrorContains(t, err, c.want)
	}
}
