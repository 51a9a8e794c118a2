package op

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
)

// countedCase is a model whose inputs decide sizes. Its nodes are written "y = Op(a, b) axis=1",
// with [1 2] for constants of int64.
type countedCase struct {
	name  string
	in    map[string]*onnx.Tensor
	nodes string
	out   string
	max   map[string]int64
	// change changes the model, nil for as it is.
	change func(m *onnx.Model)
}

// model returns the model of a case.
func (c *countedCase) model(t testing.TB) *onnx.Model {
	g := &onnx.Graph{Name: c.name}
	for _, name := range slices.Sorted(maps.Keys(c.in)) {
		g.Inputs = append(g.Inputs, onnx.Declare(name, c.in[name].Elem, c.in[name].Dims))
	}
	constants := 0
	for _, line := range strings.Split(c.nodes, "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		left, right, ok := strings.Cut(strings.TrimSpace(line), " = ")
		require.True(t, ok, line)
		op, rest, _ := strings.Cut(right, "(")
		args, attrs, _ := strings.Cut(rest, ")")
		n := &onnx.Node{OpType: op, Name: op + " of " + left, Outputs: strings.Split(left, " ")}
		for i, o := range n.Outputs {
			if o == "_" {
				n.Outputs[i] = ""
			}
		}
		for _, a := range strings.Split(args, ",") {
			a = strings.TrimSpace(a)
			constant := func(x *onnx.Tensor) {
				constants++
				a = fmt.Sprintf("constant%d", constants)
				g.Initializers = append(g.Initializers, named(x, a))
			}
			if list, ok := strings.CutPrefix(a, "["); ok {
				var values []float64
				for _, w := range strings.Fields(strings.TrimSuffix(list, "]")) {
					var v float64
					_, err := fmt.Sscan(w, &v)
					require.NoError(t, err)
					values = append(values, v)
				}
				constant(list1(values...))
			} else if number, ok := strings.CutPrefix(a, "'"); ok {
				var v float64
				_, err := fmt.Sscan(number, &v)
				require.NoError(t, err)
				constant(f32s(dims(), v))
			} else if number, ok := strings.CutPrefix(a, "#"); ok {
				var v float64
				_, err := fmt.Sscan(number, &v)
				require.NoError(t, err)
				constant(i64s(dims(), v))
			}
			if a != "" || len(n.Inputs) > 0 || strings.Contains(args, ",") {
				n.Inputs = append(n.Inputs, a)
			}
		}
		for _, a := range strings.Fields(attrs) {
			name, value, _ := strings.Cut(a, "=")
			if list := strings.Split(value, ";"); len(list) > 1 {
				var values []int64
				for _, w := range list {
					var v int64
					_, err := fmt.Sscan(w, &v)
					require.NoError(t, err)
					values = append(values, v)
				}
				n.Attributes = append(n.Attributes, aInts(name, values...))
				continue
			}
			var v int64
			if _, err := fmt.Sscan(value, &v); err != nil {
				n.Attributes = append(n.Attributes, aStr(name, value))
				continue
			}
			n.Attributes = append(n.Attributes, aInt(name, v))
		}
		g.Nodes = append(g.Nodes, n)
	}
	g.Outputs = outputs(strings.Fields(c.out)...)
	m := model(18, g)
	if c.change != nil {
		c.change(m)
	}
	return m
}

// feeds returns the inputs' bytes.
func (c *countedCase) feeds() map[string][]byte {
	feeds := map[string][]byte{}
	for name, v := range c.in {
		feeds[name] = v.Data
	}
	return feeds
}

// check compares what comes of data at run time with what is computed where all is known when
// the model is compiled.
func (c *countedCase) check(t *testing.T) {
	m := c.model(t)
	feeds := c.feeds()
	known, err := Lower(m, onnx.Options{Values: c.in})
	require.NoError(t, err)
	require.Empty(t, known.Counts)
	wantTypes, want, err := sized(known, feeds)
	require.NoError(t, err)
	low, err := Lower(m, onnx.Options{Max: c.max})
	require.NoError(t, err)
	verified(t, low)
	types, got, err := sized(low, feeds)
	require.NoError(t, err)
	counted := false
	for i := range want {
		counted = counted || low.Outputs[i].Counts != nil
		require.Equal(t, wantTypes[i].String(), types[i].String(), "output %s", low.Outputs[i].Name)
		a, b := numbers(types[i].DType, want[i]), numbers(types[i].DType, got[i])
		for k := range a {
			if a[k] != b[k] && !(math.IsNaN(a[k]) && math.IsNaN(b[k])) {
				require.InDelta(t, a[k], b[k], 1e-5*(1+math.Abs(a[k])), "output %s, element %d of %v, want %v", low.Outputs[i].Name, k, b, a)
			}
		}
	}
	require.NotEmpty(t, low.Executable.Graphs[0].Nodes, "it runs")
}

