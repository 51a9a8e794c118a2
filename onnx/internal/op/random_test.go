package op

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/internal/lower"
)

// forms say, by operator, what operands and attributes make sense together. An
// operand is a type (f float, h float16, i int64, u uint8, b bool, n a list of int64
// known when lowering) and a letter for each dimension; equal letters are
// equal sizes. Attributes have their type and how many numbers they take.
// Operators without a form are elementwise.
var forms = map[string]string{
	"ConvTranspose": "fNCL fCMK fM|i1:strides i1:dilations i2:pads i1:output_padding i1:output_shape i:group s:auto_pad=SAME_UPPER",
	"DeformConv":    "fNCLL fMCKK fN2LL fM fN1LL|i2:strides i4:pads i:offset_group", "Col2Im": "fNCL n n|i1:strides i2:pads",
	"CausalConvWithState": "fNCL fC1K fC fNCK|s:activation=silu", "Resize": "fAB f0 f0 n|s:mode=linear s:mode=cubic i:antialias i:exclude_outside i2:axes",
	"GridSample": "fNCL fNK1|i:align_corners s:mode=nearest s:padding_mode=border", "AffineGrid": "fN23 n|i:align_corners",
	"LpPool": "fNCL|i1:kernel_shape i1:strides i2:pads i:p i:ceil_mode", "GlobalLpPool": "fNCL|i:p", "LpNormalization": "hAB|i:axis i:p",
	"InstanceNormalization": "fNCL fC fC|f:epsilon", "GroupNormalization": "fNCL fC fC|i:num_groups f:epsilon",
	"MeanVarianceNormalization": "hNCLL|i1:axes", "LRN": "fNCLL|i:size f:alpha f:beta", "Det": "fABB",
	"DepthToSpace": "fNCLL|i:blocksize s:mode=CRD", "SpaceToDepth": "fNCLL|i:blocksize", "CenterCropPad": "iAB n|i2:axes",
	"And": "bAB bB", "Or": "bAB bB", "Xor": "bAB bB", "Not": "bAB", "Where": "bAB fA1 fAB",
	"Equal": "iAB iA1", "Max": "fAB fB fA1", "Min": "iAB iB", "Sum": "fAB fAB", "Mean": "fAB fB fAB",
	"Clip": "fAB f f|f:min f:max", "LeakyRelu": "hAB|f:alpha", "Elu": "fAB|f:alpha", "HardSigmoid": "fAB|f:alpha f:beta",
	"Conv":              "fNCL fMCK fM|i1:strides i1:dilations i2:pads s:auto_pad=SAME_LOWER s:auto_pad=VALID",
	"MaxPool":           "fNCL|i1:kernel_shape i1:strides i1:dilations i2:pads i:ceil_mode i:storage_order s:auto_pad=SAME_UPPER",
	"AveragePool":       "fNCL|i1:kernel_shape i1:strides i1:dilations i2:pads i:ceil_mode i:count_include_pad s:auto_pad=SAME_LOWER",
	"GlobalMaxPool":     "fNCL",
	"GlobalAveragePool": "fNCL",
	"Gemm":              "fAB fBC fC|i:transA i:transB f:alpha f:beta", "MatMul": "fABC fCD",
	"BatchNormalization": "fNCL fC fC fC fC|f:epsilon i:training_mode", "LayerNormalization": "fABC fC fC|i:axis f:epsilon",
	"Softmax": "fABC|i:axis", "LogSoftmax": "hABC|i:axis",
	"LSTM":    "fSBI f1HI f1HR f1D|i:hidden_size s:direction=reverse f:clip i:input_forget",
	"Reshape": "fABC n|i:allowzero", "Flatten": "fABC|i:axis", "Squeeze": "fA1B n", "Unsqueeze": "fAB n", "Expand": "fA1 n",
	"Transpose": "fABC|i3:perm", "Concat": "fAB fAB fAB|i:axis", "Slice": "fABC n n n n", "Split": "fAB|i:axis i:num_outputs i2:split",
	"Pad": "fAB n f|s:mode=reflect s:mode=edge s:mode=wrap i4:pads f:value", "Gather": "fABC iAB|i:axis", "Dropout": "fAB|f:ratio",
	"Identity": "iAB", "Shape": "fABC|i:start i:end", "Size": "fABC", "Range": "i i i", "ConstantOfShape": "n",
	"Cast": "fAB|i:to", "CastLike": "fAB iA", "Constant": "|i:value_int f:value_float i3:value_ints",
	"ReduceSum": "fABC n|i:keepdims i:noop_with_empty_axes", "ReduceMax": "fABC n|i:keepdims", "ReduceMin": "bABC n|i:keepdims",
	"ReduceMean": "hABC|i:keepdims i1:axes", "ReduceProd": "fABC|i2:axes", "ReduceL1": "iABC", "ReduceL2": "fABC|i2:axes",
	"ReduceLogSum": "fABC|i1:axes", "ReduceLogSumExp": "fABC n", "ReduceSumSquare": "iABC n", "If": "b",
	"Attention":       "fBHQS fBHKS fBHKV bQK fBHPS fBHPV iB|i:is_causal i:qk_matmul_output_mode f:scale f:softcap i:q_num_heads i:kv_num_heads i:softmax_precision",
	"LinearAttention": "fBTD fBTD fBTD fBHSS fBTH fBTH|i:q_num_heads i:kv_num_heads s:update_rule=linear s:update_rule=gated f:scale",
	"RotaryEmbedding": "fBHTS fTR fTR iBT|i:interleaved i:num_heads i:rotary_embedding_dim", "RMSNormalization": "fABC fC|i:axis f:epsilon i:stash_type",
	"DFT": "fBL1 i i|i:axis i:inverse i:onesided", "STFT": "fBL1 i fW i|i:onesided", "HannWindow": "i|i:periodic i:output_datatype", "HammingWindow": "i|i:periodic", "BlackmanWindow": "i|i:periodic",
	"MelWeightMatrix": "i i i f f", "NegativeLogLikelihoodLoss": "fNCL iNL fC|i:ignore_index s:reduction=none s:reduction=sum", "SoftmaxCrossEntropyLoss": "fNC iN fC|i:ignore_index s:reduction=none",
	"GRU": "fSBI f1GI f1GR f1D iB f1BR|i:hidden_size s:direction=reverse f:clip i:linear_before_reset", "RNN": "fSBI f1RI f1RR f1D iB f1BR|i:hidden_size s:direction=reverse f:clip",
	"MaxRoiPool": "fNCHW fR5|i2:pooled_shape f:spatial_scale", "RoiAlign": "fNCHW fR4 iR|i:output_height i:output_width i:sampling_ratio f:spatial_scale s:mode=max",
	"MaxUnpool": "fNCL iNCL n|i1:kernel_shape i1:strides i2:pads", "SwiGLU": "fAB fAB|f:alpha", "PRelu": "fAB fB", "Gelu": "hAB|s:approximate=tanh",
}

