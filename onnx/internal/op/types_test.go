package op

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/internal/lower"
)

// typeCases are operands and attributes with which an operator, or its form of
// the version after '@', can be lowered with every type that its definition
// claims. An operand is '-' if it is left out, or a shape ("2x3", "s" for a
// scalar) after '!' if it must be known, with its numbers, repeated as needed,
// after '='; by default these are 1 to 5, or such with a fraction. After '|' are attributes as in
// definitions; lists and types are numbers joined by ';'.
var typeCases = map[string]string{
	"Acos": "2x3=0.5;0.25;-1", "Asin": "2x3=0.5;0.25;-1", "Atanh": "2x3=0.5;0.25;-0.5",
	"And": "2x3=1;0 2x3=1;1;0", "Or": "2x3=1;0 2x3=1;1;0", "Xor": "2x3=1;0 2x3=1;1;0",
	"Where": "2x3=1;0;0 2x3 1x3", "Clip": "2x3 s=2 s=4", "Clip@1": "2x3|min=2.0 max=4.0", "Gelu": "2x3", "Einsum": "2x3 3x2|equation=ij,jk->ik",
	"Max": "2x3 3 2x1", "Min": "2x3 3 2x1", "Sum": "2x3 3 2x1", "Mean": "2x3 3 2x1",
	"Max@1": "2x3 2x3", "Min@1": "2x3 2x3", "Sum@1": "2x3 2x3", "Mean@1": "2x3 2x3",
	"Attention": "1x2x3x4 1x2x3x4 1x2x3x4 3x3=1;0 1x2x2x4 1x2x2x4", "LinearAttention": "1x2x4 1x2x4 1x2x4 1x2x2x2 1x2x2 1x2x2|q_num_heads=2 kv_num_heads=2",
	"ai.onnx.preview.FlexAttention": "1x2x3x4 1x2x3x4 1x2x3x4", "RotaryEmbedding": "1x2x2x4 2x2=0.5 2x2=0.25 1x2=0;1", "RMSNormalization": "2x3 3",
	"DFT": "1x4x1 !s=3 !s=1", "DFT@17": "1x4x1 !s=3", "STFT": "1x6x1 !s=2 4 !s=4",
	"HannWindow": "!s=3", "HammingWindow": "!s=3", "BlackmanWindow": "!s=3", "MelWeightMatrix": "!s=2 !s=16 !s=8192 !s=0 !s=4096",
	"NegativeLogLikelihoodLoss": "2x3 2=2;0 3", "SoftmaxCrossEntropyLoss": "2x3 2=2;0 3",
	"Reshape": "2x3 !2=3;-1", "Reshape@1": "2x3|shape=3;-1", "Squeeze": "2x1x3 !1=1", "Squeeze@1": "2x1x3|axes=1", "Unsqueeze": "2x3 !1=1", "Unsqueeze@1": "2x3|axes=1",
	"Expand": "1x3 !2=2;3", "Dropout": "2x3 s=0.5 s=1", "Dropout@1": "2x3|is_test=1", "Concat": "2x3 2x1|axis=1", "Concat@1": "2x3 2x1",
	"Slice": "2x3 !1=1 !1=3 !1=1 !1=1", "Slice@1": "2x3|starts=1 ends=3 axes=1", "Split": "4x3 !1=4", "Split@1": "4x3|split=4",
	"Pad": "2x3 !2=1;0 s=2 !1=1", "Pad@1": "2x3|pads=1;0;0;0 value=1.0", "Gather": "3x2 2=2;0",
	"MatMul": "2x3 3x2", "Gemm": "2x3 3x2 2", "Conv": "1x2x4x4 2x2x3x3 2", "MaxPool": "1x1x4x4|kernel_shape=2;2", "AveragePool": "1x1x4x4|kernel_shape=2;2",
	"GlobalMaxPool": "1x2x3", "GlobalAveragePool": "1x2x3", "BatchNormalization": "2x3x2 3 3 3 3", "BatchNormalization@1": "2x3x2 3 3 3 3|is_test=1",
	"LayerNormalization": "2x3 3 3", "InstanceNormalization": "2x3x4 3 3", "GroupNormalization": "2x4x3 4 4|num_groups=2", "GroupNormalization@18": "2x4x3 2 2|num_groups=2",
	"MeanVarianceNormalization": "2x2x3x2", "LRN": "1x3x2x2|size=3", "Det": "2x2x2", "ConvTranspose": "1x2x3x3 2x2x2x2 2",
	"DeformConv": "1x2x3x3 2x2x2x2 1x8x2x2=0;0.5 2 1x4x2x2=1;0.5", "CausalConvWithState": "1x2x4 2x1x3 2 1x2x2", "Col2Im": "1x4x4 !2=3;3 !2=2;2",
	"DepthToSpace": "1x4x2x2|blocksize=2", "SpaceToDepth": "1x1x4x4|blocksize=2", "CenterCropPad": "2x4 !2=3;2",
	"Resize": "1x1x2x2 - !4=1;1;2;2", "Resize@10": "1x1x2x2 !4=1;1;2;2", "Upsample": "1x1x2x2 !4=1;1;2;2", "Upsample@1": "1x1x2x2|height_scale=2.0 width_scale=2.0", "Upsample@7": "1x1x2x2|scales=1.0;1.0;2.0;2.0",
	"GridSample": "1x1x3x3 1x2x2x2=-1;0;0.5;1|mode=nearest", "AffineGrid": "1x2x3 !4=1;1;2;2", "RoiAlign": "1x1x4x4 1x4=0;0;2;2 1=0|output_height=2 output_width=2",
	"MaxRoiPool": "1x1x4x4 1x5=0;0;0;2;2|pooled_shape=2;2", "LpPool": "1x1x4|kernel_shape=2", "MaxUnpool": "1x1x2x2 1x1x2x2=0;3;8;15 !4=1;1;4;4|kernel_shape=2;2 strides=2;2",
	"ai.graphcore.GroupNormalization": "2x4x3 4 4|num_groups=2", "ai.graphcore.ConvFlipWeights": "2x1x3", "ai.graphcore.Subsample": "4x3|strides=2;1",
	"ai.graphcore.Scale": "2x3|scale=2.0", "ai.graphcore.LSTM": "2x1x2 4x3x1 4x1 2x1x1 1=2",
	"ReduceSum": "2x3 !1=1", "ReduceMean": "2x3 !1=1", "ReduceMax": "2x3 !1=1", "ReduceMin": "2x3 !1=1", "ReduceProd": "2x3 !1=1", "ReduceL1": "2x3 !1=1", "ReduceL2": "2x3 !1=1",
	"ReduceLogSum": "2x3 !1=1", "ReduceLogSumExp": "2x3 !1=1", "ReduceSumSquare": "2x3 !1=1",
	"LSTM": "2x1x2 1x4x2=0.5;-1 1x4x1 1x8 1=2 1x1x1 1x1x1 1x3", "GRU": "2x1x2 1x3x2=0.5;-1 1x3x1 1x6 1=2 1x1x1", "RNN": "2x1x2 1x1x2=0.5;-1 1x1x1=0.5 1x2=0.25 1=2 1x1x1",
	"GatherElements": "2x3 2x3=1;0", "GatherND": "2x3 2x1=1;0", "Scatter": "2x3 1x3=1;0 1x3", "ScatterElements": "2x3 1x3=1;0 1x3", "ScatterND": "3x2 1x1=1 1x2",
	"OneHot": "3=0;2;1 !s=3 2=0;1", "ReverseSequence": "3x2 2=3;1", "TensorScatter": "1x4x2 1x1x2 1=2", "TopK": "2x3 !1=2", "TopK@1": "2x3|k=2",
	"CumSum": "2x3 !s=1", "CumProd": "2x3 !s=1", "TfIdfVectorizer": "4=1;2;3|mode=TF min_gram_length=1 max_gram_length=1 max_skip_count=0 ngram_counts=0 ngram_indexes=0;1 pool_int64s=2;3",
	"BitShift": "2x3 2x3=1|direction=LEFT", "BitCast": "", "Mod": "2x3 2x3=2;3|fmod=1", "Tile": "2x3 !2=1;2", "Tile@1": "2x3 !1=2 !1=1", "Trilu": "3x3 s=1", "EyeLike": "2x3",
	"QuantizeLinear": "2x3 s=2 s=1", "DequantizeLinear": "2x3 s=0.5 s=0", "DynamicQuantizeLinear": "2x3",
	"MatMulInteger": "2x3 3x2 s=1 s=2", "ConvInteger": "1x1x3x3 1x1x2x2 s=1 s=2", "QLinearMatMul": "2x3 s=0.5 s=1 3x2 s=0.5 s=2 s=0.25 s=3",
	"QLinearConv": "1x1x3x3 s=0.5 s=1 1x1x2x2 s=0.5 s=2 s=0.25 s=3 1", "Compress": "3x2 !3=1;0;1|axis=0", "NonZero": "!2x3=1;0;2", "Unique": "!4=2;1;2;1",
	"NonMaxSuppression": "!1x2x4=0;0;1;1;5;5;6;6 !1x1x2 !s=2 !s=0.5 !s=0", "Constant": "|value_ints=1;2", "ConstantOfShape": "!2=2;3", "Range": "!s=1 !s=5 !s=2",
	"Cast": "2x3|to=7", "Cast@1": "2x3|to=int32", "CastLike": "2x3=1;2;3 1", "If": "", "Loop": "", "Scan": "", "ai.onnx.preview.training.Gradient": "",
	"Not": "2x3=1;0", "PRelu@1": "2x3 3",
	"RandomNormal": "|shape=2;3", "RandomUniform": "|shape=2;3", "RandomNormalLike": "2x3|dtype=11", "RandomUniformLike": "2x3|dtype=11", "Bernoulli": "2x3=0.25;0.5;0.75", "Multinomial": "2x3|sample_size=4",
	"ai.onnx.preview.training.Adagrad": "s=0.5 s=2 2x3 2x3 2x3", "ai.onnx.preview.training.Adam": "s=0.5 s=2 2x3 2x3 2x3 2x3", "ai.onnx.preview.training.Momentum": "s=0.5 s=2 2x3 2x3 2x3|alpha=0.5 beta=0.25 mode=nesterov norm_coefficient=0.125",

	"ReduceSum@1": "2x3|axes=1", "ReduceMean@1": "2x3|axes=1", "ReduceMax@1": "2x3|axes=1", "ReduceMin@1": "2x3|axes=1", "ReduceProd@1": "2x3|axes=1", "ReduceL1@1": "2x3|axes=1", "ReduceL2@1": "2x3|axes=1",
	"ReduceLogSum@1": "2x3|axes=1", "ReduceLogSumExp@1": "2x3|axes=1", "ReduceSumSquare@1": "2x3|axes=1",
}