// downstream are nodes behind n, places of what is set in x, of which data decides how many there are:
// [2,n]; r is the rows of y there, [n,4], v their first column.
var downstream = map[string]string{
	"elementwise":        "a = Exp(r)\n b = Add(a, r)\n c = Mul(b, '3')\n o = Where(w, c, r)\n w = Less(r, c)",
	"fixed operand":      "o = Add(r, y1)\n y1 = Slice(y, [0], [1], [0])",
	"transpose":          "o = Transpose(r) perm=1;0",
	"cast":               "o = Cast(r) to=6",
	"reshape":            "o = Reshape(r, [-1 2 2])",
	"flatten all":        "o = Reshape(r, [-1])",
	"keep zero":          "o = Reshape(r, [0 2 2])",
	"there and back":     "a = Reshape(r, [-1])\n o = Reshape(a, [-1 4])",
	"unsqueeze":          "a = Unsqueeze(r, [0 2])\n b = Squeeze(a, [0])\n o = Squeeze(b, [1])",
	"shape":              "o = Shape(r)",
	"part of shape":      "o = Shape(r) end=1",
	"size":               "o = Size(r)",
	"reshape by shape":   "a = Shape(r)\n g = Gather(a, [0]) axis=0\n h = Concat(g, [2], [2]) axis=0\n o = Reshape(r, h)",
	"reshape by product": "a = Shape(r)\n g = Gather(a, #0) axis=0\n h = Mul(g, #2)\n u = Unsqueeze(h, [0])\n j = Concat(u, [2]) axis=0\n o = Reshape(r, j)",
	"constant of shape":  "a = Shape(r)\n o = ConstantOfShape(a)",
	"expand":             "a = Shape(r)\n e = Slice(r, [0], [1], [1])\n o = Expand(e, a)",
	// Exporters leave sizes of -1 as they are, which no size is.
	"expand by where":      "a = Shape(r)\n m = ConstantOfShape([2])\n m1 = Sub(m, '1')\n m2 = Cast(m1) to=7\n l = Equal(a, m2)\n w = Where(l, [1 1], a)\n e = Slice(r, [0], [1], [1])\n o = Expand(e, w)",
	"compare at the bound": "a = Shape(r)\n e = Equal(a, [12 4])\n l = Less(a, [12 5])\n g = GreaterOrEqual(a, [12 4])\n o = Cast(e) to=6\n p = Cast(l) to=6\n q = Cast(g) to=6",
	"reshape by compare":   "a = Shape(r)\n l = LessOrEqual(a, [100 4])\n g = Greater([-1 4], a)\n h = Or(l, g)\n w = Where(l, a, [5 5])\n u = Where(g, [5 5], w)\n o = Reshape(r, u)\n p = Cast(h) to=1",
	"expand scalar":        "a = Shape(r)\n o = Expand('7', a)",
	"range":                "a = Shape(v)\n g = Gather(a, #0)\n o = Range(#0, g, #1)",
	"range by two":         "a = Shape(v)\n g = Gather(a, #0)\n o = Range(#1, g, #2)",
	"sum":                  "i = Reciprocal(r)\n e = Exp(i)\n s = Sub(e, e)\n t = Add(s, r)\n o = ReduceSum(t, [0])",
	"mean":                 "o = ReduceMean(e, [0])\n e = Exp(r)",
	"mean of all":          "o = ReduceMean(e) keepdims=0\n e = Exp(r)",
	"max":                  "a = Sub(r, '100')\n o = ReduceMax(a, [0]) keepdims=0",
	"min":                  "a = Add(r, '100')\n o = ReduceMin(a, [0]) keepdims=0",
	"product":              "o = ReduceProd(r, [0])",
	"norms":                "o = ReduceL2(e, [0])\n p = ReduceL1(e, [0])\n q = ReduceLogSumExp(e, [0])\n e = Exp(r)",
	"other axis":           "o = ReduceSum(r, [1])",
	"arg max":              "a = Sub(r, '100')\n o = ArgMax(a) axis=0 keepdims=0",
	"arg min":              "a = Add(r, '100')\n o = ArgMin(a) axis=0",
	"softmax":              "a = Sub(r, '100')\n o = Softmax(a) axis=0",
	"softmax of others":    "o = Softmax(r) axis=1",
	"log softmax":          "o = LogSoftmax(r) axis=0",
	"rows of a product":    "t = Transpose(y) perm=1;0\n o = MatMul(r, t)",
	"columns of product":   "t = Transpose(r) perm=1;0\n o = MatMul(y, t)",
	"sum of products":      "e = Reciprocal(r)\n f = Sub(e, e)\n g = Add(f, r)\n t = Transpose(g) perm=1;0\n o = MatMul(t, g)",
	"gemm":                 "o = Gemm(r, y) transB=1",
	"gather of it":         "o = Gather(r, [0 -1 1]) axis=0",
	"gather columns":       "o = Gather(r, [3 0]) axis=1",
	"gather elements":      "a = ArgMax(r) axis=1\n o = GatherElements(r, a) axis=1",
	"gather slices":        "p = Transpose(n) perm=1;0\n o = GatherND(x, p)",
	"scatter slices":       "p = Transpose(n) perm=1;0\n e = Exp(v)\n o = ScatterND(x, p, e)",
	"scatter add":          "p = Transpose(n) perm=1;0\n e = Exp(v)\n o = ScatterND(x, p, e) reduction=add",
	"scatter elements":     "i = Slice(n, [0], [1], [0])\n j = Squeeze(i, [0])\n u = Slice(y, [0], [4], [0])\n u1 = Slice(u, [0], [1], [1])\n u2 = Squeeze(u1, [1])\n e = Exp(v)\n o = ScatterElements(u2, j, e) axis=0 reduction=add",
	"scatter into it":      "e = Exp(r)\n iz = Unsqueeze([1], [1])\n z = Slice(e, [0], [1], [0])\n o = ScatterND(e, iz, z)",
	"top k":                "a = Sub(v, '100')\n o p = TopK(a, [2]) axis=0",
	"least k":              "a = Add(v, '100')\n o p = TopK(a, [2]) axis=0 largest=0",
	"top k by count":       "a = Shape(v)\n h = Div(a, [2])\n o p = TopK(v, h) axis=0",
	"top all":              "a = Shape(v)\n k = Min(a, [1000])\n o p = TopK(v, k) axis=0",
	"non-zero again":       "a = Sub(v, '1')\n g = Greater(a, '0')\n o = NonZero(g)",
	"compress":             "g = Greater(v, '0.5')\n o = Compress(r, g) axis=0",
	"unique":               "g = Cast(v) to=7\n o p q u = Unique(g)",
	"cumulative sum":       "o = CumSum(r, #0)\n p = CumSum(r, #0) reverse=1",
	"one hot":              "i = Cast(v) to=7\n o = OneHot(i, #5, z)\n z = Slice(y2, [0], [2])\n y2 = Reshape(y, [-1])",
	"concat":               "o = Concat(r, y) axis=0",
	"concat twice":         "o = Concat(y, r, r) axis=0",
	"concat columns":       "o = Concat(r, r) axis=1",
	"concat then sum":      "a = Concat(r, r, y) axis=0\n o = ReduceSum(a, [0])",
	"first rows":           "o = Slice(r, [0], [2], [0])",
	"last rows":            "o = Slice(r, [-2], [100], [0])",
	"but the last":         "o = Slice(r, [1], [-1], [0])",
	"back to front":        "o = Slice(r, [-1], [-100], [0], [-1])",
	"back from before it":  "o = Slice(r, [-100], [-200], [0], [-1])",
	"every other":          "o = Slice(r, [0], [100], [0], [2])",
	"slice of columns":     "o = Slice(r, [1], [3], [1])",
	"slice by count":       "a = Shape(v)\n h = Div(a, [2])\n o = Slice(y, [0], h, [0])",
	"slice from count":     "a = Shape(v)\n h = Div(a, [2])\n o = Slice(y, h, [100], [0])",
	"split columns":        "o p = Split(r) axis=1 num_outputs=2",
	"layer norm":           "z = ConstantOfShape([4])\n o = LayerNormalization(r, z)",
	"quantise":             "o = QuantizeLinear(r, '0.5')",
	"two counts":           "g = Greater(y, '0')\n n2 = NonZero(g)\n h = Slice(n2, [0], [1], [0])\n j = Squeeze(h, [0])\n a = Unsqueeze(v, [1])\n w0 = Gather(y, j) axis=0\n w1 = Slice(w0, [0], [1], [1])\n w2 = Transpose(w1) perm=1;0\n o = Add(a, w2)",
	"of both axes":         "g = Greater(y, '0')\n n2 = NonZero(g)\n h = Slice(n2, [0], [1], [0])\n j = Squeeze(h, [0])\n w0 = Gather(y, j) axis=0\n w1 = Transpose(w0) perm=1;0\n e = Exp(r)\n f = Exp(w1)\n a = MatMul(e, f)\n o = ReduceMean(a, [0 1])\n p = Softmax(a) axis=1",
	"pool":                 "a = Reshape(r, [-1 1 2 2])\n o = MaxPool(a) kernel_shape=2;2",
	"global pool":          "a = Reshape(r, [-1 1 2 2])\n o = GlobalAveragePool(a)",
	"convolution":          "a = Reshape(r, [-1 1 2 2])\n k = Reshape(y, [-1 1 2 2])\n o = Conv(a, k)",
	"resize":               "a = Reshape(r, [-1 1 2 2])\n sc = Cast([1 1 2 2]) to=1\n o = Resize(a, , sc)",
	"regions of interest":  "i = Reshape(y, [1 1 -1 4])\n z = Shape(v)\n q = ConstantOfShape(z) \n bi = Cast(q) to=7\n o = RoiAlign(i, r, bi) output_height=2 output_width=2",
}

