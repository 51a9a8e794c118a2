package graph

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func init() {
	type types = []TensorType
	i64, i32, u8, i8 := func(s ...int64) TensorType { return typ(I64, s...) }, func(s ...int64) TensorType { return typ(I32, s...) },
		func(s ...int64) TensorType { return typ(U8, s...) }, func(s ...int64) TensorType { return typ(I8, s...) }
	familyCases = append(familyCases, []inferCase{
		{"gather elements", &GatherElements{Axis: 1}, types{f32(2, 3), i64(1, 9)}, types{f32(1, 9)}},
		{"gather slices", &GatherND{BatchDims: 1}, types{f32(2, 3, 4, 5), i32(2, 7, 2)}, types{f32(2, 7, 5)}},
		{"gather slices by nothing", &GatherND{}, types{f32(2), i64(3, 0)}, types{f32(3, 2)}},
		{"scatter elements", &ScatterElements{Axis: 0, Fn: ScatterAdd}, types{f32(2, 3), i64(4, 1), f32(4, 1)}, types{f32(2, 3)}},
		{"scatter slices", &ScatterND{Fn: ScatterNone}, types{typ(Bool, 4, 3), i64(2, 5, 1), typ(Bool, 2, 5, 3)}, types{typ(Bool, 4, 3)}},
		{"one hot", &OneHot{Axis: 1, Depth: 9}, types{i64(2, 3), typ(F16, 2)}, types{typ(F16, 2, 9, 3)}},
		{"arg max", &ArgMax{Axis: 1}, types{u8(2, 3, 4)}, types{i64(2, 4)}},
		{"arg min, keep", &ArgMax{Axis: 0, Min: true, KeepDims: true}, types{f32(2, 3)}, types{i64(1, 3)}},
		{"arg max without lanes", &ArgMax{Axis: 0}, types{f32(0, 0)}, types{i64(0)}},
		{"top k", &TopK{Axis: 1, K: 2}, types{f32(2, 3)}, types{f32(2, 2), i64(2, 2)}},
		{"non-zero", &NonZero{Bound: 7}, types{typ(Bool, 2, 3)}, types{i64(2, 7), i64()}},
		{"suppression", &NonMaxSuppression{Most: 5, Bound: 9}, types{f32(2, 5, 4), f32(2, 3, 5), i64(), TensorType{}, f32(1)}, types{i64(9, 3), i64()}},
		{"unique", &Unique{}, types{typ(Bool, 4, 2), i64(1)}, types{i64(4), i64(4), i64(4), i64()}},
		{"cumulate", &Cumulate{Fn: CumulateSum, Axis: 0}, types{i32(0)}, types{i32(0)}},
		{"n-grams", &TfIdf{MinGram: 1, MaxGram: 2, Counts: []int64{0, 2}, Pool: []int64{7, 8, 7, 8}, Columns: []int64{0, 4, 1}},
			types{i32(3, 9)}, types{f32(3, 5)}},
		{"bitwise", &Bitwise{Fn: BitXor}, types{i8(2, 1), i8(3)}, types{i8(2, 3)}},
		{"mod", &Mod{}, types{f32(2), f32()}, types{f32(2)}},
		{"field", &Field{Handle: "h", Offset: 8, To: F32, Shape: []int64{2}}, types{typ(U64, 2)}, types{f32(2)}},
		{"field of one", &Field{Handle: "h", Offset: 15, To: Bool}, types{typ(U64, 2)}, types{typ(Bool)}},
		{"field of nothing", &Field{Handle: "h", Offset: 16, To: F64, Shape: []int64{0, 3}}, types{typ(U64, 2)}, types{typ(F64, 0, 3)}},
		{"bit cast", &BitCast{To: U16}, types{typ(BF16, 2)}, types{typ(U16, 2)}},
		{"quantise", &Quantize{To: U8, Precision: F32}, types{f32(2, 3), f32(1), u8(1)}, types{u8(2, 3)}},
		{"quantise by axis", &Quantize{Axis: 1, To: I4, Precision: F16}, types{typ(I32, 2, 3), typ(F16, 3)}, types{typ(I4, 2, 3)}},
		{"dequantise by block", &Dequantize{Axis: 1, Block: 2, To: BF16}, types{i8(2, 5), f32(2, 3), i8(2, 3)}, types{typ(BF16, 2, 5)}},
	}...)
}

