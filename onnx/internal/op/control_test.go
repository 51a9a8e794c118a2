package op

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/internal/lower"
)

// results lowers a model and interprets it.
func results(t *testing.T, m *onnx.Model, o onnx.Options, feeds map[string][]byte) (*onnx.Lowered, [][]float64) {
	t.Helper()
	low := mustLower(t, m, o)
	verified(t, low)
	outs, err := interpret(low, feeds)
	require.NoError(t, err)
	var all [][]float64
	for i, b := range outs {
		all = append(all, numbers(low.Executable.Tensors[low.Outputs[i].Tensor].Type.DType, b))
	}
	return low, all
}

// TestIfAtRunTime has a condition that is fed, branches that use what is
// outside, weights of their own, and one If inside another.
func TestIfAtRunTime(t *testing.T) {
	inner := node("If", names("flag2"), names("r"),
		aGraph("then_branch", &onnx.Graph{Nodes: []*onnx.Node{node("Neg", names("x"), names("n"))}, Outputs: outputs("n")}),
		aGraph("else_branch", &onnx.Graph{Outputs: outputs("x")}))
	then := &onnx.Graph{
		Initializers: []*onnx.Tensor{named(list32(10, 20), "w")},
		Nodes:        []*onnx.Node{node("Add", names("x", "w"), names("r"))},
		Outputs:      outputs("r", "same"),
	}
	otherwise := &onnx.Graph{Nodes: []*onnx.Node{inner}, Outputs: outputs("r", "same")}
	m := model(13, &onnx.Graph{
		Inputs:       []onnx.ValueInfo{info("x", onnx.Float, 2), info("flag", onnx.Bool, 1), info("flag2", onnx.Bool)},
		Initializers: []*onnx.Tensor{named(list1(7), "same")},
		Nodes: []*onnx.Node{
			node("If", names("flag"), names("a", "b"), aGraph("then_branch", then), aGraph("else_branch", otherwise)),
			node("Mul", names("a", "x"), names("y")),
		},
		Outputs: outputs("y", "b"),
	})
	for flags, want := range map[[2]byte][]float64{{1, 0}: {11, 44}, {1, 1}: {11, 44}, {0, 1}: {-1, -4}, {0, 0}: {1, 4}} {
		low, out := results(t, m, onnx.Options{}, map[string][]byte{"x": list32(1, 2).Data, "flag": {flags[0]}, "flag2": {flags[1]}})
		require.Equal(t, want, out[0])
		require.Equal(t, []float64{7}, out[1])
		require.True(t, low.Executable.Tensors[low.Outputs[1].Tensor].Const, "both branches give the same constant")
	}

	// The sizes of branches that differ in them are decided by data; Mul wants two elements.
	otherwise.Nodes = []*onnx.Node{node("Concat", names("x", "x"), names("r"), aInt("axis", 0))}
	_, out := results(t, m, onnx.Options{}, map[string][]byte{"x": list32(1, 2).Data, "flag": {1}, "flag2": {0}})
	require.Equal(t, []float64{11, 44}, out[0])
	low := mustLower(t, m, onnx.Options{})
	_, err := interpret(low, map[string][]byte{"x": list32(1, 2).Data, "flag": {0}, "flag2": {0}})
	require.ErrorContains(t, err, "but the other one has 2: want as many")
	m.Graph.Outputs[0].Name = "a"
	for flag, want := range map[byte][]float64{1: {11, 22}, 0: {1, 2, 1, 2}} {
		low, out = results(t, m, onnx.Options{}, map[string][]byte{"x": list32(1, 2).Data, "flag": {flag}, "flag2": {0}})
		require.Equal(t, want, out[0])
		require.Equal(t, []string{"a_count"}, low.Outputs[0].Counts)
	}
	m.Graph.Outputs[0].Name = "y"

	// Branches of different types need the condition.
	otherwise.Nodes = []*onnx.Node{node("Unsqueeze", names("x", "axis"), names("r"))}
	otherwise.Initializers = []*onnx.Tensor{named(list1(0), "axis")}
	_, err = Lower(m, onnx.Options{})
	var need *onnx.NeedValueError
	require.ErrorAs(t, err, &need)
	require.Equal(t, []string{"flag"}, need.Inputs())
	low = mustLower(t, m, onnx.Options{Values: map[string]*onnx.Tensor{"flag": bools(dims(1), 1)}})
	require.Equal(t, int64(2), low.Executable.Tensors[low.Outputs[0].Tensor].Type.Elements())

	then.Inputs = []onnx.ValueInfo{info("z", onnx.Float, 2)}
	_, err = Lower(m, onnx.Options{})
	require.ErrorContains(t, err, "then_branch has 1 inputs, want 0")
}