// typeSlot is what the operands of an operator have in common that have one
// type: a variable, or one operand by itself.
type typeSlot struct {
	name  string
	types []graph.DType
	at    []int // operands
}

func slotsOf(f *lower.Form, operands []string) []typeSlot {
	var slots []typeSlot
	byVariable := map[string]int{}
	for i, text := range operands {
		o := f.Operand(i)
		if o == nil || text == "-" {
			continue
		}
		if k, ok := byVariable[o.Variable]; ok && o.Variable != "" {
			slots[k].at = append(slots[k].at, i)
			continue
		}
		byVariable[o.Variable] = len(slots)
		slots = append(slots, typeSlot{o.Name, o.Types, []int{i}})
	}
	return slots
}

// usual returns the type that an operand has while another one's type varies.
func usual(types []graph.DType) graph.DType {
	for _, t := range []graph.DType{graph.F32, graph.I64, graph.I32, graph.U8} {
		if slices.Contains(types, t) {
			return t
		}
	}
	return types[0]
}

// TestTypes lowers and runs every form of every operator with every type that
// its definition claims. The results must be those of a wide type, rounded.
func TestTypes(t *testing.T) {
	tried := 0
	for _, c := range allTypeCases() {
		slots := slotsOf(c.form, c.operands)
		for k, slot := range slots {
			for _, typ := range slot.types {
				t.Run(fmt.Sprintf("%s-%d/%s %v", c.name, c.form.Version, slot.name, typ), func(t *testing.T) {
					c.check(t, slots, k, typ)
					tried++
				})
			}
		}
	}
	t.Logf("%d types of operands", tried)
}

