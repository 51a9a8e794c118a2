package page

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph"
)

func TestCompare(t *testing.T) {
	changed := residual(4, 10, slashed)
	changed.Graphs[0].Nodes[1].Op = &graph.Unary{Fn: graph.Tanh}
	old, new := newDrawing(residual(3, 10, slashed), nil), newDrawing(changed, nil)
	require.Equal(t, outcome{changed: 7}, compare(old, new), "six operators are new, one is another")
	marks := map[string]int{}
	for _, b := range new.boxes {
		if b.node >= 0 {
			marks[b.mark]++
		}
	}
	require.Equal(t, map[string]int{"": 18, "added": 6, "changed": 1}, marks)
	for _, b := range new.boxes {
		if b.Title == "Tanh" {
			require.Equal(t, []string{"operator: was Relu, fn relu, is Tanh, fn tanh"}, b.Detail.Changes)
		}
	}

	// Other names, the same operators in the same order.
	old, new = newDrawing(residual(3, 10, slashed), nil), newDrawing(residual(3, 11, flat), nil)
	require.Equal(t, outcome{changed: 1, follow: 1, renamed: 18}, compare(old, new))
	for _, b := range new.boxes {
		if b.node >= 0 {
			require.NotNil(t, b.peer)
		}
	}

	same := newDrawing(residual(3, 10, flat), nil)
	require.Zero(t, compare(same, newDrawing(residual(3, 10, flat), nil)))
}

// perceptron is x [rows,16], a product to hidden columns with a bias, a
// rectifier, a reshape, and a product to classes.
func perceptron(rows, hidden, classes int64) *graph.Executable {
	e := &graph.Executable{Name: "perceptron"}
	tensor := func(name string, t graph.TensorType, constant bool) graph.TensorID {
		x := graph.Tensor{Name: name, Type: t, Const: constant}
		if constant {
			x.Data = make([]byte, t.Bytes())
		}
		e.Tensors = append(e.Tensors, x)
		return graph.TensorID(len(e.Tensors) - 1)
	}
	g := graph.Graph{Name: "main"}
	node := func(name string, op graph.Op, t graph.TensorType, in ...graph.TensorID) graph.TensorID {
		y := tensor(name, t, false)
		g.Nodes = append(g.Nodes, graph.Node{Op: op, Name: name, Inputs: in, Outputs: []graph.TensorID{y}})
		return y
	}
	x := tensor("x", f32(rows, 16), false)
	h := node("hidden", &graph.MatMul{}, f32(rows, hidden), x, tensor("w1", f32(16, hidden), true))
	h = node("bias", &graph.Binary{Fn: graph.Add}, f32(rows, hidden), h, tensor("b1", f32(hidden), true))
	h = node("relu", &graph.Unary{Fn: graph.Relu}, f32(rows, hidden), h)
	h = node("heads", &graph.Reshape{Shape: []int64{rows, 4, hidden / 4}}, f32(rows, 4, hidden/4), h)
	h = node("turn", &graph.Transpose{Perm: []int64{1, 0, 2}}, f32(4, rows, hidden/4), h)
	h = node("slice", &graph.Slice{Start: []int64{0, 0, 0}, Size: []int64{4, rows, hidden / 8}, Step: []int64{1, 1, 1}}, f32(4, rows, hidden/8), h)
	y := node("classes", &graph.MatMul{}, f32(4, rows, classes), h, tensor("w2", f32(hidden/8, classes), true))
	e.Graphs = []graph.Graph{g}
	e.Streams = []graph.Stream{{Handle: "x", Type: f32(rows, 16)}, {Handle: "y", Direction: graph.DeviceToHost, Type: f32(4, rows, classes)}}
	e.Programs = []graph.Program{{Steps: []graph.Step{{Kind: graph.CopyIn, Tensor: x}, {Kind: graph.Call}, {Kind: graph.CopyOut, Stream: 1, Tensor: y}}}}
	return e
}

// One changed dimension has one cause, and everything else follows from it.
func TestCompareTellsCausesFromConsequences(t *testing.T) {
	all := []string{"bias", "classes", "heads", "hidden", "relu", "slice", "turn", "x", "y"}
	without := func(names ...string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(names, s) })
	}
	for name, c := range map[string]struct {
		change         func() *graph.Executable
		causes, follow []string
	}{
		"nothing": {func() *graph.Executable { return perceptron(8, 32, 4) }, nil, nil},
		"rows":    {func() *graph.Executable { return perceptron(12, 32, 4) }, []string{"x"}, without("x")},
		"hidden":  {func() *graph.Executable { return perceptron(8, 48, 4) }, []string{"hidden"}, without("x", "y", "hidden", "classes")},
		"classes": {func() *graph.Executable { return perceptron(8, 32, 5) }, []string{"classes"}, []string{"y"}},
		"an attribute": {func() *graph.Executable {
			e := perceptron(8, 32, 4)
			e.Graphs[0].Nodes[5].Op = &graph.Slice{Start: []int64{0, 0, 4}, Size: []int64{4, 8, 4}, Step: []int64{1, 1, 1}}
			return e
		}, []string{"slice"}, nil},
		"rows, and an attribute": {func() *graph.Executable {
			e := perceptron(12, 32, 4)
			e.Graphs[0].Nodes[2].Op = &graph.Unary{Fn: graph.Tanh}
			return e
		}, []string{"relu", "x"}, without("x", "relu")},
		"another operand": {func() *graph.Executable {
			e := perceptron(8, 32, 4)
			n := &e.Graphs[0].Nodes[1]
			n.Inputs[0], n.Inputs[1] = n.Inputs[1], n.Inputs[0]
			return e
		}, []string{"bias"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			changed := c.change()
			require.NoError(t, graph.Verify(changed))
			old, new := newDrawing(perceptron(8, 32, 4), nil), newDrawing(changed, nil)
			o := compare(old, new)
			marked := func(d *drawing, mark string) (names []string) {
				for _, b := range d.boxes {
					if b.mark == mark && b.comparable() {
						names = append(names, b.Name)
					}
				}
				slices.Sort(names)
				return names
			}
			for _, d := range []*drawing{old, new} {
				require.Empty(t, cmp.Diff(c.causes, marked(d, "changed")))
				follow := marked(d, "follows")
				if name == "hidden" { // the product to classes reads an eighth of it
					follow = slices.DeleteFunc(follow, func(s string) bool { return s == "classes" })
				}
				require.Empty(t, cmp.Diff(c.follow, follow))
			}
			require.Equal(t, len(c.causes), o.changed, fmt.Sprint(o))
		})
	}
}

// A group says that it holds a cause; what only follows gives way to it.
func TestMarksOfGroups(t *testing.T) {
	d := &drawing{root: &box{}}
	group := &box{Group: true, parent: d.root}
	a, b := &box{parent: group, mark: "follows"}, &box{parent: group, mark: "added"}
	d.boxes = []*box{d.root, group, a, b}
	d.markGroups()
	require.Equal(t, "changed", group.mark)
	group.mark, b.mark = "", ""
	d.markGroups()
	require.Equal(t, "follows", group.mark)
}