// TestRandomNodes lowers nodes with random operands and attributes. What makes
// no sense must be refused without a panic, and what is lowered must be a
// valid executable that gives the same results if its operands are known.
func TestRandomNodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { randomNode(t) })
}

// TestFormsMakeSense wants that the nodes that TestRandomNodes draws are lowered
// often enough to say something, of the same nodes each time.
func TestFormsMakeSense(t *testing.T) {
	drawn, lowered := rapid.Custom(randomNode), map[string]bool{}
	for seed := range 2000 {
		if n := drawn.Example(seed); n != "" {
			lowered[n] = true
		}
	}
	t.Logf("%d of %d operators", len(lowered), len(table.Operators))
	require.Greater(t, 2*len(lowered), len(table.Operators), "the forms must make sense for most operators")
}

func FuzzRandomNodes(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) { randomNode(t) }))
}

// randomNode lowers one node and returns its operator if that succeeded.
func randomNode(t *rapid.T) string {
	n := &onnx.Node{OpType: rapid.SampledFrom(slices.Sorted(maps.Keys(table.Operators))).Draw(t, "op"), Name: "n"}
	g := &onnx.Graph{Nodes: []*onnx.Node{n}}
	feeds := map[string][]byte{}
	bound := map[string]*onnx.Tensor{}
	form, ok := forms[n.OpType]
	if !ok {
		form = "fAB"
		if _, binary := binaryNames[n.OpType]; binary {
			form = "fAB fB"
		}
	}
	operands, attributes, _ := strings.Cut(form, "|")
	sizes := map[rune]int64{'1': 1}
	for i, f := range strings.Fields(operands) {
		if i > 0 && rapid.IntRange(0, 7).Draw(t, "leave out") == 0 {
			n.Inputs = append(n.Inputs, "")
			continue
		}
		x := randomOperand(t, f, sizes)
		name := fmt.Sprint("x", i)
		n.Inputs = append(n.Inputs, name)
		if f == "n" || f == "i" || rapid.IntRange(0, 3).Draw(t, "known") == 0 {
			g.Initializers = append(g.Initializers, named(x, name))
			continue
		}
		g.Inputs = append(g.Inputs, onnx.Declare(name, x.Elem, x.Dims))
		feeds[name], bound[name] = x.Data, x
	}
	for i := range rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, "results") {
		n.Outputs = append(n.Outputs, fmt.Sprint("y", i))
	}
	for _, a := range strings.Fields(attributes) {
		if rapid.IntRange(0, 2).Draw(t, a) == 0 {
			n.Attributes = append(n.Attributes, randomAttribute(t, a))
		}
	}
	g.Outputs = outputs(n.Outputs...)
	m := model(rapid.OneOf(rapid.Int64Range(1, newestOpset), rapid.Just[int64](13), rapid.Just[int64](newestOpset)).Draw(t, "opset"), g)

	low, err := Lower(m, onnx.Options{})
	if err != nil {
		require.NotContains(t, err.Error(), "%!")
		return ""
	}
	checkValid(t, low)
	for _, x := range low.Executable.Tensors {
		if x.Type.Bytes() > 1<<16 {
			return n.OpType // would take too long to run
		}
	}
	types, outs, err := sized(low, feeds)
	if err != nil {
		require.Regexp(t, "Gather|Scatter|MaxUnpool|Roi|RNN|GRU|LSTM|Attention", err.Error(), "only data may be refused at run time")
		return n.OpType
	}
	folded, err := Lower(m, onnx.Options{Values: bound})
	require.NoError(t, err)
	got, err := interpret(folded, nil)
	require.NoError(t, err)
	for i, p := range folded.Outputs {
		typ := folded.Executable.Tensors[p.Tensor].Type
		require.Equal(t, types[i].String(), typ.String())
		require.Equal(t, outs[i], got[i], "result %d of %s", i, n.OpType)
	}
	return n.OpType
}