// downstreamCase is one of them, for one set of data.
func downstreamCase(name string, set []float64) *countedCase {
	r := rand.New(rand.NewPCG(3, 4))
	y := f32s(dims(8, 4))
	for range 32 {
		y.Data = append(y.Data, f32s(dims(), math.Round(10*(r.Float64()-0.3))/4+0.25).Data...)
	}
	nodes := downstream[name]
	c := &countedCase{name: name, in: map[string]*onnx.Tensor{"x": f32s(dims(3, 4), set...), "y": y},
		nodes: "n = NonZero(x)\n i0 = Slice(n, [1], [2], [0])\n i1 = Squeeze(i0, [0])\n r = Gather(y, i1) axis=0\n v0 = Slice(r, [0], [1], [1])\n v = Squeeze(v0, [1])\n" + nodes}
	for _, line := range strings.Split(nodes, "\n") {
		left, _, _ := strings.Cut(line, " = ")
		for _, f := range strings.Fields(left) {
			if f == "o" || f == "p" || f == "q" || f == "u" {
				c.out += " " + f
			}
		}
	}
	return c
}

func TestCountsDownstream(t *testing.T) {
	for name := range downstream {
		t.Run(name, func(t *testing.T) {
			for _, set := range [][]float64{{0, 1, 1, 0, 1, 0, 0, 1, 1, 0, 0, 0}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {0, 0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 1}} {
				downstreamCase(name, set).check(t)
			}
		})
	}
}