// allTypeCases returns a case for each form of each operator, except for those
// of which TestTypesOfSubgraphs and TestBitCastTypes are.
func allTypeCases() (cases []typeCase) {
	for _, name := range slices.Sorted(maps.Keys(table.Operators)) {
		def := table.Operators[name]
		for i := range def.Forms {
			f := &def.Forms[i]
			if f.Lower == nil {
				continue
			}
			text, ok := typeCases[fmt.Sprintf("%s@%d", name, f.Version)]
			if !ok {
				text, ok = typeCases[name]
			}
			if !ok {
				text = strings.TrimSpace(strings.Repeat("2x3 ", len(f.Operands)))
			} else if text == "" {
				continue
			}
			operands, attrs, _ := strings.Cut(text, "|")
			c := typeCase{name: name, form: f, opset: int64(newestOpset), operands: strings.Fields(operands), attrs: attrs}
			if i+1 < len(def.Forms) {
				c.opset = def.Forms[i+1].Version - 1
			}
			cases = append(cases, c)
		}
	}
	return cases
}

// anyTypes are the types that an operand may have whose types are "any".
var anyTypes = lower.Takes("x:any").Operands[0].Types

// TestTypesOfSubgraphs carries values of every type into graphs and out of
// them.
func TestTypesOfSubgraphs(t *testing.T) {
	for _, typ := range anyTypes {
		t.Run(typ.String(), func(t *testing.T) {
			elem := onnx.ElemTypeOf(typ)
			x := tensor(elem, dims(2, 2), 0, 1, 1, 0)
			y := tensor(elem, dims(2, 2), 1, 0, 0, 0)
			pass := func(inputs ...onnx.ValueInfo) *onnx.Graph {
				out := names("cond_in", "v")
				return &onnx.Graph{Inputs: inputs, Nodes: []*onnx.Node{node("Identity", names("v"), names("w"))}, Outputs: outputs(append(out[:len(inputs)/3], "w", "v")...)}
			}
			branch := func(from string) *onnx.Graph {
				return &onnx.Graph{Nodes: []*onnx.Node{node("Identity", names(from), names("b"))}, Outputs: outputs("b")}
			}
			loop := pass(info("i", onnx.Int64), info("cond_in", onnx.Bool), info("v", elem, 2, 2))
			scan := &onnx.Graph{Inputs: []onnx.ValueInfo{info("v", elem, 2)}, Nodes: []*onnx.Node{node("Identity", names("v"), names("w"))}, Outputs: outputs("w")}
			m := model(newestOpset, &onnx.Graph{
				Inputs:       []onnx.ValueInfo{info("c", onnx.Bool), info("x", elem, 2, 2), info("y", elem, 2, 2)},
				Initializers: []*onnx.Tensor{named(i64s(dims(), 2), "n")},
				Nodes: []*onnx.Node{
					node("If", names("c"), names("if"), aGraph("then_branch", branch("x")), aGraph("else_branch", branch("y"))),
					node("Loop", names("n", "", "x"), names("carried", "collected"), aGraph("body", loop)),
					node("Scan", names("y"), names("scanned"), aGraph("body", scan), aInt("num_scan_inputs", 1)),
				},
				Outputs: outputs("if", "carried", "collected", "scanned"),
			})
			low := mustLower(t, m, onnx.Options{})
			out, err := interpret(low, map[string][]byte{"c": {1}, "x": x.Data, "y": y.Data})
			require.NoError(t, err)
			require.Equal(t, [][]byte{x.Data, x.Data, append(slices.Clone(x.Data), x.Data...), y.Data}, out)
			for _, p := range low.Outputs {
				require.Equal(t, elem, p.Elem)
			}
		})
	}
}