func TestInferIndexErrors(t *testing.T) {
	type types = []TensorType
	i64 := func(s ...int64) TensorType { return typ(I64, s...) }
	grams := func(counts, columns []int64) *TfIdf {
		return &TfIdf{MinGram: 1, MaxGram: 2, Counts: counts, Pool: []int64{1, 2, 3}, Columns: columns}
	}
	tests := []struct {
		name string
		op   Op
		in   types
		want string
	}{
		{"gather of floats", &GatherElements{}, types{f32(2), f32(2)}, "indices is f32[2], want elements of type i32 or i64"},
		{"gather too wide", &GatherElements{}, types{f32(2, 3), i64(1, 4)}, "indices is i64[1,4], want the rank of x"},
		{"gather axis", &GatherElements{Axis: 1}, types{f32(2), i64(2)}, "axis is 1, want 0 to 0"},
		{"coordinates", &GatherND{BatchDims: 1}, types{f32(2, 3), i64(2, 2)}, "want at most 1 coordinates"},
		{"batches", &GatherND{BatchDims: 1}, types{f32(2, 3), i64(3, 1)}, "attribute BatchDims is 1"},
		{"batches beyond", &GatherND{BatchDims: 3}, types{f32(2, 3), i64(2, 3, 1, 1)}, "attribute BatchDims is 3"},
		{"updates", &ScatterElements{Fn: ScatterNone}, types{f32(2), i64(2), f32(1)}, "updates is f32[1], want shape [2]"},
		{"bad fold", &ScatterElements{Fn: "sub"}, types{f32(2), i64(2), f32(2)}, `attribute Fn is "sub"`},
		{"fold of bools", &ScatterND{Fn: ScatterAdd}, types{typ(Bool, 2), i64(1, 1), typ(Bool, 1)}, "x is bool[2]"},
		{"slices", &ScatterND{Fn: ScatterNone}, types{f32(2, 3), i64(1, 1), f32(1)}, "updates is f32[1], want shape [1,3]"},
		{"depth", &OneHot{Depth: -1}, types{i64(2), f32(2)}, "attribute Depth is -1"},
		{"too deep", &OneHot{Depth: 1 << 39}, types{i64(8), f32(2)}, "too big"},
		{"values", &OneHot{}, types{i64(2), f32(3)}, "values is f32[3], want shape [2]"},
		{"nothing to choose", &ArgMax{}, types{f32(0, 2)}, "want at least one element along axis 0"},
		{"half", &ArgMax{}, types{typ(F16, 2)}, "x is f16[2]"},
		{"more than there are", &TopK{K: 3}, types{f32(2)}, "attribute K is 3, want 0 to 2"},
		{"non-zero of floats", &NonZero{}, types{f32(2)}, "x is f32[2], want elements of type bool"},
		{"no bound", &NonZero{Bound: -1}, types{typ(Bool, 2)}, "attribute Bound is -1"},
		{"boxes", &NonMaxSuppression{}, types{f32(2, 5, 4), f32(2, 3, 6)}, "want f32[batch,boxes,4] and f32[batch,classes,boxes]"},
		{"too many boxes", &NonMaxSuppression{}, types{f32(0, 1<<31, 4), f32(0, 3, 1<<31)}, "want less than 2^31 boxes"},
		{"most", &NonMaxSuppression{Most: 6}, types{f32(2, 5, 4), f32(2, 3, 5)}, "attribute Most is 6, want 0 to 5"},
		{"threshold", &NonMaxSuppression{}, types{f32(2, 5, 4), f32(2, 3, 5), i64(), f32(2)}, "operand 3 (overlap) is f32[2], want one f32"},
		{"bound of suppression", &NonMaxSuppression{Bound: 1 << 40}, types{f32(2, 5, 4), f32(2, 3, 5)}, "attribute Bound is 1099511627776"},
		{"unique of a scalar", &Unique{}, types{f32()}, "want at least 1 dimensions"},
		{"unique of halves", &Unique{}, types{typ(F16, 2)}, "x is f16[2]"},
		{"unique of some", &Unique{}, types{f32(2), i64(2)}, "count is i64[2], want one i64"},
		{"bad function", &Cumulate{Fn: "max"}, types{f32(2)}, `attribute Fn is "max"`},
		{"counts", grams([]int64{0, 4}, nil), types{i64(2)}, "attribute Counts is [0,4]"},
		{"counts descend", grams([]int64{2, 1}, nil), types{i64(2)}, "attribute Counts is [2,1]"},
		{"columns", grams([]int64{0, 1}, []int64{0}), types{i64(2)}, "attribute Columns has 1 numbers, want one for each of 2"},
		{"shift of signed", &Bitwise{Fn: ShiftLeft}, types{i64(2), i64(2)}, "want elements of type an unsigned integer"},
		{"bits of two sizes", &BitCast{To: U8}, types{f32(2)}, "attribute To is u8, want a type of 4 bytes"},
		{"field without a handle", &Field{To: F32}, types{typ(U64, 2)}, "attribute Handle is empty"},
		{"field between elements", &Field{Handle: "h", Offset: 6, To: F32}, types{typ(U64, 2)}, "attribute Offset is 6, want a multiple of the 4 bytes"},
		{"field before", &Field{Handle: "h", Offset: -4, To: F32}, types{typ(U64, 2)}, "attribute Offset is -4"},
		{"field behind", &Field{Handle: "h", Offset: 12, To: F32, Shape: []int64{2}}, types{typ(U64, 2)}, "f32[2] from byte 12 on ends behind x, u64[2] of 16 bytes"},
		{"field far behind", &Field{Handle: "h", Offset: 1 << 62, To: F32, Shape: []int64{2}}, types{typ(U64, 2)}, "ends behind x"},
		{"field of no type", &Field{Handle: "h", Shape: []int64{2}}, types{typ(U64, 2)}, "element type invalid"},
		{"scale", &Quantize{To: U8, Precision: F32}, types{f32(2, 3), f32(3)}, "scale is f32[3], want shape [2]"},
		{"zero point", &Quantize{To: U8, Precision: F32}, types{f32(2, 3), f32(), typ(I8)}, "zero point is i8[]"},
		{"precision", &Quantize{To: U8, Precision: I8}, types{f32(2), f32()}, "attribute Precision is i8"},
		{"blocks", &Dequantize{Block: 2, To: F32}, types{typ(I8, 5), f32(2)}, "scale is f32[2], want shape [3]"},
		{"huge block", &Dequantize{Block: 1 << 62, To: F32}, types{typ(I8, 5), f32(1)}, "attribute Block"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := tt.op.Infer(tt.in)
			require.ErrorContains(t, err, tt.want)
		})
	}
}
