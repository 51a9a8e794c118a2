package graph

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func init() {
	familyCases = append(familyCases, inferCase{"pointwise", &Pointwise{Fns: []string{"exp", "clip", "add"}, Args: []int64{0, 2, -1, 1, 3, 2},
		Alpha: make([]float64, 3), Beta: make([]float64, 3)}, []TensorType{f32(2, 1), f32(3)}, []TensorType{f32(2, 3)}})
}

func TestPointwiseErrors(t *testing.T) {
	one := []TensorType{f32(2)}
	p := func(fn string, args ...int64) *Pointwise {
		return &Pointwise{Fns: []string{fn}, Args: args, Alpha: []float64{0}, Beta: []float64{0}}
	}
	for want, c := range map[string]struct {
		op *Pointwise
		in []TensorType
	}{
		"0 operands, want 1 to 12":                                  {p("exp", 0), nil},
		"operand 0 is f64[2], want elements of one type":            {p("exp", 0), []TensorType{typ(F64, 2)}},
		"operand 1 is f16[2], want elements of one type":            {p("add", 0, 1), []TensorType{f32(2), typ(F16, 2)}},
		"0 functions with 0 and 0 numbers":                          {&Pointwise{}, one},
		`instruction 0: there is no function "less" of f32`:         {p("less", 0, 0), one},
		`instruction 0: there is no function "not" of f32`:          {p("not", 0), one},
		"instruction 0 (add): attribute Args has 1 numbers":         {p("add", 0), one},
		"instruction 0 (exp): argument 0 is value 1, want 0 to 0":   {p("exp", 1), one},
		"instruction 0 (clip): argument 0 is value -1, want 0 to 0": {p("clip", -1, 0, 0), one},
		"attribute Args has 2 numbers, want 1":                      {p("exp", 0, 0), one},
		"shapes [2] and [3] do not broadcast":                       {p("add", 0, 1), []TensorType{f32(2), f32(3)}},
	} {
		_, err := c.op.Infer(c.in)
		require.ErrorContains(t, err, want)
	}
}

func TestBoundedConvErrors(t *testing.T) {
	c := &Conv{Strides: []int64{1}, Dilations: []int64{1}, PadsBegin: []int64{0}, PadsEnd: []int64{0}, Group: 1, Bounded: true}
	_, err := c.Infer([]TensorType{typ(F64, 1, 1, 3), typ(F64, 1, 1, 1)})
	require.ErrorContains(t, err, "want elements of type f32, f16 or bf16 where attribute Bounded is set")
	c.High = math.NaN()
	_, err = c.Infer([]TensorType{f32(1, 1, 3), f32(1, 1, 1)})
	require.ErrorContains(t, err, "attributes Low and High are 0 and NaN, want numbers")
}

func TestBoundedGemmErrors(t *testing.T) {
	g := &Gemm{Bounded: true}
	_, err := g.Infer([]TensorType{typ(I32, 2, 3), typ(I32, 3, 2)})
	require.ErrorContains(t, err, "a is i32[2,3], want elements of type f32, f16 or bf16 where attribute Bounded is set")
	g.Low = math.NaN()
	_, err = g.Infer([]TensorType{f32(2, 3), f32(3, 2)})
	require.ErrorContains(t, err, "attributes Low and High are NaN and 0, want numbers")
}
