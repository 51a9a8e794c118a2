package graph

import "fmt"

// UnaryFn names an elementwise function of one operand.
type UnaryFn string

// The unary functions. α and β are [Unary.Alpha] and [Unary.Beta].
const (
	Abs         UnaryFn = "abs"
	Neg         UnaryFn = "neg"
	Sign        UnaryFn = "sign"
	Reciprocal  UnaryFn = "reciprocal"
	Floor       UnaryFn = "floor"
	Ceil        UnaryFn = "ceil"
	Round       UnaryFn = "round" // half to even
	Sqrt        UnaryFn = "sqrt"
	Exp         UnaryFn = "exp"
	Log         UnaryFn = "log"
	Erf         UnaryFn = "erf"
	Sin         UnaryFn = "sin"
	Cos         UnaryFn = "cos"
	Tan         UnaryFn = "tan"
	Asin        UnaryFn = "asin"
	Acos        UnaryFn = "acos"
	Atan        UnaryFn = "atan"
	Sinh        UnaryFn = "sinh"
	Cosh        UnaryFn = "cosh"
	Tanh        UnaryFn = "tanh"
	Asinh       UnaryFn = "asinh"
	Acosh       UnaryFn = "acosh"
	Atanh       UnaryFn = "atanh"
	Sigmoid     UnaryFn = "sigmoid"
	Relu        UnaryFn = "relu"
	LeakyRelu   UnaryFn = "leaky_relu"   // x<0 ? α·x : x
	HardSigmoid UnaryFn = "hard_sigmoid" // max(0, min(1, α·x+β))
	Softplus    UnaryFn = "softplus"
	Softsign    UnaryFn = "softsign"
	Elu         UnaryFn = "elu" // x<0 ? α·(exp(x)-1) : x
	Not         UnaryFn = "not" // Bool only
)

// Unary applies Fn to every element. Result: the operand's type and shape.
type Unary struct {
	Fn          UnaryFn
	Alpha, Beta float64
}

// BinaryFn names an elementwise function of two operands.
type BinaryFn string

// The binary functions. Comparisons give Bool; integer arithmetic wraps.
const (
	Add          BinaryFn = "add"
	Sub          BinaryFn = "sub"
	Mul          BinaryFn = "mul"
	Div          BinaryFn = "div" // integers: truncated; division by zero gives 0
	Pow          BinaryFn = "pow" // the exponent may have another type; result has the base's
	Max          BinaryFn = "max"
	Min          BinaryFn = "min"
	Equal        BinaryFn = "equal"
	Less         BinaryFn = "less"
	LessEqual    BinaryFn = "less_equal"
	Greater      BinaryFn = "greater"
	GreaterEqual BinaryFn = "greater_equal"
	And          BinaryFn = "and" // Bool
	Or           BinaryFn = "or"  // Bool
	Xor          BinaryFn = "xor" // Bool
)

// Binary applies Fn to pairs of elements, with numpy broadcasting.
type Binary struct{ Fn BinaryFn }

// Clip limits every element. Operands: x, min, max; min and max have one
// element of x's type, or are left out.
type Clip struct{}

// Where selects elementwise: operands cond (Bool), a, b with numpy
// broadcasting; a where cond is true.
type Where struct{}

// Cast converts elements. Float to integer truncates toward zero; to Bool is
// "not zero"; integer to narrower integer wraps; float to float rounds to
// nearest even.
type Cast struct{ To DType }

// unaryTypes says which element types each unary function computes with.
var unaryTypes = map[UnaryFn]typeSet{
	Abs: numeric, Neg: signed, Sign: numeric, Relu: signed, Not: bools,
	Reciprocal: floats, Floor: floats, Ceil: floats, Round: floats, Sqrt: floats,
	Exp: floats, Log: floats, Erf: floats,
	Sin: floats, Cos: floats, Tan: floats, Asin: floats, Acos: floats, Atan: floats,
	Sinh: floats, Cosh: floats, Tanh: floats, Asinh: floats, Acosh: floats, Atanh: floats,
	Sigmoid: floats, LeakyRelu: floats, HardSigmoid: floats, Softplus: floats, Softsign: floats, Elu: floats,
	Selu: floats, Celu: floats, ThresholdedRelu: floats, HardSwish: floats, Swish: floats, Mish: floats, Gelu: floats, GeluTanh: floats,
}

