package op

import (
	"maps"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
)

func init() {
	maps.Copy(forms, map[string]string{
		"GatherElements": "fAB iAB|i:axis", "GatherND": "fABC iAD|i:batch_dims", "Scatter": "fAB iAB fAB|i:axis",
		"ScatterElements": "fAB iAB fAB|i:axis s:reduction=add s:reduction=max", "ScatterND": "fAB iC1 fCB|s:reduction=mul",
		"OneHot": "iAB i fT|i:axis", "ReverseSequence": "fABC iB|i:batch_axis i:time_axis", "TensorScatter": "fABC fADC iA|i:axis s:mode=circular",
		"ArgMax": "fAB|i:axis i:keepdims i:select_last_index", "ArgMin": "hAB|i:axis i:keepdims", "TopK": "fAB i|i:k i:axis i:largest i:sorted",
		"CumSum": "fAB i|i:exclusive i:reverse", "CumProd": "iAB i|i:exclusive i:reverse", "Hardmax": "fABC|i:axis",
		"TfIdfVectorizer": "iAB|i:min_gram_length i:max_gram_length i:max_skip_count i2:ngram_counts i2:ngram_indexes i3:pool_int64s s:mode=TF",
		"BitShift":        "uAB uB|s:direction=LEFT s:direction=RIGHT", "BitwiseAnd": "iAB iB", "BitwiseOr": "uAB uB", "BitwiseXor": "iAB i", "BitwiseNot": "uAB",
		"BitCast": "fAB|i:to", "Mod": "iAB iB|i:fmod", "IsInf": "fAB|i:detect_negative i:detect_positive", "IsNaN": "hAB",
		"Tile": "fABC n", "Trilu": "fABC i|i:upper", "EyeLike": "fAB|i:k i:dtype", "Shrink": "fAB|f:lambd f:bias",
		"QuantizeLinear": "fAB f1 u1|i:axis i:block_size i:output_dtype", "DequantizeLinear": "uAB fB uB|i:axis i:block_size",
		"DynamicQuantizeLinear": "fAB", "MatMulInteger": "uAB uBC u u", "ConvInteger": "uNCL uMCK u uM|i1:strides i2:pads",
		"QLinearMatMul": "uAB f u uBC f u f u", "QLinearConv": "uNCL f u uMCK fM uM f u|i1:strides i2:pads",
		"Einsum":   "fAB fBC|s:equation=ij,jk s:equation=ij,jk->ki s:equation=ii,jk->ikj s:equation=...i,i... s:equation=ab",
		"Compress": "fAB bA|i:axis", "NonZero": "fAB", "Unique": "fAB|i:axis i:sorted", "NonMaxSuppression": "f1B4 f1CB i f f|i:center_point_box",
	})
}