// CountedModels returns models of which data decides sizes.
func CountedModels(t testing.TB) (models []OperatorModel) {
	for _, name := range slices.Sorted(maps.Keys(downstream)) {
		c := downstreamCase(name, []float64{0, 1, 1, 0, 1, 0, 0, 1, 1, 0, 0, 0})
		models = append(models, OperatorModel{"counts: " + name, c.model(t), c.feeds()})
	}
	return models
}

// TextModel returns the model that nodes in the form of a [countedCase] make.
func TextModel(t testing.TB, in map[string]*onnx.Tensor, nodes, out string) *onnx.Model {
	return (&countedCase{name: "text", in: in, nodes: nodes, out: out}).model(t)
}

// TestCountedBounds: what bounds a size, and what happens beyond.
func TestCountedBounds(t *testing.T) {
	x := f32s(dims(6), 1, 0, 1, 1, 0, 1)
	c := countedCase{name: "max", in: map[string]*onnx.Tensor{"x": x}, nodes: "n = NonZero(x)\n o = Transpose(n)", out: "o", max: map[string]int64{"n": 4}}
	c.check(t)
	low, err := Lower(c.model(t), onnx.Options{Max: c.max})
	require.NoError(t, err)
	require.Equal(t, "i64[4,1]", low.Executable.Tensors[low.Outputs[0].Tensor].Type.String())
	require.Equal(t, []string{"o_count", ""}, low.Outputs[0].Counts)
	_, err = interpret(low, map[string][]byte{"x": f32s(dims(6), 1, 1, 1, 1, 1, 0).Data})
	require.ErrorContains(t, err, "data makes more elements of its result than the 4 that it was compiled for: compile the model for more, with --max n=N")

	_, err = Lower(c.model(t), onnx.Options{Max: map[string]int64{"o": 4}})
	require.ErrorContains(t, err, `--max o=4: no axis of a value of this name`)
	_, err = Lower(c.model(t), onnx.Options{Max: map[string]int64{"n": -1}})
	require.ErrorContains(t, err, "--max n=-1: want a number from 1")

	k := i64s(dims(), 3)
	c = countedCase{name: "range", in: map[string]*onnx.Tensor{"k": k}, nodes: "o = Range(#0, k, #1)", out: "o"}
	_, err = Lower(c.model(t), onnx.Options{})
	var need *onnx.NeedValueError
	require.True(t, errors.As(err, &need), "%v", err)
	require.Equal(t, []string{"k"}, need.Inputs())
	require.ErrorContains(t, err, "give the most that there may be of each: --max o=N")
	c.max = map[string]int64{"o": 5}
	c.check(t)
	c.in["k"] = i64s(dims(), -7)
	c.check(t)
	m := c.model(t)
	m.Graph.Outputs = []onnx.ValueInfo{info("o", onnx.Int64, "steps")}
	low, err = Lower(m, onnx.Options{Max: map[string]int64{"steps": 5}})
	require.NoError(t, err)
	_, err = interpret(low, map[string][]byte{"k": i64s(dims(), 6).Data})
	require.ErrorContains(t, err, "more elements of its result than the 5")
}

