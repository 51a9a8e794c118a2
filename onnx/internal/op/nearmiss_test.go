package op

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
)

// Near misses of the lowering: for what it assumes of an attribute, an operand or
// a version, a node for which the next best assumption gives other numbers. Each
// is computed with inputs at run time and folded, and compared with what the
// definition in ONNX's documentation says, written out here on its own.

// slide calls f for each window over a line of n elements with the places of the
// kernel's elements, outside of the line too.
func slide(n, kernel, stride, dilation, begin, results int, f func(at []int)) {
	for o := range results {
		var at []int
		for k := range kernel {
			at = append(at, o*stride+k*dilation-begin)
		}
		f(at)
	}
}

// same returns the padding before and the results of SAME_UPPER and SAME_LOWER.
func same(n, kernel, stride, dilation int, lower bool) (begin, results int) {
	results = (n + stride - 1) / stride
	all := max(0, (results-1)*stride+(kernel-1)*dilation+1-n)
	if begin = all / 2; lower {
		begin = all - all/2
	}
	return begin, results
}

func TestNearMissesOfPadding(t *testing.T) {
	x := []float64{1, 2, 4, 8, 16, 32, 64, -128}
	w := []float64{1, 3, -5}
	inside := func(i int) bool { return i >= 0 && i < len(x) }
	var cases []opCase
	for _, lower := range []bool{false, true} {
		auto := aStr("auto_pad", map[bool]string{false: "SAME_UPPER", true: "SAME_LOWER"}[lower])
		for stride := 1; stride <= 3; stride++ {
			for dilation := 1; dilation <= 3; dilation++ {
				for kernel := 1; kernel <= 3; kernel++ {
					begin, results := same(len(x), kernel, stride, dilation, lower)
					var conv, most, mean, meanOfAll []float64
					slide(len(x), kernel, stride, dilation, begin, results, func(at []int) {
						sum, most1, added, n := 0.0, math.Inf(-1), 0.0, 0.0
						for k, i := range at {
							if inside(i) {
								sum += w[k] * x[i]
								most1, added, n = max(most1, x[i]), added+x[i], n+1
							}
						}
						conv, most = append(conv, sum), append(most, most1)
						mean, meanOfAll = append(mean, added/n), append(meanOfAll, added/float64(kernel))
					})
					attrs := []*onnx.Attribute{auto, aInts("strides", int64(stride)), aInts("dilations", int64(dilation))}
					window := append([]*onnx.Attribute{aInts("kernel_shape", int64(kernel))}, attrs...)
					line := f32s(dims(1, 1, int64(len(x))), x...)
					want := func(v []float64) []*onnx.Tensor { return []*onnx.Tensor{f32s(dims(1, 1, int64(len(v))), v...)} }
					name := func(op string) string {
						return fmt.Sprintf("%s %s s%d d%d k%d", op, auto.String, stride, dilation, kernel)
					}
					cases = append(cases,
						opCase{op: "Conv", name: name("Conv"), opset: 11, attrs: attrs, fixed: []int{1}, in: []*onnx.Tensor{line, f32s(dims(1, 1, int64(kernel)), w[:kernel]...)}, want: want(conv)},
						opCase{op: "MaxPool", name: name("MaxPool"), opset: 12, attrs: window, in: []*onnx.Tensor{line}, want: want(most)},
						opCase{op: "AveragePool", name: name("AveragePool"), opset: 19, attrs: window, in: []*onnx.Tensor{line}, want: want(mean)})
					if last := (results-1)*stride - begin + (kernel-1)*dilation; last < len(x)+begin+1 {
						cases = append(cases, opCase{op: "AveragePool", name: name("AveragePool with padding"), opset: 19, attrs: append(window[:len(window):len(window)], aInt("count_include_pad", 1)),
							in: []*onnx.Tensor{line}, want: want(meanOfAll)})
					}
				}
			}
		}
	}
	runCases(t, cases)
}