// TestBitCastTypes casts every type to every other of as many bits and back.
func TestBitCastTypes(t *testing.T) {
	n := 0
	for _, from := range anyTypes {
		for _, to := range anyTypes {
			if bits(from) != bits(to) || to == graph.Bool {
				continue
			}
			x := tensor(onnx.ElemTypeOf(from), dims(3), 1, 0, 1)
			m := model(newestOpset, &onnx.Graph{Inputs: []onnx.ValueInfo{info("x", x.Elem, 3)}, Outputs: outputs("y", "z"), Nodes: []*onnx.Node{
				node("BitCast", names("x"), names("y"), aInt("to", int64(onnx.ElemTypeOf(to)))), node("BitCast", names("y"), names("z"), aInt("to", int64(x.Elem)))}})
			low := mustLower(t, m, onnx.Options{})
			out, err := interpret(low, map[string][]byte{"x": x.Data})
			require.NoError(t, err)
			require.Equal(t, x.Data, out[1], "%v to %v", from, to)
			require.Equal(t, onnx.ElemTypeOf(to), low.Outputs[0].Elem)
			n++
		}
	}
	require.Greater(t, n, 60)
}

// TestNewerOpset lowers a model of an operator set that nobody knows yet: it is
// taken, and not without a word.
func TestNewerOpset(t *testing.T) {
	x := tensor(onnx.Float, dims(3), -1, 0, 1)
	for opset, warnings := range map[int64]int{newestOpset: 0, newestOpset + 1: 1} {
		low := mustLower(t, model(opset, &onnx.Graph{Inputs: []onnx.ValueInfo{info("x", x.Elem, 3)}, Outputs: outputs("y"),
			Nodes: []*onnx.Node{node("Relu", names("x"), names("y"))}}), onnx.Options{})
		require.Len(t, low.Warnings, warnings)
		for _, w := range low.Warnings {
			require.Contains(t, w, "operator set 29 is newer than 28")
		}
	}
}