func TestIndexing(t *testing.T) {
	x := f32s(dims(2, 3), 1, 2, 3, 4, 5, 6)
	axis := func(a int64) []*onnx.Attribute { return []*onnx.Attribute{aInt("axis", a)} }
	reduction := func(fn string) []*onnx.Attribute { return []*onnx.Attribute{aStr("reduction", fn)} }
	zero := f32s(dims(4), 1, 1, 1, 1)
	at := i64s(dims(3, 1), 1, 3, -3)
	up := list32(5, 6, 7)
	runCases(t, []opCase{
		{op: "GatherElements", opset: 11, attrs: axis(-1), in: []*onnx.Tensor{x, i64s(dims(2, 2), 0, -1, 2, 0)}, want: []*onnx.Tensor{f32s(dims(2, 2), 1, 3, 6, 4)}},
		{op: "GatherElements", name: "fewer indices", opset: 13, in: []*onnx.Tensor{x, tensor(onnx.Int32, dims(1, 2), 1, 0)}, want: []*onnx.Tensor{f32s(dims(1, 2), 4, 2)}},
		{op: "GatherND", opset: 11, in: []*onnx.Tensor{x, i64s(dims(2, 2), 0, 1, -1, -1)}, want: []*onnx.Tensor{list32(2, 6)}},
		{op: "GatherND", name: "GatherND-12 batches", opset: 12, attrs: []*onnx.Attribute{aInt("batch_dims", 1)}, in: []*onnx.Tensor{x, i64s(dims(2, 1), 1, 0)}, want: []*onnx.Tensor{list32(2, 4)}},
		{op: "Scatter", opset: 9, attrs: axis(1), in: []*onnx.Tensor{x, i64s(dims(1, 2), 2, 0), f32s(dims(1, 2), 8, 9)}, want: []*onnx.Tensor{f32s(dims(2, 3), 9, 2, 8, 4, 5, 6)}},
		{op: "ScatterElements", name: "ScatterElements-16 add", opset: 16, attrs: reduction("add"), in: []*onnx.Tensor{zero, list1(1, 1, -1), up}, want: []*onnx.Tensor{list32(1, 12, 1, 8)}},
		{op: "ScatterElements", name: "ScatterElements-18 max", opset: 18, attrs: reduction("max"), in: []*onnx.Tensor{zero, list1(1, 1, 0), list32(5, 3, -1)}, want: []*onnx.Tensor{list32(1, 5, 1, 1)}},
		{op: "ScatterND", opset: 11, in: []*onnx.Tensor{zero, at, up}, want: []*onnx.Tensor{list32(1, 7, 1, 6)}},
		{op: "ScatterND", name: "ScatterND-16 mul", opset: 16, attrs: reduction("mul"), in: []*onnx.Tensor{zero, at, up}, want: []*onnx.Tensor{list32(1, 35, 1, 6)}},
		{op: "ScatterND", name: "ScatterND-18 min of slices", opset: 18, attrs: reduction("min"), in: []*onnx.Tensor{x, i64s(dims(1, 1), 1), f32s(dims(1, 3), 9, 0, 9)}, want: []*onnx.Tensor{f32s(dims(2, 3), 1, 2, 3, 4, 0, 6)}},
		{op: "OneHot", opset: 9, fixed: []int{1}, in: []*onnx.Tensor{list1(1, -1, 3), i64s(dims(), 3), list32(0, 5)}, want: []*onnx.Tensor{f32s(dims(3, 3), 0, 5, 0, 0, 0, 0, 0, 0, 0)}},
		{op: "OneHot", name: "OneHot-11 from the end, other types", opset: 11, attrs: axis(0), fixed: []int{1}, in: []*onnx.Tensor{list32(1, -1), tensor(onnx.Double, dims(1), 3), tensor(onnx.Int8, dims(2), 7, -1)}, want: []*onnx.Tensor{tensor(onnx.Int8, dims(3, 2), 7, 7, -1, 7, 7, -1)}},
		{op: "ReverseSequence", opset: 10, in: []*onnx.Tensor{f32s(dims(3, 2), 1, 2, 3, 4, 5, 6), list1(2, 3)}, want: []*onnx.Tensor{f32s(dims(3, 2), 3, 6, 1, 4, 5, 2)}},
		{op: "ReverseSequence", name: "batch first", opset: 10, attrs: []*onnx.Attribute{aInt("batch_axis", 0), aInt("time_axis", 1)}, in: []*onnx.Tensor{x, list1(0, 2)}, want: []*onnx.Tensor{f32s(dims(2, 3), 1, 2, 3, 5, 4, 6)}},
		{op: "TensorScatter", opset: 24, in: []*onnx.Tensor{f32s(dims(2, 3, 1), 1, 2, 3, 4, 5, 6), f32s(dims(2, 1, 1), 8, 9), list1(2, 0)}, want: []*onnx.Tensor{f32s(dims(2, 3, 1), 1, 2, 8, 9, 5, 6)}},
		{op: "TensorScatter", name: "TensorScatter circular", opset: 24, attrs: []*onnx.Attribute{aStr("mode", "circular"), aInt("axis", 1)}, in: []*onnx.Tensor{x, f32s(dims(2, 2), 7, 8, 9, 10), list1(2, 0)}, want: []*onnx.Tensor{f32s(dims(2, 3), 8, 2, 7, 9, 10, 6)}},
		{op: "TensorScatter", name: "TensorScatter from the start", opset: 24, attrs: axis(1), in: []*onnx.Tensor{x, f32s(dims(2, 1), 7, 8)}, want: []*onnx.Tensor{f32s(dims(2, 3), 7, 2, 3, 8, 5, 6)}},
	})
}

