package compile_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/onnx/internal/onnxtest"
	"github.com/popefgen/popefgen/popef/family"
)

// led is y = sum(concat(first, x)·mask) and joined, which is concat(first, x): the mask is one longer than x, and has two for
// each in twice.
func led() *onnx.Model {
	return onnxtest.Model(17, &onnx.Graph{
		Name: "led",
		Inputs: []onnx.ValueInfo{
			onnxtest.Info("first", onnx.Float, "batch", 1), onnxtest.Info("mask", onnx.Float, "batch", "total"), onnxtest.Info("x", onnx.Float, "batch", "n"),
			onnxtest.Info("twice", onnx.Float, "batch", "pairs"),
		},
		Outputs:      []onnx.ValueInfo{{Name: "y"}, onnxtest.Info("joined", onnx.Float, "batch", "total"), {Name: "tail"}},
		Initializers: []*onnx.Tensor{onnxtest.Named(onnxtest.List(1), "axes")},
		Nodes: []*onnx.Node{
			onnxtest.Node("Concat", onnxtest.Names("first", "x"), onnxtest.Names("joined"), onnxtest.AInt("axis", 1)),
			onnxtest.Node("Mul", onnxtest.Names("joined", "mask"), onnxtest.Names("masked")),
			onnxtest.Node("ReduceSum", onnxtest.Names("masked", "axes"), onnxtest.Names("y"), onnxtest.AInt("keepdims", 0)),
			onnxtest.Node("Concat", onnxtest.Names("twice", "first"), onnxtest.Names("tail"), onnxtest.AInt("axis", 1)),
		},
	})
}

// ledMembers have these sizes of n, and what follows from them.
func ledMembers(ns ...int64) (all []compile.Sizes) {
	for _, n := range ns {
		all = append(all, compile.Sizes{Dims: map[string]int64{"batch": 1, "n": n, "total": n + 1, "pairs": 2 * n}}, compile.Sizes{Dims: map[string]int64{"batch": 4, "n": n, "total": n + 1, "pairs": 2 * n}})
	}
	return all
}

// TestRules has axes of inputs that follow from another one's dimension: they are none of their own, padding
// of that one is theirs too, and the file says so.
func TestRules(t *testing.T) {
	rules := map[string]compile.Rule{"mask[1]": {Of: "x[1]", Add: 1}, "pairs": {Of: "n", Mul: 2}}
	pads := []family.Pad{{Input: "mask", Value: "0"}, {Input: "x", Value: "0"}, {Input: "twice", Value: "0"}}
	for _, padded := range []bool{false, true} {
		o := compile.Options{Members: ledMembers(2, 4, 8, 16), Rules: rules, Pads: map[string][]family.Pad{}}
		want := []family.Dim{{Name: "batch", Rows: true}, {Name: "n"}}
		if padded {
			o.Pads["n"], want[1].Pads = pads, pads
		}
		r, err := compile.Compile(led(), o)
		require.NoError(t, err)
		holdsOnce(t, r)
		require.Equal(t, want, r.Family.Dims)
		n := []int64{}
		for _, m := range r.Family.Members {
			n = append(n, m.Sizes[1])
		}
		require.ElementsMatch(t, []int64{2, 2, 4, 4, 8, 8, 16, 16}, n)
		for name, rule := range map[string][3]int64{"mask": {1, 1, 1}, "x": {1, 0, 1}, "twice": {2, 0, 1}, "joined": {1, 1, 1}, "tail": {2, 1, 1}} {
			i := slices.IndexFunc(r.Family.Tensors, func(t family.Tensor) bool { return t.Name == name })
			x := r.Family.Tensors[i].Axes[1]
			require.Equal(t, [4]int64{1, rule[0], rule[1], rule[2]}, [4]int64{int64(x.Dim), x.Mul, x.Add, x.Div}, "%s", name)
			for k := range n {
				require.Equal(t, x.At(n[k]), x.Sizes[k], name)
			}
		}
	}
	// Without rules they are dimensions of their own, whatever their sizes are.
	r, err := compile.Compile(led(), compile.Options{Members: ledMembers(2, 4)})
	require.NoError(t, err)
	require.Len(t, r.Family.Dims, 4)
	// A dimension that always has the size of another one is the same dimension, and is followed as one.
	r, err = compile.Compile(shared(), compile.Options{Members: sizes("N=1 M=7 K=7", "N=1 M=12 K=12"), Rules: map[string]compile.Rule{"K": {Of: "M"}}})
	require.NoError(t, err)
	holdsOnce(t, r)
	require.Len(t, r.Family.Dims, 1)
	require.True(t, r.Family.Tensors[2].Axes[1].Same())
	// What has one size in all members is a number.
	r, err = compile.Compile(led(), compile.Options{Members: []compile.Sizes{ledMembers(2)[0], ledMembers(2)[1]}, Rules: rules})
	require.NoError(t, err)
	require.Equal(t, []family.Dim{{Name: "batch", Rows: true}}, r.Family.Dims)
}

