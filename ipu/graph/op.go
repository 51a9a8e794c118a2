package graph

// Op is an operator with its attributes: a pointer to one of this package's
// operator structs. Attributes are the struct's exported fields; their types
// are bool, int64, float64, string (and named strings), []int64, []float64,
// []string and [GraphID].
type Op interface {
	// Kind is the operator's name in the encoding and in messages.
	Kind() string
	// Infer checks the operands' types and shapes and returns those of the
	// results. A left-out operand has the zero TensorType (DType Invalid).
	// It returns a type for every result the operator can have; a node may
	// leave trailing results out.
	Infer(in []TensorType) ([]TensorType, error)
}

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

// Clip limits every element. Operands: x, min, max; min and max are scalars
// of x's type, or left out.
type Clip struct{}

// Where selects elementwise: operands cond (Bool), a, b with numpy
// broadcasting; a where cond is true.
type Where struct{}

// Cast converts elements. Float to integer truncates toward zero; to Bool is
// "not zero"; integer to narrower integer wraps; float to float rounds to
// nearest even.
type Cast struct{ To DType }

// Reshape gives x another shape with as many elements. It moves no data.
type Reshape struct{ Shape []int64 }

// Transpose permutes axes: result axis i is operand axis Perm[i].
type Transpose struct{ Perm []int64 }

// Concat joins its operands along Axis (0 ≤ Axis < rank).
type Concat struct{ Axis int64 }

// Slice takes, on every axis i, Size[i] elements starting at Start[i] with
// stride Step[i] (not 0, may be negative). All three have the operand's rank
// and every index lies inside the operand.
type Slice struct{ Start, Size, Step []int64 }

// PadMode says what [Pad] fills with.
type PadMode string

// The padding modes of ONNX's Pad.
const (
	PadConstant PadMode = "constant"
	PadReflect  PadMode = "reflect"
	PadEdge     PadMode = "edge"
	PadWrap     PadMode = "wrap"
)

// Pad adds Before[i] and After[i] elements on axis i; negative numbers crop.
// Operands: x and, for PadConstant, the scalar to fill with (left out: zero).
type Pad struct {
	Before, After []int64
	Mode          PadMode
}

// Gather picks slices of x (operand 0) along Axis by index (operand 1, I32 or
// I64; negative indices count from the end; others out of range end the run
// with an error).
type Gather struct{ Axis int64 }

// Expand broadcasts x to Shape by numpy's rules, one way.
type Expand struct{ Shape []int64 }

// MatMul is the matrix product with numpy's matmul rules for rank 1 operands
// and for broadcasting the leading axes.
type MatMul struct{}

// Gemm computes Alpha·A'·B' + Beta·C with A' and B' transposed on demand, A'
// [M,K], B' [K,N] and C left out or broadcast one way to [M,N].
type Gemm struct {
	TransA, TransB bool
	Alpha, Beta    float64
}

// Conv is ONNX's Conv over 1 to 3 spatial axes. Operands: x [N,C,…],
// w [M,C/Group,…], and b [M] or left out. All attribute lists have one number
// per spatial axis.
type Conv struct {
	Strides, Dilations []int64
	PadsBegin, PadsEnd []int64
	Group              int64
}

// MaxPool is ONNX's MaxPool over any number of spatial axes of x [N,C,…].
// Results: the maxima and, optionally, their I64 indices into the flattened
// operand (row-major, or column-major over the spatial axes).
type MaxPool struct {
	Kernel, Strides, Dilations []int64
	PadsBegin, PadsEnd         []int64
	Ceil                       bool // round the output size up
	ColumnMajor                bool
}

// AveragePool is ONNX's AveragePool over any number of spatial axes of
// x [N,C,…]. Positions added by Ceil beyond the padding never count.
type AveragePool struct {
	Kernel, Strides, Dilations []int64
	PadsBegin, PadsEnd         []int64
	Ceil                       bool
	CountIncludePad            bool
}

// BatchNorm is inference-mode batch normalisation. Operands: x [N,C,…],
// scale, bias, mean, variance, each [C].
type BatchNorm struct{ Epsilon float64 }

// Softmax normalises along Axis; Log gives the logarithm of the result.
type Softmax struct {
	Axis int64
	Log  bool
}

// LayerNorm normalises over the axes from Axis to the last. Operands: x,
// scale, and bias or left out, broadcast one way to x. Results: y, and on
// demand mean and inverse standard deviation (F32, the normalised axes being
// 1). Statistics are computed in F32 (F64 for F64 operands).
type LayerNorm struct {
	Axis    int64
	Epsilon float64
}

// ReduceFn names a reduction.
type ReduceFn string

// The reductions of ONNX's Reduce family.
const (
	ReduceSum       ReduceFn = "sum"
	ReduceMean      ReduceFn = "mean"
	ReduceMax       ReduceFn = "max"
	ReduceMin       ReduceFn = "min"
	ReduceProd      ReduceFn = "prod"
	ReduceL1        ReduceFn = "l1"
	ReduceL2        ReduceFn = "l2"
	ReduceLogSum    ReduceFn = "log_sum"
	ReduceLogSumExp ReduceFn = "log_sum_exp"
	ReduceSumSquare ReduceFn = "sum_square"
)

// Reduce reduces over Axes (ascending, distinct; empty reduces nothing and
// applies Fn to single elements). KeepDims leaves the axes as 1.
type Reduce struct {
	Fn       ReduceFn
	Axes     []int64
	KeepDims bool
}

// LSTM is ONNX's LSTM. Operands: X, W, R, and on demand B, sequence_lens
// (I32), initial_h, initial_c, P. Results: Y, Y_h, Y_c, each optional.
// Activations holds three names per direction, in ONNX's spelling, with
// ActAlpha and ActBeta as long as Activations. Clip 0 means none.
type LSTM struct {
	Hidden            int64
	Direction         string // "forward", "reverse", "bidirectional"
	Activations       []string
	ActAlpha, ActBeta []float64
	Clip              float64
	InputForget       bool
	BatchFirst        bool // ONNX's layout 1
}
