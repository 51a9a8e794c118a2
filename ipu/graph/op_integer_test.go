package graph

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func integerConvOp(to DType) *IntegerConv {
	ones := []int64{1, 1}
	return &IntegerConv{Strides: ones, Dilations: ones, PadsBegin: ones, PadsEnd: ones, Group: 2, To: to}
}

func init() {
	type types = []TensorType
	u8, i8, i32 := func(s ...int64) TensorType { return typ(U8, s...) }, func(s ...int64) TensorType { return typ(I8, s...) },
		func(s ...int64) TensorType { return typ(I32, s...) }
	familyCases = append(familyCases, []inferCase{
		{"integer matmul", &IntegerMatMul{To: I32}, types{u8(2, 3), i8(3, 4)}, types{i32(2, 4)}},
		{"integer matmul, broadcast", &IntegerMatMul{To: F32}, types{u8(5, 2, 3), i8(3, 4), u8(), i8(4), i32(4), f32(4), f32()}, types{f32(5, 2, 4)}},
		{"integer matmul of vectors", &IntegerMatMul{To: U8, Bounded: true, High: 6}, types{u8(3), i8(3), none, none, none, f32(1), none, u8(1)}, types{u8()}},
		{"integer conv", integerConvOp(I8), types{i8(1, 4, 5, 5), u8(6, 2, 3, 3), i8(), u8(6), i32(6), f32(6), f32(6), i8()}, types{i8(1, 6, 5, 5)}},
	}...)
}

func TestInferIntegerErrors(t *testing.T) {
	type types = []TensorType
	u8, i8, i32 := func(s ...int64) TensorType { return typ(U8, s...) }, func(s ...int64) TensorType { return typ(I8, s...) },
		func(s ...int64) TensorType { return typ(I32, s...) }
	a, b := u8(2, 3), i8(3, 4)
	for _, tt := range []struct {
		name string
		op   Op
		in   types
		want string
	}{
		{"floats", &IntegerMatMul{To: I32}, types{f32(2, 3), b}, "a is f32[2,3], want elements of type i8 or u8"},
		{"shapes", &IntegerMatMul{To: I32}, types{a, i8(4, 4)}, "as many columns"},
		{"result", &IntegerMatMul{To: F16}, types{a, b}, "want elements of type i32, f32, i8 or u8"},
		{"zero point", &IntegerMatMul{To: I32}, types{a, b, i8()}, "zero point of the first operand is i8[], want elements of type u8"},
		{"zero points of rows", &IntegerMatMul{To: I32}, types{a, b, u8(2)}, "zero point of the first operand is u8[2], want one element"},
		{"zero points", &IntegerMatMul{To: I32}, types{a, b, none, i8(3)}, "zero point of the second operand is i8[3], want one element or 4"},
		{"bias", &IntegerMatMul{To: I32}, types{a, b, none, none, i32(1)}, "bias is i32[1], want i32[4]"},
		{"scale missing", &IntegerMatMul{To: F32}, types{a, b}, "attribute To is f32, want a scale"},
		{"scale of sums", &IntegerMatMul{To: I32}, types{a, b, none, none, none, f32()}, "attribute To is i32, want no scale"},
		{"bounds of sums", &IntegerMatMul{To: I32, Bounded: true}, types{a, b}, "attribute To is i32, want no scale"},
		{"zero point of floats", &IntegerMatMul{To: F32}, types{a, b, none, none, none, f32(), none, f32()}, "want no zero point"},
		{"bounds", &IntegerMatMul{To: U8, Bounded: true, Low: math.NaN()}, types{a, b, none, none, none, f32()}, "want numbers"},
		{"three axes", integerConvOp(I32), types{u8(1, 4, 5, 5, 5), i8(6, 2, 3, 3, 3)}, "want 3 or 4 dimensions"},
		{"channels", integerConvOp(I32), types{u8(1, 4, 5, 5), i8(6, 4, 3, 3)}, "w is"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := tt.op.Infer(tt.in)
			require.ErrorContains(t, err, tt.want)
		})
	}
}