// TestRulesRefused wants errors that name the rule.
func TestRulesRefused(t *testing.T) {
	wrong := ledMembers(2, 4)
	wrong[3].Dims = maps.Clone(wrong[3].Dims)
	wrong[3].Dims["total"] = 6
	for _, c := range []struct {
		name    string
		members []compile.Sizes
		rules   map[string]compile.Rule
		pads    map[string][]family.Pad
		want    string
	}{
		{"another size", wrong, map[string]compile.Rule{"total": {Of: "n", Add: 1}}, nil, "--dim total=n+1: a member has total=6 and n=4, which makes it 5"},
		{"of nothing", ledMembers(2, 4), map[string]compile.Rule{"total": {Of: "m", Add: 1}}, nil, `--dim total=m+1: no input has the dimension "m"`},
		{"nothing", ledMembers(2, 4), map[string]compile.Rule{"totals": {Of: "n", Add: 1}}, nil, `no input has the dimension "totals"; did you mean "total"?`},
		{"of itself", ledMembers(2, 4), map[string]compile.Rule{"n": {Of: "x[1]"}}, nil, "would follow from itself"},
		{"in a circle", ledMembers(2, 4), map[string]compile.Rule{"total": {Of: "n", Add: 1}, "n": {Of: "total", Add: -1}}, nil, "follows from another dimension itself"},
		{"of what follows", ledMembers(2, 4), map[string]compile.Rule{"total": {Of: "n", Add: 1}, "pairs": {Of: "total", Mul: 2, Add: -2}}, nil, `"total" follows from another dimension itself (total=n+1)`},
		{"twice", ledMembers(2, 4), map[string]compile.Rule{"total": {Of: "n", Add: 1}, "mask[1]": {Of: "pairs", Add: 2, Div: 2}}, nil, "said twice, by mask[1]=(pairs+2)/2 too"},
		{"numbers", ledMembers(2, 4), map[string]compile.Rule{"total": {Of: "n", Mul: -1}}, nil, "want factors and divisors from 1"},
		{"padding of some", ledMembers(2, 4), map[string]compile.Rule{"total": {Of: "n", Add: 1}}, map[string][]family.Pad{"n": {{Input: "x", Value: "0"}}}, "want a value for mask too"},
		{"padding of what follows", ledMembers(2, 4), map[string]compile.Rule{"total": {Of: "n", Add: 1}}, map[string][]family.Pad{"total": {{Input: "mask", Value: "0"}}}, `it follows from "n"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := compile.Compile(led(), compile.Options{Members: c.members, Rules: c.rules, Pads: c.pads})
			var refused *compile.FamilyError
			require.ErrorAs(t, err, &refused)
			require.ErrorContains(t, err, c.want)
		})
	}
}
