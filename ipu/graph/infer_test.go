package graph

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var none TensorType

// inferCase is one operator with its operands and results.
type inferCase struct {
	name     string
	op       Op
	in, want []TensorType
}

// threes is a pooling by three elements in steps of two.
var threes = &MaxPool{Kernel: []int64{3}, Strides: []int64{2}, Dilations: []int64{1}, PadsBegin: []int64{0}, PadsEnd: []int64{0}}

// familyCases are the cases of the families that have a test file of their
// own.
var familyCases []inferCase

// TestGradientResults: the list of results is not that of the operands, in which an engine would erase the type of an operand whose
// gradient nobody wants.
func TestGradientResults(t *testing.T) {
	in := []TensorType{f32(2, 3), f32(2, 3), f32(3)}
	out, err := GradientOf(&RMSNorm{Axis: 1}).Infer(in)
	require.NoError(t, err)
	out[0] = none
	require.Equal(t, []TensorType{f32(2, 3), f32(2, 3), f32(3)}, in)
}

func TestInfer(t *testing.T) {
	type types = []TensorType
	pool := func(k, s, p int64, ceil bool) *MaxPool {
		return &MaxPool{Kernel: []int64{k}, Strides: []int64{s}, Dilations: []int64{1}, PadsBegin: []int64{p}, PadsEnd: []int64{p}, Ceil: ceil}
	}
	conv := func(group int64) *Conv {
		return &Conv{Strides: []int64{2, 1}, Dilations: []int64{1, 2}, PadsBegin: []int64{1, 0}, PadsEnd: []int64{1, 0}, Group: group}
	}
	lstm := func(dir string, dirs, hidden int, batchFirst bool) *LSTM {
		acts := []string{"Sigmoid", "Tanh", "Tanh", "HardSigmoid", "Relu", "Softsign"}[:3*dirs]
		return &LSTM{Hidden: int64(hidden), Direction: dir, Activations: acts, ActAlpha: make([]float64, 3*dirs),
			ActBeta: make([]float64, 3*dirs), BatchFirst: batchFirst}
	}
	tests := []inferCase{
		{"unary", &Unary{Fn: Exp}, types{f32(2, 3)}, types{f32(2, 3)}},
		{"unary of integers", &Unary{Fn: Abs}, types{typ(U8, 4)}, types{typ(U8, 4)}},
		{"not", &Unary{Fn: Not}, types{typ(Bool)}, types{typ(Bool)}},
		{"binary", &Binary{Fn: Add}, types{f32(2, 1, 3), f32(4, 1)}, types{f32(2, 4, 3)}},
		{"binary, no elements", &Binary{Fn: Add}, types{f32(0, 3), f32(1)}, types{f32(0, 3)}},
		{"pow of two types", &Binary{Fn: Pow}, types{typ(I32, 2), f32()}, types{typ(I32, 2)}},
		{"comparison", &Binary{Fn: Less}, types{typ(I64, 2), typ(I64)}, types{typ(Bool, 2)}},
		{"equal of bools", &Binary{Fn: Equal}, types{typ(Bool, 2), typ(Bool, 1)}, types{typ(Bool, 2)}},
		{"clip", &Clip{}, types{f32(2), none, f32()}, types{f32(2)}},
		{"clip, trailing left out", &Clip{}, types{typ(I8, 2), typ(I8)}, types{typ(I8, 2)}},
		{"where", &Where{}, types{typ(Bool, 3, 1), typ(F8E4M3, 2), typ(F8E4M3)}, types{typ(F8E4M3, 3, 2)}},
		{"cast", &Cast{To: I4}, types{f32(5)}, types{typ(I4, 5)}},
		{"reshape", &Reshape{Shape: []int64{3, 2}}, types{f32(6)}, types{f32(3, 2)}},
		{"reshape to scalar", &Reshape{}, types{f32(1, 1)}, types{f32()}},
		{"reshape without elements", &Reshape{Shape: []int64{0, 9}}, types{f32(4, 0)}, types{f32(0, 9)}},
		{"transpose", &Transpose{Perm: []int64{2, 0, 1}}, types{f32(2, 3, 4)}, types{f32(4, 2, 3)}},
		{"concat", &Concat{Axis: 1}, types{f32(2, 1), f32(2, 0), f32(2, 5)}, types{f32(2, 6)}},
		{"slice", &Slice{[]int64{1, 4}, []int64{2, 3}, []int64{1, -2}}, types{f32(3, 5)}, types{f32(2, 3)}},
		{"slice of nothing", &Slice{[]int64{3}, []int64{0}, []int64{1}}, types{f32(3)}, types{f32(0)}},
		{"slice of one in huge steps", &Slice{[]int64{2}, []int64{1}, []int64{math.MaxInt64}}, types{f32(3)}, types{f32(1)}},
		{"pad", &Pad{[]int64{1, -1}, []int64{2, 0}, PadConstant}, types{f32(2, 3), f32()}, types{f32(5, 2)}},
		{"pad without value", &Pad{[]int64{0}, []int64{2}, PadConstant}, types{typ(Bool, 0)}, types{typ(Bool, 2)}},
		{"pad, reflect", &Pad{[]int64{2}, []int64{2}, PadReflect}, types{f32(3)}, types{f32(7)}},
		{"gather", &Gather{Axis: 1}, types{f32(2, 3, 4), typ(I64, 5, 6)}, types{f32(2, 5, 6, 4)}},
		{"gather by scalar", &Gather{}, types{f32(2), typ(I32)}, types{f32()}},
		{"expand", &Expand{Shape: []int64{2, 3, 4}}, types{f32(3, 1)}, types{f32(2, 3, 4)}},
		{"matmul", &MatMul{}, types{f32(2, 3), f32(3, 4)}, types{f32(2, 4)}},
		{"matmul of vectors", &MatMul{}, types{f32(3), f32(3)}, types{f32()}},
		{"matmul, row", &MatMul{}, types{f32(3), f32(5, 3, 4)}, types{f32(5, 4)}},
		{"matmul, column", &MatMul{}, types{f32(5, 2, 3), f32(3)}, types{f32(5, 2)}},
		{"matmul, broadcast", &MatMul{}, types{f32(5, 1, 2, 3), f32(6, 3, 4)}, types{f32(5, 6, 2, 4)}},
		{"gemm", &Gemm{TransA: true, TransB: true, Alpha: 1, Beta: 1}, types{f32(3, 2), f32(4, 3), f32(2, 1)}, types{f32(2, 4)}},
		{"gemm without c", &Gemm{}, types{f32(2, 3), f32(3, 4), none}, types{f32(2, 4)}},
		{"conv", conv(1), types{f32(1, 3, 8, 9), f32(6, 3, 3, 3), f32(6)}, types{f32(1, 6, 4, 5)}},
		{"conv in groups", conv(3), types{f32(0, 3, 8, 9), f32(6, 1, 3, 3)}, types{f32(0, 6, 4, 5)}},
		{"max pool", pool(3, 2, 0, false), types{f32(1, 2, 8)}, types{f32(1, 2, 3), typ(I64, 1, 2, 3)}},
		{"max pool, up", pool(3, 2, 0, true), types{f32(1, 2, 8)}, types{f32(1, 2, 4), typ(I64, 1, 2, 4)}},
		// There is room for a window at 3, but input and padding before it
		// end there.
		{"max pool, up, last window dropped", pool(1, 3, 1, true), types{f32(1, 1, 2)}, types{f32(1, 1, 1), typ(I64, 1, 1, 1)}},
		{"average pool, up, last window dropped", &AveragePool{Kernel: []int64{3}, Strides: []int64{4}, Dilations: []int64{1},
			PadsBegin: []int64{1}, PadsEnd: []int64{2}, Ceil: true}, types{f32(1, 1, 3)}, types{f32(1, 1, 1)}},
		{"batch norm", &BatchNorm{}, types{f32(2, 3, 4), f32(3), f32(3), f32(3), f32(3)}, types{f32(2, 3, 4)}},
		{"softmax", &Softmax{Axis: 1}, types{typ(F16, 2, 3)}, types{typ(F16, 2, 3)}},
		{"layer norm", &LayerNorm{Axis: 1}, types{typ(F16, 2, 3, 4), typ(F16, 4)},
			types{typ(F16, 2, 3, 4), f32(2, 1, 1), f32(2, 1, 1)}},
		{"reduce", &Reduce{Fn: ReduceSum, Axes: []int64{0, 2}}, types{f32(2, 3, 4)}, types{f32(3)}},
		{"reduce, keep", &Reduce{Fn: ReduceMax, Axes: []int64{0, 2}, KeepDims: true}, types{typ(Bool, 2, 3, 4)}, types{typ(Bool, 1, 3, 1)}},
		{"reduce nothing", &Reduce{Fn: ReduceL1}, types{f32(2)}, types{f32(2)}},
		{"lstm", lstm("forward", 1, 5, false), types{f32(7, 2, 3), f32(1, 20, 3), f32(1, 20, 5)},
			types{f32(7, 1, 2, 5), f32(1, 2, 5), f32(1, 2, 5)}},
		{"lstm, everything", lstm("bidirectional", 2, 5, true),
			types{f32(2, 7, 3), f32(2, 20, 3), f32(2, 20, 5), f32(2, 40), typ(I32, 2), f32(2, 2, 5), f32(2, 2, 5), f32(2, 15)},
			types{f32(2, 7, 2, 5), f32(2, 2, 5), f32(2, 2, 5)}},
		{"resize", &Resize{Mode: ResizeLinear, Coordinates: HalfPixel, Sizes: []int64{1, 5}, Scales: []float64{1, 2.6}}, types{f32(1, 2)}, types{f32(1, 5)}},
		{"resize bools", &Resize{Mode: ResizeNearest, Rounding: RoundFloor, Coordinates: Asymmetric, Sizes: []int64{0}, Scales: []float64{0.2}}, types{typ(Bool, 3)}, types{typ(Bool, 0)}},
		{"resize a crop", &Resize{Mode: ResizeCubic, Coordinates: CropAndResize, Sizes: []int64{6}, Scales: []float64{2}, RoiStart: []float64{0.5}, RoiEnd: []float64{2}}, types{f32(3)}, types{f32(6)}},
		{"grid sample", &GridSample{Mode: ResizeNearest, Padding: SampleZeros}, types{f32(2, 3, 4, 5), typ(F16, 2, 6, 7, 2)}, types{f32(2, 3, 6, 7)}},
		{"roi align", &RoiAlign{Mode: RoiAverage, Height: 2, Width: 3, SpatialScale: 1}, types{f32(1, 5, 9, 9), f32(4, 4), typ(I64, 4)}, types{f32(4, 5, 2, 3)}},
		{"max roi pool", &MaxRoiPool{Height: 2, Width: 3, SpatialScale: 1}, types{f32(1, 5, 9, 9), f32(4, 5)}, types{f32(4, 5, 2, 3), typ(I64, 4, 5, 2, 3)}},
		{"gradient of roi align", &RoiAlignGradient{Mode: RoiAverage, Height: 2, Width: 3, SpatialScale: 1},
			types{f32(1, 5, 9, 9), f32(4, 4), typ(I64, 4), f32(4, 5, 2, 3)}, types{f32(1, 5, 9, 9), f32(4, 4)}},
		{"gradient of weights", &ConvWeightGradient{Kernel: []int64{3}, Strides: []int64{2}, Dilations: []int64{1}, PadsBegin: []int64{-1}, Group: 2},
			types{f32(5, 4, 9), f32(5, 6, 3)}, types{f32(6, 2, 3), f32(6)}},
		{"transposed conv", &ConvTranspose{Strides: []int64{2}, Dilations: []int64{1}, PadsBegin: []int64{-1}, Output: []int64{9}, Group: 2},
			types{f32(1, 4, 3), f32(4, 5, 2), f32(10)}, types{f32(1, 10, 9)}},
		{"deformable conv", &DeformConv{Strides: []int64{1, 1}, Dilations: []int64{1, 1}, PadsBegin: []int64{0, 0}, PadsEnd: []int64{0, 0}, Group: 1, OffsetGroup: 2},
			types{f32(1, 4, 3, 3), f32(5, 4, 2, 2), f32(1, 16, 2, 2), none, f32(1, 8, 2, 2)}, types{f32(1, 5, 2, 2)}},
		{"columns to an image", &Col2Im{Image: []int64{3, 4}, Block: []int64{2, 2}, Strides: []int64{1, 2}, Dilations: []int64{1, 1}, PadsBegin: []int64{0, 0}, PadsEnd: []int64{1, 0}},
			types{typ(I8, 2, 12, 6)}, types{typ(I8, 2, 3, 3, 4)}},
		{"lp pool", &LpPool{Kernel: []int64{2}, Strides: []int64{2}, Dilations: []int64{1}, PadsBegin: []int64{0}, PadsEnd: []int64{0}, Ceil: true, P: 3}, types{f32(1, 2, 5)}, types{f32(1, 2, 3)}},
		{"max unpool", &MaxUnpool{Shape: []int64{1, 2, 9}}, types{typ(U8, 1, 2, 4), typ(I64, 1, 2, 4)}, types{typ(U8, 1, 2, 9)}},
		{"group norm", &GroupNorm{Groups: 2}, types{typ(F16, 3, 4, 5), typ(F16, 4), typ(F16, 4)}, types{typ(F16, 3, 4, 5), f32(3, 2), f32(3, 2)}},
		{"lrn", &LRN{Size: 3}, types{f32(2, 3)}, types{f32(2, 3)}},
		{"assert", &Assert{Message: strings.Repeat("m", 4096)}, types{typ(Bool, 1, 1)}, nil},
		{"labels", &AssertLabels{Classes: 10, Ignores: true, Ignore: -100}, types{typ(I64, 4, 1)}, nil},
		{"random", &Random{Fn: RandomNormal, B: 1, Number: 1<<32 - 1, To: F16, Shape: []int64{2, 3}}, types{typ(U32, 2), typ(I64)}, types{typ(F16, 2, 3)}},
		{"random bits", &Random{Fn: RandomBits, To: U32}, types{typ(U32, 2), typ(I64, 1)}, types{typ(U32)}},
		{"gradient of a norm", GradientOf(&LayerNorm{Axis: 1, Epsilon: 1}), types{f32(2, 3), f32(2, 3), f32(3), f32(3)}, types{f32(2, 3), f32(3), f32(3)}},
		{"gradient of a norm without addend", GradientOf(&LayerNorm{Axis: 1, Epsilon: 1}), types{f32(2, 3), f32(2, 3), f32(3), none}, types{f32(2, 3), f32(3)}},
		{"gradient of a pool", GradientOf(pool(3, 2, 0, false)), types{f32(1, 2, 3), f32(1, 2, 8)}, types{f32(1, 2, 8)}},
		{"update", &Update{Rule: UpdateSGD, Values: []float64{1, 0}}, types{f32(2, 3), f32(2, 3), none, none, none, none, f32()}, types{f32(2, 3)}},
		{"update with moments", &Update{Rule: UpdateAdam, Values: []float64{0.1, 0, 1, 0.9, 0.999, 1e-6}}, types{f32(2), f32(2), f32(), typ(Bool), none, f32(2), f32(2), f32()},
			types{f32(2), f32(2), f32(2), f32()}},
		{"update of half precision", &Update{Rule: UpdateRMSProp, Momentum: true, Values: make([]float64, 6)},
			types{typ(F16, 2), typ(F16, 2), none, none, f32(2), f32(2), f32(2)}, types{typ(F16, 2), f32(2), f32(2), f32(2)}},
		{"determinant", &Det{}, types{f32(4, 3, 3)}, types{f32(4)}},
	}
	kinds := map[string]bool{}
	for _, tt := range append(tests, familyCases...) {
		kinds[tt.op.Kind()] = true
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.op.Infer(tt.in)
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(tt.want, got, cmpopts.EquateEmpty()))
		})
	}
	for _, k := range Kinds() {
		if _, ok := NewOp(k).(GraphOp); ok {
			continue // TestInferGraphs
		}
		require.True(t, kinds[k], "%s is not tested", k)
	}
}