// loopModel is a loop that adds i·w to a, stops when a reaches limit, and
// collects a if it is asked to.
func loopModel(in []string, collect bool, loopInputs ...onnx.ValueInfo) *onnx.Model {
	body := &onnx.Graph{
		Inputs:       []onnx.ValueInfo{info("i", onnx.Int64), info("go", onnx.Bool), info("a", onnx.Float, 1)},
		Initializers: []*onnx.Tensor{named(list32(2), "w")},
		Nodes: []*onnx.Node{
			node("Cast", names("i"), names("f"), aInt("to", int64(onnx.Float))),
			node("Mul", names("f", "w"), names("step")),
			node("Add", names("a", "step"), names("next")),
			node("Less", names("next", "limit"), names("less")),
			node("Identity", names("go"), names("on")),
			node("Neg", names("next"), names("neg")),
		},
		Outputs: outputs("on", "next"),
	}
	if collect {
		body.Outputs = outputs("on", "next", "neg")
	}
	g := &onnx.Graph{
		Inputs:       append([]onnx.ValueInfo{info("a0", onnx.Float, 1), info("limit", onnx.Float, 1)}, loopInputs...),
		Initializers: []*onnx.Tensor{named(i64s(dims(), 4), "four"), named(bools(dims(), 0), "no")},
		Nodes:        []*onnx.Node{node("Loop", in, names("y"), aGraph("body", body))},
		Outputs:      outputs("y"),
	}
	if collect {
		g.Nodes[0].Outputs = names("y", "all")
		g.Outputs = outputs("y", "all")
	}
	return model(13, g)
}