func TestNearMissesOfAttributes(t *testing.T) {
	three := f32s(dims(2, 3), 1, 2, 3, 4, 5, 6)
	square := f32s(dims(2, 2), 1, 2, 3, 5)
	flat := f32s(dims(2, 2, 2), 0, 0, 0, math.Log(3), 0, 0, 0, 0)
	f := f32s
	signs := f(dims(3), -2, 0, 3)
	runCases(t, []opCase{
		// Softmax: over all axes from 1 on before version 13, over the last since.
		{op: "Softmax", name: "Softmax flat by default", opset: 11, in: []*onnx.Tensor{flat}, want: []*onnx.Tensor{f(dims(2, 2, 2), 1./6, 1./6, 1./6, 0.5, 0.25, 0.25, 0.25, 0.25)}},
		{op: "Softmax", name: "Softmax of the last axis by default", opset: 13, in: []*onnx.Tensor{flat}, want: []*onnx.Tensor{f(dims(2, 2, 2), 0.5, 0.5, 0.25, 0.75, 0.5, 0.5, 0.5, 0.5)}},
		{op: "Softmax", name: "Softmax of axis 0, flat", opset: 11, attrs: []*onnx.Attribute{aInt("axis", 0)}, in: []*onnx.Tensor{f(dims(2, 1), 0, math.Log(3))}, want: []*onnx.Tensor{f(dims(2, 1), 0.25, 0.75)}},
		{op: "Softmax", name: "Softmax of axis 0", opset: 13, attrs: []*onnx.Attribute{aInt("axis", 0)}, in: []*onnx.Tensor{f(dims(2, 2), 0, 0, math.Log(3), 0)}, want: []*onnx.Tensor{f(dims(2, 2), 0.25, 0.5, 0.75, 0.5)}},
		// Gemm: each attribute by itself.
		{op: "Gemm", name: "Gemm α", opset: 13, attrs: []*onnx.Attribute{aFloat("alpha", 2)}, in: []*onnx.Tensor{square, square, f(dims(2), 1, 2)}, want: []*onnx.Tensor{f(dims(2, 2), 15, 26, 37, 64)}},
		{op: "Gemm", name: "Gemm β", opset: 13, attrs: []*onnx.Attribute{aFloat("beta", 2)}, in: []*onnx.Tensor{square, square, f(dims(2), 1, 2)}, want: []*onnx.Tensor{f(dims(2, 2), 9, 16, 20, 35)}},
		{op: "Gemm", name: "Gemm C of rows", opset: 13, in: []*onnx.Tensor{square, square, f(dims(2, 1), 1, 2)}, want: []*onnx.Tensor{f(dims(2, 2), 8, 13, 20, 33)}},
		{op: "Gemm", name: "Gemm transposed A", opset: 13, attrs: []*onnx.Attribute{aInt("transA", 1)}, in: []*onnx.Tensor{square, square}, want: []*onnx.Tensor{f(dims(2, 2), 10, 17, 17, 29)}},
		{op: "Gemm", name: "Gemm transposed B", opset: 13, attrs: []*onnx.Attribute{aInt("transB", 1)}, in: []*onnx.Tensor{square, square}, want: []*onnx.Tensor{f(dims(2, 2), 5, 13, 13, 34)}},
		// Reductions.
		{op: "ReduceSum", name: "ReduceSum of an axis from the end", opset: 11, attrs: []*onnx.Attribute{aInts("axes", -2), aInt("keepdims", 0)}, in: []*onnx.Tensor{three}, want: []*onnx.Tensor{f(dims(3), 5, 7, 9)}},
		{op: "ReduceSum", name: "ReduceSum keeps by default", opset: 11, attrs: []*onnx.Attribute{aInts("axes", 1)}, in: []*onnx.Tensor{three}, want: []*onnx.Tensor{f(dims(2, 1), 6, 15)}},
		{op: "ReduceSum", name: "ReduceSum of all without axes", opset: 13, in: []*onnx.Tensor{three}, want: []*onnx.Tensor{f(dims(1, 1), 21)}},
		{op: "ReduceSum", name: "ReduceSum of none without axes", opset: 13, attrs: []*onnx.Attribute{aInt("noop_with_empty_axes", 1)}, in: []*onnx.Tensor{three}, want: []*onnx.Tensor{three}},
		{op: "ReduceSum", name: "ReduceSum of two axes", opset: 13, attrs: []*onnx.Attribute{aInt("keepdims", 0)}, fixed: []int{1}, in: []*onnx.Tensor{f(dims(2, 2, 2), 1, 2, 4, 8, 16, 32, 64, 128), list1(0, 2)}, want: []*onnx.Tensor{f(dims(2), 51, 204)}},
		{op: "ReduceL1", opset: 13, attrs: []*onnx.Attribute{aInt("keepdims", 0)}, in: []*onnx.Tensor{signs}, want: []*onnx.Tensor{f(nil, 5)}},
		{op: "ReduceL2", opset: 13, attrs: []*onnx.Attribute{aInt("keepdims", 0)}, in: []*onnx.Tensor{f(dims(2), -3, 4)}, want: []*onnx.Tensor{f(nil, 5)}},
		{op: "ReduceSumSquare", opset: 13, attrs: []*onnx.Attribute{aInt("keepdims", 0)}, in: []*onnx.Tensor{signs}, want: []*onnx.Tensor{f(nil, 13)}},
		{op: "ReduceMean", opset: 13, attrs: []*onnx.Attribute{aInt("keepdims", 0)}, in: []*onnx.Tensor{signs}, want: []*onnx.Tensor{f(nil, 1./3)}},
		{op: "ReduceProd", opset: 13, attrs: []*onnx.Attribute{aInt("keepdims", 0)}, in: []*onnx.Tensor{f(dims(3), 2, 3, -4)}, want: []*onnx.Tensor{f(nil, -24)}},
		// Defaults of activations.
		{op: "LeakyRelu", opset: 16, in: []*onnx.Tensor{signs}, want: []*onnx.Tensor{f(dims(3), -0.02, 0, 3)}},
		{op: "Elu", name: "Elu α", opset: 6, attrs: []*onnx.Attribute{aFloat("alpha", 2)}, in: []*onnx.Tensor{signs}, want: []*onnx.Tensor{f(dims(3), 2*math.Expm1(-2), 0, 3)}},
		{op: "HardSigmoid", opset: 6, in: []*onnx.Tensor{signs}, want: []*onnx.Tensor{f(dims(3), 0.1, 0.5, 1)}},
		{op: "Selu", opset: 6, in: []*onnx.Tensor{signs}, want: []*onnx.Tensor{f(dims(3), 1.0507010221481323*1.6732631921768188*math.Expm1(-2), 0, 3*1.0507010221481323)}},
		{op: "ThresholdedRelu", opset: 10, in: []*onnx.Tensor{f(dims(3), 0.5, 1, 3)}, want: []*onnx.Tensor{f(dims(3), 0, 0, 3)}},
		{op: "Gelu", name: "Gelu exact", opset: 20, in: []*onnx.Tensor{signs}, want: []*onnx.Tensor{f(dims(3), -(1 + math.Erf(-2/math.Sqrt2)), 0, 1.5*(1+math.Erf(3/math.Sqrt2)))}},
		{op: "Gelu", name: "Gelu by tanh", opset: 20, attrs: []*onnx.Attribute{aStr("approximate", "tanh")}, in: []*onnx.Tensor{f(dims(1), 1)}, want: []*onnx.Tensor{f(dims(1), 0.5*(1+math.Tanh(math.Sqrt(2/math.Pi)*1.044715)))}},
		{op: "PRelu", name: "PRelu by channel", opset: 6, fixed: []int{1}, in: []*onnx.Tensor{f(dims(1, 2, 2), -1, -1, -1, -1), list32(2, 3)}, want: []*onnx.Tensor{f(dims(1, 2, 2), -2, -2, -3, -3)}},
		{op: "PRelu", name: "PRelu by column", opset: 7, fixed: []int{1}, in: []*onnx.Tensor{f(dims(1, 2, 2), -1, -1, -1, -1), list32(2, 3)}, want: []*onnx.Tensor{f(dims(1, 2, 2), -2, -3, -2, -3)}},
		{op: "Clip", name: "Clip from below", opset: 6, attrs: []*onnx.Attribute{aFloat("min", -1)}, in: []*onnx.Tensor{signs}, want: []*onnx.Tensor{f(dims(3), -1, 0, 3)}},
		{op: "Clip", name: "Clip from above", opset: 11, fixed: []int{2}, in: []*onnx.Tensor{signs, nil, f(nil, 1)}, want: []*onnx.Tensor{f(dims(3), -2, 0, 1)}},
		// Broadcasting before version 7 goes by attribute axis.
		{op: "Add", name: "Add along axis 0", opset: 6, attrs: []*onnx.Attribute{aInt("axis", 0), aInt("broadcast", 1)}, fixed: []int{1}, in: []*onnx.Tensor{square, list32(10, 20)}, want: []*onnx.Tensor{f(dims(2, 2), 11, 12, 23, 25)}},
		{op: "Add", name: "Add along the last axis", opset: 7, fixed: []int{1}, in: []*onnx.Tensor{square, list32(10, 20)}, want: []*onnx.Tensor{f(dims(2, 2), 11, 22, 13, 25)}},
		{op: "Sub", opset: 14, in: []*onnx.Tensor{square, square}, want: []*onnx.Tensor{f(dims(2, 2), 0, 0, 0, 0)}},
		{op: "Div", name: "Div of integers", opset: 14, in: []*onnx.Tensor{list1(7, -7, 7), list1(2, 2, -2)}, want: []*onnx.Tensor{list1(3, -3, -3)}},
		{op: "Mean", opset: 13, in: []*onnx.Tensor{list32(1, 2), list32(3, 6), list32(5, 1)}, want: []*onnx.Tensor{list32(3, 3)}},
		// Parts and moves.
		{op: "Slice", name: "Slice backwards", opset: 13, fixed: []int{1, 2, 3, 4}, in: []*onnx.Tensor{list32(0, 1, 2, 3, 4), list1(-1), list1(math.MinInt32), list1(0), list1(-2)}, want: []*onnx.Tensor{list32(4, 2, 0)}},
		{op: "Slice", name: "Slice up to the last", opset: 13, fixed: []int{1, 2}, in: []*onnx.Tensor{list32(0, 1, 2, 3, 4), list1(1), list1(-1)}, want: []*onnx.Tensor{list32(1, 2, 3)}},
		{op: "Slice", name: "Slice beyond the end", opset: 13, fixed: []int{1, 2, 3, 4}, in: []*onnx.Tensor{list32(0, 1, 2, 3, 4), list1(1), list1(math.MaxInt32), list1(-1), list1(2)}, want: []*onnx.Tensor{list32(1, 3)}},
		{op: "Slice", name: "Slice of an odd number", opset: 13, fixed: []int{1, 2, 3, 4}, in: []*onnx.Tensor{list32(0, 1, 2, 3, 4), list1(0), list1(5), list1(0), list1(2)}, want: []*onnx.Tensor{list32(0, 2, 4)}},
		{op: "Split", name: "Split unevenly", opset: 18, attrs: []*onnx.Attribute{aInt("num_outputs", 2)}, in: []*onnx.Tensor{list32(0, 1, 2, 3, 4)}, want: []*onnx.Tensor{list32(0, 1, 2), list32(3, 4)}},
		{op: "Pad", name: "Pad of two axes", opset: 13, fixed: []int{1, 2}, in: []*onnx.Tensor{square, list1(1, 2, 0, 0), f(nil, 9)}, want: []*onnx.Tensor{f(dims(3, 4), 9, 9, 9, 9, 9, 9, 1, 2, 9, 9, 3, 5)}},
		{op: "Pad", name: "Pad of one axis", opset: 18, fixed: []int{1, 2, 3}, in: []*onnx.Tensor{square, list1(1, 0), f(nil, 9), list1(-1)}, want: []*onnx.Tensor{f(dims(2, 3), 9, 1, 2, 9, 3, 5)}},
		{op: "Pad", name: "Pad by reflection", opset: 13, attrs: []*onnx.Attribute{aStr("mode", "reflect")}, fixed: []int{1}, in: []*onnx.Tensor{list32(1, 2, 3), list1(2, 1)}, want: []*onnx.Tensor{list32(3, 2, 1, 2, 3, 2)}},
		{op: "Pad", name: "Pad by edges", opset: 13, attrs: []*onnx.Attribute{aStr("mode", "edge")}, fixed: []int{1}, in: []*onnx.Tensor{list32(1, 2, 3), list1(2, 1)}, want: []*onnx.Tensor{list32(1, 1, 1, 2, 3, 3)}},
		{op: "Transpose", name: "Transpose by default", opset: 13, in: []*onnx.Tensor{f(dims(1, 2, 2), 1, 2, 3, 4)}, want: []*onnx.Tensor{f(dims(2, 2, 1), 1, 3, 2, 4)}},
		{op: "Transpose", opset: 13, attrs: []*onnx.Attribute{aInts("perm", 1, 2, 0)}, in: []*onnx.Tensor{f(dims(1, 2, 3), 1, 2, 3, 4, 5, 6)}, want: []*onnx.Tensor{f(dims(2, 3, 1), 1, 2, 3, 4, 5, 6)}},
		{op: "Gather", name: "Gather from the end", opset: 13, attrs: []*onnx.Attribute{aInt("axis", 1)}, in: []*onnx.Tensor{three, list1(-1, 0)}, want: []*onnx.Tensor{f(dims(2, 2), 3, 1, 6, 4)}},
		{op: "Flatten", name: "Flatten by default", opset: 13, in: []*onnx.Tensor{f(dims(2, 1, 2), 1, 2, 3, 4)}, want: []*onnx.Tensor{f(dims(2, 2), 1, 2, 3, 4)}},
		{op: "Flatten", name: "Flatten all", opset: 13, attrs: []*onnx.Attribute{aInt("axis", 0)}, in: []*onnx.Tensor{f(dims(2, 2), 1, 2, 3, 4)}, want: []*onnx.Tensor{f(dims(1, 4), 1, 2, 3, 4)}},
		{op: "Reshape", name: "Reshape with a copied size", opset: 13, fixed: []int{1}, in: []*onnx.Tensor{three, list1(0, -1, 1)}, want: []*onnx.Tensor{f(dims(2, 3, 1), 1, 2, 3, 4, 5, 6)}},
		// Normalisation.
		{op: "BatchNormalization", name: "BatchNormalization ε", opset: 15, attrs: []*onnx.Attribute{aFloat("epsilon", 3)}, fixed: []int{1, 2, 3, 4},
			in:   []*onnx.Tensor{f(dims(1, 2, 1), 3, 5), list32(2, 4), list32(1, 10), list32(1, 1), list32(1, 13)},
			want: []*onnx.Tensor{f(dims(1, 2, 1), 3, 14)}},
		{op: "LayerNormalization", name: "LayerNormalization of two axes", opset: 17, attrs: []*onnx.Attribute{aInt("axis", 0), aFloat("epsilon", 0.75)}, in: []*onnx.Tensor{f(dims(2, 2), 1, 1, 2, 2), f(dims(2, 2), 1, 2, 3, 4)},
			want: []*onnx.Tensor{f(dims(2, 2), -0.5, -1, 1.5, 2)}},
		// Quantisation.
		{op: "QuantizeLinear", name: "QuantizeLinear by default", opset: 13, fixed: []int{1}, in: []*onnx.Tensor{f(dims(4), -1, 0.5, 1.5, 300), f(nil, 1)}, want: []*onnx.Tensor{tensor(onnx.Uint8, dims(4), 0, 0, 2, 255)}},
		{op: "QuantizeLinear", name: "QuantizeLinear to signed", opset: 13, fixed: []int{1, 2}, in: []*onnx.Tensor{f(dims(4), -1, 2.5, 3.5, 300), f(nil, 1), tensor(onnx.Int8, nil, -3)}, want: []*onnx.Tensor{tensor(onnx.Int8, dims(4), -4, -1, 1, 127)}},
		{op: "QuantizeLinear", name: "QuantizeLinear by axis 0", opset: 13, attrs: []*onnx.Attribute{aInt("axis", 0)}, fixed: []int{1, 2}, in: []*onnx.Tensor{f(dims(2, 2), 2, 4, 2, 4), list32(1, 2), tensor(onnx.Uint8, dims(2), 1, 0)},
			want: []*onnx.Tensor{tensor(onnx.Uint8, dims(2, 2), 3, 5, 1, 2)}},
		{op: "DequantizeLinear", name: "DequantizeLinear by axis 1", opset: 13, in: []*onnx.Tensor{tensor(onnx.Int8, dims(2, 2), 1, 2, 3, 4), list32(1, 10), tensor(onnx.Int8, dims(2), 1, 0)}, want: []*onnx.Tensor{f(dims(2, 2), 0, 20, 2, 40)}},
		{op: "DequantizeLinear", name: "DequantizeLinear by axis 0", opset: 13, attrs: []*onnx.Attribute{aInt("axis", -2)}, in: []*onnx.Tensor{tensor(onnx.Int8, dims(2, 2), 1, 2, 3, 4), list32(1, 10), tensor(onnx.Int8, dims(2), 1, 0)},
			want: []*onnx.Tensor{f(dims(2, 2), 0, 1, 30, 40)}},
		{op: "DynamicQuantizeLinear", name: "DynamicQuantizeLinear below 0", opset: 11, in: []*onnx.Tensor{f(dims(2), -2.55, -1)}, want: []*onnx.Tensor{tensor(onnx.Uint8, dims(2), 0, 155), f(nil, 0.01), tensor(onnx.Uint8, nil, 255)}},
		{op: "DynamicQuantizeLinear", name: "DynamicQuantizeLinear above 0", opset: 11, in: []*onnx.Tensor{f(dims(2), 1, 2.55)}, want: []*onnx.Tensor{tensor(onnx.Uint8, dims(2), 100, 255), f(nil, 0.01), tensor(onnx.Uint8, nil, 0)}},
		{op: "DynamicQuantizeLinear", name: "DynamicQuantizeLinear rounds its zero", opset: 11, in: []*onnx.Tensor{f(dims(2), -1, 0.35)}, want: []*onnx.Tensor{tensor(onnx.Uint8, dims(2), 0, 255), f(nil, 1.35/255), tensor(onnx.Uint8, nil, 189)}},
		{op: "DynamicQuantizeLinear", opset: 11, in: []*onnx.Tensor{f(dims(3), -1, 0, 1.55)}, want: []*onnx.Tensor{tensor(onnx.Uint8, dims(3), 0, 100, 255), f(nil, 0.01), tensor(onnx.Uint8, nil, 100)}},
	})
}