func TestSelection(t *testing.T) {
	x := f32s(dims(2, 3), 1, 3, 3, 6, 5, 6)
	nan, inf := math.NaN(), math.Inf(1)
	keep := aInt("keepdims", 0)
	runCases(t, []opCase{
		{op: "ArgMax", opset: 1, in: []*onnx.Tensor{x}, want: []*onnx.Tensor{i64s(dims(1, 3), 1, 1, 1)}},
		{op: "ArgMax", name: "ArgMax-12 last", opset: 12, attrs: []*onnx.Attribute{aInt("axis", -1), keep, aInt("select_last_index", 1)}, in: []*onnx.Tensor{x}, want: []*onnx.Tensor{list1(2, 2)}},
		{op: "ArgMin", opset: 13, attrs: []*onnx.Attribute{aInt("axis", 1), keep}, in: []*onnx.Tensor{tensor(onnx.BFloat16, dims(1, 3), 2, -1, -1)}, want: []*onnx.Tensor{list1(1)}},
		{op: "ArgMin", name: "ArgMin last", opset: 13, attrs: []*onnx.Attribute{aInt("axis", 1), keep, aInt("select_last_index", 1)}, in: []*onnx.Tensor{tensor(onnx.Int8, dims(1, 3), 2, -1, -1)}, want: []*onnx.Tensor{list1(2)}},
		{op: "TopK", opset: 1, attrs: []*onnx.Attribute{aInt("k", 2)}, in: []*onnx.Tensor{x}, want: []*onnx.Tensor{f32s(dims(2, 2), 3, 3, 6, 6), i64s(dims(2, 2), 1, 2, 0, 2)}},
		{op: "TopK", opset: 10, attrs: []*onnx.Attribute{aInt("axis", 0)}, fixed: []int{1}, in: []*onnx.Tensor{x, list1(1)}, want: []*onnx.Tensor{nil, i64s(dims(1, 3), 1, 1, 1)}},
		{op: "TopK", name: "TopK-11 smallest", opset: 11, attrs: []*onnx.Attribute{aInt("largest", 0), aInt("sorted", 0)}, fixed: []int{1}, in: []*onnx.Tensor{tensor(onnx.Float16, dims(3), 2, 1, 3), list1(2)}, want: []*onnx.Tensor{tensor(onnx.Float16, dims(2), 1, 2), list1(1, 0)}},
		{op: "TopK", name: "TopK-24 none", opset: 24, fixed: []int{1}, in: []*onnx.Tensor{tensor(onnx.Uint64, dims(3), 2, 1, 3), list1(0)}, want: []*onnx.Tensor{tensor(onnx.Uint64, dims(0)), list1()}},
		{op: "CumSum", opset: 11, fixed: []int{1}, in: []*onnx.Tensor{x, tensor(onnx.Int32, dims(), 1)}, want: []*onnx.Tensor{f32s(dims(2, 3), 1, 4, 7, 6, 11, 17)}},
		{op: "CumSum", name: "CumSum-14 both", opset: 14, attrs: []*onnx.Attribute{aInt("exclusive", 1), aInt("reverse", 1)}, fixed: []int{1}, in: []*onnx.Tensor{tensor(onnx.BFloat16, dims(3), 1, 2, 3), list1(-1)}, want: []*onnx.Tensor{tensor(onnx.BFloat16, dims(3), 5, 3, 0)}},
		{op: "CumProd", opset: 26, attrs: []*onnx.Attribute{aInt("exclusive", 1)}, fixed: []int{1}, in: []*onnx.Tensor{list1(2, 3, 4), list1(0)}, want: []*onnx.Tensor{list1(1, 2, 6)}},
		{op: "Hardmax", name: "Hardmax-1 over two axes", opset: 1, in: []*onnx.Tensor{f32s(dims(1, 2, 2), 1, 3, 3, 2)}, want: []*onnx.Tensor{f32s(dims(1, 2, 2), 0, 1, 0, 0)}},
		{op: "Hardmax", opset: 13, attrs: []*onnx.Attribute{aInt("axis", 0)}, in: []*onnx.Tensor{x}, want: []*onnx.Tensor{f32s(dims(2, 3), 0, 0, 0, 1, 1, 1)}},
		{op: "TfIdfVectorizer", opset: 9, attrs: []*onnx.Attribute{aInt("min_gram_length", 1), aInt("max_gram_length", 2), aInt("max_skip_count", 1), aStr("mode", "TFIDF"),
			aInts("ngram_counts", 0, 1), aInts("ngram_indexes", 1, 0), aInts("pool_int64s", 5, 5, 6), {Name: "weights", Type: onnx.AttrFloats, Floats: []float32{2, 10}}},
			in: []*onnx.Tensor{list1(5, 6, 5, 7, 6)}, want: []*onnx.Tensor{list32(4, 20)}},
		{op: "IsNaN", opset: 9, in: []*onnx.Tensor{list32(nan, 1, inf)}, want: []*onnx.Tensor{bools(dims(3), 1, 0, 0)}},
		{op: "IsInf", opset: 10, in: []*onnx.Tensor{list32(nan, -inf, inf)}, want: []*onnx.Tensor{bools(dims(3), 0, 1, 1)}},
		{op: "IsInf", name: "IsInf-20 positive", opset: 20, attrs: []*onnx.Attribute{aInt("detect_negative", 0)}, in: []*onnx.Tensor{tensor(onnx.Float16, dims(2), -inf, inf)}, want: []*onnx.Tensor{bools(dims(2), 0, 1)}},
		{op: "IsInf", name: "IsInf none", opset: 10, attrs: []*onnx.Attribute{aInt("detect_negative", 0), aInt("detect_positive", 0)}, in: []*onnx.Tensor{list32(inf)}, want: []*onnx.Tensor{bools(dims(1), 0)}},
	})
}