// TestCountsThatDiffer ends runs in which data gives operands sizes that do not fit.
func TestCountsThatDiffer(t *testing.T) {
	c := countedCase{name: "sum", in: map[string]*onnx.Tensor{"x": f32s(dims(4), 1, 0, 1, 0), "y": f32s(dims(4), 0, 1, 0, 1)},
		nodes: "a = NonZero(x)\n b = NonZero(y)\n o = Add(a, b)", out: "o"}
	c.check(t)
	low, err := Lower(c.model(t), onnx.Options{})
	require.NoError(t, err)
	_, err = interpret(low, map[string][]byte{"x": c.in["x"].Data, "y": f32s(dims(4), 1, 1, 1, 0).Data})
	require.ErrorContains(t, err, "data gives axis 1 of its operands different numbers of elements")

	c.nodes = "a = NonZero(x)\n b = Transpose(a)\n o = Gather(b, [2]) axis=0"
	delete(c.in, "y")
	low, err = Lower(c.model(t), onnx.Options{})
	require.NoError(t, err)
	_, err = interpret(low, map[string][]byte{"x": c.in["x"].Data})
	require.ErrorContains(t, err, "an index is outside of axis 0 of what it picks from")
}

// TestNothingFound: what models behind an empty selection give.
func TestNothingFound(t *testing.T) {
	c := countedCase{name: "nothing", in: map[string]*onnx.Tensor{"x": f32s(dims(3), 0, 0, 0), "y": f32s(dims(3, 2), 1, 2, 3, 4, 5, 6)}}
	picked := "n = NonZero(x)\n i = Squeeze(n, [0])\n r = Gather(y, i) axis=0\n"
	for nodes, want := range map[string][]float64{
		"o = ReduceSum(r, [0])":                  {0, 0},
		"o = ReduceProd(r, [0])":                 {1, 1},
		"o = ReduceMax(r, [0])":                  {math.Inf(-1), math.Inf(-1)},
		"o = Shape(r)":                           {0, 2},
		"o = ArgMax(r) axis=1 keepdims=0":        nil,
		"o = Softmax(r) axis=0":                  nil,
		"o = Concat(r, y) axis=0":                {1, 2, 3, 4, 5, 6},
		"s = Shape(i)\n o p = TopK(r, s) axis=0": nil,
	} {
		c.nodes, c.out = picked+nodes, "o"
		low, err := Lower(c.model(t), onnx.Options{})
		require.NoError(t, err, nodes)
		types, got, err := sized(low, c.feeds())
		require.NoError(t, err, nodes)
		require.Equal(t, append([]float64{0}, want...), append([]float64{0}, numbers(types[0].DType, got[0])...), nodes)
	}
	// There is no greatest element of none, in ONNX Runtime either.
	for _, op := range []string{"ArgMax", "ArgMin"} {
		c.nodes = picked + "o = " + op + "(r) axis=0"
		low, err := Lower(c.model(t), onnx.Options{})
		require.NoError(t, err)
		_, err = interpret(low, c.feeds())
		require.ErrorContains(t, err, `node "`+op+` of o" (`+op+`, number 3): axis 0 of its operand, of which the greatest or least element is wanted, has none`)
	}
}