// typeCase is one line of typeCases.
type typeCase struct {
	name, attrs string
	form        *lower.Form
	opset       int64
	operands    []string
}

// usual returns the types of the operands that the cases have most often.
func (c *typeCase) usual() []graph.DType {
	types := make([]graph.DType, len(c.operands))
	for _, s := range slotsOf(c.form, c.operands) {
		for _, i := range s.at {
			types[i] = usual(s.types)
		}
	}
	return types
}

// check runs the operator with slot k of type typ and compares it with itself
// computed in a wide type.
func (c *typeCase) check(t *testing.T, slots []typeSlot, k int, typ graph.DType) {
	set := func(to graph.DType) []graph.DType {
		types := c.usual()
		for _, i := range slots[k].at {
			types[i] = to
		}
		return types
	}
	tensors := c.tensors(t, set(typ))
	got := c.run(t, tensors)
	wide := graph.Invalid
	for _, w := range []graph.DType{graph.F64, graph.I64} {
		if slices.Contains(slots[k].types, w) && (w == graph.I64) == (typ.IsInteger() || typ == graph.Bool) {
			wide = w
		}
	}
	if wide == graph.Invalid || typ == graph.Bool && !slices.Contains(slots[k].types, graph.I4) {
		return // a bool means something else than the number
	}
	for _, i := range slots[k].at {
		tensors[i] = castTensor(t, tensors[i], wide)
	}
	want := c.run(t, tensors)
	require.Len(t, got, len(want))
	tolerance := map[graph.DType]float64{graph.F16: 1. / 1024, graph.BF16: 1. / 128, graph.F32: 1e-5}[typ]
	for i, w := range want {
		if w.Elem.DType() == wide && got[i].Elem.DType() == typ {
			w = castTensor(t, w, typ)
		}
		require.Equal(t, w.Type().String(), got[i].Type().String(), "result %d", i)
		a, b := numbers(w.Elem.DType(), w.Data), numbers(got[i].Elem.DType(), got[i].Data)
		for j := range a {
			if a[j] != b[j] && !(math.IsNaN(a[j]) && math.IsNaN(b[j])) {
				require.InDelta(t, a[j], b[j], tolerance*math.Abs(a[j])+1e-6, "element %d of result %d: got %v, want %v", j, i, b, a)
			}
		}
	}
}

// tensors makes the operands, nil for those that are left out.
func (c *typeCase) tensors(t testing.TB, types []graph.DType) []*onnx.Tensor {
	var out []*onnx.Tensor
	for i, text := range c.operands {
		if text == "-" {
			out = append(out, nil)
			continue
		}
		shape, values, given := strings.Cut(strings.TrimPrefix(text, "!"), "=")
		x := &onnx.Tensor{Elem: onnx.ElemTypeOf(types[i]), Dims: dims(), Data: []byte{}}
		if shape != "s" {
			x.Dims = numberList(t, strings.Split(shape, "x"))
		}
		if !given {
			values = "1;2;3;4;5"
			if types[i].IsFloat() && types[i].Size() > 1 {
				values = "1.1;2.3;0.7;4.9;3.3" // whose sums and products have to be rounded
			}
		}
		list := strings.Split(values, ";")
		for j := range x.Type().Elements() {
			v, err := strconv.ParseFloat(list[(j+2*int64(i))%int64(len(list))], 64)
			if given {
				v, err = strconv.ParseFloat(list[j%int64(len(list))], 64)
			}
			require.NoError(t, err)
			x.Data = append(x.Data, lower.EncodeFloat(types[i], v)...)
		}
		out = append(out, x)
	}
	return out
}