func TestBits(t *testing.T) {
	u8 := func(v ...float64) *onnx.Tensor { return tensor(onnx.Uint8, dims(int64(len(v))), v...) }
	to := func(e onnx.ElemType) []*onnx.Attribute { return []*onnx.Attribute{aInt("to", int64(e))} }
	fmod := []*onnx.Attribute{aInt("fmod", 1)}
	runCases(t, []opCase{
		{op: "BitShift", opset: 11, attrs: []*onnx.Attribute{aStr("direction", "LEFT")}, in: []*onnx.Tensor{u8(1, 255), u8(3, 9)}, want: []*onnx.Tensor{u8(8, 0)}},
		{op: "BitShift", name: "right", opset: 11, attrs: []*onnx.Attribute{aStr("direction", "RIGHT")}, in: []*onnx.Tensor{u8(16, 255), u8(3)}, want: []*onnx.Tensor{u8(2, 31)}},
		{op: "BitwiseAnd", opset: 18, in: []*onnx.Tensor{u8(12, 10), u8(6)}, want: []*onnx.Tensor{u8(4, 2)}},
		{op: "BitwiseOr", opset: 18, in: []*onnx.Tensor{list1(12, -8), list1(1)}, want: []*onnx.Tensor{list1(13, -7)}},
		{op: "BitwiseXor", opset: 18, in: []*onnx.Tensor{list1(12, -1), list1(10)}, want: []*onnx.Tensor{list1(6, -11)}},
		{op: "BitwiseNot", opset: 18, in: []*onnx.Tensor{u8(0, 200)}, want: []*onnx.Tensor{u8(255, 55)}},
		{op: "BitwiseNot", name: "of 64 bits", opset: 18, in: []*onnx.Tensor{list1(5)}, want: []*onnx.Tensor{list1(-6)}},
		{op: "BitCast", opset: 26, attrs: to(onnx.Int32), in: []*onnx.Tensor{list32(1, -2)}, want: []*onnx.Tensor{tensor(onnx.Int32, dims(2), 0x3f800000, -0x40000000)}},
		{op: "BitCast", name: "of bools", opset: 26, attrs: to(onnx.Uint8), in: []*onnx.Tensor{bools(dims(2), 1, 0)}, want: []*onnx.Tensor{u8(1, 0)}},
		{op: "BitCast", name: "of narrow integers", opset: 26, attrs: to(onnx.Uint4), in: []*onnx.Tensor{tensor(onnx.Int4, dims(2), -1, 7)}, want: []*onnx.Tensor{tensor(onnx.Uint4, dims(2), 15, 7)}},
		{op: "Mod", opset: 10, in: []*onnx.Tensor{list1(-4, 7, 5, -7), list1(2, -3, 8, 3)}, want: []*onnx.Tensor{list1(0, -2, 5, 2)}},
		{op: "Mod", name: "fmod of integers", opset: 13, attrs: fmod, in: []*onnx.Tensor{list1(-4, 7, 5, -7), list1(3, -3, 8, 0)}, want: []*onnx.Tensor{list1(-1, 1, 5, 0)}},
		{op: "Mod", name: "fmod of floats", opset: 13, attrs: fmod, in: []*onnx.Tensor{tensor(onnx.Float16, dims(2), -4.5, 5.5), tensor(onnx.Float16, dims(1), 2)}, want: []*onnx.Tensor{tensor(onnx.Float16, dims(2), -0.5, 1.5)}},
	})
}

