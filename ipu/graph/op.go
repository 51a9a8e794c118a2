package graph

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
)

// ErrNotFolded is wrapped by the error of what computes operators at compile time where an
// operator is better left to the executable.
var ErrNotFolded = errors.New("not computed at compile time")

// Op is an operator with its attributes: a pointer to one of this package's
// operator structs. Attributes are the struct's exported fields; their types
// are bool, int64, float64, string (and named strings), []int64, []float64,
// []string, [DType] and [GraphID].
type Op interface {
	// Kind is the operator's name in the encoding and in messages.
	Kind() string
	// Infer checks the operands' types and shapes and returns those of the
	// results. A left-out operand has the zero TensorType (DType Invalid).
	// It returns a type for every result the operator can have; a node may
	// leave trailing results out. The result's shapes may share memory with
	// the operands' and the attributes': a shape is never changed in place.
	Infer(in []TensorType) ([]TensorType, error)
}

// operators makes an operator without attributes by its kind.
var operators = func() map[string]func() Op {
	makers := map[string]func() Op{}
	for _, op := range []Op{
		new(ArgMax), new(Assert), new(AssertLabels), new(Attention), new(AttentionGradient), new(AveragePool), new(BatchNorm), new(Binary),
		new(BitCast), new(Bitwise), new(Cast), new(Clip), new(Col2Im), new(Concat), new(Conv), new(ConvTranspose), new(ConvWeightGradient),
		new(Cumulate), new(DFT), new(DeformConv), new(Dequantize), new(Det), new(Expand), new(Field), new(GRU),
		new(Gather), new(GatherElements), new(GatherND), new(Gemm), new(Gradient), new(GridSample),
		new(GroupNorm), new(If),
		new(IntegerConv), new(IntegerMatMul), new(LRN), new(LSTM), new(LayerNorm), new(LinearAttention), new(Loop),
		new(LpPool), new(MatMul), new(MaxPool), new(MaxRoiPool), new(MaxUnpool), new(Mod), new(NonMaxSuppression),
		new(NonZero), new(OneHot), new(Pad), new(Pointwise), new(Quantize), new(RMSNorm), new(RNN), new(Random), new(RecurrentGradient),
		new(Reduce), new(Reshape), new(Resize), new(RoiAlign), new(RoiAlignGradient), new(ScatterElements), new(ScatterND), new(Slice),
		new(Softmax), new(TfIdf), new(TopK), new(Transpose), new(Unary), new(Unique), new(Update),
		new(ViewedAttention), new(Where),
	} {
		t := reflect.TypeOf(op).Elem()
		makers[op.Kind()] = func() Op { return reflect.New(t).Interface().(Op) }
	}
	return makers
}()

// NewOp returns an operator of the given kind with all attributes zero, or nil
// if there is no such operator.
func NewOp(kind string) Op {
	if f := operators[kind]; f != nil {
		return f()
	}
	return nil
}

// Kinds returns the kinds of all operators, sorted.
func Kinds() []string {
	kinds := make([]string, 0, len(operators))
	for k := range operators {
		kinds = append(kinds, k)
	}
	slices.Sort(kinds)
	return kinds
}

// OpString returns an operator with the attributes that are not zero, as in
// "Reduce{Fn:max Axes:[1] KeepDims:true}".
func OpString(op Op) string {
	s := reflect.ValueOf(op).Elem()
	var attrs []string
	for i := range s.NumField() {
		if f := s.Field(i); !ZeroAttribute(f) {
			attrs = append(attrs, fmt.Sprintf("%s:%v", s.Type().Field(i).Name, f.Interface()))
		}
	}
	if len(attrs) == 0 {
		return op.Kind()
	}
	return op.Kind() + "{" + strings.Join(attrs, " ") + "}"
}

// ZeroAttribute reports whether an attribute has the value that it has when it is left
// out. Other than reflect's IsZero it takes an empty list for zero and -0.0 for
// something else.
func ZeroAttribute(f reflect.Value) bool {
	switch f.Kind() {
	case reflect.Slice:
		return f.Len() == 0
	case reflect.Float64:
		return math.Float64bits(f.Float()) == 0
	}
	return f.IsZero()
}