func TestLoop(t *testing.T) {
	while := func(m *onnx.Model) *onnx.Model {
		m.Graph.Nodes[0].Attributes[0].Graph.Outputs[0].Name = "less"
		return m
	}
	feeds := func(a0, limit float64, extra map[string][]byte) map[string][]byte {
		f := map[string][]byte{"a0": list32(a0).Data, "limit": list32(limit).Data}
		for k, v := range extra {
			f[k] = v
		}
		return f
	}
	runs := func(low *onnx.Lowered) bool { return len(low.Executable.Graphs) > 1 }
	count := info("m", onnx.Int64)
	cond := info("c", onnx.Bool)
	four := map[string][]byte{"m": lower.KnownInts(4).Data}
	yes, no := map[string][]byte{"c": {1}}, map[string][]byte{"c": {0}}

	t.Run("written out", func(t *testing.T) {
		low, out := results(t, loopModel(names("four", "", "a0"), true), onnx.Options{}, feeds(1, 0, nil))
		require.False(t, runs(low))
		require.Equal(t, [][]float64{{13}, {-1, -3, -7, -13}}, out)
	})
	t.Run("trip count of the host", func(t *testing.T) {
		low, out := results(t, loopModel(names("m", "", "a0"), false, count), onnx.Options{}, feeds(1, 0, four))
		require.True(t, runs(low))
		require.Equal(t, [][]float64{{13}}, out)
		_, out = results(t, loopModel(names("m", "", "a0"), false, count), onnx.Options{}, feeds(1, 0, map[string][]byte{"m": lower.KnownInts(0).Data}))
		require.Equal(t, [][]float64{{1}}, out)
	})
	t.Run("condition of the host", func(t *testing.T) {
		for feed, want := range map[*map[string][]byte]float64{&yes: 13, &no: 1} {
			_, out := results(t, loopModel(names("four", "c", "a0"), false, cond), onnx.Options{}, feeds(1, 0, *feed))
			require.Equal(t, [][]float64{{want}}, out)
		}
	})
	t.Run("while", func(t *testing.T) {
		low, out := results(t, while(loopModel(names("", "", "a0"), false)), onnx.Options{}, feeds(1, 100, nil))
		require.True(t, runs(low))
		require.Equal(t, [][]float64{{111}}, out) // 1 + 2·(0+…+10)
		_, out = results(t, while(loopModel(names("four", "", "a0"), false)), onnx.Options{}, feeds(1, 6, nil))
		require.Equal(t, [][]float64{{7}}, out)
		_, out = results(t, while(loopModel(names("four", "", "a0"), false)), onnx.Options{}, feeds(1, 100, nil))
		require.Equal(t, [][]float64{{13}}, out)
	})
	t.Run("while, known", func(t *testing.T) {
		low, out := results(t, while(loopModel(names("", "", "a0"), true)), onnx.Options{
			Values: map[string]*onnx.Tensor{"a0": list32(1), "limit": list32(6)}, FoldWeights: true}, nil)
		require.False(t, runs(low))
		require.Empty(t, low.Executable.Graphs[0].Nodes)
		require.Equal(t, [][]float64{{7}, {-1, -3, -7}}, out)
	})
	t.Run("while and collected", func(t *testing.T) {
		for limit, want := range map[float64][][]float64{100: {{13}, {-1, -3, -7, -13}}, 6: {{7}, {-1, -3, -7}}, 0: {{1}, {-1}}} {
			low, out := results(t, while(loopModel(names("four", "", "a0"), true)), onnx.Options{}, feeds(1, limit, nil))
			require.Equal(t, want, out, "as many as there were iterations")
			require.Equal(t, []string{"all_count", ""}, low.Outputs[1].Counts)
		}
		_, err := Lower(while(loopModel(names("", "", "a0"), true)), onnx.Options{})
		require.ErrorContains(t, err, "--max all=N")
		m := while(loopModel(names("", "", "a0"), true))
		low, out := results(t, m, onnx.Options{Max: map[string]int64{"all": 3}}, feeds(1, 6, nil))
		require.Equal(t, [][]float64{{7}, {-1, -3, -7}}, out)
		_, err = interpret(low, feeds(1, 100, nil))
		require.ErrorContains(t, err, "data makes more iterations than the 3 values")
	})
	t.Run("never", func(t *testing.T) {
		low, out := results(t, loopModel(names("four", "no", "a0"), true), onnx.Options{}, feeds(5, 0, nil))
		require.Equal(t, [][]float64{{5}, {}}, out)
		require.Equal(t, "f32[0,1]", low.Executable.Tensors[low.Outputs[1].Tensor].Type.String())
		require.Len(t, low.Executable.Tensors, 2+1, "nothing is left of the attempt")
	})
	t.Run("long", func(t *testing.T) {
		m := loopModel(names("many", "", "a0"), true)
		m.Graph.Initializers = append(m.Graph.Initializers, named(i64s(dims(1), 3000), "many"))
		low, out := results(t, m, onnx.Options{}, feeds(0, 0, nil))
		require.True(t, runs(low))
		require.Len(t, low.Weights, 1, "nothing is left of the attempt to write it out")
		require.Equal(t, 2999.*3000, out[0][0])
		require.Len(t, out[1], 3000)
		require.Equal(t, -2., out[1][1])
		require.Equal(t, "f32[3000,1]", low.Executable.Tensors[low.Outputs[1].Tensor].Type.String())
	})
	t.Run("collected with an unknown trip count", func(t *testing.T) {
		_, err := Lower(loopModel(names("m", "", "a0"), true, count), onnx.Options{})
		var need *onnx.NeedValueError
		require.ErrorAs(t, err, &need)
		require.Equal(t, []string{"m"}, need.Inputs())
		for n, want := range map[int64][][]float64{4: {{13}, {-1, -3, -7, -13}}, 1: {{1}, {-1}}, 0: {{1}, {}}} {
			_, out := results(t, loopModel(names("m", "", "a0"), true, count), onnx.Options{Max: map[string]int64{"all": 4}}, feeds(1, 0, map[string][]byte{"m": lower.KnownInts(n).Data}))
			require.Equal(t, want, out)
		}
	})
	t.Run("declared", func(t *testing.T) {
		m := loopModel(names("four", "c", "a0"), true, cond)
		_, out := results(t, m, onnx.Options{}, feeds(1, 0, yes))
		require.Equal(t, [][]float64{{13}, {-1, -3, -7, -13}}, out)
		_, out = results(t, m, onnx.Options{}, feeds(1, 0, no))
		require.Equal(t, [][]float64{{1}, {}}, out)
		m.Graph.Outputs[1] = info("all", onnx.Float, 4, 1)
		low, out := results(t, m, onnx.Options{}, feeds(1, 0, yes))
		require.Equal(t, [][]float64{{13}, {-1, -3, -7, -13}}, out)
		require.Len(t, low.Warnings, 1)
		_, out = results(t, m, onnx.Options{}, feeds(1, 0, no))
		require.Equal(t, []float64{1}, out[0])
	})
	t.Run("growing", func(t *testing.T) {
		m := loopModel(names("four", "", "a0"), false)
		body := m.Graph.Nodes[0].Attributes[0].Graph
		body.Nodes = []*onnx.Node{node("Concat", names("a", "limit"), names("next"), aInt("axis", 0))}
		body.Outputs[0].Name = "go"
		_, out := results(t, m, onnx.Options{}, feeds(1, 0, nil))
		require.Equal(t, [][]float64{{1, 0, 0, 0, 0}}, out)
		m.Graph.Nodes[0].Inputs[0] = "m"
		m.Graph.Inputs = append(m.Graph.Inputs, count)
		_, err := Lower(m, onnx.Options{})
		require.ErrorContains(t, err, "--max y=N")
		low, out := results(t, m, onnx.Options{Max: map[string]int64{"y": 5}}, feeds(1, 0, four))
		require.Equal(t, [][]float64{{1, 0, 0, 0, 0}}, out)
		_, err = interpret(low, feeds(1, 0, map[string][]byte{"m": lower.KnownInts(5).Data}))
		require.ErrorContains(t, err, "more elements of its result than the 5")
	})
	t.Run("iteration as a shape", func(t *testing.T) {
		m := loopModel(names("four", "", "a0"), true)
		body := m.Graph.Nodes[0].Attributes[0].Graph
		body.Initializers = append(body.Initializers, named(list1(0), "zero"))
		body.Nodes = append(body.Nodes, node("Unsqueeze", names("i", "zero"), names("at")), node("Slice", names("three", "at", "end"), names("part")))
		body.Nodes = append(body.Nodes, node("ReduceSum", names("part"), names("sum"), aInt("keepdims", 0)))
		body.Outputs[2].Name = "sum"
		m.Graph.Initializers = append(m.Graph.Initializers, named(list32(1, 2, 3, 4), "three"), named(list1(9), "end"), named(i64s(dims(1), 1000), "many"))
		_, out := results(t, m, onnx.Options{}, feeds(0, 0, nil))
		require.Equal(t, []float64{10, 9, 7, 4}, out[1])
		m.Graph.Nodes[0].Inputs[0] = "many"
		_, out = results(t, m, onnx.Options{}, feeds(0, 0, nil))
		require.Equal(t, []float64{10, 9, 7, 4, 0, 0}, out[1][:6], "sums of what a count bounds")
	})
	t.Run("endless", func(t *testing.T) {
		_, err := Lower(loopModel(names("", "", "a0"), false), onnx.Options{})
		require.ErrorContains(t, err, "nothing ends the loop")
	})
	t.Run("body", func(t *testing.T) {
		m := loopModel(names("four", ""), false)
		_, err := Lower(m, onnx.Options{})
		require.ErrorContains(t, err, "body has 3 inputs and 2 outputs, want 2")
		m = loopModel(names("four", "", "a0"), false)
		m.Graph.Nodes[0].Attributes[0].Graph.Nodes[2].OpType = "Unknown"
		_, err = Lower(m, onnx.Options{})
		require.ErrorContains(t, err, "operator Unknown of operator set 13: node 0 (Loop): body: node 2 (Unknown)")
		require.NotContains(t, fmt.Sprint(err), "more")
	})
}