func TestFill(t *testing.T) {
	x := f32s(dims(2, 2), 1, 2, 3, 4)
	runCases(t, []opCase{
		{op: "Tile", opset: 1, fixed: []int{1, 2}, in: []*onnx.Tensor{x, list1(2), list1(1)}, want: []*onnx.Tensor{f32s(dims(2, 4), 1, 2, 1, 2, 3, 4, 3, 4)}},
		{op: "Tile", opset: 6, fixed: []int{1}, in: []*onnx.Tensor{x, list1(2, 1)}, want: []*onnx.Tensor{f32s(dims(4, 2), 1, 2, 3, 4, 1, 2, 3, 4)}},
		{op: "Tile", name: "Tile-13 both", opset: 13, fixed: []int{1}, in: []*onnx.Tensor{f32s(dims(1, 2), 1, 2), list1(2, 2)}, want: []*onnx.Tensor{f32s(dims(2, 4), 1, 2, 1, 2, 1, 2, 1, 2)}},
		{op: "Tile", name: "Tile-13 nothing", opset: 13, fixed: []int{1}, in: []*onnx.Tensor{x, list1(0, 2)}, want: []*onnx.Tensor{f32s(dims(0, 4))}},
		{op: "Trilu", opset: 14, in: []*onnx.Tensor{x}, want: []*onnx.Tensor{f32s(dims(2, 2), 1, 2, 0, 4)}},
		{op: "Trilu", name: "lower, shifted", opset: 14, attrs: []*onnx.Attribute{aInt("upper", 0)}, in: []*onnx.Tensor{x, i64s(dims(), -1)}, want: []*onnx.Tensor{f32s(dims(2, 2), 0, 0, 3, 0)}},
		{op: "Trilu", name: "shifted far", opset: 14, in: []*onnx.Tensor{x, i64s(dims(1), math.MaxInt64)}, want: []*onnx.Tensor{f32s(dims(2, 2), 0, 0, 0, 0)}},
		{op: "Trilu", name: "without elements", opset: 14, in: []*onnx.Tensor{f32s(dims(3, 0, 5))}, want: []*onnx.Tensor{f32s(dims(3, 0, 5))}},
		{op: "EyeLike", opset: 9, attrs: []*onnx.Attribute{aInt("k", 1), aInt("dtype", int64(onnx.Double))}, in: []*onnx.Tensor{f32s(dims(2, 3), 9, 9, 9, 9, 9, 9)}, want: []*onnx.Tensor{tensor(onnx.Double, dims(2, 3), 0, 1, 0, 0, 0, 1)}},
		{op: "EyeLike", opset: 22, in: []*onnx.Tensor{tensor(onnx.Bool, dims(1, 2), 0, 0)}, want: []*onnx.Tensor{bools(dims(1, 2), 1, 0)}},
		{op: "Shrink", opset: 9, attrs: []*onnx.Attribute{aFloat("lambd", 1.5), aFloat("bias", 1.5)}, in: []*onnx.Tensor{list32(-2, -1, 0, 2)}, want: []*onnx.Tensor{list32(-0.5, 0, 0, 0.5)}},
		{op: "Shrink", name: "of integers", opset: 9, attrs: []*onnx.Attribute{aFloat("lambd", 1.5), aFloat("bias", 1)}, in: []*onnx.Tensor{list1(-3, 1, 2)}, want: []*onnx.Tensor{list1(-2, 0, 1)}},
	})
}