// binaryNames are the operators of two operands whose form is not in forms.
var binaryNames = map[string]struct{}{
	"Add": {}, "Sub": {}, "Mul": {}, "Div": {}, "Pow": {}, "Less": {}, "LessOrEqual": {}, "Greater": {}, "GreaterOrEqual": {},
}

// randomOperand returns an operand of the given form, or now and then of
// another type or shape.
func randomOperand(t *rapid.T, form string, sizes map[rune]int64) *onnx.Tensor {
	elem := map[byte]onnx.ElemType{'f': onnx.Float, 'h': onnx.Float16, 'i': onnx.Int64, 'b': onnx.Bool, 'n': onnx.Int64, 'u': onnx.Uint8}[form[0]]
	x := &onnx.Tensor{Elem: elem, Data: []byte{}}
	size := rapid.SampledFrom([]int64{0, 1, 2, 2, 3, 4, 4})
	for _, r := range form[1:] {
		if _, ok := sizes[r]; !ok {
			sizes[r] = size.Draw(t, string(r))
		}
		x.Dims = append(x.Dims, sizes[r])
	}
	if form == "n" {
		x.Dims = dims(size.Draw(t, "count"))
	}
	switch rapid.IntRange(0, 20).Draw(t, "odd") {
	case 0:
		x.Elem = rapid.SampledFrom([]onnx.ElemType{onnx.Int32, onnx.Double, onnx.Uint8, onnx.Bool, onnx.BFloat16, onnx.Int64}).Draw(t, "type")
	case 1:
		x.Dims = rapid.SliceOfN(size, 0, 4).Draw(t, "shape")
	}
	number := rapid.Int64Range(-2, 4)
	if rapid.IntRange(0, 9).Draw(t, "wild") == 0 {
		number = rapid.SampledFrom([]int64{math.MinInt64, math.MaxInt64, 1 << 40, -1, 0, 1})
	}
	for range x.Type().Elements() {
		v := number.Draw(t, "element")
		if x.Elem == onnx.Int64 {
			x.Data = append(x.Data, lower.KnownInts(v).Data...)
		} else {
			x.Data = append(x.Data, lower.EncodeFloat(x.Elem.DType(), float64(v))...)
		}
	}
	return x
}

func randomAttribute(t *rapid.T, form string) *onnx.Attribute {
	kind, name, _ := strings.Cut(form, ":")
	number := rapid.OneOf(rapid.Int64Range(1, 2), rapid.Int64Range(0, 1), rapid.Int64Range(-2, 12))
	if rapid.IntRange(0, 15).Draw(t, "wild") == 0 {
		number = rapid.SampledFrom([]int64{math.MinInt64, math.MaxInt64, math.MaxInt32})
	}
	switch {
	case kind == "i":
		return aInt(name, number.Draw(t, "value"))
	case kind == "f":
		return aFloat(name, rapid.Float32Range(-3, 3).Draw(t, "value"))
	case kind == "s":
		name, value, _ := strings.Cut(name, "=")
		return aStr(name, value)
	}
	return aInts(name, rapid.SliceOfN(number, int(kind[1]-'0'), int(kind[1]-'0')).Draw(t, "values")...)
}