// TestNearMissesOfIf has branches that give constants which are equal, differ, or
// look alike.
func TestNearMissesOfIf(t *testing.T) {
	for name, c := range map[string]struct {
		then, otherwise *onnx.Tensor
		constant        bool
	}{
		"equal":         {list1(7), list1(7), true},
		"different":     {list1(7), list1(8), false},
		"a zero's sign": {list32(0), list32(math.Copysign(0, -1)), false},
		"last element":  {list1(1, 2, 3), list1(1, 2, 4), false},
	} {
		t.Run(name, func(t *testing.T) {
			arm := func(v *onnx.Tensor) *onnx.Graph {
				return &onnx.Graph{Nodes: []*onnx.Node{node("Constant", nil, names("k"), aTensor("value", v))}, Outputs: outputs("k")}
			}
			m := model(13, &onnx.Graph{
				Inputs:  []onnx.ValueInfo{info("flag", onnx.Bool)},
				Nodes:   []*onnx.Node{node("If", names("flag"), names("y"), aGraph("then_branch", arm(c.then)), aGraph("else_branch", arm(c.otherwise)))},
				Outputs: outputs("y"),
			})
			for flag, want := range []*onnx.Tensor{c.otherwise, c.then} {
				low, outs := results(t, m, onnx.Options{}, map[string][]byte{"flag": {byte(flag)}})
				require.Equal(t, numbers(want.Elem.DType(), want.Data), outs[0])
				if want.Elem == onnx.Float {
					require.Equal(t, math.Signbit(numbers(graph.F32, want.Data)[0]), math.Signbit(outs[0][0]))
				}
				require.Equal(t, c.constant, low.Executable.Tensors[low.Outputs[0].Tensor].Const)
			}
		})
	}
}