func TestInferErrors(t *testing.T) {
	type types = []TensorType
	one := []int64{1}
	huge := int64(1) << 38
	tests := []struct {
		name string
		op   Op
		in   types
		want string
	}{
		{"no operands", &Unary{Fn: Exp}, nil, "0 operands, want 1 (x)"},
		{"assert of a number", &Assert{Message: "m"}, types{f32()}, "cond is f32[], want elements of type bool"},
		{"assert of two", &Assert{Message: "m"}, types{typ(Bool, 2)}, "cond is bool[2], want one element"},
		{"assert without words", &Assert{}, types{typ(Bool)}, "attribute Message has 0 bytes, want 1 to 4096"},
		{"assert of many words", &Assert{Message: strings.Repeat("m", 4097)}, types{typ(Bool)}, "attribute Message has 4097 bytes, want 1 to 4096"},
		{"labels of no class", &AssertLabels{}, types{typ(I64, 4)}, "attribute Classes is 0, want at least 1"},
		{"labels with no ignored one", &AssertLabels{Classes: 1, Ignore: 3}, types{typ(I64, 4)}, "attribute Ignore is 3, want 0"},
		{"labels of bytes", &AssertLabels{Classes: 1}, types{typ(U8, 4)}, "labels is u8[4], want elements of type i32, i64, f32 or f64"},
		{"labels of floats with ignored ones", &AssertLabels{Classes: 1, Ignores: true}, types{f32(4)}, "attribute Ignores is true, want false for labels of f32[4]"},
		{"random seed", &Random{Fn: RandomBits, To: U32}, types{typ(U32, 3), typ(I64)}, "seed is u32[3], want u32[2]"},
		{"random step", &Random{Fn: RandomBits, To: U32}, types{typ(U32, 2), typ(I32)}, "step is i32[], want one element of type i64"},
		{"random function", &Random{Fn: "other", To: F32}, types{typ(U32, 2), typ(I64)}, "attribute Fn is \"other\""},
		{"random integers", &Random{Fn: RandomNormal, To: U32}, types{typ(U32, 2), typ(I64)}, "the result is u32[], want elements of type f16"},
		{"random bits of floats", &Random{Fn: RandomBits, To: F32}, types{typ(U32, 2), typ(I64)}, "attributes To, A and B of bits are f32, 0 and 0"},
		{"random number", &Random{Fn: RandomBits, To: U32, Number: 1 << 32}, types{typ(U32, 2), typ(I64)}, "attribute Number is 4294967296"},
		{"random elements", &Random{Fn: RandomNormal, To: F16, Shape: []int64{1<<34 + 1}}, types{typ(U32, 2), typ(I64)}, "want at most 2^34 elements"},
		{"gradient of", &Gradient{Of: "Update"}, types{f32()}, "attribute Of is \"Update\", want one of [AveragePool"},
		{"gradient attributes", &Gradient{Of: "Softmax", Epsilon: 1}, types{f32(2), f32(2)}, "attributes are Gradient{Of:Softmax Epsilon:1}, want none that Softmax does not have: Gradient{Of:Softmax}"},
		{"gradient operands", &Gradient{Of: "Softmax"}, types{f32(2)}, "1 operands, want 2 to 4"},
		{"gradient operand", GradientOf(threes), types{f32(1, 2, 3), f32(2, 8)}, "x is f32[2,8], want at least 3 dimensions"},
		{"gradient of integers", GradientOf(threes), types{typ(I8, 1, 2, 3), typ(I8, 1, 2, 8)}, "x is i8[1,2,8], want elements of type f16"},
		{"gradient result", GradientOf(threes), types{f32(1, 2, 4), f32(1, 2, 8)}, "dy is f32[1,2,4], want the type of the result of MaxPool, f32[1,2,3]"},
		{"gradient of regions", &RoiAlignGradient{Mode: RoiAverage, Height: 2, Width: 3, SpatialScale: 1},
			types{f32(1, 5, 9, 9), f32(4, 4), typ(I64, 4), f32(4, 5, 3, 2)}, "dy is f32[4,5,3,2], want the type of the result of RoiAlign, f32[4,5,2,3]"},
		{"gradient scale", GradientOf(&RMSNorm{Axis: 1}), types{f32(2, 3), f32(2, 3), f32(1)}, "scale is f32[1], want shape [3]"},
		{"update rule", &Update{Rule: "other"}, types{f32(), f32()}, "attribute Rule is \"other\""},
		{"update attributes", &Update{Rule: UpdateSGD, NoBias: true}, types{f32(), f32()}, "are false, true, false and false, which rule sgd does not have"},
		{"update root", &Update{Rule: UpdateAdaDelta, InRoot: true}, types{f32(), f32()}, "which rule adadelta does not have"},
		{"update values", &Update{Rule: UpdateSGD}, types{f32(), f32()}, "attribute Values has 0 numbers, want one for each scalar of rule sgd: [weightDecayScaleFactor0 scaledLearningRate0]"},
		{"update of integers", &Update{Rule: UpdateSGD, Values: make([]float64, 2)}, types{typ(I32), typ(I32)}, "weight is i32[], want elements of type f16"},
		{"update gradient", &Update{Rule: UpdateSGD, Values: make([]float64, 2)}, types{f32(2), f32(1)}, "gradient is f32[1], want the weight's type, f32[2], or f32"},
		{"update factor", &Update{Rule: UpdateSGD, Values: make([]float64, 2)}, types{f32(2), f32(2), f32(2)}, "factor is f32[2], want one element of type f32"},
		{"update skip", &Update{Rule: UpdateSGD, Values: make([]float64, 2)}, types{f32(2), f32(2), none, f32()}, "skip is f32[], want one element of type bool"},
		{"update master", &Update{Rule: UpdateSGD, Values: make([]float64, 2)}, types{f32(2), f32(2), none, none, f32(2)}, "master is f32[2], want f32[2] for a weight of half precision"},
		{"update state", &Update{Rule: UpdateMomentum, Values: make([]float64, 4)}, types{typ(F64, 2), typ(F64, 2), none, none, none, f32(2)}, "Accl is f32[2], want f64[2]"},
		{"update step", &Update{Rule: UpdateAdam, Values: make([]float64, 6)}, types{f32(2), f32(2), none, none, none, f32(2), f32(2), f32(2)}, "Step is f32[2], want one element"},
		{"update scalar", &Update{Rule: UpdateSGD, Values: make([]float64, 2)}, types{f32(2), f32(2), none, none, none, f32(2)}, "weightDecayScaleFactor0 is f32[2], want one element"},
		{"update both", &Update{Rule: UpdateSGD, Values: []float64{1, 1}}, types{f32(2), f32(2), none, none, none, f32()}, "attribute Values has 1 for weightDecayScaleFactor0, which is an operand too"},
		{"too many", &Clip{}, types{f32(), f32(), f32(), f32()}, "4 operands, want 1 to 3 (x, min?, max?)"},
		{"left out", &Binary{Fn: Add}, types{f32(), none}, "operand 1 (b) is left out, but it is needed"},
		{"bad dtype", &Unary{Fn: Exp}, types{typ(99)}, "element type dtype(99) is not a type"},
		{"bad dimension", &Unary{Fn: Exp}, types{f32(2, -3)}, "operand 0 (x): f32[2,-3]: dimension 1 is -3, want 0 or more"},
		{"too big", &Unary{Fn: Exp}, types{f32(1<<20, 1<<20)}, "is too big"},
		{"too big though empty", &Unary{Fn: Exp}, types{f32(0, math.MaxInt64)}, "is too big"},
		{"rank", &Unary{Fn: Exp}, types{f32(make([]int64, 33)...)}, "has 33 dimensions, want at most 32"},
		{"unknown function", &Unary{Fn: "expo"}, types{f32()}, `there is no unary function "expo"`},
		{"sqrt of integers", &Unary{Fn: Sqrt}, types{typ(I32, 2)}, "sqrt: x is i32[2], want elements of type f16, bf16, f32 or f64"},
		{"neg of unsigned", &Unary{Fn: Neg}, types{typ(U8)}, "neg: x is u8[], want elements of type i8"},
		{"storage only", &Unary{Fn: Abs}, types{typ(I4)}, "abs: x is i4[]"},
		{"mixed", &Binary{Fn: Mul}, types{f32(2), typ(F64, 2)}, "mul: b is f64[2], want elements of type f32 like the first operand's"},
		{"and of floats", &Binary{Fn: And}, types{f32(), f32()}, "want elements of type bool"},
		{"broadcast", &Binary{Fn: Add}, types{f32(2, 3), f32(2)}, "add: shapes [2,3] and [2] do not broadcast: axis 1 from the end is 3 and 2"},
		{"too big by broadcast", &Binary{Fn: Add}, types{f32(1<<20, 1), f32(1 << 20)}, "result 0: f32[1048576,1048576] is too big"},
		{"clip", &Clip{}, types{f32(2), f32(2)}, "min is f32[2], want one element"},
		{"where", &Where{}, types{typ(U8), f32(), f32()}, "cond is u8[]"},
		{"where, mixed", &Where{}, types{typ(Bool), f32(), typ(F16)}, "a is f32[] and b is f16[]"},
		{"cast", &Cast{}, types{f32()}, "attribute To is invalid"},
		{"reshape", &Reshape{Shape: []int64{4}}, types{f32(3)}, "x is f32[3] of 3 elements, want 4 for shape [4]"},
		{"reshape below zero", &Reshape{Shape: []int64{-1}}, types{f32(3)}, "dimension 0 is -1"},
		{"perm length", &Transpose{Perm: one}, types{f32(2, 3)}, "Perm has 1 numbers"},
		{"perm twice", &Transpose{Perm: []int64{1, 1}}, types{f32(2, 3)}, "Perm is [1,1], want each axis of f32[2,3] once"},
		{"perm out of range", &Transpose{Perm: []int64{0, 2}}, types{f32(2, 3)}, "Perm is [0,2]"},
		{"concat of nothing", &Concat{}, nil, "no operands, want at least 1"},
		{"concat scalar", &Concat{}, types{f32()}, "axis is 0"},
		{"concat shapes", &Concat{Axis: 1}, types{f32(2, 3), f32(3, 3)}, "operand 1 is f32[3,3], want the type of operand 0, f32[2,3], except on axis 1"},
		{"concat too big", &Concat{}, types{f32(huge - 1), f32(huge - 1), f32(huge - 1)}, "is too big"},
		{"slice beyond", &Slice{[]int64{1}, []int64{3}, one}, types{f32(3)}, "axis 0: 3 elements from 1 in steps of 1 do not lie inside x of type f32[3]"},
		{"slice below", &Slice{[]int64{1}, []int64{3}, []int64{-1}}, types{f32(3)}, "do not lie inside"},
		{"slice step 0", &Slice{[]int64{0}, []int64{1}, []int64{0}}, types{f32(3)}, "do not lie inside"},
		{"slice step lowest", &Slice{[]int64{2}, []int64{2}, []int64{math.MinInt64}}, types{f32(3)}, "do not lie inside"},
		{"pad mode", &Pad{Before: one, After: one}, types{f32(3)}, `attribute Mode is ""`},
		{"pad value where none is", &Pad{one, one, PadEdge}, types{f32(3), f32()}, "2 operands, want 1 (x)"},
		{"crop", &Pad{[]int64{-2}, []int64{-2}, PadConstant}, types{f32(3)}, "axis 0: cropping 2 and 2 elements is more than x of type f32[3] has"},
		{"pad from nothing", &Pad{one, one, PadWrap}, types{f32(0)}, "there is nothing in x of type f32[0] to fill 2 elements from"},
		{"pad overflow", &Pad{[]int64{math.MaxInt64}, one, PadConstant}, types{f32(3)}, "attribute Before[0] is 9223372036854775807"},
		{"gather index type", &Gather{}, types{f32(3), typ(U8)}, "indices is u8[], want elements of type i32 or i64"},
		{"gather axis", &Gather{Axis: 1}, types{f32(3), typ(I32)}, "axis is 1, want 0 to 0 for x of type f32[3]"},
		{"expand", &Expand{Shape: []int64{3}}, types{f32(2, 3)}, "x is f32[2,3], want a shape that broadcasts to [3]"},
		{"expand below zero", &Expand{Shape: []int64{-1}}, types{f32(1)}, "dimension 0 is -1"},
		{"matmul scalar", &MatMul{}, types{f32(), f32(3)}, "a is f32[], want at least 1 dimensions"},
		{"matmul inner", &MatMul{}, types{f32(2, 3), f32(4, 3)}, "want as many columns of a as rows of b: 3 and 4"},
		{"matmul leading", &MatMul{}, types{f32(2, 1, 1), f32(3, 1, 1)}, "leading axes: shapes [2] and [3] do not broadcast"},
		{"gemm rank", &Gemm{}, types{f32(2), f32(2, 2)}, "want 2 dimensions each"},
		{"gemm c", &Gemm{}, types{f32(2, 3), f32(3, 4), f32(2)}, "c is f32[2], want a shape that broadcasts to [2,4]"},
		{"gemm inner", &Gemm{TransB: true}, types{f32(2, 3), f32(3, 4)}, "as many columns of a as rows of b: 3 and 4"},
		{"conv rank", &Conv{Group: 1}, types{f32(2, 3), f32(2, 3)}, "want 3 to 5 dimensions"},
		{"conv group", &Conv{}, types{f32(1, 2, 3), f32(2, 2, 1)}, "attribute Group is 0, want a number that divides the 2 channels of x and the 2 of w"},
		{"conv channels", &Conv{Group: 1}, types{f32(1, 2, 3), f32(2, 1, 1)}, "w is f32[2,1,1], want 2 channels in dimension 1"},
		{"conv bias", &Conv{Group: 1}, types{f32(1, 2, 3), f32(2, 2, 1), f32(3)}, "b is f32[3], want shape [2]"},
		{"conv strides", &Conv{Group: 1}, types{f32(1, 2, 3), f32(2, 2, 1)}, "attribute Strides has 0 numbers, want one for each of 1 axes"},
		{"kernel too big", &Conv{Strides: one, Dilations: []int64{3}, PadsBegin: one, PadsEnd: one, Group: 1}, types{f32(1, 2, 3), f32(2, 2, 3)}, "a kernel that spans 7 is larger than the input's 3 with padding 1 and 1"},
		{"dilation overflow", &Conv{Strides: one, Dilations: []int64{1<<40 - 1}, PadsBegin: one, PadsEnd: one, Group: 1}, types{f32(1, 1, 3), f32(1, 1, 1<<30)}, "is larger than the input's 3"},
		{"pool of bools", &MaxPool{}, types{typ(Bool, 1, 1, 1)}, "x is bool[1,1,1]"},
		{"pool rank", &AveragePool{}, types{f32(2, 3)}, "want at least 3 dimensions"},
		{"pool kernel 0", &MaxPool{Kernel: []int64{0}, Strides: one, Dilations: one, PadsBegin: one, PadsEnd: one}, types{f32(1, 1, 3)}, "attribute Kernel[0] is 0, want at least 1"},
		{"batch norm", &BatchNorm{}, types{f32(2, 3), f32(3), f32(3), f32(2), f32(3)}, "mean is f32[2], want shape [3]"},
		{"softmax", &Softmax{Axis: -1}, types{f32(2)}, "axis is -1, want 0 to 0"},
		{"layer norm", &LayerNorm{}, types{f32(2), f32(2), f32(3)}, "bias is f32[3], want a shape that broadcasts to x of type f32[2]"},
		{"reduction", &Reduce{Fn: "median"}, types{f32(2)}, `there is no reduction "median"`},
		{"reduce axes", &Reduce{Fn: ReduceSum, Axes: []int64{1, 0}}, types{f32(2, 3)}, "sum: Axes is [1,0], want ascending axes"},
		{"lstm direction", &LSTM{}, types{f32(1, 1, 1), f32(), f32()}, `attribute Direction is ""`},
		{"lstm hidden", &LSTM{Direction: "forward"}, types{f32(1, 1, 1), f32(), f32()}, "attribute Hidden is 0"},
		{"lstm activations", &LSTM{Direction: "forward", Hidden: 1}, types{f32(1, 1, 1), f32(), f32()}, "have 0, 0 and 0 entries, want 3 each"},
		{"lstm activation", &LSTM{Direction: "forward", Hidden: 1, Activations: []string{"Tanh", "tanh", "Tanh"}, ActAlpha: make([]float64, 3), ActBeta: make([]float64, 3)},
			types{f32(1, 1, 1), f32(), f32()}, `there is no activation "tanh"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := tt.op.Infer(tt.in)
			require.ErrorContains(t, err, tt.want)
		})
	}
}

// ONNX's definition of a pooling's output size: every window starts inside the
// input or the padding before it, and one more window would not.
func TestPoolSize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := func(lo, hi int64, name string) int64 { return rapid.Int64Range(lo, hi).Draw(t, name) }
		size, k, stride, dil := n(1, 20, "size"), n(1, 5, "kernel"), n(1, 6, "stride"), n(1, 3, "dilation")
		begin, end := n(0, 4, "begin"), n(0, 4, "end")
		for _, ceil := range []bool{false, true} {
			out, err := (&windows{[]int64{k}, []int64{stride}, []int64{dil}, []int64{begin}, []int64{end}, ceil}).output([]int64{size})
			span := (k-1)*dil + 1
			padded := size + begin + end
			if span > padded {
				require.Error(t, err)
				continue
			}
			require.NoError(t, err)
			want := int64(math.Floor(float64(padded-span)/float64(stride))) + 1
			if ceil {
				want = int64(math.Ceil(float64(padded-span)/float64(stride))) + 1
				if (want-1)*stride >= size+begin {
					want--
				}
			}
			require.Equal(t, want, out[0], "ceil %t", ceil)
		}
	})
}

func TestTensorType(t *testing.T) {
	tests := []struct {
		t        TensorType
		s        string
		elements int64
		bytes    int64
	}{
		{f32(), "f32[]", 1, 4},
		{f32(4, 10), "f32[4,10]", 40, 160},
		{typ(F16, 0, 3), "f16[0,3]", 0, 0},
		{typ(I4, 3), "i4[3]", 3, 3},
		{none, "invalid[]", 1, 0},
		{f32(-1), "f32[-1]", -1, -1},
		{f32(1<<30, 1<<30), "f32[1073741824,1073741824]", -1, -1},
	}
	for _, tt := range tests {
		require.Equal(t, tt.s, tt.t.String())
		require.Equal(t, tt.elements, tt.t.Elements(), tt.s)
		require.Equal(t, tt.bytes, tt.t.Bytes(), tt.s)
		require.True(t, tt.t.Equal(tt.t))
	}
	require.False(t, f32(2).Equal(f32(2, 1)))
	require.False(t, f32(2).Equal(typ(F64, 2)))
}