func TestEinsum(t *testing.T) {
	a, b := f32s(dims(2, 3), 1, 2, 3, 4, 5, 6), f32s(dims(3, 2), 1, 0, 0, 1, 1, 1)
	square := f32s(dims(2, 2), 1, 2, 3, 4)
	sum := func(equation string, want *onnx.Tensor, in ...*onnx.Tensor) opCase {
		return opCase{op: "Einsum", name: equation, opset: 12, attrs: []*onnx.Attribute{aStr("equation", equation)}, in: in, want: []*onnx.Tensor{want}}
	}
	v := list32(1, 10)
	runCases(t, []opCase{
		sum("ij,jk->ik", f32s(dims(2, 2), 4, 5, 10, 11), a, b),
		sum("ij , jk", f32s(dims(2, 2), 4, 5, 10, 11), a, b),
		sum("ij->ji", f32s(dims(3, 2), 1, 4, 2, 5, 3, 6), a),
		sum("ba", f32s(dims(3, 2), 1, 4, 2, 5, 3, 6), a),
		sum("->", f32s(dims(), 7), f32s(dims(), 7)),
		sum("ij->", f32s(dims(), 21), a),
		sum("ii->i", list32(1, 4), square),
		sum("ii", f32s(dims(), 5), square),
		sum("iji->j", list32(1+6, 3+8), f32s(dims(2, 2, 2), 1, 2, 3, 4, 5, 6, 7, 8)),
		sum("i,j->ij", f32s(dims(2, 2), 1, 10, 10, 100), v, v),
		sum("i,i->i", list32(1, 100), v, v),
		sum("i,i", f32s(dims(), 101), v, v),
		sum("...ij,...jk->...ik", f32s(dims(1, 2, 2), 4, 5, 10, 11), f32s(dims(1, 2, 3), 1, 2, 3, 4, 5, 6), b),
		sum("i...->...", list32(5, 7, 9), a),
		sum("...,...", f32s(dims(2, 2), 1, 20, 3, 40), square, v),
		sum("ij,j,i->", f32s(dims(), 21+430), square, v, v),
		sum("ij,jk,kl->il", f32s(dims(2, 2), 37, 54, 81, 118), square, square, square),
		sum("bij,bjk->bik", f32s(dims(2, 1, 1), 3, 8), f32s(dims(2, 1, 1), 1, 2), f32s(dims(2, 1, 1), 3, 4)),
		sum("ij,ij->i", list32(21, 43), square, f32s(dims(1, 2), 1, 10)),
		sum("i,i->i", tensor(onnx.Int8, dims(2), 4, -56), tensor(onnx.Int8, dims(2), 2, 100), tensor(onnx.Int8, dims(2), 2, 2)),
	})
}

func TestCountedShapes(t *testing.T) {
	x := f32s(dims(3, 2), 1, 2, 3, 4, 5, 6)
	rows := f32s(dims(3, 2), 3, 1, 1, 2, 3, 1)
	list := list32(2, 1, math.NaN(), 1, 2, math.NaN(), -1)
	boxes := f32s(dims(1, 3, 4), 0, 0, 1, 1, 1, 1.1, 0, 0.1, 0, 10, 1, 11)
	centred := f32s(dims(1, 2, 4), 0.5, 0.5, 1, 1, 0.5, 0.6, 1, 1)
	scores := f32s(dims(1, 1, 3), 0.9, 0.75, 0.6)
	most, overlap := i64s(dims(), 3), list32(0.5)
	runCases(t, []opCase{
		{op: "Compress", opset: 9, attrs: []*onnx.Attribute{aInt("axis", 0)}, in: []*onnx.Tensor{x, bools(dims(2), 0, 1)}, want: []*onnx.Tensor{f32s(dims(1, 2), 3, 4)}},
		{op: "Compress", name: "Compress-11 flat", opset: 11, in: []*onnx.Tensor{x, bools(dims(6), 1, 0, 0, 0, 0, 1)}, want: []*onnx.Tensor{list32(1, 6)}},
		{op: "NonZero", opset: 9, in: []*onnx.Tensor{f32s(dims(2, 2), 0, 1, 2, 3)}, want: []*onnx.Tensor{i64s(dims(2, 3), 0, 1, 1, 1, 0, 1)}},
		{op: "NonZero", name: "of a scalar", opset: 13, in: []*onnx.Tensor{bools(dims(), 1)}, want: []*onnx.Tensor{i64s(dims(0, 1))}},
		{op: "Unique", opset: 11, in: []*onnx.Tensor{list}, want: []*onnx.Tensor{list32(-1, 1, 2, math.NaN()), list1(6, 1, 0, 2), list1(2, 1, 3, 1, 2, 3, 0), list1(1, 2, 2, 2)}},
		{op: "Unique", name: "in order of appearance", opset: 11, attrs: []*onnx.Attribute{aInt("sorted", 0)}, in: []*onnx.Tensor{list1(2, -1, 2)}, want: []*onnx.Tensor{list1(2, -1), list1(0, 1), list1(0, 1, 0), list1(2, 1)}},
		{op: "Unique", name: "along an axis", opset: 11, attrs: []*onnx.Attribute{aInt("axis", 0)}, in: []*onnx.Tensor{rows}, want: []*onnx.Tensor{f32s(dims(2, 2), 1, 2, 3, 1), list1(1, 0), list1(1, 0, 1), list1(1, 2)}},
		{op: "NonMaxSuppression", opset: 10, in: []*onnx.Tensor{boxes, scores, most, overlap}, want: []*onnx.Tensor{i64s(dims(2, 3), 0, 0, 0, 0, 0, 2)}},
		{op: "NonMaxSuppression", name: "threshold", opset: 11, in: []*onnx.Tensor{boxes, scores, most, overlap, list32(0.7)}, want: []*onnx.Tensor{i64s(dims(1, 3), 0, 0, 0)}},
		{op: "NonMaxSuppression", name: "centres", opset: 11, attrs: []*onnx.Attribute{aInt("center_point_box", 1)}, in: []*onnx.Tensor{centred, f32s(dims(1, 1, 2), 0.5, 0.6), most, list32(0.9)}, want: []*onnx.Tensor{i64s(dims(2, 3), 0, 0, 1, 0, 0, 0)}},
		{op: "NonMaxSuppression", name: "none", opset: 11, in: []*onnx.Tensor{boxes, scores}, want: []*onnx.Tensor{i64s(dims(0, 3))}},
	})
}