func numberList(t testing.TB, texts []string) []int64 {
	out := make([]int64, len(texts))
	for i, s := range texts {
		n, err := strconv.ParseInt(s, 10, 64)
		require.NoError(t, err)
		out[i] = n
	}
	return out
}

func castTensor(t *testing.T, x *onnx.Tensor, to graph.DType) *onnx.Tensor {
	_, out, err := cpu.Eval(&graph.Cast{To: to}, []graph.TensorType{x.Type()}, [][]byte{x.Data})
	require.NoError(t, err)
	return &onnx.Tensor{Elem: onnx.ElemTypeOf(to), Dims: x.Dims, Data: out[0]}
}

// model returns a model of the node and what its inputs are fed.
func (c *typeCase) model(t testing.TB, tensors []*onnx.Tensor) (*onnx.Model, map[string][]byte) {
	n := &onnx.Node{OpType: c.name, Outputs: names("y0", "y1", "y2", "y3")}
	if i := strings.LastIndexByte(c.name, '.'); i >= 0 {
		n.Domain, n.OpType = c.name[:i], c.name[i+1:]
	}
	g := &onnx.Graph{Nodes: []*onnx.Node{n}}
	feeds := map[string][]byte{}
	for i, x := range tensors {
		if x == nil {
			n.Inputs = append(n.Inputs, "")
			continue
		}
		name := fmt.Sprintf("x%d", i)
		n.Inputs = append(n.Inputs, name)
		if strings.HasPrefix(c.operands[i], "!") {
			g.Initializers = append(g.Initializers, named(x, name))
			continue
		}
		g.Inputs = append(g.Inputs, onnx.Declare(name, x.Elem, x.Dims))
		feeds[name] = x.Data
	}
	def := table.Operators[c.name]
	for _, text := range strings.Fields(c.attrs) {
		n.Attributes = append(n.Attributes, caseAttribute(t, def, text))
	}
	m := model(c.opset, g)
	m.Opsets = []onnx.Opset{{Domain: n.Domain, Version: 1}, {Domain: "", Version: c.opset}}
	return m, feeds
}

// run lowers and runs a model of the node and returns all its results.
func (c *typeCase) run(t *testing.T, tensors []*onnx.Tensor) []*onnx.Tensor {
	m, feeds := c.model(t, tensors)
	low := c.lower(t, m)
	outs, err := interpret(low, feeds)
	require.NoError(t, err)
	var results []*onnx.Tensor
	for i, b := range outs {
		typ := low.Executable.Tensors[low.Outputs[i].Tensor].Type
		results = append(results, &onnx.Tensor{Elem: low.Outputs[i].Elem, Dims: typ.Shape, Data: b})
	}
	return results
}

// lower gives the model's node as many results as it can have, and lowers it.
func (c *typeCase) lower(t testing.TB, m *onnx.Model) *onnx.Lowered {
	n := m.Graph.Nodes[0]
	for results := len(n.Outputs); ; results-- {
		n.Outputs = n.Outputs[:results]
		m.Graph.Outputs = outputs(n.Outputs...)
		low, err := Lower(m, onnx.Options{})
		if err == nil {
			return verified(t, low)
		}
		if results == 1 {
			require.NoError(t, err, c.name)
		}
	}
}

// caseAttribute makes an attribute of the type that some form of def says.
func caseAttribute(t testing.TB, def *lower.Definition, text string) *onnx.Attribute {
	name, value, _ := strings.Cut(text, "=")
	a := lower.Takes("").Since(1, nil, text).Forms[0].Attributes[0].Default
	for i := range def.Forms {
		known := def.Forms[i].Attribute(name)
		switch {
		case known == nil:
		case known.Type == onnx.AttrInts:
			return aInts(name, numberList(t, strings.Split(value, ";"))...)
		case known.Type == onnx.AttrFloats:
			a = &onnx.Attribute{Name: name, Type: onnx.AttrFloats}
			for _, s := range strings.Split(value, ";") {
				f, err := strconv.ParseFloat(s, 32)
				require.NoError(t, err)
				a.Floats = append(a.Floats, float32(f))
			}
			return a
		}
	}
	return a
}