// Kind returns "Unary".
func (*Unary) Kind() string { return "Unary" }

// Infer implements [Op].
func (o *Unary) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x")
	if err != nil {
		return nil, err
	}
	types, ok := unaryTypes[o.Fn]
	if !ok {
		return nil, fmt.Errorf("there is no unary function %q", string(o.Fn))
	}
	if err := types.want("x", in[0]); err != nil {
		return nil, fmt.Errorf("%s: %w", o.Fn, err)
	}
	return results(in[0])
}

// binaryTypes says which element types each binary function computes with.
var binaryTypes = map[BinaryFn]typeSet{
	Add: numeric, Sub: numeric, Mul: numeric, Div: numeric, Pow: numeric, Max: numeric, Min: numeric, PRelu: numeric,
	Equal: equatable, Less: numeric, LessEqual: numeric, Greater: numeric, GreaterEqual: numeric,
	And: bools, Or: bools, Xor: bools,
}

// Compares reports whether the function's result is Bool whatever its
// operands are.
func (f BinaryFn) Compares() bool {
	switch f {
	case Equal, Less, LessEqual, Greater, GreaterEqual:
		return true
	}
	return false
}

// Kind returns "Binary".
func (*Binary) Kind() string { return "Binary" }

// Infer implements [Op].
func (o *Binary) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "a", "b")
	if err != nil {
		return nil, err
	}
	types, ok := binaryTypes[o.Fn]
	if !ok {
		return nil, fmt.Errorf("there is no binary function %q", string(o.Fn))
	}
	err = types.want("a", in[0])
	if o.Fn == Pow {
		err = firstError(err, types.want("b", in[1]))
	} else {
		err = firstError(err, sameType("b", in[1], in[0]))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Fn, err)
	}
	shape, err := Broadcast(in[0].Shape, in[1].Shape)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Fn, err)
	}
	out := TensorType{in[0].DType, shape}
	if o.Fn.Compares() {
		out.DType = Bool
	}
	return results(out)
}

// Kind returns "Clip".
func (*Clip) Kind() string { return "Clip" }

// Infer implements [Op].
func (*Clip) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x", "min?", "max?")
	if err != nil {
		return nil, err
	}
	err = firstError(numeric.want("x", in[0]),
		sameType("min", in[1], in[0]), wantOne("min", in[1]),
		sameType("max", in[2], in[0]), wantOne("max", in[2]))
	if err != nil {
		return nil, err
	}
	return results(in[0])
}

// wantOne checks that an operand, if present, has exactly one element.
func wantOne(name string, t TensorType) error {
	if present(t) && t.Elements() != 1 {
		return fmt.Errorf("%s is %v, want one element", name, t)
	}
	return nil
}

// Kind returns "Where".
func (*Where) Kind() string { return "Where" }

// Infer implements [Op].
func (*Where) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "cond", "a", "b")
	if err != nil {
		return nil, err
	}
	if err := bools.want("cond", in[0]); err != nil {
		return nil, err
	}
	if in[1].DType != in[2].DType {
		return nil, fmt.Errorf("a is %v and b is %v, want the same element type", in[1], in[2])
	}
	shape, err := Broadcast(in[0].Shape, in[1].Shape, in[2].Shape)
	if err != nil {
		return nil, err
	}
	return results(TensorType{in[1].DType, shape})
}

// Kind returns "Cast".
func (*Cast) Kind() string { return "Cast" }

// Infer implements [Op].
func (o *Cast) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x")
	if err != nil {
		return nil, err
	}
	if !o.To.Valid() {
		return nil, fmt.Errorf("attribute To is %v, want an element type", o.To)
	}
	return results(TensorType{o.To, in[0].Shape})
}