// TestNestedLoops checks that attempts inside attempts end soon.
func TestNestedLoops(t *testing.T) {
	g := &onnx.Graph{Inputs: []onnx.ValueInfo{info("i", onnx.Int64), info("go", onnx.Bool), info("a", onnx.Float, 1)}, Outputs: outputs("go", "b"),
		Nodes: []*onnx.Node{node("Neg", names("a"), names("b"))}}
	for range 6 {
		g = &onnx.Graph{Inputs: g.Inputs, Outputs: outputs("go", "b"), Initializers: []*onnx.Tensor{named(i64s(dims(), 5000), "many")},
			Nodes: []*onnx.Node{node("Loop", names("many", "", "a"), names("b"), aGraph("body", g))}}
	}
	g.Inputs, g.Outputs = []onnx.ValueInfo{info("a", onnx.Float, 1)}, outputs("b")
	low := mustLower(t, model(13, g), onnx.Options{})
	verified(t, low)
	require.Len(t, low.Executable.Graphs, 7)
}

func TestScan(t *testing.T) {
	body := &onnx.Graph{
		Inputs:  []onnx.ValueInfo{info("s", onnx.Float, 2), info("p", onnx.Float, 2), info("q", onnx.Float, 2)},
		Nodes:   []*onnx.Node{node("Add", names("s", "p"), names("t")), node("Sub", names("t", "q"), names("u")), node("Identity", names("t"), names("v"))},
		Outputs: outputs("t", "u", "v"),
	}
	x := f32s(dims(3, 2), 1, 2, 3, 4, 5, 6)
	y := f32s(dims(2, 3), 10, 20, 30, 40, 50, 60)
	zero := list32(0, 0)
	attrs := []*onnx.Attribute{aGraph("body", body), aInt("num_scan_inputs", 2), aInts("scan_input_axes", 0, -1), aInts("scan_input_directions", 0, 1),
		aInts("scan_output_axes", 1, 0), aInts("scan_output_directions", 1, 0)}
	cases := []opCase{
		{op: "Scan", opset: 11, attrs: attrs, in: []*onnx.Tensor{zero, x, y},
			want: []*onnx.Tensor{list32(9, 12), f32s(dims(2, 3), -1, -16, -29, -28, -44, -58), f32s(dims(3, 2), 1, 2, 4, 6, 9, 12)}},
		{op: "Scan", name: "Scan-9 of nothing", opset: 9, attrs: attrs[:2], in: []*onnx.Tensor{zero, f32s(dims(0, 2)), f32s(dims(0, 2))},
			want: []*onnx.Tensor{zero, f32s(dims(0, 2)), f32s(dims(0, 2))}},
		{op: "Scan", name: "Scan-8", opset: 8, attrs: attrs[:2], fixed: []int{0},
			in: []*onnx.Tensor{list1(2, 1), f32s(dims(2, 2), 0, 0, 100, 100), f32s(dims(2, 2, 2), 1, 2, 3, 4, 5, 6, 7, 8), f32s(dims(2, 2, 2), 0, 0, 0, 0, 1, 1, 1, 1)},
			want: []*onnx.Tensor{f32s(dims(2, 2), 4, 6, 105, 106), f32s(dims(2, 2, 2), 1, 2, 4, 6, 104, 105, 0, 0),
				f32s(dims(2, 2, 2), 1, 2, 4, 6, 105, 106, 0, 0)}},
		{op: "Scan", name: "Scan-8 reversed", opset: 8, attrs: append(attrs[:2:2], aInts("directions", 0, 1)),
			in:   []*onnx.Tensor{nil, f32s(dims(1, 2), 0, 0), f32s(dims(1, 2, 2), 1, 2, 3, 4), f32s(dims(1, 2, 2), 10, 10, 20, 20)},
			want: []*onnx.Tensor{f32s(dims(1, 2), 4, 6), f32s(dims(1, 2, 2), -19, -18, -6, -4), nil}},
	}
	runCases(t, cases)

	// The same as a loop at run time, which long scans are.
	long := &onnx.Graph{
		Inputs: []onnx.ValueInfo{info("s0", onnx.Float, 2), info("x", onnx.Float, 3000, 2), info("y", onnx.Float, 2, 3000)},
		Nodes:  []*onnx.Node{node("Scan", names("s0", "x", "y"), names("s", "u", "v"), attrs...)}, Outputs: outputs("s", "u", "v"),
	}
	xs, ys := make([]float64, 6000), make([]float64, 6000)
	for i := range xs {
		xs[i], ys[i] = float64(i%7), float64(i%5)
	}
	low, out := results(t, model(11, long), onnx.Options{}, map[string][]byte{"s0": zero.Data, "x": f32s(dims(6000), xs...).Data, "y": f32s(dims(6000), ys...).Data})
	require.Len(t, low.Executable.Graphs, 2)
	s := [2]float64{}
	for i := range 3000 {
		for j := range s {
			s[j] += xs[2*i+j]
			require.Equal(t, s[j], out[2][2*i+j])
			require.Equal(t, s[j]-ys[3000*j+2999-i], out[1][3000*j+2999-i], "step %d", i)
		}
	}
	require.Equal(t, s[:], out[0])
}