// TestCountsRefused names the node and the axis where counts can't be honoured.
func TestCountsRefused(t *testing.T) {
	for nodes, want := range map[string]string{
		"o = Einsum(n) equation=ij->i": "axis 1 of operand \"n\" has as many elements as data decides (6 at most), which operator Einsum can't take there",
		"o = Reshape(n, [3 -1])":       "do not lie together",
		"o = Pad(n, [0 1 0 0])":        "and can't be padded",
		"a = Cast(n) to=1\n b = Reshape(a, [1 2 1 -1])\n d = Transpose(b) perm=3;0;1;2\n o = Resize(d, , , [4 1 4 4])": "but 4 are wanted",
		"o p = Split(n) axis=1":               "but a part of fixed size is taken of it",
		"o = Hardmax(n1)\n n1 = Cast(n) to=1": "which operator Hardmax can't take",
	} {
		c := countedCase{name: "refused", in: map[string]*onnx.Tensor{"x": f32s(dims(2, 3), 1, 1, 0, 0, 0, 0)}, nodes: "n = NonZero(x)\n" + nodes, out: "o"}
		_, err := Lower(c.model(t), onnx.Options{})
		require.ErrorContains(t, err, want, nodes)
	}
}

// TestCountsInGraphs: branches and loops that give, carry and scan counted values.
func TestCountsInGraphs(t *testing.T) {
	gather := "n = NonZero(x)\n i0 = Slice(n, [0], [1], [0])\n i1 = Squeeze(i0, [0])\n r = Gather(y, i1) axis=0\n"
	body := func(in []onnx.ValueInfo, nodes []*onnx.Node, out ...string) *onnx.Attribute {
		return aGraph("body", &onnx.Graph{Inputs: in, Nodes: nodes, Outputs: outputs(out...)})
	}
	y := f32s(dims(6, 2), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
	for name, add := range map[string]*onnx.Node{
		"scan": node("Scan", names("zero", "r"), names("o", "p"), aInt("num_scan_inputs", 1),
			body([]onnx.ValueInfo{info("a", onnx.Float, 2), info("e", onnx.Float, 2)}, []*onnx.Node{node("Add", names("a", "e"), names("b")), node("Neg", names("b"), names("c"))}, "b", "c")),
		"scan back": node("Scan", names("zero", "r"), names("o"), aInt("num_scan_inputs", 1), aInts("scan_input_directions", 1),
			body([]onnx.ValueInfo{info("a", onnx.Float, 2), info("e", onnx.Float, 2)}, []*onnx.Node{node("Sub", names("e", "a"), names("b"))}, "b")),
		"carried": node("Loop", names("many", "", "r"), names("o"),
			body([]onnx.ValueInfo{info("i", onnx.Int64), info("go", onnx.Bool), info("a", onnx.Float, "n", 2)}, []*onnx.Node{node("Exp", names("a"), names("e")), node("Neg", names("e"), names("b"))}, "go", "b")),
		"one branch": node("If", names("flag"), names("o"), aGraph("then_branch", &onnx.Graph{Nodes: []*onnx.Node{node("Exp", names("r"), names("e"))}, Outputs: outputs("e")}),
			aGraph("else_branch", &onnx.Graph{Nodes: []*onnx.Node{node("Identity", names("y"), names("f"))}, Outputs: outputs("f")})),
	} {
		t.Run(name, func(t *testing.T) {
			for _, set := range [][]float64{{1, 0, 1, 1, 0, 0}, {0, 0, 0, 0, 1, 0}, {1, 1, 1, 1, 1, 1}} {
				for flag := range 2 {
					c := countedCase{in: map[string]*onnx.Tensor{"x": f32s(dims(6), set...), "y": y, "flag": bools(dims(), float64(flag))}, nodes: gather, out: strings.Join(add.Outputs, " ")}
					c.change = func(m *onnx.Model) {
						m.Graph.Nodes = append(m.Graph.Nodes, add)
						m.Graph.Initializers = append(m.Graph.Initializers, named(list32(0, 0), "zero"), named(i64s(dims(), 3), "many"))
					}
					c.check(t)
				}
			}
		})
	}
}

// TestSizesByData are operators whose operands say how large their results are. What comes of data at
// run time is what the same numbers give when they are known.
func TestSizesByData(t *testing.T) {
	x := f32s(dims(3, 4), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
	row := f32s(dims(1, 4), 1, 2, 3, 4)
	many := map[string]int64{"o": 12}
	for _, c := range []struct {
		nodes string
		max   map[string]int64
		x     *onnx.Tensor
		s     [][]float64
	}{
		{"o = ConstantOfShape(s)", many, nil, [][]float64{{2, 3}, {0, 12}, {12, 1}}},
		{"o = Expand(x, s)", many, row, [][]float64{{3, 4}, {1, 4}, {0, 1}, {12, 1}}},
		{"o = Expand(x, s)", nil, x, [][]float64{{3, 4}, {1, 4}, {1, 1}}},
		{"o = Tile(x, s)", many, x, [][]float64{{1, 1}, {4, 3}, {0, 2}, {2, 0}}},
		{"o = Reshape(x, s)", many, x, [][]float64{{4, 3}, {2, 6}, {12, 1}, {-1, 2}, {3, -1}, {0, 4}, {0, -1}, {0, 0}}},
		{"o = Reshape(x, s)", many, x, [][]float64{{2, 3, 2}, {1, -1, 1}, {3, 2, -1}, {0, 0, 1}}},
		{"o = Reshape(x, s) allowzero=1", many, x, [][]float64{{2, 6}, {-1, 3}}},
		{"o = Reshape(x, s)", nil, x, [][]float64{{12}, {-1}}},
		{"a = Concat([2], s) axis=0\n o = Reshape(x, a)", nil, x, [][]float64{{6}, {-1}}},
		{"o = Pad(x, s)", many, x, [][]float64{{0, 0, 0, 0}, {1, 2, 3, 4}, {-1, 0, -2, 5}, {9, 0, 0, -4}}},
		{"o = Pad(x, s, '7', [1])", many, x, [][]float64{{0, 0}, {1, 3}, {8, 0}, {-2, -2}}},
		{"o = Pad(x, s) mode=edge", many, x, [][]float64{{0, 0, 0, 0}, {1, 2, 3, 4}, {-1, 0, 0, 5}}},
		{"o = Pad(x, s) mode=reflect", many, x, [][]float64{{0, 0, 0, 0}, {1, 2, 2, 3}, {0, 3, 1, 0}}},
		{"o = Pad(x, s) mode=wrap", many, x, [][]float64{{0, 0, 0, 0}, {1, 2, 3, 4}, {0, 5, 1, 1}}},
		{"o = Pad(x, s) mode=reflect", many, f32s(dims(1, 1), 3), [][]float64{{0, 0, 0, 0}}},
		{"o p = Split(x, s)", nil, x, [][]float64{{1, 2}, {3, 0}, {0, 3}}},
		{"o p q = Split(x, s) axis=-1", nil, x, [][]float64{{1, 2, 1}, {4, 0, 0}, {0, 1, 3}}},
		{"o p = Split(x, s)", nil, f32s(dims(0, 2)), [][]float64{{0, 0}}},
		{"o = CenterCropPad(x, s)", many, x, [][]float64{{3, 4}, {1, 1}, {2, 3}, {5, 9}, {0, 12}, {4, 2}}},
		{"o = CenterCropPad(x, s) axes=1;0", many, x, [][]float64{{1, 6}, {7, 2}}},
		{"i = Cast(x) to=7\n v = Concat('0', '1') axis=0\n d = Squeeze(s)\n z = Slice(f, [0], [2])\n o = OneHot(i, s, z)\n f = Reshape(x, [-1])", many, x, [][]float64{{5}, {1}, {12}, {0}}},
		{"i = Sub(j, #6)\n j = Cast(x) to=7\n z = Slice(f, [0], [2])\n o = OneHot(i, s, z) axis=0\n f = Reshape(x, [-1])", many, x, [][]float64{{5}, {2}, {12}}},
		{"d = Cast(s) to=1\n i = Cast(x) to=6\n z = Slice(f, [0], [2])\n o = OneHot(i, d, z) axis=1\n f = Reshape(x, [-1])", many, x, [][]float64{{5}, {2}}},
		{"o = HannWindow(s)", many, nil, [][]float64{{1}, {8}, {0}, {12}}},
		{"o = HammingWindow(s) periodic=0", many, nil, [][]float64{{1}, {8}, {2}}},
		{"o = BlackmanWindow(s) periodic=0 output_datatype=10", many, nil, [][]float64{{1}, {9}}},
		{"o = Slice(x, [0 1], [2 4], s)", nil, x, [][]float64{{0, 1}, {1, 0}, {-2, -1}, {-1, 0}}},
		{"o = Slice(x, [-1], [-9], s, [-1])", nil, x, [][]float64{{0}, {1}, {-1}}},
		{"o = Slice(x, [0 -1], [9 0], [0 1], s)", nil, x, [][]float64{{1, -1}, {2, -2}, {5, -9}, {-1, 1}, {1, 9223372036854774784}, {-2, -9223372036854774784}}},
		{"o = Slice(x, [1], [3], s, s)", nil, x, [][]float64{{1}}},
		{"a = Slice(s, [0], [1])\n b = Slice(s, [1], [2])\n o = Slice(x, a, b, [1], [-1])", nil, x, [][]float64{{-1, -9}, {-9, -99}, {2, 0}, {1, 3}}},
		{"a b d = Split(s) axis=0\n o = MelWeightMatrix(a, b, d, '20', '3900')", many, nil, [][]float64{{8, 16, 8192}, {4, 20, 8000}, {12, 21, 9000}, {1, 7, 16000}}},
		{"n = NonZero(x)\n o p = Split(n, s) axis=1", nil, x, [][]float64{{5, 7}, {12, 0}}},
	} {
		t.Run(c.nodes, func(t *testing.T) {
			for _, s := range c.s {
				in := map[string]*onnx.Tensor{"s": list1(s...)}
				if c.x != nil {
					in["x"] = c.x
				}
				out := "o"
				if left, _, _ := strings.Cut(c.nodes[strings.LastIndex(c.nodes, "\n")+1:], " ="); strings.HasPrefix(strings.TrimSpace(left), "o ") {
					out = strings.TrimSpace(left)
				}
				one := countedCase{name: "by data", in: in, nodes: c.nodes, out: out, max: c.max}
				one.check(t)
			}
		})
	}
}

// TestSizesByDataThatDoNotFit ends runs whose data gives sizes that the operand can't have.
func TestSizesByDataThatDoNotFit(t *testing.T) {
	x := f32s(dims(3, 4), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
	for _, c := range []struct {
		nodes string
		good  []float64
		bad   map[string][]float64
	}{
		{"o p = Split(x, s)", []float64{1, 2}, map[string][]float64{"do not add up to the size of axis 0": {1, 1}, "fewer elements than none": {4, -1}}},
		{"o = Reshape(x, s)", []float64{6, 2}, map[string][]float64{"can't take the shape that data gives": {2, 3}, "more than one -1": {-1, -1}, "more elements of its result than the 8": {12, 1}}},
		{"o = Reshape(x, s) allowzero=1", []float64{6, 2}, map[string][]float64{"can't take the shape that data gives": {0, 2}}},
		{"o = Reshape(x, s)", []float64{-1, 2}, map[string][]float64{"can't take the shape that data gives": {-1, 5}}},
		{"o = Pad(x, s)", []float64{0, 0, 0, 0}, map[string][]float64{"fewer elements than none": {-4, 0, 0, 0}, "more elements of its result than the 8": {3, 0, 3, 0}}},
		{"o = Tile(x, s)", []float64{1, 2}, map[string][]float64{"fewer elements than none": {1, -1}, "than the 8": {3, 1}}},
		{"o = HannWindow(s)", []float64{3}, map[string][]float64{"fewer elements than none": {-1}, "than the 8": {9}}},
		{"o = Expand(x, s)", []float64{3, 4}, map[string][]float64{"neither 1 nor that of its operand": {3, 2}}},
		{"o = Slice(x, [0 0], [2 2], s)", []float64{0, 1}, map[string][]float64{"is none of the 2": {0, 2}, "names an axis twice": {1, -1}}},
		{"o = Slice(x, [0], [2], [1], s)", []float64{1}, map[string][]float64{"the step of axis 1 is 0": {0}}},
	} {
		for want, s := range c.bad {
			t.Run(want+" "+c.nodes, func(t *testing.T) {
				out := "o"
				if strings.Contains(c.nodes, "o p =") {
					out = "o p"
				}
				one := countedCase{name: "by data", in: map[string]*onnx.Tensor{"s": list1(c.good...)}, nodes: c.nodes, out: out, max: map[string]int64{"o": 8}}
				if strings.Contains(c.nodes, "x") {
					one.in["x"] = x
				}
				if strings.HasPrefix(c.nodes, "o = Slice") || strings.HasPrefix(c.nodes, "o = Expand") || out == "o p" {
					one.max = nil
				}
				one.check(t)
				low, err := Lower(one.model(t), onnx.Options{Max: one.max})
				require.NoError(t, err)
				_, err = interpret(low, map[string][]byte{"x": x.Data, "s": list1(s...).Data})
				require.ErrorContains(t, err, want)
			})
		}
	}
}