// TestRefused lowers nodes that can't be lowered, with the reasons.
func TestRefused(t *testing.T) {
	x := info("x", onnx.Float, 2, 3)
	at, flags, u := info("at", onnx.Int64, 2, 3), info("flags", onnx.Bool, 2), info("u", onnx.Uint8, 2)
	for _, tt := range []struct {
		opset int64
		node  *onnx.Node
		want  string
	}{
		{11, node("Scatter", names("x", "at", "x"), names("y")), "operator Scatter of operator set 11 (ONNX dropped it in 11)"},
		{13, node("TopK", names("x", "at"), names("y")), `operand 1 (K) is i64[2,3], want one int64`},
		{12, node("Einsum", names("x", "x"), names("y"), aStr("equation", "ij,jk")), "axis 0 of operand 1, f32[2,3], has 2 elements where another has 3"},
		{12, node("Einsum", names("x"), names("y"), aStr("equation", "ij->ik")), "want every index of the result once, and in an operand"},
		{12, node("Einsum", names("x"), names("y"), aStr("equation", "i?")), "want letters"},
		{12, node("Einsum", names("x"), names("y"), aStr("equation", "ijk")), `whose term "ijk" does not fit operand 0`},
		{13, node("TfIdfVectorizer", names("at"), names("y"), aStr("mode", "TF"), aInt("min_gram_length", 1), aInt("max_gram_length", 1), aInt("max_skip_count", 0),
			aInts("ngram_counts", 0), aInts("ngram_indexes", 0), &onnx.Attribute{Name: "pool_strings", Type: onnx.AttrStrings}), "an executable has no strings"},
		{26, node("BitCast", names("x"), names("y"), aInt("to", int64(onnx.Double))), "want types of as many bits"},
		{11, node("BitShift", names("u", "u"), names("y"), aStr("direction", "UP")), `attribute "direction" is "UP"`},
		{21, node("QuantizeLinear", names("x", "x"), names("y")), "scale is f32[2,3], want shape [3]"},
		{10, node("ReverseSequence", names("x", "at"), names("y"), aInt("time_axis", 1)), "want 0 and 1 or 1 and 0"},
	} {
		t.Run(tt.node.OpType+" "+tt.want, func(t *testing.T) {
			m := model(tt.opset, &onnx.Graph{Nodes: []*onnx.Node{tt.node}, Inputs: []onnx.ValueInfo{x, at, flags, u}, Outputs: outputs("y")})
			_, err := Lower(m, onnx.Options{})
			require.ErrorContains(t, err, tt.want)
		})
	}
}