// operands checks how many operands there are and that the types of those
// present are usable, and returns them with one entry for every name. A name
// that ends in "?" may be left out.
func operands(in []TensorType, names ...string) ([]TensorType, error) {
	required := 0
	for i, n := range names {
		if !strings.HasSuffix(n, "?") {
			required = i + 1
		}
	}
	if len(in) < required || len(in) > len(names) {
		want := fmt.Sprint(required)
		if required < len(names) {
			want = fmt.Sprintf("%d to %d", required, len(names))
		}
		return nil, fmt.Errorf("%d operands, want %s (%s)", len(in), want, strings.Join(names, ", "))
	}
	all := make([]TensorType, len(names))
	copy(all, in)
	for i, t := range all {
		name, optional := strings.CutSuffix(names[i], "?")
		if !present(t) {
			if !optional {
				return nil, fmt.Errorf("operand %d (%s) is left out, but it is needed", i, name)
			}
			continue
		}
		if err := t.Check(); err != nil {
			return nil, fmt.Errorf("operand %d (%s): %w", i, name, err)
		}
	}
	return all, nil
}

// present reports whether an operand was given.
func present(t TensorType) bool { return t.DType != Invalid }

// results checks that the results are of usable types and returns them.
func results(out ...TensorType) ([]TensorType, error) {
	for i, t := range out {
		if err := t.Check(); err != nil {
			return nil, fmt.Errorf("result %d: %w", i, err)
		}
	}
	return out, nil
}

// typeSet is a set of element types with the words that describe it.
type typeSet struct {
	words string
	types []DType
}

// The sets of element types that operators compute with. The narrow integers
// and the 8-bit floats are storage only: they are moved and cast.
var (
	floats   = typeSet{"f16, bf16, f32 or f64", []DType{F16, BF16, F32, F64}}
	bools    = typeSet{"bool", []DType{Bool}}
	indices  = typeSet{"i32 or i64", []DType{I32, I64}}
	products = typeSet{"f16, bf16, f32, f64, i32, u32, i64 or u64", []DType{F16, BF16, F32, F64, I32, U32, I64, U64}}
	signed   = typeSet{"i8, i16, i32, i64, f16, bf16, f32 or f64", []DType{I8, I16, I32, I64, F16, BF16, F32, F64}}
	numeric  = typeSet{"an integer of 8 bits or more, f16, bf16, f32 or f64",
		[]DType{I8, U8, I16, U16, I32, U32, I64, U64, F16, BF16, F32, F64}}
	equatable = typeSet{"bool, an integer of 8 bits or more, f16, bf16, f32 or f64", append([]DType{Bool}, numeric.types...)}
)

// want checks an operand's element type.
func (s typeSet) want(name string, t TensorType) error {
	if slices.Contains(s.types, t.DType) {
		return nil
	}
	return fmt.Errorf("%s is %v, want elements of type %s", name, t, s.words)
}

// sameType checks that an operand that is present has x's element type.
func sameType(name string, t, x TensorType) error {
	if present(t) && t.DType != x.DType {
		return fmt.Errorf("%s is %v, want elements of type %v like the first operand's", name, t, x.DType)
	}
	return nil
}

// wantShape checks an operand's shape, if it is present.
func wantShape(name string, t TensorType, shape ...int64) error {
	if present(t) && !slices.Equal(t.Shape, shape) {
		return fmt.Errorf("%s is %v, want shape %s", name, t, ShapeString(shape))
	}
	return nil
}

// wantRank checks that an operand has at least the given rank.
func wantRank(name string, t TensorType, rank int) error {
	if len(t.Shape) < rank {
		return fmt.Errorf("%s is %v, want at least %d dimensions", name, t, rank)
	}
	return nil
}

// wantAxis checks an axis of an operand.
func wantAxis(axis int64, name string, t TensorType) error {
	if axis < 0 || axis >= int64(len(t.Shape)) {
		return fmt.Errorf("axis is %d, want 0 to %d for %s of type %v", axis, len(t.Shape)-1, name, t)
	}
	return nil
}

// perAxis checks that an attribute has one number for each of n axes and that
// every number is at least low and below [MaxTensorBytes].
func perAxis(attr string, v []int64, n int, low int64) error {
	if len(v) != n {
		return fmt.Errorf("attribute %s has %d numbers, want one for each of %d axes", attr, len(v), n)
	}
	for i, x := range v {
		if x < low || x >= MaxTensorBytes {
			return fmt.Errorf("attribute %s[%d] is %d, want at least %d and less than 2^40", attr, i, x, low)
		}
	}
	return nil
}

// firstError returns the first error that is not nil.
func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