// TestNearMissesOfRecurrences goes through a sequence of two steps forwards,
// backwards and both ways, with each gate's weights of its own.
func TestNearMissesOfRecurrences(t *testing.T) {
	x := []float64{0.5, -1}
	sigmoid := func(v float64) float64 { return 1 / (1 + math.Exp(-v)) }
	steps := func(reverse bool, step func(x float64)) {
		for i := range x {
			if reverse {
				i = len(x) - 1 - i
			}
			step(x[i])
		}
	}
	// i, o, f, c with weights 0.1 … 0.4, recurrent ones 0.5 … 0.8, biases of either.
	lstm := func(reverse bool) (h, c float64) {
		gate := func(k int, x float64) float64 {
			return 0.1*float64(k+1)*x + (0.5+0.1*float64(k))*h + 0.01*float64(k+1) + 0.02*float64(k+1)
		}
		steps(reverse, func(x float64) {
			i, o, f, g := sigmoid(gate(0, x)), sigmoid(gate(1, x)), sigmoid(gate(2, x)), math.Tanh(gate(3, x))
			c = f*c + i*g
			h = o * math.Tanh(c)
		})
		return h, c
	}
	// z, r, h; the candidate with the recurrent bias within or beside the reset.
	gru := func(reverse, before bool) (h float64) {
		steps(reverse, func(x float64) {
			z := sigmoid(0.1*x + 0.5*h + 0.03)
			r := sigmoid(0.2*x + 0.6*h + 0.06)
			n := math.Tanh(0.3*x + r*0.7*h + 0.03 + 0.06)
			if before {
				n = math.Tanh(0.3*x + 0.03 + r*(0.7*h+0.06))
			}
			h = (1-z)*n + z*h
		})
		return h
	}
	list := func(n int, from, by float64) []float64 {
		v := make([]float64, n)
		for i := range v {
			v[i] = from + by*float64(i)
		}
		return v
	}
	twice := func(v []float64) []float64 { return append(append([]float64{}, v...), v...) }
	operands := func(gates int, both bool) []*onnx.Tensor {
		n, d := int64(gates), int64(1)
		w, r := list(gates, 0.1, 0.1), list(gates, 0.5, 0.1)
		b := append(list(gates, 0.01, 0.01), list(gates, 0.02, 0.02)...)
		if both {
			d, w, r, b = 2, twice(w), twice(r), twice(b)
		}
		return []*onnx.Tensor{f32s(dims(2, 1, 1), x...), f32s(dims(d, n, 1), w...), f32s(dims(d, n, 1), r...), f32s(dims(d, 2*n), b...)}
	}
	one := func(v float64) *onnx.Tensor { return f32s(dims(1, 1, 1), v) }
	fh, fc := lstm(false)
	bh, bc := lstm(true)
	hidden := aInt("hidden_size", 1)
	runCases(t, []opCase{
		{op: "LSTM", opset: 14, attrs: []*onnx.Attribute{hidden}, in: operands(4, false), want: []*onnx.Tensor{nil, one(fh), one(fc)}},
		{op: "LSTM", name: "LSTM backwards", opset: 14, attrs: []*onnx.Attribute{hidden, aStr("direction", "reverse")}, in: operands(4, false), want: []*onnx.Tensor{nil, one(bh), one(bc)}},
		{op: "LSTM", name: "LSTM both ways", opset: 14, attrs: []*onnx.Attribute{hidden, aStr("direction", "bidirectional")}, in: operands(4, true),
			want: []*onnx.Tensor{nil, f32s(dims(2, 1, 1), fh, bh), f32s(dims(2, 1, 1), fc, bc)}},
		{op: "GRU", opset: 14, attrs: []*onnx.Attribute{hidden}, in: operands(3, false), want: []*onnx.Tensor{nil, one(gru(false, false))}},
		{op: "GRU", name: "GRU reset behind the bias", opset: 14, attrs: []*onnx.Attribute{hidden, aInt("linear_before_reset", 1)}, in: operands(3, false), want: []*onnx.Tensor{nil, one(gru(false, true))}},
		{op: "GRU", name: "GRU backwards", opset: 14, attrs: []*onnx.Attribute{hidden, aStr("direction", "reverse")}, in: operands(3, false), want: []*onnx.Tensor{nil, one(gru(true, false))}},
	})
}
